//! Page faults: hard faults, which read pages from a disk, with their times and bytes by file; and
//! the numbers of other faults.
//!
//! A hard fault is logged when its pages are read, and states when it began. Only its payload states
//! its thread.

use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::kernel::hook_id;
use stackhound_types::RawTime;

use super::{Column, Figures, Key, MAX, Measure, Metric, Observations, bytes, count, file_label, ticks};
use crate::fields::{self, number};

const HARD: usize = 1;
const BYTES: usize = 2;
const SOFT: usize = 3;

pub(super) const METRIC: Metric =
    Metric { name: "fault", columns: COLUMNS, dimensions: &["file", "kind"], start: || Box::new(Faults) };

const COLUMNS: &[Column] = &[
    ticks("duration", 0),
    count("hard_faults", HARD),
    bytes("bytes", BYTES),
    count("soft_faults", SOFT),
    ticks("max", MAX),
];

/// Faults without a transfer, with their names.
const SOFT_FAULTS: [(u16, &str); 5] = [
    (hook_id::PAGE_FAULT_TRANSITION_FAULT, "transition"),
    (hook_id::PAGE_FAULT_DEMAND_ZERO_FAULT, "demand zero"),
    (hook_id::PAGE_FAULT_COPY_ON_WRITE, "copy on write"),
    (hook_id::PAGE_FAULT_GUARD_PAGE_FAULT, "guard page"),
    (hook_id::PAGE_FAULT_ACCESS_VIOLATION, "access violation"),
];

#[derive(Debug)]
struct Faults;

impl Measure for Faults {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let Some(id) = view.kernel_id().filter(|id| id >> 8 == 0x02) else { return Ok(()) };
        let (now, window) = (view.time(), out.window);
        let is_counted = window.contains(now);
        if let Some((_, name)) = SOFT_FAULTS.iter().find(|(hook_id, _)| *hook_id == id) {
            if out.is_repeated(view) {
                return Ok(());
            }
            out.events += 1;
            if is_counted && wanted() {
                let (thread, stack) = out.actor(view)?;
                let labels = [out.label("[no file: soft fault]"), out.label(name)];
                out.add(Key { thread, stack, labels }, Figures::default().with(SOFT, 1));
            }
            return Ok(());
        }
        if id != hook_id::PAGE_FAULT_HARD_FAULT {
            return Ok(());
        }
        if out.is_repeated(view) {
            return Ok(());
        }
        out.events += 1;
        let started = view.field("InitialTime").and_then(|(_, value)| match value {
            stackhound_schema::Value::RawTime(time) => Some(time),
            value => value.as_i64().map(RawTime),
        });
        let is_possible = |raw: RawTime, from| raw.0 > 0 && out.can_start(from, now);
        let from = started.map(|raw| (raw, out.trace_time(view, raw)));
        let possible = from.filter(|&(raw, from)| is_possible(raw, from)).map(|(_, from)| from);
        let time = window.overlap(possible.unwrap_or(now), now);
        if (!is_counted && time == 0) || !wanted() {
            return Ok(());
        }
        let tid = fields::tid(view, "TThreadId");
        let (process, thread) = match tid {
            Some(tid) => out.parts.thread(view, tid)?,
            None => out.parts.thread_of(view)?,
        };
        let stack = out.stack(view, process)?;
        let labels = [file_label(view, out), out.label("hard")];
        let mut figures = Figures::lasting(time);
        if is_counted {
            if from.is_some() && possible.is_none() {
                out.remain("faults whose start contradicts other events: no duration", 0);
            }
            figures = figures.with(HARD, 1).with(BYTES, number(view, "ByteCount").unwrap_or(0));
        }
        out.add(Key { thread, stack, labels }, figures);
        Ok(())
    }
}
