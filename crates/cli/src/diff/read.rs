//! Reads one of the two traces: its processor time and its findings, in one pass.

use std::path::Path;

use anyhow::{Result, bail};
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::detect::Severity;
use stackhound::hunt::FindingSelection;
use stackhound::{Outcome, trace};

use super::Arguments;
use super::findings::Findings;
use crate::filter::EventFilter;
use crate::hunt::announce;
use crate::hunt::policy::HuntSetup;
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
pub fn read(
    path: &Path,
    arguments: &Arguments,
    common: &Common,
    setup: Option<&HuntSetup>,
) -> Result<Capture> {
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
    let pipeline = arguments.reading.pipeline(trace)?.with(enrichment);
    let mut progress = Progress::of(common, trace);
    let mut cpu = Cpu::new(String::new(), trace, filter.window(), Weighing::default()).with_slices();
    let (mut pipeline, mut hunt) = match setup {
        None => (pipeline, None),
        Some(setup) => {
            let hunt = setup.hunt(FindingSelection::from_severity(SEVERITY_MIN));
            let (pipeline, trace_hunt) = hunt.start(pipeline, Vec::new());
            (pipeline, Some((trace_hunt, Findings::new(&trace.clock()))))
        }
    };
    let mut failure = None;
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        let is_wanted = filter.wants(view);
        if let Some((hunt, findings)) = &mut hunt {
            findings.extend(view.time());
            if let Some(event) = hunt.event(view, is_wanted) {
                findings.add(&event, view.time());
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
    let findings = hunt.map(|(hunt, findings)| {
        announce(hunt.finish(pipeline).take_report().tuning.as_ref(), common);
        findings
    });
    Ok(Capture { path: path.display().to_string(), capture, report, findings, outcome, is_lossy })
}
