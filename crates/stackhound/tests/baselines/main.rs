//! Compares decoded events with the output of Microsoft's TraceEvent library for three traces.
//!
//! For each printed event, the matching event of the trace is found and every value is compared.
//! For each kind of event, the counts are compared. `docs/baselines.md` contains the figures, the
//! different names, and the differences with their causes. The test reads this page: each
//! difference needs an entry, and each entry a difference.

mod baseline;
mod comparison;
mod explanations;
mod fields;
mod notation;

use std::path::Path;

use baseline::Baseline;
use comparison::Comparison;
use explanations::Explanations;

/// The traces, and the required share of equal values, in thousandths. It may only rise.
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
            complaints.push(format!("{etl_file}: fewer values are equal than required"));
        }
        complaints.extend(comparison.complaints);
    }
    complaints.extend(explanations.unused());
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
