//! The driver's device on this system.

use std::io;

use stackhound_kstack_proto::{Code, PATH};
use stackhound_windows::memory::take_debug_privilege;
use stackhound_windows::{self as system, device};

use crate::{Client, Device, Error, Patience, Refused, Thread};

/// The device of the driver.
#[derive(Debug)]
pub struct SystemDevice(device::Device);

impl Device for SystemDevice {
    fn control(&mut self, code: Code, input: &[u8], output: &mut [u8]) -> Result<usize, Refused> {
        self.0.control(code.number(), input, output).map_err(|error| refused(&error))
    }
}

impl Client<SystemDevice> {
    /// Enables `SeDebugPrivilege`, which stays enabled in this process, and opens the device of the
    /// driver.
    ///
    /// # Errors
    /// If the privilege is not held, or the driver is not loaded, denies access, or has another
    /// version.
    pub fn open() -> Result<Client<SystemDevice>, Error> {
        take_debug_privilege().map_err(|error| match error {
            system::Error::NoPrivilege(_) => Error::NoPrivilege,
            other => Error::System(refused(&other)),
        })?;
        let device = device::Device::open(PATH).map_err(|error| refused(&error))?;
        Client::over(SystemDevice(device), Patience::default())
    }
}

/// The current threads of a process, by id. Empty if the process does not exist.
pub fn threads(process_id: u32) -> Result<Vec<Thread>, Error> {
    let threads = system::threads::of_process(process_id).map_err(|error| Error::System(refused(&error)))?;
    Ok(threads.into_iter().map(|thread| Thread { id: thread.id, created: thread.created }).collect())
}

fn refused(error: &system::Error) -> Refused {
    match error {
        system::Error::Call { function, source } => Refused {
            function,
            code: source.raw_os_error().unwrap_or_default().cast_unsigned(),
            text: without_code(source),
        },
        other => Refused { function: "Windows", code: 0, text: other.to_string() },
    }
}

/// The text of Windows without the error code, which [`Refused`] has separately.
fn without_code(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().trim_end_matches(['.', '\r', '\n', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The driver is not loaded where these tests run.
    #[test]
    fn a_missing_driver_is_reported() {
        assert_eq!(Client::open().expect_err("there is no driver"), Error::NotLoaded);
    }

    #[test]
    fn threads_have_creation_times() {
        let threads = threads(std::process::id()).expect("the threads of this process");
        assert!(!threads.is_empty());
        assert!(threads.iter().all(|thread| thread.created.is_some()), "{threads:?}");
    }

    #[test]
    fn system_errors_keep_function_code_and_text() {
        let error = device::Device::open(r"\\.\StackhoundNoSuchDevice").expect_err("there is no such device");
        let refused = refused(&error);
        assert_eq!((refused.function, refused.code), ("CreateFileW", 2));
        assert!(!refused.text.is_empty() && !refused.text.contains("os error"), "{refused:?}");
    }
}
