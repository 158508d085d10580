//! Buffers dropped from traces: the complete trace never contradicts a certain stack, state or
//! verdict, and no fact of the state contradicts the ground truth.
//!
//! An ordinary run drops every fourth data buffer of small traces, every 64th of larger ones, and a
//! few pairs. With `STACKHOUND_LOSS=full`, each data buffer in turn and 200 random pairs are
//! dropped; `scripts/loss.sh` runs this form and prints the figures.

mod answers;
mod bound;
pub mod drops;
mod facts;

use stackhound_scenario::{Mix, Scenario};

use answers::Reading;
use drops::{Comparison, Extent};

/// The share of events with certain stacks that a dropped buffer leaves certain (median over the
/// buffers).
const STAYS_CERTAIN: f64 = 0.85;
/// If keys are referenced long before they are defined, fewer stacks can be confirmed. This part of
/// the confirmable share is not reached, because a missing sequence number does not identify its
/// processor.
const NOT_REACHED: f64 = 0.1;

fn demo(mix: Mix, seed: u64) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    Scenario { events: 8_000, seed, mix }.write(&mut file).expect("a scenario");
    file.into_inner()
}

#[track_caller]
fn check(name: &str, bytes: &[u8], reading: Reading) {
    let comparison = Comparison::of(name, bytes, reading, Extent::from_environment());
    println!("{comparison}");
    assert!(comparison.contradictions.is_empty(), "{name}: {:#?}", comparison.contradictions);
    if let Some(stays) = comparison.median_stays_certain() {
        let least = comparison.median_confirmable().map_or(1.0, |best| best - NOT_REACHED).min(STAYS_CERTAIN);
        assert!(stays >= least, "{name}: {stays:.3} of the certain stacks stay certain, not {least:.3}");
    }
}

#[test]
fn demo_default() {
    for seed in 1..=3 {
        check(&format!("demo {seed}"), &demo(Mix::Default, seed), Reading::WithVerdicts);
    }
}

#[test]
fn demo_profile() {
    check("demo, profile mix", &demo(Mix::Profile, 1), Reading::Stacks);
}

/// Cases of detections. Many depend on changes of memory in earlier buffers. Answers about a trace
/// that has losses itself are undetermined, so that it is no measure for a part of it.
#[test]
fn cases_of_detections() {
    for file in stackhound_testkit::files().expect("cases") {
        if file.kind == stackhound_testkit::Kind::Etl && file.name != "with a lost buffer" {
            let extent = Extent::from_environment();
            let comparison = Comparison::of(&file.name, &file.bytes, Reading::WithVerdicts, extent);
            println!("{comparison}");
            assert!(comparison.contradictions.is_empty(), "{}: {:#?}", file.name, comparison.contradictions);
        }
    }
}

#[track_caller]
fn check_corpus(name: &str) {
    if let Some(bytes) = stackhound_corpus::etl_file(name) {
        check(name, &bytes, Reading::WithVerdicts);
    }
}

#[test]
fn a_trace_of_the_corpus_with_a_kernel_session() {
    check_corpus("perfview-net452-x64.etl");
}

#[test]
fn a_trace_of_the_corpus_with_a_user_session() {
    check_corpus("perfview-diaghub.user_paged.1.etl");
}
