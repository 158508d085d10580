//! The device from the view of a program.

use std::fs::{File, OpenOptions};
use std::os::windows::io::AsRawHandle;

use stackhound_kstack_proto::{
    Answer, AnswerHeader, Capture, Code, Missing, Outcome, PATH, Request, Version,
};
use windows_sys::Win32::Foundation::{ERROR_BUSY, GetLastError};
use windows_sys::Win32::System::IO::DeviceIoControl;
use zerocopy::{FromBytes, IntoBytes};

/// An open device.
pub struct Device(pub File);

/// The result of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub outcome: Outcome,
    pub kernel: Result<Vec<u64>, Missing>,
    pub user: Result<Vec<u64>, Missing>,
    pub header: AnswerHeader,
}

impl Device {
    /// Opens the device for reading and writing.
    ///
    /// Wine opens the device before it calls the driver, and ignores the result. Therefore this
    /// function also requests the version. If the driver refuses that, Windows would have refused
    /// to open the device.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn open() -> Result<Device, u32> {
        let device = Self::open_for(true, true)?;
        device.version()?;
        Ok(device)
    }

    /// Opens the device without requesting the version.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn open_for(read: bool, write: bool) -> Result<Device, u32> {
        let opened = OpenOptions::new().read(read).write(write).open(PATH);
        opened.map(Device).map_err(|error| error.raw_os_error().expect("an error of the system") as u32)
    }

    /// The version of the driver.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn version(&self) -> Result<Version, u32> {
        let bytes = self.control(Code::Version.number(), &[], 100)?;
        Ok(Version::read_from_bytes(&bytes).expect("an answer of the right length"))
    }

    /// Sends a request, and returns the bytes of the answer.
    ///
    /// # Errors
    /// The Win32 error. Then nothing was written.
    pub fn control(&self, code: u32, input: &[u8], room: usize) -> Result<Vec<u8>, u32> {
        const UNTOUCHED: u8 = 0xa5;
        let mut output = vec![UNTOUCHED; room];
        let mut written = 0;
        let (from, to) = (input.as_ptr(), output.as_mut_ptr());
        // SAFETY: both buffers have the passed lengths, and the file is open.
        let served = unsafe {
            DeviceIoControl(
                self.0.as_raw_handle(),
                code,
                from.cast(),
                input.len() as u32,
                to.cast(),
                room as u32,
                &mut written,
                std::ptr::null_mut(),
            )
        };
        if served == 0 {
            // SAFETY: nothing was called in between.
            let error = unsafe { GetLastError() };
            assert_eq!(written, 0, "refused, but written");
            assert!(output.iter().all(|&byte| byte == UNTOUCHED), "refused, but written");
            return Err(error);
        }
        assert!(
            output[written as usize..].iter().all(|&byte| byte == UNTOUCHED),
            "more was written than reported"
        );
        output.truncate(written as usize);
        Ok(output)
    }

    /// Captures. A thread that has just answered is busy until its APC has ended, so the request is
    /// retried.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn capture(&self, capture: &Capture) -> Result<Answered, u32> {
        for _ in 0..20 {
            match self.capture_once(capture) {
                Err(ERROR_BUSY) => std::thread::sleep(std::time::Duration::from_millis(5)),
                result => return result,
            }
        }
        self.capture_once(capture)
    }

    /// Captures. The answer is checked as the client does: layout, request, counts and hash.
    fn capture_once(&self, capture: &Capture) -> Result<Answered, u32> {
        let request = Request::from(*capture);
        let room = AnswerHeader::length_with(usize::from(capture.max_frames));
        let bytes = self.control(Code::Capture.number(), request.as_bytes(), room)?;
        let answer = Answer::parse(&bytes, capture).expect("an answer to this request");
        Ok(Answered {
            outcome: answer.outcome(),
            kernel: answer.kernel().map(Iterator::collect),
            user: answer.user().map(Iterator::collect),
            header: *answer.header(),
        })
    }

    /// The outcome of one capture, without retries.
    ///
    /// # Errors
    /// The Win32 error.
    pub fn outcome(&self, capture: &Capture) -> Result<Outcome, u32> {
        self.capture_once(capture).map(|answered| answered.outcome)
    }
}
