//! No verdict is "no" if evidence is missing.

use stackhound::Passes;
use stackhound::detect::{Evaluation, Input, Verdict};
use stackhound::schema::provider_guid::KERNEL_AUDIT_API_CALLS;
use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, evaluate};

use super::{evaluated, generated};

/// The event for the opening of a process.
const OPEN_PROCESS: u16 = 5;

const PID: u32 = 4242;
const NTDLL: u64 = 0x7ffa_1000_0000;
const KERNEL32: u64 = 0x7ffa_2000_0000;
const PROGRAM: u64 = 0x7ff6_3000_0000;

/// The parts of the trace.
#[derive(Clone, Copy)]
struct Made {
    has_rundown: bool,
    has_stack: bool,
}

/// The answers about a program that opens a process through Windows' own libraries.
fn answers(made: Made) -> Evaluation {
    let modules = [
        (PROGRAM, 0x20_0000, r"\Device\HarddiskVolume3\Program Files\Program\program.exe"),
        (NTDLL, 0x20_0000, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll"),
        (KERNEL32, 0x20_0000, r"\Device\HarddiskVolume3\Windows\System32\kernel32.dll"),
    ];
    let frames =
        [NTDLL + 0x9_d4c4, KERNEL32 + 0x2000, PROGRAM + 0x1234, KERNEL32 + 0x1_7034, NTDLL + 0x5_2651];
    let open = RecordBuilder::new(KERNEL_AUDIT_API_CALLS, OPEN_PROCESS, 0).pid(PID).tid(8);
    let open = open.with("TargetProcessId", 77_u32).with("DesiredAccess", 0x1000_u32);
    let trace = TraceBuilder::new();
    let trace = if made.has_rundown { trace.process(PID, "program.exe", &modules) } else { trace };
    let user = if made.has_stack { &frames[..] } else { &[] };
    let trace = trace.event_with_stack(open, StackForm::Extended, &[], user);
    let [evaluation] = evaluate(trace.build().unwrap()).unwrap()[..] else {
        panic!("one event is evaluated")
    };
    evaluation
}

fn denied(evaluation: &Evaluation) -> Vec<&'static str> {
    let denied = evaluation.iter().filter(|(_, outcome)| outcome.verdict == Verdict::No);
    denied.map(|(id, _)| id.name()).collect()
}

#[test]
fn complete_evidence_allows_no() {
    let evaluation = answers(Made { has_rundown: true, has_stack: true });
    let denied = denied(&evaluation);
    for id in ["CS01", "CS02", "CS07", "CS08", "CS10", "CS14"] {
        assert!(denied.contains(&id), "{id}: {denied:?}");
    }
}

#[test]
fn without_a_stack_detections_on_stacks_are_undetermined() {
    let evaluation = answers(Made { has_rundown: true, has_stack: false });
    for (id, outcome) in evaluation.iter().filter(|(id, _)| id.detection().needs.has(Input::Stack)) {
        assert_eq!(outcome.verdict, Verdict::Undetermined, "{}", id.name());
    }
}

#[test]
fn without_all_modules_nothing_is_denied() {
    let evaluation = answers(Made { has_rundown: false, has_stack: true });
    assert_eq!(denied(&evaluation), Vec::<&str>::new());
    let wants = evaluation.iter().filter(|(_, outcome)| outcome.missing.has(Input::Modules)).count();
    assert!(wants > 10, "{wants}");
}

#[test]
fn where_buffers_are_lost_nothing_is_denied() {
    let (_folder, trace, truth) = generated(1);
    assert!(truth.lost.buffers > 0);
    for passes in [Passes::One, Passes::Two] {
        let (mut inside, mut outside) = (0, 0);
        evaluated(&trace, passes, |view, _, evaluation| {
            let time = view.time().0;
            let denied = denied(evaluation);
            if view.trace_state().losses().anywhere_between(time, time) {
                assert_eq!(denied, Vec::<&str>::new(), "{} {:?}", view.name(), view.state());
                inside += 1;
            } else {
                outside += denied.len();
            }
        });
        assert!(inside > 100 && outside > 1000, "{passes:?}: {inside} {outside}");
    }
}
