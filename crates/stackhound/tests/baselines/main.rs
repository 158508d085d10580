//! What we decode against what Microsoft's TraceEvent library printed for three recordings.
//!
//! For each event that Microsoft printed, the event is looked for in the recording and every value is compared. For each
//! kind of event, the counts are compared. `docs/baselines.md` holds the figures, the names that differ and the
//! differences with their causes; it is read by the test, and neither a difference without an entry nor an entry
//! without a difference is accepted.

mod baseline;
mod comparison;
mod explanations;
mod fields;
mod notation;

use std::path::Path;

use baseline::Baseline;
use comparison::Comparison;
use explanations::Explanations;

/// The recordings, and which share of the values has to be equal, in thousandths. May only rise.
const TRACES: [(&str, u64); 3] = [("net452-x64", 950), ("gcevents", 990), ("primitive-types", 848)];

#[test]
fn microsofts_baselines() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/baselines.md");
    let page = std::fs::read_to_string(page).expect("docs/baselines.md");
    let mut explanations = Explanations::parse(&page);
    let mut complaints = Vec::new();
    for (etl_file, least) in TRACES {
        let Some(text) = stackhound_corpus::text(&format!("etl/perfview-{etl_file}.baseline.txt")) else {
            return;
        };
        let path = stackhound_corpus::path(&format!("perfview-{etl_file}.etl")).expect("the corpus is there");
        let comparison = Comparison::of(etl_file, &Baseline::parse(&text), &path, &mut explanations);
        println!("{etl_file}: {}", comparison.figures);
        for (event, lines) in &comparison.unknown {
            println!("    without a known schema: {event}, {lines} lines");
        }
        if comparison.figures.equal_of_a_thousand() < least {
            complaints.push(format!("{etl_file}: fewer values are equal than there were"));
        }
        complaints.extend(comparison.complaints);
    }
    complaints.extend(explanations.unused());
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
