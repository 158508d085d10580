//! Devices of drivers: opening one, and asking it.
//!
//! Sources: Microsoft's pages of `CreateFileW` and `DeviceIoControl`.

use std::fs::OpenOptions;
use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_INVALID_PARAMETER};
use windows_sys::Win32::System::IO::DeviceIoControl;

use crate::Error;

/// A device that was opened to be read and written. Closed when it is dropped.
#[derive(Debug)]
pub struct Device {
    handle: OwnedHandle,
}

impl Device {
    /// What [`Error::code`] gives where no driver has made the device.
    pub const NOT_FOUND: u32 = ERROR_FILE_NOT_FOUND;

    /// Opens a device by its path, `\\.\NAME`. The driver may ask who opens it, and how long that takes is its matter.
    ///
    /// # Errors
    /// Of `CreateFileW`: [`Device::NOT_FOUND`] if there is no such device, which means that its driver is not loaded, and others as
    /// the driver gives them.
    pub fn open(path: &str) -> Result<Device, Error> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|source| Error::Call { function: "CreateFileW", source })?;
        Ok(Device { handle: file.into() })
    }

    /// Sends the device a control code with its input, and waits for the answer. Gives how many bytes of `output` were written.
    ///
    /// # Errors
    /// Of `DeviceIoControl`: what the driver answers, as one of the system's error codes. What `output` holds then is not known.
    pub fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, Error> {
        const NAME: &str = "DeviceIoControl";
        let length = |length: usize| {
            u32::try_from(length).map_err(|_| Error::of_status(NAME, ERROR_INVALID_PARAMETER))
        };
        let (from, to) = (length(input.len())?, length(output.len())?);
        let mut written = 0;
        // SAFETY: the device is open, and not for overlapped use, so the call is over when it returns; both buffers are as long as is
        // said, and the input is only read.
        let done = unsafe {
            DeviceIoControl(
                self.handle.as_raw_handle(),
                code,
                input.as_ptr().cast(),
                from,
                output.as_mut_ptr().cast(),
                to,
                &mut written,
                ptr::null_mut(),
            )
        };
        if done == 0 {
            return Err(Error::Call { function: NAME, source: io::Error::last_os_error() });
        }
        Ok(output.len().min(written as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_nobody_made_is_not_found() {
        for path in [r"\\.\StackhoundNoSuchDevice", r"\\.\Global\StackhoundNoSuchDevice"] {
            let error = Device::open(path).expect_err("nobody made it");
            assert_eq!(error.code(), Some(("CreateFileW", Device::NOT_FOUND)), "{path}: {error}");
        }
    }

    /// The null device is there on every Windows, and in Wine. It knows no control codes.
    #[test]
    fn what_a_device_refuses_is_told_with_its_code() {
        let device = Device::open(r"\\.\NUL").expect("the null device");
        let error = device.control(0x0022_e000, &[1, 2, 3], &mut [0; 8]).expect_err("it knows none");
        let (function, code) = error.code().expect("a code of the system");
        assert_eq!(function, "DeviceIoControl");
        assert_ne!(code, 0, "{error}");
    }
}
