//! The command line: one definition for parsing, help, completions and manual pages.
//!
//! Collects the verbs. The arguments of each are in its own module.

use clap::{Parser, Subcommand};

use crate::options::Common;

/// Join Windows trace events to the call stacks that caused them.
///
/// Reads event trace logs (.etl, also packed as .etl.zst or .etl.zip) and directories of them on
/// any operating system. Several files of one capture are merged by time. Files of other machines,
/// boots or times are analyzed one after the other.
#[derive(Debug, Parser)]
#[command(name = "stackhound", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
    #[command(flatten)]
    pub common: Common,
}

const EXAMPLES: &str = "\
Examples:
  stackhound trace.etl                     show the contents of a trace on one screen
  stackhound events trace.etl --stacks     show every event with its call stack
  stackhound stacks trace.etl --top 10     show the most frequent call stacks
  stackhound top cpu trace.etl             show the processes that used the processors
  stackhound profile trace.etl -o t.svg    write a flame graph
  stackhound diff a.etl b.etl              show what changed between two traces
  stackhound tree x.stacks --at 1000       show the calls around a context of a trace
  stackhound hunt trace.etl                find suspicious call stacks
  stackhound demo                          generate a trace and show what is in it";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the machine, the contents, the processor time and the findings of a trace on one screen
    ///
    /// Several files and folders get one line for each file. This is the verb if none is given.
    Summary(crate::summary::Arguments),
    /// Show the session, buffers and losses of traces; with --full, also count events and stacks
    Info(crate::info::Arguments),
    /// Show events in time order; with --stacks, also their call stacks
    Events(crate::events::Arguments),
    /// Show the most frequent call stacks by event
    Stacks(crate::stacks::Arguments),
    /// Show processor time and waits, by process, thread, module, function or stack
    Top {
        #[command(subcommand)]
        verb: crate::top::Verb,
    },
    /// Show who calls a function, and the processor time of each caller
    Callers(crate::top::butterfly::Arguments),
    /// Show what a function calls, and the processor time of each callee
    Callees(crate::top::butterfly::Arguments),
    /// Show what is new, gone or changed beyond noise between two traces, or draw it as a flame graph
    ///
    /// A is compared with B: findings, functions, stacks and processes. With --exit-code, the exit
    /// code is 1 if anything is called changed.
    Diff(Box<crate::diff::Arguments>),
    /// List, check and download the image and symbol files of modules, and look up names and stubs
    Symbols {
        #[command(subcommand)]
        verb: crate::symbols::Verb,
    },
    /// Show signatures, versions and hashes of image files, or collect them for `hunt`
    Images {
        #[command(subcommand)]
        verb: crate::images::Verb,
    },
    /// List event providers, or show one with its keywords, events and fields
    Providers(crate::providers::Arguments),
    /// Write a profile for the Firefox Profiler, speedscope or Perfetto, or a flame graph
    Profile(crate::profile::Arguments),
    /// Convert traces to tables in Parquet files, or write a smaller trace (.etl) or packets (.pcapng)
    Convert(Box<crate::convert::Arguments>),
    /// Answer a question in SQL about the tables of `convert`, with the program stackhound-lake
    ///
    /// The program has an engine for SQL and is installed separately. It gets all arguments.
    Query(crate::query::Arguments),
    /// Record a trace: on Windows a session of the whole system, on Linux all calls of one program
    /// (--exact)
    Record(crate::live::record::Arguments),
    /// List the processes, threads and stacks of a trace, and what they do at a position
    Threads(crate::calltree::threads::Arguments),
    /// Show the calls around a position in a trace: callers and callees
    Tree(crate::calltree::tree::Arguments),
    /// Show the active stack at a position in a trace, and the previous and next stacks
    Stack(crate::calltree::stack::Arguments),
    /// Show all frames at a position in a trace, through all stacks down to user mode
    Backtrace(crate::calltree::backtrace::Arguments),
    /// Show when a frame was executing, without the times when other stacks were active
    Ranges(crate::calltree::ranges::Arguments),
    /// Show the calls, returns and stack changes below a frame
    EventsOf(crate::calltree::events::Arguments),
    /// List all calls of functions by name
    Calls(crate::calltree::calls::Arguments),
    /// Show kernel stacks of threads: from a trace, from a live session, or of a running process
    Kstack(crate::kstack::Arguments),
    /// Generate a trace of a small system under attack, and show its suspicious call stacks
    Demo(crate::demo::Arguments),
    /// Show settings and their sources
    Config {
        #[command(subcommand)]
        verb: crate::config::Verb,
    },
    /// Find suspicious call stacks: code that enters the kernel in ways that legitimate programs do
    /// not
    ///
    /// Each file is a trace (.etl), or Sysmon events: an event log (.evtx), or JSON with one object
    /// per line, also from a pipe (`-` is standard input).
    ///
    /// The exit code is 1 if findings were written, 0 if not, and 2 on an error.
    Hunt(Box<crate::hunt::Arguments>),
    /// Explain a detection: its meaning, the evidence it needs, its limitations and the next steps
    Explain(crate::explain::Arguments),
    /// Check, list and explain detection rules, which users write in YAML
    Rules {
        #[command(subcommand)]
        verb: crate::rules::Verb,
    },
    /// Write completions for a shell, which also complete names in traces
    Completions {
        /// Write completions for this shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page, or into a directory a page for each verb
    Man(crate::manual::Arguments),
}
