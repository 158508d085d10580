//! A collected profile, as the writers of formats read it.

use crate::model::{
    Frame, FrameId, Marker, MarkerKind, Module, Nanos, Process, ProcessId, Sample, StackId, Switch, Thread,
    ThreadId,
};

/// A stack: its innermost frame, and the stack of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    pub caller: Option<StackId>,
    pub frame: FrameId,
}

/// A marker and the index of its first value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerRecord {
    pub marker: Marker,
    pub first_value: usize,
}

const DEFAULT_INTERVAL: Nanos = Nanos(1_000_000);

/// A collected profile. Samples and markers are sorted by thread, then by time.
#[derive(Debug)]
pub struct Profile {
    pub(crate) product: String,
    /// Nanoseconds since 1970.
    pub(crate) unix_start: i64,
    pub(crate) interval: Option<Nanos>,
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) modules: Vec<Module>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) stacks: Vec<Node>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) texts: Vec<String>,
    pub(crate) marker_kinds: Vec<MarkerKind>,
    pub(crate) markers: Vec<MarkerRecord>,
    /// The values of all markers, concatenated.
    pub(crate) value_text: String,
    /// The end of each value.
    pub(crate) value_ends: Vec<usize>,
}

impl Profile {
    pub(crate) fn new(product: String, unix_start: i64) -> Profile {
        Profile {
            product,
            unix_start,
            interval: None,
            processes: Vec::new(),
            threads: Vec::new(),
            modules: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            samples: Vec::new(),
            switches: Vec::new(),
            texts: Vec::new(),
            marker_kinds: Vec::new(),
            markers: Vec::new(),
            value_text: String::new(),
            value_ends: Vec::new(),
        }
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// The total weight of all samples.
    pub fn weight(&self) -> u64 {
        self.samples.iter().map(|sample| u64::from(sample.weight)).sum()
    }

    /// The number of markers.
    pub fn markers(&self) -> usize {
        self.markers.len()
    }

    /// The number of context switches.
    pub fn switches(&self) -> usize {
        self.switches.len()
    }

    pub(crate) fn interval(&self) -> Nanos {
        self.interval.unwrap_or(DEFAULT_INTERVAL)
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.index()]
    }

    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    pub(crate) fn node(&self, id: StackId) -> Node {
        self.stacks[id.index()]
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn stack(&self, id: StackId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(Some(self.node(id)), |node| Some(self.node(node.caller?)))
            .map(|node| node.frame)
    }

    pub(crate) fn process_ids(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().enumerate().map(|(index, process)| (ProcessId(index as u32), process))
    }

    pub(crate) fn thread_ids(&self) -> impl Iterator<Item = (ThreadId, &Thread)> {
        self.threads.iter().enumerate().map(|(index, thread)| (ThreadId(index as u32), thread))
    }

    pub(crate) fn samples_of(&self, thread: ThreadId) -> &[Sample] {
        part(&self.samples, |sample| sample.thread, thread)
    }

    pub(crate) fn markers_of(&self, thread: ThreadId) -> &[MarkerRecord] {
        part(&self.markers, |record| record.marker.thread, thread)
    }

    pub(crate) fn kind_of(&self, record: &MarkerRecord) -> &MarkerKind {
        &self.marker_kinds[record.marker.kind.index()]
    }

    /// A marker's values, one for each key of its kind.
    pub(crate) fn values_of(&self, record: &MarkerRecord) -> impl Iterator<Item = &str> {
        let first = record.first_value;
        let keys = self.kind_of(record).keys.len();
        (first..first + keys).map(|index| {
            let start = index.checked_sub(1).map_or(0, |before| self.value_ends[before]);
            &self.value_text[start..self.value_ends[index]]
        })
    }

    /// Why a thread left its processor.
    pub(crate) fn why(&self, switch: &Switch) -> String {
        match switch.why {
            Some(why) => format!("{}: {}", switch.reason.name(), self.texts[why.index()]),
            None => switch.reason.name().to_owned(),
        }
    }

    /// The display name of a process, with its id because several processes can have the same name.
    pub(crate) fn process_label(&self, id: ProcessId) -> String {
        let process = self.process(id);
        match process.pid {
            Some(pid) => format!("{} ({pid})", process.name),
            None => process.name.clone(),
        }
    }

    /// The display name of a thread within its process.
    pub(crate) fn thread_label(&self, id: ThreadId) -> String {
        let thread = &self.threads[id.index()];
        match (thread.tid, &*thread.name) {
            (Some(tid), "") => format!("thread {tid}"),
            (Some(tid), name) => format!("{name} ({tid})"),
            (None, "") => "no thread".to_owned(),
            (None, name) => name.to_owned(),
        }
    }
}

/// The items of one thread, from items that are sorted by thread.
fn part<T>(items: &[T], thread_of: impl Fn(&T) -> ThreadId, thread: ThreadId) -> &[T] {
    let start = items.partition_point(|item| thread_of(item) < thread);
    let rest = &items[start..];
    &rest[..rest.partition_point(|item| thread_of(item) == thread)]
}
