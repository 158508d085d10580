//! The client, with a device that answers like the driver, and with a scripted one.

mod driver;
mod scripted;

use std::time::Duration;

use stackhound_kstack_client::{Client, Error, Patience, Reply, Stack, Thread};
use stackhound_kstack_proto::{Capture, Flags, MAX_FRAMES, Missing, RequestError};

use driver::{Driver, Threads};

const PATIENCE: Patience = Patience { attempts: 3, pause: Duration::ZERO };
const BOTH: Flags = Flags::KERNEL.and(Flags::USER);

fn of(tid: u32) -> Capture {
    Capture {
        pid: 4,
        tid,
        created: None,
        max_frames: MAX_FRAMES,
        flags: BOTH,
        timeout_ms: 100,
        id: 0,
        frames_to_skip: 0,
    }
}

fn client(driver: Driver) -> Client<Driver> {
    Client::over(driver, PATIENCE).expect("the same version")
}

#[track_caller]
fn stack(reply: Result<Reply, Error>) -> Stack {
    match reply {
        Ok(Reply::Captured(stack)) => stack,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reply_has_both_stacks() {
    let mut client = client(Driver::over(Threads::new(4).with(7, 700, Ok(3), Ok(2))));
    let found = stack(client.capture(&of(7)));
    assert_eq!(found.created, Some(700));
    let kernel = found.kernel.expect("requested").expect("present");
    assert_eq!((kernel.addresses, kernel.cut), (driver::kernel_frames(7, 3), false));
    let user = found.user.expect("requested").expect("present");
    assert_eq!((user.addresses, user.cut), (driver::user_frames(7, 2), false));
    assert!(!found.own);
    assert_eq!((found.machinery, found.skipped), (2, 0), "the routine of the APC and its caller");
}

#[test]
fn only_the_requested_stacks_are_returned() {
    let mut client = client(Driver::over(Threads::new(4).with(7, 700, Ok(3), Ok(2))));
    let kernel = stack(client.capture(&Capture { flags: Flags::KERNEL, ..of(7) }));
    assert!(matches!((&kernel.kernel, &kernel.user), (Some(Ok(_)), None)), "{kernel:?}");
    let user = stack(client.capture(&Capture { flags: Flags::USER, ..of(7) }));
    assert!(matches!((&user.kernel, &user.user), (None, Some(Ok(_)))), "{user:?}");
    assert_ne!(kernel.hash, user.hash);
}

#[test]
fn missing_stacks_have_a_reason() {
    let threads = Threads::new(4).with(7, 700, Err(Missing::Nothing), Err(Missing::Faulted));
    let mut client = client(Driver::over(threads));
    let found = stack(client.capture(&of(7)));
    assert_eq!(found.kernel, Some(Err(Missing::Nothing)));
    assert_eq!(found.user, Some(Err(Missing::Faulted)));
}

#[test]
fn frames_beyond_the_space_are_marked_as_cut() {
    let mut client = client(Driver::over(Threads::new(4).with(7, 700, Ok(30), Ok(2))));
    let found = stack(client.capture(&Capture { max_frames: 9, frames_to_skip: 4, ..of(7) }));
    let kernel = found.kernel.expect("requested").expect("present");
    assert_eq!((&kernel.addresses[..], kernel.cut), (&driver::kernel_frames(7, 30)[4..12], true));
    assert_eq!(found.skipped, 4);
    let user = found.user.expect("requested").expect("present");
    assert_eq!((user.addresses, user.cut), (driver::user_frames(7, 1), true));
}

#[test]
fn all_threads_are_captured_and_ended_ones_are_reported() {
    let threads =
        Threads::new(4).with(7, 700, Ok(3), Ok(2)).hung(8, 800).ending(9, 900).with(10, 1000, Ok(1), Ok(1));
    let mut client = client(Driver::over(threads));
    // The id of the last thread has been reused by another thread.
    let requested = [(7, Some(700)), (8, None), (9, Some(900)), (11, Some(1100)), (10, Some(77))];
    let requested = requested.map(|(id, created)| Thread { id, created });
    let captures: Vec<_> = client.captures(requested, of(0)).collect();
    assert_eq!(captures.iter().map(|(thread, _)| *thread).collect::<Vec<_>>(), requested);
    let replies: Vec<_> = captures.into_iter().map(|(_, reply)| reply.expect("an answer")).collect();
    assert!(matches!(replies[0], Reply::Captured(_)));
    assert_eq!(replies[1..], [Reply::TimedOut, Reply::Terminating, Reply::NoThread, Reply::NoThread]);
}

#[test]
fn a_thread_with_a_capture_in_progress_is_busy() {
    let mut client = client(Driver::over(Threads::new(4).hung(8, 800).with(7, 700, Ok(1), Ok(1))));
    assert_eq!(client.capture(&of(8)), Ok(Reply::TimedOut));
    let error = client.capture(&of(8)).expect_err("the first capture is still in progress");
    assert_eq!(error, Error::Busy { attempts: 3 });
    stack(client.capture(&of(7)));
}

#[test]
fn invalid_requests_are_not_sent() {
    let mut client = client(Driver::over(Threads::new(4).with(7, 700, Ok(1), Ok(1))));
    for (capture, expected) in [
        (Capture { max_frames: 1, ..of(7) }, RequestError::Frames(1)),
        (Capture { max_frames: MAX_FRAMES + 1, ..of(7) }, RequestError::Frames(MAX_FRAMES + 1)),
        (Capture { timeout_ms: 0, ..of(7) }, RequestError::Timeout(0)),
        (Capture { flags: Flags::KEEP_MACHINERY, ..of(7) }, RequestError::Flags(4)),
        (Capture { frames_to_skip: 257, ..of(7) }, RequestError::Skip(257)),
    ] {
        assert_eq!(client.capture(&capture), Err(Error::Request(expected)));
    }
    stack(client.capture(&of(7)));
}
