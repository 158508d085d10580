//! One code, two sources: a trace file that is read in one pass, and the same trace delivered event
//! by event as Windows does, with the processors in any order. Both give the same results.

mod findings;
mod shown;

use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::live::{Capture, EventRecord, LiveMerger, Overflow, Queue, channel};
use stackhound::trace::{OpenTrace, Source, TraceFiles};
use stackhound::{Passes, Pipeline};
use stackhound_corpus as corpus;
use stackhound_etl::EtlFile;
use stackhound_etw_fake::deliver;
use stackhound_etw_fake::replay::{Order, Replay, Slice};
use stackhound_schema::SchemaStore;

use shown::shown;

/// Maximum time between the buffers of the processors, the default of the fake: half a second.
const DISORDER: i64 = 5_000_000;

/// Delivers one buffer, as a session does.
fn deliver_buffer(capture: &mut Capture, slice: &Slice) {
    let flags = slice.buffer_flags();
    if slice.after_loss
        && let Some(first) = slice.entries().next()
    {
        let header = deliver::lost_buffer(first.time.0, flags);
        let event = EventRecord { header: &header, processor: slice.processor, items: &[], payload: &[] };
        assert!(capture.event(&event).is_continue());
    }
    for entry in slice.entries() {
        let record = slice.block.record(entry);
        let Some(delivered) = deliver::deliver(&record, flags) else { continue };
        let items: Vec<(u16, &[u8])> =
            delivered.items.iter().map(|(kind, data)| (*kind, data.bytes())).collect();
        let (header, payload) = (&delivered.header, delivered.payload);
        let event = EventRecord { header, processor: slice.processor, items: &items, payload };
        assert!(capture.event(&event).is_continue());
    }
    assert!(capture.buffer_done().is_continue());
}

/// All events as text, except those that only one of the sources has: the first record of a file,
/// and the notices of losses of a session.
fn all(mut pipeline: Pipeline<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    pipeline.run(|view| {
        let name = view.name();
        if name != "EventTrace/Header" && view.provider_guid().is_none_or(|guid| guid != deliver::LOST_EVENT)
        {
            lines.push(shown(view));
        }
        ControlFlow::Continue(())
    });
    lines
}

/// What is compared: a text for each event.
type Texts = fn(Pipeline<'_>) -> Vec<String>;

fn from_file(etl_file: &EtlFile, texts: Texts) -> Vec<String> {
    let source = Source::new("", etl_file.clone());
    let trace = OpenTrace::new(vec![source], 1).unwrap();
    texts(Pipeline::new(&trace, Passes::One))
}

fn as_live(etl_file: &EtlFile, seed: u64, texts: Texts) -> Vec<String> {
    let clock = etl_file.clock();
    let order = Order { seed, disorder: clock.span_to_raw(DISORDER), rounds: Some(1) };
    let replay = Replay::new(etl_file.clone(), order);
    let (mut capture, incoming) = channel(etl_file.session().clone(), Queue::new(Overflow::Block));
    let session = std::thread::spawn(move || replay.for_each(|slice| deliver_buffer(&mut capture, &slice)));
    let lines = texts(Pipeline::live(LiveMerger::new(vec![incoming]).unwrap(), SchemaStore::new()));
    session.join().unwrap();
    lines
}

#[track_caller]
fn check(name: &str, etl_file: &EtlFile, seeds: std::ops::Range<u64>) {
    check_texts(name, etl_file, seeds, all);
}

#[track_caller]
fn check_texts(name: &str, etl_file: &EtlFile, seeds: std::ops::Range<u64>, texts: Texts) {
    let expected = from_file(etl_file, texts);
    for seed in seeds {
        let live = as_live(etl_file, seed, texts);
        let differs = expected.iter().zip(&live).position(|(file, live)| file != live);
        if let Some(at) = differs {
            panic!(
                "{name}, seed {seed}, event {at} of {}:\nfile: {}\nlive: {}",
                expected.len(),
                expected[at],
                live[at]
            );
        }
        assert_eq!(expected.len(), live.len(), "{name}, seed {seed}: events");
    }
    println!("{name}: {} events are the same", expected.len());
}

#[test]
fn traces_of_the_corpus() {
    for (name, path) in corpus::trace_files() {
        let trace = TraceFiles::file(&path).open().unwrap();
        for source in trace.sources() {
            check(&name, &source.etl_file, 1..3);
        }
    }
}

#[test]
fn generated_traces() {
    for seed in 1..4 {
        let scenario = stackhound_scenario::Scenario { seed, events: 20_000, ..Default::default() };
        let mut file = Cursor::new(Vec::new());
        scenario.write(&mut file).unwrap();
        check("scenario", &EtlFile::open(file.into_inner().into()).unwrap(), 1..3);
    }
}
