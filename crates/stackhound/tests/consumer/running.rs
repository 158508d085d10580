//! The end of traces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use stackhound::live::{Overflow, Queue};
use stackhound::{Error, Provider, Trace};
use stackhound_types::Guid;

use crate::blocks::{send, source};
use crate::etl_file;

#[test]
fn a_panic_of_a_handler_is_an_error_of_the_trace() {
    let panicking = || Provider::guid(Guid([5; 16])).on_event(|_| -> () { panic!("no {}", "way") });
    let (mut capture, trace) = source(Queue::new(Overflow::Block));
    let running = trace.enable(panicking()).start().unwrap();
    assert!(send(&mut capture, 1, 1));
    drop(capture);
    assert!(matches!(running.wait(), Err(Error::Panicked(message)) if message == "no way"));

    let error = Trace::file(etl_file()).run(|_| -> () { panic!("here too") }).unwrap_err();
    assert_eq!(error.to_string(), "a handler panicked: here too");
}

#[test]
fn none_is_called_after_stop() {
    for _ in 0..20 {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        let (mut capture, trace) = source(Queue { blocks: 4, ..Queue::new(Overflow::Block) });
        let count = move |_: &stackhound::EventView<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let running = trace.enable(Provider::guid(Guid([5; 16])).on_event(count)).start().unwrap();
        let sender = std::thread::spawn(move || {
            let mut n = 0;
            // A burst that ends when the receiver is gone.
            while send(&mut capture, n, 1) {
                n += 1;
            }
        });
        while calls.load(Ordering::SeqCst) == 0 {
            assert!(!running.is_finished(), "it ended before the first event");
            std::thread::yield_now();
        }
        let stats = running.stop().unwrap();
        let at_stop = calls.load(Ordering::SeqCst);
        sender.join().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), at_stop);
        assert_eq!(stats.delivered, at_stop);
    }
}

#[test]
fn counters_can_be_had_while_it_runs() {
    let queue = Queue { disorder: Some(Duration::from_millis(1)), ..Queue::new(Overflow::Block) };
    let (mut capture, trace) = source(queue);
    let running = trace.start().unwrap();
    let began = Instant::now();
    let mut n = 0;
    while running.stats().unwrap().delivered == 0 {
        assert!(send(&mut capture, n, 1));
        n += 1;
        std::thread::sleep(Duration::from_millis(1));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    assert!(!running.is_finished());
    assert!(running.stop().unwrap().delivered > 0);
}

#[test]
fn a_handler_may_stop_the_trace_itself() {
    let (handles, handle) = mpsc::channel::<stackhound::StopHandle>();
    let (mut capture, trace) = source(Queue::new(Overflow::Block));
    let stop = Provider::guid(Guid([5; 16])).on_event(move |_| handle.recv().unwrap().stop());
    let running = trace.enable(stop).start().unwrap();
    handles.send(running.handle()).unwrap();
    for n in 0..3 {
        send(&mut capture, n, 1);
    }
    drop(capture);
    assert_eq!(running.wait().unwrap().delivered, 1);
}
