//! Collection of a profile.

use rustc_hash::FxHashMap;
use stackhound_types::plain::{Plain, make_plain, needs_escaping};

use crate::model::{
    Frame, FrameId, FrameName, InlineName, Marker, MarkerKind, MarkerKindId, Module, ModuleId, Nanos, Origin,
    Process, ProcessId, Sample, StackId, Switch, TextId, Thread, ThreadId, Unit,
};
use crate::profile::{MarkerRecord, Node, Profile};
use crate::samples::Samples;

/// A limit of profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// A profile cannot hold more than 2³² − 1 items of one kind.
    #[error("the profile has too many {0}")]
    Items(&'static str),
    /// The time of all processors together is not a signed 64-bit number of nanoseconds.
    #[error(
        "the events are {years} years apart on {processors} processors, of which times cannot be added up; is the clock in the trace's header damaged?"
    )]
    Time {
        /// The time between the first and the last event, in years.
        years: u64,
        /// The number of processors.
        processors: u32,
    },
}

/// Collects a profile. Adding a sample takes about 8 bytes of memory and no look-up.
///
/// Methods take only indexes that the same builder returned. With others, writing the profile may
/// panic.
#[derive(Debug)]
pub struct ProfileBuilder {
    profile: Profile,
    modules: FxHashMap<Module, ModuleId>,
    stacks: FxHashMap<Node, StackId>,
    services: FxHashMap<(ProcessId, String), TextId>,
}

fn next(len: usize, what: &'static str) -> Result<u32, Full> {
    u32::try_from(len).ok().filter(|&id| id != u32::MAX).ok_or(Full::Items(what))
}

impl ProfileBuilder {
    /// `product` is the name of the recorded system. `unix_start` is the start of the profile in
    /// nanoseconds since 1970.
    pub fn new(product: impl Into<String>, unix_start: i64) -> ProfileBuilder {
        ProfileBuilder {
            profile: Profile::new(Plain(product.into()).to_string(), unix_start),
            modules: FxHashMap::default(),
            stacks: FxHashMap::default(),
            services: FxHashMap::default(),
        }
    }

    /// Changes the start of the profile.
    pub fn set_start(&mut self, unix_start: i64) {
        self.profile.unix_start = unix_start;
    }

    /// Sets the sampling interval of a processor. The default is one millisecond.
    pub fn set_interval(&mut self, interval: Nanos) {
        self.profile.interval = Some(interval);
    }

    /// Sets whether a timer took all samples. The default is that other events did.
    pub fn set_timed(&mut self, is_timed: bool) {
        self.profile.is_timed = is_timed;
    }

    /// Sets what the weights of samples are. The default is numbers of samples.
    pub fn set_unit(&mut self, unit: Unit) {
        self.profile.unit = unit;
    }

    /// Adds a process.
    pub fn process(&mut self, mut process: Process) -> Result<ProcessId, Full> {
        make_plain(&mut process.name);
        let id = ProcessId(next(self.profile.processes.len(), "processes")?);
        self.profile.processes.push(process);
        Ok(id)
    }

    /// Adds a thread.
    pub fn thread(&mut self, mut thread: Thread) -> Result<ThreadId, Full> {
        make_plain(&mut thread.name);
        let id = ThreadId(next(self.profile.threads.len(), "threads")?);
        self.profile.threads.push(thread);
        Ok(id)
    }

    /// Sets the full path of the program of a process.
    pub fn set_program(&mut self, process: ProcessId, path: &str) {
        let process = &mut self.profile.processes[process.index()];
        process.path.clear();
        process.path.push_str(path);
        make_plain(&mut process.path);
    }

    /// States that the services of threads are known: all that [`set_service`](Self::set_service)
    /// states, and no others.
    pub fn list_services(&mut self) {
        self.profile.services.get_or_insert_default();
    }

    /// Sets the Windows service that a thread worked for. Ignored if the profile is full of texts.
    pub fn set_service(&mut self, thread: ThreadId, name: &str) {
        let process = self.process_of(thread);
        let known = self.services.get(&(process, name.to_owned())).copied();
        let text =
            known.map_or_else(|| self.text(format!("{name} in {}", self.profile.process_label(process))), Ok);
        if let Ok(text) = text {
            self.services.insert((process, name.to_owned()), text);
            self.profile.services.get_or_insert_default().insert(thread, text);
        }
    }

    /// The id of a process.
    pub fn pid(&self, process: ProcessId) -> Option<u32> {
        self.profile.process(process).pid
    }

    /// The id of a thread, if it is known.
    pub fn tid(&self, thread: ThreadId) -> Option<u32> {
        self.profile.threads[thread.index()].tid
    }

    /// The process of a thread.
    pub fn process_of(&self, thread: ThreadId) -> ProcessId {
        self.profile.threads[thread.index()].process
    }

    /// The index of a module. Equal modules share one index.
    pub fn module(&mut self, module: Module) -> Result<ModuleId, Full> {
        if let Some(&id) = self.modules.get(&module) {
            return Ok(id);
        }
        let id = ModuleId(next(self.profile.modules.len(), "modules")?);
        let mut shown = module.clone();
        let pdb = shown.pdb.as_mut().map(|pdb| &mut pdb.name);
        [&mut shown.name, &mut shown.path].into_iter().chain(pdb).for_each(make_plain);
        self.profile.modules.push(shown);
        self.modules.insert(module, id);
        Ok(id)
    }

    /// Adds a frame. Equal frames are not merged, so the caller should keep the index.
    pub fn frame(&mut self, mut frame: Frame) -> Result<FrameId, Full> {
        make_plain(&mut frame.name);
        let id = FrameId(next(self.profile.frames.len(), "frames")?);
        self.profile.frames.push(frame);
        Ok(id)
    }

    /// Sets the name of a frame that was resolved after the frame was added, and adds the functions
    /// that were inlined there. The stacks with the frame then contain these, too. Those for which
    /// the profile has no more indexes are left out.
    ///
    /// # Panics
    /// Panics if the frame was added to another builder.
    pub fn name_frame(&mut self, id: FrameId, name: FrameName) {
        let Frame { mode, code, location, .. } = self.profile.frames[id.index()];
        let inlines = name.inlines.into_iter().map_while(|InlineName { text, mut source }| {
            if let Some(source) = &mut source {
                make_plain(&mut source.file);
            }
            let inlines = Box::default();
            self.frame(Frame { name: text, origin: Origin::Inlined, mode, code, location, source, inlines })
                .ok()
        });
        let inlines = inlines.collect();
        let frame = &mut self.profile.frames[id.index()];
        frame.inlines = inlines;
        (frame.name, frame.origin, frame.source) = (name.text, name.origin, name.source);
        make_plain(&mut frame.name);
        if let Some(source) = &mut frame.source {
            make_plain(&mut source.file);
        }
        if let Some(location) = &mut frame.location {
            location.offset = Some(name.offset);
        }
    }

    /// The index of the stack with `frame` called by `caller`. Equal stacks share one index.
    pub fn stack(&mut self, caller: Option<StackId>, frame: FrameId) -> Result<StackId, Full> {
        let node = Node { caller, frame };
        if let Some(&id) = self.stacks.get(&node) {
            return Ok(id);
        }
        let id = StackId(next(self.profile.stacks.len(), "stacks")?);
        self.profile.stacks.push(node);
        self.stacks.insert(node, id);
        Ok(id)
    }

    /// The same as [`stack`](ProfileBuilder::stack) without adding one. `None` if it is not known.
    pub fn known_stack(&self, caller: Option<StackId>, frame: FrameId) -> Option<StackId> {
        self.stacks.get(&Node { caller, frame }).copied()
    }

    /// The number of different stacks.
    pub fn stack_count(&self) -> usize {
        self.profile.stacks.len()
    }

    /// Adds a sample.
    #[inline]
    pub fn sample(&mut self, sample: Sample) {
        self.profile.samples.push(sample);
    }

    /// Removes all samples.
    pub fn forget_samples(&mut self) {
        self.profile.samples = Samples::default();
    }

    /// Adds a context switch.
    pub fn switch(&mut self, switch: Switch) {
        self.profile.switches.push(switch);
    }

    /// Adds a text.
    pub fn text(&mut self, text: impl Into<String>) -> Result<TextId, Full> {
        let id = TextId(next(self.profile.texts.len(), "texts")?);
        let mut text = text.into();
        make_plain(&mut text);
        self.profile.texts.push(text);
        Ok(id)
    }

    /// Adds a kind of marker.
    pub fn marker_kind(&mut self, mut kind: MarkerKind) -> Result<MarkerKindId, Full> {
        kind.keys.iter_mut().chain([&mut kind.name]).for_each(make_plain);
        let id = MarkerKindId(next(self.profile.marker_kinds.len(), "kinds of markers")?);
        self.profile.marker_kinds.push(kind);
        Ok(id)
    }

    /// Adds a marker with the values of its kind's fields in order. Missing values at the end are
    /// empty.
    pub fn marker(&mut self, marker: Marker, values: impl IntoIterator<Item = impl AsRef<str>>) {
        let Profile { marker_kinds, value_ends, value_text, markers, .. } = &mut self.profile;
        let first_value = value_ends.len();
        let mut values = values.into_iter();
        for _ in &marker_kinds[marker.kind.index()].keys {
            if let Some(value) = values.next() {
                let start = value_text.len();
                value_text.push_str(value.as_ref());
                // Nearly all texts are unchanged.
                if value_text[start..].contains(needs_escaping) {
                    let plain = Plain(&value_text[start..]).to_string();
                    value_text.replace_range(start.., &plain);
                }
            }
            value_ends.push(value_text.len());
        }
        markers.push(MarkerRecord { marker, first_value });
    }

    /// Returns the profile, with samples and markers sorted by thread and time.
    pub fn finish(self) -> Profile {
        let mut profile = self.profile;
        profile.samples.sort();
        profile.markers.sort_by_key(|record| (record.marker.thread, record.marker.timing.start()));
        profile.switches.sort_by_key(|switch| switch.time);
        profile
    }
}
