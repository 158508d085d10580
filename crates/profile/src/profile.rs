//! A collected profile.

use rustc_hash::FxHashMap;

use crate::model::{
    CodeKind, Frame, FrameId, Marker, MarkerKind, Module, Nanos, Origin, Process, ProcessId, Sample, StackId,
    Switch, TextId, Thread, ThreadId, Unit,
};
use crate::samples::Samples;
use crate::totals::{Grouping, Groups};

/// A stack: its innermost frame, and the stack of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// The stack of the caller; `None` for the outermost frame.
    pub caller: Option<StackId>,
    /// The innermost frame.
    pub frame: FrameId,
}

/// A marker and the index of its first value.
#[derive(Clone, Copy, Debug)]
pub struct MarkerRecord {
    /// The marker.
    pub marker: Marker,
    pub(crate) first_value: usize,
}

const DEFAULT_INTERVAL: Nanos = Nanos(1_000_000);

/// A collected profile. Samples and markers are sorted by thread, then by time.
#[derive(Debug)]
pub struct Profile {
    pub(crate) product: String,
    /// Nanoseconds since 1970.
    pub(crate) unix_start: i64,
    pub(crate) interval: Option<Nanos>,
    pub(crate) is_timed: bool,
    pub(crate) unit: Unit,
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Vec<Thread>,
    /// `None` if it is not known which services there were.
    pub(crate) services: Option<FxHashMap<ThreadId, TextId>>,
    pub(crate) modules: Vec<Module>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) stacks: Vec<Node>,
    pub(crate) samples: Samples,
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
            is_timed: false,
            unit: Unit::Samples,
            processes: Vec::new(),
            threads: Vec::new(),
            services: None,
            modules: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            samples: Samples::default(),
            switches: Vec::new(),
            texts: Vec::new(),
            marker_kinds: Vec::new(),
            markers: Vec::new(),
            value_text: String::new(),
            value_ends: Vec::new(),
        }
    }

    /// The name of the recorded system.
    pub fn product(&self) -> &str {
        &self.product
    }

    /// The start of the profile, in nanoseconds since 1970.
    pub fn unix_start(&self) -> i64 {
        self.unix_start
    }

    /// The processes, by index.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The threads, by index.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Whether it is known which Windows services there were.
    pub fn lists_services(&self) -> bool {
        self.services.is_some()
    }

    /// The Windows service that a thread worked for, with its process. Equal indexes are the same
    /// service.
    pub fn service(&self, thread: ThreadId) -> Option<TextId> {
        self.services.as_ref()?.get(&thread).copied()
    }

    /// The modules, by index.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The frames, by index.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The stacks, by index. The caller's index is smaller.
    pub fn stacks(&self) -> &[Node] {
        &self.stacks
    }

    /// The indexes of all stacks.
    pub fn stack_ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..self.stacks.len()).map(|index| StackId(index as u32))
    }

    /// The samples, by thread and time. They are decoded one by one.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        self.samples.iter()
    }

    /// The number of samples.
    pub fn sample_count(&self) -> usize {
        self.samples.len()
    }

    /// What the weights of samples are.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The total weight of all samples.
    pub fn weight(&self) -> u64 {
        self.samples.weight()
    }

    /// The context switches, by time.
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// The kinds of markers, by index.
    pub fn marker_kinds(&self) -> &[MarkerKind] {
        &self.marker_kinds
    }

    /// The markers, by thread and time.
    pub fn markers(&self) -> &[MarkerRecord] {
        &self.markers
    }

    /// A text.
    pub fn text(&self, id: TextId) -> &str {
        &self.texts[id.index()]
    }

    /// The sampling interval of a processor.
    pub fn interval(&self) -> Nanos {
        self.interval.unwrap_or(DEFAULT_INTERVAL)
    }

    /// A process.
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.index()]
    }

    /// A frame.
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    /// The innermost frame and the caller of a stack.
    pub fn node(&self, id: StackId) -> Node {
        self.stacks[id.index()]
    }

    /// The frames of a stack, innermost first. The functions that were inlined at a frame's address
    /// are before it.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let nodes = std::iter::successors(Some(self.node(id)), |node| Some(self.node(node.caller?)));
        nodes.flat_map(|node| self.frame(node.frame).inlines.iter().copied().chain([node.frame]))
    }

    /// The processes with their indexes.
    pub fn process_ids(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().enumerate().map(|(index, process)| (ProcessId(index as u32), process))
    }

    /// The threads with their indexes.
    pub fn thread_ids(&self) -> impl Iterator<Item = (ThreadId, &Thread)> {
        self.threads.iter().enumerate().map(|(index, thread)| (ThreadId(index as u32), thread))
    }

    /// The samples of a thread, by time. They are decoded one by one.
    pub fn samples_of(&self, thread: ThreadId) -> impl Iterator<Item = Sample> + Clone {
        self.samples.of(thread)
    }

    /// The number of samples of a thread.
    pub fn sample_count_of(&self, thread: ThreadId) -> usize {
        self.samples.len_of(thread)
    }

    /// The markers of a thread, by time.
    pub fn markers_of(&self, thread: ThreadId) -> &[MarkerRecord] {
        part(&self.markers, |record| record.marker.thread, thread)
    }

    /// The kind of a marker.
    pub fn kind_of(&self, record: &MarkerRecord) -> &MarkerKind {
        &self.marker_kinds[record.marker.kind.index()]
    }

    /// A marker's values, one for each key of its kind.
    pub fn values_of(&self, record: &MarkerRecord) -> impl Iterator<Item = &str> {
        let first = record.first_value;
        let keys = self.kind_of(record).keys.len();
        (first..first + keys).map(|index| {
            let start = index.checked_sub(1).map_or(0, |before| self.value_ends[before]);
            &self.value_text[start..self.value_ends[index]]
        })
    }

    /// Whether the samples of a thread are those of idle processors. These are the threads of process
    /// 0, if a timer took all samples: other events observe what happened, such as interrupts.
    pub fn is_idle(&self, thread: ThreadId) -> bool {
        self.is_timed && self.process(self.threads[thread.index()].process).pid == Some(0)
    }

    /// The thread with the highest weight of samples; if there are several, the one with the most
    /// markers, and of these the first one. Idle threads are chosen only if there are no others.
    pub fn busiest_thread(&self) -> Option<ThreadId> {
        let rank = |thread: ThreadId| {
            let weight = self.samples.weight_of(thread);
            (!self.is_idle(thread), weight, self.markers_of(thread).len(), std::cmp::Reverse(thread))
        };
        self.thread_ids().map(|(thread, _)| thread).max_by_key(|&thread| rank(thread))
    }

    /// Names frames without the name of a function after their module, as [`Grouping::Function`]
    /// does, or after the [kind](CodeKind) of code in no module, and merges consecutive ones with one
    /// name in each stack. The offsets of these frames are lost, except for those of the outermost
    /// one.
    pub fn fold_unnamed(&mut self) {
        let groups = Groups::new(self, Grouping::Function);
        let is_folded: Vec<bool> = self.frames.iter().map(is_folded).collect();
        name_unnamed(&mut self.frames, &groups);
        // The stack that replaces each stack. Callers come first.
        let mut replaced: Vec<StackId> = Vec::with_capacity(self.stacks.len());
        for index in 0..self.stacks.len() {
            let Node { caller, frame } = self.stacks[index];
            let caller = caller.map(|caller| replaced[caller.index()]);
            self.stacks[index].caller = caller;
            let repeats = |caller: &StackId| {
                let above = self.stacks[caller.index()].frame;
                is_folded[frame.index()]
                    && is_folded[above.index()]
                    && self.frame(frame).name == self.frame(above).name
            };
            replaced.push(caller.filter(repeats).unwrap_or(StackId(index as u32)));
        }
        self.renumber_stacks(&replaced);
    }

    /// Removes the stacks that no sample, context switch or marker has, and the frames that no stack has.
    pub fn remove_unused(&mut self) {
        let mut used = vec![false; self.stacks.len()];
        let markers = self.markers.iter().filter_map(|record| record.marker.stack);
        let switches = self.switches.iter().filter_map(|switch| switch.stack);
        let stacks = self.samples.iter().map(|sample| sample.stack).chain(switches).chain(markers);
        stacks.for_each(|stack| used[stack.index()] = true);
        // Callers come first.
        for index in (0..used.len()).rev() {
            if let Some(caller) = self.stacks[index].caller.filter(|_| used[index]) {
                used[caller.index()] = true;
            }
        }
        let mut frames: Vec<Frame> = Vec::new();
        let mut of_frame: Vec<Option<FrameId>> = vec![None; self.frames.len()];
        let mut kept = |frames: &mut Vec<Frame>, id: FrameId| {
            *of_frame[id.index()].get_or_insert_with(|| {
                frames.push(self.frames[id.index()].clone());
                FrameId((frames.len() - 1) as u32)
            })
        };
        let mut stacks: Vec<Node> = Vec::new();
        let mut of_stack: Vec<StackId> = Vec::with_capacity(self.stacks.len());
        for (node, is_used) in self.stacks.iter().zip(used) {
            // An unused stack is never asked for.
            of_stack.push(StackId(stacks.len() as u32));
            if is_used {
                let frame = kept(&mut frames, node.frame);
                let caller = node.caller.map(|caller| of_stack[caller.index()]);
                stacks.push(Node { caller, frame });
            }
        }
        // Inlined functions have no inlined functions of their own.
        for index in 0..frames.len() {
            let inlines = std::mem::take(&mut frames[index].inlines);
            frames[index].inlines = inlines.iter().map(|&inline| kept(&mut frames, inline)).collect();
        }
        (self.frames, self.stacks) = (frames, stacks);
        self.renumber_stacks(&of_stack);
    }

    /// Replaces the stacks of all samples, context switches and markers.
    fn renumber_stacks(&mut self, new: &[StackId]) {
        self.samples.replace_stacks(|stack| Some(new[stack.index()]));
        let markers = self.markers.iter_mut().filter_map(|record| record.marker.stack.as_mut());
        let switches = self.switches.iter_mut().filter_map(|switch| switch.stack.as_mut());
        markers.chain(switches).for_each(|stack| *stack = new[stack.index()]);
    }

    /// Why a thread left its processor.
    pub fn why(&self, switch: &Switch) -> String {
        match switch.why {
            Some(why) => format!("{}: {}", switch.reason.name(), self.text(why)),
            None => switch.reason.name().to_owned(),
        }
    }

    /// The display name of a process, with its id because several processes can have the same name.
    pub fn process_label(&self, id: ProcessId) -> String {
        let process = self.process(id);
        match process.pid {
            Some(pid) => format!("{} ({pid})", process.name),
            None => process.name.clone(),
        }
    }

    /// The display name of a thread within its process.
    pub fn thread_label(&self, id: ThreadId) -> String {
        let thread = &self.threads[id.index()];
        match (thread.tid, &*thread.name) {
            (Some(tid), "") => format!("thread {tid}"),
            (Some(tid), name) => format!("{name} ({tid})"),
            (None, "") => "no thread".to_owned(),
            (None, name) => name.to_owned(),
        }
    }
}

/// Whether a frame is folded into its module. Inlined functions are named, and belong to their frame.
fn is_folded(frame: &Frame) -> bool {
    frame.is_unnamed() && frame.inlines.is_empty()
}

/// Names frames without the name of a function after their group, or after the kind of code in no
/// module, and removes their offsets.
pub(crate) fn name_unnamed(frames: &mut [Frame], groups: &Groups) {
    for (index, frame) in frames.iter_mut().enumerate().filter(|(_, frame)| is_folded(frame)) {
        frame.name = match frame.code {
            CodeKind::Unbacked | CodeKind::Unknown => format!("[{}]", frame.code.name()),
            _ => groups.names()[groups.of(FrameId(index as u32))].clone(),
        };
        if let Some(location) = &mut frame.location {
            location.offset = None;
            frame.origin = Origin::Module;
        }
    }
}

/// The items of one thread, from items that are sorted by thread.
fn part<T>(items: &[T], thread_of: impl Fn(&T) -> ThreadId, thread: ThreadId) -> &[T] {
    let start = items.partition_point(|item| thread_of(item) < thread);
    let rest = &items[start..];
    &rest[..rest.partition_point(|item| thread_of(item) == thread)]
}
