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

use std::sync::Arc;

use crate::layout::Table;
use crate::rows::Rows;

pub(crate) use events::{EventChunk, Events};
pub(crate) use findings::{Alerts, Findings};
pub(crate) use losses::{Losses, file_name};
pub(crate) use stacks::Stacks;
pub(crate) use state::{ProcessUids, State};
pub(crate) use traces::{TraceRow, Traces};

/// Version of the tables. It is raised if a column is removed or renamed, or if its type or meaning
/// changes, but not if a column is added.
pub const VERSION: u32 = 1;

/// The number of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TableId {
    Events,
    Stacks,
    Frames,
    Modules,
    Symbols,
    Processes,
    Threads,
    Regions,
    Findings,
    Alerts,
    Losses,
    Traces,
}

/// The names of all tables, in the order of [`all`].
pub(crate) const TABLES: [&str; 12] = [
    "events",
    "stacks",
    "frames",
    "modules",
    "symbols",
    "processes",
    "threads",
    "regions",
    "findings",
    "alerts",
    "losses",
    "traces",
];

/// All tables. That of traces is the last one: its file is complete only if all others are.
pub fn all() -> Vec<Table> {
    vec![
        events::table().0,
        stacks::stacks_table().0,
        stacks::frames_table().0,
        state::modules_table().0,
        symbols::table().0,
        state::processes_table().0,
        state::threads_table().0,
        state::regions_table().0,
        findings::findings_table().0,
        findings::alerts_table().0,
        losses::table().0,
        traces::table().0,
    ]
}

/// A table whose rows are being made.
#[derive(Debug)]
pub(crate) struct Pending<C> {
    table: Arc<Table>,
    columns: C,
    rows: Rows,
    trace: u64,
}

impl<C> Pending<C> {
    fn new((table, columns): (Table, C), trace: u64) -> Pending<C> {
        Pending { rows: Rows::of(&table, trace), table: Arc::new(table), columns, trace }
    }

    /// Whether the rows should be written.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX
    }

    /// The rows since the last call.
    pub fn take(&mut self) -> Rows {
        std::mem::replace(&mut self.rows, Rows::of(&self.table, self.trace))
    }
}

/// The rows that are written at once.
const ROWS_MAX: usize = 1 << 14;
