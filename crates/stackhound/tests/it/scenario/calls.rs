//! System calls have the threads, services and exits of the ground truth, and frames its memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::time::Duration;

use stackhound::frames::{CallEnd, RegionKind};
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::StoreOptions;
use stackhound::symbols::{Symbolizer, SymbolizerOptions};
use stackhound::{Depth, Enrichment, EventView, Passes, Pipeline};
use stackhound_etl::EtlFile;
use stackhound_scenario::{GroundTruth, Mix, Scenario, TraceEvent, Truth};
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{Address, Mode, Tid};

use super::RecordKey;

/// A call in the ground truth.
struct Call {
    tid: Tid,
    routine: Address,
    exit: Option<(RecordKey, bool)>,
    /// Whether the thread ended in the call.
    is_last: bool,
}

/// The calls of all threads by their entries, and the entries by their exits.
fn calls(events: &[TraceEvent]) -> (HashMap<RecordKey, Call>, HashMap<RecordKey, RecordKey>) {
    let (mut calls, mut entries) = (HashMap::new(), HashMap::new());
    let mut open: HashMap<Tid, Vec<RecordKey>> = HashMap::new();
    for event in events {
        let key = (event.time, event.processor);
        match event.action {
            GroundTruth::Enter { tid, routine } => {
                open.entry(tid).or_default().push(key);
                calls.insert(key, Call { tid, routine, exit: None, is_last: false });
            }
            GroundTruth::Exit { tid } => {
                let Some(entry) = open.get_mut(&tid).and_then(Vec::pop) else { continue };
                calls.get_mut(&entry).unwrap().exit = Some((key, event.kept));
                entries.insert(key, entry);
            }
            GroundTruth::Switch { old, old_ends: true, .. } => {
                for entry in open.remove(&old).into_iter().flatten() {
                    calls.get_mut(&entry).unwrap().is_last = true;
                }
            }
            _ => {}
        }
    }
    (calls, entries)
}

/// Names for the services of a scenario. The files are written to the folder.
pub(crate) fn named(truth: &Truth, folder: &std::path::Path) -> Enrichment {
    for file in truth.image_files() {
        let path = folder.join(file.store_path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file.bytes).unwrap();
    }
    let path = SymbolPath::store(folder.to_owned());
    let store = StoreOptions { path, cache: None, ..StoreOptions::default() };
    let options = SymbolizerOptions { store, ..SymbolizerOptions::default() };
    let symbolizer = Some(Symbolizer::new(options).unwrap());
    Enrichment { depth: Some(Depth::Function), symbolizer, ..Enrichment::default() }
}

fn key_of(view: &EventView<'_>) -> RecordKey {
    (view.raw_time(), view.processor().unwrap())
}

/// Compares each call that the pipeline reports with the ground truth. Returns their numbers by
/// completion, and the numbers of calls that are complete in the file and of those of them that
/// are found.
fn compare(scenario: Scenario, has_names: bool, passes: Passes) -> (BTreeMap<&'static str, u64>, [u64; 2]) {
    let mut file = Cursor::new(Vec::new());
    let (truth, events) = scenario.write_with_events(&mut file).unwrap();
    let (calls, entries) = calls(&events);
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut pipeline = Pipeline::new(&trace, passes);
    if has_names {
        pipeline = pipeline.with(named(&truth, folder.path()));
    }
    let (mut found, mut complete) = (BTreeMap::new(), [0, 0]);
    let mut unattributed = HashSet::new();
    let outcome = pipeline.run(|view| {
        let Some(call) = view.call() else { return ControlFlow::Continue(()) };
        let key = key_of(view);
        let is_exit = &*view.name() == "PerfInfo/SysCallExit";
        let entry = if is_exit { entries.get(&key) } else { Some(&key) };
        let of_truth = entry.map(|entry| (entry, &calls[entry]));
        let what = format!("{:?} {key:?} {call:?}", scenario.seed);
        if let (Some(tid), Some((_, truth))) = (call.tid, of_truth) {
            assert_eq!((tid, view.tid()), (truth.tid, Some(tid)), "{what}");
        }
        if let (Some(routine), Some((_, truth))) = (call.routine, of_truth) {
            assert_eq!(routine, truth.routine, "{what}");
        }
        match call.end {
            CallEnd::Completed { status, duration, .. } => {
                let (entry, truth) = of_truth.expect("an exit of a call in the trace");
                let (exit, kept) = truth.exit.expect("an exit");
                let ticks = (exit.0.0 - entry.0.0) as u64;
                assert!(kept, "{what}");
                assert_eq!((status, duration), (0, Duration::from_nanos(ticks * 100)), "{what}");
                if let Some(service) = view.service() {
                    assert!(service.starts_with("Nt"), "{service}");
                }
            }
            CallEnd::ThreadEnded => assert!(of_truth.unwrap().1.is_last, "{what}"),
            CallEnd::Unfinished => {
                let truth = of_truth.unwrap().1;
                assert!(truth.exit.is_none() && !truth.is_last, "{what}");
            }
            // No service of a scenario ends a callback.
            CallEnd::NotReturned => panic!("{what}"),
            CallEnd::NotEntered => {
                assert!(is_exit && entry.is_none_or(|entry| unattributed.contains(entry)), "{what}");
            }
            CallEnd::UnknownThread => {
                unattributed.insert(key);
            }
            CallEnd::Late | CallEnd::Lost | CallEnd::Unconfirmed => {}
        }
        if !is_exit {
            *found.entry(call.end.name()).or_default() += 1;
            let is_complete = of_truth.unwrap().1.exit.is_some_and(|(_, kept)| kept);
            complete[0] += u64::from(is_complete);
            complete[1] += u64::from(is_complete && call.end.name() == "completed");
        }
        ControlFlow::Continue(())
    });
    assert_eq!(found.values().sum::<u64>(), outcome.calls.entries());
    (found, complete)
}

#[test]
fn calls_have_the_thread_service_and_exit_of_the_truth() {
    let mut sum = [0, 0];
    for seed in 1..=6 {
        let scenario = Scenario { events: 40_000, seed, mix: Mix::Default };
        for passes in [Passes::One, Passes::Two] {
            let (found, complete) = compare(scenario, true, passes);
            println!("seed {seed}, {passes:?}: {found:?}, {} of {} complete", complete[1], complete[0]);
            assert!(found["completed"] > 500 && found.contains_key("thread-ended"), "{found:?}");
            if passes == Passes::Two {
                (sum[0], sum[1]) = (sum[0] + complete[0], sum[1] + complete[1]);
            }
        }
    }
    // The others are near the lost buffer, or those of a service that no file names.
    assert!(sum[1] * 100 >= sum[0] * 85, "{sum:?}");
}

#[test]
fn without_names_fewer_calls_are_confirmed_and_none_is_wrong() {
    for seed in 1..=3 {
        let scenario = Scenario { events: 40_000, seed, mix: Mix::Default };
        let (found, complete) = compare(scenario, false, Passes::Two);
        println!("seed {seed}: {found:?}, {} of {} complete", complete[1], complete[0]);
        assert!(found["completed"] > 50 && found["unconfirmed"] > 50, "{found:?}");
    }
}

/// The region of each user frame is an image or private memory of the truth, and the final kernel
/// module is that of the innermost frame.
#[test]
fn frames_have_the_memory_of_the_truth() {
    let scenario = Scenario { events: 20_000, seed: 3, mix: Mix::Default };
    let mut file = Cursor::new(Vec::new());
    let truth = scenario.write(&mut file).unwrap();
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap();
    let mut summary = stackhound::frames::Summary::default();
    let (mut images, mut private, mut kernel) = (0, 0, 0);
    Pipeline::new(&trace, Passes::Two).run(|view| {
        let owner = view.stack_owner().pid;
        let process = truth.processes.iter().find(|process| Some(process.pid) == owner);
        let (Some(process), Some(_)) = (process, view.stack()) else { return ControlFlow::Continue(()) };
        let frames = view.resolved();
        for frame in frames.iter().filter(|frame| frame.mode == Mode::User) {
            let address = frame.address.unwrap();
            let is_named = |kind| frame.region.kind == kind && frame.region.evidence.is_some();
            if let Some(image) = truth.image_at(process, Address(address.0 - 1)) {
                let extent = Some((image.base, u64::from(image.size)));
                images += u64::from(is_named(RegionKind::Image));
                assert!(!is_named(RegionKind::Image) || frame.region.extent == extent, "{frame:?}");
                continue;
            }
            let region = process.code_regions.iter().find(|region| region.contains(address)).unwrap();
            private += u64::from(is_named(RegionKind::Private));
            let extent = Some((region.base, region.size));
            assert!(!is_named(RegionKind::Private) || frame.region.extent == extent, "{frame:?}");
        }
        view.summarize(&mut summary);
        let innermost = frames.first().filter(|frame| frame.mode == Mode::Kernel);
        let expected = innermost.and_then(|frame| truth.image_at(process, frame.address.unwrap()));
        let modules = view.modules();
        let found = summary.final_kernel_module().map(|module| modules.get(module).name().to_owned());
        assert_eq!(found.as_deref(), expected.map(|image| image.name()));
        kernel += u64::from(found.is_some());
        ControlFlow::Continue(())
    });
    println!("{images} frames in images, {private} in private memory, {kernel} final kernel modules");
    assert!(images > 10_000 && private > 5 && kernel > 1_000);
}
