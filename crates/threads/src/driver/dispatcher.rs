//! The frames between a thread's own frames and the APC that captured them.
//!
//! The driver omits its own frames and the frame that called its routine. The APC dispatcher of the
//! kernel may have more frames, which are recognized by name: their number depends on the build and
//! on how the thread was reached.

use stackhound_symbols::ResolvedFrame;

use crate::StackFrame;

/// Kernel functions that run APCs, by their symbol names. While an APC runs, a thread cannot be in
/// one of them for another reason, so they do not describe the activity of the thread. The
/// functions in which threads wait, `KiSwapThread` and its callers, are not included, although they
/// call the first of these.
const DISPATCHER: [&str; 6] = [
    // Runs the APCs of the thread.
    "KiDeliverApc",
    // The interrupt that notifies a running thread of an APC.
    "KiApcInterrupt",
    // Checks for an APC when a guarded or critical region ends.
    "KiCheckForKernelApcDelivery",
    // Checks for an APC when a processor returns to a level at which threads are switched.
    "KiCheckForThreadDispatch",
    "KiHandleDeferredPreemption",
    // Calls the first function on the return to user mode.
    "KiInitiateUserApc",
];

/// The module name of the kernel, which does not depend on the file it was loaded from.
const KERNEL: &str = "ntoskrnl.exe";

/// Removes the frames of the dispatcher at the inner end.
pub(super) fn trim(mut frames: Vec<StackFrame>) -> Vec<StackFrame> {
    let count = frames.iter().take_while(|frame| is_dispatcher(frame)).count();
    frames.drain(..count);
    frames
}

/// Only reliable names count: the nearest export can belong to another function.
fn is_dispatcher(frame: &StackFrame) -> bool {
    let is_kernel =
        frame.location.as_ref().is_some_and(|location| location.module.eq_ignore_ascii_case(KERNEL));
    let named = |names: &ResolvedFrame| {
        let name = names.pdb.as_ref().or(names.export.as_ref());
        name.is_some_and(|name| DISPATCHER.contains(&&*name.text))
    };
    is_kernel && frame.names.as_ref().is_some_and(named)
}
