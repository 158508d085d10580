//! Kernel stacks out of what happens for a while: a session with context switches and their stacks.

use std::ops::ControlFlow;

use anyhow::Result;
use stackhound::Pipeline;
use stackhound::kstack::{KernelStackSource, SwitchStacks};

use super::Arguments;
use crate::inputs::Grouping;
use crate::live::{self, Live, LiveSettings, Preset, Sources};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::message;
use crate::{naming, render};

/// As of recordings that are read once, at the session's end.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, None)?;
    let schemas = arguments.reading.schemas()?;
    let settings = LiveSettings {
        preset: Some(Preset::Switches),
        buffers: None,
        session: arguments.session.clone(),
        replace: false,
        duration: Some(arguments.duration),
    };
    let grouping = Grouping { merge: false, separate: false };
    let sources =
        Sources { files: Vec::new(), grouping, live: true, attach: arguments.attach.clone(), settings };
    let Live { keeper, arrivals, .. } = Live::open(&sources, &[], true, common, false)?;
    let pipeline = Pipeline::live(arrivals, schemas).with(enrichment);
    let mut source = SwitchStacks::live(pipeline).depth(arguments.depth());
    let watch = |counted: &stackhound::Counted<'_>| {
        let trace = counted.trace();
        keeper.tell(trace.events, trace.events_dropped);
        ControlFlow::Continue(())
    };
    let outcome = source.read(|| (), watch).clone();
    let ended = keeper.finish()?;
    let stacks = source.stacks(&arguments.selection())?;
    super::write(arguments, source.time(), &stacks)?;
    if !common.quiet {
        let closing = live::closing(&outcome, &ended);
        let symbols = source.pipeline().symbol_stats();
        let stacks = render::stacks(&outcome.stacks);
        message(format_args!("{closing}{stacks}{}", render::symbols(symbols.as_ref())));
        naming::tell_missing(symbols.as_ref());
    }
    Ok(Outcome::default())
}
