//! `stacks`: the most frequent call stacks, by kind of event.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Result;
use serde::{Serialize, Serializer};
use stackhound::symbols::{AddressKind, ResolvedFrame};
use stackhound::system::ModuleId;
use stackhound::trace::Trace;
use stackhound::{Address, Depth, Frame, Mode, Pipeline, Seen};

use crate::Outcome;
use crate::args::{Common, StackFormat, Stacks};
use crate::filter::EventFilter;
use crate::frame::{self, mode_name};
use crate::output::{Sink, grouped};
use crate::progress::Progress;
use crate::render;

/// One stack of one process, as it is shown. Addresses mean different modules in different processes.
#[derive(Clone, Debug, Serialize)]
struct StackRow {
    count: u64,
    process: Option<String>,
    state: &'static str,
    frames: Vec<FrameRow>,
}

/// A frame, and what it is called once that is known.
#[derive(Clone, Debug)]
struct FrameRow {
    address: Address,
    mode: Mode,
    kind: AddressKind,
    depth: Depth,
    module: Option<(ModuleId, u64)>,
    module_name: Option<String>,
    names: Option<ResolvedFrame>,
}

impl FrameRow {
    fn new(frame: &Frame<'_>) -> FrameRow {
        let module = frame.module().map(|module| module.id()).zip(frame.rva());
        let (address, mode, kind, depth) = (frame.address, frame.mode, frame.kind, frame.depth());
        FrameRow { address, mode, kind, depth, module, module_name: None, names: None }
    }

    /// Its function's name, else module and offset, else its address.
    fn function(&self) -> String {
        match (&self.module_name, &self.names) {
            (Some(module), Some(names)) if names.best().is_some() => {
                frame::Function { module, names }.to_string()
            }
            _ => self.place().to_string(),
        }
    }

    fn place(&self) -> frame::Place<'_> {
        let (address, mode, rva) = (self.address, self.mode, self.module.map(|(_, rva)| rva));
        frame::Place { address, mode, module: self.module_name.as_deref(), rva }
    }
}

impl Serialize for FrameRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        frame::Json { place: self.place(), names: self.names.as_ref() }.serialize(serializer)
    }
}

/// The stacks of one kind of event.
#[derive(Debug, Serialize)]
struct Kind {
    event: String,
    events: u64,
    with_stack: u64,
    distinct: usize,
    stacks: Vec<StackRow>,
}

/// What makes two stacks of one kind of event the same row.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct Same {
    stack: usize,
    pid: Option<u32>,
    state: u8,
}

#[derive(Default)]
struct Collected {
    events: u64,
    with_stack: u64,
    rows: HashMap<Same, StackRow>,
}

pub fn run(arguments: &Stacks, common: &Common) -> Result<Outcome> {
    let trace = Trace::files(arguments.inputs.files.clone()).threads(crate::threads(common)).open()?;
    let filter = EventFilter::new(&arguments.filters, &trace)?;
    let mut pipeline = Pipeline::new(&trace, arguments.reading.passes());
    let bytes = trace.sources().iter().map(|source| source.recording.size()).sum();
    let mut progress = Progress::new(common, bytes);
    let mut kinds: HashMap<String, Collected> = HashMap::new();
    let outcome = pipeline.run(|seen| {
        progress.tick();
        if filter.is_past(seen) {
            return ControlFlow::Break(());
        }
        if filter.wants(seen) {
            collect(&mut kinds, seen);
        }
        ControlFlow::Continue(())
    });
    progress.finish(&render::losses(&outcome));
    let mut kinds: Vec<Kind> = kinds
        .into_iter()
        .filter(|(_, found)| found.with_stack > 0)
        .map(|(event, found)| kind(event, found))
        .collect();
    kinds.sort_by(|a, b| b.with_stack.cmp(&a.with_stack).then_with(|| a.event.cmp(&b.event)));
    if arguments.format != StackFormat::Folded {
        kinds.iter_mut().for_each(|kind| kind.stacks.truncate(arguments.top));
    }
    let frames = kinds.iter_mut().flat_map(|kind| &mut kind.stacks).flat_map(|row| &mut row.frames);
    name(&mut pipeline, &mut frames.collect::<Vec<_>>());
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match arguments.format {
        StackFormat::Table => table(&mut sink, &kinds)?,
        StackFormat::Folded => folded(&mut sink, &kinds)?,
        StackFormat::Json => sink.json(&serde_json::json!({ "kinds": kinds }))?,
    }
    sink.finish()?;
    Ok(Outcome { damaged: !outcome.trace.damage.is_empty() })
}

fn collect(kinds: &mut HashMap<String, Collected>, seen: &Seen<'_>) {
    let name = seen.name();
    let kind = match kinds.get_mut(&*name) {
        Some(kind) => kind,
        None => kinds.entry(name.into_owned()).or_default(),
    };
    kind.events += 1;
    let Some(stack) = seen.stack() else { return };
    kind.with_stack += 1;
    let same = Same { stack: stack.index(), pid: seen.pid().map(|pid| pid.0), state: seen.state() as u8 };
    let row = kind.rows.entry(same).or_insert_with(|| StackRow {
        count: 0,
        process: seen.process_name().map(str::to_owned),
        state: seen.state().name(),
        frames: seen.frames().map(|frame| FrameRow::new(&frame)).collect(),
    });
    row.count += 1;
}

/// Puts the rows of a kind in order: most frequent first, then by their frames.
fn kind(event: String, found: Collected) -> Kind {
    let mut stacks: Vec<StackRow> = found.rows.into_values().collect();
    stacks.sort_by(|a, b| {
        let addresses = |row: &'_ StackRow| row.frames.iter().map(|frame| frame.address).collect::<Vec<_>>();
        let by_frames = || addresses(a).cmp(&addresses(b));
        b.count.cmp(&a.count).then_with(|| a.process.cmp(&b.process)).then_with(by_frames)
    });
    Kind { event, events: found.events, with_stack: found.with_stack, distinct: stacks.len(), stacks }
}

/// Gives the frames that will be shown their names; all modules are asked at once.
fn name(pipeline: &mut Pipeline<'_>, frames: &mut [&mut FrameRow]) {
    let (known, mut naming) = pipeline.parts();
    let mut numbers = Vec::with_capacity(frames.len());
    for frame in &mut *frames {
        let Some((module, rva)) = frame.module else {
            numbers.push(None);
            continue;
        };
        let module = known.system().module(module);
        frame.module_name = Some(module.file_name().to_owned());
        let naming = naming.as_mut().filter(|_| frame.depth == Depth::Function);
        numbers.push(naming.and_then(|naming| naming.request(module, rva, frame.kind)));
    }
    let Some(naming) = naming else { return };
    for (frame, number) in frames.iter_mut().zip(numbers) {
        let Some(number) = number else { continue };
        naming.wait(number);
        frame.names = naming.frame(number).cloned();
    }
}

fn table(out: &mut impl Write, kinds: &[Kind]) -> Result<()> {
    for (index, kind) in kinds.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{}: {} events, {} with a stack, {} distinct",
            kind.event,
            grouped(kind.events),
            grouped(kind.with_stack),
            grouped(kind.distinct as u64)
        )?;
        for row in &kind.stacks {
            let share = 100.0 * row.count as f64 / kind.with_stack as f64;
            let process = row.process.as_deref().unwrap_or("-");
            writeln!(out, "  {:>8} {share:>5.1} %  {process} [{}]", grouped(row.count), row.state)?;
            for frame in &row.frames {
                let text = frame::Text { place: frame.place(), names: frame.names.as_ref() };
                writeln!(out, "    {:<6} {text}", mode_name(frame.mode))?;
            }
        }
    }
    Ok(())
}

/// One line a stack: process, event and frames from the outermost in, then the count. Equal lines are added up.
fn folded(out: &mut impl Write, kinds: &[Kind]) -> Result<()> {
    let mut lines = std::collections::BTreeMap::<String, u64>::new();
    for kind in kinds {
        for row in &kind.stacks {
            let mut line = row.process.as_deref().unwrap_or("-").to_owned();
            for frame in row.frames.iter().rev() {
                // A semicolon separates frames; module names may contain one.
                write!(line, ";{}", frame.function().replace(';', ":"))?;
            }
            write!(line, ";{}", kind.event)?;
            *lines.entry(line).or_default() += row.count;
        }
    }
    for (line, count) in lines {
        writeln!(out, "{line} {count}")?;
    }
    Ok(())
}
