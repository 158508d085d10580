//! Nothing is denied where what would tell is missing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackhound::detect::{Binaries, Input, Judgement, Verdict};
use stackhound::hunt::Hunter;
use stackhound::schema::SchemaStore;
use stackhound::testing::{OwnedEvent, RecordBuilder, write_etl};
use stackhound::trace::Recordings;
use stackhound::{Address, FileTime, Guid, Passes, Pipeline};

use crate::{generated, judged};

const PROCESS: Guid =
    Guid::new(0x3d6f_a8d0, 0xfe05, 0x11d0, [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);
const IMAGE: Guid = Guid::new(0x2cb1_5d1d, 0x5fc1, 0x11d2, [0xab, 0xe1, 0x00, 0xa0, 0xc9, 0x11, 0xf5, 0x18]);
/// Microsoft-Windows-Kernel-Audit-API-Calls; its event 5 tells that a process is opened.
const AUDIT: Guid = Guid::new(0xe02a_841c, 0x75a3, 0x4fa7, [0xaf, 0xc8, 0xae, 0x09, 0xcf, 0x9b, 0x7f, 0x23]);
const OPEN_PROCESS: u16 = 5;

const PID: u32 = 4242;
const NTDLL: u64 = 0x7ffa_1000_0000;
const KERNEL32: u64 = 0x7ffa_2000_0000;
const PROGRAM: u64 = 0x7ff6_3000_0000;

/// What there is of the event and its process.
#[derive(Clone, Copy)]
struct Made {
    has_start: bool,
    has_stack: bool,
}

/// A program opens a process through Windows' own libraries.
fn events(made: Made) -> Vec<OwnedEvent> {
    let mut store = SchemaStore::new();
    let at = |seconds: i64| FileTime(133_500_000_000_000_000 + seconds * 10_000_000);
    let mut events = Vec::new();
    if made.has_start {
        let start = RecordBuilder::classic(PROCESS, 1, 4).at(at(1)).pid(4);
        let start = start.with("ProcessId", PID).with("ImageFileName", "program.exe");
        events.push(start.pack_incomplete(&mut store).unwrap());
        let paths = [
            (PROGRAM, r"\Device\HarddiskVolume3\Program Files\Program\program.exe"),
            (NTDLL, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll"),
            (KERNEL32, r"\Device\HarddiskVolume3\Windows\System32\kernel32.dll"),
        ];
        for (base, path) in paths {
            let load = RecordBuilder::classic(IMAGE, 10, 2).at(at(2)).pid(PID);
            let load = load.with("ImageBase", base).with("ImageSize", 0x20_0000_u64);
            let load = load.with("ProcessId", PID).with("FileName", path);
            events.push(load.pack_incomplete(&mut store).unwrap());
        }
    }
    let open = RecordBuilder::new(AUDIT, OPEN_PROCESS, 0).at(at(3)).pid(PID).tid(8);
    let open = open.with("TargetProcessId", 77_u32).with("DesiredAccess", 0x1000_u32);
    let frames =
        [NTDLL + 0x9_d4c4, KERNEL32 + 0x2000, PROGRAM + 0x1234, KERNEL32 + 0x1_7034, NTDLL + 0x5_2651];
    let open = if made.has_stack { open.stack(0, frames.map(Address)) } else { open };
    events.push(open.pack_incomplete(&mut store).unwrap());
    events
}

/// The answers about the opening.
fn answers(made: Made) -> Judgement {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.etl");
    write_etl(std::fs::File::create(&path).unwrap(), events(made)).unwrap();
    let trace = Recordings::file(&path).open().unwrap();
    let mut pipeline = Pipeline::new(&trace, Passes::Two);
    let mut hunter = Hunter::new(Binaries::none(), pipeline.clock());
    let mut found = None;
    pipeline.run(|seen| {
        if seen.id() == OPEN_PROCESS {
            found = Some(*hunter.judge(seen));
        }
        ControlFlow::Continue(())
    });
    found.expect("the event comes through")
}

fn denied(judgement: &Judgement) -> Vec<&'static str> {
    let denied = judgement.iter().filter(|(_, outcome)| outcome.verdict == Verdict::No);
    denied.map(|(id, _)| id.name()).collect()
}

#[test]
fn what_is_whole_can_be_denied() {
    let judgement = answers(Made { has_start: true, has_stack: true });
    let denied = denied(&judgement);
    for id in ["CS01", "CS02", "CS07", "CS08", "CS10", "CS14"] {
        assert!(denied.contains(&id), "{id}: {denied:?}");
    }
}

#[test]
fn without_a_stack_nothing_that_a_stack_tells_is_denied() {
    let judgement = answers(Made { has_start: true, has_stack: false });
    for (id, outcome) in judgement.iter().filter(|(id, _)| id.detection().needs.has(Input::Stack)) {
        assert_eq!(outcome.verdict, Verdict::Undetermined, "{}", id.name());
    }
}

#[test]
fn without_all_modules_nothing_is_denied() {
    let judgement = answers(Made { has_start: false, has_stack: true });
    assert_eq!(denied(&judgement), Vec::<&str>::new());
    let wants = judgement.iter().filter(|(_, outcome)| outcome.missing.has(Input::Modules)).count();
    assert!(wants > 10, "{wants}");
}

#[test]
fn where_buffers_are_lost_nothing_is_denied() {
    let (_folder, trace, truth) = generated(1);
    assert!(truth.lost.buffers > 0);
    for passes in [Passes::One, Passes::Two] {
        let mut losses_are_known = passes == Passes::Two;
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        judged(&trace, passes, |seen, _, judgement| {
            // In one pass, a loss is known from where it is met.
            losses_are_known |= seen.event().block().origin().after_loss;
            if losses_are_known {
                assert_eq!(denied(judgement), Vec::<&str>::new(), "{} {:?}", seen.name(), seen.state());
            }
            *counts.entry(seen.state().name()).or_default() += 1;
        });
        assert!(counts["complete"] > 1000, "{counts:?}");
    }
}
