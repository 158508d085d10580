//! Providers, filters and handlers on a trace file.

use std::ops::ControlFlow;

use stackhound::live::KernelProvider;
use stackhound::{EventFilter, Passes, Pipeline, Provider, Trace, pred, trace::TraceFiles};
use stackhound_scenario::Scenario;

use crate::{Notes, etl_file};

fn kernel(name: &str) -> Provider {
    let provider = KernelProvider::ALL.into_iter().find(|provider| provider.name == name).unwrap();
    Provider::kernel(provider)
}

/// Number of events of the trace whose name is wanted, counted without the builder.
fn events_named(wanted: impl Fn(&str) -> bool) -> usize {
    let trace = TraceFiles::file(etl_file()).open().unwrap();
    let mut count = 0;
    Pipeline::new(&trace, Passes::Two).run(|view| {
        count += usize::from(wanted(&view.name()));
        ControlFlow::Continue(())
    });
    count
}

#[test]
fn without_providers_every_event_is_wanted() {
    let mut count = 0;
    let stats = Trace::file(etl_file()).run(|_| count += 1).unwrap();
    assert_eq!(count, events_named(|_| true));
    assert_eq!((stats.delivered, stats.errors), (count as u64, 0));
}

/// The events that the flag for processes logs.
const OF_PROCESS: [&str; 6] = [
    "Process/Start",
    "Process/End",
    "Process/DCStart",
    "Process/DCEnd",
    "Process/Terminate",
    "Process/Defunct",
];

/// The events that each flag logs, according to Microsoft's "EVENT_TRACE_PROPERTIES structure" and
/// the classes of "MSNT_SystemTrace", by their names in the demo.
#[test]
fn a_kernel_provider_gets_its_events_and_no_others_of_its_class() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.etl");
    Scenario::default().write(std::fs::File::create(&path).unwrap()).unwrap();
    let rows: [(&str, &[&str]); 12] = [
        ("system_call", &["PerfInfo/SysCallEnter", "PerfInfo/SysCallExit"]),
        (
            "profile",
            &[
                "PerfInfo/SampledProfile",
                "PerfInfo/SampledProfileIntervalCollectionStart",
                "PerfInfo/SampledProfileIntervalCollectionEnd",
            ],
        ),
        ("dpc", &["PerfInfo/DPC", "PerfInfo/ThreadedDPC", "PerfInfo/TimerDPC"]),
        ("interrupt", &["PerfInfo/ISR"]),
        ("process", &OF_PROCESS),
        ("thread", &["Thread/Start", "Thread/End", "Thread/DCStart", "Thread/DCEnd", "Thread/SetName"]),
        ("context_switch", &["Thread/CSwitch"]),
        ("thread_dispatch", &["Thread/ReadyThread"]),
        ("image_load", &["Image/Load", "Image/Unload", "Image/DCStart", "Image/DCEnd"]),
        ("memory_hard_fault", &["PageFault/HardFault"]),
        ("virtual_alloc", &["PageFault/VirtualAlloc", "PageFault/VirtualFree"]),
        ("disk_io", &["DiskIo/Read", "DiskIo/Write", "DiskIo/FlushBuffers"]),
    ];
    let notes = rows.map(|_| Notes::default());
    let trace = rows.iter().zip(&notes).fold(Trace::file(&path), |trace, ((name, _), notes)| {
        let notes = notes.clone();
        trace.enable(kernel(name).on_event(move |event| notes.add(event.name().into_owned())))
    });
    trace.run(|_| {}).unwrap();
    let open = TraceFiles::file(&path).open().unwrap();
    let mut expected = rows.map(|_| 0);
    Pipeline::new(&open, Passes::Two).run(|view| {
        for ((_, names), count) in rows.iter().zip(&mut expected) {
            *count += usize::from(names.contains(&&*view.name()));
        }
        ControlFlow::Continue(())
    });
    for (((name, names), notes), expected) in rows.iter().zip(notes).zip(expected) {
        let found = notes.take();
        assert!(found.iter().all(|found| names.contains(&found.as_str())), "{name}: {found:?}");
        assert_eq!(found.len(), expected, "{name}");
    }
    assert!(expected[..6].iter().all(|count| *count > 5), "{expected:?}");
}

#[test]
fn every_provider_of_an_event_gets_it() {
    let notes = Notes::default();
    let (first, second, other) = (notes.clone(), notes.clone(), notes.clone());
    let stats = Trace::file(etl_file())
        .enable(kernel("process").on_event(move |_| first.add("first")))
        .enable(kernel("process").on_event(move |_| second.add("second")))
        .enable(kernel("image_load").on_event(move |event| other.add(event.name().into_owned())))
        .run(|_| {})
        .unwrap();
    // The image load is logged with process events, but is an event of images.
    let processes = events_named(|name| OF_PROCESS.contains(&name));
    assert!(processes > 0);
    assert_eq!((notes.count("first"), notes.count("second")), (processes, processes));
    let images = notes.take().into_iter().filter(|note| note.starts_with("Image/")).count();
    assert_eq!(images, events_named(|name| name.starts_with("Image/")));
    assert_eq!(stats.delivered, (processes + images) as u64, "an event of two providers counts once");
}

#[test]
fn filters_choose_independently_and_only_for_their_own_handlers() {
    let notes = Notes::default();
    let (starts, ends, not_called) = (notes.clone(), notes.clone(), notes.clone());
    let stats = Trace::file(etl_file())
        .enable(
            kernel("process")
                .filter(EventFilter::new(pred::opcode_is(1)).on_event(move |_| starts.add("start")))
                .filter(EventFilter::new(pred::opcode_is(2)).on_event(move |_| ends.add("end")))
                .filter(EventFilter::ids([77]).on_event(move |_| not_called.add("never"))),
        )
        .run(|_| {})
        .unwrap();
    let counts = [events_named(|name| name == "Process/Start"), events_named(|name| name == "Process/End")];
    assert!(counts[0] > 0);
    assert_eq!([notes.count("start"), notes.count("end")], counts);
    assert_eq!(notes.count("never"), 0);
    assert_eq!(stats.delivered, counts.iter().sum::<usize>() as u64, "unselected events are not delivered");
}

#[test]
fn unclaimed_events_can_be_received() {
    let notes = Notes::default();
    let rest = notes.clone();
    let mut wanted = 0;
    let stats = Trace::file(etl_file())
        .enable(kernel("process"))
        .on_unclaimed(move |_| rest.add("rest"))
        .run(|_| wanted += 1)
        .unwrap();
    assert_eq!(wanted + notes.count("rest"), events_named(|_| true));
    assert_eq!((stats.delivered, stats.unclaimed), (wanted as u64, notes.count("rest") as u64));
}

#[test]
fn an_error_of_a_handler_is_reported_and_the_trace_continues() {
    let notes = Notes::default();
    let errors = notes.clone();
    let stats = Trace::file(etl_file())
        .enable(kernel("process").on_event(|event| {
            event.parser()?.parse::<u32>("NoSuchProperty")?;
            Ok(())
        }))
        .on_error(move |error| errors.add(error.error.to_string()))
        .run(|_| {})
        .unwrap();
    assert_eq!(stats.errors, stats.delivered);
    assert_eq!(notes.count("there is no property NoSuchProperty"), stats.errors as usize);
}

#[test]
fn any_handler_can_end_the_trace() {
    let by_provider = Trace::file(etl_file())
        .enable(kernel("process").on_event(|_| ControlFlow::Break(())))
        .run(|_| {})
        .unwrap();
    assert_eq!(by_provider.delivered, 1);
    let mut left = 10;
    let by_all = Trace::file(etl_file()).run(|_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(by_all.unwrap().delivered, 10);
}

#[test]
fn events_have_their_stacks_unless_disabled() {
    let stacks = |trace: Trace| {
        let mut count = 0;
        let run = trace.run(|event| count += usize::from(event.frames().next().is_some()));
        run.map(|stats| (count, stats.delivered)).unwrap()
    };
    let (with, events) = stacks(Trace::file(etl_file()));
    let (without, same_events) = stacks(Trace::file(etl_file()).without_stacks());
    assert!(with > 1000, "{with}");
    assert!(without < with / 2, "{without}: only those inside events");
    assert_eq!(events, same_events);
}

#[test]
fn a_trace_that_cannot_start_reports_the_reason() {
    use stackhound::live::Session;
    let missing = Trace::file("no-such-file.etl").run(|_| {}).unwrap_err().to_string();
    assert!(missing.starts_with("no-such-file.etl: "), "{missing}");
    let unknown = Provider::named("No-Such-Provider").unwrap_err().to_string();
    assert!(unknown.contains("\"No-Such-Provider\""), "{unknown}");
    if cfg!(not(windows)) {
        let live = Trace::live(Session::user("test")).start().unwrap_err().to_string();
        assert!(live.contains("Windows"), "{live}");
    }
}
