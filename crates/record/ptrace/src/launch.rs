//! Starts a program under trace from its first instruction.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::control::{self, Stop, Tid};
use crate::error::Error;

/// Finds the file of a program as a shell does, and checks that it can be recorded.
fn program_file(name: &OsStr) -> Result<PathBuf, Error> {
    let is_path = name.as_bytes().contains(&b'/');
    let found = if is_path {
        Some(PathBuf::from(name))
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_executable(path))
    };
    let path = found.ok_or_else(|| Error::Missing(PathBuf::from(name)))?;
    let metadata = path.metadata().map_err(|_| Error::Missing(path.clone()))?;
    if !is_executable(&path) {
        return Err(Error::NotExecutable(path));
    }
    // SAFETY: these calls take no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getegid() };
    let other_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user;
    let other_group = metadata.mode() & libc::S_ISGID != 0 && metadata.gid() != group;
    if other_user || other_group {
        return Err(Error::OtherUser(path));
    }
    // Files other than ELF files may still name a program, as scripts do.
    if machine(&path).is_some_and(|machine| machine != X86_64) {
        return Err(Error::OtherMachine(path));
    }
    Ok(path)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

/// The class and machine of ELF files for 64-bit x86.
const X86_64: (u8, u16) = (2, 62);

/// The class and machine of an ELF file; `None` for other files.
fn machine(path: &Path) -> Option<(u8, u16)> {
    let mut start = [0; 20];
    File::open(path).ok()?.read_exact(&mut start).ok()?;
    start.starts_with(b"\x7fELF").then(|| (start[4], u16::from_le_bytes([start[18], start[19]])))
}

/// Whether the program that a process runs is for 64-bit x86.
pub(crate) fn is_for_this_machine(process: Tid) -> bool {
    machine(Path::new(&format!("/proc/{}/exe", process.0))) == Some(X86_64)
}

/// Starts the program. When this returns, the program is stopped inside the system call that
/// started it. Its addresses are not randomized, so that the same program behaves the same each
/// time.
///
/// # Errors
/// If the program does not exist, must not be executed or traced, or is not for 64-bit x86.
pub(crate) fn launch(arguments: &[impl AsRef<OsStr>]) -> Result<Tid, Error> {
    let name = arguments.first().map(AsRef::as_ref).unwrap_or_default();
    let program = program_file(name)?;
    let start = |cause| Error::Start { program: program.clone(), cause };
    // The child sends its process id and waits until it is traced, before it executes the program.
    let (mut receiver, sender) = io::pipe().map_err(start)?;
    let (held, release) = io::pipe().map_err(start)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(&arguments[1..]);
    before_exec(&mut command, sender, held, release.as_raw_fd());
    std::thread::scope(|scope| {
        let spawner = scope.spawn(move || command.spawn());
        let mut number = [0; 4];
        let received = receiver.read_exact(&mut number);
        let tid = Tid(i32::from_ne_bytes(number));
        let seized = if received.is_ok() { control::seize(tid) } else { Ok(()) };
        if seized.is_ok() {
            // If the child has already ended, `spawn` returns the reason.
            let _ = (&release).write_all(&[1]);
        }
        // A child that still waits ends with an error.
        drop(release);
        let child: io::Result<Child> = spawner.join().expect("starting a program does not panic");
        seized.map_err(Error::NotTraceable)?;
        child.map_err(start)?;
        match control::wait(Some(tid), true).map_err(start)? {
            Some((_, Stop::Exec)) if is_for_this_machine(tid) => Ok(tid),
            Some((_, Stop::Exec)) => {
                control::kill(tid);
                Err(Error::OtherMachine(program.clone()))
            }
            _ => Err(start(io::Error::other("it was ended before its first instruction"))),
        }
    })
}

/// Sets the actions of the child before it executes the program: it sends its process id and waits
/// for a byte. `release` is the writing end of the pipe on which it waits.
fn before_exec(command: &mut Command, sender: PipeWriter, held: PipeReader, release: RawFd) {
    let prepare = move || {
        // SAFETY: closes the child's copy of an end that the parent keeps open; nothing in the
        // child uses it.
        unsafe { libc::close(release) };
        // SAFETY: takes a number and returns the old one.
        let persona = unsafe { libc::personality(0xffff_ffff) };
        // SAFETY: as above.
        unsafe { libc::personality(persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        // SAFETY: takes no arguments and cannot fail.
        let own = unsafe { libc::getpid() };
        let number = own.to_ne_bytes();
        // SAFETY: four bytes are read through the second argument.
        let sent = unsafe { libc::write(sender.as_raw_fd(), number.as_ptr().cast(), 4) };
        let mut permission = 0u8;
        // SAFETY: one byte is written through the second argument.
        let held = unsafe { libc::read(held.as_raw_fd(), (&raw mut permission).cast(), 1) };
        if sent == 4 && held == 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    };
    // SAFETY: between fork and exec, the closure only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}
