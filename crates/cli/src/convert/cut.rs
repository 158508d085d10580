//! `convert -o FILE.etl`: cuts a trace to the selected events, and what they need.

use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use stackhound::analysis::needed::{Choice, Need, Needed};
use stackhound::cut::{Cut, CutCounts, Pseudonyms, Selected};

use super::Arguments;
use crate::filter::{self, EventFilter};
use crate::naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{NewFile, at_end, counted, grouped};
use crate::progress::Progress;
use crate::top::costs;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let trace = super::one_capture(arguments, common)?;
    let file = NewFile::create(&arguments.output)?;
    let filter = EventFilter::new(&arguments.filters, &trace)?;
    let mut pipeline = super::pipeline(arguments, common, &trace, &filter)?;
    let mut pseudonyms = arguments.pseudonymize.then(Pseudonyms::default);
    let mut progress = Progress::of(common, &trace);
    let window = filter.window();
    let mut needed = Needed::new(window);
    let (mut selected, outcome) = Selected::by(&mut pipeline, |view, number, selected| {
        progress.tick_at(view);
        if let Some(pseudonyms) = &mut pseudonyms {
            pseudonyms.learn(view);
        }
        let choice = filter.choice(view, Needed::reads(view));
        if choice == Choice::AtOtherTime {
            selected.expect_stack(view);
        }
        needed.observe(view, number, choice, |Need { number, with_stack }| selected.need(number, with_stack));
        // Later events are counted too, so that the closing line has all.
        ControlFlow::Continue(choice == Choice::Selected)
    });
    needed.finish(|Need { number, with_stack }| selected.need(number, with_stack));
    if pseudonyms.as_ref().is_some_and(Pseudonyms::is_full) {
        bail!("the trace has more than 65,536 names of users and computers, the limit of --pseudonymize");
    }
    let known = pipeline.trace_state();
    let mut cut = Cut::of(&trace, known.losses(), &selected)?;
    let note = cut.note();
    (note.from, note.to) = (window.from, window.to);
    note.selection = filter::described(&arguments.filters);
    note.kinds.retain(|kind| costs::is_needed(kind.hook_id));
    if let Some(pseudonyms) = &mut pseudonyms {
        let selection = pseudonyms.replaced(&cut.note().selection);
        cut.note().selection = selection;
        let name = pseudonyms.replaced(cut.session_name());
        *cut.session_name() = name;
    }
    let written = cut.write(&trace, file, |event, bytes| {
        if let Some(pseudonyms) = &mut pseudonyms {
            pseudonyms.replace(known, event, bytes);
        }
        true
    });
    let (file, totals) = written.with_context(|| arguments.output.display().to_string())?;
    file.finish()?;
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    if !common.quiet {
        report(&cut.counts, totals.bytes);
        pseudonyms.iter().for_each(report_names);
    }
    Ok(Outcome { damaged: !outcome.trace.damage.is_empty(), ..Outcome::default() })
}

/// Reports the number of names, and what was searched without knowing where texts are.
fn report_names(pseudonyms: &Pseudonyms) {
    let names = counted(pseudonyms.names() as u64, "name", "names");
    let searched = match pseudonyms.undescribed() {
        0 => String::new(),
        count => {
            let records = counted(count, "record has", "records have");
            format!("; {records} no description, and all their bytes were searched")
        }
    };
    at_end(format_args!("{names} replaced by pseudonyms{searched}"));
}

/// Reports the records of the smaller trace, by the reason for which they were kept.
fn report(counts: &CutCounts, bytes: u64) {
    let CutCounts { selected, same_time, state, joined, sums, stacks, bounds, events } = *counts;
    let others = super::others(
        "also kept",
        &[
            (state, "for names and states"),
            (stacks, "of stacks"),
            (joined, "that complete calls and creates"),
            (sums, "for times and sums"),
            (same_time, "with the time of a selected event"),
            (bounds, "at the bounds of losses"),
        ],
    );
    let mib = bytes as f64 / f64::from(1 << 20);
    at_end(format_args!(
        "{} of {} kept, {mib:.1} MiB{others}",
        grouped(selected),
        counted(events, "event", "events")
    ));
}
