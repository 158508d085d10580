//! One request to the device, and whether what came of it is right.

use stackhound_kstack_core::{Opener, Refusal, control};
use stackhound_kstack_proto::{Answer, Request};

use super::mock::Mock;
use super::oracle::{Call, expected};

/// What came back, or why nothing did.
pub type Verdict = Result<Vec<u8>, Refusal>;

/// Makes the call. Panics if what came back is not what must come, if more was written than that, if
/// something was begun for one that was refused, or if something is held that belongs to nobody.
pub fn check_call(mock: &Mock, call: &Call) -> Verdict {
    let expected = expected(mock, call);
    let mut buffer = call.buffer.clone();
    let (before, outstanding) = (mock.counts(), mock.outstanding());
    let opener = Opener::kept(call.opener.try_into().expect("somebody who opened the device"));
    let given = control(mock, opener, call.caller, call.code, &mut buffer, call.input, call.output);
    let written = *given.as_ref().unwrap_or(&0);
    assert!(written <= call.output.min(buffer.len()), "{written} bytes of {}", call.output);
    assert_eq!(given.map(|written| buffer[..written].to_vec()), expected, "{call:?}");
    assert_eq!(buffer[written..], call.buffer[written..], "written behind the answer: {call:?}");
    let mut after = mock.counts();
    match &expected {
        Err(refusal) => {
            // Whether one is busy is known when its thread is.
            after.finds -= u32::from(*refusal == Refusal::Busy);
            assert_eq!(before, after, "begun: {call:?}");
            assert_eq!(mock.outstanding(), outstanding);
        }
        Ok(answer) if answer.len() > 16 => {
            let capture = Request::parse(&call.buffer[..call.input]).expect("a request that was served");
            let answer = Answer::parse(answer, &capture).expect("an answer that the client takes");
            assert_eq!(after.finds, before.finds + 1);
            assert!(answer.outcome() as u32 == 0 || answer.header().kernel_count == 0);
        }
        Ok(_) => assert_eq!(before, after),
    }
    mock.check();
    expected
}
