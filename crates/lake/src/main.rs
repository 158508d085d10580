//! The `stackhound-lake` program: SQL over the tables that `stackhound convert` writes, on one
//! machine or on a cluster.
//!
//! Handles arguments and exit codes. It does not read traces, and writes nothing but results.
#![forbid(unsafe_code)]

#[cfg(feature = "cluster")]
mod cluster;
mod functions;
#[cfg(feature = "cluster")]
mod jobs;
mod names;
mod query;
mod rows;
mod session;
mod sink;
mod tables;
mod traces;

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use datafusion::error::DataFusionError;
use stackhound_export::escape::Plain;
use stackhound_symbols::temporary;

/// Ask questions in SQL about converted traces.
#[derive(Debug, Parser)]
#[command(name = "stackhound-lake", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer a question in SQL about directories of tables
    Query(query::Arguments),
    /// Run the scheduler of a cluster, which distributes queries to executors
    #[cfg(feature = "cluster")]
    Scheduler(cluster::SchedulerArguments),
    /// Run an executor of a cluster, which works on parts of queries
    #[cfg(feature = "cluster")]
    Executor(cluster::ExecutorArguments),
}

/// As in the main program: wrong arguments, or an input or output error.
const USAGE_OR_IO: u8 = 2;
/// As in the main program.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return end(&error),
    };
    match run(arguments) {
        Ok(code) => code,
        // The reader of the output has closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", Plain(sentence(&error)));
            ExitCode::from(USAGE_OR_IO)
        }
    }
}

/// Writes the help, or the error in the arguments in one sentence.
fn end(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand) {
        // The reader of the output may have closed the pipe.
        _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE_OR_IO));
    }
    let text = error.to_string();
    // The usage and tips follow after an empty line.
    let sentence = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let words: Vec<&str> = sentence.split_whitespace().collect();
    eprintln!("error: {}; `stackhound-lake --help` explains the arguments", Plain(words.join(" ")));
    ExitCode::from(USAGE_OR_IO)
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let threads = match &arguments.verb {
        Verb::Query(arguments) => arguments.limits.threads(),
        #[cfg(feature = "cluster")]
        Verb::Scheduler(_) => 2,
        #[cfg(feature = "cluster")]
        Verb::Executor(arguments) => arguments.threads(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let ended = runtime.block_on(async {
        let work = async {
            match arguments.verb {
                Verb::Query(arguments) => query::run(arguments).await,
                #[cfg(feature = "cluster")]
                Verb::Scheduler(arguments) => cluster::schedule(&arguments).await,
                #[cfg(feature = "cluster")]
                Verb::Executor(arguments) => cluster::execute(arguments).await,
            }
        };
        tokio::select! {
            ended = work => ended.map(|()| ExitCode::SUCCESS),
            signal = tokio::signal::ctrl_c() => {
                signal.context("cannot wait for signals")?;
                temporary::remove_all();
                eprintln!("interrupted: the result is incomplete");
                Ok(ExitCode::from(INTERRUPTED))
            }
        }
    });
    // Work that does not matter any more is not waited for.
    runtime.shutdown_background();
    ended
}

/// Connections of the engine break, too, which leaves a result incomplete.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_of_engine = error.chain().any(|cause| cause.is::<DataFusionError>());
    !is_of_engine
        && error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error with its causes in one sentence, without those of the engine that repeat it.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        if !text.is_empty() {
            text += ": ";
        }
        let Some(of_engine) = cause.downcast_ref::<DataFusionError>() else {
            text += &cause.to_string();
            continue;
        };
        match of_engine.find_root() {
            DataFusionError::ResourcesExhausted(reason) => {
                text += "the query needs more memory than --memory-limit allows: ";
                text += reason;
            }
            root => text += &root.message(),
        }
        break;
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
