//! Live sessions from their description to their events, with a fake of the ETW functions:
//! `scripts/with-fake cargo test`.
#![cfg(windows)]

#[path = "../../../windows/tests/etw/fake.rs"]
mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fake::{EVENTS, PROCESSORS, PROVIDER};
use stackhound_etw_fake::harness::wait_for;
use stackhound_live::{
    Buffers, ClassicEvent, Delivery, EnableProperties, Error, EtwFilter, IfExists, Incoming, KernelGroups,
    LiveMerger, LiveSession, Overflow, ProviderSettings, Queue, Session, Step,
};
use stackhound_types::Guid;

/// 100 ns from 1601 to 1970.
const UNIX_EPOCH: i64 = 116_444_736_000_000_000;

fn queue() -> Queue {
    Queue::new(Overflow::Block)
}

fn provider() -> ProviderSettings {
    ProviderSettings::new(PROVIDER)
}

/// Reads to the end. Returns the ids in order, and whether times were in order.
fn read(incoming: Incoming) -> (Vec<u16>, bool) {
    read_and_count(incoming, &AtomicU64::new(0))
}

/// As [`read`], and counts the ids, so that other threads can wait for them.
fn read_and_count(incoming: Incoming, count: &AtomicU64) -> (Vec<u16>, bool) {
    let mut merger = LiveMerger::new(vec![incoming]).expect("one session");
    let (mut ids, mut last, mut ordered) = (Vec::new(), None, true);
    loop {
        match merger.next() {
            Step::Event(event) => {
                if event.guid() == Some(PROVIDER) {
                    ids.push(event.record().descriptor().expect("a descriptor").id);
                    count.fetch_add(1, Ordering::SeqCst);
                }
                ordered &= last <= Some(event.time());
                last = Some(event.time());
            }
            Step::Idle(_) => {}
            Step::End => return (ids, ordered),
        }
    }
}

fn start(session: &Session) -> Result<(LiveSession, Incoming), Error> {
    LiveSession::start(session, &[provider()], queue())
}

#[test]
fn all_events_come_in_the_order_of_time() {
    let test = "all_events_come_in_the_order_of_time";
    let Some(_fake) = fake::run(test, "[*]\ntrace = TRACE\nseed = 5\ndisorder_ms = 300\n") else {
        return;
    };
    for delivery in [Delivery::WholeBuffers, Delivery::Events] {
        let (live, incoming) = start(&Session::user("one").delivery(delivery)).expect("a session");
        assert!(!live.is_attached() && live.name() == "one");
        let (ids, ordered) = read(incoming);
        assert!(ordered && ids.iter().copied().eq(0..EVENTS as u16), "{delivery:?}: {} events", ids.len());
        let counters = live.stop().expect("stopped");
        assert!(counters.ended && !counters.lost_something());
    }
}

#[test]
fn a_session_has_the_header_of_a_trace() {
    let test = "a_session_has_the_header_of_a_trace";
    let Some(_fake) = fake::run(test, "[*]\ntrace = TRACE\nat_end = wait\n") else { return };
    let (live, incoming) = start(&Session::user("one")).expect("a session");
    let header = incoming.session();
    assert_eq!((header.session_name.as_str(), header.processors), ("one", PROCESSORS.into()));
    assert_eq!(header.mode.0 & 0x100, 0x100);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let now = UNIX_EPOCH + since_1970.as_nanos() as i64 / 100;
    assert!((now - header.start_time.0).abs() < 100_000_000, "{now} {:?}", header.start_time);
    // The reference point is the same moment by both clocks.
    let by_clock = header.clock().to_file_time(header.reference);
    assert!((by_clock.0 - header.start_time.0).abs() < 10, "{by_clock:?} {:?}", header.start_time);
    drop(incoming);
    live.stop().expect("stopped");
}

#[test]
fn stopped_in_a_burst_every_event_is_read_or_counted() {
    let test = "stopped_in_a_burst_every_event_is_read_or_counted";
    let text = "[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(fake) = fake::run(test, text) else { return };
    for overflow in [Overflow::Block, Overflow::DropNewest, Overflow::DropOldest] {
        let session = Session::user("one").delivery(Delivery::Events);
        let queue = Queue { blocks: 4, ..Queue::new(overflow) };
        let (live, incoming) = LiveSession::start(&session, &[provider()], queue).expect("a session");
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let reader = thread::spawn(move || {
            let mut merger = LiveMerger::new(vec![incoming]).expect("one session");
            loop {
                match merger.next() {
                    Step::End => return merger.stats(),
                    Step::Event(event) => {
                        if event.record().payload() == 7u16.to_le_bytes() {
                            // Simulates a slow reader.
                            thread::sleep(Duration::from_millis(3));
                        }
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    Step::Idle(_) => {}
                }
            }
        });
        wait_for("a burst", || count.load(Ordering::SeqCst) > 20_000);
        let counters = live.stop().expect("stopped");
        let stats = reader.join().expect("read");
        let last = fake.log("ProcessTrace").pop().expect("a line");
        let of = |name: &str| -> u64 {
            let start = last.split_once(name).expect("a counter").1;
            start.split(' ').next().unwrap().parse().expect("a number")
        };
        // The fake's reports of losses are events as well.
        let notices = stats.events + stats.events_dropped - of(" delivered=");
        assert!(notices <= of(" buffers_lost="), "{overflow:?}: {last} {stats:?}");
        assert_eq!(counters.events_lost, of(" events_lost="), "{last} {counters:?}");
        assert_eq!(of(" generated="), of(" delivered=") + counters.events_lost);
    }
}

#[test]
fn a_session_needs_no_reader() {
    let test = "a_session_needs_no_reader";
    let text = "[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(fake) = fake::run(test, text) else { return };
    let begin = Instant::now();
    let (live, incoming) = start(&Session::user("one")).expect("a session");
    drop(incoming);
    live.stop().expect("stopped");
    let (live, incoming) = start(&Session::user("two")).expect("a session");
    drop(incoming);
    drop(live);
    // Stopping waits half a minute for a consumer that does not end.
    assert!(begin.elapsed() < Duration::from_secs(25));
    assert_eq!(fake.log("ControlTraceW stop").len(), 2);
}

#[test]
fn a_stopped_session_can_be_read_by_the_same_thread() {
    let test = "a_stopped_session_can_be_read_by_the_same_thread";
    let text = "[*]\ntrace = TRACE\nrate = 200000\nrounds = forever\n";
    let Some(_fake) = fake::run(test, text) else { return };
    let queue = Queue { blocks: 2, ..queue() };
    let (mut live, incoming) =
        LiveSession::start(&Session::user("one"), &[provider()], queue).expect("a session");
    wait_for("a block", || incoming.captured() > 0);
    live.end().expect("stopping");
    assert!(!read(incoming).0.is_empty());
    assert!(live.stop().expect("stopped").ended);
}

#[test]
fn presets_reach_windows_as_described() {
    let test = "presets_reach_windows_as_described";
    let Some(fake) = fake::run(test, "") else { return };
    for session in [Session::syscalls("sensor"), Session::enrichment("names"), Session::switches("waits")] {
        let (live, incoming) = LiveSession::start(&session, &[], queue()).expect("a session");
        drop(incoming);
        live.stop().expect("stopped");
    }
    let lines = fake.log("StartTraceW name=");
    let expected = "clock=1 buffer_kib=64 minimum=20 maximum=128 flush=1s mode=0xa000100 flags=0x0";
    assert!(lines[0].contains(expected) && !lines[0].contains("guid={00000000-"), "{lines:?}");
    assert!(lines[1].contains("flags=0x6024007"), "{lines:?}");
    assert!(lines[2].contains("flags=0x0"), "{lines:?}");
    let lines = fake.log("TraceSetInformation");
    // Stacks first, then the groups.
    assert!(lines[0].starts_with("TraceSetInformation stacks {ce1dbfb4-137e-4da6-87b0-3f59aa102cbc}/51 ->"));
    assert!(lines[1].contains("class=4 970000000400000040000000"), "{lines:?}");
    // Names are logged when the groups are disabled and enabled: no groups, the stacks, that of
    // image loads by the class of processes, then all groups.
    assert!(lines[2].contains(&format!("class=4 {} ->", "0".repeat(64))), "{lines:?}");
    assert!(lines[3].contains("{3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c}/10"), "{lines:?}");
    assert!(lines[4].contains("class=4 0740020600800000"), "{lines:?}");
    // Context switches belong to the class of threads.
    assert!(lines[5].contains("stacks {3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c}/36 ->"), "{lines:?}");
    assert!(lines[6].contains("class=4 170800000402000000"), "{lines:?}");
}

#[test]
fn a_burst_finds_buffers_on_every_machine() {
    let test = "a_burst_finds_buffers_on_every_machine";
    let Some(fake) = fake::run(test, "") else { return };
    let two = Buffers::new(64, 2, 2, Duration::from_secs(1)).expect("buffers");
    let (live, incoming) = start(&Session::user("one").buffers(two)).expect("a session");
    drop(incoming);
    live.stop().expect("stopped");
    let expected = format!("minimum=2 maximum={} ", 4 * stackhound_windows::etw::active_processors());
    let line = fake.log("StartTraceW name=").pop().expect("a line");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn providers_reach_windows_merged() {
    let test = "providers_reach_windows_merged";
    let Some(fake) = fake::run(test, "") else { return };
    let ids = |ids: &[u16]| EtwFilter::EventIds(ids.to_vec());
    let settings = [
        provider().any(1).level(2).only_in_etw(ids(&[10])).unwrap(),
        provider().any(0x10).level(4).stack_trace().rundown().only_in_etw(ids(&[11])).unwrap(),
    ];
    let (live, incoming) = LiveSession::start(&Session::user("one"), &settings, queue()).expect("a session");
    drop(incoming);
    live.enable(&provider().enable_properties(EnableProperties::SID)).expect("enabled");
    live.disable(PROVIDER).expect("disabled");
    live.flush().expect("flushed");
    live.update(200, Duration::from_secs(3)).expect("updated");
    live.stop().expect("stopped");
    let lines = fake.log("EnableTraceEx2");
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].contains("level=4 any=0x11 all=0x0"), "{lines:?}");
    assert!(lines[0].contains("property=0x4 filter(ids in count=2 [10, 11])"), "{lines:?}");
    // The state is requested with the same level and keywords as the events.
    assert!(lines[1].contains(" capture ") && lines[1].contains("level=4 any=0x11 "), "{lines:?}");
    assert!(lines[3].contains(" disable "), "{lines:?}");
    assert!(
        lines[2].contains("level=255 any=0xffffffffffffffff all=0x0") && lines[2].contains("property=0x1"),
        "{lines:?}"
    );
}

#[test]
fn a_session_that_exists_is_respected_replaced_or_attached_to() {
    let test = "a_session_that_exists_is_respected_replaced_or_attached_to";
    let text = "exists = theirs\n[*]\ntrace = TRACE\nrate = 100000\nrounds = forever\n";
    let Some(fake) = fake::run(test, text) else { return };
    let theirs = || Session::user("theirs");
    let error = start(&theirs()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::SessionExists(name) if name == "theirs"), "{error}");
    assert!(LiveSession::list().expect("a list").iter().any(|session| session.name == "theirs"));

    let (live, incoming) = start(&theirs().if_exists(IfExists::Attach)).expect("attached");
    assert!(live.is_attached());
    drop(incoming);
    live.stop().expect("left");
    assert_eq!(fake.log("ControlTraceW stop").len(), 0);

    let (live, incoming) = LiveSession::attach("theirs", queue()).expect("attached");
    wait_for("a block", || incoming.captured() > 0);
    let reader = thread::spawn(move || read(incoming).0.len());
    live.stop().expect("left");
    assert!(reader.join().expect("read") > 0);
    assert_eq!(fake.log("ControlTraceW stop").len(), 0);

    let (live, incoming) = start(&theirs().if_exists(IfExists::Replace)).expect("replaced");
    assert!(!live.is_attached());
    assert_eq!(fake.log("ControlTraceW stop").len(), 1);
    drop(incoming);
    live.stop().expect("stopped");
    let error = LiveSession::stop_by_name("missing").unwrap_err();
    assert!(matches!(&error, Error::NoSession(name) if name == "missing"), "{error}");
}

/// The handle of a session is the number of its slot, which the next session gets when this one has
/// ended.
#[test]
fn a_session_that_replaced_ours_is_left_alone() {
    let test = "a_session_that_replaced_ours_is_left_alone";
    let Some(fake) = fake::run(test, "") else { return };
    let (ours, incoming) = start(&Session::user("ours")).expect("a session");
    drop(incoming);
    LiveSession::stop_by_name("ours").expect("stopped by another program");
    let (theirs, incoming) = start(&Session::user("theirs")).expect("a session");
    drop(incoming);
    let enabled = || fake.log("EnableTraceEx2").len();
    let before = enabled();
    let gone = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::NoSession(name) if name == "ours"), "{error}");
    };
    gone(ours.enable(&provider().level(2)));
    gone(ours.disable(PROVIDER));
    gone(ours.flush());
    gone(ours.update(99, Duration::from_secs(7)));
    assert!(ours.counters().expect("counters").ended);
    assert!(ours.stop().expect("it has ended").ended);
    assert_eq!(enabled(), before, "the other session was not changed");
    assert!(!theirs.counters().expect("counters").ended);
    // A session with the same name is left alone as well.
    let (ours, incoming) = start(&Session::user("ours")).expect("a session");
    drop(incoming);
    LiveSession::stop_by_name("ours").expect("stopped by another program");
    let (again, incoming) = start(&Session::user("ours")).expect("another program's session");
    drop(incoming);
    assert!(ours.stop().expect("it has ended").ended);
    assert!(!again.counters().expect("counters").ended);
}

#[test]
fn an_update_changes_only_the_given_settings() {
    let test = "an_update_changes_only_the_given_settings";
    let Some(fake) = fake::run(test, "") else { return };
    let groups = KernelGroups::PROCESS | KernelGroups::named("OB_HANDLE").expect("a group");
    let (live, incoming) =
        LiveSession::start(&Session::kernel("one", groups), &[], queue()).expect("a session");
    drop(incoming);
    let state = || {
        let listed = LiveSession::list().expect("a list");
        let info = listed.into_iter().find(|session| session.name == "one").expect("it runs");
        live.counters().expect("counters");
        let query = fake.log("ControlTraceW query").pop().expect("a line");
        (info.mode, info.file, query.split_once(" groups=").expect("groups").1.to_owned())
    };
    let before = state();
    assert_eq!((&before.1, &*before.2), (&None, "[1, 0, 0, 0, 40, 0, 0, 0]"));
    live.update(200, Duration::from_secs(3)).expect("updated");
    assert_eq!(state(), before);
    live.stop().expect("stopped");
}

#[test]
fn stacks_are_requested_before_groups_are_enabled() {
    let test = "stacks_are_requested_before_groups_are_enabled";
    let Some(fake) = fake::run(test, "") else { return };
    let sessions = [Session::syscalls("sensor"), Session::enrichment("names")];
    for session in &sessions {
        let (live, incoming) = LiveSession::start(session, &[], queue()).expect("a session");
        drop(incoming);
        live.stop().expect("stopped");
    }
    let lines = fake.log("TraceSetInformation stacks");
    assert_eq!(lines.len(), sessions.len());
    assert!(lines.iter().all(|line| line.ends_with("-> 0 groups=[0, 0, 0, 0, 0, 0, 0, 0]")), "{lines:?}");
}

#[test]
fn the_sampling_interval_is_restored() {
    let test = "the_sampling_interval_is_restored";
    let Some(_fake) = fake::run(test, "error TraceSetInformation 3 = 1314\n") else { return };
    let interval = || stackhound_windows::etw::sample_interval().expect("an interval");
    let samples = || Session::kernel("one", KernelGroups::PROFILE).sample_every(Duration::from_micros(250));
    let before = interval();
    let (live, incoming) = LiveSession::start(&samples(), &[], queue()).expect("a session");
    drop(incoming);
    assert_eq!(interval(), 2_500);
    live.stop().expect("stopped");
    assert_eq!(interval(), before);
    // Also if the session could not be set up.
    let refused = samples().kernel_stacks([ClassicEvent::SYSTEM_CALL_ENTER]);
    assert!(LiveSession::start(&refused, &[], queue()).is_err());
    assert_eq!(interval(), before);
}

#[test]
fn a_name_that_is_still_in_use_is_retried() {
    let test = "a_name_that_is_still_in_use_is_retried";
    let Some(_fake) = fake::run(test, "exists = theirs\nname_held_ms = 300\n") else { return };
    let session = Session::user("theirs").if_exists(IfExists::Replace);
    let (live, incoming) = start(&session).expect("replaced");
    drop(incoming);
    live.stop().expect("stopped");
}

#[test]
fn a_session_that_only_writes_a_file_is_not_received() {
    let test = "a_session_that_only_writes_a_file_is_not_received";
    let Some(_fake) = fake::run(test, "files = theirs\n") else { return };
    let error = LiveSession::attach("theirs", queue()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::NotInRealTime(name) if name == "theirs"), "{error}");
    // It is still running.
    assert!(LiveSession::list().expect("a list").iter().any(|session| session.name == "theirs"));
}

#[test]
fn the_delay_follows_the_flush_timer_of_an_attached_session() {
    let test = "the_delay_follows_the_flush_timer_of_an_attached_session";
    let Some(_fake) = fake::run(test, "[*]\ntrace = TRACE\nat_end = wait\n") else { return };
    let flush = |ms| Buffers::new(64, 4, 64, Duration::from_millis(ms)).expect("buffers");
    for (ms, disorder_ms) in [(5, 510), (1_000, 2_500), (3_000, 6_500)] {
        let (live, ours) = start(&Session::user("one").buffers(flush(ms))).expect("a session");
        let (attached, theirs) = LiveSession::attach("one", queue()).expect("attached");
        let disorder = Duration::from_millis(disorder_ms);
        assert_eq!((ours.disorder(), theirs.disorder()), (disorder, disorder));
        drop((ours, theirs));
        drop(attached);
        live.stop().expect("stopped");
    }
}

#[test]
fn errors_report_the_required_access_and_leave_no_session() {
    let test = "errors_report_the_required_access_and_leave_no_session";
    let intelligence = "f4e1897c-bb5d-5668-f1d8-040f4d8dd344";
    let text = format!(
        "error StartTraceW denied = 5\nerror StartTraceW many = 1450\nerror OpenTraceW closed = 5\n\
         error OpenTraceFromRealTimeLogger closed = 5\nerror EnableTraceEx2 {{{intelligence}}} = 5\n\
         error EnableTraceEx2 {{00000000-0000-0000-0000-000000000000}} = 87\nerror TraceSetInformation 3 = 1314\n"
    );
    let Some(fake) = fake::run(test, &text) else { return };
    let error = |session: Session, provider: ProviderSettings| -> String {
        LiveSession::start(&session, &[provider], queue()).map(|_| ()).unwrap_err().to_string()
    };
    let denied = error(Session::user("denied"), provider());
    assert!(denied.contains("\"denied\"") && denied.contains("Performance Log Users"), "{denied}");
    let denied = error(Session::kernel("denied", KernelGroups::PROCESS), provider());
    assert!(denied.contains("administrator"), "{denied}");
    assert!(error(Session::user("many"), provider()).contains("no free session"));
    assert_eq!(fake.log("ControlTraceW stop").len(), 0);
    // A session that was started is stopped.
    assert!(error(Session::user("closed"), provider()).contains("Performance Log Users"));
    assert_eq!(fake.log("ControlTraceW stop").len(), 1);
    let of = |guid: &str| ProviderSettings::new(guid.parse::<Guid>().unwrap());
    let denied = error(Session::user("one"), of(intelligence));
    assert!(denied.contains(intelligence) && denied.contains("antimalware-light"), "{denied}");
    assert_eq!(fake.log("ControlTraceW stop").len(), 2);
    let invalid = error(Session::user("one"), of("00000000-0000-0000-0000-000000000000"));
    assert!(invalid.contains("no provider has this GUID"), "{invalid}");
    assert!(error(Session::syscalls("one"), provider()).contains("administrator"));
    assert_eq!(fake.log("ControlTraceW stop").len(), 4);
    let error = LiveSession::attach("missing", queue()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NoSession(_)), "{error}");
    let error = start(&Session::user("u").kernel_groups(KernelGroups::PROCESS)).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NoKernelSession(_)), "{error}");
}

#[test]
fn losses_are_counted_while_it_runs_and_afterwards() {
    let test = "losses_are_counted_while_it_runs_and_afterwards";
    let text = "[*]\ntrace = TRACE\nlose_every = 3\nat_end = wait\n";
    let Some(_fake) = fake::run(test, text) else { return };
    let session = Session::user("one").buffers(Buffers::low_latency());
    let (live, incoming) = start(&session).expect("a session");
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let reader = thread::spawn(move || read_and_count(incoming, &counted).0.len());
    wait_for("every event, or a report of its loss", || {
        count.load(Ordering::SeqCst) + live.counters().expect("counters").events_lost == EVENTS
    });
    let running = live.counters().expect("counters");
    assert!(running.lost_something() && !running.ended);
    let ended = live.stop().expect("stopped");
    assert_eq!(reader.join().expect("read") as u64 + ended.events_lost, EVENTS);
}
