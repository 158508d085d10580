//! The threads whose stacks are captured, each with a known behavior.

use std::hint::black_box;
use std::sync::{Condvar, Mutex, Once, OnceLock, mpsc};
use std::time::Duration;

use windows_sys::Win32::System::Threading::GetCurrentThreadId;

use super::log::log;
use super::{apc, walk};
use crate::report::{Behavior, CHAIN, DISPATCHER, Report};
use crate::settings::Settings;

/// The time for which a thread that exits lets the driver wait.
const BEFORE_EXIT: Duration = Duration::from_millis(50);
/// The interval at which the settings are read for deaf threads.
const LOOK: Duration = Duration::from_millis(10);

static TARGETS: OnceLock<Vec<(Behavior, u32)>> = OnceLock::new();

/// The event for which the threads wait: an APC is queued, or [`Settings::wakes`], which is stored
/// here, changes.
struct Signal {
    wakes: Mutex<u32>,
    changed: Condvar,
}

static SIGNAL: Signal = Signal { wakes: Mutex::new(0), changed: Condvar::new() };

impl Signal {
    fn notify(&self, change: impl FnOnce(&mut u32)) {
        change(&mut self.wakes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.changed.notify_all();
    }

    /// Waits as long as `blocked` returns true.
    fn wait(&self, blocked: impl Fn(u32) -> bool) -> u32 {
        let mut wakes = self.wakes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while blocked(*wakes) {
            wakes = self.changed.wait(wakes).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *wakes
    }
}

/// The behavior of a thread, if it is a thread of the fake.
pub(super) fn behavior(tid: u32) -> Option<Behavior> {
    TARGETS.get()?.iter().find(|&&(_, target)| target == tid).map(|&(behavior, _)| behavior)
}

/// Whether APCs can be queued to a thread.
pub(super) fn takes(tid: u32) -> bool {
    behavior(tid).is_some_and(|behavior| behavior != Behavior::Refuses)
}

/// Waits until [`Settings::wakes`] changes.
pub(super) fn await_wake() {
    let seen = SIGNAL.wait(|_| false);
    SIGNAL.wait(|wakes| wakes == seen);
}

/// Notifies the threads that an APC was queued.
pub(super) fn apc_queued() {
    SIGNAL.notify(|_| {});
}

/// Starts the threads and reports them, once.
pub(super) fn make() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (send, numbers) = mpsc::channel();
        let all =
            Behavior::ALL.into_iter().flat_map(|behavior| std::iter::repeat_n(behavior, behavior.threads()));
        for behavior in all {
            let send = send.clone();
            std::thread::spawn(move || {
                // SAFETY: no pointers.
                let tid = unsafe { GetCurrentThreadId() };
                let _ = send.send((behavior, tid));
                live(behavior, tid);
                apc::run_down();
            });
        }
        drop(send);
        let targets: Vec<_> = numbers.iter().take(Behavior::ALL.iter().map(|b| b.threads()).sum()).collect();
        let report = Report {
            process: std::process::id(),
            threads: targets.iter().map(|(behavior, tid)| (behavior.name().to_owned(), *tid)).collect(),
            functions: functions(),
        };
        let _ = TARGETS.set(targets);
        let _ = std::fs::write(Report::path(), report.to_string());
        std::thread::spawn(|| {
            loop {
                let wakes = Settings::current().wakes;
                SIGNAL.notify(|known| *known = wakes);
                std::thread::sleep(LOOK);
            }
        });
    });
}

fn live(behavior: Behavior, tid: u32) {
    match behavior {
        Behavior::Waits | Behavior::System | Behavior::Ending => {
            black_box(start(tid));
        }
        Behavior::Exits => {
            let seen = SIGNAL.wait(|_| !apc::is_queued(tid));
            if Settings::current().exits_when_woken {
                log(format_args!("{tid} exits when woken"));
                SIGNAL.wait(|wakes| wakes == seen);
            } else {
                std::thread::sleep(BEFORE_EXIT);
            }
        }
        Behavior::Deaf | Behavior::Refuses => {
            let mut seen = 0;
            loop {
                seen = SIGNAL.wait(|wakes| wakes == seen);
                apc::deliver();
            }
        }
    }
}

fn functions() -> Vec<(String, std::ops::Range<u64>)> {
    let chain = [leaf_wait as *const (), middle as *const (), outer as *const (), start as *const ()];
    let named = CHAIN.into_iter().zip(chain).chain([(DISPATCHER, apc::deliver as *const ())]);
    named.filter_map(|(name, at)| Some((name.to_owned(), walk::function(at as u64)?))).collect()
}

// The functions of a waiting thread, outermost first. Each continues after its call, so that it
// stays on the stack.

#[inline(never)]
extern "C" fn start(tid: u32) -> u32 {
    black_box(outer(black_box(tid))) + 1
}

#[inline(never)]
extern "C" fn outer(tid: u32) -> u32 {
    black_box(middle(black_box(tid))) + 2
}

#[inline(never)]
extern "C" fn middle(tid: u32) -> u32 {
    black_box(leaf_wait(black_box(tid))) + 3
}

#[inline(never)]
extern "C" fn leaf_wait(tid: u32) -> u32 {
    while black_box(tid) != 0 {
        SIGNAL.wait(|_| !apc::is_queued(tid));
        apc::deliver();
    }
    tid
}
