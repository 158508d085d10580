//! The presets of live sessions, on the demo reduced to the events of each: what `docs/live.md` promises
//! for a preset has the same values as in the whole trace. Facts about memory outside of images come from
//! allocations, which only the preset for enrichment records.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde_json::Value;
use stackhound::detect::Binaries;
use stackhound::export::json::event_rows::EventRows;
use stackhound::hunt::HuntSession;
use stackhound::schema::kernel::hook_id;
use stackhound::{Enrichment, EventView, Passes, Pipeline};
use stackhound_etl::EtlFile;
use stackhound_scenario::Mix;

use crate::cut::{demo, open};

/// Detections that do not depend on the memory outside of images.
const WITHOUT_ALLOCATIONS: [&str; 5] = ["CS02", "CS03", "CS04", "CS05", "CS06"];

/// No event has this hook id.
const UNUSED: u16 = 0x2fff;

/// Whether a hook id is that of an event which every kernel session logs, or of a part of a stack. The
/// user part of a stack can belong to several events, so parts of stacks are kept for events that are
/// not in a preset too.
fn is_always_logged(id: u16) -> bool {
    const CONFIGURATION: u16 = 0x0b;
    const STACK_WALK: u16 = 0x18;
    matches!(id >> 8, 0 | CONFIGURATION | STACK_WALK)
}

/// The events of the groups PROCESS, THREAD and IMAGE_LOAD.
fn is_of_processes(id: u16) -> bool {
    const IMAGE: u16 = 0x14;
    let is_process = (hook_id::PROCESS_START..=hook_id::PROCESS_DC_END).contains(&id);
    let is_thread = (hook_id::THREAD_START..=hook_id::THREAD_DC_END).contains(&id);
    is_process || is_thread || id == hook_id::IMAGE_LOAD || id >> 8 == IMAGE
}

fn is_of_calls(id: u16) -> bool {
    matches!(id, hook_id::PERF_INFO_SYS_CALL_ENTER | hook_id::PERF_INFO_SYS_CALL_EXIT)
}

/// Kernel events for which `is_kept` is false have an unused hook id.
fn reduced(file: &[u8], is_kept: impl Fn(u16) -> bool) -> Vec<u8> {
    let etl_file = EtlFile::open(file.to_vec().into()).expect("a trace");
    let mut reduced = file.to_vec();
    for buffer in etl_file.index().buffers {
        let (block, _) = etl_file.block(&buffer, None).expect("a whole buffer");
        for entry in block.entries() {
            let Some(id) = entry.hook_id() else { continue };
            // After the version, the type and flags of the header, and the size.
            let at = buffer.offset as usize + entry.offset() + 6;
            assert_eq!(file[at..at + 2], id.to_le_bytes());
            if !is_always_logged(id) && !is_kept(id) {
                reduced[at..at + 2].copy_from_slice(&UNUSED.to_le_bytes());
            }
        }
    }
    reduced
}

/// An event without the facts about memory outside of images, which are those of allocations.
fn without_allocations(line: &str) -> String {
    let mut event: Value = serde_json::from_str(line).expect("JSON");
    let stack = &mut event["stack"];
    let frames = stack["frames"].as_array_mut().into_iter().flatten();
    for frame in frames.filter(|frame| frame["module"].is_null()) {
        frame["backing"] = Value::Null;
        frame["region"] = Value::Null;
    }
    if stack.is_object() {
        for summary in ["summary", "contains_unbacked", "final_user_module"] {
            stack[summary] = Value::Null;
        }
    }
    event.to_string()
}

/// The selected events as lines of JSON with their stacks, each with the detections that found it; and
/// how many system calls are joined, of how many.
fn answers(file: &[u8], is_selected: impl Fn(&EventView<'_>) -> bool) -> (Vec<String>, u64, u64) {
    let trace = open(file);
    let mut pipeline = Pipeline::new(&trace, Passes::Two).with(Enrichment::default());
    let mut hunt = HuntSession::new(Binaries::none(), pipeline.clock());
    let mut lines = Vec::new();
    let outcome = pipeline.run(|view| {
        hunt.observe(view);
        if is_selected(view) {
            let (mut rows, mut text) = (EventRows::new(true), Vec::new());
            rows.push(view).expect("written to memory");
            rows.take().append_lines(&mut text).expect("written to memory");
            let mut text = without_allocations(&String::from_utf8(text).expect("a text"));
            if HuntSession::can_evaluate(view) {
                let findings = hunt.evaluate(view).findings().map(|(id, _)| id.name());
                for name in findings.filter(|name| WITHOUT_ALLOCATIONS.contains(name)) {
                    text += &format!(" {name}");
                }
            }
            lines.push(text);
        }
        ControlFlow::Continue(())
    });
    (lines, outcome.calls.joined, outcome.calls.entries())
}

#[track_caller]
fn assert_same(whole: &[String], reduced: &[String]) {
    assert_eq!(whole.len(), reduced.len());
    let different: Vec<_> = whole.iter().zip(reduced).filter(|(whole, reduced)| whole != reduced).collect();
    assert!(different.is_empty(), "{} of {} differ: {:#?}", different.len(), whole.len(), different[0]);
}

#[test]
fn system_calls_are_completed_and_found_as_in_the_whole_trace() {
    let mut found_names = BTreeSet::new();
    for seed in 1..=3 {
        let file = demo(Mix::Default, seed);
        let is_call = |view: &EventView<'_>| view.event().hook_id().is_some_and(is_of_calls);
        let is_kept = |id| is_of_calls(id) || is_of_processes(id) || id == hook_id::THREAD_C_SWITCH;
        let (whole, joined, entries) = answers(&file, is_call);
        let (found, joined_found, entries_found) = answers(&reduced(&file, is_kept), is_call);
        assert_eq!((joined_found, entries_found), (joined, entries));
        assert!(3 * joined > entries, "{joined} of {entries}");
        found_names.extend(
            whole.iter().filter_map(|line| line.rsplit_once("} ")).map(|(_, names)| names.to_owned()),
        );
        assert_same(&whole, &found);
        // Without context switches, no call is completed.
        let (_, none, _) = answers(&reduced(&file, |id| is_of_calls(id) || is_of_processes(id)), is_call);
        assert_eq!(none, 0);
    }
    assert!(found_names.len() > 1, "{found_names:?}");
}

#[test]
fn context_switches_have_the_stacks_of_the_whole_trace() {
    let is_of_switches = |id| matches!(id, hook_id::THREAD_C_SWITCH | hook_id::THREAD_READY_THREAD);
    for seed in 1..=3 {
        let file = demo(Mix::Default, seed);
        let is_selected = |view: &EventView<'_>| view.event().hook_id().is_some_and(is_of_switches);
        let (whole, ..) = answers(&file, is_selected);
        let (found, ..) =
            answers(&reduced(&file, |id| is_of_switches(id) || is_of_processes(id)), is_selected);
        assert!(whole.len() > 300);
        assert_same(&whole, &found);
    }
}

#[test]
fn enriched_events_have_the_names_of_the_whole_trace() {
    const MEMORY: u16 = 0x02;
    const FILE: u16 = 0x04;
    const REGISTRY: u16 = 0x09;
    let is_enriched = |id: u16| matches!(id >> 8, MEMORY | FILE | REGISTRY) || is_of_processes(id);
    for seed in 1..=3 {
        let file = demo(Mix::Default, seed);
        let is_selected = |view: &EventView<'_>| view.event().hook_id().is_some_and(is_enriched);
        let (whole, ..) = answers(&file, is_selected);
        let (found, ..) = answers(&reduced(&file, is_enriched), is_selected);
        assert!(whole.len() > 300);
        assert_same(&whole, &found);
    }
}
