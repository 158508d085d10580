//! The texts of `stackhound explain`: all detections have the same headings, and the stated
//! severity agrees with the table of detections.

use stackhound_detect::catalogue::DETECTIONS;
use stackhound_detect::{DetectionId, Severity};

const HEADINGS: [&str; 5] =
    ["What it means", "False positives", "Limitations", "Missing evidence", "Next steps"];

/// The lines under a heading.
fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| !HEADINGS.contains(line)).collect()
}

/// The rest of the sentence after a word at the start of a line.
fn statement(text: &str, heading: &str, start: &str) -> String {
    let lines = section(text, heading);
    let from = lines.iter().skip_while(|line| !line.trim_start().starts_with(start));
    let joined = from.map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let sentence = joined.split_once('.').map_or(joined.as_str(), |(sentence, _)| sentence);
    sentence.strip_prefix(start).unwrap_or_default().trim().to_owned()
}

#[test]
fn every_explanation_has_all_headings_in_order() {
    for detection in &DETECTIONS {
        let lines = detection.explanation.lines();
        let found: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with(' ')).collect();
        assert_eq!(found, HEADINGS, "{}", detection.name);
        for heading in HEADINGS {
            let length: usize =
                section(detection.explanation, heading).iter().map(|line| line.trim().len()).sum();
            assert!(length > 80, "{}: {heading} is nearly empty", detection.name);
        }
    }
}

#[test]
fn no_line_is_too_long_for_a_terminal() {
    for detection in &DETECTIONS {
        for line in detection.explanation.lines() {
            assert!(line.chars().count() <= 96, "{}: {line}", detection.name);
            assert_eq!(line.trim_end(), line, "{}", detection.name);
        }
    }
}

#[test]
fn explanations_name_existing_detections() {
    for detection in &DETECTIONS {
        for (at, _) in detection.explanation.match_indices("CS") {
            let rest = &detection.explanation[at + 2..];
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            // Other words begin with the same letters.
            if digits.is_empty() {
                continue;
            }
            let name = format!("CS{digits}");
            assert!(DetectionId::parse(&name).is_some(), "{}: {name}", detection.name);
        }
    }
}

#[test]
fn explanations_state_the_severity_of_the_table() {
    for detection in &DETECTIONS {
        let stated = statement(detection.explanation, "What it means", "Severity:");
        let words: Vec<_> = stated.split(|c: char| !c.is_ascii_alphabetic()).collect();
        let named = Severity::ALL.into_iter().filter(|severity| words.contains(&severity.name()));
        assert_eq!(named.max(), Some(detection.severity), "{}: {stated}", detection.name);
    }
}
