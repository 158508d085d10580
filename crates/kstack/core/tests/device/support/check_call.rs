//! One request to the device, and the check of its result.

use stackhound_kstack_core::{Opener, Refusal, control};
use stackhound_kstack_proto::{Answer, Request};

use super::mock::Mock;
use super::oracle::{Call, expected};

/// The answer, or the refusal.
pub type Verdict = Result<Vec<u8>, Refusal>;

/// Makes the call. Panics if the result differs from the oracle's, if more than the answer was
/// written, if a capture was made for a refused request, or if a slot or reference was not
/// released.
pub fn check_call(mock: &Mock, call: &Call) -> Verdict {
    let expected = expected(mock, call);
    let mut buffer = call.buffer.clone();
    let (before, outstanding) = (mock.counts(), mock.outstanding());
    let opener = Opener::kept(call.opener.try_into().expect("the process that opened the device"));
    let result = control(mock, opener, call.caller, call.code, &mut buffer, call.input, call.output);
    let written = *result.as_ref().unwrap_or(&0);
    assert!(written <= call.output.min(buffer.len()), "{written} bytes of {}", call.output);
    assert_eq!(result.map(|written| buffer[..written].to_vec()), expected, "{call:?}");
    assert_eq!(buffer[written..], call.buffer[written..], "written after the answer: {call:?}");
    let mut after = mock.counts();
    match &expected {
        Err(refusal) => {
            // The driver must find the thread before it can answer "busy".
            after.finds -= u32::from(*refusal == Refusal::Busy);
            assert_eq!(before, after, "a capture was started: {call:?}");
            assert_eq!(mock.outstanding(), outstanding);
        }
        Ok(answer) if answer.len() > 16 => {
            let capture = Request::parse(&call.buffer[..call.input]).expect("a request that was served");
            let answer = Answer::parse(answer, &capture).expect("an answer that the client accepts");
            assert_eq!(after.finds, before.finds + 1);
            assert!(answer.outcome() as u32 == 0 || answer.header().kernel_count == 0);
        }
        Ok(_) => assert_eq!(before, after),
    }
    mock.check();
    expected
}
