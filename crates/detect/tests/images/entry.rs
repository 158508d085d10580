//! The instruction before the point where the kernel was entered: CS02.

use stackhound_detect::{DetectionId, Entry, Input, Reason, Services, Verdict};

use crate::world::World;

#[test]
fn the_previous_instruction_is_read_from_the_file() {
    let mut world = World::without(&[]);
    let id = DetectionId::parse("CS02").expect("a detection");
    // The stack, the frame, the verdict, and whether the file has the instruction.
    for (stack, frame, verdict, is_in_file) in [
        ("app+1b02 root", 0, Verdict::Yes, true),
        ("app+1b12 root", 0, Verdict::Yes, true),
        ("app+1b03 root", 0, Verdict::No, true),
        ("app+100a root", 0, Verdict::No, true),
        ("K app+100a root", 1, Verdict::No, true),
        ("gone+1b02 root", 0, Verdict::Yes, false),
        ("bad+1b02 root", 0, Verdict::Yes, false),
        ("packed+1800 root", 0, Verdict::Yes, false),
        // 32-bit code enters the kernel through a call.
        ("wow64+1234 app32+1006~", 1, Verdict::Yes, false),
    ] {
        let frames = world.frames(stack);
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
        let outcome = evaluation.outcome(id);
        assert_eq!((outcome.verdict, outcome.frame), (verdict, Some(frame)), "{stack}: {outcome:?}");
        let inputs = (outcome.used.has(Input::ImageBytes), outcome.missing.has(Input::ImageBytes));
        assert_eq!(inputs, (is_in_file, !is_in_file), "{stack}: {outcome:?}");
        let before = (Reason::SystemCallBefore, Reason::NoSystemCallBefore);
        let reasons = (outcome.reasons.has(before.0), outcome.reasons.has(before.1));
        assert_eq!(
            reasons,
            (is_in_file && verdict == Verdict::Yes, verdict == Verdict::No),
            "{stack}: {outcome:?}"
        );
    }
}
