//! What is missing from a trace.

use stackhound_pipeline::Outcome;
use stackhound_trace::OpenTrace;

use super::{Pending, TableId};
use crate::layout::{Column, NumberColumn, Table, TextColumn, Type};
use crate::rows::Rows;

#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    kind: TextColumn,
    count: NumberColumn,
    file: TextColumn,
    offset: NumberColumn,
    bytes: NumberColumn,
    reason: TextColumn,
}

pub(super) fn table() -> (Table, Columns) {
    let mut t = Table::new(
        TableId::Losses.name(),
        "A kind of loss or a damaged region. A trace without rows is complete.",
    );
    let columns = Columns {
        kind: t.text(Column::required(
            "kind",
            Type::Text,
            "`events-lost` and `buffers-lost`, as Windows counted them; `buffers-missing`, by their numbers; `events-out-of-order`; `damage`.",
        )),
        count: t.number(Column::required("count", Type::UInt64, "Number of events or buffers; 1 for damage.")),
        file: t.text(Column::optional("file", Type::Text, "For damage: the name of the file.")),
        offset: t.number(Column::optional("offset", Type::UInt64, "For damage: its offset in the file.")),
        bytes: t.number(Column::optional("bytes", Type::UInt64, "For damage: the number of skipped bytes.")),
        reason: t.text(Column::optional("reason", Type::Text, "For damage: its reason.")),
    };
    (t, columns)
}

/// The rows of losses.
#[derive(Debug)]
pub(crate) struct Losses;

impl Losses {
    /// The losses and damage that a run found.
    pub fn rows(opened: &OpenTrace, outcome: &Outcome, trace: u64) -> Rows {
        let Pending { mut rows, columns: c, .. } = Pending::new(table(), trace);
        let stats = &outcome.trace;
        let counts = [
            ("events-lost", stats.events_lost),
            ("buffers-lost", stats.buffers_lost),
            ("buffers-missing", stats.buffers_missing),
            ("events-out-of-order", stats.out_of_order),
        ];
        for (kind, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            rows.begin();
            rows.text(c.kind, kind);
            rows.number(c.count, count);
        }
        for (source, damage) in &stats.damage {
            rows.begin();
            rows.text(c.kind, "damage");
            rows.number(c.count, 1_u64);
            rows.text(c.file, &file_name(opened, *source));
            rows.number(c.offset, damage.offset);
            rows.number(c.bytes, damage.skipped);
            rows.text(c.reason, &damage.reason.to_string());
        }
        rows
    }
}

/// The name of a source without its folders, which do not belong to its content.
pub(crate) fn file_name(opened: &OpenTrace, source: u16) -> String {
    let name = opened.sources().get(usize::from(source)).map_or("", |source| &*source.name);
    name.rsplit(['/', '\\']).next().unwrap_or(name).to_owned()
}
