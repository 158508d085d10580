//! Converts the events of a trace to a profile: samples, context switches and markers, which
//! [`export`](crate::export) writes.
//!
//! ```
//! use std::fs::File;
//! use std::ops::ControlFlow;
//! use stackhound::profile::{Collector, Limits};
//! use stackhound::{Enrichment, Passes, Pipeline, export, trace::TraceFiles};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = TraceFiles::file("trace.etl").open()?;
//! let mut pipeline = Pipeline::new(&trace, Passes::Two).with(Enrichment::default());
//! let mut collector = Collector::new("trace.etl".to_owned(), &trace, None, Limits::default());
//! let mut full = Ok(());
//! pipeline.run(|event| {
//!     full = collector.observe(event, || event.process_name() == Some("notepad.exe"));
//!     if full.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
//! });
//! full?;
//! let (known, _, naming) = pipeline.parts();
//! collector.end_capture(known, naming);
//! let (profile, _) = collector.finish();
//! export::speedscope::write(&profile, &mut File::create("trace.speedscope.json")?)?;
//! # Ok(())
//! # }
//! ```
//!
//! This module uses events, stacks and names. It does not implement profile formats.

mod stacks;

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_export::{
    Full, Marker, MarkerKind, MarkerKindId, Nanos, Process, ProcessId, Profile, ProfileBuilder, Sample,
    StackId, Switch, SwitchReason, TextId, Thread, ThreadId, Timing,
};
use stackhound_schema::kernel::hook_id;
use stackhound_schema::{self as schema, ItemText, Value};
use stackhound_system::{self as system, Evidence, Span};
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{FileTime, Pid, RawTime, Tid};

use self::stacks::Stacks;
use crate::{EventView, Naming, Predicate, TraceState};

/// Maximum numbers of events in addition to samples.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of events that become markers.
    pub markers: usize,
    /// Maximum number of context switches.
    pub switches: usize,
}

impl Default for Limits {
    /// 100,000 markers and 1,000,000 context switches.
    fn default() -> Limits {
        Limits { markers: 100_000, switches: 1_000_000 }
    }
}

/// Counters of a collected profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Whether there were no profile samples, so that all events with a stack are samples.
    pub stand_ins: bool,
    /// Number of events that did not become markers because the limit was reached.
    pub markers_dropped: u64,
    /// Number of context switches that were dropped because the limit was reached.
    pub switches_dropped: u64,
}

/// The events that are samples.
#[derive(Debug)]
enum Samples {
    /// Events that match the predicate.
    Chosen(Box<Predicate>),
    /// Profile samples. All events with a stack until the first profile sample.
    NoneYet,
    /// Profile samples.
    Profile,
}

/// Longer field values are cut off.
const VALUE_MAX: usize = 512;

const SAMPLED_PROFILE: u16 = hook_id::PERF_INFO_SAMPLED_PROFILE;
const SAMPLED_PROFILE_NMI: u16 = hook_id::PERF_INFO_SAMPLED_PROFILE_NMI;
const SET_INTERVAL: u16 = hook_id::PERF_INFO_SET_INTERVAL;
const INTERVAL_AT_START: u16 = hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START;
const CONTEXT_SWITCH: u16 = hook_id::THREAD_C_SWITCH;
/// Group of the image events, which report changes of modules.
const IMAGE_GROUP: u16 = 0x14;

/// A process that the system tracker knows, or only a process id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ProcessKey {
    Lifetime(system::ProcessId),
    Number(Option<u32>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ThreadKey {
    Lifetime(system::ThreadId),
    Number(ProcessId, Option<u32>),
}

/// Collects a profile from events in time order.
///
/// Keeps each stack, frame, process and thread once. Costs one look-up for an event with a known
/// stack.
#[derive(Debug)]
pub struct Collector {
    builder: ProfileBuilder,
    clock: Clock,
    /// Time zero: the start of the session, or the time of the first event if that is earlier.
    start: FileTime,
    samples: Samples,
    limits: Limits,
    counted: Counted,
    begun: bool,
    processes: FxHashMap<ProcessKey, ProcessId>,
    threads: FxHashMap<ThreadKey, ThreadId>,
    stacks: Stacks,
    kinds: FxHashMap<String, Vec<(Vec<String>, MarkerKindId)>>,
    reasons: FxHashMap<String, TextId>,
    markers: usize,
    switches: usize,
}

impl Collector {
    /// Starts with the first capture. `product` names the recorded system or program. Samples are
    /// the events that match `chosen`. Without it, they are the profile samples of the trace, or
    /// all events with a stack if there are none.
    pub fn new(product: String, trace: &OpenTrace, chosen: Option<Predicate>, limits: Limits) -> Collector {
        let start = trace.sources()[0].etl_file.session().start_time;
        Collector {
            builder: ProfileBuilder::new(product, unix_nanos(start)),
            clock: trace.clock(),
            start,
            samples: chosen.map_or(Samples::NoneYet, |chosen| Samples::Chosen(Box::new(chosen))),
            limits,
            counted: Counted::default(),
            begun: false,
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            stacks: Stacks::default(),
            kinds: FxHashMap::default(),
            reasons: FxHashMap::default(),
            markers: 0,
            switches: 0,
        }
    }

    /// Adds the next event, if `wanted` returns true. Every event of the trace must be passed,
    /// because other events report loaded modules.
    ///
    /// # Errors
    /// If the profile is full: it cannot contain another stack, frame, process or thread.
    pub fn observe(&mut self, view: &EventView<'_>, wanted: impl FnOnce() -> bool) -> Result<(), Full> {
        if !self.begun {
            self.begin(view);
        }
        let hook_id = view.kernel_id();
        if hook_id.is_some_and(|hook_id| hook_id >> 8 == IMAGE_GROUP) {
            self.stacks.modules_changed();
        }
        if matches!(hook_id, Some(SET_INTERVAL | INTERVAL_AT_START)) {
            self.set_interval(view);
        }
        if !wanted() {
            return Ok(());
        }
        let profiles = matches!(hook_id, Some(SAMPLED_PROFILE | SAMPLED_PROFILE_NMI));
        if profiles && matches!(self.samples, Samples::NoneYet) {
            self.builder.forget_samples();
            self.samples = Samples::Profile;
        }
        let is_sample = match &self.samples {
            Samples::Chosen(predicate) => predicate.decide(view).is_ok_and(|chosen| chosen),
            Samples::NoneYet => view.stack().is_some(),
            Samples::Profile => profiles,
        };
        if is_sample {
            self.sample(view, profiles)?;
        }
        if hook_id == Some(CONTEXT_SWITCH) {
            self.switch(view)
        } else if !profiles {
            self.marker(view)
        } else {
            Ok(())
        }
    }

    /// Continues with another capture, which does not start earlier than the previous ones. Its
    /// processes, threads and modules are different.
    pub fn begin_capture(&mut self, clock: Clock) {
        self.clock = clock;
        self.processes.clear();
        self.threads.clear();
        self.stacks = Stacks::default();
    }

    /// Names the frames of the capture. Waits for pending look-ups of names.
    pub fn end_capture(&mut self, known: &TraceState, naming: Option<&mut Naming>) {
        self.stacks.name(known, naming, &mut self.builder);
    }

    /// The profile, and its counters.
    pub fn finish(mut self) -> (Profile, Counted) {
        self.counted.stand_ins = matches!(self.samples, Samples::NoneYet);
        (self.builder.finish(), self.counted)
    }

    fn begin(&mut self, view: &EventView<'_>) {
        self.begun = true;
        self.start = self.start.min(self.file_time(view.time()));
        self.builder.set_start(unix_nanos(self.start));
    }

    fn file_time(&self, time: TraceTime) -> FileTime {
        self.clock.to_file_time(RawTime(time.0))
    }

    fn nanos(&self, time: TraceTime) -> Nanos {
        let units = self.file_time(time).0.saturating_sub(self.start.0);
        Nanos(u64::try_from(units).unwrap_or(0).saturating_mul(100))
    }

    /// Sets the interval of the timer, which is in units of 100 ns.
    fn set_interval(&mut self, view: &EventView<'_>) {
        let number = |name| view.field(name).and_then(|(_, value)| value.as_u64());
        if let (Some(0), Some(interval)) = (number("Source"), number("NewInterval")) {
            self.builder.set_interval(Nanos(interval.saturating_mul(100)));
        }
    }

    fn sample(&mut self, view: &EventView<'_>, profiles: bool) -> Result<(), Full> {
        let thread = self.thread_of(view)?;
        let mut stack = self.stacks.of(view, thread.0, profiles, &mut self.builder)?;
        if !profiles {
            // The innermost frame distinguishes samples of several kinds.
            let kind = self.stacks.remark(&view.name(), &mut self.builder)?;
            stack = self.builder.stack(Some(stack), kind)?;
        }
        let time = self.nanos(view.time());
        self.builder.sample(Sample { time, thread: thread.1, stack, weight: 1, cpu: view.processor() });
        Ok(())
    }

    /// The stack of an event, if it has one.
    fn stack_of(&mut self, view: &EventView<'_>, process: ProcessId) -> Result<Option<StackId>, Full> {
        if view.stack().is_none() {
            return Ok(None);
        }
        self.stacks.of(view, process, false, &mut self.builder).map(Some)
    }

    fn switch(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        if self.switches == self.limits.switches {
            self.counted.switches_dropped += 1;
            return Ok(());
        }
        let (Some(cpu), Some(old)) = (view.processor(), tid_field(view, "OldThreadId")) else {
            return Ok(());
        };
        self.switches += 1;
        let (process, to) = self.thread_of(view)?;
        let (_, from) = self.thread(view, None, Some(old))?;
        let reason = match view.field("OldThreadState").and_then(|(_, value)| value.as_u64()) {
            // KTHREAD_STATE: Ready, Running, Standby, Terminated, Waiting, Transition,
            // DeferredReady.
            Some(1 | 2 | 3 | 6 | 7) => SwitchReason::Ready,
            Some(4) => SwitchReason::Ended,
            Some(5) => SwitchReason::Waits,
            _ => SwitchReason::Unknown,
        };
        let why = match view.field("OldThreadWaitReason") {
            Some((field, value)) if reason == SwitchReason::Waits => Some(self.why(field, value)?),
            _ => None,
        };
        let stack = self.stack_of(view, process)?;
        let time = self.nanos(view.time());
        self.builder.switch(Switch { time, cpu, from, to, reason, why, stack });
        Ok(())
    }

    fn why(&mut self, field: &schema::Field, value: Value<'_>) -> Result<TextId, Full> {
        let text = field.render(value).to_string();
        if let Some(&id) = self.reasons.get(&text) {
            return Ok(id);
        }
        let id = self.builder.text(text.clone())?;
        self.reasons.insert(text, id);
        Ok(id)
    }

    fn marker(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        if self.markers == self.limits.markers {
            self.counted.markers_dropped += 1;
            return Ok(());
        }
        self.markers += 1;
        let fields = || view.fields().into_iter().flatten().filter_map(Result::ok);
        let keys: Vec<String> = fields().map(|decoded| decoded.field.name.to_string()).collect();
        let values: Vec<String> =
            fields().map(|decoded| shortened(ItemText(decoded.field, &decoded.item).to_string())).collect();
        let kind = self.kind(&view.name(), keys)?;
        let (process, thread) = self.thread_of(view)?;
        let stack = self.stack_of(view, process)?;
        let timing = Timing::Instant(self.nanos(view.time()));
        self.builder.marker(Marker { timing, thread, kind, stack }, values);
        Ok(())
    }

    fn kind(&mut self, name: &str, keys: Vec<String>) -> Result<MarkerKindId, Full> {
        let known = self.kinds.get(name).into_iter().flatten();
        if let Some((_, id)) = known.into_iter().find(|(known, _)| *known == keys) {
            return Ok(*id);
        }
        let id = self.builder.marker_kind(MarkerKind { name: name.to_owned(), keys: keys.clone() })?;
        self.kinds.entry(name.to_owned()).or_default().push((keys, id));
        Ok(id)
    }

    fn thread_of(&mut self, view: &EventView<'_>) -> Result<(ProcessId, ThreadId), Full> {
        self.thread(view, view.pid().map(|pid| pid.0), view.tid())
    }

    /// A thread and its process. Without `pid`, the process is that of the thread.
    fn thread(
        &mut self,
        view: &EventView<'_>,
        pid: Option<u32>,
        tid: Option<Tid>,
    ) -> Result<(ProcessId, ThreadId), Full> {
        let system = view.trace_state().system();
        let time = view.time();
        let known = tid.and_then(|tid| system.thread_of_event(tid, time));
        let known = known.filter(|thread| pid.is_none_or(|pid| thread.pid().0 == pid));
        if let Some(thread) = known
            && let Some(&id) = self.threads.get(&ThreadKey::Lifetime(thread.id()))
        {
            let process = thread.process();
            return Ok((self.process(Some(process), process.pid().0.into())?, id));
        }
        let owning_process = match (known, pid) {
            (Some(thread), _) => Some(thread.process()),
            (None, Some(pid)) => system.process_of_event(Pid(pid), time),
            (None, None) => None,
        };
        let process = self.process(owning_process, owning_process.map(|process| process.pid().0).or(pid))?;
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

    fn process(
        &mut self,
        known: Option<system::ProcessRef<'_>>,
        pid: Option<u32>,
    ) -> Result<ProcessId, Full> {
        let key = known.map_or(ProcessKey::Number(pid), |process| ProcessKey::Lifetime(process.id()));
        if let Some(&id) = self.processes.get(&key) {
            return Ok(id);
        }
        let name = match (known.map_or("", |process| process.image_name()), pid) {
            ("", Some(0)) => "Idle",
            ("", Some(4)) => "System",
            ("", Some(_)) => "unknown",
            ("", None) => "no process",
            (name, _) => name,
        };
        let (start, end) = known.map_or((None, None), |process| self.observed(&process.span()));
        let id = self.builder.process(Process { pid, name: name.to_owned(), start, end })?;
        self.processes.insert(key, id);
        Ok(id)
    }

    /// The ends of a span that were observed in events.
    fn observed(&self, span: &Span) -> (Option<Nanos>, Option<Nanos>) {
        let when = |time, evidence| (evidence == Evidence::Observed).then(|| self.nanos(time));
        (when(span.from, span.start), when(span.to, span.end))
    }
}

fn unix_nanos(time: FileTime) -> i64 {
    let (seconds, rest) = time.to_unix();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest.into())
}

fn tid_field(view: &EventView<'_>, name: &str) -> Option<Tid> {
    let number = view.field(name)?.1.as_u64()?;
    Tid::known(number.try_into().ok()?)
}

fn shortened(mut text: String) -> String {
    if text.len() > VALUE_MAX {
        let mut end = VALUE_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
