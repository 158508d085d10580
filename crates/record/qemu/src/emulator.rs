//! Finds and starts QEMU with the plugin.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use stackhound_qemu_plugin::protocol::Request;
use tempfile::NamedTempFile;

use crate::error::Error;
use crate::inbox::Inbox;
use crate::shared::SharedRing;

/// The name of the emulator.
const PROGRAM: &str = "qemu-system-x86_64";
/// The first version whose interface for plugins is sufficient, and that was tried.
const VERSION_LEAST: u32 = 10;
/// The plugin.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));
/// How long the emulator may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// A system to record.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initial file system.
    pub initrd: Option<PathBuf>,
    /// Further arguments of QEMU, which take precedence.
    pub arguments: Vec<OsString>,
}

/// A running emulator. It is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Emulator {
    child: Child,
    /// The read end of the pipe that announces records.
    announcements: Option<File>,
    /// The write end of the pipe with the requests.
    requests: File,
    /// The plugin, which is deleted in the end.
    _plugin: NamedTempFile,
}

impl Emulator {
    /// Starts the system. It ends with the calling thread.
    pub fn start(system: &System) -> Result<(Emulator, Inbox), Error> {
        check_version(PROGRAM)?;
        for path in std::iter::once(&system.kernel).chain(&system.initrd) {
            File::open(path).map_err(|cause| Error::Unreadable { path: path.clone(), cause })?;
        }
        let mut command = Command::new(PROGRAM);
        command.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1", "-m", "512"]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(["-chardev", "stdio,id=console,signal=on", "-serial", "chardev:console"]);
        command.arg("-kernel").arg(&system.kernel);
        if let Some(initrd) = &system.initrd {
            command.arg("-initrd").arg(initrd);
        }
        command.args(["-append", "console=ttyS0 panic=-1"]);
        command.args(&system.arguments);
        Emulator::spawn(command, |_| {})
    }

    /// Starts an emulator with the plugin, and the arguments that `complete` adds after that.
    pub fn spawn(
        mut command: Command,
        complete: impl FnOnce(&mut Command),
    ) -> Result<(Emulator, Inbox), Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let start = |cause| Error::Start { program: program.clone(), cause };
        let mut plugin = tempfile::Builder::new().suffix(".so").tempfile().map_err(start)?;
        plugin.write_all(PLUGIN).map_err(start)?;
        let (ring, memory) = SharedRing::create().map_err(start)?;
        let (announcements, output) = pipe().map_err(start)?;
        let (input, requests) = pipe().map_err(start)?;
        // A comma in the name of the file would end it.
        let file = plugin.path().display().to_string().replace(',', ",,");
        let descriptors = [memory.as_raw_fd(), output.as_raw_fd(), input.as_raw_fd()];
        let [memory_number, output_number, input_number] = descriptors;
        command
            .arg("-plugin")
            .arg(format!("file={file},memory={memory_number},output={output_number},input={input_number}"));
        complete(&mut command);
        let parent = std::process::id();
        // SAFETY: between `fork` and `exec`, the closure only makes system calls.
        unsafe { command.pre_exec(move || prepare(descriptors, parent)) };
        let child = command.spawn().map_err(start)?;
        let (announcements, requests) = (Some(File::from(announcements)), File::from(requests));
        Ok((Emulator { child, announcements, requests, _plugin: plugin }, Inbox::new(ring)))
    }

    /// The process of the emulator.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for records to be announced, for some time. Returns `Some(false)` if the emulator has ended, and
    /// `None` if nothing was announced.
    pub fn wait_for_announcement(&mut self, patience: Duration) -> io::Result<Option<bool>> {
        let Some(announcements) = &mut self.announcements else { return Ok(Some(false)) };
        let mut poll = libc::pollfd { fd: announcements.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::timespec {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(patience.subsec_nanos()),
        };
        // SAFETY: there is one entry, and the call only reads the time.
        if unsafe { libc::ppoll(&mut poll, 1, &timeout, std::ptr::null()) } == 0 {
            // Processes that a killed program has started may still have the pipe.
            return Ok(self.child.try_wait()?.map(|_| false));
        }
        match announcements.read(&mut [0; 4096]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            length => length.map(|length| Some(length > 0)),
        }
    }

    /// Sends a request through the pipe.
    pub fn send(&mut self, request: Request) -> io::Result<()> {
        self.send_bytes(&request.to_bytes())
    }

    /// Sends bytes that belong to the last request.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.requests.write_all(bytes)
    }

    /// Waits for the end of the emulator.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Ends the emulator, which restores the settings of the terminal.
    pub fn stop(&mut self) -> io::Result<()> {
        // Otherwise, the emulator can wait for space.
        self.announcements = None;
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // SAFETY: this call has no memory arguments. The process exists until it was waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let started = Instant::now();
        while self.child.try_wait()?.is_none() {
            if started.elapsed() > GRACE {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.stop();
    }
}

/// Creates a pipe, neither end of which other programs inherit.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: there is space for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system returned two open descriptors, and nothing else uses this one.
    let reader = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let writer = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((reader, writer))
}

/// Prepares the process of the emulator: it inherits the memory and the pipes, and ends with the recorder.
fn prepare(descriptors: [i32; 3], parent: u32) -> io::Result<()> {
    let done = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    for descriptor in descriptors {
        // SAFETY: this call has no memory arguments.
        done(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })?;
    }
    // SAFETY: as above.
    done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    // SAFETY: as above.
    if unsafe { libc::getppid() } as u32 != parent {
        return Err(io::Error::other("the recorder has ended"));
    }
    Ok(())
}

/// Checks that an emulator is recent enough and accepts plugins.
pub(crate) fn check_version(program: &'static str) -> Result<(), Error> {
    let ask = |arguments: &[&str]| match Command::new(program).args(arguments).output() {
        Ok(output) => Ok(output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Missing { program }),
        Err(cause) => Err(Error::Start { program: program.to_owned(), cause }),
    };
    check_answer(program, &String::from_utf8_lossy(&ask(&["-version"])?.stdout))?;
    if ask(&["-plugin", "help"])?.status.success() { Ok(()) } else { Err(Error::WithoutPlugins { program }) }
}

/// Checks the emulator's statement of its version.
fn check_answer(program: &'static str, answer: &str) -> Result<(), Error> {
    let found = answer.split_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("unknown");
    let major = found.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major >= VERSION_LEAST) {
        Ok(())
    } else {
        Err(Error::Old { program, found: found.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_checked() {
        let check = |answer| check_answer(PROGRAM, answer).map_err(|error| error.to_string());
        assert_eq!(check("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright"), Ok(()));
        assert_eq!(check("QEMU emulator version 11.1.0\n"), Ok(()));
        for (answer, found) in [("QEMU emulator version 7.2.22 (Debian)", "7.2.22"), ("other", "unknown")] {
            let error = check(answer).expect_err("too old");
            assert!(
                error.starts_with(&format!("qemu-system-x86_64 has version {found}; expected 10")),
                "{error}"
            );
        }
    }
}
