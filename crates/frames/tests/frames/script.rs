//! Builds small traces from scripts with one record per line, and replays their stacks and creates.
//!
//! ```text
//! @TIME process start|end|dcstart pid=P parent=P by=P/T NAME
//! @TIME thread start|end pid=P tid=T by=P/T
//! @TIME image load|unload|dcstart|dcend pid=P by=P/T BASE+SIZE PATH
//! @TIME memory alloc|free pid=P by=P/T BASE+SIZE reserve,commit
//! @TIME view map|unmap pid=P by=P/T BASE+SIZE protection=N
//! @TIME method load|unload pid=P BASE+SIZE TYPE.NAME
//! @TIME create by=P/T irp=N disposition=N PATH
//! @TIME end irp=N status=N info=N
//! @TIME read by=P/T irp=N
//! @TIME event HOOK_ID by=P/T
//! @TIME sample IP
//! @TIME switch old=T new=T                    the processor switches to another thread
//! @TIME enter routine=N
//! @TIME exit status=N
//! @TIME audit ID by=P/T FRAME…
//! @TIME stack @EVENT by=P/T FRAME…            a part of the stack of the event at that time
//! @TIME flush | lose                          the processor's buffer is written, or lost
//! ```
//!
//! `cpu=N` sets the processor of a record, `short` truncates its payload. Numbers are decimal, or
//! hexadecimal with `0x`.

use std::io::Cursor;

use stackhound_etl::EtlFile;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::stack::{self, Trigger};
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, Session};
use stackhound_frames::{
    CreateEnd, CreateJoin, CreateOutcome, CreateStats, Frame, FrameResolver, Modules, Summary,
};
use stackhound_schema::provider_guid::DOT_NET_RUNTIME;
use stackhound_stacks::{StackStats, Window};
use stackhound_system::System;
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{Address, Guid, Mode, Pid, PointerSize, RawTime, Tid};

use crate::read::{ReadStep, read};

pub const START: i64 = 1_000;
const AUDIT: &str = "e02a841c-75a3-4fa7-afc8-ae09cf9b7f23";

/// The correlator's window for scripts.
pub const WINDOW: Window = Window { max_hold: 1_000, max_pending: 1 << 17 };

struct Line<'a>(Vec<&'a str>);

pub fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(&hex.replace('_', ""), 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{text} is not a number"))
}

impl<'a> Line<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn get(&self, name: &str) -> u64 {
        self.value(name).map_or(0, number)
    }

    fn pid(&self) -> u32 {
        self.get("pid") as u32
    }

    fn by(&self) -> (Pid, Tid) {
        let (pid, tid) = self.value("by").unwrap_or("4294967295/4294967295").split_once('/').unwrap();
        (Pid(number(pid) as u32), Tid(number(tid) as u32))
    }

    fn issuer(&self) -> Issuer {
        let (pid, tid) = self.by();
        Issuer::new(pid, tid)
    }

    /// `BASE+SIZE`.
    fn extent(&self) -> (u64, u64) {
        let word = self.0.iter().find(|word| word.starts_with("0x") && word.contains('+'));
        let (base, size) = word.expect("an extent").split_once('+').unwrap();
        (number(base), number(size))
    }

    fn frames(&self) -> Vec<Address> {
        let frames = self.0.iter().filter(|word| word.starts_with("0x") && !word.contains('+'));
        frames.map(|word| Address(number(word))).collect()
    }

    fn name(&self) -> &'a str {
        self.0.last().filter(|word| !word.contains('=')).unwrap_or(&"")
    }
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

fn pointers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Hook id, version and payload of a kernel event.
fn kernel_event(line: &Line<'_>) -> (u16, u8, Vec<u8>) {
    let pid = line.pid();
    let (first, second) = (line.0[0], line.0.get(1).copied().unwrap_or_default());
    let tid = line.by().1.0;
    match (first, second) {
        ("process", phase) => {
            let hook_id = match phase {
                "start" => 0x0301,
                "end" => 0x0302,
                _ => 0x0303,
            };
            let head = [pointers(&[0x9000 + u64::from(pid)]), words(&[pid, line.get("parent") as u32, 1, 0])];
            let tail = [pointers(&[1]), words(&[0, 0]), line.name().as_bytes().to_vec(), vec![0; 7]];
            (hook_id, 4, [head.concat(), tail.concat()].concat())
        }
        ("thread", phase) => {
            let hook_id = if phase == "end" { 0x0502 } else { 0x0501 };
            (hook_id, 3, [words(&[pid, line.get("tid") as u32]), vec![0; 64]].concat())
        }
        ("switch", _) => {
            let threads = words(&[line.get("new") as u32, line.get("old") as u32]);
            (0x0524, 4, [threads, vec![0; 16]].concat())
        }
        ("enter", _) => (0x0f33, 2, pointers(&[line.get("routine")])),
        ("exit", _) => (0x0f34, 2, words(&[line.get("status") as u32])),
        ("image", phase) => {
            let hook_id = match phase {
                "load" => 0x030a,
                "unload" => 0x1402,
                "dcstart" => 0x1403,
                _ => 0x1404,
            };
            let (base, size) = line.extent();
            let fixed = [pointers(&[base, size]), words(&[pid, 0, 0, 0]), pointers(&[base]), vec![0; 16]];
            (hook_id, 2, [fixed.concat(), utf16(line.name())].concat())
        }
        ("memory", phase) => {
            let (base, size) = line.extent();
            let flags = [("commit", 0x1000), ("reserve", 0x2000), ("release", 0x8000)];
            let has = |name: &str| line.name().split(',').any(|word| word == name);
            let flags = flags.iter().filter(|(name, _)| has(name)).map(|(_, flag)| flag).sum();
            let hook_id = if phase == "alloc" { 0x0262 } else { 0x0263 };
            (hook_id, 2, [pointers(&[base, size]), words(&[pid, flags])].concat())
        }
        ("view", phase) => {
            let (base, size) = line.extent();
            let hook_id = if phase == "map" { 0x0425 } else { 0x0426 };
            let fixed = pointers(&[base, 0x55, line.get("protection") << 48, size]);
            (hook_id, 2, [fixed, words(&[pid])].concat())
        }
        ("create", _) => {
            let options = (line.get("disposition") as u32) << 24;
            let fixed = [pointers(&[line.get("irp"), 0x66]), words(&[tid, options, 0, 0])];
            (0x0440, 3, [fixed.concat(), utf16(line.name())].concat())
        }
        ("end", _) => {
            let fixed = pointers(&[line.get("irp"), line.get("info")]);
            (0x044c, 2, [fixed, words(&[line.get("status") as u32])].concat())
        }
        ("read", _) => {
            (0x0443, 3, [pointers(&[0, line.get("irp"), 0x66, 0x55]), words(&[tid, 0, 0])].concat())
        }
        ("event", hook_id) => (number(&format!("0x{hook_id}")) as u16, 2, vec![0; 16]),
        _ => panic!("unknown record `{first}`"),
    }
}

/// Builds the trace of a script.
pub fn trace(script: &str) -> OpenTrace {
    let session = Session { processors: 4, start: RawTime(START), buffer_size: 1024, ..Session::default() };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for text in script.lines().map(str::trim).filter(|text| !text.is_empty()) {
        let (time, rest) = text.strip_prefix('@').expect("a time").split_once(' ').unwrap();
        let time = RawTime(START + number(time) as i64);
        let line = Line(rest.split_whitespace().collect());
        let processor = line.get("cpu") as u16;
        let (pointer_size, frames) = (PointerSize::Eight, line.frames());
        let mut items = Vec::new();
        let mut manifest_event = |provider: Guid, id: u16, by: Issuer, frames: &'static [Address]| {
            if !frames.is_empty() {
                items.push(ItemSpec::StackTrace { pointer_size, match_id: 0, frames });
            }
            let descriptor =
                Descriptor { id, version: 1, channel: 0, level: 0, opcode: 0, task: 0, keyword: 0 };
            (provider, descriptor, by)
        };
        let (header, mut payload) = match line.0[0] {
            "flush" => {
                writer.flush(processor).unwrap();
                continue;
            }
            "lose" => {
                writer.lose_buffer(processor).unwrap();
                continue;
            }
            "stack" => {
                let of = line.0[1].strip_prefix('@').map(number).expect("the time of an event");
                let (pid, tid) = line.by();
                let trigger = Trigger { time: RawTime(START + of as i64), pid, tid };
                let record = stack::frames(time, pointer_size, trigger, &frames);
                writer.write(processor, &record).unwrap();
                continue;
            }
            "sample" => {
                let header =
                    HeaderSpec::PerfInfo { hook_id: 0x0f2e, version: 2, pebs_index: None, counters: &[] };
                let tid = line.by().1.0;
                (Ok(header), [pointers(&[frames[0].0]), words(&[tid, 1])].concat())
            }
            "audit" => {
                let id = number(line.0[1]) as u16;
                let of = manifest_event(AUDIT.parse().unwrap(), id, line.issuer(), Vec::leak(frames));
                (Err(of), words(&[9, 0x1fffff, 0]))
            }
            "method" => {
                let (start, size) = line.extent();
                let (namespace, name) = line.name().rsplit_once('.').unwrap_or(("", line.name()));
                let id = if line.0[1] == "load" { 143 } else { 144 };
                let by = Issuer::new(Pid(line.pid()), Tid(1));
                let fixed = [pointers(&[1, 2, start]), words(&[size as u32, 0, 0])].concat();
                let texts = [utf16(namespace), utf16(name), utf16("")].concat();
                (Err(manifest_event(DOT_NET_RUNTIME, id, by, &[])), [fixed, texts].concat())
            }
            "switch" | "enter" | "exit" => {
                let (hook_id, version, payload) = kernel_event(&line);
                (Ok(HeaderSpec::PerfInfo { hook_id, version, pebs_index: None, counters: &[] }), payload)
            }
            _ => {
                let (hook_id, version, payload) = kernel_event(&line);
                (Ok(HeaderSpec::System { hook_id, version, issuer: line.issuer() }), payload)
            }
        };
        if line.0.contains(&"short") {
            payload.truncate(if payload.len() > 6 { 6 } else { 0 });
        }
        let header = header.unwrap_or_else(|(provider, descriptor, issuer)| HeaderSpec::Event {
            provider,
            descriptor,
            property: 0,
            issuer,
            activity: Guid::ZERO,
            items: &items,
        });
        let record = RecordSpec { time, pointer_size, header, payload: Payload::Bytes(&payload) };
        writer.write(processor, &record).unwrap();
    }
    let (file, _) = writer.finish().unwrap();
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap()
}

/// `ntdll.dll+0x10`, `A.B.Main`, or the kind of memory, with `!` if it is unbacked and `?` if that
/// is not known.
pub fn shown(system: &System, frame: &Frame) -> String {
    use stackhound_frames::Backing::{Backed, Unbacked, Unknown};
    let mark = match frame.backing() {
        Backed => "",
        Unbacked => "!",
        Unknown => "?",
    };
    let location = match (frame.in_loaded(), frame.method) {
        (Some((module, rva)), _) => format!("{}+{rva:#x}", system.module(module).file_name()),
        (None, Some(method)) => system.method(method).to_string(),
        _ => frame.region.kind.name().to_owned(),
    };
    let mode = if frame.mode == Mode::Kernel { "k:" } else { "" };
    format!("{mode}{location}{mark}")
}

fn shown_outcome(outcome: CreateOutcome) -> String {
    let end = match outcome.end {
        CreateEnd::Completed { status, result, .. } => format!("{} {status:#x}", result.name()),
        CreateEnd::Late => "late".into(),
        CreateEnd::Displaced => "displaced".into(),
        CreateEnd::Unfinished => "unfinished".into(),
        CreateEnd::Unnamed => "unnamed".into(),
    };
    let kind = if outcome.is_open() { "open" } else { "creation" };
    format!("{kind}: {} -> {end}", outcome.requested.name())
}

/// The results of a script.
#[derive(PartialEq, Debug, Default)]
pub struct Replay {
    /// For each event with a stack: time, process of the stack, frames.
    pub stacks: Vec<String>,
    /// For each event with a stack: `user / kernel / contains unbacked / final user / final
    /// kernel`.
    pub summaries: Vec<String>,
    /// For each create: time, request and result.
    pub creates: Vec<String>,
    /// Number of delivered events, without the header of the trace.
    pub events: usize,
    pub create_stats: CreateStats,
    pub stack_stats: StackStats,
}

fn shown_summary(modules: &Modules, summary: &Summary) -> String {
    let user = summary.final_user_module(modules).unwrap_or("none");
    let kernel = summary.final_kernel_module().map_or("none", |module| modules.get(module).name());
    let (users, kernels) = (summary.user(), summary.kernel());
    format!("{users} / {kernels} / {} / {user} / {kernel}", summary.contains_unbacked().name())
}

/// Reads the trace of a script in one or two passes.
pub fn replay_trace(trace: &OpenTrace, passes: u32, window: Window) -> Replay {
    let (mut replay, mut summary) = (Replay::default(), Summary::default());
    let (mut resolver, mut cached) = (FrameResolver::default(), FrameResolver::default());
    cached.keep_frames(true);
    let mut join = CreateJoin::new(window);
    let mut handle = |step: ReadStep<'_, '_>| match step {
        ReadStep::Pushed(event, _) => join.push(event),
        ReadStep::Ended => join.end(),
        ReadStep::Popped(delivered, system) => {
            if delivered.event.hook_id() == Some(0) {
                return;
            }
            replay.events += 1;
            let at = delivered.event.raw_time().0 - START;
            if let Some(outcome) = join.outcome(&delivered.event) {
                replay.creates.push(format!("@{at} {}", shown_outcome(outcome)));
            }
            if delivered.stack.is_none() {
                return;
            }
            let mut frames = resolver.of(system, delivered);
            let all = frames.all(delivered);
            assert_eq!(all, cached.of(system, delivered).all(delivered));
            let process = frames.owner().process.map(|process| system.process(process));
            let owner = match process {
                Some(process) if !process.image_name().is_empty() => process.image_name().to_owned(),
                _ => frames.owner().pid.map_or("-".into(), |pid| pid.to_string()),
            };
            let list: Vec<String> = all.iter().map(|frame| shown(system, frame)).collect();
            replay.stacks.push(format!("@{at} {owner}: {}", list.join(" ")));
            summary.of(resolver.modules(), delivered.states, &all);
            replay.summaries.push(shown_summary(resolver.modules(), &summary));
        }
    };
    replay.stack_stats = read(trace, passes, window, &mut handle).1;
    replay.create_stats = join.stats();
    replay
}

/// Reads a script in one pass and in two passes, which must have the same results.
#[track_caller]
pub fn run_script(script: &str) -> Replay {
    let trace = trace(script);
    let (one, two) = (replay_trace(&trace, 1, WINDOW), replay_trace(&trace, 2, WINDOW));
    assert_eq!(one, two, "{script}");
    two
}

/// Checks the frames of all events with stacks.
#[track_caller]
pub fn check_stacks(script: &str, expected: &[&str]) {
    assert_eq!(run_script(script).stacks, expected, "{script}");
}
