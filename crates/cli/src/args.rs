//! The command line: one definition for parsing, help, completions and manual pages.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use stackhound::Pipeline;
use stackhound::detect::{DetectionId, Severity};
use stackhound::schema::SchemaStore;
use stackhound::trace::{self, OpenTrace};

use crate::live::ProviderSpec;
use crate::time::{Point, TimeFormat};

/// Who really called? Windows trace events with the call stacks that caused them.
///
/// Reads event trace logs (.etl) on any system, also packed as .etl.zst or .etl.zip, and directories of them. Several
/// files of one capture are merged by time; those of other machines, boots or times are analysed one after the other.
#[derive(Debug, Parser)]
#[command(name = "stackhound", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    #[command(flatten)]
    pub common: Common,
}

const EXAMPLES: &str = "\
Examples:
  stackhound trace.etl                     what the recording says about itself
  stackhound events trace.etl --stacks     every event with its call stack
  stackhound stacks trace.etl --top 10     the most frequent call stacks
  stackhound profile trace.etl -o t.svg    a flame graph
  stackhound tree x.stacks --at 1000       the calls around a context of a trace
  stackhound hunt trace.etl                what call stacks give away
  stackhound demo                          make a recording and show all this on it";

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Only errors on standard error
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub quiet: bool,
    /// More on standard error
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub verbose: bool,
    /// No progress bar
    #[arg(long, global = true, help_heading = "Messages")]
    pub no_progress: bool,
    /// When to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Messages")]
    pub color: ColorChoice,
    /// Threads that decompress and scan; results do not depend on it
    #[arg(long, global = true, value_name = "N", help_heading = "Reading")]
    pub threads: Option<usize>,
    /// Settings in TOML; `stackhound config show` prints them all
    #[arg(long, global = true, value_name = "FILE", help_heading = "Reading")]
    pub config: Option<PathBuf>,
    /// Exit with 3 if any byte of the input is damaged
    #[arg(long, global = true, help_heading = "Reading")]
    pub strict: bool,
}

/// When to colour output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// If it goes to a terminal and `NO_COLOR` is not set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What recordings say about themselves; with --full also what is in them
    Info(Info),
    /// Events in time order, with their call stacks if wanted
    Events(Events),
    /// The most frequent call stacks, by kind of event
    Stacks(Stacks),
    /// Names and system-call stubs of image and symbol files
    Symbols {
        /// What to do with them.
        #[command(subcommand)]
        verb: crate::symbols::Verb,
    },
    /// Providers of events: names, GUIDs, keywords, events and their fields
    Providers(crate::providers::Arguments),
    /// Profiles for the Firefox Profiler, speedscope, Perfetto and flame graphs
    Profile(Profile),
    /// Record what happens: on Windows a session of the whole system, on Linux every call of one program (--exact)
    Record(Record),
    /// The calls around a point of a trace: who called, and what was called
    Tree(crate::calltree::tree::Arguments),
    /// The stack that is active at a point of a trace, and those before and behind it
    Stack(crate::calltree::stack::Arguments),
    /// All frames at a point of a trace, from stack to stack down to the user mode
    Backtrace(crate::calltree::backtrace::Arguments),
    /// When a frame was executed, without what other stacks did meanwhile
    Ranges(crate::calltree::ranges::Arguments),
    /// What happened below a frame: calls, returns, and changes of the stack
    EventsOf(crate::calltree::events::Arguments),
    /// All calls of functions by name
    Calls(crate::calltree::calls::Arguments),
    /// Kernel stacks of threads: of a recording at any time, of what happens now, or of a process that runs
    Kstack(crate::kstack::Arguments),
    /// Make a recording of a small system under attack, and show the main job on it
    Demo(Demo),
    /// Settings and where they come from
    Config {
        /// What to do
        #[command(subcommand)]
        verb: crate::config::Verb,
    },
    /// Judge call stacks: who calls the kernel in a way that honest programs do not
    ///
    /// A file can be a recording, or Sysmon's events: an event log (.evtx), or JSON with one object on each line, which can also
    /// come through a pipe (`-` is standard input).
    ///
    /// Exits with 1 if findings were written, with 0 if not; 2 is an error.
    Hunt(Hunt),
    /// What a finding means, what it needs, what it misses, and what to do next
    Explain(crate::explain::Arguments),
    /// Completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// The manual page
    Man,
}

/// Arguments of `info`.
#[derive(Args, Debug)]
pub struct Info {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Read everything: count events, losses, damage and stacks
    #[arg(long)]
    pub full: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: InfoFormat,
    #[command(flatten)]
    pub output: Output,
}

/// Forms of `info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InfoFormat {
    /// For people
    Table,
    /// One object, or {"files": […]} for several files; with "captures" if they are several
    Json,
}

/// What to read.
#[derive(Args, Debug)]
pub struct Inputs {
    /// Recordings, archives or directories
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
}

/// How several files are put together.
#[derive(Args, Clone, Copy, Debug)]
pub struct Grouping {
    /// Take all files as one capture, even if they come from several machines, boots or times
    #[arg(long, help_heading = "Reading")]
    pub merge: bool,
    /// Take every file as a capture of its own
    #[arg(long, conflicts_with = "merge", help_heading = "Reading")]
    pub separate: bool,
}

impl From<Grouping> for trace::Grouping {
    fn from(grouping: Grouping) -> trace::Grouping {
        match grouping {
            Grouping { merge: true, .. } => trace::Grouping::Merge,
            Grouping { separate: true, .. } => trace::Grouping::Separate,
            _ => trace::Grouping::ByCapture,
        }
    }
}

/// Where to write.
#[derive(Args, Debug)]
pub struct Output {
    /// Write to this file, which appears when it is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Forms of what verbs of `symbols` and `config` write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people
    Table,
    /// A list with one object each
    Json,
}

/// What to read: recordings, or what happens now.
#[derive(Args, Debug)]
pub struct Sources {
    /// Recordings, archives or directories
    #[arg(
        required_unless_present = "live",
        conflicts_with_all = ["live", "attach", "preset", "buffers", "session", "replace", "duration"],
        value_name = "FILE"
    )]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
    /// What happens now instead of a recording, on Windows; `--provider NAME[:KEYWORDS[:LEVEL]]` then enables
    /// providers
    #[arg(long, conflicts_with_all = ["merge", "separate"], help_heading = "Live")]
    pub live: bool,
    /// Take the events of this session that runs already, and leave it as it is
    #[arg(
        long,
        value_name = "SESSION",
        requires = "live",
        conflicts_with_all = ["preset", "buffers", "session", "replace"],
        help_heading = "Live"
    )]
    pub attach: Option<String>,
    #[command(flatten)]
    pub settings: LiveSettings,
}

/// A live session: what it records, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Live")]
pub struct LiveSettings {
    /// What of the kernel is recorded; `enrichment` if no provider is given either
    #[arg(long, value_enum, value_name = "WHAT")]
    pub preset: Option<Preset>,
    /// How it is buffered; by default as the preset wants it
    #[arg(long, value_enum, value_name = "HOW")]
    pub buffers: Option<BufferPreset>,
    /// What the session is called; by default something that no other session is called
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Stop a session that runs under this name already
    #[arg(long, requires = "session")]
    pub replace: bool,
    /// End after this time, such as 30s or 5min
    #[arg(long = "for", value_name = "TIME", value_parser = crate::time::parse_duration)]
    pub duration: Option<Duration>,
}

/// What of the kernel is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Every system call with its stack
    Syscalls,
    /// Processes, threads, images, registry, files and memory, with the stacks that are named by default
    Enrichment,
    /// Processes, threads, images, and context switches with their stacks: what `kstack` asks for
    Switches,
}

/// How much a session buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BufferPreset {
    /// Large buffers, handed over every second: for many events
    Throughput,
    /// Small buffers, handed over every 5 ms: for events that cannot wait
    LowLatency,
}

/// Which events.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Which events")]
pub struct Filters {
    /// An expression, such as "pid = 4 and event ~ 'Image/*'"
    #[arg(long = "where", value_name = "EXPR")]
    pub expression: Option<String>,
    /// Of these processes
    #[arg(long, value_name = "ID")]
    pub pid: Vec<u32>,
    /// Of processes with these image names (* and ? stand for any text)
    #[arg(long, value_name = "NAME")]
    pub process: Vec<String>,
    /// Of these providers (name or GUID)
    #[arg(long, value_name = "NAME")]
    pub provider: Vec<String>,
    /// Of these kinds, such as Process/Start (* and ? stand for any text)
    #[arg(long, value_name = "NAME")]
    pub event: Vec<String>,
    /// Not before this time: RFC 3339, or +5s since the start
    #[arg(long, value_name = "TIME")]
    pub from: Option<Point>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    pub to: Option<Point>,
}

/// Where names come from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Names")]
pub struct SymbolArguments {
    /// Where symbol files are, in the syntax of _NT_SYMBOL_PATH, which it replaces
    #[arg(long, value_name = "PATH")]
    pub symbol_path: Option<String>,
    /// Ask the servers of the symbol path for what is missing
    #[arg(long)]
    pub online: bool,
}

/// How much of stacks is named.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Names")]
pub struct Naming {
    /// How much of stacks is named; by default what the settings say for each event
    #[arg(long, value_enum, value_name = "HOW")]
    pub symbols: Option<Symbols>,
    /// How much of the kernel's frames is named at most; by default what the settings say, which is modules
    #[arg(long, value_enum, value_name = "HOW")]
    pub kernel_symbols: Option<Symbols>,
    #[command(flatten)]
    pub places: SymbolArguments,
}

/// How much of stacks is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Symbols {
    /// Functions, with their module and the offset
    Full,
    /// Modules, with the offset in them
    Modules,
    /// Nothing: addresses only
    Off,
}

/// How the trace is read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// Read once, as a live session would be read: names and stack keys that stand later are not known earlier
    #[arg(long)]
    pub one_pass: bool,
    /// Describes events that recordings do not: a manifest (.man, .xml) or an image that has one (.dll, .exe, .sys)
    #[arg(long, value_name = "FILE")]
    pub manifest: Vec<PathBuf>,
}

impl Reading {
    /// As the library names it.
    pub fn passes(&self) -> stackhound::Passes {
        if self.one_pass { stackhound::Passes::One } else { stackhound::Passes::Two }
    }

    /// Reads a trace so, with the descriptions that are given.
    pub fn pipeline<'t>(&self, trace: &'t OpenTrace) -> Result<Pipeline<'t>> {
        Ok(Pipeline::with_schemas(trace, self.passes(), self.schemas()?))
    }

    /// The descriptions that are given.
    pub fn schemas(&self) -> Result<SchemaStore> {
        crate::providers::store(&self.manifest)
    }
}

/// Arguments of `events`.
#[derive(Args, Debug)]
pub struct Events {
    #[command(flatten)]
    pub sources: Sources,
    #[command(flatten)]
    pub filters: Filters,
    /// With call stacks
    #[arg(long)]
    pub stacks: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: EventFormat,
    /// How times are shown in tables
    #[arg(long, value_enum, default_value = "utc")]
    pub time: TimeFormat,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

/// Forms of `events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventFormat {
    /// For people
    Table,
    /// One object a line
    Ndjson,
    /// Comma-separated, one line an event
    Csv,
}

/// Arguments of `stacks`.
#[derive(Args, Debug)]
pub struct Stacks {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub filters: Filters,
    /// How many stacks of each kind of event
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: StackFormat,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

/// Forms of `stacks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackFormat {
    /// For people
    Table,
    /// Folded stacks for flame graphs: all stacks, outermost frame first
    Folded,
    /// One object
    Json,
}

/// Arguments of `profile`.
#[derive(Args, Debug)]
pub struct Profile {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub output: Output,
    /// Form of the output, where the name of the file does not tell it
    #[arg(long, value_enum)]
    pub format: Option<ProfileFormat>,
    /// Count events of these kinds instead of profile samples, such as FileIo/* (* and ? stand for any text)
    #[arg(long, value_name = "EVENT")]
    pub samples: Option<String>,
    /// How many other events become markers, at most
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub markers: usize,
    /// How many context switches are taken, at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub switches: usize,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
}

/// Forms of `profile`. A name that ends in `.gz` means that it is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileFormat {
    /// Firefox Profiler (.json, .json.gz)
    Firefox,
    /// A flame graph (.svg)
    #[cfg(feature = "flamegraph")]
    Flamegraph,
    /// Folded stacks (.folded, .txt)
    Folded,
    /// Speedscope (.speedscope.json)
    Speedscope,
    /// Perfetto (.pftrace, .perfetto-trace)
    Perfetto,
}

/// Arguments of `record`.
#[derive(Args, Debug)]
pub struct Record {
    /// Write to this file as things happen; by default to one in this directory, called as the session or the program
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub settings: LiveSettings,
    /// Enable this provider (name or GUID), with these keywords and up to this level
    #[arg(long, value_name = "NAME[:KEYWORDS[:LEVEL]]", help_heading = "Live")]
    pub provider: Vec<ProviderSpec>,
    /// Events of providers bring their call stacks along
    #[arg(long, help_heading = "Live")]
    pub stacks: bool,
    /// Only tell which sessions run
    #[arg(long, conflicts_with_all = ["stop", "output"], conflicts_with_all = LIVE, help_heading = "Live")]
    pub list: bool,
    /// Only stop this session, whoever started it
    #[arg(long, value_name = "SESSION", conflicts_with = "output", conflicts_with_all = LIVE, help_heading = "Live")]
    pub stop: Option<String>,
    /// Of a program on Linux: instruction by instruction, so that nothing is missed; it is slowed down ten-thousandfold
    #[arg(
        long,
        requires = "program",
        conflicts_with_all = ["list", "stop"],
        conflicts_with_all = LIVE,
        help_heading = "One program"
    )]
    pub exact: bool,
    /// Let the program run on unrecorded after so many transitions (mostly instructions)
    #[arg(
        long,
        value_name = "N",
        requires = "exact",
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "One program"
    )]
    pub limit: Option<u64>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", requires = "exact", help_heading = "One program")]
    pub program: Vec<std::ffi::OsString>,
}

/// What only a recording of a session takes.
const LIVE: [&str; 7] = ["preset", "buffers", "session", "replace", "duration", "provider", "stacks"];

/// Arguments of `hunt`.
#[derive(Args, Debug)]
pub struct Hunt {
    #[command(flatten)]
    pub sources: Sources,
    /// Only findings that matter as much or more
    #[arg(long, value_name = "SEVERITY", default_value = "low", value_parser = severity, help_heading = "Findings")]
    pub min_severity: Severity,
    /// Only these detections, such as CS01,CS05
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = detection, help_heading = "Findings")]
    pub only: Vec<DetectionId>,
    /// Also what cannot be determined, with what is missing for it
    #[arg(long, help_heading = "Findings")]
    pub all: bool,
    /// Exit with 0 whatever is found
    #[arg(long, help_heading = "Findings")]
    pub exit_zero: bool,
    /// Image and symbol files of the recorded machine: any files, or a symbol store; only those that are the very ones that
    /// were recorded are used
    #[arg(long, value_name = "DIR", help_heading = "Evidence")]
    pub images: Vec<PathBuf>,
    /// Who is who: a file that states lists in place of built-in ones, in TOML
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub lists: Option<PathBuf>,
    /// Images that are known to be part of Windows: a path, file name or SHA-256 sum a line
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub known_images: Option<PathBuf>,
    /// Look into the memory of the processes, too, as it is when their events arrive: of code in no module and of what is
    /// innermost, with `=images` of all images in stacks. Not for sessions that replay what happened elsewhere
    #[arg(
        long,
        value_name = "REACH",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "code",
        requires = "live",
        // What a conflict excludes is not required, so each says both.
        conflicts_with = "files",
        help_heading = "Evidence"
    )]
    pub live_memory: Option<MemoryReach>,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: HuntFormat,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

/// Whose memory `hunt` looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryReach {
    /// Code in no module, and the innermost user frame
    Code,
    /// All user frames
    Images,
}

/// Forms of `hunt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HuntFormat {
    /// For people
    Table,
    /// One object a finding, one a line
    Ndjson,
    /// Documents of the Elastic Common Schema, one a line
    Ecs,
    /// Detection findings of the Open Cybersecurity Schema Framework, one a line
    Ocsf,
    /// A layer for the ATT&CK Navigator
    Navigator,
    /// Comma-separated, one line a finding
    Csv,
}

fn severity(text: &str) -> Result<Severity, String> {
    let names = Severity::ALL.map(Severity::name).join(", ");
    Severity::of(text).ok_or_else(|| format!("`{text}` is no severity; write one of {names}"))
}

fn detection(text: &str) -> Result<DetectionId, String> {
    let mut ids = DetectionId::all().map(DetectionId::name);
    let (first, last) = (ids.next().unwrap_or_default(), ids.last().unwrap_or_default());
    DetectionId::parse(text.trim())
        .ok_or_else(|| format!("there is no detection `{text}`; they are {first} to {last}"))
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

/// Arguments of `demo`.
#[derive(Args, Debug)]
pub struct Demo {
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
