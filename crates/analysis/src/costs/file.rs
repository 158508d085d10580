//! Operations of file systems: their numbers, bytes and durations, by file.
//!
//! The beginning of an operation is joined with its end by the address of its I/O request packet. An
//! operation counts where it begins; without a known end, it has no duration. Paging transfers, which
//! the memory manager makes for cached and mapped files, repeat bytes of other operations and are in
//! no row.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::kernel::hook_id;
use stackhound_trace::TraceTime;

use super::{
    Column, Figures, Key, MAX, Measure, Metric, OPEN_MAX, Observations, bytes, count, file_label, ticks,
};
use crate::fields::{self, number};
use crate::loss::is_lost;

const OPERATIONS: usize = 1;
const OPENS: usize = 2;
const READS: usize = 3;
const READ: usize = 4;
const WRITES: usize = 5;
const WRITTEN: usize = 6;
const TRANSFERRED: usize = 7;
const FAILED: usize = 8;

pub(super) const METRIC: Metric = Metric {
    name: "file",
    columns: COLUMNS,
    dimensions: &["file", "operation"],
    start: || Box::new(Files::default()),
};

const COLUMNS: &[Column] = &[
    ticks("duration", 0),
    count("operations", OPERATIONS),
    count("opens", OPENS),
    count("reads", READS),
    bytes("read_bytes", READ),
    count("writes", WRITES),
    bytes("written_bytes", WRITTEN),
    bytes("transferred_bytes", TRANSFERRED),
    count("failed", FAILED),
    ticks("max", MAX),
];

/// The flag of paging transfers, `IRP_PAGING_IO`.
const PAGING: u64 = 2;

/// The operations, with their names.
const NAMES: [(u16, &str); 17] = [
    (hook_id::FILE_IO_CREATE, "open"),
    (hook_id::FILE_IO_CREATE_NEW, "open"),
    (hook_id::FILE_IO_CLEANUP, "cleanup"),
    (hook_id::FILE_IO_CLOSE, "close"),
    (hook_id::FILE_IO_READ, "read"),
    (hook_id::FILE_IO_WRITE, "write"),
    (hook_id::FILE_IO_SET_INFO, "set information"),
    (hook_id::FILE_IO_DELETE, "delete"),
    (hook_id::FILE_IO_RENAME, "rename"),
    (hook_id::FILE_IO_DIR_ENUM, "enumerate directory"),
    (hook_id::FILE_IO_FLUSH, "flush"),
    (hook_id::FILE_IO_QUERY_INFO, "query information"),
    (hook_id::FILE_IO_FS_CONTROL, "control file system"),
    (hook_id::FILE_IO_DIR_NOTIFY, "watch directory"),
    (hook_id::FILE_IO_SET_LINK, "set link"),
    (hook_id::FILE_IO_QUERY_SECURITY, "query security"),
    (hook_id::FILE_IO_QUERY_EA, "query extended attributes"),
];

/// Whether an event begins an operation.
pub(super) fn is_operation(id: u16) -> bool {
    NAMES.iter().any(|(hook_id, _)| *hook_id == id)
}

/// An operation that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    time: TraceTime,
    source: u16,
    /// `None` if the operation does not count.
    key: Option<Key>,
    is_transfer: bool,
}

#[derive(Debug, Default)]
struct Files {
    /// By the address of the I/O request packet.
    begun: FxHashMap<u64, Begun>,
}

impl Files {
    fn begin(
        &mut self,
        view: &EventView<'_>,
        (id, name): (u16, &str),
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let Some(irp) = number(view, "IrpPtr") else { return Ok(()) };
        let (is_read, is_write) = (id == hook_id::FILE_IO_READ, id == hook_id::FILE_IO_WRITE);
        let is_transfer = is_read || is_write;
        let is_counted = out.window.contains(view.time());
        let size = number(view, "IoSize").filter(|_| is_transfer && is_counted).unwrap_or(0);
        let is_paging = is_transfer && number(view, "IoFlags").is_some_and(|flags| flags & PAGING != 0);
        let mut key = None;
        if is_paging && is_counted && wanted() {
            out.remain("paging transfers, which repeat bytes of other operations", 0);
        } else if !is_paging && wanted() {
            let stated = fields::tid(view, "TTID");
            let (process, thread) = match view.tid().or(stated) {
                Some(tid) => out.parts.thread(view, tid)?,
                None => out.parts.thread_of(view)?,
            };
            let stack = out.stack(view, process)?;
            let labels = [file_label(view, out), out.label(name)];
            let owner = Key { thread, stack, labels };
            if is_counted {
                let mut figures = Figures::default().with(OPERATIONS, 1);
                figures = match () {
                    () if is_read => figures.with(READS, 1).with(READ, size),
                    () if is_write => figures.with(WRITES, 1).with(WRITTEN, size),
                    () if name == "open" => figures.with(OPENS, 1),
                    () => figures,
                };
                out.add(owner, figures);
            }
            key = Some(owner);
        }
        if self.begun.len() >= OPEN_MAX {
            self.end(out);
        }
        let begun = Begun { time: view.time(), source: view.event().source(), key, is_transfer };
        if let Some(replaced) = self.begun.insert(irp, begun) {
            replaced.remain(out);
        }
        Ok(())
    }

    fn finish(&mut self, view: &EventView<'_>, out: &mut Observations, wanted: &mut dyn FnMut() -> bool) {
        let now = view.time();
        let Some(begun) = number(view, "IrpPtr").and_then(|irp| self.begun.remove(&irp)) else {
            if out.window.contains(now) && wanted() {
                out.remain("ends of operations without a known beginning", 0);
            }
            return;
        };
        let Some(key) = begun.key else { return };
        // The address of a packet is used again: the beginning can be another one if records are missing.
        if is_lost(view, begun.source, begun.time) {
            return begun.remain(out);
        }
        let is_counted = out.window.contains(begun.time);
        let mut figures = Figures::lasting(out.window.overlap(begun.time, now));
        // NT_ERROR: severity 3.
        let status = number(view, "NtStatus").unwrap_or(0);
        let has_failed = status >> 30 & 3 == 3;
        if is_counted {
            figures = figures.with(FAILED, has_failed.into());
            if begun.is_transfer && !has_failed {
                figures = figures.with(TRANSFERRED, number(view, "ExtraInfo").unwrap_or(0));
            }
        }
        out.add(key, figures);
    }
}

impl Begun {
    /// Its end is not known.
    fn remain(&self, out: &mut Observations) {
        if self.key.is_some() && out.window.contains(self.time) {
            out.remain("operations without a known end: no duration", 0);
        }
    }
}

impl Measure for Files {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let Some(id) = view.kernel_id().filter(|id| id >> 8 == 0x04) else { return Ok(()) };
        if id == hook_id::FILE_IO_OPERATION_END {
            if !out.is_repeated(view) {
                self.finish(view, out, wanted);
            }
            return Ok(());
        }
        let Some(&operation) = NAMES.iter().find(|(hook_id, _)| *hook_id == id) else { return Ok(()) };
        if out.is_repeated(view) {
            return Ok(());
        }
        out.events += 1;
        self.begin(view, operation, out, wanted)
    }

    fn end(&mut self, out: &mut Observations) {
        self.begun.drain().for_each(|(_, begun)| begun.remain(out));
    }
}
