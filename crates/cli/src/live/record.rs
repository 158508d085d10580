//! `record` of sessions: records the events of this Windows system to a trace.
//!
//! Windows writes the file. This program starts, monitors and ends the session. It does not consume
//! the events: in a session with a real-time consumer, Windows writes all buffers once a second,
//! full or not.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use stackhound::live::LiveSession;
use stackhound_export::escape::line;

use super::session_monitor::{Losses, SessionMonitor, Shown, written};
use super::settings::{LiveSettings, Planned, ProviderSpec, plan};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{Sink, grouped, message};

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("recorded").multiple(true))]
pub struct Arguments {
    /// Write to this file while recording; by default to a file in the current directory, named
    /// after the session or program
    #[arg(short, long, value_name = "FILE", value_parser = crate::output::output_file())]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub settings: LiveSettings,
    /// Enable this provider (name or GUID) with these keywords, up to this level
    #[arg(long, value_name = "NAME[:KEYWORDS[:LEVEL]]", help_heading = "Live")]
    pub provider: Vec<ProviderSpec>,
    /// Record call stacks of the events of providers
    #[arg(long, help_heading = "Live")]
    pub stacks: bool,
    /// List the running sessions, without recording
    #[arg(long, conflicts_with_all = ["stop", "output"], conflicts_with_all = LIVE, help_heading = "Live")]
    pub list: bool,
    /// Stop this session, even of another program, without recording
    #[arg(long, value_name = "SESSION", conflicts_with = "output", conflicts_with_all = LIVE, help_heading = "Live")]
    pub stop: Option<String>,
    /// Record every call and return on Linux: of a program, which slows it down ten-thousandfold without
    /// QEMU, or of a system in QEMU
    #[arg(
        long,
        requires = "recorded",
        conflicts_with_all = ["list", "stop"],
        conflicts_with_all = LIVE,
        help_heading = "Exact"
    )]
    pub exact: bool,
    /// Stop recording after N transitions (mostly instructions); a program continues to run, in QEMU it
    /// is stopped, as a system is
    #[arg(
        long,
        value_name = "N",
        requires = "exact",
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "Exact"
    )]
    pub limit: Option<u64>,
    /// Boot and record a system with this kernel; arguments after `--` are those of QEMU
    #[arg(long, value_name = "KERNEL", requires = "exact", group = "recorded", help_heading = "Exact")]
    pub system: Option<PathBuf>,
    /// The initial file system of the system
    #[arg(long, value_name = "FILE", requires = "system", help_heading = "Exact")]
    pub initrd: Option<PathBuf>,
    /// Run the program in this emulator, which is faster: QEMU's emulator of programs with plugins
    #[arg(
        long,
        value_name = "EMULATOR",
        requires = "exact",
        requires = "program",
        conflicts_with = "system",
        help_heading = "Exact"
    )]
    pub with: Option<Emulator>,
    /// Run and record this program with these arguments
    #[arg(
        last = true,
        value_name = "PROGRAM",
        requires = "exact",
        group = "recorded",
        help_heading = "Exact"
    )]
    pub program: Vec<std::ffi::OsString>,
}

/// An emulator of programs.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Emulator {
    /// `qemu-x86_64`.
    Qemu,
}

/// The arguments that apply only to a session.
const LIVE: [&str; 7] = ["preset", "buffers", "session", "replace", "duration", "provider", "stacks"];

/// Records until interrupted, or for the requested time.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    if !cfg!(windows) {
        bail!("recording a session needs Windows; {}", instead());
    }
    if arguments.list {
        return list();
    }
    if let Some(name) = &arguments.stop {
        return stop(name, common);
    }
    let mut planned = plan(&arguments.settings, &arguments.provider, arguments.stacks)?;
    let first = match &arguments.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.etl", planned[0].session.name())),
    };
    let files: Vec<PathBuf> = (0..planned.len()).map(|number| file(&first, number)).collect();
    for (Planned { session, .. }, file) in planned.iter_mut().zip(&files) {
        // The ETW service does not know the current directory of this program.
        let file = std::path::absolute(file).with_context(|| format!("cannot write {}", file.display()))?;
        *session = session.clone().to_file(file);
    }
    super::stop_orphans(common);
    let sessions =
        planned.iter().map(|Planned { session, providers }| LiveSession::record(session, providers));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let shown = if terminal { Shown::Bytes } else { Shown::Nothing };
    let session_monitor = SessionMonitor::start(sessions, arguments.settings.duration, common, shown)?;
    session_monitor.wait();
    let ended = session_monitor.finish()?;
    if !common.quiet {
        let seconds = ended.time.as_secs_f64();
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let (written, losses) = (written(&ended.counters), Losses::of(&ended.counters));
        message(format_args!("{written} in {seconds:.1} s, {losses}: {}", names.join(", ")));
    }
    Ok(Outcome::default())
}

/// The file of the session with this number. The second session contains the providers.
fn file(first: &Path, number: usize) -> PathBuf {
    if number == 0 { first.to_owned() } else { first.with_extension("providers.etl") }
}

fn instead() -> &'static str {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        "here, `stackhound record --exact -- PROGRAM` records the calls of one program, and `stackhound events FILE.etl` reads a trace"
    } else {
        "here, `stackhound events FILE.etl` reads a trace"
    }
}

fn list() -> Result<Outcome> {
    let mut sink = Sink::rows(None)?;
    line(
        &mut sink,
        format_args!("{:<40} {:>16} {:>12}  {:<4}  file", "session", "buffers", "events lost", "live"),
    )?;
    for session in LiveSession::list()? {
        let live = if session.is_real_time() { "yes" } else { "no" };
        let buffers = format!("{} × {} KiB", session.counters.buffers, session.buffer_size_kib);
        let (name, lost) = (&session.name, grouped(session.counters.events_lost));
        let file = session.file.as_deref().unwrap_or_default();
        let text = format!("{name:<40} {buffers:>16} {lost:>12}  {live:<4}  {file}");
        line(&mut sink, format_args!("{}", text.trim_end()))?;
    }
    sink.finish()?;
    Ok(Outcome::default())
}

fn stop(name: &str, common: &Common) -> Result<Outcome> {
    let counters = LiveSession::stop_by_name(name)?;
    if !common.quiet {
        message(format_args!("stopped session {name}, {}", Losses::of(&[counters])));
    }
    Ok(Outcome::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_session_has_its_own_file_in_the_same_folder() {
        for (first, expected) in [("a.etl", "a.providers.etl"), ("x/b.c.etl", "x/b.c.providers.etl")] {
            assert_eq!(file(Path::new(first), 0), Path::new(first));
            assert_eq!(file(Path::new(first), 1), Path::new(expected));
        }
    }
}
