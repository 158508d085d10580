//! The frames of a stack that detections evaluate, found once for all detections.

use stackhound_frames::{Code, Frame, Module, Modules, Role, Roles};
use stackhound_types::Mode;

use crate::case::Case;
use crate::history::History;
use crate::stack::{Memory, Part, SiteBytes};
use crate::verdict::Reason;

/// A stack with the positions of its relevant frames. Positions are indexes of frames, innermost
/// first.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The event and its stack.
    pub case: &'a Case<'a>,
    /// The modules that the frames refer to.
    pub modules: &'a Modules,
    /// The innermost user frame: the address that the kernel returns to. Kernel frames after it, of
    /// a callback to user mode, are skipped.
    pub return_frame: Option<usize>,
    /// In a 32-bit process, the innermost 32-bit frame, after the 64-bit frames of the WoW64 layer.
    pub top_32_bit: Option<usize>,
    /// The innermost user frame that is in neither a system-call module nor the WoW64 layer: the
    /// caller of the native API.
    pub caller: Option<usize>,
    /// The innermost user frame outside of the native layer, forwarders and known hooks: the frame
    /// of the final user module.
    pub final_module_frame: Option<usize>,
    /// The outermost frame, if it is a user frame.
    pub last: Option<usize>,
    /// The innermost user frame in no module.
    pub unbacked: Option<usize>,
    /// The innermost user frame for which this is not known.
    pub unknown: Option<usize>,
}

impl<'a> View<'a> {
    /// Finds the frames in one pass over the stack.
    pub fn new(case: &'a Case<'a>, modules: &'a Modules) -> View<'a> {
        let mut view = View {
            case,
            modules,
            return_frame: None,
            top_32_bit: None,
            caller: None,
            final_module_frame: None,
            last: None,
            unbacked: None,
            unknown: None,
        };
        for (index, frame) in case.stack.frames.iter().enumerate() {
            if frame.mode == Mode::Kernel {
                continue;
            }
            view.return_frame.get_or_insert(index);
            if frame.is_wow64 {
                view.top_32_bit.get_or_insert(index);
            }
            let roles = view.roles(frame);
            match frame.code {
                Code::Unbacked => drop(view.unbacked.get_or_insert(index)),
                Code::Unknown => drop(view.unknown.get_or_insert(index)),
                Code::Jit(_) | Code::Image(..) => {}
            }
            if !roles.has_any(Role::SystemCall | Role::Wow64) {
                view.caller.get_or_insert(index);
            }
            if !roles.has_any(Roles::PASS_ON) {
                view.final_module_frame.get_or_insert(index);
            }
        }
        let last = case.stack.frames.len().checked_sub(1);
        view.last = last.filter(|last| case.stack.frames[*last].mode == Mode::User);
        view
    }

    /// The frame at an index.
    pub fn frame(&self, index: usize) -> &'a Frame {
        &self.case.stack.frames[index]
    }

    /// The memory of a frame. If the live process was not read, the last recorded protection.
    pub fn memory(&self, index: usize) -> Memory {
        let memory = self.case.stack.memory(index);
        let Some(history) = self.history(index) else { return memory };
        Memory {
            kind: memory.kind.or(history.kind),
            protection: memory.protection.or(history.protection),
            ..memory
        }
    }

    /// The recorded changes of the memory of a frame.
    pub fn history(&self, index: usize) -> Option<&'a History> {
        self.case.event.memory.frames.get(index)?.as_ref()
    }

    /// The bytes around a frame, if they were read from memory.
    pub fn bytes(&self, index: usize) -> Option<SiteBytes> {
        self.case.stack.bytes(index)
    }

    /// All frames, innermost first.
    pub fn frames(&self) -> &'a [Frame] {
        self.case.stack.frames
    }

    /// The user frames, with their indexes.
    pub fn user_frames(&self) -> impl Iterator<Item = (usize, &'a Frame)> + use<'a> {
        self.frames().iter().enumerate().filter(|(_, frame)| frame.mode == Mode::User)
    }

    /// The module of a frame.
    pub fn module(&self, frame: &Frame) -> Option<&'a Module> {
        Some(self.modules.get(frame.code.module()?))
    }

    /// The roles of a frame's module; empty for code in no module.
    pub fn roles(&self, frame: &Frame) -> Roles {
        frame.code.module().map_or_else(Roles::default, |module| self.modules.roles(module))
    }

    /// Whether the module of a frame has a role.
    pub fn is(&self, index: usize, role: Role) -> bool {
        self.roles(self.frame(index)).has(role)
    }

    /// The roles of the code next to a frame in no module: before and after the run of such frames
    /// that contains it. Runtimes call the code that they compile and are called by it, so only
    /// code next to a runtime can be its output. JIT-compiled code counts as a runtime.
    pub fn roles_beside(&self, index: usize) -> Roles {
        let is_beside = |frame: &&Frame| {
            frame.mode == Mode::User && !matches!(frame.code, Code::Unbacked | Code::Unknown)
        };
        let roles = |frame: Option<&Frame>| match frame {
            Some(Frame { code: Code::Jit(_), .. }) => Role::Runtime.into(),
            Some(frame) => self.roles(frame),
            None => Roles::default(),
        };
        let (inner, outer) = self.frames().split_at(index);
        roles(inner.iter().rev().find(is_beside)) | roles(outer.iter().find(is_beside))
    }

    /// Whether the user stack was recorded. It may end at the limit of the capture.
    pub fn has_user_part(&self) -> bool {
        self.case.stack.user == Part::Whole
    }

    /// Why outer user frames may be missing; `None` if they are not.
    pub fn cut(&self) -> Option<Reason> {
        let stack = &self.case.stack;
        let at_limit = stack.is_at_limit().then_some(Reason::AtLimit);
        at_limit.or_else(|| stack.is_truncated.then_some(Reason::StackTruncated))
    }
}
