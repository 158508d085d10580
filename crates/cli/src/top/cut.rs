//! What was cut away from a trace, as `top`, `callers` and `callees` state it.

use std::io::{self, Write};

use stackhound::cut::{CutKind, CutNote};
use stackhound::trace::OpenTrace;
use stackhound_export::escape::line;
use stackhound_export::json::top as json;

use crate::output::{grouped, message};

/// What was cut away from a capture.
#[derive(Debug)]
pub struct Cut {
    notes: Vec<CutNote>,
    /// The events without which the measurement has other results than in the whole trace.
    needs: fn(u16) -> bool,
}

impl Cut {
    /// For a measurement that needs all kernel events with these hook ids.
    pub fn of(trace: &OpenTrace, needs: fn(u16) -> bool) -> Cut {
        Cut { notes: CutNote::of(trace), needs }
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        self.notes.iter().flat_map(|note| {
            let selected = format!(
                "Cut by {}: {} of {} events were selected; use the same filter",
                note.selection,
                grouped(note.selected),
                grouped(note.events)
            );
            let missing = note.kinds.iter().filter(|kind| (self.needs)(kind.hook_id));
            let missing = missing.map(|kind| {
                let (cut, all) = (grouped(kind.events - kind.kept.min(kind.events)), grouped(kind.events));
                format!("{cut} of {all} {}", kind.name())
            });
            let missing: Vec<String> = missing.collect();
            let missing = (!missing.is_empty()).then(|| {
                format!("Cut away: {}; the results are not those of the whole trace", missing.join(", "))
            });
            std::iter::once(selected).chain(missing)
        })
    }

    /// Writes what was cut away.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.lines().try_for_each(|text| line(out, format_args!("{text}")))
    }

    /// Reports what was cut away, for formats that have no place for it.
    pub fn report(&self) {
        self.lines().for_each(|text| message(format_args!("{text}")));
    }

    /// What was cut away as JSON.
    pub fn document(&self) -> Vec<json::Cut> {
        let kind = |kind: &CutKind| json::CutKind {
            name: kind.name().into_owned(),
            events: kind.events,
            kept: kind.kept,
        };
        let notes = self.notes.iter().map(|note| json::Cut {
            selection: note.selection.clone(),
            events: note.events,
            selected: note.selected,
            needed: note.kinds.iter().filter(|kind| (self.needs)(kind.hook_id)).map(kind).collect(),
        });
        notes.collect()
    }
}
