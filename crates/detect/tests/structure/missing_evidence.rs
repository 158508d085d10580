//! Missing evidence never leads to the answer no.

use proptest::prelude::*;
use stackhound_detect::{
    DetectionId, Entry, Event, Gap, Input, Inputs, Part, Process, Reason, Start, Verdict,
};
use stackhound_frames::{Code, Frame, Lists, Operation};
use stackhound_types::{Address, AddressKind};

use crate::notation::{Given, detector, evaluated, evaluated_frames, frames, module, opening};

fn words() -> impl Strategy<Value = String> {
    const WORDS: [&str; 14] = [
        "ntdll",
        "kernelbase",
        "kernel32",
        "app",
        "clr",
        "!",
        "!7ff812340000",
        "jit",
        "K",
        "K!",
        "wow64",
        "ntdll~",
        "copy",
        "hook",
    ];
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..8).prop_map(|words| words.join(" "))
}

fn given() -> impl Strategy<Value = Given<'static>> {
    let operation = prop::sample::select(vec![
        Operation::ProcessOpen,
        Operation::ThreadCreate,
        Operation::ImageLoad,
        Operation::Wait,
        Operation::Other,
    ]);
    let entry = prop::sample::select(vec![Entry::SystemCall, Entry::Interrupt, Entry::Unknown]);
    let known = prop::option::of(any::<bool>());
    (operation, entry, known.clone(), known.clone(), known).prop_map(
        |(operation, entry, wow64, runtime, win32u)| {
            let with_target = opening("C:\\Windows\\System32\\lsass.exe", Some(0x1010));
            let event = Event { operation, entry, ..with_target.event };
            let process =
                Process { is_wow64: wow64, has_runtime: runtime, has_win32u: win32u, ..Process::UNKNOWN };
            Given { event, process, ..Given::default() }
        },
    )
}

/// The base of an image, the offset of a frame in it, and whether the frame is an instruction.
fn location() -> impl Strategy<Value = (Option<u64>, u64, bool)> {
    let bases = prop::sample::select(vec![None, Some(0x7ffa_1000_0000), Some(0x7ffa_2000_0000)]);
    (bases, prop::sample::select(vec![0, 0x1000, 0x2010, 0x2_0000_0000]), any::<bool>())
}

/// The same case with parts of its evidence missing.
fn gaps(whole: Given<'static>) -> [Given<'static>; 6] {
    [
        Given { map_is_complete: false, ..whole },
        Given { has_losses: true, ..whole },
        Given { map_is_complete: false, has_losses: true, ..whole },
        Given { user: Part::Missing(Gap::NotRecorded), map_is_complete: false, ..whole },
        Given { user: Part::Missing(Gap::Lost), has_losses: true, ..whole },
        Given { user: Part::Missing(Gap::Unresolved), map_is_complete: false, has_losses: true, ..whole },
    ]
}

proptest! {
    #[test]
    fn missing_evidence_never_leads_to_no(given in given(), stack in words()) {
        let mut detector = detector(Lists::default());
        for given in gaps(given) {
            let evaluation = evaluated(&mut detector, given, &stack);
            for (id, outcome) in evaluation.iter() {
                prop_assert_ne!(outcome.verdict, Verdict::No, "{} of `{}`", id.name(), stack);
            }
        }
    }

    /// An answer that is not determined states what is missing, and the stack only if it matters.
    #[test]
    fn undetermined_answers_state_what_is_missing(given in given(), stack in words()) {
        let mut detector = detector(Lists::default());
        for given in gaps(given).into_iter().chain([given]) {
            let evaluation = evaluated(&mut detector, given, &stack);
            for (id, outcome) in evaluation.iter().filter(|(_, one)| one.verdict == Verdict::Undetermined) {
                let needs = id.detection().needs;
                prop_assert!(!outcome.missing.is_empty(), "{} of `{stack}`", id.name());
                let needs_stack = needs.has(Input::Stack) || needs.has(Input::KernelStack);
                prop_assert!(needs_stack || !outcome.missing.has(Input::Stack), "{} of `{stack}`", id.name());
            }
        }
    }

    /// For an event without a stack, no detection that needs the stack answers no.
    #[test]
    fn missing_stacks_never_lead_to_no(given in given()) {
        let mut detector = detector(Lists::default());
        for gap in [Gap::NotRecorded, Gap::Lost, Gap::Unresolved] {
            let part = Part::Missing(gap);
            let evaluation = evaluated(&mut detector, Given { kernel: part, user: part, ..given }, "");
            for (id, outcome) in evaluation.iter().filter(|(id, _)| id.detection().needs.has(Input::Stack)) {
                prop_assert_ne!(outcome.verdict, Verdict::No, "{}", id.name());
            }
        }
    }

    /// Frames with equal cache keys are evaluated alike.
    #[test]
    fn frames_are_evaluated_by_their_cache_keys(
        given in given(),
        stack in words(),
        locations in prop::collection::vec(location(), 8),
    ) {
        let mut detector = detector(Lists::default());
        let mut placed = frames(&mut detector, &stack);
        for (frame, (base, offset, is_instruction)) in placed.iter_mut().zip(locations) {
            frame.kind = if is_instruction { AddressKind::Instruction } else { AddressKind::Return };
            if let Code::Image(module, _) = frame.code {
                (frame.address, frame.code) = (base.map(|base| Address(base + offset)), Code::Image(module, offset));
            }
        }
        let keys: Vec<Frame> = placed.iter().map(|frame| frame.cache_key(&detector.modules, false)).collect();
        let evaluation = evaluated_frames(&mut detector, given, &placed);
        prop_assert_eq!(evaluated_frames(&mut detector, given, &keys), evaluation);
    }

    /// The answers depend only on the case.
    #[test]
    fn earlier_evaluations_do_not_matter(given in given(), first in words(), second in words()) {
        let mut fresh = detector(Lists::default());
        let alone = evaluated(&mut fresh, given, &second);
        let mut used = detector(Lists::default());
        evaluated(&mut used, given, &first);
        prop_assert_eq!(evaluated(&mut used, given, &second), alone);
    }
}

/// An answer that would be no states exactly the missing evidence.
#[test]
fn answers_state_the_missing_evidence() {
    use Input::{Modules, Stack};
    let mut detector = detector(Lists::default());
    let whole = Given::default();
    let missing = Part::Missing(Gap::Lost);
    let (map, events) = (Reason::ModulesIncomplete, Reason::EventsLost);
    for (given, reasons, inputs) in [
        (whole, vec![], vec![]),
        (Given { map_is_complete: false, ..whole }, vec![map], vec![Modules]),
        (Given { has_losses: true, ..whole }, vec![events], vec![Modules]),
        (Given { map_is_complete: false, has_losses: true, ..whole }, vec![map, events], vec![Modules]),
        (Given { user: missing, ..whole }, vec![Reason::StackMissing], vec![Stack]),
        (
            Given { user: missing, map_is_complete: false, ..whole },
            vec![Reason::StackMissing, map],
            vec![Stack, Modules],
        ),
    ] {
        let evaluation = evaluated(&mut detector, given, "ntdll kernelbase app kernel32 ntdll");
        let outcome = evaluation.outcome(DetectionId::parse("CS01").unwrap());
        let verdict = if reasons.is_empty() { Verdict::No } else { Verdict::Undetermined };
        assert_eq!(outcome.verdict, verdict, "{given:?}");
        for reason in [map, events, Reason::StackMissing] {
            assert_eq!(outcome.reasons.has(reason), reasons.contains(&reason), "{reason:?}: {given:?}");
        }
        assert_eq!(outcome.missing, Inputs::of(&inputs), "{given:?}");
        assert!(outcome.reasons.has(Reason::TopSystemCall), "the reason for no is missing");
    }
}

/// Detections that do not need the stack can answer no without it.
#[test]
fn thread_starts_are_evaluated_without_a_stack() {
    let mut detector = detector(Lists::default());
    let code = Code::Image(module(&mut detector, "app"), 0x10);
    let start = Start { address: 0x1000, is_kernel: false, code, function: None, is_remote: false };
    let event = Event { operation: Operation::ThreadCreate, start: Some(start), ..Event::OTHER };
    let given = Given { event, user: Part::Missing(Gap::NotRecorded), ..Given::default() };
    let id = DetectionId::parse("CS19").unwrap();
    assert_eq!(evaluated(&mut detector, given, "").outcome(id).verdict, Verdict::No);
    for given in [Given { map_is_complete: false, ..given }, Given { has_losses: true, ..given }] {
        assert_eq!(evaluated(&mut detector, given, "").outcome(id).verdict, Verdict::Undetermined);
    }
}

#[test]
fn undetermined_answers_state_the_missing_evidence() {
    let mut detector = detector(Lists::default());
    for stack in
        ["", "? ?", "ntdll ? kernel32 ntdll", "ntdll kernelbase app kernel32 ntdll", "K? ntdll", "! app"]
    {
        for part in [Part::Whole, Part::Missing(Gap::Lost)] {
            let given = Given { user: part, map_is_complete: false, ..opening("lsass.exe", None) };
            let evaluation = evaluated(&mut detector, given, stack);
            for id in DetectionId::all() {
                let outcome = evaluation.outcome(id);
                if outcome.verdict == Verdict::Undetermined {
                    assert!(!outcome.missing.is_empty(), "{} of `{stack}`: {outcome:?}", id.name());
                    assert!(outcome.reasons.iter().count() > 0);
                }
            }
        }
    }
}
