//! Evaluating with the memory of processes: on a generated recording, and a machine that is made up.

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

/// A machine whose processes give this answer at every address.
fn machine(answer: Answer) -> LiveMemory {
    LiveMemory::new(Box::new(move |_, _| Some(Box::new(move |_| answer))), Reach::Code)
}

fn found(protection: u32) -> Answer {
    let memory = Memory { kind: Some(MemoryKind::Private), protection: Some(protection), is_original: None };
    Answer::Found { memory, bytes: Some(BYTES) }
}

/// What CS09 says of all events: how many of each answer, by whether code is said to be writable. With the stacks of events
/// that were found, and in each the frame that gives it away.
struct Hunted {
    answers: BTreeMap<(&'static str, bool), u32>,
    stacks: Vec<(Vec<FrameReport>, usize)>,
    stats: Option<MemoryStats>,
}

fn hunt(etl_file: &Path, memory: Option<LiveMemory>) -> Hunted {
    let trace = TraceFiles::file(etl_file).open().expect("a recording");
    let mut pipeline = Pipeline::new(&trace, Passes::One);
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    if let Some(memory) = memory {
        hunt_session = hunt_session.with_memory(memory);
    }
    let regions = DetectionId::new(9).expect("a detection");
    let (mut answers, mut stacks) = (BTreeMap::new(), Vec::new());
    pipeline.run(|view| {
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

/// The recording tells what was allocated, and nothing of what pages allow.
#[test]
fn what_only_memory_can_tell_is_told() {
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
        // Memory that was allocated where an image was came later.
        assert!(stack.iter().filter(|frame| frame.region.kind == RegionKind::Image).all(is_bare));
    }
    let stats = with.stats.expect("counted");
    assert!(stats.asked > 0 && stats.found == stats.asked && stats.changed > 0, "{stats:?}");

    let read_only = hunt(&path, Some(machine(found(0x20))));
    assert_eq!(read_only.answers, without.answers);

    // Where nothing is answered, all is as if nobody had asked.
    for nothing in [Answer::Nothing, Answer::Gone] {
        let hunted = hunt(&path, Some(machine(nothing)));
        assert_eq!(hunted.answers, without.answers, "{nothing:?}");
        assert!(hunted.stacks.iter().all(|(stack, _)| stack.iter().all(is_bare)));
    }
}
