//! Fourteen cases that other stack readers handle specially or wrongly. Each is read as a file in
//! every way, and as a live session, with the processors' buffers in any order.

use std::time::Duration;

use proptest::prelude::*;
use stackhound_etl::{BufferFlags, BufferRef, MissingBuffers};
use stackhound_live::{LiveMerger, Overflow, Queue, Step, channel};

use super::*;

/// A case: its name, the trace, and the expected output.
struct Case {
    name: &'static str,
    lines: String,
    expected: Vec<&'static str>,
}

fn case(name: &'static str, lines: &str, expected: &[&'static str]) -> Case {
    Case { name, lines: lines.to_owned(), expected: expected.to_vec() }
}

fn cases() -> Vec<Case> {
    let mut far = String::from("0 @10 event 010c pid=5 tid=7\n0 @11 stack @10 pid=5 tid=7 k1\n");
    for time in 12..3_000 {
        far += &format!("{} @{time} bare 0f43\n", time % 3);
    }
    far += "1 @3000 stack @10 pid=5 tid=7 u1";
    let mut far_expected = vec!["@10 tid=7 complete k1 u1"];
    far_expected.resize(2_989, "");
    vec![
        case(
            "equal timestamps on two threads",
            "0 @10 event 010c pid=5 tid=7
             1 @10 event 010c pid=5 tid=9
             1 @11 stack @10 pid=5 tid=9 k9 u9
             0 @12 stack @10 pid=5 tid=7 k7 u7",
            &["@10 tid=7 complete k7 u7", "@10 tid=9 complete k9 u9"],
        ),
        case(
            "equal timestamps on one thread and two processors",
            "0 @10 event 010c pid=5 tid=7
             1 @10 event 030a pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 k1
             1 @12 stack @10 pid=5 tid=7 k2
             1 @13 stack @10 pid=5 tid=7 u1",
            &["@10 tid=7 complete k1 u1", "@10 tid=7 complete k2 u1"],
        ),
        case(
            "events without a thread",
            "0 @10 bare 0f33
             1 @10 bare 0f33
             1 @11 stack @10 pid=6 tid=9 k9 u9
             0 @12 stack @10 pid=5 tid=7 k7 u7",
            &["@10 tid=7 complete k7 u7", "@10 tid=9 complete k9 u9"],
        ),
        case(
            "several kernel parts closed by one user part",
            "0 @10 event 010c pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 k1
             1 @20 event 010c pid=5 tid=7
             1 @21 stack @20 pid=5 tid=7 k2
             2 @40 stack @20 pid=5 tid=7 u1 u2",
            &["@10 tid=7 complete k1 u1 u2", "@20 tid=7 complete k2 u1 u2"],
        ),
        case(
            "a callback into user mode: parts that end in the kernel follow each other, the first one first",
            "0 @10 sample tid=7 k1
             0 @11 stack @10 pid=5 tid=7 k1 k2
             0 @12 stack @10 pid=5 tid=7 k3 k4
             0 @40 stack @10 pid=5 tid=7 u1",
            &["@10 tid=7 complete k1 k2 k3 k4 u1"],
        ),
        case(
            "the user part first",
            "0 @10 event 010c pid=5 tid=7
             1 @12 stack @10 pid=5 tid=7 u1
             0 @30 stack @10 pid=5 tid=7 k1",
            &["@10 tid=7 complete k1 u1"],
        ),
        case(
            "processes that have no user mode",
            "0 @10 event 010c pid=4 tid=8
             0 @11 stack @10 pid=4 tid=8 k1
             1 @20 sample tid=0 k3
             1 @21 stack @20 pid=0 tid=0 k3",
            &["@10 tid=8 complete k1", "@20 tid=0 complete k3"],
        ),
        case(
            "keys: defined before, after, never; the same number for the kernel and for user mode",
            "0 @5 define #3 k9
             0 @10 event 010c pid=5 tid=7
             0 @11 kernel @10 pid=5 tid=7 #1
             0 @12 user @10 pid=5 tid=7 #1
             1 @20 define #1 k1
             1 @21 define #1 u1
             0 @30 event 010c pid=5 tid=8
             0 @31 kernel @30 pid=5 tid=8 #3
             0 @32 stack @30 pid=5 tid=8 u3
             0 @40 event 010c pid=5 tid=9
             0 @41 user @40 pid=5 tid=9 #2
             0 @42 stack @40 pid=5 tid=9 k4",
            &["@10 tid=7 complete k1 u1", "@30 tid=8 unresolved-key u3", "@40 tid=9 unresolved-key k4"],
        ),
        Case {
            name: "more than 2,048 events between an event and its stack",
            lines: far,
            expected: far_expected,
        },
        case(
            "the stack's buffer comes before that of its event",
            "1 @10 event 010c pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 k1 u1
             0 @12 flush
             1 @13 flush",
            &["@10 tid=7 complete k1 u1"],
        ),
        case(
            "the event that carries a user part",
            "0 @10 provider pid=5 tid=7 match=3 k1
             0 @11 provider pid=5 tid=8 k2
             1 @20 half pid=5 tid=7 match=3 u1
             1 @21 half pid=5 tid=8 u2",
            &["@10 tid=7 complete k1 u1", "@11 tid=8 complete k2 u2"],
        ),
        case(
            "narrow addresses in a wide kernel, whose programs may use all of them",
            "0 @10 event 010c pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 k1
             0 @12 stack @10 pid=5 tid=7 n1 u1",
            &["@10 tid=7 complete k1 n1 u1"],
        ),
        case(
            "a narrow kernel",
            "narrow
             0 @10 event 010c pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 n1
             0 @12 stack @10 pid=5 tid=7 u1
             0 @20 event 010c pid=5 tid=7
             0 @21 stack @20 pid=5 tid=7 n2",
            &["@10 tid=7 complete n1 u1", "@20 tid=7 kernel-only n2"],
        ),
        case(
            "a thread's number is given out again",
            "0 @10 event 010c pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 k1
             0 @20 event 010c pid=6 tid=7
             0 @21 stack @20 pid=6 tid=7 k2
             0 @22 stack @20 pid=6 tid=7 u2",
            &["@10 tid=7 kernel-only k1", "@20 tid=7 complete k2 u2"],
        ),
        case(
            "a lost buffer in between",
            "0 @10 event 010c pid=5 tid=7
             0 @11 stack @10 pid=5 tid=7 k1
             1 @20 bare 0f43
             1 @21 flush
             1 @30 stack @10 pid=5 tid=7 u1
             1 @31 lose
             1 @40 bare 0f43
             0 @50 event 010c pid=5 tid=7
             0 @51 stack @50 pid=5 tid=7 k2
             0 @60 stack @50 pid=5 tid=7 u2",
            &["@10 tid=7 ambiguous k1 u2", "@20 tid=- lost", "@40 tid=- none", "@50 tid=7 complete k2 u2"],
        ),
    ]
}

/// Compares the output; an empty expectation is an event without a stack.
#[track_caller]
fn compare(case: &Case, out: &[String], how: &str) {
    assert_eq!(out.len(), case.expected.len(), "{}, {how}", case.name);
    for (out, expected) in out.iter().zip(&case.expected) {
        let matches = if expected.is_empty() { out.ends_with("none") } else { out == expected };
        assert!(matches, "{}, {how}: {out} instead of {expected}", case.name);
    }
}

#[test]
fn fourteen_cases_as_files() {
    for case in cases() {
        for way in [Way::TwoPasses, Way::OnePass, Way::Live(1), Way::Live(usize::MAX)] {
            let (out, _) = correlate(&unindented(&case.lines), way, WIDE);
            compare(&case, &out, &format!("{way:?}"));
        }
    }
}

/// Removes the indentation; the first line may be `narrow`.
fn unindented(lines: &str) -> String {
    lines.lines().map(|line| line.trim().to_owned() + "\n").collect()
}

/// The buffers of a trace in an order in which they could arrive: those of each processor in order,
/// the processors in the order of the picks.
fn arrival(etl_file: &EtlFile, picks: &[u8]) -> Vec<BufferRef> {
    let mut streams: Vec<_> =
        etl_file.index().streams().into_iter().map(std::collections::VecDeque::from).collect();
    let mut order = Vec::new();
    let mut picks = picks.iter().cycle();
    while let left @ 1.. = streams.iter().filter(|stream| !stream.is_empty()).count() {
        let pick = usize::from(*picks.next().unwrap_or(&0)) % left;
        let stream = streams.iter_mut().filter(|stream| !stream.is_empty()).nth(pick).unwrap();
        order.extend(stream.pop_front());
    }
    order
}

/// The first buffers of processors after one of theirs that is lost. Only buffers of live sessions
/// are marked themselves.
fn after_losses(lines: &str, etl_file: &EtlFile) -> Vec<u64> {
    let processors = lines.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [processor, _, "lose", ..] => processor.parse::<u16>().ok(),
        _ => None,
    });
    let index = etl_file.index();
    let next = |(processor, missing): (u16, MissingBuffers)| {
        let mut of = index.buffers.iter().filter(|buffer| buffer.processor == processor);
        of.find(|buffer| buffer.sequence > missing.last).map(|buffer| buffer.offset)
    };
    processors.zip(index.missing()).filter_map(next).collect()
}

/// Reads the trace as a live session delivers it, buffer by buffer.
fn as_it_arrives(lines: &str, picks: &[u8]) -> Vec<String> {
    let etl_file = etl_file(&unindented(lines));
    let queue =
        Queue { blocks: 1 << 12, disorder: Some(Duration::from_secs(3_600)), ..Queue::new(Overflow::Block) };
    let after_losses = after_losses(lines, &etl_file);
    let (mut capture, incoming) = channel(etl_file.session().clone(), queue);
    for buffer in arrival(&etl_file, picks) {
        let location = buffer.offset as usize..buffer.offset as usize + buffer.size as usize;
        let mut bytes = etl_file.bytes()[location].to_vec();
        // The header buffer is not part of a live session's stream; here its records are delivered
        // like others.
        bytes[0x36..0x38].copy_from_slice(&0_u16.to_le_bytes());
        if after_losses.contains(&buffer.offset) {
            bytes[0x34] |= BufferFlags::BUFFER_LOST.0 as u8;
        }
        assert!(capture.raw_buffer(&bytes).is_continue());
    }
    drop(capture);
    let mut arrivals = LiveMerger::new(vec![incoming]).unwrap();
    let mut correlator = Correlator::live(WIDE, arrivals.time_bases(), usize::MAX);
    let mut out = Vec::new();
    loop {
        let ended = match arrivals.next() {
            Step::Event(event) => {
                correlator.push(&event);
                false
            }
            Step::Idle(_) => false,
            Step::End => {
                correlator.end();
                true
            }
        };
        take_all(&mut correlator, &mut out);
        if ended {
            return out;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_of_arrival_changes_nothing(picks in prop::collection::vec(any::<u8>(), 1..40)) {
        for case in cases() {
            compare(&case, &as_it_arrives(&case.lines, &picks), "as it arrives");
        }
    }
}
