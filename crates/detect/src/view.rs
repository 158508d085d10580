//! What the detections look at in a stack, found once for all of them.

use stackhound_frames::{Code, Frame, Module, Modules, Role, Roles};
use stackhound_types::Mode;

use crate::case::Case;
use crate::stack::{Memory, Part, SiteBytes};
use crate::verdict::Reason;

/// A stack with its landmarks. All places are indexes of frames, innermost first.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What is evaluated.
    pub case: &'a Case<'a>,
    /// The modules that its frames name.
    pub modules: &'a Modules,
    /// The innermost user frame, unless the kernel called user code back before it: the place where the kernel was entered.
    pub top: Option<usize>,
    /// In a 32-bit process, the innermost 32-bit frame, behind the layer's 64-bit ones.
    pub top_32_bit: Option<usize>,
    /// The first user frame that is neither in a module of system calls nor in the WoW64 layer: the caller of the native
    /// layer.
    pub caller: Option<usize>,
    /// The first user frame outside of Windows' own layers and known hooks: who asked.
    pub final_module_frame: Option<usize>,
    /// The outermost frame, if it is a user frame.
    pub last: Option<usize>,
    /// The first user frame in no module, and how many there are.
    pub unbacked: Option<usize>,
    /// The first user frame of which that is not known.
    pub unknown: Option<usize>,
    /// Whether a module of a runtime, or code that it told of, is in the stack.
    pub has_runtime: bool,
}

impl<'a> View<'a> {
    /// Finds the landmarks. One pass over the frames.
    pub fn new(case: &'a Case<'a>, modules: &'a Modules) -> View<'a> {
        let mut view = View {
            case,
            modules,
            top: None,
            top_32_bit: None,
            caller: None,
            final_module_frame: None,
            last: None,
            unbacked: None,
            unknown: None,
            has_runtime: false,
        };
        for (index, frame) in case.stack.frames.iter().enumerate() {
            if frame.mode == Mode::Kernel {
                continue;
            }
            view.top.get_or_insert(index);
            if frame.is_wow64 {
                view.top_32_bit.get_or_insert(index);
            }
            let roles = view.roles(frame);
            match frame.code {
                Code::Unbacked => drop(view.unbacked.get_or_insert(index)),
                Code::Unknown => drop(view.unknown.get_or_insert(index)),
                Code::Jit(_) => view.has_runtime = true,
                Code::Image(..) => view.has_runtime |= roles.has(Role::Runtime),
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

    /// A frame.
    pub fn frame(&self, index: usize) -> &'a Frame {
        &self.case.stack.frames[index]
    }

    /// The memory of a frame.
    pub fn memory(&self, index: usize) -> Memory {
        self.case.stack.memory(index)
    }

    /// Bytes around a frame that were read from memory.
    pub fn bytes(&self, index: usize) -> Option<SiteBytes> {
        self.case.stack.bytes(index)
    }

    /// All frames, innermost first.
    pub fn frames(&self) -> &'a [Frame] {
        self.case.stack.frames
    }

    /// The user frames with their indexes.
    pub fn user_frames(&self) -> impl Iterator<Item = (usize, &'a Frame)> + use<'a> {
        self.frames().iter().enumerate().filter(|(_, frame)| frame.mode == Mode::User)
    }

    /// The module of a frame.
    pub fn module(&self, frame: &Frame) -> Option<&'a Module> {
        Some(self.modules.get(frame.code.module()?))
    }

    /// What the module of a frame is; nothing for code of no module.
    pub fn roles(&self, frame: &Frame) -> Roles {
        frame.code.module().map_or_else(Roles::default, |module| self.modules.roles(module))
    }

    /// Whether the module of a frame has a role.
    pub fn is(&self, index: usize, role: Role) -> bool {
        self.roles(self.frame(index)).has(role)
    }

    /// Whether the user part is there; it may be cut at the capture's limit.
    pub fn has_user_part(&self) -> bool {
        self.case.stack.user == Part::Whole
    }

    /// Why outer user frames may be missing, if they may.
    pub fn cut(&self) -> Option<Reason> {
        let stack = &self.case.stack;
        let at_limit = stack.is_at_limit().then_some(Reason::AtLimit);
        at_limit.or_else(|| stack.is_truncated.then_some(Reason::StackTruncated))
    }
}
