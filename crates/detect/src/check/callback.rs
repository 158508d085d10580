//! Callbacks from the kernel to user mode that do not go through the dispatcher of `ntdll.dll`
//! (CS26).
//!
//! A system call can call user mode back before it returns, as those of windows do. The kernel
//! starts such a callback in one function of `ntdll.dll`, also in 32-bit processes of 64-bit
//! Windows. The stack then continues with the system call: with kernel frames, or with a stub that
//! is not the innermost frame.

use stackhound_frames::lists::Functions;
use stackhound_frames::{Code, Role};
use stackhound_types::Mode;

use super::{Evidence, without_frames};
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);

/// Functions of `ntdll.dll` that the kernel starts. A stub can also be interrupted by an exception
/// or an asynchronous procedure call.
const STARTED_BY_KERNEL: [Functions; 4] = [
    Functions::CallbackDispatchers,
    Functions::ExceptionDispatchers,
    Functions::WaitDispatchers,
    Functions::ThreadRoots,
];

/// Whether a frame is in the system call during which the frame before it was called: in the
/// kernel, or in `win32u.dll`, which has no other code than stubs.
fn is_in_call(view: &View<'_>, index: usize) -> bool {
    let frame = view.frame(index);
    let roles = view.roles(frame);
    // The first 32-bit frame follows those of the WoW64 layer, which it did not call.
    frame.mode == Mode::Kernel
        || (roles.has(Role::SystemCall) && !roles.has(Role::Ntdll) && view.top_32_bit != Some(index))
}

/// CS26.
pub(crate) fn outside(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let unsure = |reason, input| Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]));
    let Some(first) = view.return_frame else { return without_frames(view, Severity::High, USED) };
    let (mut used, mut doubt, mut has_callback) = (USED, None, false);
    for index in first + 1..view.frames().len() {
        let called = index - 1;
        if view.frame(called).mode == Mode::Kernel || !is_in_call(view, index) {
            continue;
        }
        has_callback = true;
        let outside = |severity| Outcome::yes(severity, Some(called), Reason::CallbackOutside, USED);
        let roles = view.roles(view.frame(called));
        let doubtful = match view.frame(called).code {
            Code::Unknown => unsure(Reason::FrameUnknown, Input::Modules),
            Code::Image(..) if roles.has(Role::Ntdll) => {
                let named = STARTED_BY_KERNEL.map(|list| evidence.is_function(called, list));
                if named[0].is_some() {
                    used = used.with(Input::Symbols);
                    match named.contains(&Some(true)) {
                        true => continue,
                        false => return Outcome { used, ..outside(Severity::Medium) },
                    }
                }
                unsure(Reason::FunctionsUnknown, Input::Symbols)
            }
            // The layer starts callbacks of 32-bit code after the dispatcher, which a walk can miss.
            Code::Image(..) if roles.has(Role::Wow64) => unsure(Reason::ThroughWow64, Input::Symbols),
            Code::Image(..) if roles.has(Role::Hook) => {
                return outside(Severity::Low).because(Reason::HookInStack);
            }
            Code::Image(..) | Code::Jit(_) | Code::Unbacked => return outside(Severity::High),
        };
        doubt.get_or_insert(doubtful.at(called));
    }
    match doubt {
        Some(doubt) => doubt,
        None if !view.has_user_part() => unsure(Reason::StackMissing, Input::Stack),
        None => match view.cut() {
            Some(reason) => unsure(reason, Input::Stack),
            None if has_callback => Outcome::no(Reason::CallbackDispatched, used),
            None => Outcome::no(Reason::NoCallback, used),
        },
    }
}
