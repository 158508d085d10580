//! File mapping: the only module of this crate with `unsafe` code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Files that are or were mapped, with their sizes at that time.
static MAPPED: Mutex<Vec<(PathBuf, u64)>> = Mutex::new(Vec::new());

/// The bytes of a file. The file is mapped if the system allows it, and otherwise read into memory
/// (some network drives). If another program truncates the file while it is mapped, reading it
/// raises `SIGBUS`; see `on_shrunk_file`.
///
/// # Errors
/// The file cannot be opened, or it can be neither mapped nor read.
pub fn bytes_of(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if !mapped.iter().any(|(known, of)| known == path && *of == size) {
        mapped.push((path.to_owned(), size));
    }
    drop(mapped);
    map(file)
}

/// Maps a file that no other program can open, or that is already registered in [`MAPPED`].
pub(super) fn map(mut file: File) -> io::Result<Bytes> {
    // SAFETY: a mapping is unsound only while another program changes the file. No reader of these
    // bytes reads one twice and relies on equal values without a bounds check in between: all
    // readers of .etl files and of indexes treat bytes as hostile. A file that is truncated
    // meanwhile ends the process with a bus error, never with wrong results.
    match unsafe { memmap2::Mmap::map(&file) } {
        Ok(mapping) => Ok(Bytes::from_owner(mapping)),
        Err(_) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes.into())
        }
    }
}

/// Installs a `SIGBUS` handler: if a mapped file turns out to be shorter than it was, `end` is
/// called with its path on another thread. It must end the process, because the thread that reads
/// the file stops forever. Intended for programs; libraries should not install signal handlers.
///
/// # Errors
/// The thread, the pipe or the signal handler cannot be created.
#[cfg(unix)]
pub fn on_shrunk_file(end: impl FnOnce(&Path) + Send + 'static) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    use std::sync::atomic::{AtomicI32, Ordering};

    static WRITER: AtomicI32 = AtomicI32::new(-1);

    extern "C" fn stop(_: libc::c_int) {
        // SAFETY: both functions may be called in a signal handler. The byte is a static, and the
        // pipe is never closed.
        unsafe {
            libc::write(WRITER.load(Ordering::Relaxed), [0_u8].as_ptr().cast(), 1);
            loop {
                libc::pause();
            }
        }
    }

    let (mut reader, writer) = io::pipe()?;
    WRITER.store(writer.into_raw_fd(), Ordering::Relaxed);
    std::thread::Builder::new().name("mapped files".to_owned()).spawn(move || {
        if reader.read_exact(&mut [0]).is_ok() {
            let mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let is_shorter =
                |(path, size): &&(PathBuf, u64)| path.metadata().map_or(true, |found| found.len() < *size);
            let path = mapped.iter().find(is_shorter).or(mapped.last());
            end(path.map_or(Path::new("a file"), |(path, _)| path));
        }
    })?;
    // SAFETY: zeros are a valid `sigaction`; its handler is a function that takes the signal
    // number.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}
