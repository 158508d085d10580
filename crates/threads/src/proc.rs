//! Kernel stacks from `/proc/PID/task/TID/stack` on Linux, for tests without Windows.
//!
//! Each line is a frame, innermost first: `[<0>] do_nanosleep+0x5a/0x130` or `[<0>] name+0x5a/0x130
//! [module]`. Since version 5.1, Linux hides the address from all readers. The file requires
//! `CAP_SYS_ADMIN`. It is empty for running threads. Source: `fs/proc/base.c` (`proc_pid_stack`)
//! and `proc_pid_stack(5)`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use stackhound_frames::{Backing, Region};
use stackhound_types::{Address, Mode, Pid, Tid};

use super::{
    Absent, Evidence, FrameLocation, KernelStackError, KernelStackSource, Part, Selection, StackFrame,
    StatedName, ThreadStack, ThreadState,
};

const HINT: &str = "reading /proc/PID/task/TID/stack requires root (CAP_SYS_ADMIN)";
const HINT_KERNEL: &str =
    "this kernel has no /proc/PID/task/TID/stack (it was built without CONFIG_STACKTRACE)";

/// The current stacks of a process on Linux. Threads continue to run meanwhile, so each stack is of
/// a different moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcStacks {
    root: PathBuf,
}

impl Default for ProcStacks {
    fn default() -> ProcStacks {
        ProcStacks { root: PathBuf::from("/proc") }
    }
}

impl ProcStacks {
    /// Reads a `proc` file system that is mounted at `root`.
    pub fn at(root: PathBuf) -> ProcStacks {
        ProcStacks { root }
    }
}

impl KernelStackSource for ProcStacks {
    fn stacks(&mut self, of: &Selection) -> Result<Vec<ThreadStack>, KernelStackError> {
        let pid = of.pid.ok_or(KernelStackError::NeedsProcess)?;
        let process = self.root.join(pid.0.to_string());
        let tasks = match fs::read_dir(process.join("task")) {
            Ok(tasks) => tasks,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(KernelStackError::NoProcess(pid));
            }
            Err(error) => return Err(unreadable(&process.join("task"), error)),
        };
        let mut tids: Vec<u32> = tasks
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&tid| of.chooses(Some(pid), Tid(tid)))
            .collect();
        tids.sort_unstable();
        if let (Some(tid), []) = (of.tid, &tids[..]) {
            return Err(KernelStackError::NoThread(tid, of.pid));
        }
        let mut stacks = Vec::with_capacity(tids.len());
        for tid in tids {
            let task = process.join("task").join(tid.to_string());
            let state = state(&task);
            let kernel = match fs::read_to_string(task.join("stack")) {
                Ok(text) => part(&text, &state),
                Err(error) => Err(refusal(&task, pid, error)?),
            };
            let evidence = kernel.is_ok().then_some(Evidence::Proc);
            stacks.push(ThreadStack {
                pid: Some(pid),
                tid: Tid(tid),
                process: None,
                name: first_line(&task.join("comm")),
                state,
                kernel,
                user: of.user.then_some(Err(Absent::KernelOnly)),
                evidence,
            });
        }
        // Read last: a process that has just started may still have the name of its parent, and a
        // stack must not be older than the name.
        let process = first_line(&process.join("comm"));
        for stack in &mut stacks {
            // The first thread has the name of the process, and may have had a different one a
            // moment ago.
            stack.name.take_if(|own| stack.tid.0 == pid.0 || Some(&*own) == process.as_ref());
            stack.process.clone_from(&process);
        }
        Ok(stacks)
    }
}

/// The reason why the file of one thread cannot be read; an error if the reason applies to all
/// threads.
fn refusal(task: &Path, pid: Pid, error: io::Error) -> Result<Absent, KernelStackError> {
    match error.kind() {
        _ if !task.exists() => Ok(Absent::Gone),
        // `ESRCH`: the thread ended between opening and reading.
        _ if error.raw_os_error() == Some(3) => Ok(Absent::Gone),
        ErrorKind::PermissionDenied => Err(KernelStackError::Refused { pid, hint: HINT }),
        ErrorKind::NotFound => Err(KernelStackError::Refused { pid, hint: HINT_KERNEL }),
        _ => Err(unreadable(&task.join("stack"), error)),
    }
}

fn unreadable(path: &Path, error: io::Error) -> KernelStackError {
    KernelStackError::Read { what: path.display().to_string(), error }
}

fn first_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
}

/// The state letter after the name in `stat`; for waits, also the kernel function that waits.
fn state(task: &Path) -> ThreadState {
    let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
    let reason = || first_line(&task.join("wchan")).filter(|function| function != "0");
    // Names may contain any character, including parentheses.
    let letter = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    match letter {
        Some('R') => ThreadState::Running { since: None },
        Some('S' | 'D' | 'T' | 't' | 'I') => {
            ThreadState::Waiting { since: None, reason: reason().map(Into::into) }
        }
        Some('Z' | 'X') => ThreadState::Ended,
        _ => ThreadState::Unknown,
    }
}

fn part(text: &str, state: &ThreadState) -> Part {
    let frames: Vec<StackFrame> = text.lines().filter_map(frame).collect();
    match state {
        _ if !frames.is_empty() => Ok(frames),
        ThreadState::Running { .. } => Err(Absent::Running),
        ThreadState::Ended => Err(Absent::Terminating),
        _ => Err(Absent::NothingWalked),
    }
}

/// Parses a line. `None` for the end mark of older kernels and for lines that are not a frame.
fn frame(line: &str) -> Option<StackFrame> {
    let (address, location) = line.trim().strip_prefix("[<")?.split_once(">]")?;
    let hidden = |address: &u64| *address != 0 && *address != u64::MAX;
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok().filter(hidden);
    let mut words = location.split_whitespace();
    let location = words.next()?;
    let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let stated = stated(location);
    if stated.is_none() && address.is_none() {
        return None;
    }
    Some(StackFrame {
        address: address.map(Address),
        mode: Mode::Kernel,
        location: module.map(|module| FrameLocation { module: module.to_owned(), rva: None }),
        backing: Backing::Backed,
        is_wow64: false,
        region: Region::UNKNOWN,
        name: None,
        names: None,
        stated,
    })
}

/// Parses `function+0x12/0x34`, where the last number is the size of the function.
fn stated(location: &str) -> Option<StatedName> {
    let (function, rest) = location.rsplit_once('+')?;
    let offset = rest.split('/').next()?.strip_prefix("0x")?;
    Some(StatedName { function: function.to_owned(), offset: u64::from_str_radix(offset, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_frame() {
        for (line, expected) in [
            ("[<0>] do_nanosleep+0x5a/0x130", Some("do_nanosleep+0x5a [kernel]")),
            ("[<0>] nfs_wait_bit_killable+0x11/0x70 [nfs]", Some("nfs!nfs_wait_bit_killable+0x11 [kernel]")),
            ("[<ffffffff810c1234>] poll_idle+0x0/0x60", Some("poll_idle+0x0 [kernel]")),
            ("[<ffffffff810c1234>] 0xffffffff810c1234", Some("0xffffffff810c1234")),
            ("[<ffffffffffffffff>] 0xffffffffffffffff", None),
            ("[<0>] 0xffffffffffffffff", None),
            ("", None),
            ("[<0>]", None),
            ("[<0> no end", None),
            ("[<0>] name+five/0x7", None),
        ] {
            assert_eq!(frame(line).map(|frame| frame.to_string()).as_deref(), expected, "{line}");
        }
    }

    fn proc_files(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn threads_have_a_state_and_a_stack_or_a_reason() {
        let root = proc_files(&[
            ("7/comm", "worker\n"),
            // Read while the process still had the name of its parent.
            ("7/task/7/comm", "starter\n"),
            ("7/task/7/stat", "7 (work) er) S 1 7 7"),
            ("7/task/7/wchan", "do_nanosleep"),
            ("7/task/7/stack", "[<0>] do_nanosleep+0x5a/0x130\n[<0>] do_syscall_64+0x3b/0x90\n"),
            ("7/task/12/comm", "spinner\n"),
            ("7/task/12/stat", "12 (spinner) R 1 7 7"),
            ("7/task/12/wchan", "0"),
            ("7/task/12/stack", ""),
            ("7/task/13/stat", "13 (x) S 1 7 7"),
            ("7/task/13/stack", "[<0>] 0xffffffffffffffff\n"),
        ]);
        let mut source = ProcStacks::at(root.path().to_owned());
        let of = Selection { pid: Some(Pid(7)), tid: None, user: true };
        let stacks = source.stacks(&of).unwrap();
        let summary = |stack: &ThreadStack| match &stack.kernel {
            Ok(frames) => frames.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(why) => why.name().to_owned(),
        };
        let found: Vec<_> = stacks
            .iter()
            .map(|stack| (stack.tid.0, stack.name.as_deref(), stack.state.name(), summary(stack)))
            .collect();
        let frames = "do_nanosleep+0x5a [kernel] do_syscall_64+0x3b [kernel]".to_owned();
        let expected = [
            (7, None, "waiting", frames),
            (12, Some("spinner"), "running", "running".to_owned()),
            (13, None, "waiting", "nothing-walked".to_owned()),
        ];
        assert_eq!(found, expected);
        assert!(stacks.iter().all(|stack| stack.user == Some(Err(Absent::KernelOnly))));
        let reason = Some("do_nanosleep".into());
        assert_eq!(stacks[0].state, ThreadState::Waiting { since: None, reason });
    }

    #[test]
    fn missing_processes_and_threads_are_errors() {
        let root = proc_files(&[("7/comm", "worker\n"), ("7/task/7/stat", "7 (w) S 1")]);
        let mut source = ProcStacks::at(root.path().to_owned());
        let mut error = |pid, tid| {
            let (pid, tid) = (Option::map(pid, Pid), Option::map(tid, Tid));
            source.stacks(&Selection { pid, tid, user: false }).unwrap_err().to_string()
        };
        assert_eq!(error(Some(8), None), "there is no process 8");
        assert_eq!(error(Some(7), Some(9)), "there is no thread 9 in process 7");
        assert_eq!(
            error(None, Some(7)),
            "this source reads the threads of one process; specify a process ID"
        );
        let refused = error(Some(7), None);
        assert!(refused.contains("CONFIG_STACKTRACE"), "{refused}");
    }

    /// Starts a process that sleeps and reads its stacks from the running kernel.
    #[test]
    fn a_sleeping_process_has_a_kernel_stack() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id());
        let of = Selection { pid: Some(pid), tid: None, user: false };
        let mut source = ProcStacks::default();
        let sleeps = |stacks: &[ThreadStack]| {
            let frames = stacks.iter().filter_map(|stack| stack.kernel.as_ref().ok()).flatten();
            frames.filter_map(|frame| frame.stated.as_ref()).any(|name| name.function.contains("nanosleep"))
        };
        // The child process needs some time until it sleeps.
        let mut found = source.stacks(&of);
        for _ in 0..500 {
            match &found {
                Ok(stacks) if !sleeps(stacks) => {}
                _ => break,
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            found = source.stacks(&of);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        match found {
            Err(error @ KernelStackError::Refused { .. }) => println!("skipped: {error}"),
            found => assert!(sleeps(&found.unwrap())),
        }
    }
}
