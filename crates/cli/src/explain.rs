//! `explain`: what a detection asks, needs and misses, and what to do with its findings.

use std::io::Write;

use anyhow::{Result, anyhow};
use clap::Args;
use stackhound::detect::DetectionId;

use crate::outcome::Outcome;
use crate::output::Sink;

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A detection, such as CS05; all of them in a list if none is given
    #[arg(value_name = "ID")]
    pub detection: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let mut sink = Sink::open(None)?;
    match &arguments.detection {
        None => list(&mut sink)?,
        Some(text) => explain(&mut sink, find(text)?)?,
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
    for id in DetectionId::all() {
        let detection = id.detection();
        let techniques = detection.attack.join(" ");
        writeln!(
            out,
            "{}  {:<8}  {}  [{techniques}]",
            id.name(),
            detection.severity.name(),
            detection.title
        )?;
    }
    writeln!(
        out,
        "\n`stackhound explain {}` explains one.",
        DetectionId::all().next().map_or("", DetectionId::name)
    )?;
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
