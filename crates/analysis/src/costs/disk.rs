//! Transfers of disks: their bytes and times, by file, and by the thread that requested them.
//!
//! A transfer is logged when it is complete, on any thread. The event of its start, `…Init`, has the
//! requesting thread and its stack; both have the address of the same I/O request packet. Without it,
//! the thread may be stated by the completion, and the stack is unknown. The event of the start also
//! states the thread, which can differ from the one that logged it.
//!
//! The I/O time of a transfer is stated: from its start to its completion. Its service time is the
//! part after the previous completion of the same disk: before that, the disk served another
//! transfer. Its busy time is the part in which no transfer that completed earlier was in progress:
//! busy times of a disk add up to the time in which it was busy, service times to at most that.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::{Full, StackId, ThreadId};
use stackhound_schema::kernel::{hook_id, is_disk_completion};
use stackhound_trace::TraceTime;
use stackhound_types::Tid;

use super::{
    Column, Figures, Key, Label, MAX, Measure, Metric, OPEN_MAX, Observations, bytes, count, file_label,
    ticks,
};
use crate::fields::{self, number};
use crate::labels::Labels;
use crate::loss::is_lost;
use crate::window::Window;

const IO_TIME: usize = 1;
const READS: usize = 2;
const READ: usize = 3;
const WRITES: usize = 4;
const WRITTEN: usize = 5;
const FLUSHES: usize = 6;
const BUSY: usize = 7;

pub(super) const METRIC: Metric = Metric {
    name: "disk",
    columns: COLUMNS,
    dimensions: &["file", "disk"],
    start: || Box::new(Disks::default()),
};

const COLUMNS: &[Column] = &[
    ticks("service_time", 0),
    ticks("io_time", IO_TIME),
    ticks("busy", BUSY),
    count("reads", READS),
    bytes("read_bytes", READ),
    count("writes", WRITES),
    bytes("written_bytes", WRITTEN),
    count("flushes", FLUSHES),
    ticks("max", MAX),
];

/// Maximum number of disks.
const DISKS_MAX: usize = 1 << 10;
/// Maximum number of a disk's last periods that transfers are compared with.
const PERIODS_MAX: usize = 1 << 12;

/// The periods in which a disk was busy, from transfers in the order of their completions.
#[derive(Debug, Default)]
struct Busy {
    /// Disjoint, in the order of time.
    periods: VecDeque<(TraceTime, TraceTime)>,
    /// Before this time, the disk counts as busy: earlier periods are forgotten.
    since: Option<TraceTime>,
}

impl Busy {
    /// Adds a transfer. Returns the time in the window by which it prolongs the busy time.
    fn add(&mut self, window: Window, from: TraceTime, until: TraceTime) -> u64 {
        let from = self.since.map_or(from, |since| since.max(from));
        let mut whole = (from, until);
        let mut added = window.overlap(from, until);
        while let Some(&(start, end)) = self.periods.back()
            && end >= from
        {
            added -= window.overlap(start.max(from), end);
            whole.0 = whole.0.min(start);
            self.periods.pop_back();
        }
        if whole.0 < whole.1 {
            self.periods.push_back(whole);
        }
        if self.periods.len() > PERIODS_MAX {
            self.since = self.periods.pop_front().map(|(_, end)| end);
        }
        added
    }
}

/// A disk that completed a transfer.
#[derive(Debug)]
struct Disk {
    label: Label,
    /// The last completion.
    completed: TraceTime,
    busy: Busy,
}

/// A transfer that has been requested.
#[derive(Clone, Copy, Debug)]
struct Request {
    time: TraceTime,
    source: u16,
    tid: Option<Tid>,
    /// Its thread and stack; `None` if it does not count.
    owner: Option<(ThreadId, StackId)>,
}

impl Request {
    /// Its completion is not known.
    fn remain(&self, out: &mut Observations) {
        if self.owner.is_some() && out.window.contains(self.time) {
            out.remain("requests without a known completion", 0);
        }
    }
}

/// The thread that requested a transfer, if the version of the event states it.
fn issuer(view: &EventView<'_>) -> Option<Tid> {
    fields::tid(view, "IssuingThreadId")
}

/// When the transfer started that is complete now; `None` if it is not stated. The duration is in
/// ticks of the performance counter, whatever the clock of the session is.
fn started(view: &EventView<'_>, out: &Observations) -> Option<TraceTime> {
    let duration = u128::from(number(view, "HighResResponseTime")?);
    let own = u128::from(out.clock.ticks_per_second());
    let duration = match u128::from(view.event().block().session().perf_freq) {
        0 => duration,
        frequency => duration * own / frequency,
    };
    Some(TraceTime(view.time().0.saturating_sub_unsigned(u64::try_from(duration).unwrap_or(u64::MAX))))
}

#[derive(Debug, Default)]
struct Disks {
    /// By the address of the I/O request packet.
    requests: FxHashMap<u64, Request>,
    /// By number.
    disks: FxHashMap<u64, Disk>,
}

impl Disks {
    fn complete(
        &mut self,
        view: &EventView<'_>,
        id: u16,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let request = number(view, "Irp").and_then(|irp| self.requests.remove(&irp));
        let Some(disk) = number(view, "DiskNumber") else { return Ok(()) };
        let now = view.time();
        let stated_start = started(view, out);
        let start = stated_start.filter(|from| out.can_start(*from, now));
        let from = start.unwrap_or(now);
        let is_full = self.disks.len() >= DISKS_MAX;
        let (label, previous, busy) = match self.disks.entry(disk) {
            Entry::Vacant(_) if is_full => (Labels::OTHERS, from, out.window.overlap(from, now)),
            entry => {
                let disk = entry.or_insert_with(|| Disk {
                    label: out.label(&disk.to_string()),
                    completed: from,
                    busy: Busy::default(),
                });
                let previous = disk.completed;
                disk.completed = now.max(previous);
                (disk.label, previous, disk.busy.add(out.window, from, now))
            }
        };
        let is_counted = out.window.contains(now);
        let io_time = out.window.overlap(from, now);
        if !is_counted && io_time == 0 {
            return Ok(());
        }
        let stated = issuer(view);
        // The address of a packet is used again: the request can be another one if records are missing.
        let request = request.filter(|request| {
            stated.is_none_or(|tid| request.tid == Some(tid)) && !is_lost(view, request.source, request.time)
        });
        // Only the request has the stack, so filters select by it.
        let (thread, stack) = match request {
            Some(Request { owner: Some(owner), .. }) => owner,
            Some(Request { owner: None, .. }) => return Ok(()),
            None if !wanted() => return Ok(()),
            None => {
                if is_counted {
                    out.remain("transfers without a known request: no stack", 0);
                }
                let (_, thread) = match stated {
                    Some(tid) => out.parts.thread(view, tid)?,
                    None => out.parts.thread_in(view, None, None)?,
                };
                (thread, out.no_stack()?)
            }
        };
        if is_counted && stated_start.is_some() && start.is_none() {
            out.remain("transfers whose start contradicts other events: no duration", 0);
        }
        let size = number(view, "TransferSize").unwrap_or(0);
        let (times, amount) = match id {
            hook_id::DISK_IO_READ | hook_id::DISK_IO_OPTICAL_READ => (READS, Some(READ)),
            hook_id::DISK_IO_WRITE | hook_id::DISK_IO_OPTICAL_WRITE => (WRITES, Some(WRITTEN)),
            _ => (FLUSHES, None),
        };
        let mut figures = Figures::lasting(out.window.overlap(from.max(previous), now))
            .with(IO_TIME, io_time)
            .with(BUSY, busy)
            .with(MAX, io_time)
            .with(times, is_counted.into());
        if let Some(column) = amount.filter(|_| is_counted) {
            figures = figures.with(column, size);
        }
        let file = if amount.is_some() { file_label(view, out) } else { out.label("[flush of the disk]") };
        out.add(Key { thread, stack, labels: [file, label] }, figures);
        Ok(())
    }
}

impl Measure for Disks {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        match view.kernel_id() {
            Some(
                hook_id::DISK_IO_READ_INIT
                | hook_id::DISK_IO_WRITE_INIT
                | hook_id::DISK_IO_FLUSH_INIT
                | hook_id::DISK_IO_OPTICAL_READ_INIT
                | hook_id::DISK_IO_OPTICAL_WRITE_INIT
                | hook_id::DISK_IO_OPTICAL_FLUSH_INIT,
            ) => {
                if out.is_repeated(view) {
                    return Ok(());
                }
                let Some(irp) = number(view, "Irp") else { return Ok(()) };
                let tid = issuer(view).or(view.tid());
                let owner = if wanted() {
                    let (caller, mut thread) = out.parts.thread_of(view)?;
                    if let Some(tid) = tid {
                        (_, thread) = out.parts.thread(view, tid)?;
                    }
                    Some((thread, out.stack(view, caller)?))
                } else {
                    None
                };
                if self.requests.len() >= OPEN_MAX {
                    self.end(out);
                }
                let request = Request { time: view.time(), source: view.event().source(), tid, owner };
                if let Some(replaced) = self.requests.insert(irp, request) {
                    replaced.remain(out);
                }
                Ok(())
            }
            Some(id) if is_disk_completion(id) => {
                if out.is_repeated(view) {
                    return Ok(());
                }
                out.events += 1;
                self.complete(view, id, out, wanted)
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Observations) {
        self.requests.drain().for_each(|(_, request)| request.remain(out));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a table of all moments.
        #[test]
        fn busy_times_add_up_to_the_union(
            lengths in prop::collection::vec((0_usize..12, 0_usize..40), 1..60),
            window in prop::option::of((0_i64..200, 0_i64..200)),
        ) {
            let window = window.map_or(Window::default(), |(from, length)| Window {
                from: Some(TraceTime(from)),
                to: Some(TraceTime(from + length)),
            });
            let (mut busy, mut is_busy, mut now) = (Busy::default(), [false; 60 * 12], 0_usize);
            for (step, length) in lengths {
                now += step;
                let from = now.saturating_sub(length);
                let time = |moment| TraceTime(i64::try_from(moment).unwrap());
                let is_new = |moment: &usize| !is_busy[*moment] && window.contains(time(*moment));
                let expected = (from..now).filter(is_new).count();
                prop_assert_eq!(busy.add(window, time(from), time(now)), expected as u64);
                is_busy[from..now].fill(true);
            }
        }
    }

    #[test]
    fn forgotten_periods_count_as_busy() {
        let mut busy = Busy::default();
        let periods = i64::try_from(PERIODS_MAX).unwrap() + 10;
        for period in 0..periods {
            let from = TraceTime(10 * period);
            assert_eq!(busy.add(Window::default(), from, TraceTime(from.0 + 1)), 1);
        }
        // Ten periods are forgotten, the last of them from 90 to 91.
        let (free, end) = (10 * periods - 91 - PERIODS_MAX as i64, TraceTime(10 * periods));
        assert_eq!(busy.add(Window::default(), TraceTime(0), end), free as u64);
    }
}
