//! What the console tells a program, and what Windows does then.

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

/// The function of kernelbase.dll that the console has a process run, in a thread of its own: calls the handlers.
type ControlRoutine = unsafe extern "system" fn(usize) -> u32;

/// Has each of these happen after its time.
pub(super) fn send(events: &[(ConsoleEvent, u64)]) {
    for &(event, ms) in events {
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(ms));
            happen(event);
        });
    }
}

fn happen(event: ConsoleEvent) {
    // SAFETY: the name ends with a zero; the library is always loaded.
    let library = unsafe { GetModuleHandleW(w!("kernelbase.dll")) };
    // SAFETY: see above.
    let routine = unsafe { GetProcAddress(library, s!("CtrlRoutine")) }.expect("kernelbase.dll has it");
    // SAFETY: the function of this name has this signature.
    let routine =
        unsafe { std::mem::transmute::<unsafe extern "system" fn() -> isize, ControlRoutine>(routine) };
    let number = match event {
        ConsoleEvent::Interrupt => CTRL_C_EVENT,
        ConsoleEvent::Close => CTRL_CLOSE_EVENT,
    };
    log(format_args!("console {event:?}"));
    // SAFETY: it takes the event's number.
    unsafe { routine(number as usize) };
    if event == ConsoleEvent::Close {
        // As soon as the handlers have returned, whatever else the program does.
        log(format_args!("console ends the process"));
        // SAFETY: has no conditions.
        let this = unsafe { GetCurrentProcess() };
        // SAFETY: a handle of this process, which may end itself.
        unsafe { TerminateProcess(this, CONTROL_C_EXIT) };
    }
}
