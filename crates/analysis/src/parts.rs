//! The parts of a profile that events refer to: processes, threads and stacks, each once.

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_pipeline::{EventView, Naming, TraceState};
use stackhound_profile::{Full, Nanos, Process, ProcessId, ProfileBuilder, StackId, Thread, ThreadId};
use stackhound_schema::kernel::view::SampledProfile;
use stackhound_system::{self as system, Evidence, Span, System};
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{FileTime, Pid, RawTime, Tid};

use crate::services::Services;
use crate::stacks::{StackUse, Stacks};

/// Maximum number of module changes of a process until its program is looked for.
const MODULE_CHANGES_MAX: usize = 1 << 16;

/// A process that the system tracker knows, or only a process id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ProcessKey {
    Lifetime(system::ProcessId),
    Number(Pid),
    /// Events contradict each other about the process of the thread.
    Uncertain,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ThreadKey {
    Lifetime(system::ThreadId),
    Number(ProcessId, Option<u32>),
}

/// Work of a processor that interrupts a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupt {
    /// A deferred procedure call.
    Dpc,
    /// An interrupt service routine.
    Isr,
}

impl Interrupt {
    /// The interrupt in which a sample was taken, if it was taken in one. A routine can interrupt a
    /// deferred procedure call. Windows before 8 does not mark these samples.
    pub fn of(sample: &SampledProfile) -> Option<Interrupt> {
        const IN_DPC: u8 = 1;
        const IN_ISR: u8 = 2;
        match sample.flags {
            flags if flags & IN_ISR != 0 => Some(Interrupt::Isr),
            flags if flags & IN_DPC != 0 => Some(Interrupt::Dpc),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Interrupt::Dpc => "DPC",
            Interrupt::Isr => "ISR",
        }
    }
}

/// The parts of a profile, with the axis of its times.
#[derive(Debug)]
pub struct Parts {
    pub builder: ProfileBuilder,
    pub stacks: Stacks,
    clock: Clock,
    /// Time zero.
    start: FileTime,
    /// Times of the first and the last event.
    times: Option<(TraceTime, TraceTime)>,
    processors: u32,
    /// The time of the first event of the capture.
    capture_start: Option<TraceTime>,
    /// See [`length_max`].
    length_max: u64,
    processes: FxHashMap<ProcessKey, ProcessId>,
    threads: FxHashMap<ThreadKey, ThreadId>,
    services: Services,
    /// By [`Interrupt`].
    interrupts: [Option<(ProcessId, ThreadId)>; 2],
}

impl Parts {
    /// Time zero is the start of the session.
    pub fn new(product: String, trace: &OpenTrace) -> Parts {
        let start = trace.sources()[0].etl_file.session().start_time;
        let processors = trace.sessions().map(|session| session.processors).max().unwrap_or(1).max(1);
        Parts {
            builder: ProfileBuilder::new(product, unix_nanos(start)),
            stacks: Stacks::default(),
            clock: trace.clock(),
            start,
            times: None,
            processors,
            capture_start: None,
            length_max: length_max(&trace.clock(), processors),
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            services: Services::default(),
            interrupts: [None; 2],
        }
    }

    /// Notes the time of the next event, and the services that it states. Moves time zero to the first
    /// event if that is earlier than the start of the session.
    ///
    /// # Errors
    /// If sums of times up to this event could be too large.
    #[inline]
    pub fn observe(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        self.services.observe(view);
        let now = view.time();
        let length = now.ticks_since(*self.capture_start.get_or_insert(now));
        if length > self.length_max {
            return Err(self.too_long(length));
        }
        match &mut self.times {
            Some((_, last)) => *last = now.max(*last),
            None => {
                self.times = Some((now, now));
                self.start = self.start.min(self.file_time(now));
                self.builder.set_start(unix_nanos(self.start));
            }
        }
        Ok(())
    }

    #[cold]
    fn too_long(&self, length: u64) -> Full {
        const YEAR: u64 = 365 * 24 * 60 * 60;
        let seconds = length / self.clock.ticks_per_second().max(1);
        Full::Time { years: seconds / YEAR, processors: self.processors }
    }

    /// Time zero.
    pub fn start(&self) -> FileTime {
        self.start
    }

    /// Times of the first and the last event; the same time if there are none.
    pub fn times(&self) -> (TraceTime, TraceTime) {
        self.times.unwrap_or_default()
    }

    /// Continues with another capture. Its processes, threads and modules are different.
    pub fn begin_capture(&mut self, clock: Clock) {
        self.clock = clock;
        (self.capture_start, self.length_max) = (None, length_max(&clock, self.processors));
        self.processes.clear();
        self.threads.clear();
        self.services = Services::default();
        self.interrupts = [None; 2];
        self.stacks = Stacks::default();
    }

    /// Names the frames, programs and services of the capture. Waits for pending look-ups of names.
    pub fn end_capture(&mut self, known: &TraceState, naming: Option<&mut Naming>) {
        for (key, process) in &self.processes {
            let ProcessKey::Lifetime(known_process) = *key else { continue };
            if let Some(program) =
                known.system().process(known_process).program_at_any_time(MODULE_CHANGES_MAX)
            {
                self.builder.set_program(*process, program.path());
            }
        }
        let threads = self.threads.iter().map(|(key, thread)| match key {
            ThreadKey::Lifetime(known) => (Some(*known), thread),
            ThreadKey::Number(..) => (None, thread),
        });
        self.services.name(threads, &mut self.builder);
        self.stacks.name(known, naming, &mut self.builder);
    }

    /// The time since time zero.
    pub fn nanos(&self, time: TraceTime) -> Nanos {
        let units = self.file_time(time).0.saturating_sub(self.start.0);
        Nanos(u64::try_from(units).unwrap_or(0).saturating_mul(100))
    }

    fn file_time(&self, time: TraceTime) -> FileTime {
        self.clock.to_file_time(RawTime(time.0))
    }

    /// The stack of an event, if it has one.
    pub fn stack_of(&mut self, view: &EventView<'_>, process: ProcessId) -> Result<Option<StackId>, Full> {
        if view.stack().is_none() {
            return Ok(None);
        }
        self.stacks.of(view, process, StackUse::Event, &mut self.builder).map(Some)
    }

    /// A process that stands for work of the kernel which belongs to no thread.
    pub fn pseudo(&mut self, name: &str) -> Result<(ProcessId, ThreadId), Full> {
        let process = Process { name: name.to_owned(), ..Process::default() };
        let process = self.builder.process(process)?;
        let thread = Thread { process, tid: None, name: String::new(), start: None, end: None };
        Ok((process, self.builder.thread(thread)?))
    }

    /// The process and the thread that samples in interrupts count for: not those that were
    /// interrupted.
    pub fn interrupt(&mut self, interrupt: Interrupt) -> Result<(ProcessId, ThreadId), Full> {
        if let Some(known) = self.interrupts[interrupt as usize] {
            return Ok(known);
        }
        let ids = self.pseudo(interrupt.name())?;
        self.interrupts[interrupt as usize] = Some(ids);
        Ok(ids)
    }

    /// The process and the thread of an event.
    pub fn thread_of(&mut self, view: &EventView<'_>) -> Result<(ProcessId, ThreadId), Full> {
        self.thread_in(view, view.pid(), view.tid())
    }

    /// A thread that an event names, and its process.
    pub fn thread(&mut self, view: &EventView<'_>, tid: Tid) -> Result<(ProcessId, ThreadId), Full> {
        self.thread_in(view, view.pid_of_thread(tid), Some(tid))
    }

    /// A process, and a thread of it.
    pub fn thread_in(
        &mut self,
        view: &EventView<'_>,
        pid: Option<Pid>,
        tid: Option<Tid>,
    ) -> Result<(ProcessId, ThreadId), Full> {
        let system = view.trace_state().system();
        let time = view.time();
        let known = pid.zip(tid).and_then(|(pid, tid)| system.thread_of_process(pid, tid, time));
        if let Some(thread) = known
            && let Some(&id) = self.threads.get(&ThreadKey::Lifetime(thread.id()))
        {
            return Ok((self.process(system, ProcessKey::Lifetime(thread.process().id()))?, id));
        }
        let process = match (known.map(|thread| thread.process()), pid) {
            (Some(process), _) => self.process(system, ProcessKey::Lifetime(process.id()))?,
            (None, Some(pid)) => {
                let known = system.process_of_event(pid, time);
                let key = known.map_or(ProcessKey::Number(pid), |process| ProcessKey::Lifetime(process.id()));
                self.process(system, key)?
            }
            (None, None) => {
                let is_uncertain = tid.is_some_and(|tid| view.is_pid_uncertain(tid));
                let key = if is_uncertain { ProcessKey::Uncertain } else { ProcessKey::None };
                self.process(system, key)?
            }
        };
        let tid = tid.map(|tid| tid.0);
        let key = known.map_or(ThreadKey::Number(process, tid), |thread| ThreadKey::Lifetime(thread.id()));
        if let Some(&id) = self.threads.get(&key) {
            return Ok((process, id));
        }
        let name = known.map_or("", |thread| thread.name_at(time)).to_owned();
        let (start, end) = known.map_or((None, None), |thread| self.observed(&thread.span()));
        let id = self.builder.thread(Thread { process, tid, name, start, end })?;
        self.threads.insert(key, id);
        Ok((process, id))
    }

    fn process(&mut self, system: &System, key: ProcessKey) -> Result<ProcessId, Full> {
        if let Some(&id) = self.processes.get(&key) {
            return Ok(id);
        }
        let known = match key {
            ProcessKey::Lifetime(id) => Some(system.process(id)),
            _ => None,
        };
        let pid = match key {
            ProcessKey::Number(pid) => Some(pid),
            _ => known.map(|process| process.pid()),
        };
        let name = match (known.map_or("", |process| process.image_name()), pid) {
            ("", Some(Pid::IDLE)) => "Idle",
            ("", Some(Pid::SYSTEM)) => "System",
            ("", Some(_)) => "unknown",
            ("", None) if key == ProcessKey::Uncertain => "uncertain process",
            ("", None) => "no process",
            (name, _) => name,
        };
        let (start, end) = known.map_or((None, None), |process| self.observed(&process.span()));
        let (pid, name) = (pid.map(|pid| pid.0), name.to_owned());
        let id = self.builder.process(Process { pid, name, start, end, ..Process::default() })?;
        self.processes.insert(key, id);
        Ok(id)
    }

    /// The ends of a span that were observed in events.
    fn observed(&self, span: &Span) -> (Option<Nanos>, Option<Nanos>) {
        let when = |time, evidence| (evidence == Evidence::Observed).then(|| self.nanos(time));
        (when(span.from, span.start), when(span.to, span.end))
    }
}

/// The longest time of a capture, in raw ticks, of which the time of all processors together is a
/// signed 64-bit number of nanoseconds.
fn length_max(clock: &Clock, processors: u32) -> u64 {
    let ticks = u128::from(i64::MAX as u64) * u128::from(clock.ticks_per_second()) / 1_000_000_000;
    u64::try_from(ticks / u128::from(processors)).unwrap_or(u64::MAX)
}

fn unix_nanos(time: FileTime) -> i64 {
    let (seconds, rest) = time.to_unix();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest.into())
}
