//! Reads one of the two traces: its processor time and its findings, in one pass.

use std::path::Path;

use anyhow::{Result, bail};
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::detect::report::SourceLocation;
use stackhound::detect::{Binaries, Severity};
use stackhound::hunt::HuntSession;
use stackhound::symbols::file_loader;
use stackhound::{Outcome, trace};

use super::Arguments;
use super::findings::Findings;
use crate::config::Config;
use crate::filter::EventFilter;
use crate::inputs;
use crate::naming;
use crate::options::Common;
use crate::progress::Progress;
use crate::reading::or_stop;

/// The lowest severity of findings that are compared. Lower ones are often benign.
const SEVERITY_MIN: Severity = Severity::Medium;

/// What was found in a trace.
pub struct Capture {
    /// As the user named it.
    pub path: String,
    pub capture: trace::Capture,
    pub report: CpuReport,
    pub findings: Option<Findings>,
    pub outcome: Outcome,
    /// Whether records may be missing.
    pub is_lossy: bool,
}

/// Reads a trace, which must be one capture.
pub fn read(path: &Path, arguments: &Arguments, common: &Common, hunts: bool) -> Result<Capture> {
    let mut captures = inputs::captures(&[path.to_owned()], arguments.grouping, common)?;
    let capture = match captures.pop() {
        Some(capture) if captures.is_empty() => capture,
        _ => bail!(
            "{}: expected one capture, found {}; name one file of it, or combine them with --merge",
            path.display(),
            captures.len() + 1
        ),
    };
    let trace = &capture.trace;
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, Some(&filter))?;
    let mut pipeline = arguments.reading.pipeline(trace)?.with(enrichment);
    let mut progress = Progress::of(common, trace);
    let mut cpu = Cpu::new(String::new(), trace, filter.window(), Weighing::default()).with_slices();
    let mut hunt = if hunts {
        let config = Config::read(common, &arguments.naming.locations)?;
        let (_, load) = file_loader(naming::store_options(&config, common)?, true);
        let binaries = Binaries::new(Box::new(move |module| load(&module.identity)));
        Some((HuntSession::new(binaries, pipeline.clock()), Findings::new(&trace.clock())))
    } else {
        None
    };
    let mut failure = None;
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        let is_wanted = filter.wants(view);
        if let Some((hunt, findings)) = &mut hunt {
            hunt.observe(view);
            findings.extend(view.time());
            if is_wanted && HuntSession::can_evaluate(view) {
                let evaluation = *hunt.evaluate(view);
                let severe = evaluation.findings().filter(|(_, outcome)| outcome.severity >= SEVERITY_MIN);
                let severe: Vec<_> = severe.map(|(id, outcome)| (id, outcome.severity)).collect();
                if !severe.is_empty() {
                    let location = SourceLocation { file: String::new(), record: 0 };
                    findings.add(&hunt.event_context(view, location), &severe, view.time());
                }
            }
        }
        or_stop(cpu.observe(view, || is_wanted), &mut failure)
    });
    if let Some(full) = failure {
        return Err(full.into());
    }
    let (known, _, naming) = pipeline.parts();
    let is_lossy = !known.losses().is_lossless();
    let mut report = cpu.finish(known, naming);
    if arguments.is_filtered() {
        // Which switches match a filter of events is not defined.
        report.exact = None;
    }
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    drop(pipeline);
    let findings = hunt.map(|(_, findings)| findings);
    Ok(Capture { path: path.display().to_string(), capture, report, findings, outcome, is_lossy })
}
