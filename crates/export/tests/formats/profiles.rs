//! Generated profiles.

use proptest::prelude::*;
use stackhound_profile::{
    CodeKind, Frame, Marker, MarkerKind, Module, ModuleOffset, Nanos, Origin, Process, Profile,
    ProfileBuilder, Sample, StackId, Switch, SwitchReason, Thread, Timing,
};
use stackhound_types::{AddressKind, Guid, ImageIdentity, Mode, PdbIdentity};

/// Module, offset in the module, and offset in the function.
pub type InModule = (usize, u32, Option<u32>);

/// The contents of a profile, so that tests can compute the expected output.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether a timer took the samples.
    pub is_timed: bool,
    /// Names and ids.
    pub processes: Vec<(String, Option<u32>)>,
    /// Process and id.
    pub threads: Vec<(usize, Option<u32>)>,
    /// Names, modes, and locations of some frames.
    pub frames: Vec<(String, Option<Mode>, Option<InModule>)>,
    /// Frames, outermost first. Stacks are never empty.
    pub stacks: Vec<Vec<usize>>,
    /// Thread, time, stack, weight.
    pub samples: Vec<(usize, u64, usize, u32)>,
    /// Processor, time, old and new thread.
    pub switches: Vec<(u16, u64, usize, usize)>,
    /// Thread, time, length, whether the marker has stack 0, and kind.
    pub markers: Vec<(usize, u64, Option<u64>, bool, usize)>,
}

/// The kinds of markers. One has duplicate keys and keys that formats use themselves.
pub const KINDS: [(&str, &[&str]); 2] =
    [("FileIo/Create", &["OpenPath", "type", "type"]), ("Image/Load", &[])];

pub const MODULES: [&str; 3] = ["ntoskrnl.exe", "ntdll.dll", "odd;name 7.dll"];

impl Facts {
    pub fn weight(&self) -> u64 {
        self.samples.iter().map(|sample| u64::from(sample.3)).sum()
    }

    pub fn build(&self) -> Profile {
        let mut builder = ProfileBuilder::new("a trace.etl", 1_700_000_000_000_000_000);
        builder.set_interval(Nanos(1_000_000));
        builder.set_timed(self.is_timed);
        let processes = self.processes.iter().map(|(name, pid)| {
            builder.process(Process { pid: *pid, name: name.clone(), ..Process::default() }).unwrap()
        });
        let processes: Vec<_> = processes.collect();
        let threads = self.threads.iter().map(|&(process, tid)| {
            let thread = Thread {
                process: processes[process],
                tid,
                name: String::new(),
                start: None,
                end: Some(Nanos(7)),
            };
            builder.thread(thread).unwrap()
        });
        let threads: Vec<_> = threads.collect();
        let modules = MODULES.map(|name| {
            let module = Module {
                name: name.to_owned(),
                path: format!(r"C:\Windows\System32\{name}"),
                pdb: (name != "ntdll.dll").then(|| PdbIdentity {
                    guid: Guid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
                    age: 2,
                    name: r"c:\build\it.pdb".to_owned(),
                }),
                image: (name == "ntdll.dll")
                    .then_some(ImageIdentity { time_date_stamp: 0x1234_abcd, size: 0x20_0000 }),
            };
            builder.module(module).unwrap()
        });
        let frames = self.frames.iter().map(|facts| {
            let (name, mode, location) = facts;
            let location = location.map(|(module, rva, offset)| ModuleOffset {
                module: modules[module],
                rva,
                kind: if rva % 2 == 0 { AddressKind::Return } else { AddressKind::Instruction },
                offset,
            });
            let code = code_kind(facts);
            let origin = match (location.is_some(), code) {
                (true, _) => Origin::Pdb,
                (false, CodeKind::Jit) => Origin::Method,
                (false, CodeKind::Remark) => Origin::Remark,
                (false, _) => Origin::Address,
            };
            let (name, mode, inlines) = (name.clone(), *mode, Box::default());
            builder.frame(Frame { name, origin, mode, code, location, source: None, inlines }).unwrap()
        });
        let frames: Vec<_> = frames.collect();
        let mut stacks: Vec<StackId> = Vec::new();
        for stack in &self.stacks {
            let mut whole = None;
            for &frame in stack {
                whole = Some(builder.stack(whole, frames[frame]).unwrap());
            }
            stacks.push(whole.unwrap());
        }
        for &(thread, time, stack, weight) in &self.samples {
            let (time, thread, stack) = (Nanos(time), threads[thread], stacks[stack]);
            builder.sample(Sample { time, thread, stack, weight, cpu: Some(1) });
        }
        for &(cpu, time, from, to) in &self.switches {
            builder.switch(Switch {
                time: Nanos(time),
                cpu,
                from: threads[from],
                to: threads[to],
                reason: SwitchReason::Waits,
                why: None,
                stack: stacks.first().copied(),
            });
        }
        let kinds = KINDS.map(|(name, keys)| {
            let keys = keys.iter().map(|&key| key.to_owned()).collect();
            builder.marker_kind(MarkerKind { name: name.to_owned(), keys }).unwrap()
        });
        for &(thread, time, length, with_stack, kind) in &self.markers {
            let timing = match length {
                Some(length) => Timing::Interval(Nanos(time), Nanos(time + length)),
                None => Timing::Instant(Nanos(time)),
            };
            let stack = if with_stack { stacks.first().copied() } else { None };
            let marker = Marker { timing, thread: threads[thread], kind: kinds[kind], stack };
            builder.marker(marker, [r"C:\x", "1", "two"]);
        }
        builder.finish()
    }
}

/// The kind of the code of a frame.
pub fn code_kind((name, mode, location): &(String, Option<Mode>, Option<InModule>)) -> CodeKind {
    match (mode, location.is_some()) {
        (None, _) => CodeKind::Remark,
        (Some(Mode::Kernel), true) => CodeKind::Kernel,
        (Some(Mode::User), true) => CodeKind::User,
        (Some(Mode::User), false) if name.starts_with(|c: char| c < 'm') => CodeKind::Jit,
        (Some(Mode::User), false) => CodeKind::Unbacked,
        (Some(Mode::Kernel), false) => CodeKind::Unknown,
    }
}

/// A name as formats show it: control characters are replaced.
pub fn shown(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() || "\u{202e}\u{fffe}".contains(c) { '\u{fffd}' } else { c })
        .collect()
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z_:!+.]{1,12}",
        // Characters that file names and symbols can contain.
        r"[ #;<>&'0-9\[\]\n\t\u{e9}\u{202e}\u{fffe}]{0,6}[a-z]?[ 0-9.]{0,3}",
        Just("ntdll.dll+0x1234".to_owned()),
    ]
}

/// Any profile.
pub fn facts() -> impl Strategy<Value = Facts> {
    let mode = prop_oneof![Just(Some(Mode::Kernel)), Just(Some(Mode::User)), Just(None)];
    let location = prop::option::of((0..MODULES.len(), 1u32..40, prop::option::of(0u32..12)));
    let processes = prop::collection::vec((name(), prop::option::of(0u32..9)), 1..4);
    let frames = prop::collection::vec((name(), mode, location), 1..8);
    (processes, frames).prop_flat_map(|(processes, frames)| {
        let threads = prop::collection::vec((0..processes.len(), prop::option::of(0u32..9)), 1..5);
        let stacks = prop::collection::vec(prop::collection::vec(0..frames.len(), 1..6), 1..8);
        (Just(processes), Just(frames), threads, stacks).prop_flat_map(
            |(processes, frames, threads, stacks)| {
                let (t, s) = (threads.len(), stacks.len());
                let samples = prop::collection::vec((0..t, 0u64..1 << 40, 0..s, 1u32..5), 1..30);
                let switches = prop::collection::vec((0u16..3, 0u64..1 << 40, 0..t, 0..t), 0..12);
                let marker =
                    (0..t, 0u64..1 << 40, prop::option::of(0u64..1 << 30), any::<bool>(), 0..KINDS.len());
                let markers = prop::collection::vec(marker, 0..8);
                (any::<bool>(), samples, switches, markers).prop_map(
                    move |(is_timed, samples, switches, markers)| Facts {
                        is_timed,
                        processes: processes.clone(),
                        threads: threads.clone(),
                        frames: frames.clone(),
                        stacks: stacks.clone(),
                        samples,
                        switches,
                        markers,
                    },
                )
            },
        )
    })
}
