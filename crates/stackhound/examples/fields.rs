//! The share of events that have each fact of the state, as a Markdown table with one row for each
//! trace.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use stackhound::trace::TraceFiles;
use stackhound::{EventView, Fact, MissingCounts, Passes, Pipeline};

/// Whether an event can have a fact.
type HasFact = fn(&EventView<'_>) -> bool;

/// The columns: a fact, and the events that can have it.
const COLUMNS: [(&str, HasFact); 14] = [
    ("process.name", |_| true),
    ("process.path", |_| true),
    ("process.command_line", |_| true),
    ("process.parent.pid", |_| true),
    ("process.parent.name", |_| true),
    ("process.user", |_| true),
    ("process.session", |_| true),
    ("process.integrity", |_| true),
    ("process.start_time", |_| true),
    ("process.image.time_date_stamp", |_| true),
    ("thread.start_module", |_| true),
    ("file.path", |view| view.is_about_file()),
    ("registry.path", |view| view.is_about_registry()),
    ("target.process.path", |view| view.target().is_some_and(|target| target.pid().is_some())),
];

#[derive(Clone, Copy, Default)]
struct Column {
    events: u64,
    known: u64,
    missing: MissingCounts,
}

fn main() -> Result<(), Box<dyn Error>> {
    print!("| trace | events |");
    COLUMNS.iter().for_each(|(name, _)| print!(" {name} |"));
    println!(" missing |\n|---|--:|{}---|", "--:|".repeat(COLUMNS.len()));
    for path in std::env::args().skip(1) {
        let trace = TraceFiles::file(&path).open()?;
        let mut columns = [Column::default(); COLUMNS.len()];
        let mut events = 0_u64;
        Pipeline::new(&trace, Passes::Two).run(|view| {
            events += 1;
            for (column, (name, applies)) in columns.iter_mut().zip(COLUMNS) {
                let Some(fact) = Fact::of(name).filter(|_| applies(view)) else { continue };
                column.events += 1;
                match fact.value(view) {
                    Ok(_) => column.known += 1,
                    Err(reason) => column.missing.add(reason),
                }
            }
            ControlFlow::Continue(())
        });
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy();
        print!("| {} | {events} |", name.trim_end_matches(".zst"));
        for Column { events, known, .. } in columns {
            match events {
                0 => print!(" – |"),
                _ => print!(" {} % |", known * 100 / events),
            }
        }
        // The reasons of the path of the process.
        println!(" {} |", columns[1].missing);
    }
    Ok(())
}
