//! The command line: one definition for parsing, help, completions and manual pages.
//!
//! Collects the verbs. The arguments of each are in its own module.

use clap::{Parser, Subcommand};

use crate::options::Common;

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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What recordings say about themselves; with --full also what is in them
    Info(crate::info::Arguments),
    /// Events in time order, with their call stacks if wanted
    Events(crate::events::Arguments),
    /// The most frequent call stacks, by kind of event
    Stacks(crate::stacks::Arguments),
    /// Names and system-call stubs of image and symbol files
    Symbols {
        /// What to do with them.
        #[command(subcommand)]
        verb: crate::symbols::Verb,
    },
    /// Providers of events: names, GUIDs, keywords, events and their fields
    Providers(crate::providers::Arguments),
    /// Profiles for the Firefox Profiler, speedscope, Perfetto and flame graphs
    Profile(crate::profile::Arguments),
    /// Record what happens: on Windows a session of the whole system, on Linux every call of one program (--exact)
    Record(crate::live::record::Arguments),
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
    Demo(crate::demo::Arguments),
    /// Settings and where they come from
    Config {
        /// What to do
        #[command(subcommand)]
        verb: crate::config::Verb,
    },
    /// Evaluate call stacks: who calls the kernel in a way that honest programs do not
    ///
    /// A file can be a recording, or Sysmon's events: an event log (.evtx), or JSON with one object on each line, which can also
    /// come through a pipe (`-` is standard input).
    ///
    /// Exits with 1 if findings were written, with 0 if not; 2 is an error.
    Hunt(crate::hunt::Arguments),
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
