//! `explain`: the meaning of a detection, its false positives and limitations, and the next steps
//! for its findings.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::detect::{DetectionId, Reason};
use stackhound::expr::most_similar;

use crate::outcome::Outcome;
use crate::output::Sink;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Explain this detection or reason, such as CS05, cs5 or caller-unbacked, or the detections with
    /// this text in their title; without it, list all detections
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
        (Some(text), _) => match find(text)? {
            Found::Detections(found) => match found[..] {
                [id] => explain(&mut sink, id)?,
                _ => found.into_iter().try_for_each(|id| row(&mut sink, id))?,
            },
            Found::Reason(reason) => {
                writeln!(sink, "{}: {}", reason.code(), reason.sentence().replace("{frame}", "The frame"))?;
            }
        },
        (None, Some(term)) => search(&mut sink, term)?,
        (None, None) => list(&mut sink)?,
    }
    sink.finish()?;
    Ok(Outcome::default())
}

/// What a text names.
enum Found {
    Detections(Vec<DetectionId>),
    Reason(Reason),
}

/// Finds a detection by its id, a reason by its code, or detections by their titles and techniques.
fn find(text: &str) -> Result<Found> {
    let text = text.trim();
    if let Some(id) = detection(text) {
        return Ok(Found::Detections(vec![id]));
    }
    let code = text.to_lowercase().replace('_', "-");
    if let Some(reason) = Reason::ALL.iter().find(|reason| reason.code() == code) {
        return Ok(Found::Reason(*reason));
    }
    let is_named = |id: &DetectionId| {
        let detection = id.detection();
        let is_technique = |of: &&str| of.eq_ignore_ascii_case(text);
        detection.title.to_lowercase().contains(&text.to_lowercase())
            || detection.attack.iter().any(is_technique)
    };
    let named: Vec<DetectionId> = DetectionId::all().filter(is_named).collect();
    if !named.is_empty() && text.len() >= NAME_MIN {
        return Ok(Found::Detections(named));
    }
    if code.strip_prefix("cs").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
        let mut ids = DetectionId::all().map(DetectionId::name);
        let (first, last) = (ids.next().unwrap_or_default(), ids.last().unwrap_or_default());
        bail!("there is no detection `{text}`; the ids are {first} to {last}");
    }
    let names =
        DetectionId::all().map(DetectionId::name).chain(Reason::ALL.iter().map(|reason| reason.code()));
    match most_similar(&code, &names.collect::<Vec<_>>()) {
        Some(name) => bail!("there is no detection or reason `{text}`; did you mean `{name}`?"),
        None => {
            bail!("there is no detection or reason `{text}`; `stackhound explain` without a name lists all")
        }
    }
}

/// The detection with this id, in any case and with any number of zeros, such as `CS05`, `cs5` or `5`.
pub fn detection(text: &str) -> Option<DetectionId> {
    let letters = text.get(..2).filter(|letters| letters.eq_ignore_ascii_case("CS"));
    let digits = if letters.is_some() { &text[2..] } else { text };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    DetectionId::new(digits.parse().ok().filter(|_| is_number)?)
}

/// The shortest part of a title that is looked for.
const NAME_MIN: usize = 3;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_any_case_and_zeros() {
        for text in ["CS05", "cs05", "cs5", "Cs5", "CS005", "5", "05"] {
            assert_eq!(detection(text).map(DetectionId::name), Some("CS05"), "{text}");
        }
        for text in ["", "CS", "CS0", "CS31", "31", "0", "cs-5", "CS5x", "+5", "ä5", "99999999999999999999"]
        {
            assert_eq!(detection(text), None, "{text}");
        }
    }
}
