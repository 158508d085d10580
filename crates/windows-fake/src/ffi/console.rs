//! Simulates console control events: Ctrl-C, and closing the console.

use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::Console::{CTRL_C_EVENT, CTRL_CLOSE_EVENT};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};
use windows_sys::core::{s, w};

use crate::settings::ConsoleEvent;

use super::log::log;

/// `STATUS_CONTROL_C_EXIT`.
const CONTROL_C_EXIT: u32 = 0xc000_013a;

/// The function of kernelbase.dll that the console runs in a new thread of a process. It calls the
/// control handlers.
type ControlRoutine = unsafe extern "system" fn(usize) -> u32;

/// Triggers each event after its delay in milliseconds.
pub(super) fn send(events: &[(ConsoleEvent, u64)]) {
    for &(event, ms) in events {
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(ms));
            trigger(event);
        });
    }
}

fn trigger(event: ConsoleEvent) {
    // SAFETY: the name is zero-terminated; the library is always loaded.
    let library = unsafe { GetModuleHandleW(w!("kernelbase.dll")) };
    // SAFETY: see above.
    let routine = unsafe { GetProcAddress(library, s!("CtrlRoutine")) }.expect("an export of kernelbase.dll");
    // SAFETY: CtrlRoutine has this signature.
    let routine =
        unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, ControlRoutine>(routine) };
    let number = match event {
        ConsoleEvent::Interrupt => CTRL_C_EVENT,
        ConsoleEvent::Close => CTRL_CLOSE_EVENT,
    };
    log(format_args!("console {event:?}"));
    // SAFETY: the argument is the number of the event.
    unsafe { routine(number as usize) };
    if event == ConsoleEvent::Close {
        // Windows ends the process when the handlers have returned, regardless of its other
        // threads.
        log(format_args!("console ends the process"));
        // SAFETY: no preconditions.
        let this = unsafe { GetCurrentProcess() };
        // SAFETY: the handle is that of this process, which may terminate itself.
        unsafe { TerminateProcess(this, CONTROL_C_EXIT) };
    }
}
