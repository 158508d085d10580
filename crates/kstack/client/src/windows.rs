//! The driver's device on this system.

use std::io;

use stackhound_kstack_proto::{Code, PATH};
use stackhound_windows::memory::take_debug_privilege;
use stackhound_windows::{self as system, device};

use crate::{Client, Device, Error, Patience, Refused, Thread};

/// The device that the driver has made.
#[derive(Debug)]
pub struct SystemDevice(device::Device);

impl Device for SystemDevice {
    fn control(&mut self, code: Code, input: &[u8], output: &mut [u8]) -> Result<usize, Refused> {
        self.0.control(code.number(), input, output).map_err(|error| refused(&error))
    }
}

impl Client<SystemDevice> {
    /// Opens the driver's device, and takes `SeDebugPrivilege` for that, which this process then keeps.
    ///
    /// # Errors
    /// If the privilege is not held, the driver is not loaded, refuses, or is of another version.
    pub fn open() -> Result<Client<SystemDevice>, Error> {
        take_debug_privilege().map_err(|error| match error {
            system::Error::NoPrivilege(_) => Error::NoPrivilege,
            other => Error::System(refused(&other)),
        })?;
        let device = device::Device::open(PATH).map_err(|error| refused(&error))?;
        Client::over(SystemDevice(device), Patience::default())
    }
}

/// The threads that a process has now, by number. None if there is no such process.
pub fn threads(process_id: u32) -> Result<Vec<Thread>, Error> {
    let threads = system::threads::of_process(process_id).map_err(|error| Error::System(refused(&error)))?;
    Ok(threads.into_iter().map(|thread| Thread { id: thread.id, created: thread.created }).collect())
}

fn refused(error: &system::Error) -> Refused {
    match error {
        system::Error::Call { function, source } => Refused {
            function,
            code: source.raw_os_error().unwrap_or_default().cast_unsigned(),
            text: words(source),
        },
        other => Refused { function: "Windows", code: 0, text: other.to_string() },
    }
}

/// What Windows says, without the number that is told beside it.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().trim_end_matches(['.', '\r', '\n', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody has loaded the driver where these tests run.
    #[test]
    fn without_a_driver_that_is_what_is_said() {
        assert_eq!(Client::open().expect_err("there is no driver"), Error::NotLoaded);
    }

    #[test]
    fn threads_have_times_of_creation() {
        let threads = threads(std::process::id()).expect("the threads of this process");
        assert!(!threads.is_empty());
        assert!(threads.iter().all(|thread| thread.created.is_some()), "{threads:?}");
    }

    #[test]
    fn errors_of_the_system_keep_function_number_and_words() {
        let error = device::Device::open(r"\\.\StackhoundNoSuchDevice").expect_err("nobody made it");
        let refused = refused(&error);
        assert_eq!((refused.function, refused.code), ("CreateFileW", 2));
        assert!(!refused.text.is_empty() && !refused.text.contains("os error"), "{refused:?}");
    }
}
