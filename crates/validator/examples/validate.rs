//! Checks `.etl` files and prints a line of JSON for each: its name, the violated rules, and the
//! number of checks of each rule.
//!
//! `validate FILE...`

use serde_json::json;
use stackhound_validator::{Rule, validate};

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let report = validate(&std::fs::read(&path)?);
        let violated: Vec<&str> = report.violated().into_iter().map(Rule::id).collect();
        let checks = report.tallies.iter().map(|(rule, tally)| (rule.id().to_owned(), tally.checks.into()));
        let checks: serde_json::Map<String, serde_json::Value> = checks.collect();
        println!("{}", json!({"file": path.to_string_lossy(), "violated": violated, "checks": checks}));
    }
    Ok(())
}
