//! Captures: groups of sources that were recorded on one machine, during one boot, at the same
//! time.
//!
//! Process ids, addresses and stack keys are meaningful only within one boot of one machine.
//! Sources of different captures are therefore never merged unless the caller requests it. The
//! rules are described in `docs/format/order.md`.

use std::fmt;
use std::path::{Component, Path};

use percent_encoding::percent_decode_str;
use stackhound_etl::hook_id;
use stackhound_etl::record::Record;
use stackhound_etl::{Block, BufferRef, ClockKind, EtlFile, Index, LogFileMode, LogfileHeader, Selection};
use stackhound_types::{FileTime, PointerSize, Rfc3339, TICKS_PER_SECOND};

use crate::Error;
use crate::source::Source;
use crate::trace_files::OpenTrace;

/// How sources are grouped into captures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grouping {
    /// Sources of one machine and boot that overlap in time form one capture.
    #[default]
    ByCapture,
    /// All sources form one capture, even if they contradict each other.
    Merge,
    /// Every source is a capture of its own.
    Separate,
}

/// The machine and boot that a source or a capture comes from. `None` means that the sources do not
/// state the value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    /// The computer name, from a SystemConfig event, or from a folder `host=NAME`.
    pub computer_name: Option<String>,
    /// The boot time, from the logfile header.
    pub boot_time: Option<FileTime>,
    /// The Windows build number.
    pub build: Option<u32>,
    /// Number of processors.
    pub processors: Option<u32>,
    /// Pointer size of Windows.
    pub pointer_size: Option<PointerSize>,
    /// The frequency of the performance counter, in ticks per second.
    pub perf_freq: Option<u64>,
    /// The latest boot time of the sources, which differ by less than [`TOLERANCE`].
    boot_latest: Option<FileTime>,
    /// The earliest and the latest time at which the performance counter was zero, by the sources'
    /// reference pairs.
    counter_zero: Option<(FileTime, FileTime)>,
}

/// Within one boot, boot times and counter zero times differ by less than this (in 100 ns).
const TOLERANCE: u64 = TICKS_PER_SECOND as u64;

/// Buffers at the beginning and at the end of a source that are searched for the computer name.
const NAME_BUFFERS: usize = 16;

/// Buffers of a stream that are searched for its first or last event.
const EDGE_BUFFERS: usize = 8;

/// Maximum number of file names in the description of a capture.
const SHOWN_FILES: usize = 4;

/// Maximum number of captures that an error lists.
const SHOWN_CAPTURES: usize = 8;

impl Machine {
    fn of(session: &LogfileHeader) -> Machine {
        let boot_time = (session.boot_time.0 > 0).then_some(session.boot_time);
        // A 32-bit process on 64-bit Windows writes 4 when it relogs, merges, or has a private
        // session, so its pointer size is not that of the system.
        let is_by_process = session.mode.has(LogFileMode::RELOG) || session.mode.has(LogFileMode::PRIVATE);
        let is_known = session.pointer_size == PointerSize::Eight || !is_by_process;
        let is_shared = session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let clock = session.clock();
        let counts = clock.kind() == ClockKind::PerformanceCounter;
        let zero = clock.to_file_time(stackhound_types::RawTime(0));
        Machine {
            computer_name: None,
            boot_time,
            build: (session.build != 0).then_some(session.build),
            processors: (session.processors != 0 && !is_shared).then_some(session.processors),
            pointer_size: is_known.then_some(session.pointer_size),
            perf_freq: (session.perf_freq != 0).then_some(session.perf_freq),
            boot_latest: boot_time,
            counter_zero: counts.then_some((zero, zero)),
        }
    }

    fn boot_times(&self) -> Option<(FileTime, FileTime)> {
        self.boot_time.zip(self.boot_latest)
    }

    /// Whether all values that both state are equal (times: within the tolerance).
    pub fn agrees(&self, other: &Machine) -> bool {
        let names = known(self.computer_name.as_deref(), other.computer_name.as_deref());
        names.is_none_or(|(one, other)| one.eq_ignore_ascii_case(other))
            && same(self.build, other.build)
            && same(self.processors, other.processors)
            && same(self.pointer_size, other.pointer_size)
            && same(self.perf_freq, other.perf_freq)
            && near(self.boot_times(), other.boot_times())
            && near(self.counter_zero, other.counter_zero)
    }

    /// Adds the values of another source of the same boot. Afterwards this agrees only with
    /// machines that agree with both.
    fn join(&mut self, other: &Machine) {
        let boot_times = span(self.boot_times(), other.boot_times());
        (self.boot_time, self.boot_latest) = boot_times.unzip();
        self.counter_zero = span(self.counter_zero, other.counter_zero);
        self.build = self.build.or(other.build);
        self.processors = self.processors.or(other.processors);
        self.pointer_size = self.pointer_size.or(other.pointer_size);
        self.perf_freq = self.perf_freq.or(other.perf_freq);
        if self.computer_name.is_none() {
            self.computer_name.clone_from(&other.computer_name);
        }
    }
}

fn known<T>(one: Option<T>, other: Option<T>) -> Option<(T, T)> {
    one.zip(other)
}

fn same<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    known(one, other).is_none_or(|(one, other)| one == other)
}

type Times = (FileTime, FileTime);

/// Whether the span of both intervals is within the tolerance.
fn near(one: Option<Times>, other: Option<Times>) -> bool {
    known(one, other).is_none_or(|(one, other)| {
        let (from, to) = (one.0.min(other.0), one.1.max(other.1));
        to.0.abs_diff(from.0) < TOLERANCE
    })
}

/// The span from the earliest to the latest time.
fn span(one: Option<Times>, other: Option<Times>) -> Option<Times> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// Sources that are analyzed together. No state is carried over from one capture to another.
#[derive(Debug)]
pub struct Capture {
    /// The sources, merged by time.
    pub trace: OpenTrace,
    /// The machine and boot of the sources.
    pub machine: Machine,
    /// The start of the first session, or the first event if that is earlier, and the last event.
    pub times: (FileTime, FileTime),
}

/// One line with the machine, its boot time, the times of the capture, and the files.
impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { computer_name, boot_time, build, processors, pointer_size, .. } = &self.machine;
        f.write_str(computer_name.as_deref().unwrap_or("computer not named"))?;
        if let Some(boot_time) = boot_time {
            write!(f, ", booted {}", Rfc3339(*boot_time))?;
        }
        if let Some(build) = build {
            write!(f, ", build {build}")?;
        }
        if let Some(processors) = processors {
            write!(f, ", {processors} processor{}", if *processors == 1 { "" } else { "s" })?;
        }
        if let Some(pointer_size) = pointer_size {
            write!(f, ", {}-bit", 8 * pointer_size.bytes())?;
        }
        write!(f, "; {} to {}; ", Rfc3339(self.times.0), Rfc3339(self.times.1))?;
        let names = self.trace.sources().iter().map(|source| &*source.name);
        f.write_str(&listed(names, SHOWN_FILES, ", "))
    }
}

/// The error that lists several captures where one is required.
pub fn several_captures(captures: &[Capture]) -> Error {
    let files = |capture: &Capture| {
        let names = capture.trace.sources().iter().map(|source| &*source.name);
        format!("({})", listed(names, SHOWN_FILES, ", "))
    };
    let described = listed(captures.iter().map(files), SHOWN_CAPTURES, " ");
    Error::SeveralCaptures { count: captures.len(), captures: described }
}

fn listed<T: AsRef<str>>(names: impl ExactSizeIterator<Item = T>, max: usize, between: &str) -> String {
    let more = names.len().saturating_sub(max);
    let mut text = String::new();
    for (index, name) in names.take(max).enumerate() {
        text += if index > 0 { between } else { "" };
        text += name.as_ref();
    }
    if more > 0 {
        text += &format!("{between}and {more} more");
    }
    text
}

/// The facts that decide which capture a source belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub machine: Machine,
    /// From the start of the session to the last event.
    pub times: Times,
    series: Option<Series>,
}

/// One file of a series that a session with the mode `EVENT_TRACE_FILE_MODE_NEWFILE` wrote.
#[derive(Clone, Debug)]
struct Series {
    session: String,
    /// The first and the last sequence number.
    numbers: (i64, i64),
}

impl Facts {
    /// Reads a few buffers at the beginning and at the end of each stream.
    pub fn of(source: &Source, index: &Index) -> Facts {
        let etl_file = &source.etl_file;
        let session = etl_file.session();
        let computer_name = computer_name(etl_file, index).or_else(|| host_of(Path::new(&source.name)));
        Facts {
            machine: Machine { computer_name, ..Machine::of(session) },
            times: times(etl_file, index),
            series: Series::of(session, index),
        }
    }

    /// Whether two sources are parts of one capture.
    fn belongs_with(&self, other: &Facts) -> bool {
        self.machine.agrees(&other.machine)
            && (self.times.0 <= other.times.1 && other.times.0 <= self.times.1
                || self.is_continued_by(other)
                || other.is_continued_by(self))
    }

    fn is_continued_by(&self, next: &Facts) -> bool {
        let (Some(one), Some(other)) = (&self.series, &next.series) else { return false };
        let ((first, last), (next_first, next_last)) = (one.numbers, other.numbers);
        one.session == other.session
            && self.times.0 <= next.times.0
            && first < next_first
            && next_first <= last.saturating_add(1)
            && last < next_last
    }
}

impl Series {
    fn of(session: &LogfileHeader, index: &Index) -> Option<Series> {
        if !session.mode.has(LogFileMode::NEW_FILE) {
            return None;
        }
        // The header buffer has number 0 in each file.
        let numbers = || index.buffers.iter().map(|buffer| buffer.sequence).filter(|&number| number > 0);
        let numbers = (numbers().min()?, numbers().max()?);
        Some(Series { session: session.session_name.clone(), numbers })
    }
}

/// From the start of the session, or the first event if that is earlier, to the last event.
fn times(etl_file: &EtlFile, index: &Index) -> Times {
    let (clock, start) = (etl_file.clock(), etl_file.session().start_time);
    let (mut from, mut to) = (start, start);
    for stream in index.streams() {
        let mut add = |block: Block| {
            for entry in block.entries() {
                let time = clock.to_file_time(entry.time);
                (from, to) = (from.min(time), to.max(time));
            }
        };
        edge(etl_file, stream.iter(), None).into_iter().for_each(&mut add);
        edge(etl_file, stream.iter().rev(), None).into_iter().for_each(&mut add);
    }
    (from, to)
}

/// The first of a few buffers with records of the selection.
fn edge<'b>(
    etl_file: &EtlFile,
    buffers: impl Iterator<Item = &'b BufferRef>,
    selection: Option<&Selection>,
) -> Option<Block> {
    let max = if selection.is_some() { NAME_BUFFERS } else { EDGE_BUFFERS };
    let blocks = buffers.take(max).filter_map(|buffer| etl_file.block(buffer, selection).ok());
    blocks.map(|(block, _)| block).find(|block| !block.entries().is_empty())
}

/// The name in the first SystemConfig/CPU event at the beginning or at the end of a source:
/// sessions log it when they start or stop.
fn computer_name(etl_file: &EtlFile, index: &Index) -> Option<String> {
    let selection = Selection::none().hook_ids([hook_id::SYSTEM_CONFIG_CPU]);
    let mut buffers: Vec<&BufferRef> = index.buffers.iter().collect();
    buffers.sort_by_key(|buffer| (buffer.epoch, buffer.sequence, buffer.offset));
    let name_in = |block: Block| {
        let mut records = block.entries().iter().map(|entry| block.record(entry));
        records.find_map(|record| name_of(&record))
    };
    let at_start = edge(etl_file, buffers.iter().copied(), Some(&selection)).and_then(name_in);
    at_start.or_else(|| edge(etl_file, buffers.iter().rev().copied(), Some(&selection)).and_then(name_in))
}

/// The name follows five 32-bit numbers and is padded with zeros to 256 UTF-16 code units.
fn name_of(record: &Record<'_>) -> Option<String> {
    let name = record.payload().get(20..20 + 2 * 256)?;
    let units = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    let name = String::from_utf16_lossy(&units);
    (!name.is_empty()).then_some(name)
}

/// The name of the innermost folder `host=NAME` of a path.
fn host_of(path: &Path) -> Option<String> {
    path.parent()?.components().rev().find_map(|component| {
        let Component::Normal(folder) = component else { return None };
        let name = folder.to_str()?.strip_prefix("host=").filter(|name| !name.is_empty())?;
        Some(percent_decode_str(name).decode_utf8_lossy().into_owned())
    })
}

/// The sources of each capture, as indexes in ascending order. Captures are sorted by their start,
/// then by their first source.
///
/// Two sources belong together if no stated values differ and if they overlap in time or continue
/// one series of files. Membership is transitive. A source whose unknown values let it agree with
/// two sources that contradict each other is linked to neither.
pub(crate) fn grouped(facts: &[Facts]) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..facts.len()).collect();
    let mut groups = Vec::new();
    for group in connected(facts, &all) {
        if joined(facts, &group).is_some() {
            groups.push(group);
            continue;
        }
        let machine = |at: usize| &facts[at].machine;
        let is_clear = |at: &usize| {
            let agreeing = group.iter().copied().filter(|&other| machine(*at).agrees(machine(other)));
            joined(facts, &agreeing.collect::<Vec<_>>()).is_some()
        };
        let (clear, unclear): (Vec<usize>, Vec<usize>) = group.iter().partition(|at| is_clear(at));
        groups.extend(connected(facts, &clear));
        groups.extend(unclear.into_iter().map(|at| vec![at]));
    }
    in_order(facts, groups)
}

/// Sorts groups in the order of captures.
pub(crate) fn in_order(facts: &[Facts], mut groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    groups.sort_by_key(|group| (group.iter().map(|&at| facts[at].times.0).min(), group.first().copied()));
    groups
}

/// The machine of several sources; `None` if two of them contradict each other.
fn joined(facts: &[Facts], group: &[usize]) -> Option<Machine> {
    group.iter().try_fold(Machine::default(), |mut machine, &at| {
        let other = &facts[at].machine;
        machine.agrees(other).then(|| machine.join(other))?;
        Some(machine)
    })
}

/// The machine and times of a capture. Sources contradict each other only if the caller requested a
/// merge; the first source's value is then used.
pub(crate) fn summary(facts: &[Facts], group: &[usize]) -> (Machine, Times) {
    let first = facts[group[0]].clone();
    group[1..].iter().fold((first.machine, first.times), |(mut machine, times), &at| {
        machine.join(&facts[at].machine);
        (machine, (times.0.min(facts[at].times.0), times.1.max(facts[at].times.1)))
    })
}

/// Splits sources into connected groups.
fn connected(facts: &[Facts], group: &[usize]) -> Vec<Vec<usize>> {
    let mut left = group.to_vec();
    let mut groups = Vec::new();
    while !left.is_empty() {
        let mut found = vec![left.remove(0)];
        let mut next = 0;
        while let Some(&at) = found.get(next) {
            let (linked, others) = left.iter().partition(|&&other| facts[at].belongs_with(&facts[other]));
            let linked: Vec<usize> = linked;
            (left, next) = (others, next + 1);
            found.extend(linked);
        }
        found.sort_unstable();
        groups.push(found);
    }
    groups
}
