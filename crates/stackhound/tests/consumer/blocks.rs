//! Blocks of a custom source, such as a network transport or a test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stackhound::live::{Capture, EventRecord, LOST_EVENTS, Overflow, Queue, channel};
use stackhound::{EventView, Provider, Trace};
use stackhound_etl::{EtlFile, LogfileHeader};
use stackhound_types::Guid;

/// The class of processes.
const PROCESS: Guid =
    Guid::new(0x3d6f_a8d0, 0xfe05, 0x11d0, [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);

/// A session with one processor.
fn session() -> Arc<LogfileHeader> {
    let writer = stackhound_etl::write::EtlWriter::new(
        stackhound_etl::write::Session::default(),
        std::io::Cursor::new(Vec::new()),
    );
    let (file, _) = writer.unwrap().finish().unwrap();
    EtlFile::open(file.into_inner().into()).unwrap().session().clone()
}

/// An event without a payload.
pub fn send(capture: &mut Capture, time: i64, id: u16) -> bool {
    let mut header = [0; 80];
    header[4] = 0x40;
    header[0x10..0x18].copy_from_slice(&time.to_le_bytes());
    header[0x18..0x28].copy_from_slice(&[5; 16]);
    header[0x28..0x2a].copy_from_slice(&id.to_le_bytes());
    capture.event(&EventRecord { header: &header, processor: 0, items: &[], payload: &[] }).is_continue()
        && capture.buffer_done().is_continue()
}

pub fn source(queue: Queue) -> (Capture, Trace) {
    let (capture, incoming) = channel(session(), queue);
    (capture, Trace::blocks(incoming).without_stacks())
}

#[test]
fn blocks_are_a_trace_like_any_other() {
    let (mut capture, trace) = source(Queue::new(Overflow::Block));
    for n in 0..100 {
        assert!(send(&mut capture, i64::from(n), n));
    }
    drop(capture);
    let mut ids = Vec::new();
    let stats = trace.run(|event| ids.push(event.id())).unwrap();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    assert_eq!((stats.trace.events, stats.trace.events_dropped), (100, 0));
}

/// MOF and WPP events contain the GUID of their class or message, not that of the enabled provider.
#[test]
fn a_legacy_provider_gets_events_of_unknown_providers() {
    const CLASSIC: u16 = 0x0100;
    const MESSAGE: u16 = 0x0008;
    let (control, manifest, class, message) = (Guid([8; 16]), Guid([5; 16]), Guid([9; 16]), Guid([7; 16]));
    let (mut capture, trace) = source(Queue::new(Overflow::Block));
    let mut give = |guid: Guid, flags: u16| {
        let mut header = [0; 80];
        header[4..6].copy_from_slice(&(0x40 | flags).to_le_bytes());
        header[0x18..0x28].copy_from_slice(&guid.0);
        // The message header has a GUID, a sequence number and a time, as usual.
        header[0x28..0x30].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        let _ = capture.event(&EventRecord { header: &header, processor: 0, items: &[], payload: &[0; 8] });
    };
    give(manifest, 0);
    give(class, CLASSIC);
    give(message, MESSAGE);
    // A kernel event, a loss, and a class that another provider enables by its GUID.
    give(PROCESS, CLASSIC);
    give(LOST_EVENTS, CLASSIC);
    give(Guid([6; 16]), CLASSIC);
    drop(capture);
    let noted = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let noted = noted.clone();
        move |view: &EventView<'_>| noted.lock().unwrap().push((name, view.provider_guid()))
    };
    let trace = trace
        .enable(Provider::guid(control).legacy().on_event(note("legacy")))
        .enable(Provider::guid(manifest).on_event(note("manifest")))
        .enable(Provider::guid(Guid([6; 16])).on_event(note("class")))
        .on_unclaimed(note("none"));
    trace.run(|_| ()).unwrap();
    let expected = [
        ("manifest", Some(manifest)),
        ("legacy", Some(class)),
        ("legacy", Some(message)),
        ("none", Some(PROCESS)),
        ("none", Some(LOST_EVENTS)),
        ("class", Some(Guid([6; 16]))),
    ];
    assert_eq!(*noted.lock().unwrap(), expected);
}

#[test]
fn a_subscription_counts_what_it_drops() {
    for overflow in [Overflow::Block, Overflow::DropNewest, Overflow::DropOldest] {
        let (mut capture, trace) = source(Queue::new(Overflow::Block));
        let (running, mut subscription) = trace.subscribe(2, overflow).unwrap();
        let sender = std::thread::spawn(move || {
            for n in 0..20_000 {
                assert!(send(&mut capture, n, n as u16));
            }
        });
        let mut received = 0;
        while let Some(batch) = subscription.next_batch() {
            std::thread::sleep(Duration::from_millis(1));
            received += batch.len() as u64;
        }
        sender.join().unwrap();
        let counts = subscription.counts();
        let stats = running.wait().unwrap();
        assert_eq!((stats.delivered, counts.sent), (20_000, 20_000), "{overflow:?}");
        assert_eq!(received + counts.dropped, 20_000, "{overflow:?}");
        assert_eq!(stats.subscription, counts, "{overflow:?}");
        assert!(overflow != Overflow::Block || counts.dropped == 0);
    }
}

#[test]
fn dropping_the_subscription_ends_the_trace() {
    let (mut capture, trace) = source(Queue::new(Overflow::Block));
    let (running, subscription) = trace.subscribe(1, Overflow::Block).unwrap();
    drop(subscription);
    let mut n = 0;
    while send(&mut capture, n, 1) {
        n += 1;
        assert!(n < 10_000_000);
    }
    running.wait().unwrap();
}
