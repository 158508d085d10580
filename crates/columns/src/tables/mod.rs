//! The tables: their columns, and how their rows are made.
//!
//! `docs/schema/tables/1.md` is generated from this module.

/// The type of a column's handle, and how it is added to its table.
macro_rules! column {
    (type number $($word:ident)+) => { crate::layout::NumberColumn };
    (type text $($word:ident)+) => { crate::layout::TextColumn };
    (type shared $($word:ident)+) => { crate::layout::SharedColumn };
    (type group $columns:ident) => { $columns };
    (add $table:ident $name:expr, $doc:expr, group $columns:ident) => { $columns::of($table) };
    (add $table:ident $name:expr, $doc:expr, number $need:ident $type:ident $($storage:ident)?) => {
        $table.number(crate::layout::Column::$need($name, crate::layout::Type::$type, $doc)
            $(.stored(crate::layout::Storage::$storage))?)
    };
    (add $table:ident $name:expr, $doc:expr, $kind:ident $need:ident $($storage:ident)?) => {
        $table.$kind(crate::layout::Column::$need($name, crate::layout::Type::Text, $doc)
            $(.stored(crate::layout::Storage::$storage))?)
    };
}

/// Declares the columns of a table, with a row for each: its documentation, its name, whether it contains numbers, texts
/// or texts that rows share, whether it has a value in each row, the type of numbers, and how it is stored. A group has
/// columns of its own.
macro_rules! columns {
    ($vis:vis $columns:ident { $($(#[doc = $doc:literal])* $field:ident: $kind:ident $($word:ident)+,)+ }) => {
        #[derive(Clone, Copy, Debug)]
        $vis struct $columns {
            $($field: column!(type $kind $($word)+),)+
        }

        impl $columns {
            /// Adds the columns to a table.
            $vis fn of(table: &mut crate::layout::Table) -> $columns {
                $columns {
                    $($field: column!(add table stringify!($field), concat!($($doc),*).trim_start(), $kind $($word)+),)+
                }
            }
        }
    };
}

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
pub(crate) use state::{ProcessUids, state_rows};
pub(crate) use symbols::{Named, Place, Symbols};
pub(crate) use traces::{TraceRow, Traces};

/// Version of the tables. It is raised if a column is removed or renamed, or if its type or meaning
/// changes, but not if a column is added.
pub const VERSION: u32 = 1;

/// Declares the tables, with a row for each: what a row of it is, its name, and its columns.
macro_rules! tables {
    ($($(#[doc = $doc:literal])+ $id:ident = $name:literal $columns:path,)+) => {
        /// A table.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum TableId {
            $($(#[doc = $doc])+ $id,)+
        }

        impl TableId {
            /// All tables. That of traces is the last one: its file is complete only if all others are.
            pub const ALL: [TableId; [$($name),+].len()] = [$(TableId::$id),+];

            /// The name, which is that of its folder.
            pub fn name(self) -> &'static str {
                [$($name),+][self as usize]
            }

            fn doc(self) -> &'static str {
                [$(concat!($($doc),+)),+][self as usize].trim_start()
            }

            /// Its columns.
            pub fn table(self) -> Table {
                let mut table = self.empty();
                match self {
                    $(TableId::$id => _ = <$columns>::of(&mut table),)+
                }
                table
            }
        }
    };
}

tables! {
    /// An event, in the order of time.
    Events = "events" events::Columns,
    /// A distinct stack of a trace.
    Stacks = "stacks" stacks::StackColumns,
    /// A frame of a distinct stack of a trace.
    Frames = "frames" stacks::FrameColumns,
    /// A distinct image that processes or the kernel loaded.
    Modules = "modules" state::ModuleColumns,
    /// The names of an offset in a module, for frames of which names were found.
    Symbols = "symbols" symbols::Columns,
    /// A process of a trace.
    Processes = "processes" state::ProcessColumns,
    /// A thread of a trace.
    Threads = "threads" state::ThreadColumns,
    /// A load of an image, a mapped section, or a call that reserved or committed memory. Parts of memory can have been
    /// freed before the stated end.
    Regions = "regions" state::RegionColumns,
    /// A finding of a detection about an event.
    Findings = "findings" findings::FindingColumns,
    /// The findings about one process within a time window.
    Alerts = "alerts" findings::AlertColumns,
    /// A kind of loss or a damaged region. A trace without rows is complete.
    Losses = "losses" losses::Columns,
    /// A trace. Its row exists if and only if all its other files are complete.
    Traces = "traces" traces::Columns,
}

impl TableId {
    /// The table with the column that all have.
    fn empty(self) -> Table {
        Table::new(self.name(), self.doc())
    }
}

/// A table whose rows are being made.
#[derive(Debug)]
pub(crate) struct Pending<C> {
    columns: C,
    rows: Rows,
}

impl<C> Pending<C> {
    fn new(id: TableId, columns: fn(&mut Table) -> C, trace: u64) -> Pending<C> {
        let mut table = id.empty();
        let columns = columns(&mut table);
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
