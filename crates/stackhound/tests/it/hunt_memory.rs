//! Evaluation with the memory of processes: a generated trace and a simulated machine.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use stackhound::detect::report::{FrameReport, SourceLocation};
use stackhound::detect::{Binaries, DetectionId, Memory, MemoryKind, Reason, SiteBytes, Verdict};
use stackhound::frames::RegionKind;
use stackhound::hunt::HuntSession;
use stackhound::hunt::memory::{Answer, LiveMemory, MemoryStats, Reach};
use stackhound::trace::TraceFiles;
use stackhound::{Passes, Pipeline};

const BYTES: SiteBytes = SiteBytes { before: [0x11; 16], after: [0x22; 16] };

/// A machine whose processes return this answer for every address.
fn machine(answer: Answer) -> LiveMemory {
    LiveMemory::new(Box::new(move |_, _| Some(Box::new(move |_| answer))), Reach::Code)
}

fn found(protection: u32) -> Answer {
    let memory = Memory { kind: Some(MemoryKind::Private), protection: Some(protection), is_original: None };
    Answer::Found { memory, bytes: Some(BYTES) }
}

/// The answers of CS09 for all events: the number of each answer, by whether the code is reported
/// as writable. Also the stacks of events with findings, and the index of the frame of each
/// finding.
struct Hunted {
    answers: BTreeMap<(&'static str, bool), u32>,
    stacks: Vec<(Vec<FrameReport>, usize)>,
    stats: Option<MemoryStats>,
}

fn hunt(etl_file: &Path, memory: Option<LiveMemory>) -> Hunted {
    let trace = TraceFiles::file(etl_file).open().expect("a trace");
    let mut pipeline = Pipeline::new(&trace, Passes::One);
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    if let Some(memory) = memory {
        hunt_session = hunt_session.with_memory(memory);
    }
    let regions = DetectionId::new(9).expect("a detection");
    let (mut answers, mut stacks) = (BTreeMap::new(), Vec::new());
    pipeline.run(|view| {
        hunt_session.observe(view);
        if HuntSession::can_evaluate(view) {
            let outcome = *hunt_session.evaluate(view).outcome(regions);
            let key = (outcome.verdict.name(), outcome.reasons.has(Reason::WritableCode));
            *answers.entry(key).or_default() += 1;
            if outcome.verdict == Verdict::Yes {
                let index = usize::from(outcome.frame.expect("a frame"));
                stacks.push((hunt_session.event_context(view, SourceLocation::default()).stack, index));
            }
        }
        ControlFlow::Continue(())
    });
    Hunted { answers, stacks, stats: hunt_session.memory_stats() }
}

/// The trace contains allocations, but no page protections.
#[test]
fn live_memory_adds_page_protection_and_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.etl");
    let file = std::fs::File::create(&path).expect("a file");
    stackhound_scenario::Scenario::default().write(file).expect("written");

    let without = hunt(&path, None);
    assert_eq!(without.stats, None);
    let found_without = without.answers[&("yes", false)];
    assert!(found_without > 0 && !without.answers.contains_key(&("yes", true)), "{:?}", without.answers);
    let is_bare = |frame: &FrameReport| frame.page_protection.is_none() && frame.leading_bytes.is_empty();
    assert!(without.stacks.iter().all(|(stack, _)| stack.iter().all(is_bare)));

    let with = hunt(&path, Some(machine(found(0x40))));
    assert_eq!(with.answers[&("yes", true)], found_without);
    for (stack, index) in &with.stacks {
        let frame = &stack[*index];
        assert_eq!((frame.region.kind, frame.page_protection), (RegionKind::Private, Some(0x40)));
        assert_eq!(
            (&frame.leading_bytes[..], &frame.trailing_bytes[..]),
            (&BYTES.before[..], &BYTES.after[..])
        );
        // The memory was allocated later, at the address of a former image.
        assert!(stack.iter().filter(|frame| frame.region.kind == RegionKind::Image).all(is_bare));
    }
    let stats = with.stats.expect("counted");
    assert!(stats.lookups > 0 && stats.found == stats.lookups && stats.changed > 0, "{stats:?}");

    let read_only = hunt(&path, Some(machine(found(0x20))));
    assert_eq!(read_only.answers, without.answers);

    // Without answers, the result is the same as without memory.
    for nothing in [Answer::Nothing, Answer::Gone] {
        let hunted = hunt(&path, Some(machine(nothing)));
        assert_eq!(hunted.answers, without.answers, "{nothing:?}");
        assert!(hunted.stacks.iter().all(|(stack, _)| stack.iter().all(is_bare)));
    }
}
