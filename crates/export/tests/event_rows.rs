//! Lines of events must have the bytes of the typed document, whatever the trace contains.

use std::io::Cursor;

use stackhound_etl::EtlFile;
use stackhound_export::escape::json;
use stackhound_export::json::event::Event;
use stackhound_export::json::event_rows::{EventRows, MissingFacts};
use stackhound_pipeline::{Depth, Enrichment, EventView, Fact, Passes, Pipeline};
use stackhound_scenario::{Mix, Scenario};
use stackhound_trace::{OpenTrace, Source};

fn open(bytes: Vec<u8>) -> Option<OpenTrace> {
    let etl_file = EtlFile::open(bytes.into()).ok()?;
    OpenTrace::new(vec![Source::new("", etl_file)], 1).ok()
}

/// Compares the lines of all events. Returns their number.
fn check(trace: &OpenTrace, passes: Passes, depth: Option<Depth>) -> u64 {
    let enrichment = Enrichment { depth, ..Enrichment::default() };
    let mut pipeline = Pipeline::new(trace, passes).with(enrichment);
    let facts = ["process.path", "file.path", "registry.path"].map(|name| Fact::of(name).unwrap());
    let mut kinds = [false, true].map(|with_stacks| (with_stacks, EventRows::new(with_stacks), Vec::new()));
    let mut events = 0;
    pipeline.run(|view| {
        events += 1;
        for (with_stacks, rows, documents) in &mut kinds {
            let missing = rows.push(view).unwrap();
            assert_eq!(missing, expected(view, facts));
            json(documents, &Event::new(view, *with_stacks)).unwrap();
            documents.push(b'\n');
            if rows.is_full() {
                compare(rows, documents);
            }
        }
        std::ops::ControlFlow::Continue(())
    });
    kinds.iter_mut().for_each(|(_, rows, documents)| compare(rows, documents));
    events
}

/// Compares the lines since the last call, and clears the documents.
fn compare(rows: &mut EventRows, documents: &mut Vec<u8>) {
    let mut lines = Vec::new();
    rows.take().append_lines(&mut lines).unwrap();
    let (lines, expected) = (String::from_utf8_lossy(&lines), String::from_utf8_lossy(documents));
    for (line, expected) in lines.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), expected.len());
    documents.clear();
}

/// The missing facts, from the facts that filters use.
fn expected(view: &EventView<'_>, [process, file, registry]: [Fact; 3]) -> MissingFacts {
    let missing = |applies: bool, fact: Fact| fact.missing(view).filter(|_| applies);
    MissingFacts {
        process_path: missing(view.pid().is_some_and(|pid| !pid.is_kernel_only()), process),
        file_path: missing(view.is_about_file(), file),
        registry_path: missing(view.is_about_registry(), registry),
    }
}

#[test]
fn generated_traces() {
    for (mix, seed) in [(Mix::Default, 1), (Mix::Reuse, 2), (Mix::Before, 3), (Mix::Profile, 4)] {
        let mut file = Cursor::new(Vec::new());
        Scenario { events: 8_000, seed, mix }.write(&mut file).unwrap();
        let trace = open(file.into_inner()).unwrap();
        let (address, function) = (Some(Depth::Address), Some(Depth::Function));
        for (passes, depth) in [(Passes::One, None), (Passes::Two, address), (Passes::Two, function)] {
            assert!(check(&trace, passes, depth) > 4_000);
        }
    }
}

#[test]
fn traces_of_the_corpus() {
    for (name, path) in stackhound_corpus::trace_files() {
        // Large traces have no other kinds of events.
        if std::fs::metadata(&path).is_ok_and(|file| file.len() > 1 << 20) {
            continue;
        }
        let Some(bytes) = stackhound_corpus::etl_file(&name) else { continue };
        let Some(trace) = open(bytes) else { continue };
        check(&trace, Passes::Two, None);
    }
}
