//! `demo`: a generated trace and its suspicious call stacks, for users without a trace of their
//! own.
//!
//! The trace is simulated, and the output states that. The shown events are read back from the file
//! by the same code as for any other trace.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use stackhound::detect::{Analytic, Binaries, Severity};
use stackhound::hunt::{EventFindings, FindingSelection, Hunt, Policy};
use stackhound::stacks::StackState;
use stackhound::symbols::file_loader;
use stackhound::symbols::temporary::{self, Temporary};
use stackhound::trace::TraceFiles;
use stackhound::{EventView, Label, Mode, Passes, Pipeline};
use stackhound_scenario::{Attack, AttackKind, Problem, Scenario, Truth};

use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{Sink, grouped};
use crate::progress::Progress;
use crate::{naming, render};

#[derive(Args, Debug)]
pub struct Arguments {
    /// Keep the trace in this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Generate this many events [default: 20000, or 40000 with a problem]
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Seed of the generator; each seed gives another trace
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Generate this mix of events
    #[arg(long, value_enum, default_value = "default")]
    pub mix: Mix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mix {
    /// All kinds of events
    Default,
    /// All kinds of events without losses, for `diff`
    Before,
    /// The same with one function that is slower and one more attack
    After,
    /// Events of a profiling session, for measurements: 44 % samples, 38 % provider events, 5 %
    /// stack parts. Stacks are random, so findings of `hunt` have no meaning
    Profile,
    /// A program uses much processor time
    HighCpu,
    /// A program shows its window late
    SlowStart,
    /// The window of a program hangs
    Hang,
    /// A program waits for the disk
    DiskBound,
    /// A program uses more and more memory
    MemoryGrowth,
}

impl Mix {
    /// The problem, and the name of its trace.
    fn problem(self) -> Option<(Problem, &'static str)> {
        match self {
            Mix::Default | Mix::Before | Mix::After | Mix::Profile => None,
            Mix::HighCpu => Some((Problem::HighCpu, "high-cpu")),
            Mix::SlowStart => Some((Problem::SlowStart, "slow-start")),
            Mix::Hang => Some((Problem::Hang, "hang")),
            Mix::DiskBound => Some((Problem::DiskBound, "disk-bound")),
            Mix::MemoryGrowth => Some((Problem::MemoryGrowth, "memory-growth")),
        }
    }
}

/// The limit of shown frames per stack and mode.
const FRAMES_SHOWN: usize = 12;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let temporary = temporary::folder().context("cannot create a temporary directory")?;
    let folder = arguments.out.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let problem = arguments.mix.problem();
    let (mix, name, events) = match (problem, arguments.mix) {
        (Some((problem, name)), _) => (stackhound_scenario::Mix::Problem(problem), name, 40_000),
        (None, Mix::Profile) => (stackhound_scenario::Mix::Profile, "stackhound-demo", 20_000),
        (None, Mix::Before) => (stackhound_scenario::Mix::Before, "stackhound-demo", 20_000),
        (None, Mix::After) => (stackhound_scenario::Mix::After, "stackhound-demo", 20_000),
        (None, _) => (stackhound_scenario::Mix::Default, "stackhound-demo", 20_000),
    };
    let path = folder.join(format!("{name}.etl"));
    let scenario = Scenario { events: arguments.events.unwrap_or(events), seed: arguments.seed, mix };
    let truth = write(&scenario, &path)?;
    write_images(&truth, &folder.join("symbols"))?;
    let mut sink = Sink::text(None)?;
    if common.quiet {
        writeln!(sink, "{}", path.display())?;
        sink.finish()?;
        return Ok(Outcome::default());
    }
    if let Some((problem, name)) = problem {
        show_problem(&mut sink, problem, name, &truth, arguments.out.is_some().then_some(&path))?;
        sink.finish()?;
        return Ok(Outcome::default());
    }
    let symbols = folder.join("symbols");
    let found = read(&path, &truth, &symbols, common)?;
    show(&mut sink, &truth, &found)?;
    show_hunt(&mut sink, &found.hunted, arguments.mix)?;
    if arguments.out.is_some() {
        let (path, symbols) = (path.display(), symbols.display());
        writeln!(sink, "\nThe trace is {path}. Try:\n")?;
        writeln!(sink, "  stackhound hunt {path} --images {symbols}")?;
        for verb in ["info --full", "events --stacks", "stacks --top 3"] {
            writeln!(sink, "  stackhound {verb} {path}")?;
        }
    } else {
        writeln!(
            sink,
            "\n`stackhound demo --out DIR` keeps the trace and its images, for `hunt`, `info`, `events` and `stacks`."
        )?;
    }
    sink.finish()?;
    Ok(Outcome::default())
}

fn write(scenario: &Scenario, path: &Path) -> Result<Truth> {
    let unwritable = || format!("cannot write {}", path.display());
    // An existing trace is not replaced if this one cannot be written completely.
    let file = Temporary::in_folder(path.parent().unwrap_or(Path::new("."))).with_context(unwritable)?;
    let mut output = BufWriter::with_capacity(1 << 20, file);
    let truth = scenario.write(&mut output).with_context(unwritable)?;
    let file = output.into_inner().map_err(|error| error.into_error()).with_context(unwritable)?;
    file.persist(path).with_context(unwritable)?;
    Ok(truth)
}

/// Writes the images of the trace as a symbol store, so that frames get names.
fn write_images(truth: &Truth, store: &Path) -> Result<()> {
    for image in truth.image_files() {
        let path = store.join(image.store_path);
        let folder = path.parent().unwrap_or(store);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        std::fs::write(&path, image.bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The contents of the trace, as read back.
struct Found {
    events: u64,
    /// Number of events by stack state, in the order of [`StackState::ALL`].
    by_state: [u64; StackState::ALL.len()],
    processes: usize,
    /// The events of attacks, as text.
    attacks: Vec<(AttackKind, Vec<String>)>,
    hunted: Hunted,
}

/// The findings of one detection and severity in one program.
struct Hits {
    analytic: Analytic,
    severity: Severity,
    process: String,
    count: u64,
    /// The reason of the first finding.
    sentence: String,
}

/// The findings of severity low or higher, the most severe first.
type Hunted = Vec<Hits>;

fn read(path: &Path, truth: &Truth, symbols: &Path, common: &Common) -> Result<Found> {
    let trace = TraceFiles::file(path).threads(common.threads()).open()?;
    let mut progress = Progress::of(common, &trace);
    let pipeline = Pipeline::new(&trace, Passes::Two).with(naming::from_folder(symbols)?);
    let (_, load) = file_loader(naming::folder_options(symbols), true);
    let binaries = Binaries::new(Box::new(move |module| load(&module.identity)));
    let hunt = Hunt::new(Policy::default(), binaries, FindingSelection::default());
    let (mut pipeline, mut trace_hunt) = hunt.start(pipeline, Vec::new());
    let mut hunted = Hunted::new();
    let mut attacks = Vec::new();
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        let is_one = |attack: &&Attack| attack.time == view.raw_time() && attack.event.name() == view.name();
        if let Some(attack) = truth.attacks.iter().find(is_one) {
            attacks.push((attack.kind, lines(view)));
        }
        if let Some(event) = trace_hunt.event(view, true) {
            add(&event, &mut hunted);
        }
        ControlFlow::Continue(())
    });
    let processes = pipeline.trace_state().system().processes().count();
    progress.finish(&render::losses(&outcome));
    hunted.sort_by_key(|hits| (std::cmp::Reverse(hits.severity), hits.analytic.clone()));
    Ok(Found { events: outcome.trace.events, by_state: outcome.stacks.by_state, processes, attacks, hunted })
}

/// Adds the findings of an event to the earlier ones.
fn add(event: &EventFindings, hunted: &mut Hunted) {
    let EventFindings { context, findings } = event;
    let process = context.process.name();
    for finding in findings {
        let severity = finding.outcome.severity;
        let is_same = |hits: &&mut Hits| {
            hits.analytic == finding.analytic && hits.severity == severity && hits.process == process
        };
        if let Some(hits) = hunted.iter_mut().find(is_same) {
            hits.count += 1;
            continue;
        }
        let sentence = finding.sentences(context).into_iter().next().unwrap_or_default();
        let (analytic, process) = (finding.analytic.clone(), process.to_owned());
        hunted.push(Hits { analytic, severity, process, count: 1, sentence });
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
        "A generated trace of a Windows system under attack: {} records, {} processes, {} events with call stacks.",
        grouped(found.events),
        found.processes,
        grouped(with_stack)
    )?;
    let states = StackState::ALL.iter().filter(|state| found.by_state[**state as usize] > 0);
    let states: Vec<_> = states
        .map(|state| format!("{} {}", state.name(), grouped(found.by_state[*state as usize])))
        .collect();
    writeln!(out, "Stacks: {}. Buffers dropped on purpose: {}.", states.join(", "), truth.lost.buffers)?;
    writeln!(out, "\nWho really called?")?;
    let mut shown = Vec::new();
    for (kind, lines) in &found.attacks {
        if shown.contains(kind) {
            continue;
        }
        shown.push(*kind);
        writeln!(out, "\n{}", title(*kind))?;
        for line in lines {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// Shows the symptom of a problem and where to begin, but not the cause. `path` is the trace if it
/// is kept.
fn show_problem(
    out: &mut impl Write,
    problem: Problem,
    name: &str,
    truth: &Truth,
    path: Option<&PathBuf>,
) -> Result<()> {
    let symptom = match problem {
        Problem::HighCpu => "The fan is loud, and writer.exe uses much processor time.",
        Problem::SlowStart => "The window of writer.exe appears late.",
        Problem::Hang => "The window of writer.exe does not respond for some time.",
        Problem::DiskBound => "browser.exe is slow, although the processors are idle.",
        Problem::MemoryGrowth => "browser.exe uses more and more memory.",
    };
    let records = grouped(truth.records());
    writeln!(out, "A generated trace of a Windows system with a problem: {records} records.\n{symptom}\n")?;
    match path {
        Some(path) => {
            let (path, folder) = (path.display(), path.with_file_name("symbols"));
            writeln!(out, "The trace is {path}, with the images in {}. Try:\n", folder.display())?;
            writeln!(out, "  stackhound {path} --symbol-path {}\n", folder.display())?;
        }
        None => writeln!(out, "`stackhound demo --mix {name} --out DIR` keeps the trace and its images.")?,
    }
    writeln!(out, "docs/playbooks/{name}.md leads to the cause.")?;
    Ok(())
}

fn show_hunt(out: &mut impl Write, hunted: &Hunted, mix: Mix) -> Result<()> {
    let note = match mix {
        Mix::Profile => " (without meaning, because the stacks are random)",
        _ => "",
    };
    writeln!(out, "\nFindings of `hunt` in this trace{note}:\n")?;
    let width = hunted.iter().map(|hits| hits.process.len()).max().unwrap_or_default();
    for Hits { analytic, severity, process, count, sentence } in hunted {
        let (name, severity) = (analytic.name(), severity.name());
        writeln!(out, "  {name}  {severity:<8}  {process:<width$}  {count:>4} x  {sentence}")?;
    }
    Ok(())
}

/// The heading of an attack.
fn title(kind: AttackKind) -> &'static str {
    match kind {
        AttackKind::DirectSyscall => {
            "A direct system call: the program entered the kernel itself, not through ntdll.dll."
        }
        AttackKind::IndirectSyscall => {
            "An indirect system call: through ntdll.dll, but called from memory that no file backs."
        }
        AttackKind::OwnStub => {
            "A private stub: it jumps to the system call instruction of a stub in ntdll.dll that was not called."
        }
        AttackKind::StraySyscall => {
            "A system call by an instruction of ntdll.dll that is not part of a stub."
        }
        AttackKind::UnbackedThreadStart => "A thread is started in memory that no file backs.",
        AttackKind::UnbackedThread => "An event of that thread: its own frames are in no module.",
    }
}
