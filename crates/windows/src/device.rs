//! Devices of drivers: opening a device and sending control codes.
//!
//! Sources: Microsoft's pages of `CreateFileW` and `DeviceIoControl`.

use std::fs::OpenOptions;
use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_FILE_NOT_FOUND, ERROR_INVALID_PARAMETER};
use windows_sys::Win32::System::IO::DeviceIoControl;

use crate::Error;

/// A device that is open for reading and writing. Dropping the value closes it.
#[derive(Debug)]
pub struct Device {
    handle: OwnedHandle,
}

impl Device {
    /// The code that [`Error::code`] returns if no driver has created the device.
    pub const NOT_FOUND: u32 = ERROR_FILE_NOT_FOUND;

    /// Opens a device by its path, `\\.\NAME`. The driver may check the caller, which can take any
    /// time.
    ///
    /// # Errors
    /// The error of `CreateFileW`: [`Device::NOT_FOUND`] if there is no such device, which means
    /// that its driver is not loaded, and other errors of the driver.
    pub fn open(path: &str) -> Result<Device, Error> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|source| Error::Call { function: "CreateFileW", source })?;
        Ok(Device { handle: file.into() })
    }

    /// Sends a control code with its input to the device, and waits for the result. Returns the
    /// number of bytes that were written to `output`.
    ///
    /// # Errors
    /// The error of `DeviceIoControl`: the result of the driver, as a system error code. The
    /// content of `output` is then undefined.
    pub fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<usize, Error> {
        const NAME: &str = "DeviceIoControl";
        let length = |length: usize| {
            u32::try_from(length).map_err(|_| Error::of_status(NAME, ERROR_INVALID_PARAMETER))
        };
        let (from, to) = (length(input.len())?, length(output.len())?);
        let mut written = 0;
        // SAFETY: the device is open, and not for overlapped use, so the operation is complete when
        // the call returns; both buffers have the given lengths, and the input is only read.
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
    fn a_missing_device_is_not_found() {
        for path in [r"\\.\StackhoundNoSuchDevice", r"\\.\Global\StackhoundNoSuchDevice"] {
            let error = Device::open(path).expect_err("no driver created it");
            assert_eq!(error.code(), Some(("CreateFileW", Device::NOT_FOUND)), "{path}: {error}");
        }
    }

    /// The null device exists on every Windows and in Wine. It has no control codes.
    #[test]
    fn a_refused_control_code_is_reported() {
        let device = Device::open(r"\\.\NUL").expect("the null device");
        let error = device.control(0x0022_e000, &[1, 2, 3], &mut [0; 8]).expect_err("it knows none");
        let (function, code) = error.code().expect("a code of the system");
        assert_eq!(function, "DeviceIoControl");
        assert_ne!(code, 0, "{error}");
    }
}
