//! Notification when the console ends a program.
//!
//! The signals of the C library are not used: the C library maps the closing of a console to a
//! signal whose handler has to keep Windows waiting, while signal libraries return from it at once;
//! and it removes a handler before it calls it.

use std::sync::OnceLock;

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::core::BOOL;

use crate::Error;

/// The reason why a program is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Ctrl-C or Ctrl-Break.
    Interrupt,
    /// The console is closed, the user logs off, or the system shuts down. Windows ends the program
    /// as soon as the handler returns, and after about five seconds in any case (Microsoft's page
    /// "HandlerRoutine callback function").
    Close,
}

type Handler = Box<dyn Fn(End) + Send + Sync>;

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Calls `handler` on a thread of Windows when the program is to end. The program then no longer
/// ends by itself after Ctrl-C. Only the first call in a program has an effect; a second handler is
/// ignored.
///
/// # Errors
/// The error of `SetConsoleCtrlHandler`.
pub fn on_end(handler: impl Fn(End) + Send + Sync + 'static) -> Result<(), Error> {
    if HANDLER.set(Box::new(handler)).is_ok() {
        // SAFETY: the function exists as long as the program.
        let set = unsafe { SetConsoleCtrlHandler(Some(call), 1) };
        if set == 0 {
            return Err(Error::last("SetConsoleCtrlHandler"));
        }
    }
    Ok(())
}

unsafe extern "system" fn call(event: u32) -> BOOL {
    let end = if matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT) { End::Interrupt } else { End::Close };
    if let Some(handler) = HANDLER.get() {
        handler(end);
    }
    1
}
