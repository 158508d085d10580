//! `explain`: the meaning of a detection, its false positives and limitations, and the next steps
//! for its findings.

use std::io::Write;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use stackhound::detect::DetectionId;

use crate::outcome::Outcome;
use crate::output::Sink;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Explain this detection, such as CS05; without it, list all detections
    #[arg(value_name = "ID")]
    pub detection: Option<String>,
    /// List the detections whose title, explanation or ATT&CK techniques contain this text, in any
    /// case
    #[arg(long, value_name = "TERM", conflicts_with = "detection")]
    pub search: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let mut sink = Sink::text(None)?;
    match (&arguments.detection, &arguments.search) {
        (Some(text), _) => explain(&mut sink, find(text)?)?,
        (None, Some(term)) => search(&mut sink, term)?,
        (None, None) => list(&mut sink)?,
    }
    sink.finish()?;
    Ok(Outcome::default())
}

fn find(text: &str) -> Result<DetectionId> {
    DetectionId::parse(text.trim()).ok_or_else(|| {
        anyhow!("there is no detection `{text}`; `stackhound explain` without a name lists all")
    })
}

fn list(out: &mut impl Write) -> Result<()> {
    DetectionId::all().try_for_each(|id| row(out, id))?;
    writeln!(
        out,
        "\n`stackhound explain {}` explains one.",
        DetectionId::all().next().map_or("", DetectionId::name)
    )?;
    Ok(())
}

fn row(out: &mut impl Write, id: DetectionId) -> std::io::Result<()> {
    let detection = id.detection();
    let techniques = detection.attack.join(" ");
    writeln!(out, "{}  {:<8}  {}  [{techniques}]", id.name(), detection.severity.name(), detection.title)
}

/// Lists the detections that contain a term. Line breaks of explanations count as spaces.
fn search(out: &mut impl Write, term: &str) -> Result<()> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let wanted = words(term);
    if wanted.is_empty() {
        bail!("nothing to search for: expected a term, such as `unhooking`");
    }
    let has_term = |id: &DetectionId| {
        let detection = id.detection();
        let texts = [detection.title, detection.explanation, &detection.attack.join(" ")];
        texts.iter().any(|text| words(text).contains(&wanted))
    };
    let found: Vec<DetectionId> = DetectionId::all().filter(has_term).collect();
    if found.is_empty() {
        bail!("no detection contains `{term}`; `stackhound explain` lists all");
    }
    found.into_iter().try_for_each(|id| row(out, id))?;
    Ok(())
}

fn explain(out: &mut impl Write, id: DetectionId) -> Result<()> {
    let detection = id.detection();
    let inputs: Vec<_> = detection.needs.iter().map(|input| input.name()).collect();
    writeln!(out, "{}: {}", id.name(), detection.title)?;
    writeln!(out, "Severity: {} at most", detection.severity.name())?;
    writeln!(out, "Decided by: {}", inputs.join(", "))?;
    writeln!(out, "ATT&CK: {}", detection.attack.join(", "))?;
    writeln!(out, "\n{}", detection.explanation.trim_end())?;
    Ok(())
}
