//! What stands between a thread's own frames and the APC that captured them.
//!
//! The driver leaves out its own frames and the one that called its routine. The kernel's dispatcher of APCs may have more,
//! which only names tell: how many there are depends on the build and on how the thread was reached.

use stackhound_symbols::ResolvedFrame;

use crate::StackFrame;

/// Functions of the kernel that bring a thread to its APCs, by the names in its symbols. A thread can be in none of them for reasons of
/// its own when an APC runs, so they say nothing of what it does. Those in which threads wait, `KiSwapThread` and its callers, are no part
/// of it, though they call the first of these.
const DISPATCHER: [&str; 6] = [
    // Runs the APCs of the thread.
    "KiDeliverApc",
    // The interrupt by which a running thread is told that it has one.
    "KiApcInterrupt",
    // Looks whether there is one, as a guarded or critical region ends.
    "KiCheckForKernelApcDelivery",
    // The same, as a processor goes back to a level at which threads are switched.
    "KiCheckForThreadDispatch",
    "KiHandleDeferredPreemption",
    // Enters the first on the way back to user mode.
    "KiInitiateUserApc",
];

/// The kernel, by its module's name, which is the same whatever file it was loaded from.
const KERNEL: &str = "ntoskrnl.exe";

/// Without the dispatcher's frames at the inner end.
pub(super) fn trim(mut frames: Vec<StackFrame>) -> Vec<StackFrame> {
    let count = frames.iter().take_while(|frame| is_dispatcher(frame)).count();
    frames.drain(..count);
    frames
}

/// Only names that are certain count: the export before an address may be that of another function.
fn is_dispatcher(frame: &StackFrame) -> bool {
    let is_kernel =
        frame.location.as_ref().is_some_and(|location| location.module.eq_ignore_ascii_case(KERNEL));
    let named = |names: &ResolvedFrame| {
        let name = names.pdb.as_ref().or(names.export.as_ref());
        name.is_some_and(|name| DISPATCHER.contains(&&*name.text))
    };
    is_kernel && frame.names.as_ref().is_some_and(named)
}
