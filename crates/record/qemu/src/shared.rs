//! Memory that the recorder shares with the plugin.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use stackhound_qemu_plugin::protocol::Ring;

/// A mapping of shared memory.
#[derive(Debug)]
pub(crate) struct SharedRing {
    start: NonNull<Ring>,
}

impl SharedRing {
    /// Creates shared memory. The file is for the other side.
    pub fn create() -> io::Result<(SharedRing, File)> {
        // SAFETY: the name ends with a zero byte.
        let descriptor = unsafe { libc::memfd_create(c"stackhound".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the system returned an open descriptor, and nothing else uses it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        file.set_len(size_of::<Ring>() as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses the address.
        let mapped = unsafe {
            libc::mmap(std::ptr::null_mut(), size_of::<Ring>(), access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let start = NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED);
        let start = start.ok_or_else(io::Error::last_os_error)?;
        Ok((SharedRing { start }, file))
    }

    pub fn get(&self) -> &Ring {
        // SAFETY: the mapping has this length, exists as long as this value, and both sides access it as
        // atomic words.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was created, and no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), size_of::<Ring>()) };
    }
}
