//! How the console ends a program.
//!
//! Not by the signals of the C library: it maps a closed console to one, whose handler has to keep Windows waiting, while
//! libraries for signals return from it at once; and it takes a handler away before it calls it.

use std::sync::OnceLock;

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::core::BOOL;

use crate::Error;

/// What ends a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Ctrl-C or Ctrl-Break.
    Interrupt,
    /// The console is closed, the user logs off, or the system shuts down. Windows ends the program as soon as the handler
    /// returns, and after about five seconds in any case (Microsoft's page "HandlerRoutine callback function").
    Close,
}

type Handler = Box<dyn Fn(End) + Send + Sync>;

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// From now on, `handler` is called in a thread of Windows' own when the program is to end. Without it, the program ends. Once
/// in a program: a second handler is not taken.
///
/// # Errors
/// That of `SetConsoleCtrlHandler`.
pub fn on_end(handler: impl Fn(End) + Send + Sync + 'static) -> Result<(), Error> {
    if HANDLER.set(Box::new(handler)).is_ok() {
        // SAFETY: the function stays as long as the program.
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
