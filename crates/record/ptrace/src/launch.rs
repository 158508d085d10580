//! Starts a program so that it is traced from its first instruction on.

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

/// Finds the file that a name means, as a shell does, and checks that it can be recorded.
fn program_file(name: &OsStr) -> Result<PathBuf, Error> {
    let is_path = name.as_bytes().contains(&b'/');
    let found = if is_path {
        Some(PathBuf::from(name))
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_executable(path))
    };
    let path = found.ok_or_else(|| Error::Missing(PathBuf::from(name)))?;
    let there = path.metadata().map_err(|_| Error::Missing(path.clone()))?;
    if !is_executable(&path) {
        return Err(Error::NotExecutable(path));
    }
    // SAFETY: these calls take nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getegid() };
    let other_user = there.mode() & libc::S_ISUID != 0 && there.uid() != user;
    let other_group = there.mode() & libc::S_ISGID != 0 && there.gid() != group;
    if other_user || other_group {
        return Err(Error::OtherUser(path));
    }
    // A file that is no such program may still name one, as scripts do.
    if machine(&path).is_some_and(|machine| machine != X86_64) {
        return Err(Error::OtherMachine(path));
    }
    Ok(path)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| there.is_file() && there.mode() & 0o111 != 0)
}

/// Class and machine of ELF files for 64-bit x86.
const X86_64: (u8, u16) = (2, 62);

/// The class and the machine that an ELF file is for; `None` for other files.
fn machine(path: &Path) -> Option<(u8, u16)> {
    let mut start = [0; 20];
    File::open(path).ok()?.read_exact(&mut start).ok()?;
    start.starts_with(b"\x7fELF").then(|| (start[4], u16::from_le_bytes([start[18], start[19]])))
}

/// Whether the program that a process runs is for 64-bit x86.
pub(crate) fn is_for_this_machine(process: Tid) -> bool {
    machine(Path::new(&format!("/proc/{}/exe", process.0))) == Some(X86_64)
}

/// Starts the program. When this returns, it is stopped inside the system call that started it. Its addresses are not
/// randomized, so that the same program does the same each time.
///
/// # Errors
/// If there is no such program, it may not be run or traced, or is none for 64-bit x86.
pub(crate) fn launch(arguments: &[impl AsRef<OsStr>]) -> Result<Tid, Error> {
    let name = arguments.first().map(AsRef::as_ref).unwrap_or_default();
    let program = program_file(name)?;
    let start = |cause| Error::Start { program: program.clone(), cause };
    // The child says who it is and waits until it is traced; only then it becomes the program.
    let (mut told, tell) = io::pipe().map_err(start)?;
    let (held, release) = io::pipe().map_err(start)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(&arguments[1..]);
    before_exec(&mut command, tell, held, release.as_raw_fd());
    std::thread::scope(|scope| {
        let spawner = scope.spawn(move || command.spawn());
        let mut number = [0; 4];
        let came = told.read_exact(&mut number);
        let tid = Tid(i32::from_ne_bytes(number));
        let seized = if came.is_ok() { control::seize(tid) } else { Ok(()) };
        if seized.is_ok() {
            // If the child is gone already, its start fails and says why.
            let _ = (&release).write_all(&[1]);
        }
        // A child that waits in vain gives up.
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

/// What the child does before it becomes the program: it tells its number and waits until a byte comes. `release` is the
/// other end of what it waits at.
fn before_exec(command: &mut Command, tell: PipeWriter, held: PipeReader, release: RawFd) {
    let prepare = move || {
        // SAFETY: closes the child's copy of an end that the parent keeps open; nothing in the child uses it.
        unsafe { libc::close(release) };
        // SAFETY: takes a number and gives the old one.
        let persona = unsafe { libc::personality(0xffff_ffff) };
        // SAFETY: as above.
        unsafe { libc::personality(persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        // SAFETY: takes nothing and cannot fail.
        let own = unsafe { libc::getpid() };
        let number = own.to_ne_bytes();
        // SAFETY: four bytes are read from where the second argument points.
        let told = unsafe { libc::write(tell.as_raw_fd(), number.as_ptr().cast(), 4) };
        let mut permission = 0u8;
        // SAFETY: one byte is written to where the second argument points.
        let held = unsafe { libc::read(held.as_raw_fd(), (&raw mut permission).cast(), 1) };
        if told == 4 && held == 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    };
    // SAFETY: between fork and exec, the closure makes plain system calls only, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}
