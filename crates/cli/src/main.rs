//! The `stackhound` program.
//!
//! Handles arguments, tables and exit codes. The library interprets traces.
#![forbid(unsafe_code)]

mod args;
mod calltree;
mod completions;
mod config;
mod convert;
mod demo;
mod diff;
mod ending;
mod events;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod exact;
mod explain;
mod facts;
mod filter;
mod help;
mod hunt;
mod hunt_files;
mod images;
mod info;
mod inputs;
mod kstack;
mod lines;
mod live;
mod log;
mod manual;
mod naming;
mod open;
mod options;
mod outcome;
mod output;
mod palette;
mod patterns;
mod profile;
mod progress;
mod providers;
mod query;
mod reading;
mod recognition;
mod render;
mod rules;
mod stacks;
mod summary;
mod symbols;
mod time;
mod top;
mod usage;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};

use args::{Arguments, Verb};
use options::ColorChoice;
use outcome::{DAMAGED, FOUND, Outcome, USAGE_OR_IO};
use output::report_error;

fn main() -> ExitCode {
    completions::answer(Arguments::command);
    let words = with_default_verb(std::env::args_os().collect());
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => return usage::end(&error, &Arguments::command(), &words),
    };
    match arguments.common.color {
        ColorChoice::Auto => {}
        ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
        ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
    }
    let ran = run(&arguments);
    naming::report_all_missing();
    output::write_end();
    match ran {
        Ok(_) if inputs::is_incomplete() => ExitCode::from(USAGE_OR_IO),
        Ok(outcome) if outcome.damaged && arguments.common.strict => ExitCode::from(DAMAGED),
        Ok(outcome) if outcome.found => ExitCode::from(FOUND),
        Ok(_) => ExitCode::SUCCESS,
        // The reader of the output has closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report_error(&error);
            ExitCode::from(USAGE_OR_IO)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// `stackhound trace.etl` means `stackhound summary trace.etl`.
fn with_default_verb(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let command = Arguments::command();
    let Some(at) = first_without_option(&command, &arguments) else { return arguments };
    let first = &arguments[at];
    let known = command.get_subcommands().any(|verb| verb.get_name() == first);
    if !known && first != "help" && (std::path::Path::new(first).exists() || looks_like_file(first)) {
        arguments.insert(at, "summary".into());
    }
    arguments
}

/// The index of the first argument that is neither an option nor the value of one.
fn first_without_option(command: &clap::Command, arguments: &[OsString]) -> Option<usize> {
    let takes_value = |text: &str| {
        let is_long = |option: &&clap::Arg| option.get_long().is_some_and(|long| text == format!("--{long}"));
        command.get_arguments().find(is_long).is_some_and(|option| option.get_action().takes_values())
    };
    let mut at = 1;
    loop {
        let text = arguments.get(at)?.to_str().unwrap_or_default();
        if !text.starts_with('-') {
            return Some(at);
        }
        at += if takes_value(text) { 2 } else { 1 };
    }
}

/// Whether an argument is a file name, even of a missing file, and not a verb.
fn looks_like_file(argument: &std::ffi::OsStr) -> bool {
    argument.as_encoded_bytes().iter().any(|byte| matches!(byte, b'.' | b'/' | b'\\'))
}

fn run(arguments: &Arguments) -> Result<Outcome> {
    let common = &arguments.common;
    if common.verbose {
        log::show();
    }
    // `record` ends with a signal and keeps the recorded part, so it handles signals itself.
    if !is_recording(&arguments.verb) {
        ending::prepare().context("cannot install signal handlers")?;
    }
    if let Some(file) = &common.config {
        config::read_file(file)?;
    }
    match &arguments.verb {
        Verb::Summary(arguments) => summary::run(arguments, common),
        Verb::Info(arguments) => info::run(arguments, common),
        Verb::Events(arguments) => events::run(arguments, common),
        Verb::Stacks(arguments) => stacks::run(arguments, common),
        Verb::Top { verb } => top::run(verb, common),
        Verb::Callers(arguments) => top::butterfly::run(arguments, common, top::butterfly::CALLERS),
        Verb::Callees(arguments) => top::butterfly::run(arguments, common, top::butterfly::CALLEES),
        Verb::Diff(arguments) => diff::run(arguments, common),
        Verb::Config { verb } => config::run(verb, common),
        Verb::Symbols { verb } => symbols::run(verb, common),
        Verb::Images { verb } => images::run(verb, common),
        Verb::Providers(arguments) => providers::run(arguments, common),
        Verb::Convert(arguments) => convert::run(arguments, common),
        Verb::Query(arguments) => query::run(arguments),
        Verb::Profile(arguments) => profile::run(arguments, common),
        Verb::Record(arguments) if arguments.exact => exact(arguments, common),
        Verb::Record(arguments) => live::record::run(arguments, common),
        Verb::Threads(arguments) => calltree::threads::run(arguments, common),
        Verb::Tree(arguments) => calltree::tree::run(arguments, common),
        Verb::Stack(arguments) => calltree::stack::run(arguments, common),
        Verb::Backtrace(arguments) => calltree::backtrace::run(arguments, common),
        Verb::Ranges(arguments) => calltree::ranges::run(arguments, common),
        Verb::EventsOf(arguments) => calltree::events::run(arguments, common),
        Verb::Calls(arguments) => calltree::calls::run(arguments, common),
        Verb::Kstack(arguments) => kstack::run(arguments, common),
        Verb::Demo(arguments) => demo::run(arguments, common),
        Verb::Hunt(arguments) => hunt::run(arguments, common),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Rules { verb } => rules::run(verb, common),
        Verb::Completions { shell } => {
            completions::write_script(*shell, &mut io::stdout())?;
            Ok(Outcome::default())
        }
        Verb::Man(arguments) => manual::run(arguments, Arguments::command(), common),
    }
}

fn is_recording(verb: &Verb) -> bool {
    matches!(verb, Verb::Record(_))
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use exact::run as exact;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn exact(_: &live::record::Arguments, _: &options::Common) -> Result<Outcome> {
    anyhow::bail!(
        "--exact needs Linux on x86-64; on Windows, use `stackhound record` without --exact to record a session"
    )
}
