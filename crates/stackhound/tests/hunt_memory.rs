//! Judging with the memory of processes: on a generated recording, and a machine that is made up.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use stackhound::detect::report::{FrameReport, Place};
use stackhound::detect::{
    Binaries, DetectionId, Input, Judge, Lists, Memory, MemoryKind, SiteBytes, Verdict,
};
use stackhound::hunt::Hunter;
use stackhound::hunt::memory::{Answer, LiveMemory, MemoryStats, Reach};
use stackhound::trace::Recordings;
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

/// What CS09 says of all events: how many of each answer, and whether regions were missing. With the frames of events
/// that were found.
struct Hunted {
    answers: BTreeMap<(&'static str, bool), u32>,
    frames: Vec<FrameReport>,
    stats: Option<MemoryStats>,
}

fn hunt(recording: &Path, memory: Option<LiveMemory>) -> Hunted {
    let trace = Recordings::file(recording).open().expect("a recording");
    let mut pipeline = Pipeline::new(&trace, Passes::One);
    let mut hunter = Hunter::new(Judge::new(Lists::default(), Binaries::none()), pipeline.clock());
    if let Some(memory) = memory {
        hunter = hunter.with_memory(memory);
    }
    let regions = DetectionId::new(9).expect("a detection");
    let (mut answers, mut frames) = (BTreeMap::new(), Vec::new());
    pipeline.run(|seen| {
        if Hunter::can_judge(seen) {
            let outcome = *hunter.judge(seen).outcome(regions);
            let key = (outcome.verdict.name(), outcome.missing.has(Input::Regions));
            *answers.entry(key).or_default() += 1;
            if outcome.verdict == Verdict::Yes {
                let stack = hunter.sighting(seen, Place::default()).stack;
                frames.push(stack[usize::from(outcome.frame.expect("a frame"))].clone());
            }
        }
        ControlFlow::Continue(())
    });
    Hunted { answers, frames, stats: hunter.memory_stats() }
}

#[test]
fn what_only_memory_can_tell_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.etl");
    let file = std::fs::File::create(&path).expect("a file");
    stackhound_scenario::Scenario::default().write(file).expect("written");

    let without = hunt(&path, None);
    println!("{:?}", without.answers);
    assert_eq!(without.stats, None);
    assert!(without.frames.iter().all(|frame| frame.protection.is_none() && frame.leading_bytes.is_empty()));

    let with = hunt(&path, Some(machine(found(0x40))));
    println!("{:?} {:?}", with.answers, with.stats);
    let yes = ("yes", false);
    assert!(with.answers[&yes] > 0);
    assert!(with.frames.iter().all(|frame| frame.protection == Some(0x40) && frame.memory == "private"));
    assert!(with.frames.iter().all(|frame| frame.leading_bytes == BYTES.before));
    assert!(with.frames.iter().all(|frame| frame.trailing_bytes == BYTES.after));
    // No answer is lost for want of memory any more.
    assert!(!with.answers.keys().any(|(_, is_missing)| *is_missing), "{:?}", with.answers);
    let stats = with.stats.expect("counted");
    assert!(stats.asked > 0 && stats.found == stats.asked);

    // Where nothing is answered, all is as if nobody had asked.
    for nothing in [Answer::Nothing, Answer::Gone] {
        let hunted = hunt(&path, Some(machine(nothing)));
        assert_eq!(hunted.answers, without.answers, "{nothing:?}");
    }
}
