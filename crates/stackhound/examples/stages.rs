//! Runs one stage on a trace and prints its cost, for `scripts/speed.py`.
//!
//! `stages walk|decompress|merge|survey|full|frames|names|hunt|rules FILE [THREADS]` prints one JSON object:
//! events, bytes, seconds, seconds of processor time (0 if the system does not report it), and the
//! peak of anonymous memory. Files are mapped, so their pages do not count as anonymous. `survey` is
//! the first of the two passes of `full`, and counts the events that it takes. `frames`
//! resolves each frame of each stack. `names` also names it, with the symbol store `symbols` in the
//! folder of the file. Both also print the number of frames, modules and loads of symbol tables.
//! `hunt` evaluates each event that can be evaluated, without image files, and prints the number of
//! events with stacks and of cached evaluations. `rules` evaluates the rules in the folder that the
//! variable `STACKHOUND_RULES` names, and prints the number of rules, the milliseconds to load and
//! compile them, the number of events that they are about, and the numbers of their answers.
//!
//! With the variable `STACKHOUND_COUNT`, memory is only read at the end. Sampling it would add
//! instructions that depend on the elapsed time, see `scripts/instructions.py`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stackhound::detect::Binaries;
use stackhound::etl::record::Records;
use stackhound::etl::{BUFFER_HEADER_SIZE, BufferHeader};
use stackhound::hunt::{FindingSelection, Hunt, Policy, RuleSession};
use stackhound::rules::Library;
use stackhound::rules::evaluate::{Counts, Mode};
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::StoreOptions;
use stackhound::symbols::{Symbolizer, SymbolizerOptions};
use stackhound::trace::{OpenTrace, TraceFiles};
use stackhound::{Depth, Enrichment, Passes, Pipeline};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, stage, file, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: stages walk|decompress|merge|survey|full|frames|names|hunt|rules FILE [THREADS]");
        std::process::exit(2);
    };
    let threads = rest.first().map_or(1, |threads| threads.parse().expect("a number of threads"));
    let trace = TraceFiles::file(file).threads(threads).open().expect("a trace");
    let memory = Memory::watch();
    let started = Instant::now();
    let Worked { events, bytes, details } = match stage.as_str() {
        "walk" => walk(&trace),
        "decompress" => decompress(&trace),
        "merge" => merge(&trace),
        "survey" => survey(&trace),
        "full" => full(&trace),
        "frames" => frames(&trace, None),
        "names" => frames(&trace, Some(symbolizer(Path::new(file)))),
        "hunt" => hunt(&trace),
        "rules" => rules(&trace),
        _ => panic!("unknown stage {stage}"),
    };
    let seconds = started.elapsed().as_secs_f64();
    let processor = processor_seconds();
    let peak = memory.peak();
    println!(
        "{{\"events\": {events}, \"bytes\": {bytes}, \"seconds\": {seconds:.6}, \"processor_seconds\": {processor:.2}, \
         \"anonymous_kib\": {peak}{details}}}"
    );
}

/// The result of a stage.
struct Worked {
    events: u64,
    bytes: u64,
    /// Further members of the JSON object.
    details: String,
}

impl From<(u64, u64)> for Worked {
    fn from((events, bytes): (u64, u64)) -> Worked {
        Worked { events, bytes, details: String::new() }
    }
}

/// Reads the header and time of every record, buffer by buffer. Compressed buffers are skipped.
fn walk(trace: &OpenTrace) -> Worked {
    let etl_file = &trace.sources()[0].etl_file;
    let (mut events, mut bytes, mut check) = (0, 0, 0);
    for buffer in trace.indexes()[0].buffers.iter().filter(|buffer| !buffer.compressed) {
        let start = buffer.offset as usize;
        let whole = &etl_file.bytes()[start..start + buffer.size as usize];
        let Some(header) = BufferHeader::read(whole) else { continue };
        let end = header.records_end(whole.len());
        for record in Records::new(&whole[..end], BUFFER_HEADER_SIZE) {
            events += 1;
            check ^= record.time().0;
        }
        bytes += end as u64;
    }
    std::hint::black_box(check);
    (events, bytes).into()
}

/// Reads every buffer as a block. For compressed traces, this is mostly decompression. Counts
/// decompressed bytes.
fn decompress(trace: &OpenTrace) -> Worked {
    let (mut events, mut bytes) = (0, 0);
    for (_, loaded) in trace.blocks() {
        if let Ok((block, _)) = loaded {
            events += block.entries().len() as u64;
            bytes += block.bytes().len() as u64;
        }
    }
    (events, bytes).into()
}

/// Reads all events in time order, with their kinds.
fn merge(trace: &OpenTrace) -> Worked {
    let mut kinds = [0u64; 16];
    let stats = trace.run(|event| {
        kinds[event.kind() as usize] += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(kinds.iter().sum::<u64>(), stats.events);
    (stats.events, stats.bytes).into()
}

/// The first pass: state of the system and schemas. Nothing of it is queried.
fn survey(trace: &OpenTrace) -> Worked {
    let pipeline = Pipeline::new(trace, Passes::Two);
    let taken = pipeline.trace_state().system().stats().observed;
    let bytes = trace.sources().iter().map(|source| source.etl_file.bytes().len() as u64).sum();
    (taken, bytes).into()
}

/// Both passes: state of the system, schemas, stacks of events.
fn full(trace: &OpenTrace) -> Worked {
    let mut with_stack = 0u64;
    let outcome = Pipeline::new(trace, Passes::Two).run(|view| {
        with_stack += u64::from(view.stack().is_some());
        ControlFlow::Continue(())
    });
    std::hint::black_box(with_stack);
    (outcome.trace.events, outcome.trace.bytes).into()
}

/// A symbolizer with the files in the folder of a trace, and without a cache on disk.
fn symbolizer(file: &Path) -> Symbolizer {
    let folder = file.parent().unwrap_or(Path::new(".")).join("symbols");
    let store = StoreOptions { path: SymbolPath::store(folder), cache: None, ..StoreOptions::default() };
    Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() }).expect("threads")
}

/// As `full`, and resolves each frame of each stack to its module and memory; with a symbolizer
/// also to its names.
fn frames(trace: &OpenTrace, symbolizer: Option<Symbolizer>) -> Worked {
    let depth = if symbolizer.is_some() { Depth::Function } else { Depth::Module };
    let enrichment = Enrichment { depth: Some(depth), symbolizer, ..Enrichment::default() };
    let mut pipeline = Pipeline::new(trace, Passes::Two).with(enrichment);
    let (mut frames, mut in_modules) = (0u64, 0u64);
    let outcome = pipeline.run(|view| {
        for frame in view.frames() {
            frames += 1;
            in_modules += u64::from(frame.module().is_some());
            view.number(&frame);
        }
        ControlFlow::Continue(())
    });
    let mut details = format!(", \"frames\": {frames}, \"in_modules\": {in_modules}");
    if let (.., Some(naming)) = pipeline.parts() {
        naming.wait_for_all();
        let stats = naming.stats();
        details += &format!(
            ", \"distinct\": {}, \"named\": {}, \"modules\": {}, \"loads\": {}, \"table_memory\": {}",
            stats.resolved, stats.named, stats.modules, stats.loads, stats.memory_peak
        );
    }
    Worked { events: outcome.trace.events, bytes: outcome.trace.bytes, details }
}

/// As `full`, and evaluates each event.
fn hunt(trace: &OpenTrace) -> Worked {
    let hunt = Hunt::new(Policy::default(), Binaries::none(), FindingSelection::default());
    let (mut pipeline, mut trace_hunt) = hunt.start(Pipeline::new(trace, Passes::Two), Vec::new());
    let (mut evaluated, mut findings) = (0u64, 0u64);
    let outcome = pipeline.run(|view| {
        if let Some(evaluation) = trace_hunt.evaluate(view) {
            evaluated += 1;
            findings += evaluation.findings().count() as u64;
        }
        ControlFlow::Continue(())
    });
    let stats = trace_hunt.stats();
    let details = format!(
        ", \"evaluated\": {evaluated}, \"with_stack\": {}, \"remembered\": {}, \"findings\": {findings}",
        stats.with_stack, stats.remembered
    );
    Worked { events: outcome.trace.events, bytes: outcome.trace.bytes, details }
}

/// Reads the rules in a folder and its subfolders.
fn rule_files(folder: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rule_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yml") {
            files.push((path.display().to_string(), std::fs::read(&path).expect("a file")));
        }
    }
}

/// As `full`, and evaluates the rules of a folder.
fn rules(trace: &OpenTrace) -> Worked {
    let folder = std::env::var_os("STACKHOUND_RULES").expect("STACKHOUND_RULES");
    let mut files = Vec::new();
    rule_files(Path::new(&folder), &mut files);
    let started = Instant::now();
    let library = Library::read(files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
    let mut session = RuleSession::new(&library, Mode::Strict);
    let loading = started.elapsed().as_secs_f64() * 1e3;
    let usable = library.rules.iter().filter(|rule| rule.condition.is_ok()).count();
    let (mut record, mut about, mut answers) = (0, 0u64, Vec::new());
    let outcome = Pipeline::new(trace, Passes::Two).run(|view| {
        record += 1;
        if session.is_about(view) {
            about += 1;
            session.evaluate(view, record, None, &mut answers);
            answers.clear();
        }
        ControlFlow::Continue(())
    });
    let counts: Vec<_> = (0..library.rules.len()).map(|rule| session.counts(rule)).collect();
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let (yes, possible) = (sum(|counts| counts.yes), sum(|counts| counts.possible));
    let details = format!(
        ", \"rules\": {}, \"loading_ms\": {loading:.1}, \"about\": {about}, \"yes\": {yes}, \"possible\": {possible}, \
         \"undetermined\": {}",
        usable,
        sum(|counts| counts.undetermined)
    );
    Worked { events: outcome.trace.events, bytes: outcome.trace.bytes, details }
}

/// Samples the anonymous memory of the process every few milliseconds.
struct Memory {
    peak: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
}

impl Memory {
    fn watch() -> Memory {
        let (peak, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let memory = Memory { peak: peak.clone(), done: done.clone() };
        if std::env::var_os("STACKHOUND_COUNT").is_some() {
            return memory;
        }
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous_kib(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        memory
    }

    fn peak(self) -> u64 {
        self.done.store(true, Ordering::Relaxed);
        self.peak.load(Ordering::Relaxed).max(anonymous_kib())
    }
}

/// Processor time of the process up to now, including kernel time. Linux counts hundredths of
/// seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The 12th and 13th fields after the name, which is in parentheses, are user time and kernel
    // time.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
