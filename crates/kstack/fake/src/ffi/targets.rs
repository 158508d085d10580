//! The threads whose stacks are captured: each behaves in a known way.

use std::hint::black_box;
use std::sync::{Condvar, Mutex, Once, OnceLock, mpsc};
use std::time::Duration;

use windows_sys::Win32::System::Threading::GetCurrentThreadId;

use super::log::log;
use super::{apc, walk};
use crate::report::{Behaviour, CHAIN, DISPATCHER, Report};
use crate::settings::Settings;

/// How long a thread that exits lets the driver wait.
const BEFORE_EXIT: Duration = Duration::from_millis(50);
/// How often the settings are looked at for deaf threads.
const LOOK: Duration = Duration::from_millis(10);

static TARGETS: OnceLock<Vec<(Behaviour, u32)>> = OnceLock::new();

/// What the threads wait for: that an APC is queued, or that [`Settings::wakes`] changes, which is kept here.
struct News {
    wakes: Mutex<u32>,
    came: Condvar,
}

static NEWS: News = News { wakes: Mutex::new(0), came: Condvar::new() };

impl News {
    fn tell(&self, change: impl FnOnce(&mut u32)) {
        change(&mut self.wakes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.came.notify_all();
    }

    /// Waits while what is known `bores`.
    fn wait(&self, bores: impl Fn(u32) -> bool) -> u32 {
        let mut wakes = self.wakes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while bores(*wakes) {
            wakes = self.came.wait(wakes).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *wakes
    }
}

/// How a thread behaves, if it is one of these.
pub(super) fn behaviour(tid: u32) -> Option<Behaviour> {
    TARGETS.get()?.iter().find(|&&(_, target)| target == tid).map(|&(behaviour, _)| behaviour)
}

/// Whether APCs can be queued to a thread.
pub(super) fn takes(tid: u32) -> bool {
    behaviour(tid).is_some_and(|behaviour| behaviour != Behaviour::Refuses)
}

/// Waits until [`Settings::wakes`] changes.
pub(super) fn await_wake() {
    let seen = NEWS.wait(|_| false);
    NEWS.wait(|wakes| wakes == seen);
}

/// An APC was queued.
pub(super) fn news() {
    NEWS.tell(|_| {});
}

/// Makes the threads and reports them, once.
pub(super) fn make() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (send, numbers) = mpsc::channel();
        let all = Behaviour::ALL
            .into_iter()
            .flat_map(|behaviour| std::iter::repeat_n(behaviour, behaviour.threads()));
        for behaviour in all {
            let send = send.clone();
            std::thread::spawn(move || {
                // SAFETY: no pointers.
                let tid = unsafe { GetCurrentThreadId() };
                let _ = send.send((behaviour, tid));
                live(behaviour, tid);
                apc::run_down();
            });
        }
        drop(send);
        let targets: Vec<_> = numbers.iter().take(Behaviour::ALL.iter().map(|b| b.threads()).sum()).collect();
        let report = Report {
            process: std::process::id(),
            threads: targets.iter().map(|(behaviour, tid)| (behaviour.name().to_owned(), *tid)).collect(),
            functions: functions(),
        };
        let _ = TARGETS.set(targets);
        let _ = std::fs::write(Report::path(), report.to_string());
        std::thread::spawn(|| {
            loop {
                let wakes = Settings::current().wakes;
                NEWS.tell(|known| *known = wakes);
                std::thread::sleep(LOOK);
            }
        });
    });
}

fn live(behaviour: Behaviour, tid: u32) {
    match behaviour {
        Behaviour::Waits | Behaviour::System | Behaviour::Ending => {
            black_box(start(tid));
        }
        Behaviour::Exits => {
            let seen = NEWS.wait(|_| !apc::is_queued(tid));
            if Settings::current().exits_when_woken {
                log(format_args!("{tid} exits when woken"));
                NEWS.wait(|wakes| wakes == seen);
            } else {
                std::thread::sleep(BEFORE_EXIT);
            }
        }
        Behaviour::Deaf | Behaviour::Refuses => {
            let mut seen = 0;
            loop {
                seen = NEWS.wait(|wakes| wakes == seen);
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

// The chain of a waiting thread, the outermost first. Each has something left to do behind its call, so that
// it stays on the stack.

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
        NEWS.wait(|_| !apc::is_queued(tid));
        apc::deliver();
    }
    tid
}
