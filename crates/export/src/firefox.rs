//! The processed-profile format of the Firefox Profiler, version [`VERSION`].
//!
//! Frames are addresses in libraries with the names of the profile, so that the profiler shows them
//! without a symbol server but can still query one. Context switches become intervals in which a
//! thread runs or waits, with its stack while waiting.

mod libraries;
mod samples;
mod scheduling;

use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, Frame, FrameFlags, FrameHandle, FrameInfo, Marker,
    MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, MarkerTiming, MarkerTypeHandle, ProcessHandle,
    Profile as Output, ReferenceTimestamp, RuntimeSchemaMarkerField, RuntimeSchemaMarkerSchema,
    SamplingInterval, StackHandle, StringHandle, ThreadHandle, Timestamp,
};
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::Serializer;

use libraries::Libraries;
use samples::{StackNumbers, WithSamples};
use stackhound_profile::Profile;
use stackhound_profile::{CodeKind, FrameId, MarkerKind, Nanos, Origin, StackId, Timing};

/// `preprocessedProfileVersion` of the output.
pub const VERSION: u32 = 55;

/// The source of the names that the profiler shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// The profile. The profiler requests no symbols.
    Profile,
    /// The symbol server of the profiler, which receives the names and identities of the modules and
    /// the offsets of frames. It uses the names of the profile where it finds no symbols. It adds
    /// inlined functions itself, so that those of the profile are not written.
    SymbolServer,
}

/// Writes the profile as JSON.
///
/// The profiler opens it on the [busiest thread](Profile::busiest_thread). Idle threads have a
/// category of their own and use no processor time.
pub fn write(profile: &Profile, names: Names, out: &mut dyn Write) -> io::Result<()> {
    let (output, numbers) = convert(profile, names);
    let mut threads_only = empty(profile);
    let handles = threads(profile, &mut threads_only);
    let order = samples::order(profile, threads_only, &handles);
    let mut serializer = Serializer::with_formatter(out, WithSamples::new(profile, &numbers, order));
    output.serialize(&mut serializer).map_err(io::Error::from)
}

/// A profile of the library without threads.
fn empty(profile: &Profile) -> Output {
    let start = Duration::from_nanos(profile.unix_start().max(0) as u64);
    let interval = SamplingInterval::from_nanos(profile.interval().0.max(1));
    let start = ReferenceTimestamp::from_duration_since_unix_epoch(start);
    Output::new(profile.product(), start, interval)
}

/// Converts everything except the samples. Also returns the numbers of the stacks of each thread.
fn convert(profile: &Profile, names: Names) -> (Output, Vec<StackNumbers>) {
    let mut output = empty(profile);
    output.set_os_name("Windows");
    output.set_symbolicated(names == Names::Profile);
    let categories = Categories::new(&mut output);
    let libraries = Libraries::new(profile, &mut output);
    let kinds =
        profile.marker_kinds().iter().enumerate().map(|(index, kind)| register(&mut output, index, kind));
    let kinds: Vec<(MarkerTypeHandle, StringHandle)> = kinds.collect();
    let threads = threads(profile, &mut output);
    if let Some(busiest) = profile.busiest_thread() {
        output.add_initial_selected_thread(threads[busiest.index()]);
    }
    let mut scheduling = scheduling::Spans::of(profile);
    let schemas = scheduling::Schemas::new(&mut output);
    let mut numbers = Vec::with_capacity(threads.len());
    for (id, _) in profile.thread_ids() {
        let thread = threads[id.index()];
        let mut stacks = Stacks {
            profile,
            libraries: &libraries,
            categories: &categories,
            names,
            thread,
            is_idle: profile.is_idle(id),
            frames: FxHashMap::default(),
            stacks: FxHashMap::default(),
            numbers: FxHashMap::default(),
        };
        for sample in profile.samples_of(id) {
            stacks.handle(&mut output, sample.stack);
        }
        for record in profile.markers_of(id) {
            let (kind, name) = kinds[record.marker.kind.index()];
            let values = profile.values_of(record).map(|value| output.intern_string(value)).collect();
            let marker = Event { kind, name, category: categories.events, values };
            let timing = match record.marker.timing {
                Timing::Instant(time) => MarkerTiming::Instant(timestamp(time)),
                Timing::Interval(start, end) => MarkerTiming::Interval(timestamp(start), timestamp(end)),
            };
            let marker = output.add_marker(thread, timing, marker);
            let stack = record.marker.stack.map(|stack| stacks.handle(&mut output, stack));
            output.set_marker_stack(thread, marker, stack);
        }
        for span in scheduling.take(id) {
            let marker = schemas.marker(profile, &span, &mut output, categories.scheduling);
            let timing = MarkerTiming::Interval(timestamp(span.start), timestamp(span.end));
            let marker = output.add_marker(thread, timing, marker);
            let stack = span.stack.map(|stack| stacks.handle(&mut output, stack));
            output.set_marker_stack(thread, marker, stack);
        }
        numbers.push(stacks.into_numbers());
    }
    (output, numbers)
}

fn timestamp(time: Nanos) -> Timestamp {
    Timestamp::from_nanos_since_reference(time.0)
}

/// Processes and threads. The format requires an id for each. Unknown ones get 0, which the library
/// makes distinct.
fn threads(profile: &Profile, output: &mut Output) -> Vec<ThreadHandle> {
    let processes: Vec<ProcessHandle> = profile
        .processes()
        .iter()
        .map(|process| {
            let start = timestamp(process.start.unwrap_or_default());
            let handle = output.add_process(&process.name, process.pid.unwrap_or(0), start);
            if let Some(end) = process.end {
                output.set_process_end_time(handle, timestamp(end));
            }
            handle
        })
        .collect();
    profile
        .thread_ids()
        .map(|(id, thread)| {
            let start = timestamp(thread.start.unwrap_or_default());
            let process = processes[thread.process.index()];
            let handle = output.add_thread(process, thread.tid.unwrap_or(0), start, false);
            output.set_thread_name(handle, &profile.thread_label(id));
            if let Some(end) = thread.end {
                output.set_thread_end_time(handle, timestamp(end));
            }
            handle
        })
        .collect()
}

/// The colors of frames and markers. The subcategory of a frame is the source of its name.
struct Categories {
    /// By kind and origin, as numbers.
    frames: Vec<Vec<CategoryPairHandle>>,
    idle: CategoryPairHandle,
    events: CategoryHandle,
    scheduling: CategoryHandle,
}

impl Categories {
    fn new(output: &mut Output) -> Categories {
        let frames = CodeKind::ALL.iter().map(|kind| {
            let (name, color) = match kind {
                CodeKind::Kernel => ("Kernel", CategoryColor::Orange),
                CodeKind::User => ("User", CategoryColor::Yellow),
                CodeKind::Jit => ("JIT", CategoryColor::LightBlue),
                CodeKind::Unbacked => ("Unbacked", CategoryColor::Red),
                CodeKind::Unknown => ("Unknown", CategoryColor::Purple),
                CodeKind::Remark => ("Remark", CategoryColor::Gray),
            };
            let category = output.add_category(name, color);
            Origin::ALL.iter().map(|origin| output.add_subcategory(category, origin.name())).collect()
        });
        Categories {
            frames: frames.collect(),
            // The profiler recognizes the name, and leaves out its transparent color in graphs.
            idle: output.add_category("Idle", CategoryColor::Transparent).into(),
            events: output.add_category("Event", CategoryColor::Blue),
            scheduling: output.add_category("Scheduling", CategoryColor::Green),
        }
    }

    fn of(&self, kind: CodeKind, origin: Origin) -> CategoryPairHandle {
        self.frames[kind as usize][origin as usize]
    }
}

/// The stacks of one thread, because the format stores stacks by thread.
struct Stacks<'p> {
    profile: &'p Profile,
    libraries: &'p Libraries,
    categories: &'p Categories,
    names: Names,
    thread: ThreadHandle,
    is_idle: bool,
    frames: FxHashMap<FrameId, FrameHandle>,
    stacks: FxHashMap<StackId, StackHandle>,
    /// The index of each stack in the thread's table, which is the order in which they are added.
    numbers: FxHashMap<StackHandle, u32>,
}

impl Stacks<'_> {
    fn handle(&mut self, output: &mut Output, stack: StackId) -> StackHandle {
        // From the innermost frame outward to a known stack, and back.
        let mut missing = Vec::new();
        let mut at = Some(stack);
        let mut caller = None;
        while let Some(stack) = at {
            if let Some(&known) = self.stacks.get(&stack) {
                caller = Some(known);
                break;
            }
            let node = self.profile.node(stack);
            missing.push((stack, node.frame));
            at = node.caller;
        }
        for (stack, id) in missing.into_iter().rev() {
            let frame = self.frame(output, id);
            let mut handle = self.intern(output, caller, frame);
            if self.names == Names::Profile {
                for &inline in self.profile.frame(id).inlines.iter().rev() {
                    let frame = self.frame(output, inline);
                    handle = self.intern(output, Some(handle), frame);
                }
            }
            self.stacks.insert(stack, handle);
            caller = Some(handle);
        }
        caller.unwrap_or_else(|| unreachable!("a stack has a frame"))
    }

    fn intern(
        &mut self,
        output: &mut Output,
        caller: Option<StackHandle>,
        frame: FrameHandle,
    ) -> StackHandle {
        let handle = output.intern_stack(self.thread, caller, frame);
        let next = self.numbers.len() as u32;
        self.numbers.entry(handle).or_insert(next);
        handle
    }

    fn into_numbers(self) -> StackNumbers {
        self.stacks.iter().map(|(&stack, handle)| (stack, self.numbers[handle])).collect()
    }

    fn frame(&mut self, output: &mut Output, id: FrameId) -> FrameHandle {
        if let Some(&handle) = self.frames.get(&id) {
            return handle;
        }
        let frame = self.profile.frame(id);
        let location = match self.libraries.find(frame) {
            Some((library, address)) => Frame::RelativeAddressFromAdjustedReturnAddress(library, address),
            None => Frame::Label(output.intern_string(&frame.name)),
        };
        let info = FrameInfo {
            frame: location,
            category_pair: if self.is_idle {
                self.categories.idle
            } else {
                self.categories.of(frame.code, frame.origin)
            },
            flags: FrameFlags::empty(),
        };
        let handle = output.intern_frame(self.thread, info);
        self.frames.insert(id, handle);
        handle
    }
}

/// A marker of one of the profile's kinds.
struct Event {
    kind: MarkerTypeHandle,
    name: StringHandle,
    category: CategoryHandle,
    values: Vec<StringHandle>,
}

impl Marker for Event {
    fn marker_type(&self, _: &mut Output) -> MarkerTypeHandle {
        self.kind
    }

    fn name(&self, _: &mut Output) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Output) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field: u32) -> StringHandle {
        self.values[field as usize]
    }

    fn number_field_value(&self, _: u32) -> f64 {
        unreachable!("all fields are text")
    }
}

/// Values can be paths and command lines, so they have the format that can be removed when a
/// profile is uploaded.
fn register(output: &mut Output, index: usize, kind: &MarkerKind) -> (MarkerTypeHandle, StringHandle) {
    let mut keys: Vec<String> = Vec::new();
    for key in &kind.keys {
        let mut key = key.clone();
        // Keys must be unique, and different from the format's own keys.
        while ["type", "cause", ""].contains(&&*key) || keys.contains(&key) {
            key.push('_');
        }
        keys.push(key);
    }
    let fields = keys.into_iter().zip(&kind.keys).map(|(key, label)| RuntimeSchemaMarkerField {
        key,
        label: label.clone(),
        format: MarkerFieldFormat::SanitizedString,
        flags: MarkerFieldFlags::SEARCHABLE,
    });
    let schema = RuntimeSchemaMarkerSchema {
        // Kinds can share a name, because events have versions.
        type_name: format!("{}#{index}", kind.name),
        description: None,
        locations: MarkerLocations::MARKER_CHART | MarkerLocations::MARKER_TABLE,
        chart_label: None,
        tooltip_label: None,
        table_label: None,
        fields: fields.collect(),
        graphs: Vec::new(),
    };
    (output.register_marker_type(schema), output.intern_string(&kind.name))
}
