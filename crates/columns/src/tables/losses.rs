//! What is missing from a trace.

use stackhound_pipeline::Outcome;
use stackhound_trace::OpenTrace;

use super::{Pending, TableId};
use crate::rows::Rows;

columns! {
    pub(super) Columns {
        /// `events-lost` and `buffers-lost`, as Windows counted them; `buffers-missing`, by their numbers;
        /// `events-out-of-order`; `damage`.
        kind: text required,
        /// Number of events or buffers; 1 for damage.
        count: number required UInt64,
        /// For damage: the name of the file.
        file: text optional,
        /// For damage: its offset in the file.
        offset: number optional UInt64,
        /// For damage: the number of skipped bytes.
        bytes: number optional UInt64,
        /// For damage: its reason.
        reason: text optional,
    }
}

/// The rows of losses.
#[derive(Debug)]
pub(crate) struct Losses;

impl Losses {
    /// The losses and damage that a run found.
    pub fn rows(opened: &OpenTrace, outcome: &Outcome, trace: u64) -> Rows {
        let Pending { mut rows, columns: c, .. } = Pending::new(TableId::Losses, Columns::of, trace);
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
