//! Completions for shells: a script for each shell asks this program for candidates.
//!
//! Verbs, options and their values come from the definition of the arguments. Detections and fields of
//! filters come from their catalogues, and processes, events and providers from the trace that the
//! command line names, as far as it can be read in a moment. Names in traces are untrusted: those that a shell would not take
//! as one plain word are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use stackhound::detect::{DetectionId, Reason};
use stackhound::trace::TraceFiles;
use stackhound::{FilterField, Passes, Pipeline};

/// The variable that scripts set to ask for candidates.
const VARIABLE: &str = "STACKHOUND_COMPLETE";

/// How long a trace is read.
const TIME_MAX: Duration = Duration::from_millis(300);

/// The number of events between two looks at the clock.
const STEP: u64 = 1 << 12;

/// Writes candidates and ends the program if a script asks for them.
pub fn answer(definition: fn() -> Command) {
    CompleteEnv::with_factory(move || with_candidates(definition())).var(VARIABLE).complete();
}

/// Writes the script for a shell.
pub fn write_script(shell: clap_complete::Shell, out: &mut impl Write) -> Result<()> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let script = shells.completer(&name).with_context(|| format!("{name} has no completions"))?;
    script.write_registration(VARIABLE, "stackhound", "stackhound", "stackhound", out)?;
    Ok(())
}

/// Adds the candidates of all arguments that are named alike in all verbs.
fn with_candidates(command: Command) -> Command {
    let complete = |argument: clap::Arg| match argument.get_id().as_str() {
        "pid" => argument.add(ArgValueCompleter::new(pids)),
        "process" => argument.add(ArgValueCompleter::new(processes)),
        "event" | "samples" => argument.add(ArgValueCompleter::new(events)),
        "provider" => argument.add(ArgValueCompleter::new(providers)),
        "expression" => argument.add(ArgValueCompleter::new(fields)),
        "only" => argument.add(ArgValueCompleter::new(detections)),
        "detection" => argument.add(ArgValueCompleter::new(explained)),
        _ => argument,
    };
    command.mut_args(complete).mut_subcommands(with_candidates)
}

/// The candidates that begin with the current word, in any case.
fn beginning(current: &OsStr, names: impl IntoIterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().to_lowercase();
    let names =
        names.into_iter().filter(|(name, _)| is_plain(name) && name.to_lowercase().starts_with(&current));
    names.map(|(name, help)| CompletionCandidate::new(name).help(Some(help.into()))).collect()
}

/// Whether every shell takes a name as one word without a special meaning.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/+".contains(&byte))
}

fn detections(current: &OsStr) -> Vec<CompletionCandidate> {
    let all = DetectionId::all();
    beginning(current, all.map(|id| (id.name().to_owned(), id.detection().title.to_owned())))
}

fn explained(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = detections(current);
    let reasons = Reason::ALL.iter();
    found.extend(beginning(
        current,
        reasons.map(|reason| (reason.code().to_owned(), reason.sentence().replace("{frame}", "the frame"))),
    ));
    found
}

/// The fields with which a filter can begin.
fn fields(current: &OsStr) -> Vec<CompletionCandidate> {
    let names: BTreeSet<&str> = FilterField::names().collect();
    beginning(current, names.into_iter().map(|name| (name.to_owned(), String::new())))
}

fn pids(current: &OsStr) -> Vec<CompletionCandidate> {
    let processes = Contents::of_command_line().processes.into_iter();
    beginning(current, processes.map(|(pid, name)| (pid.to_string(), plain(&name))))
}

fn processes(current: &OsStr) -> Vec<CompletionCandidate> {
    let names: BTreeSet<String> = Contents::of_command_line().processes.into_values().collect();
    beginning(current, names.into_iter().map(|name| (name, String::new())))
}

fn events(current: &OsStr) -> Vec<CompletionCandidate> {
    let events = Contents::of_command_line().events.into_iter();
    beginning(current, events.map(|name| (name, String::new())))
}

fn providers(current: &OsStr) -> Vec<CompletionCandidate> {
    let providers = Contents::of_command_line().providers.into_iter();
    beginning(current, providers.map(|name| (name, String::new())))
}

/// A help text on one line.
fn plain(text: &str) -> String {
    stackhound_export::escape::Plain(text).to_string()
}

/// Names in a trace.
#[derive(Default)]
struct Contents {
    processes: BTreeMap<u32, String>,
    events: BTreeSet<String>,
    providers: BTreeSet<String>,
}

impl Contents {
    /// Those of the first word of the command line that is a trace.
    fn of_command_line() -> Contents {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(2);
        let files = words.map(PathBuf::from).filter(|path| path.is_file());
        files.filter_map(Contents::of).next().unwrap_or_default()
    }

    fn of(path: PathBuf) -> Option<Contents> {
        let started = Instant::now();
        let trace = TraceFiles::file(path).open().ok()?;
        let mut contents = Contents::default();
        let mut pipeline = Pipeline::new(&trace, Passes::One);
        let mut count = 0_u64;
        pipeline.run(|view| {
            count += 1;
            let name = view.name();
            if !contents.events.contains(&*name) {
                contents.events.insert(name.into_owned());
            }
            let provider = view.provider();
            if !contents.providers.contains(&*provider) {
                contents.providers.insert(provider.into_owned());
            }
            match count.is_multiple_of(STEP) && started.elapsed() > TIME_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let processes = pipeline.trace_state().system().processes();
        let named = processes.filter(|process| !process.image_name().is_empty());
        contents.processes =
            named.map(|process| (process.pid().0, process.image_name().to_owned())).collect();
        Some(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_candidates() {
        for (name, expected) in [
            ("svchost.exe", true),
            ("Process/Start", true),
            ("a b.exe", false),
            ("$(reboot)", false),
            ("a;b", false),
            ("a\nb", false),
            ("`x`", false),
            ("--pid", false),
            ("ä", false),
            ("", false),
        ] {
            assert_eq!(is_plain(name), expected, "{name:?}");
        }
    }
}
