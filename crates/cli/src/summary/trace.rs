//! The first answers about one capture, from one pass over it.

use std::collections::BTreeSet;

use anyhow::Result;
use stackhound::analysis::contents::{Contents, FileBytes, Kind};
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::analysis::rows::{By, Row};
use stackhound::cut::CutNote;
use stackhound::detect::alert::Alert;
use stackhound::detect::{Severity, Totals};
use stackhound::hunt::{FindingSelection, HuntReport};
use stackhound::profile::{CodeKind, Grouping, Profile};
use stackhound::system::System;
use stackhound::trace::Capture;
use stackhound::types::ModuleIdentity;
use stackhound::{Guid, Outcome, Passes, Pipeline};
use stackhound_export::json::summary as json;

use super::Arguments;
use crate::filter::cut_window;
use crate::hunt::announce;
use crate::hunt::policy::HuntSetup;
use crate::info::capture_info;
use crate::naming;
use crate::options::Common;
use crate::progress::{self, Progress};
use crate::reading::or_stop;
use crate::top::{cpu, row_document};

/// The number of processes and functions on the screen.
pub const ROWS: usize = 5;

/// The events of a provider.
pub struct Provider<'a> {
    pub guid: Guid,
    /// Its name, or its GUID.
    pub name: &'a str,
    pub events: u64,
}

/// The answers.
pub struct Summarized {
    pub contents: Contents,
    /// What was cut away from the trace.
    pub cuts: Vec<CutNote>,
    pub cpu: CpuReport,
    pub processes: Vec<Row>,
    pub functions: Vec<Row>,
    pub totals: Totals,
    pub alerts: Vec<Alert>,
    pub symbols: json::Symbols,
    pub outcome: Outcome,
    /// Size of the files in bytes.
    pub size: u64,
    /// The names of the files.
    pub files: String,
    /// The files as they were given, as arguments of a shell.
    arguments: String,
}

/// Reads a capture once, after its definitions.
pub fn summarize(
    capture: &Capture,
    given: &Arguments,
    setup: &HuntSetup,
    common: &Common,
) -> Result<Summarized> {
    let trace = &capture.trace;
    let size = progress::size(trace);
    let mut progress = Progress::of(common, trace);
    let enrichment = naming::with_folders(&given.symbols, &[], false, common)?;
    let pipeline = Pipeline::new(trace, Passes::Two).with(naming::in_full(enrichment));
    let hunt = setup.hunt(FindingSelection::from_severity(Severity::Info));
    let (mut pipeline, mut trace_hunt) = hunt.start(pipeline, Vec::new());
    let mut contents = Contents::default();
    let cuts = CutNote::of(trace);
    let mut cpu = Cpu::new(String::new(), trace, cut_window(&cuts), Weighing::default());
    let mut failure = None;
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        contents.observe(view);
        trace_hunt.event(view, true);
        or_stop(cpu.observe(view, || true), &mut failure)
    });
    if let Some(full) = failure {
        return Err(full.into());
    }
    let (known, _, naming) = pipeline.parts();
    let cpu = cpu.finish(known, naming);
    let symbols = symbols(known.system(), &cpu.profile);
    let HuntReport { alerts, totals, tuning, .. } = trace_hunt.finish(pipeline).take_report();
    announce(tuning.as_ref(), common);
    let first = |by| {
        let mut rows = cpu.rows(by);
        rows.truncate(ROWS);
        rows
    };
    let (processes, functions) = (first(By::Process), first(By::Frames(Grouping::Function)));
    progress.clear();
    let files: Vec<&str> = trace.sources().iter().map(|source| &*source.name).collect();
    let (files, arguments) = (files.join(" "), shell_arguments(given));
    Ok(Summarized {
        contents,
        cuts,
        cpu,
        processes,
        functions,
        totals,
        alerts,
        symbols,
        outcome,
        size,
        files,
        arguments,
    })
}

/// Counts modules and frames, and those with names.
fn symbols(system: &System, profile: &Profile) -> json::Symbols {
    let identities = system.modules().map(|module| {
        let identity = stackhound::frames::identity(module);
        // The case of a file name can vary.
        ModuleIdentity { name: identity.name.to_lowercase(), ..identity }
    });
    let modules: BTreeSet<ModuleIdentity> = identities.collect();
    let frames = profile.frames().iter().filter(|frame| frame.code != CodeKind::Remark);
    json::Symbols {
        modules: modules.len() as u64,
        with_pdb_identity: modules.iter().filter(|module| module.pdb.is_some()).count() as u64,
        frames: frames.clone().count() as u64,
        named_frames: frames.filter(|frame| !frame.is_unnamed()).count() as u64,
    }
}

impl Summarized {
    pub fn is_damaged(&self) -> bool {
        !self.outcome.trace.damage.is_empty()
    }

    /// The length of the trace in nanoseconds.
    pub fn duration(&self) -> u64 {
        let (from, to) = self.contents.times.unwrap_or_default();
        self.cpu.nanos(to.ticks_since(from))
    }

    /// The processor time that was used, in raw ticks, and whether it is measured by samples.
    pub fn busy(&self) -> Option<(u64, bool)> {
        let exact = self.cpu.exact.as_ref();
        match (self.cpu.interval, exact) {
            (Some(_), _) => Some((self.cpu.classes.busy().amount, true)),
            (None, Some(exact)) => Some((exact.busy(), false)),
            (None, None) => None,
        }
    }

    /// Findings by severity, the highest first.
    pub fn findings(&self) -> Vec<(Severity, u64)> {
        let all = Severity::ALL.into_iter().rev().map(|severity| (severity, self.totals.findings(severity)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The other providers, the one with the most events first.
    pub fn providers(&self) -> Vec<Provider<'_>> {
        let all = self.contents.providers.iter();
        let mut all: Vec<_> =
            all.map(|(&guid, (name, events))| Provider { guid, name, events: *events }).collect();
        all.sort_by(|a, b| b.events.cmp(&a.events).then_with(|| (a.name, a.guid).cmp(&(b.name, b.guid))));
        all
    }

    /// Up to three commands that answer the next questions about this trace.
    pub fn next(&self) -> Vec<String> {
        let mut next = Vec::new();
        let is_serious = |(severity, _): &(Severity, u64)| *severity >= Severity::Medium;
        if self.findings().iter().any(is_serious) {
            next.push(("hunt", ""));
        }
        if self.cpu.interval.is_some() {
            next.extend([("top cpu", " --by function"), ("profile", " -o profile.json.gz")]);
        } else if self.cpu.exact.is_some() {
            next.extend([("top cpu", " --by thread"), ("top wait", " --by function")]);
        }
        if self.contents.collections.count() > 0 {
            next.push(("top gc", ""));
        }
        if self.contents.count(Kind::Disk) > 0 {
            next.push(("top disk", ""));
        }
        if self.contents.with_stack > 0 {
            next.push(("stacks", " --top 10"));
        }
        next.extend([("events", ""), ("info", " --full")]);
        next.truncate(3);
        next.into_iter()
            .map(|(verb, options)| format!("stackhound {verb} {}{options}", self.arguments))
            .collect()
    }

    /// The JSON document.
    pub fn document<'a>(&'a self, capture: &'a Capture) -> json::Summary<'a> {
        let nanos = |ticks| self.cpu.nanos(ticks);
        let document = |row: &'a Row| row_document(row, false, cpu::values(&self.cpu, row));
        let rows = |rows: &'a [Row]| rows.iter().map(document).collect();
        let count = |kind: Kind| json::KindCount { kind: kind.name(), events: self.contents.count(kind) };
        let (contains, missing) = self.kinds();
        let Contents { read, written, disk_files, requested_files, collections, .. } = &self.contents;
        json::Summary {
            capture: capture_info(capture),
            size: self.size,
            duration: self.duration(),
            events: self.contents.events,
            with_stack: self.contents.with_stack,
            events_lost: self.outcome.trace.events_lost,
            buffers_lost: self.buffers_lost(),
            damaged_ranges: self.outcome.trace.damage.len() as u64,
            contains: contains.into_iter().map(count).collect(),
            missing: missing.into_iter().map(Kind::name).collect(),
            providers: self
                .providers()
                .into_iter()
                .map(|Provider { guid, name, events }| json::ProviderEvents {
                    provider: name,
                    guid: guid.to_string(),
                    events,
                })
                .collect(),
            other_providers: self.contents.other_providers,
            cpu: self.busy().map(|(busy, by_samples)| json::Cpu {
                available: nanos(self.cpu.available()),
                busy: nanos(busy),
                by_samples,
                processes: rows(&self.processes),
                functions: rows(&self.functions),
            }),
            disk: (read.count + written.count > 0).then(|| json::Disk {
                reads: read.count,
                bytes_read: read.bytes,
                writes: written.count,
                bytes_written: written.bytes,
                file_count: disk_files.count(),
                largest_files: largest(disk_files),
            }),
            file_requests: (requested_files.count() > 0).then(|| json::FileRequests {
                bytes: requested_files.bytes(),
                file_count: requested_files.count(),
                largest_files: largest(requested_files),
            }),
            symbols: self.symbols,
            garbage_collections: (collections.count() > 0).then(|| json::GarbageCollections {
                generations: collections.generations,
                pauses: collections.pauses.count,
                paused: nanos(collections.pauses.amount),
                longest: nanos(collections.pauses.max),
            }),
            findings: self
                .findings()
                .into_iter()
                .map(|(severity, findings)| json::SeverityCount { severity: severity.name(), findings })
                .collect(),
            alerts: self.alerts.iter().filter_map(alert_title).collect(),
            next: self.next(),
        }
    }

    /// The kinds of events that the trace contains, the most frequent first, and the others.
    pub fn kinds(&self) -> (Vec<Kind>, Vec<Kind>) {
        let count = |kind: &Kind| self.contents.count(*kind);
        let (mut contains, missing): (Vec<_>, Vec<_>) =
            Kind::ALL.iter().copied().partition(|kind| count(kind) > 0);
        contains.sort_by_key(|kind| std::cmp::Reverse(count(kind)));
        (contains, missing)
    }

    pub fn buffers_lost(&self) -> u64 {
        self.outcome.trace.buffers_lost.max(self.outcome.trace.buffers_missing)
    }
}

/// The files with the most bytes.
fn largest(files: &FileBytes) -> Vec<json::FileBytes<'_>> {
    files.most(ROWS).into_iter().map(|(file, bytes)| json::FileBytes { file, bytes }).collect()
}

/// An alert with its most severe detection.
pub fn alert_title(alert: &Alert) -> Option<json::AlertTitle<'_>> {
    let (analytic, _, _) = alert.by_severity().into_iter().next()?;
    Some(json::AlertTitle {
        severity: alert.severity.name(),
        score: alert.score(),
        title: analytic.title(),
        process: alert.process.name(),
        pid: alert.process.pid,
        events: alert.events,
    })
}

/// The files and the grouping that were given, as arguments of a shell.
fn shell_arguments(given: &Arguments) -> String {
    let mut words: Vec<String> = given.files.iter().map(|file| quoted(&file.to_string_lossy())).collect();
    words.extend(given.grouping.merge.then(|| "--merge".to_owned()));
    words.extend(given.grouping.separate.then(|| "--separate".to_owned()));
    words.join(" ")
}

/// A text as one argument of a POSIX shell, whatever characters it contains.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:+@,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_shells_are_quoted() {
        for (text, expected) in [
            ("a/b.etl", "a/b.etl"),
            ("a b.etl", "'a b.etl'"),
            ("a$(b).etl", "'a$(b).etl'"),
            ("it's", r"'it'\''s'"),
            ("m!f*", "'m!f*'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
