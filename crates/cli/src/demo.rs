//! `demo`: a generated recording, and the main job on it, for people who have no recording at hand.
//!
//! The recording is made by a simulation and says so; what is shown is what the reader finds in it, by the same path
//! as for any other file.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use stackhound::detect::report::{Finding, SourceLocation};
use stackhound::detect::{Binaries, DetectionId, Severity};
use stackhound::hunt::HuntSession;
use stackhound::stacks::StackState;
use stackhound::symbols::file_loader;
use stackhound::symbols::temporary::{self, Temporary};
use stackhound::trace::TraceFiles;
use stackhound::{EventView, Label, Mode, Passes, Pipeline};
use stackhound_scenario::{Attack, AttackKind, Scenario, Truth};

use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{Sink, grouped};
use crate::progress::Progress;
use crate::{naming, render};

/// Arguments of `demo`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Keep the recording in this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How many events
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub events: u64,
    /// Another seed makes another recording
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Which mix of events
    #[arg(long, value_enum, default_value = "default")]
    pub mix: Mix,
}

/// Which mix of events `demo` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mix {
    /// A bit of everything
    Default,
    /// As a profiling session records: 44 % samples, 38 % provider events, 5 % stack parts. Drawn at random, for measuring: what
    /// `hunt` finds in it means nothing
    Profile,
}

/// Frames of a stack that are shown of each mode; the middle of long stacks says little.
const FRAMES_SHOWN: usize = 12;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let temporary = temporary::folder().context("cannot make a temporary directory")?;
    let folder = arguments.out.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join("stackhound-demo.etl");
    let mix = match arguments.mix {
        Mix::Default => stackhound_scenario::Mix::Default,
        Mix::Profile => stackhound_scenario::Mix::Profile,
    };
    let scenario = Scenario { events: arguments.events, seed: arguments.seed, mix };
    let truth = write(&scenario, &path)?;
    write_images(&truth, &folder.join("symbols"))?;
    let mut sink = Sink::open(None)?;
    if common.quiet {
        writeln!(sink, "{}", path.display())?;
        sink.finish()?;
        return Ok(Outcome::default());
    }
    let symbols = folder.join("symbols");
    let found = read(&path, &truth, &symbols, common)?;
    show(&mut sink, &truth, &found)?;
    show_hunt(&mut sink, &found.hunted, arguments.mix)?;
    if arguments.out.is_some() {
        let (path, symbols) = (path.display(), symbols.display());
        writeln!(sink, "\nThe recording is {path}. Try:\n")?;
        writeln!(sink, "  stackhound hunt {path} --images {symbols}")?;
        for verb in ["info --full", "events --stacks", "stacks --top 3"] {
            writeln!(sink, "  stackhound {verb} {path}")?;
        }
    } else {
        writeln!(
            sink,
            "\n`stackhound demo --out DIR` keeps the recording and its images, for `hunt`, `info`, `events` and `stacks`."
        )?;
    }
    sink.finish()?;
    Ok(Outcome::default())
}

fn write(scenario: &Scenario, path: &Path) -> Result<Truth> {
    let unwritable = || format!("cannot write {}", path.display());
    // A recording that is there already stays if this one cannot be made.
    let file = Temporary::in_folder(path.parent().unwrap_or(Path::new("."))).with_context(unwritable)?;
    let mut output = BufWriter::with_capacity(1 << 20, file);
    let truth = scenario.write(&mut output).with_context(unwritable)?;
    let file = output.into_inner().map_err(|error| error.into_error()).with_context(unwritable)?;
    file.persist(path).with_context(unwritable)?;
    Ok(truth)
}

/// Writes the recording's images as a symbol store, so that names are found.
fn write_images(truth: &Truth, store: &Path) -> Result<()> {
    for image in truth.image_files() {
        let path = store.join(image.store_path);
        let folder = path.parent().unwrap_or(store);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::write(&path, image.bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// What the reader finds.
struct Found {
    events: u64,
    /// Events by state of their stack, in the order of [`StackState::ALL`].
    by_state: [u64; StackState::ALL.len()],
    processes: usize,
    /// The events of attacks, as the reader shows them.
    attacks: Vec<(AttackKind, Vec<String>)>,
    /// What evaluating all stacks comes to.
    hunted: Hunted,
}

/// Findings of one detection in one program, of one severity.
struct Hits {
    id: DetectionId,
    severity: Severity,
    process: String,
    count: u64,
    /// Why the first of them is one.
    sentence: String,
}

/// What `hunt` finds, the worst first, as far as it matters.
type Hunted = Vec<Hits>;

fn read(path: &Path, truth: &Truth, symbols: &Path, common: &Common) -> Result<Found> {
    let trace = TraceFiles::file(path).threads(common.threads()).open()?;
    let mut progress = Progress::new(common, truth.bytes);
    let mut pipeline = Pipeline::new(&trace, Passes::Two).with(naming::from_folder(symbols)?);
    let (_, load) = file_loader(naming::folder_options(symbols), true);
    let binaries = Binaries::new(Box::new(move |module| load(&module.identity)));
    let mut hunt_session = HuntSession::new(binaries, pipeline.clock());
    let mut hunted = Hunted::new();
    let mut attacks = Vec::new();
    let outcome = pipeline.run(|view| {
        progress.tick();
        let is_one = |attack: &&Attack| attack.time == view.raw_time() && attack.event.name() == view.name();
        if let Some(attack) = truth.attacks.iter().find(is_one) {
            attacks.push((attack.kind, lines(view)));
        }
        hunt(&mut hunt_session, view, &mut hunted);
        ControlFlow::Continue(())
    });
    let processes = pipeline.trace_state().system().processes().count();
    progress.finish(&render::losses(&outcome));
    hunted.sort_by_key(|hits| (std::cmp::Reverse(hits.severity), hits.id));
    Ok(Found { events: outcome.trace.events, by_state: outcome.stacks.by_state, processes, attacks, hunted })
}

/// Evaluates an event, and puts what is found to what was found before.
fn hunt(hunt_session: &mut HuntSession, view: &EventView<'_>, hunted: &mut Hunted) {
    if !HuntSession::can_evaluate(view) {
        return;
    }
    let evaluation = *hunt_session.evaluate(view);
    for (id, outcome) in evaluation.findings().filter(|(_, outcome)| outcome.severity >= Severity::Low) {
        let process = view.process_name().unwrap_or_default();
        let same =
            |hits: &&mut Hits| (hits.id, hits.severity, &*hits.process) == (id, outcome.severity, process);
        if let Some(hits) = hunted.iter_mut().find(same) {
            hits.count += 1;
            continue;
        }
        let event_context = hunt_session.event_context(view, SourceLocation::default());
        let finding = Finding { id, outcome: *outcome, alert: String::new() };
        let sentence = finding.sentences(&event_context).into_iter().next().unwrap_or_default();
        let process = process.to_owned();
        hunted.push(Hits { id, severity: outcome.severity, process, count: 1, sentence });
    }
}

/// An event and its stack as text.
fn lines(view: &EventView<'_>) -> Vec<String> {
    let process = view.process_name().unwrap_or("-");
    let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut lines = vec![format!(
        "{}  {}  {process} (process {}, thread {})  [{}]",
        render::utc(view.utc()),
        view.name(),
        number(view.pid().map(|pid| pid.0)),
        number(view.tid().map(|tid| tid.0)),
        view.state().name()
    )];
    let mut shown = [0; 2];
    for frame in view.frames() {
        let count = &mut shown[usize::from(frame.mode == Mode::User)];
        *count += 1;
        match (*count).cmp(&FRAMES_SHOWN) {
            std::cmp::Ordering::Greater => {}
            std::cmp::Ordering::Equal => lines.push("  …".to_owned()),
            std::cmp::Ordering::Less => {
                let names = view.names(&frame);
                let text = Label { frame: &frame, names: names.as_deref() };
                lines.push(format!("  {:<6} {text}", frame.mode.name()));
            }
        }
    }
    lines
}

fn show(out: &mut impl Write, truth: &Truth, found: &Found) -> Result<()> {
    let with_stack: u64 = StackState::ALL
        .iter()
        .filter(|state| !matches!(state, StackState::None | StackState::Lost))
        .map(|state| found.by_state[*state as usize])
        .sum();
    writeln!(
        out,
        "A generated recording of a Windows system under attack: {} records, {} processes, {} events with call stacks.",
        grouped(found.events),
        found.processes,
        grouped(with_stack)
    )?;
    let states = StackState::ALL.iter().filter(|state| found.by_state[**state as usize] > 0);
    let states: Vec<_> = states
        .map(|state| format!("{} {}", state.name(), grouped(found.by_state[*state as usize])))
        .collect();
    writeln!(out, "Stacks: {}. Lost on purpose: {} buffers.", states.join(", "), truth.lost.buffers)?;
    writeln!(out, "\nWho really called?")?;
    let mut told = Vec::new();
    for (kind, lines) in &found.attacks {
        if told.contains(kind) {
            continue;
        }
        told.push(*kind);
        writeln!(out, "\n{}", title(*kind))?;
        for line in lines {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// The findings in a few lines.
fn show_hunt(out: &mut impl Write, hunted: &Hunted, mix: Mix) -> Result<()> {
    let aside = match mix {
        Mix::Default => "",
        Mix::Profile => ", which means nothing, since its stacks are drawn at random",
    };
    writeln!(out, "\nWhat `hunt` finds in it{aside}:\n")?;
    let width = hunted.iter().map(|hits| hits.process.len()).max().unwrap_or_default();
    for Hits { id, severity, process, count, sentence } in hunted {
        let (name, severity) = (id.name(), severity.name());
        writeln!(out, "  {name}  {severity:<8}  {process:<width$}  {count:>4} x  {sentence}")?;
    }
    Ok(())
}

/// What the scenario put into the recording.
fn title(kind: AttackKind) -> &'static str {
    match kind {
        AttackKind::DirectSyscall => {
            "A direct system call: the program itself entered the kernel, and not through ntdll.dll."
        }
        AttackKind::IndirectSyscall => {
            "An indirect system call: through ntdll.dll, but called from memory that no file backs."
        }
        AttackKind::OwnStub => {
            "A stub of the program's own: it jumps into ntdll.dll, whose stub nobody has called."
        }
        AttackKind::StraySyscall => "A system call by an instruction of ntdll.dll that belongs to no stub.",
        AttackKind::UnbackedThreadStart => "A thread is started in memory that no file backs.",
        AttackKind::UnbackedThread => "What that thread does: its own frames lie in no module.",
    }
}
