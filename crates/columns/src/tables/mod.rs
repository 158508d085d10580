//! The tables: their columns, and how their rows are made.
//!
//! `docs/schema/tables/1.md` is generated from this module.

mod events;
mod findings;
mod losses;
mod stacks;
mod state;
mod symbols;
mod traces;

use crate::layout::Table;
use crate::rows::Rows;

pub(crate) use events::{EventChunk, EventParts, Events};
pub(crate) use findings::{Alerts, Findings};
pub(crate) use losses::{Losses, file_name};
pub(crate) use stacks::Stacks;
pub(crate) use state::{ProcessUids, State};
pub(crate) use symbols::{Named, Place, Symbols};
pub(crate) use traces::{TraceRow, Traces};

/// Version of the tables. It is raised if a column is removed or renamed, or if its type or meaning
/// changes, but not if a column is added.
pub const VERSION: u32 = 1;

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TableId {
    /// The events.
    Events,
    /// Distinct stacks.
    Stacks,
    /// Their frames.
    Frames,
    /// Distinct images.
    Modules,
    /// Names of offsets in them.
    Symbols,
    /// Processes.
    Processes,
    /// Threads.
    Threads,
    /// Their memory.
    Regions,
    /// Findings of detections.
    Findings,
    /// Alerts of findings.
    Alerts,
    /// Losses and damage.
    Losses,
    /// The traces themselves.
    Traces,
}

impl TableId {
    /// All tables. That of traces is the last one: its file is complete only if all others are.
    pub const ALL: [TableId; 12] = [
        TableId::Events,
        TableId::Stacks,
        TableId::Frames,
        TableId::Modules,
        TableId::Symbols,
        TableId::Processes,
        TableId::Threads,
        TableId::Regions,
        TableId::Findings,
        TableId::Alerts,
        TableId::Losses,
        TableId::Traces,
    ];

    /// The name, which is that of its folder.
    pub fn name(self) -> &'static str {
        match self {
            TableId::Events => "events",
            TableId::Stacks => "stacks",
            TableId::Frames => "frames",
            TableId::Modules => "modules",
            TableId::Symbols => "symbols",
            TableId::Processes => "processes",
            TableId::Threads => "threads",
            TableId::Regions => "regions",
            TableId::Findings => "findings",
            TableId::Alerts => "alerts",
            TableId::Losses => "losses",
            TableId::Traces => "traces",
        }
    }

    /// Its columns.
    pub fn table(self) -> Table {
        match self {
            TableId::Events => events::table().0,
            TableId::Stacks => stacks::stacks_table().0,
            TableId::Frames => stacks::frames_table().0,
            TableId::Modules => state::modules_table().0,
            TableId::Symbols => symbols::table().0,
            TableId::Processes => state::processes_table().0,
            TableId::Threads => state::threads_table().0,
            TableId::Regions => state::regions_table().0,
            TableId::Findings => findings::findings_table().0,
            TableId::Alerts => findings::alerts_table().0,
            TableId::Losses => losses::table().0,
            TableId::Traces => traces::table().0,
        }
    }
}

/// A table whose rows are being made.
#[derive(Debug)]
pub(crate) struct Pending<C> {
    columns: C,
    rows: Rows,
}

impl<C> Pending<C> {
    fn new((table, columns): (Table, C), trace: u64) -> Pending<C> {
        Pending { rows: Rows::of(&table, trace), columns }
    }

    /// Whether the rows should be written.
    pub fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    /// The rows since the last call.
    pub fn take(&mut self) -> Rows {
        let next = self.rows.next();
        std::mem::replace(&mut self.rows, next)
    }
}
