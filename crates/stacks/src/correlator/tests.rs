//! The rules of attribution, one row per rule.
//!
//! Each case is a small trace in a notation of its own, one record per line:
//!
//! ```text
//! CPU @TIME event HOOK pid=P tid=T           a kernel event with ids in its header
//! CPU @TIME bare HOOK                        a kernel event without ids
//! CPU @TIME sample|nmi tid=T IP              a sample; its thread is in the payload
//! CPU @TIME start pid=P tid=T                the start of a thread
//! CPU @TIME provider pid=P tid=T [match=M] [FRAME…]   a provider's event, with a stack inside
//! CPU @TIME half pid=P tid=T [match=M] FRAME…         the event that carries a user part
//! CPU @TIME stack @EVENT pid=P tid=T FRAME…  a part with its frames
//! CPU @TIME kernel|user @EVENT pid=P tid=T KEY        a part by key
//! CPU @TIME define KEY FRAME…                the frames of a key
//! CPU @TIME flush                            the processor's buffer is written
//! CPU @TIME lose                             the processor's buffer is lost
//! ```
//!
//! Frames are `k1`, `k2`, … in the kernel and `u1`, `u2`, … in user mode, innermost first. `n1`, `n2`, … are in the kernel
//! of a 32-bit system, whose trace has `narrow` as its first line. `x0`, `x1`, … are addresses at which
//! nothing is ever mapped.

use std::io::Cursor;
use std::num::NonZero;

use stackhound_etl::EtlFile;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::stack::{self, KeyDefinition, StackMode, Trigger};
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, Session};
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{Address, FileTime, Guid};

use super::*;

mod cases;
mod live;

const KERNEL: u64 = 0xffff_8000_0000_0000;
const NARROW_KERNEL: u64 = 0x8000_0000;
/// Nothing is mapped below.
const USER: u64 = 0x1_0000;
const START: i64 = 1_000;

fn address(text: &str) -> Address {
    let number: u64 = text[1..].parse().unwrap();
    match &text[..1] {
        "k" => Address(KERNEL + number),
        "u" => Address(USER + number),
        "x" => Address(number),
        "n" => Address(NARROW_KERNEL + number),
        _ => panic!("{text} is not a frame"),
    }
}

fn shown(address: Address) -> String {
    match address.0 {
        KERNEL.. => format!("k{}", address.0 - KERNEL),
        NARROW_KERNEL.. => format!("n{}", address.0 - NARROW_KERNEL),
        USER.. => format!("u{}", address.0 - USER),
        low => format!("x{low}"),
    }
}

/// A line's words after the record's kind.
struct Words<'a>(Vec<&'a str>);

impl Words<'_> {
    fn get(&self, name: &str) -> Option<u32> {
        let value = self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.parse().unwrap())
    }

    fn issuer(&self) -> Issuer {
        Issuer::new(Pid(self.get("pid").unwrap()), Tid(self.get("tid").unwrap()))
    }

    fn trigger(&self) -> Trigger {
        let time: i64 = self.0.iter().find_map(|word| word.strip_prefix('@')).unwrap().parse().unwrap();
        let (pid, tid) = (self.get("pid").unwrap(), self.get("tid").unwrap());
        Trigger { time: RawTime(START + time), pid: Pid(pid), tid: Tid(tid) }
    }

    fn frames(&self) -> Vec<Address> {
        let frame = |word: &&&str| word.starts_with(['k', 'u', 'n', 'x']) && word[1..].parse::<u64>().is_ok();
        self.0.iter().filter(frame).map(|word| address(word)).collect()
    }

    fn key(&self) -> u64 {
        self.0.iter().find_map(|word| word.strip_prefix('#')?.parse().ok()).unwrap()
    }
}

///
/// `append` begins another session in the same file, with the same raw times on another clock.
fn etl_file(lines: &str) -> EtlFile {
    let mut file = Cursor::new(Vec::new());
    for (number, lines) in lines.split("append\n").enumerate() {
        file = write_session(lines, number as u64, file);
    }
    EtlFile::open(file.into_inner().into()).unwrap()
}

fn write_session(lines: &str, number: u64, output: Cursor<Vec<u8>>) -> Cursor<Vec<u8>> {
    // Small buffers, so that a lost one contains few records.
    let narrow = lines.starts_with("narrow\n");
    let pointer_size = if narrow { PointerSize::Four } else { PointerSize::Eight };
    // Each processor has a buffer, so that a missing one is never that of a processor without any.
    let numbers = lines.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u16>().ok());
    let session = Session {
        processors: numbers.max().map_or(1, |last| last + 1),
        start: RawTime(START),
        buffer_size: 1024,
        pointer_size,
        start_time: FileTime(Session::default().start_time.0 + 1_000 * number as i64),
        perf_frequency: Session::default().perf_frequency.saturating_mul(NonZero::new(number + 1).unwrap()),
        ..Session::default()
    };
    let mut writer = EtlWriter::new(session, output).unwrap();
    for line in lines.lines().skip(narrow.into()).map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let processor: u16 = words.next().unwrap().parse().unwrap();
        let time: i64 = words.next().unwrap().strip_prefix('@').unwrap().parse().unwrap();
        let time = RawTime(START + time);
        let kind = words.next().unwrap();
        let words = Words(words.collect());
        let frames = words.frames();
        let mut payload = Vec::new();
        let mut items = Vec::new();
        let hook_id = || u16::from_str_radix(words.0[0], 16).unwrap();
        let perf_info =
            |hook_id| HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index: None, counters: &[] };
        let header = match kind {
            "flush" => {
                writer.flush(processor).unwrap();
                continue;
            }
            "lose" => {
                writer.lose_buffer(processor).unwrap();
                continue;
            }
            "event" => HeaderSpec::System { hook_id: hook_id(), version: 2, issuer: words.issuer() },
            "bare" => perf_info(hook_id()),
            "start" => {
                payload.extend(
                    [words.get("pid").unwrap(), words.get("tid").unwrap()].map(u32::to_le_bytes).concat(),
                );
                payload.extend([0; 80]);
                HeaderSpec::System { hook_id: 0x0501, version: 3, issuer: Issuer::new(Pid(4), Tid(8)) }
            }
            "sample" | "nmi" => {
                payload.extend(&frames[0].0.to_le_bytes()[..pointer_size.bytes()]);
                payload.extend(words.get("tid").unwrap().to_le_bytes());
                payload.extend([0; 4]);
                perf_info(if kind == "nmi" { 0x0f47 } else { 0x0f2e })
            }
            "provider" | "half" => {
                if !frames.is_empty() {
                    let match_id = words.get("match").unwrap_or(0).into();
                    items.push(ItemSpec::StackTrace { pointer_size, match_id, frames: &frames });
                }
                let mode = kind == "half";
                let id = if mode { USER_PART_EVENT } else { 1 };
                let provider = if mode { provider_guid::KERNEL_EVENT_TRACING } else { Guid([7; 16]) };
                HeaderSpec::Event {
                    provider,
                    descriptor: Descriptor {
                        id,
                        version: 0,
                        channel: 0,
                        level: 0,
                        opcode: 0,
                        task: 0,
                        keyword: 0,
                    },
                    property: 0,
                    issuer: words.issuer(),
                    activity: Guid::ZERO,
                    items: &items,
                }
            }
            _ => {
                let record = match kind {
                    "stack" => stack::frames(time, pointer_size, words.trigger(), &frames),
                    "kernel" => {
                        stack::key(time, pointer_size, words.trigger(), StackMode::Kernel, words.key())
                    }
                    "user" => stack::key(time, pointer_size, words.trigger(), StackMode::User, words.key()),
                    "define" => {
                        stack::definition(time, pointer_size, KeyDefinition::Delete, words.key(), &frames)
                    }
                    _ => panic!("{kind} is not a kind of record"),
                };
                writer.write(processor, &record).unwrap();
                continue;
            }
        };
        let record = RecordSpec { time, pointer_size, header, payload: Payload::Bytes(&payload) };
        writer.write(processor, &record).unwrap();
    }
    writer.finish().unwrap().0
}

/// How a trace is read.
#[derive(Clone, Copy, Debug)]
enum Way {
    OnePass,
    TwoPasses,
    /// As a live session, with this number of frames in a generation.
    Live(usize),
}

/// The output: time, state and frames of each event, without the logfile header.
fn correlate(lines: &str, way: Way, window: Window) -> (Vec<String>, StackStats) {
    let source = Source::new("", etl_file(lines));
    let trace = OpenTrace::new(vec![source], 1).unwrap();
    let mut correlator = match way {
        Way::TwoPasses => {
            let (survey, losses) = StackSurvey::of(&trace);
            Correlator::two_pass(window, trace.time_bases(), losses, survey)
        }
        Way::OnePass => Correlator::one_pass(window, trace.time_bases(), LossMap::of(&trace)),
        Way::Live(frames_max) => Correlator::live(window, trace.time_bases(), frames_max),
    };
    let mut out = Vec::new();
    let mut events = trace.ordered();
    loop {
        let more = events.next().map(|event| correlator.push(&event)).is_some();
        if !more {
            correlator.end();
        }
        take_all(&mut correlator, &mut out);
        if !more {
            break;
        }
    }
    (out, correlator.stats().clone())
}

/// Takes the completed events, as lines.
fn take_all(correlator: &mut Correlator, out: &mut Vec<String>) {
    while let Some(delivered) = correlator.pop() {
        if delivered.event.hook_id() == Some(0) {
            continue;
        }
        let time = delivered.event.raw_time().0 - START;
        let tid = delivered.tid().map_or("-".to_owned(), |tid| tid.to_string());
        let mut line = format!("@{time} tid={tid} {}", delivered.state().name());
        for frame in delivered.frames() {
            line += " ";
            line += &shown(frame);
        }
        out.push(line);
    }
}

const WIDE: Window = Window { max_hold: 1_000_000, max_pending: 1 << 17 };

/// Checks that all ways of reading give the same result.
#[track_caller]
fn check(lines: &str, expected: &[&str]) -> StackStats {
    let (two, stats) = correlate(lines, Way::TwoPasses, WIDE);
    assert_eq!(two, expected);
    let (one, one_pass) = correlate(lines, Way::OnePass, WIDE);
    assert_eq!(one, expected, "in one pass");
    for frames_max in [1, 3, usize::MAX] {
        let (live, counted) = correlate(lines, Way::Live(frames_max), WIDE);
        assert_eq!(live, expected, "live, {frames_max} frames");
        assert_eq!(StackStats { generations: 0, ..counted }, one_pass, "live, {frames_max} frames");
    }
    stats
}

#[test]
fn kernel_and_user_part_are_joined() {
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @12 stack @10 pid=5 tid=7 k1 k2
         2 @30 stack @10 pid=5 tid=7 u1 u2",
        &["@10 tid=7 complete k1 k2 u1 u2"],
    );
}

#[test]
fn stacks_stay_within_the_session_of_an_appended_file() {
    // Keys, threads and raw times of the second session are equal to those of the first and mean
    // something else.
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         0 @20 event 010c pid=5 tid=8
         0 @21 kernel @20 pid=5 tid=8 #1
         append
         0 @10 event 010c pid=5 tid=9
         0 @11 stack @10 pid=5 tid=9 k9 u9
         0 @12 stack @10 pid=5 tid=7 u7
         0 @13 define #1 k5",
        &["@10 tid=7 kernel-only k1", "@20 tid=8 unresolved-key", "@10 tid=9 complete k9 u9"],
    );
}

#[test]
fn the_user_part_may_come_first() {
    check(
        "0 @10 event 010c pid=5 tid=7
         1 @12 stack @10 pid=5 tid=7 u1 u2
         0 @30 stack @10 pid=5 tid=7 k1",
        &["@10 tid=7 complete k1 u1 u2"],
    );
}

#[test]
fn a_kernel_part_alone_is_complete_only_for_kernel_threads() {
    let stats = check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 event 010c pid=4 tid=8
         0 @12 stack @10 pid=5 tid=7 k1
         0 @13 stack @11 pid=4 tid=8 k2
         1 @20 sample tid=0 k3
         1 @21 stack @20 pid=0 tid=0 k3 k4",
        &["@10 tid=7 kernel-only k1", "@11 tid=8 complete k2", "@20 tid=0 complete k3 k4"],
    );
    assert_eq!((stats.attributed_parts, stats.orphaned_parts, stats.groups), (3, 0, 3));
}

#[test]
fn a_user_part_alone_is_complete_only_for_user_mode_events() {
    check(
        "0 @10 sample tid=7 u1
         0 @11 stack @10 pid=5 tid=7 u1 u2
         0 @20 event 010c pid=5 tid=7
         0 @21 stack @20 pid=5 tid=7 u3",
        &["@10 tid=7 complete u1 u2", "@20 tid=7 user-only u3"],
    );
}

#[test]
fn one_user_part_completes_all_events_of_a_system_call() {
    let stats = check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         0 @20 event 030a pid=5 tid=7
         0 @21 stack @20 pid=5 tid=7 k2 k3
         1 @22 event 010c pid=5 tid=8
         1 @23 stack @22 pid=5 tid=8 k4
         1 @40 stack @20 pid=5 tid=7 u1",
        &["@10 tid=7 complete k1 u1", "@20 tid=7 complete k2 k3 u1", "@22 tid=8 kernel-only k4"],
    );
    assert_eq!(stats.attributed_parts, 4);
}

#[test]
fn several_kernel_parts_of_one_event_are_joined_in_order() {
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1 k2
         0 @12 stack @10 pid=5 tid=7 k3 k4
         0 @40 stack @10 pid=5 tid=7 u1",
        &["@10 tid=7 complete k1 k2 k3 k4 u1"],
    );
}

#[test]
fn a_part_may_go_from_kernel_to_user_mode_by_itself() {
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1 u1 u2",
        &["@10 tid=7 complete k1 u1 u2"],
    );
}

#[test]
fn events_with_equal_times_are_distinguished_by_thread() {
    check(
        "0 @10 event 010c pid=5 tid=7
         1 @10 event 010c pid=6 tid=9
         1 @11 stack @10 pid=6 tid=9 k9
         0 @12 stack @10 pid=5 tid=7 k7
         0 @13 stack @10 pid=6 tid=9 u9
         1 @14 stack @10 pid=5 tid=7 u7",
        &["@10 tid=7 complete k7 u7", "@10 tid=9 complete k9 u9"],
    );
}

#[test]
fn events_without_a_thread_are_distinguished_by_processor() {
    check(
        "0 @10 bare 0f33
         1 @10 bare 0f33
         1 @11 stack @10 pid=6 tid=9 k9
         0 @12 stack @10 pid=5 tid=7 k7
         0 @13 stack @10 pid=6 tid=9 u9
         1 @14 stack @10 pid=5 tid=7 u7",
        &["@10 tid=7 complete k7 u7", "@10 tid=9 complete k9 u9"],
    );
}

#[test]
fn a_second_kernel_part_goes_to_the_other_event_of_the_same_time_and_thread() {
    let (out, stats) = correlate(
        "0 @10 event 010c pid=5 tid=7
         0 @10 event 030a pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         0 @12 stack @10 pid=5 tid=7 k2
         0 @40 stack @10 pid=5 tid=7 u1",
        Way::TwoPasses,
        WIDE,
    );
    assert_eq!(out, ["@10 tid=7 complete k2 u1", "@10 tid=7 ambiguous k1 u1"]);
    assert_eq!(stats.ambiguous_parts, 1);
}

#[test]
fn a_context_switch_triggers_the_stack_of_its_new_thread() {
    // Without a payload the switch has no thread; the sample's thread is another one.
    check(
        "0 @10 sample tid=3 u1
         0 @10 bare 0524
         0 @11 stack @10 pid=5 tid=7 k1",
        &["@10 tid=3 none", "@10 tid=7 kernel-only k1"],
    );
}

#[test]
fn rundown_completions_and_configuration_never_trigger_a_stack() {
    for hook_id in ["0303", "0504", "1403", "1404", "010a", "010b", "0424", "0b0a", "0005", "0919"] {
        let lines = format!(
            "0 @10 event {hook_id} pid=5 tid=7
             0 @12 stack @10 pid=5 tid=7 k1"
        );
        let (out, stats) = correlate(&lines, Way::TwoPasses, WIDE);
        assert_eq!(out, ["@10 tid=7 none"], "{hook_id}");
        assert_eq!((stats.orphaned_parts, stats.groups), (1, 1));
    }
}

#[test]
fn a_key_resolves_to_the_first_definition_after_its_use() {
    let stats = check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 kernel @10 pid=5 tid=7 #1
         0 @12 user @10 pid=5 tid=7 #1
         0 @20 define #1 k1 k2
         0 @21 define #1 u1
         0 @30 event 010c pid=5 tid=7
         0 @31 kernel @30 pid=5 tid=7 #1
         0 @32 user @30 pid=5 tid=7 #1
         0 @40 define #1 u3
         0 @41 define #1 k3
         0 @50 define #1 k4",
        &["@10 tid=7 complete k1 k2 u1", "@30 tid=7 complete k3 u3"],
    );
    assert_eq!((stats.keyed, stats.definitions, stats.unresolved_keys), (4, 5, 0));
}

#[test]
fn a_definition_at_the_time_of_its_use_counts() {
    check(
        "0 @10 event 010c pid=4 tid=7
         0 @11 define #1 k1
         1 @11 kernel @10 pid=4 tid=7 #1
         0 @50 define #1 k2",
        &["@10 tid=7 complete k1"],
    );
}

#[test]
fn a_key_without_definition_is_unresolved() {
    let stats = check(
        "0 @5 define #1 k9
         0 @10 event 010c pid=5 tid=7
         0 @11 kernel @10 pid=5 tid=7 #1
         0 @12 stack @10 pid=5 tid=7 u1",
        &["@10 tid=7 unresolved-key u1"],
    );
    assert_eq!(stats.unresolved_keys, 1);
}

#[test]
fn keys_of_parts_without_an_event_count_alike_in_one_pass() {
    for (definition, unresolved) in [("0 @20 define #1 k1", 0), ("0 @20 define #2 k1", 2), ("", 2)] {
        let lines = format!(
            "0 @11 kernel @10 pid=5 tid=7 #1
             0 @12 kernel @10 pid=5 tid=8 #1
             {definition}"
        );
        for way in [Way::OnePass, Way::TwoPasses, Way::Live(1)] {
            let (_, stats) = correlate(&lines, way, WIDE);
            assert_eq!((stats.orphaned_parts, stats.unresolved_keys), (2, unresolved), "{way:?}");
        }
    }
}

#[test]
fn stacks_inside_events_need_no_search() {
    let stats = check(
        "0 @10 provider pid=5 tid=7 u1 u2
         0 @11 provider pid=5 tid=7
         0 @12 provider pid=4 tid=9 k1
         0 @13 provider pid=5 tid=8 k1 u3",
        &["@10 tid=7 complete u1 u2", "@11 tid=7 none", "@12 tid=9 complete k1", "@13 tid=8 complete k1 u3"],
    );
    assert_eq!((stats.extended, stats.full), (3, 0));
}

#[test]
fn a_user_part_completes_the_events_of_its_thread_or_match_id() {
    let stats = check(
        "0 @10 provider pid=5 tid=7 match=3 k1
         0 @11 provider pid=5 tid=8 k2
         0 @12 provider pid=5 tid=9 match=4 k3
         1 @20 half pid=5 tid=7 match=3 u1
         1 @21 half pid=5 tid=8 u2",
        &["@10 tid=7 complete k1 u1", "@11 tid=8 complete k2 u2", "@12 tid=9 kernel-only k3"],
    );
    assert_eq!((stats.extended_parts, stats.extended), (2, 5));
}

#[test]
fn a_user_part_does_not_complete_events_of_an_earlier_thread_with_the_same_id() {
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         0 @15 start pid=5 tid=7
         0 @20 event 010c pid=5 tid=7
         0 @21 stack @20 pid=5 tid=7 k2
         0 @30 stack @20 pid=5 tid=7 u1",
        &["@10 tid=7 kernel-only k1", "@15 tid=8 none", "@20 tid=7 complete k2 u1"],
    );
}

#[test]
fn samples_of_non_maskable_interrupts_have_a_thread() {
    check(
        "0 @10 nmi tid=7 u9
         0 @11 stack @10 pid=5 tid=7 u9 u1",
        &["@10 tid=7 complete u9 u1"],
    );
}

#[test]
fn parts_find_their_event_over_any_distance_inside_the_window() {
    let mut lines = String::from("0 @10 event 010c pid=5 tid=7\n0 @11 stack @10 pid=5 tid=7 k1\n");
    for time in 12..6_012 {
        lines += &format!("{} @{time} sample tid=3 u9\n", time % 3);
    }
    lines += "1 @6100 stack @10 pid=5 tid=7 u1";
    let (out, _) = correlate(&lines, Way::TwoPasses, WIDE);
    assert_eq!(out[0], "@10 tid=7 complete k1 u1");
    assert_eq!(out.len(), 6_001);
}

#[test]
fn events_that_leave_the_window_are_delivered_incomplete() {
    let lines = "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         0 @500 event 010c pid=5 tid=8
         0 @600 stack @10 pid=5 tid=7 u1";
    let expected = ["@10 tid=7 kernel-only k1", "@500 tid=8 none"];
    for window in [Window { max_hold: 400, ..WIDE }, Window { max_pending: 1, ..WIDE }] {
        let (out, stats) = correlate(lines, Way::TwoPasses, window);
        assert_eq!(out, expected, "{window:?}");
        assert_eq!((stats.left_incomplete, stats.orphaned_parts), (1, 1));
    }
}

#[test]
fn nothing_is_claimed_where_buffers_were_lost() {
    let lines = "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1 u1
         1 @19 flush
         1 @20 event 010c pid=5 tid=7
         0 @21 event 010c pid=5 tid=8
         1 @22 flush
         1 @25 stack @20 pid=5 tid=7 k2 u2
         1 @26 lose
         1 @40 sample tid=3 u9
         0 @41 event 0301 pid=5 tid=7";
    for way in [Way::OnePass, Way::TwoPasses, Way::Live(1)] {
        // Kernel parts are logged on the processor of their event, so the second thread's part
        // cannot be lost.
        let expected = [
            "@10 tid=7 complete k1 u1",
            "@20 tid=7 lost",
            "@21 tid=8 none",
            "@40 tid=3 none",
            "@41 tid=7 none",
        ];
        assert_eq!(correlate(lines, way, WIDE).0, expected, "{way:?}");
    }
}

#[test]
fn a_later_user_part_is_doubtful_where_a_buffer_was_lost_in_between() {
    // The thread leaves the kernel, and its user part is lost; the one that comes is that of the
    // next system call.
    let lines = "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         1 @20 sample tid=3 u9
         1 @21 flush
         1 @30 stack @10 pid=5 tid=7 u1
         1 @31 lose
         1 @40 sample tid=3 u9
         0 @50 event 010c pid=5 tid=7
         0 @51 stack @50 pid=5 tid=7 k2
         0 @60 stack @50 pid=5 tid=7 u2";
    let expected =
        ["@10 tid=7 ambiguous k1 u2", "@20 tid=3 lost", "@40 tid=3 none", "@50 tid=7 complete k2 u2"];
    for way in [Way::OnePass, Way::TwoPasses, Way::Live(1)] {
        assert_eq!(correlate(lines, way, WIDE).0, expected);
    }
    // The part names the event before the loss, so the thread did not leave the kernel in between.
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         1 @20 sample tid=3 u9
         1 @21 flush
         1 @30 lose
         1 @40 sample tid=3 u9
         0 @50 event 010c pid=5 tid=7
         0 @51 stack @50 pid=5 tid=7 k2
         0 @60 stack @10 pid=5 tid=7 u1",
        &["@10 tid=7 complete k1 u1", "@20 tid=3 lost", "@40 tid=3 none", "@50 tid=7 complete k2 u1"],
    );
}

#[test]
fn keys_are_not_confirmed_across_a_lost_buffer() {
    // The key is defined for other frames, and that definition is lost.
    let lost = "0 @10 event 010c pid=5 tid=7
         0 @11 kernel @10 pid=5 tid=7 #1
         0 @12 stack @10 pid=5 tid=7 u1
         1 @20 bare 0f43
         1 @21 flush
         1 @30 define #1 k1
         1 @31 lose
         1 @40 bare 0f43
         0 @50 event 010c pid=5 tid=8
         0 @51 kernel @50 pid=5 tid=8 #1
         0 @52 stack @50 pid=5 tid=8 u2
         0 @60 define #1 k2";
    let expected =
        ["@10 tid=7 unconfirmed k2 u1", "@20 tid=- lost", "@40 tid=- none", "@50 tid=8 complete k2 u2"];
    for way in [Way::OnePass, Way::TwoPasses, Way::Live(1)] {
        assert_eq!(correlate(lost, way, WIDE).0, expected, "{way:?}");
    }
    // A definition before the loss is the first one that is not earlier.
    let defined = lost.replace("0 @12 stack", "0 @12 define #1 k3\n         0 @13 stack");
    for way in [Way::OnePass, Way::TwoPasses, Way::Live(1)] {
        let (out, _) = correlate(&defined, way, WIDE);
        assert_eq!(out[0], "@10 tid=7 complete k3 u1", "{way:?}");
    }
}

#[test]
fn a_lost_user_part_is_not_a_stack_without_one() {
    let lines = "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1
         0 @12 event 010c pid=4 tid=8
         0 @13 stack @12 pid=4 tid=8 k2
         1 @20 bare 0f43
         1 @21 flush
         1 @30 stack @10 pid=5 tid=7 u1
         1 @31 lose
         1 @40 bare 0f43
         0 @50 event 010c pid=5 tid=7
         0 @51 stack @50 pid=5 tid=7 k3";
    let expected = [
        "@10 tid=7 lost k1",
        "@12 tid=8 complete k2",
        "@20 tid=- lost",
        "@40 tid=- none",
        "@50 tid=7 kernel-only k3",
    ];
    for way in [Way::OnePass, Way::TwoPasses, Way::Live(1)] {
        assert_eq!(correlate(lines, way, WIDE).0, expected, "{way:?}");
    }
}

#[test]
fn values_that_no_frame_can_have_damage_a_stack() {
    check(
        "0 @10 event 010c pid=5 tid=7
         0 @11 stack @10 pid=5 tid=7 k1 k2
         0 @12 stack @10 pid=5 tid=7 u1 x0
         0 @20 event 010c pid=5 tid=8
         0 @21 stack @20 pid=5 tid=8 k1 u1 k2
         0 @22 stack @20 pid=5 tid=8 u1
         0 @30 event 010c pid=5 tid=9
         0 @31 stack @30 pid=5 tid=9 k1 x65535 k2
         0 @35 event 010c pid=5 tid=6
         0 @36 stack @35 pid=5 tid=6 k1 u1 u2 k2 u3
         0 @40 event 010c pid=5 tid=7
         0 @41 stack @40 pid=5 tid=7 k1 k2
         0 @42 stack @40 pid=5 tid=7 u1",
        &[
            "@10 tid=7 damaged k1 k2 u1 x0",
            "@20 tid=8 damaged k1 u1 k2 u1",
            "@30 tid=9 damaged k1 x65535 k2",
            // The kernel called user mode back.
            "@35 tid=6 complete k1 u1 u2 k2 u3",
            "@40 tid=7 complete k1 k2 u1",
        ],
    );
}
