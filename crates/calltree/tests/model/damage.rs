//! Damaged, foreign and forged indexes give an error and cause neither a panic nor an endless loop.

use proptest::prelude::*;
use stackhound_calltree::{
    Axis, ContextId, Cpu, EndType, Error, FrameId, GroupBy, Pattern, StackId, Trace, TransitionId,
};

use super::naive::{Step, run};

const HEADER: usize = 64;
const ENTRY: usize = 48;

/// A trace with all kinds of content.
fn index() -> Vec<u8> {
    let steps = [
        Step::Call(1),
        Step::Call(2),
        Step::TailCall(3),
        Step::Interrupt,
        Step::Return(EndType::InterruptReturn),
        Step::Switch(1, 2, false),
        Step::Call(3),
        Step::Switch(2, 0, false),
        Step::Call(4),
        Step::Switch(0, 0, false),
        Step::Unwind(2),
        Step::Underflow,
        Step::Call(0),
        Step::Lose,
        Step::Nothing,
    ];
    let steps = (0..30).flat_map(|round| steps.iter().cloned().map(move |step| (round, step))).collect();
    run(&(2, 6, steps)).trace.as_bytes().to_vec()
}

/// Runs all queries.
fn query_all(trace: &Trace) {
    for id in (0..=trace.transition_count().min(400)).chain([u64::MAX]) {
        let Ok(context) = trace.context(ContextId(id)) else { continue };
        for cpu in 0..3 {
            let Some(stack) = context.on(Cpu(cpu)).stack() else { continue };
            let _ =
                (stack.frame(), stack.frames().take(100).count(), stack.to_string(), stack.active_since());
            let _ = [Axis::Cpu, Axis::Thread].map(|axis| (stack.prev_stack(axis), stack.next_stack(axis)));
        }
        let _ = (context.time(), context.transition_before());
        if let Ok(transition) = trace.transition(TransitionId(id)) {
            let _ = (transition.to_string(), transition.step_over(), transition.step_out());
            let _ = (transition.step_over_backward(), transition.step_out_backward());
        }
    }
    for id in 0..trace.frame_count().min(200) {
        let Ok(frame) = trace.frame(FrameId(id)) else { continue };
        let _ =
            (frame.to_string(), frame.range(), frame.first_executed_context(), frame.start(), frame.end());
        let _ = (frame.start_time(), frame.duration());
        let _ = (frame.children().take(100).count(), frame.reversed_children().take(100).count());
        let _ = (frame.ancestors().take(100).count(), frame.descendant_events().take(300).count());
        let _ =
            (frame.execution_ranges().take(100).count(), frame.execution_ranges_by_call().take(100).count());
        frame.tail_calls().take(100).for_each(|found| drop((found.to_string(), found.last_context())));
        let _ = frame.function_location().map(|location| (location.to_string(), location.module()));
    }
    for id in 0..trace.stack_count().min(20) {
        let _ = trace.stack(StackId(id), ContextId(0)).map(|stack| stack.frames().count());
    }
    let _ = trace.calls(&Pattern::new("f?").unwrap());
    let _ = trace.tail_calls(&Pattern::new("f?").unwrap());
    for group in trace.groups(GroupBy::Stack, |_| true).into_iter().take(20) {
        let _ = group.stack_at(trace, ContextId(5));
    }
}

#[test]
fn every_changed_byte_is_detected() {
    let whole = index();
    let read = |bytes: &[u8]| Trace::open(bytes.to_vec().into());
    assert!(read(&whole).is_ok());
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let Err(error) = read(&damaged) else {
            // Only the padding of sections is not covered by a checksum.
            assert_eq!(whole[at], 0, "byte {at} is not covered");
            continue;
        };
        match at {
            0..8 => assert!(matches!(error, Error::NoIndex { .. })),
            8..12 => assert!(matches!(error, Error::IndexVersion { .. })),
            _ => assert!(matches!(error, Error::IndexDamaged { .. }), "byte {at}: {error}"),
        }
    }
}

#[test]
fn every_truncated_index_is_detected() {
    let whole = index();
    let shortest = whole.len().saturating_sub(7);
    for length in 0..shortest {
        assert!(Trace::open(whole[..length].to_vec().into()).is_err(), "{length} of {} bytes", whole.len());
    }
}

#[test]
fn older_versions_are_rejected() {
    let mut older = index();
    older[8] = 0;
    assert_eq!(
        Trace::open(older.into()).unwrap_err().to_string(),
        "the index has format version 0; this program reads version 3"
    );
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Changes a byte of the index, or of its table of sections, and updates all checksums.
fn forge(bytes: &mut [u8], at: usize, value: u8) {
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let body = HEADER + ENTRY * sections;
    // Do not change the magic, nor the offsets and lengths of sections.
    if at < 16 || (HEADER - 8..HEADER - 4).contains(&at) {
        return;
    }
    bytes[at] = value;
    for section in 0..sections {
        let entry = HEADER + ENTRY * section;
        let (offset, length) = (word(bytes, entry + 24) as usize, word(bytes, entry + 32) as usize);
        let Some(content) = offset.checked_add(length).and_then(|end| bytes.get(offset..end)) else {
            continue;
        };
        let checksum = u64::from(crc32fast::hash(content));
        bytes[entry + 40..entry + 48].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes[HEADER - 8..HEADER - 4].fill(0);
    let checksum = crc32fast::hash(&bytes[..body]);
    bytes[HEADER - 8..HEADER - 4].copy_from_slice(&checksum.to_le_bytes());
}

proptest! {
    #[test]
    fn forged_indexes_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = index();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            forge(&mut bytes, at, value);
        }
        if let Ok(trace) = Trace::open(bytes.into()) {
            query_all(&trace);
        }
    }
}
