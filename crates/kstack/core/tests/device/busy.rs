//! The limit of captures in progress.

use stackhound_kstack_core::{Refusal, ThreadRelation};

use crate::support::{Mock, Reaction, Settings, Thread, all_late, check_call, request, thread};

const OUTCOME: usize = 32;
const TIMED_OUT: u8 = 3;

fn with_late_threads(reaction: Reaction) -> Mock {
    let mut threads = all_late(70);
    threads.iter_mut().for_each(|thread| thread.reaction = reaction);
    threads.push(Thread { relation: ThreadRelation::Own, ..thread(80) });
    threads.push(Thread { relation: ThreadRelation::Idle, ..thread(81) });
    threads.push(Thread { reaction: Reaction::EndsAtOnce, ..thread(82) });
    threads.push(thread(83));
    Mock::new(Settings { can_remove: false, ..Settings::DRIVER }, threads)
}

fn ask(mock: &Mock, thread: usize) -> Result<u8, Refusal> {
    check_call(mock, &request(&mock.threads[thread], |_| {})).map(|answer| answer[OUTCOME])
}

#[test]
fn the_65th_capture_is_one_too_many() {
    for reaction in [Reaction::Late, Reaction::EndsLate, Reaction::Slow] {
        let mock = with_late_threads(reaction);
        for thread in 0..64 {
            assert_eq!(mock.outstanding(), thread);
            assert_eq!(ask(&mock, thread), Ok(TIMED_OUT));
        }
        for thread in [64, 65, 69, 70, 73, 0, 63] {
            assert_eq!(ask(&mock, thread), Err(Refusal::Busy), "thread {thread}");
        }
        // Idle threads are known before the capture; that a thread terminates is only detected when
        // an APC is queued.
        assert_eq!((ask(&mock, 71), ask(&mock, 72)), (Ok(4), Err(Refusal::Busy)));
        // One capture ends, so one more may start, for any thread whose capture is not in progress.
        mock.end_one(17);
        assert_eq!(ask(&mock, 0), Err(Refusal::Busy));
        assert_eq!(ask(&mock, 73), Ok(0));
        assert_eq!(ask(&mock, 17), Ok(TIMED_OUT));
        assert_eq!(ask(&mock, 64), Err(Refusal::Busy));
        while mock.outstanding() > 0 {
            mock.end_one(0);
        }
        mock.check();
        assert_eq!((ask(&mock, 70), ask(&mock, 73), ask(&mock, 64)), (Ok(0), Ok(0), Ok(TIMED_OUT)));
    }
}

#[test]
fn a_thread_is_captured_once_at_a_time() {
    let mock = with_late_threads(Reaction::Late);
    for _ in 0..100 {
        assert_eq!(ask(&mock, 5), Ok(TIMED_OUT));
        assert_eq!(ask(&mock, 5), Err(Refusal::Busy));
        assert_eq!(ask(&mock, 6), Ok(TIMED_OUT));
        mock.end_one(0);
        assert_eq!(ask(&mock, 6), Err(Refusal::Busy));
        mock.end_one(0);
    }
}

#[test]
fn no_capture_stays_in_progress_if_apcs_can_be_removed() {
    for reaction in [Reaction::Late, Reaction::EndsLate] {
        let mut mock = with_late_threads(reaction);
        mock.settings.can_remove = true;
        for round in 0..200 {
            assert_eq!(ask(&mock, round % 70), Ok(TIMED_OUT));
            assert_eq!(mock.outstanding(), 0);
        }
    }
}
