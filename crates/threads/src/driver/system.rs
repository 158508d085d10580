//! Kernel stacks from the driver and module lists from Windows.

use std::ffi::OsStr;
use std::io;
use std::time::Duration;

use stackhound_frames::Backing;
use stackhound_kstack_client::{Client, Device, Frames, Stack, SystemDevice, threads};
use stackhound_kstack_proto::{Capture, Flags, MAX_FRAMES, MAX_TIMEOUT_MS, Missing};
use stackhound_pipeline::Depth;
use stackhound_symbols::image::Image;
use stackhound_symbols::{SymbolStats, Symbolizer, SymbolizerOptions};
use stackhound_types::{Pid, Tid};
use stackhound_windows::memory::{Kind, Process, State};
use stackhound_windows::{self as windows, debug_help, drivers, process};

use super::modules::{Loaded, Modules};
use super::resolve::ProcessMap;
use super::{Answered, Unnamed, answer};
use crate::{KernelStackError, KernelStackSource, Selection, ThreadStack};

/// The number of bytes of a loaded module that are read to parse its headers.
const HEADERS: usize = 4096;

/// Options for captures and names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverOptions {
    /// The depth to which frames are resolved.
    pub depth: Depth,
    /// The sources of function names, in addition to the folders of the modules.
    pub symbols: SymbolizerOptions,
    /// The timeout per thread, from one millisecond to one second.
    pub timeout: Duration,
    /// Whether to walk the user stack of threads in critical regions too. Such a thread may hold a
    /// file-system lock, and paging in its stack can deadlock. A thread that waits for a
    /// synchronous read or write of a file is in a critical region.
    pub user_in_critical_regions: bool,
    /// Whether to keep the frames of the capture itself and of the APC dispatcher of the kernel.
    /// They are removed by default.
    pub keep_machinery: bool,
}

impl Default for DriverOptions {
    /// Functions, from files that exist locally; 300 ms per thread.
    fn default() -> Self {
        DriverOptions {
            depth: Depth::Function,
            symbols: SymbolizerOptions::default(),
            timeout: Duration::from_millis(300),
            user_in_critical_regions: false,
            keep_machinery: false,
        }
    }
}

/// Makes the threads of a process walk their own stacks, through the driver.
///
/// Threads are captured one after another, while the others run on: their stacks are of different
/// moments. If no thread answers, the call takes the timeout multiplied by the number of threads.
#[derive(Debug)]
pub struct DriverSource<D = SystemDevice> {
    client: Client<D>,
    options: DriverOptions,
    stats: Option<SymbolStats>,
}

impl DriverSource {
    /// Opens the driver. Enables `SeDebugPrivilege` for this process and leaves it enabled.
    ///
    /// # Errors
    /// [`KernelStackError::Driver`], whose message contains advice.
    pub fn open(options: DriverOptions) -> Result<DriverSource, KernelStackError> {
        Ok(DriverSource::over(Client::open().map_err(KernelStackError::Driver)?, options))
    }
}

impl<D: Device> DriverSource<D> {
    /// Uses an existing client.
    pub fn over(client: Client<D>, options: DriverOptions) -> DriverSource<D> {
        DriverSource { client, options, stats: None }
    }

    /// Symbol counters of the last call of [`stacks`](KernelStackSource::stacks).
    pub fn symbol_stats(&self) -> Option<&SymbolStats> {
        self.stats.as_ref()
    }

    fn capture(&mut self, pid: Pid, of: &Selection) -> Result<Vec<Answered>, KernelStackError> {
        let mut chosen = threads(pid.0).map_err(KernelStackError::Driver)?;
        chosen.retain(|thread| of.chooses(Some(pid), Tid(thread.id)));
        if let (true, Some(tid)) = (chosen.is_empty(), of.tid) {
            return Err(KernelStackError::NoThread(tid, Some(pid)));
        }
        let mut flags = Flags::KERNEL;
        for (wanted, flag) in [
            (of.user, Flags::USER),
            (of.user && self.options.user_in_critical_regions, Flags::USER_IN_CRITICAL_REGION),
            (self.options.keep_machinery, Flags::KEEP_MACHINERY),
        ] {
            flags = if wanted { flags.and(flag) } else { flags };
        }
        let timeout_ms = u32::try_from(self.options.timeout.as_millis()).unwrap_or(u32::MAX);
        let template = Capture {
            pid: pid.0,
            tid: 0,
            created: None,
            max_frames: MAX_FRAMES,
            flags,
            timeout_ms: timeout_ms.clamp(1, MAX_TIMEOUT_MS),
            id: 0,
            frames_to_skip: 0,
        };
        let replies = self.client.captures(chosen, template);
        let mut walker = Walker { pid, session: None };
        let answered = replies.map(|(thread, reply)| {
            let mut answer = answer(reply)?;
            let user_later = answer.as_mut().is_ok_and(|stack| walker.complete(thread.id, stack));
            Ok(Answered { tid: Tid(thread.id), answer, user_later })
        });
        answered.collect()
    }

    /// A symbolizer that also searches the folders of these modules.
    fn symbolizer(
        &self,
        answers: &[Answered],
        modules: [&Modules; 2],
    ) -> Result<Option<Symbolizer>, KernelStackError> {
        if self.options.depth < Depth::Function {
            return Ok(None);
        }
        let mut options = self.options.symbols.clone();
        let windows = std::env::var("SystemRoot").unwrap_or_else(|_| r"C:\Windows".to_owned());
        let stacks = answers.iter().filter_map(|answered| answered.answer.as_ref().ok());
        let parts = stacks.flat_map(|stack| [&stack.kernel, &stack.user]);
        let addresses: Vec<u64> = parts
            .filter_map(|part| part.as_ref()?.as_ref().ok())
            .flat_map(|frames| frames.addresses.iter().copied())
            .collect();
        for modules in modules {
            for folder in modules.folders(addresses.iter().copied(), &windows) {
                options.store.path = options.store.path.with_first(folder);
            }
        }
        Symbolizer::new(options).map(Some).map_err(KernelStackError::Symbols)
    }
}

impl<D: Device> KernelStackSource for DriverSource<D> {
    fn stacks(&mut self, of: &Selection) -> Result<Vec<ThreadStack>, KernelStackError> {
        let pid = of.pid.ok_or(KernelStackError::NeedsProcess)?;
        let processes = process::list().map_err(|error| cannot_read("the list of processes", error))?;
        let listed = processes.into_iter().find(|process| process.id == pid.0);
        let listed = listed.ok_or(KernelStackError::NoProcess(pid))?;
        // Protected and system processes cannot be opened: their modules and memory are not
        // available.
        let process = Process::open(pid.0).ok().filter(|_| of.user);
        let answers = self.capture(pid, of)?;
        let (mut kernel, mut user) = (Modules::default(), Modules::default());
        if self.options.depth > Depth::Address {
            let drivers = drivers::list().map_err(|error| cannot_read("the list of drivers", error))?;
            kernel = Modules::new(drivers.into_iter().map(kernel_module).collect());
            user = process.as_ref().map(user_modules).unwrap_or_default();
        }
        let memory = |address| process.as_ref().map_or(Backing::Unknown, |process| backing(process, address));
        let process_map = ProcessMap { kernel: &kernel, user: &user, memory: &memory };
        let mut naming = self.symbolizer(&answers, [&kernel, &user])?;
        let resolved =
            answers.into_iter().map(|answered| Unnamed::of(answered, of.user, &process_map, naming.as_mut()));
        let resolved: Vec<Unnamed> = resolved.collect();
        if let Some(naming) = &mut naming {
            naming.wait();
        }
        self.stats = naming.as_ref().map(Symbolizer::stats);
        let keep = self.options.keep_machinery;
        let named = |thread: Unnamed| thread.named(pid, &listed.name, keep, naming.as_ref());
        Ok(resolved.into_iter().map(named).collect())
    }
}

/// Reads the user stacks that threads must not read themselves because they are in a critical
/// region.
struct Walker {
    pid: Pid,
    /// Opened at the first use; the inner value is `None` if Windows refuses.
    session: Option<Option<debug_help::Session>>,
}

impl Walker {
    /// Reads the user stack if it is missing for that reason, and returns whether it was read. The
    /// stack may have changed since: a thread that has left the kernel has another one.
    fn complete(&mut self, tid: u32, stack: &mut Stack) -> bool {
        if stack.user != Some(Err(Missing::CriticalRegion)) {
            return false;
        }
        let opened = self
            .session
            .get_or_insert_with(|| debug_help::Session::of_process(self.pid.0, OsStr::new("")).ok());
        let Some(session) = opened else { return false };
        let limit = usize::from(MAX_FRAMES);
        match session.user_stack(self.pid.0, tid, limit) {
            Ok(addresses) if !addresses.is_empty() => {
                stack.user = Some(Ok(Frames { cut: addresses.len() == limit, addresses }));
                true
            }
            _ => false,
        }
    }
}

fn kernel_module(driver: drivers::Driver) -> Loaded {
    let drivers::Driver { base, size, time_date_stamp, path } = driver;
    Loaded { base, size, path, time_date_stamp: Some(time_date_stamp).filter(|&stamp| stamp != 0) }
}

/// The list is empty if the process ends meanwhile or has not loaded its modules yet.
fn user_modules(process: &Process) -> Modules {
    let modules = process.modules().unwrap_or_default();
    let loaded = modules.into_iter().map(|module| {
        let mut headers = [0; HEADERS];
        let read = process.read(module.base, &mut headers);
        let identity = Image::parse_loaded(&headers[..read]).ok().map(|image| image.identity());
        let process::Module { base, size, path } = module;
        Loaded { base, size, path, time_date_stamp: identity.map(|identity| identity.time_date_stamp) }
    });
    Modules::new(loaded.collect())
}

/// Memory of an image is backed even if the image is not in the module list. Free memory may have
/// been freed since, so it is unknown.
fn backing(process: &Process, address: u64) -> Backing {
    match process.region(address).map(|region| region.state) {
        Ok(State::Committed { kind: Kind::Image, .. }) => Backing::Backed,
        Ok(State::Committed { kind: Kind::Private | Kind::Mapped, .. }) => Backing::Unbacked,
        _ => Backing::Unknown,
    }
}

fn cannot_read(what: &str, error: windows::Error) -> KernelStackError {
    let error = match error {
        windows::Error::Call { source, .. } => source,
        other => io::Error::other(other),
    };
    KernelStackError::Read { what: what.to_owned(), error }
}

/// Tests with a device that answers with addresses of this process; the lists of modules are those
/// of the system.
#[cfg(test)]
mod tests {
    use super::super::tests::{Row, client};
    use super::*;
    use crate::{Absent, Evidence};
    use stackhound_kstack_proto::Outcome;
    use std::process::{Command, Stdio};

    fn source(rows: Vec<(u32, Row)>, depth: Depth) -> DriverSource<impl Device> {
        let options = DriverOptions { depth, symbols: only_own_files(), ..DriverOptions::default() };
        DriverSource::over(client(rows), options)
    }

    fn own() -> Selection {
        Selection { pid: Some(Pid(std::process::id())), tid: None, user: true }
    }

    /// Names come only from the files that the modules were loaded from.
    fn only_own_files() -> SymbolizerOptions {
        let store = stackhound_symbols::store::StoreOptions {
            path: stackhound_symbols::path::SymbolPath::default(),
            cache: None,
            ..Default::default()
        };
        SymbolizerOptions { store, ..SymbolizerOptions::default() }
    }

    #[test]
    fn frames_are_resolved_to_process_modules_and_named_from_their_files() {
        let id = std::process::id();
        let process = Process::open(id).expect("this process");
        let modules = process.modules().expect("its modules");
        let kernel32 = modules.iter().find(|module| module.path.to_lowercase().ends_with(r"\kernel32.dll"));
        let kernel32 = kernel32.expect("kernel32");
        let file = std::fs::read(&kernel32.path).expect("its file");
        let image = Image::parse(&file).expect("an image");
        let exports = image.exports().expect("exports");
        let sleep = exports.entries.iter().find(|export| export.name.as_deref() == Some("Sleep"));
        let stackhound_symbols::image::ExportTarget::Rva(rva) = sleep.expect("Sleep").target else {
            panic!("it is elsewhere");
        };
        let inside = kernel32.base + u64::from(rva.0) + 1;
        let somewhere = Box::new([0_u8; 64]);
        let private = somewhere.as_ptr() as u64;
        let rows: Vec<(u32, Row)> = threads(id)
            .expect("its threads")
            .into_iter()
            .map(|thread| (thread.id, Row::Stack(vec![0xffff_f800_0000_1000], vec![inside, private])))
            .collect();
        let count = rows.len();
        let mut source = source(rows, Depth::Function);
        let stacks = source.stacks(&own()).expect("stacks");
        // Other tests start and end threads meanwhile.
        assert!(!stacks.is_empty() && count > 0);
        let name = std::env::current_exe().expect("a path");
        assert_eq!(stacks[0].process.as_deref(), name.file_name().and_then(|name| name.to_str()));
        let user = stacks.iter().find_map(|stack| stack.user.as_ref()?.as_ref().ok()).expect("a user stack");
        assert!(user[0].to_string().to_lowercase().starts_with("kernel32.dll!sleep+0x1 ["), "{}", user[0]);
        assert_eq!(user[1].backing, Backing::Unbacked);
        assert!(source.symbol_stats().is_some());
    }

    #[test]
    #[ignore = "helper program of the next test"]
    fn another_program() {
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    #[test]
    fn user_stacks_in_critical_regions_are_read_by_another_thread() {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "driver::system::tests::another_program", "--ignored"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let pid = child.id();
        let in_region = |thread: stackhound_kstack_client::Thread| {
            (thread.id, Row::Stack(vec![0xffff_f800_0000_1000], vec![Missing::CriticalRegion.sentinel()]))
        };
        let user_stacks = |pid: u32| {
            let rows = threads(pid).expect("threads").into_iter().map(in_region).collect();
            let of = Selection { pid: Some(Pid(pid)), ..own() };
            source(rows, Depth::Module).stacks(&of).expect("stacks")
        };
        let stacks = user_stacks(pid);
        assert!(!stacks.is_empty());
        for stack in &stacks {
            assert!(stack.user.as_ref().is_some_and(Result::is_ok), "{stack:?}");
            assert!(matches!(stack.evidence, Some(Evidence::Captured { user_later: true, .. })), "{stack:?}");
        }
        // In this process, a suspended thread may hold locks that the walk needs.
        for stack in user_stacks(std::process::id()) {
            assert!(
                stack.user.is_none_or(|user| matches!(user, Err(Absent::CriticalRegion | Absent::Gone))),
                "{:?}",
                stack.tid
            );
            assert!(!matches!(stack.evidence, Some(Evidence::Captured { user_later: true, .. })));
        }
        drop(child.stdin.take());
        assert!(child.wait().expect("ended").success());
    }

    #[test]
    fn missing_processes_and_threads_are_reported() {
        let no_process = Selection { pid: Some(Pid(0xffff_fff0)), ..own() };
        assert!(matches!(
            source(vec![], Depth::Module).stacks(&no_process),
            Err(KernelStackError::NoProcess(_))
        ));
        let no_thread = Selection { tid: Some(Tid(0xffff_fff0)), ..own() };
        assert!(matches!(
            source(vec![], Depth::Module).stacks(&no_thread),
            Err(KernelStackError::NoThread(..))
        ));
        let all = Selection { pid: None, ..own() };
        assert!(matches!(source(vec![], Depth::Module).stacks(&all), Err(KernelStackError::NeedsProcess)));
        let stacks =
            source(vec![], Depth::Module).stacks(&own()).expect("threads that the device does not know");
        assert!(stacks.iter().all(|stack| stack.kernel == Err(Absent::Gone)), "{stacks:?}");
        let rows = threads(std::process::id()).expect("threads");
        let rows = rows.into_iter().map(|thread| (thread.id, Row::Ended(Outcome::TimedOut))).collect();
        let stacks = source(rows, Depth::Address).stacks(&own()).expect("threads that do not react");
        assert!(stacks.iter().any(|stack| stack.user == Some(Err(Absent::TimedOut))), "{stacks:?}");
    }

    #[test]
    fn a_missing_driver_is_an_error() {
        let error = DriverSource::open(DriverOptions::default()).expect_err("there is no driver");
        assert!(error.to_string().contains("is not loaded"), "{error}");
    }
}
