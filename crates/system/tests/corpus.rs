//! The state of the machines of real traces, compared with facts that were counted by other means.

use std::collections::{BTreeSet, HashMap};

use stackhound_etl::Selection;
use stackhound_etl::record::Record;
use stackhound_schema::kernel::class_guid::IMAGE_ID;
use stackhound_schema::kernel::{self, view};
use stackhound_system::{Completeness, Evidence, FileKey, Gap, ModuleRef, ProcessRef, Span, System};
use stackhound_trace::{Event, OpenTrace, TraceFiles, TraceTime};
use stackhound_types::{Address, Pid, PointerSize, Tid};

const NET: &str = "perfview-net452-x64.etl";
const DIAGHUB: &str = "perfview-diaghub.kernel.1.etl";
const SHUTDOWN: &str = "airbus-ShutdownPerfDiagLogger.etl";

/// The files of one capture, opened together; `None` if there is no corpus.
fn open(names: &[&str]) -> Option<OpenTrace> {
    let paths: Option<Vec<_>> = names.iter().map(|name| stackhound_corpus::path(name)).collect();
    Some(TraceFiles::files(paths?).open().expect("traces of the corpus can be opened"))
}

/// The machine after all events.
fn observed(trace: &OpenTrace) -> System {
    let mut system = System::of(trace);
    let mut events = trace.selected(System::selection());
    while let Some(event) = events.next() {
        system.observe(&event);
    }
    system
}

/// Calls `handle` for every event with one of the hook ids.
fn each(trace: &OpenTrace, hook_ids: &[u16], mut handle: impl FnMut(&Event<'_>)) {
    let mut events = trace.selected(Selection::none().hook_ids(hook_ids.iter().copied()));
    while let Some(event) = events.next() {
        handle(&event);
    }
}

fn image<'a>(event: &Event<'a>) -> view::Image<'a> {
    let record = event.record();
    view::Image::parse(record.payload(), record.version(), record.pointer_size()).expect("an image")
}

/// A number in the payload, by the name of its field.
fn number(record: &Record<'_>, field: &str) -> u64 {
    let (payload, pointer) = (record.payload(), record.pointer_size());
    let schema =
        kernel::lookup_for(record.hook_id().expect("a kernel record"), record.version(), pointer, payload);
    let mut fields = schema.expect("a known layout").decode(payload, pointer).flatten();
    let found = fields.find(|found| &*found.field.name == field).expect("the field");
    found.item.value().and_then(|value| value.as_u64()).expect("a number")
}

fn fact(etl_file: &str, name: &str) -> u64 {
    let facts: serde_json::Value =
        serde_json::from_str(&stackhound_corpus::text("etl/facts.json").unwrap()).unwrap();
    facts[etl_file][name].as_u64().unwrap()
}

#[test]
fn nothing_is_malformed_or_left_over() {
    for (name, _) in stackhound_corpus::trace_files() {
        let stats = observed(&open(&[&name]).unwrap()).stats();
        assert_eq!((stats.malformed, stats.unplaced_unloads), (0, 0), "{name}");
    }
}

/// Merging adds an event with the version resource of each image.
#[test]
fn modules_have_their_version_resources() {
    for (name, is_merged) in [(NET, true), (DIAGHUB, false)] {
        let Some(trace) = open(&[name]) else { return };
        let mut stated = HashMap::new();
        let mut events = trace.selected(Selection::none().classic());
        while let Some(event) = events.next() {
            let record = event.record();
            if record.guid() == Some(IMAGE_ID) && record.opcode() == 64 {
                let version =
                    view::FileVersion::parse(record.payload(), record.version(), record.pointer_size());
                let version = version.expect("a version resource");
                let texts = [version.original_file_name, version.company].map(|text| text.to_string_lossy());
                stated.entry((version.time_date_stamp, u64::from(version.image_size))).or_insert(texts);
            }
        }
        let system = observed(&trace);
        let mut with_version = 0;
        for module in system.modules() {
            let key = module.time_date_stamp().map(|stamp| (stamp, module.size()));
            let found = module.version().map(|version| [version.original_file_name, version.company]);
            let expected = key.and_then(|key| stated.get(&key));
            assert_eq!(
                found,
                expected.map(|texts| texts.each_ref().map(String::as_str)),
                "{}",
                module.path()
            );
            with_version += usize::from(found.is_some());
        }
        assert!(system.modules().count() > 1_000, "{name}");
        assert_eq!(with_version > 100, is_merged, "{name}: {with_version}");
        assert_eq!(with_version == 0, !is_merged, "{name}: {with_version}");
    }
}

/// The part of the identity of an image that all events of a module state.
type Identity = (String, u64, Option<u32>);

#[test]
fn every_image_is_a_module() {
    for name in [NET, DIAGHUB, SHUTDOWN] {
        let Some(trace) = open(&[name]) else { return };
        let system = observed(&trace);
        let (mut stated, mut images) = (BTreeSet::new(), BTreeSet::<Identity>::new());
        each(&trace, &[0x030a, 0x1402, 0x1403, 0x1404], |event| {
            let (image, time) = (image(event), event.time());
            let header = image.identity.unwrap();
            let file_name =
                image.file_name.to_string_lossy().to_lowercase().rsplit('\\').next().unwrap().to_owned();
            let checksum = Some(header.image_checksum).filter(|&checksum| checksum != 0);
            stated.insert((
                file_name.clone(),
                image.image_size,
                header.image_checksum,
                header.time_date_stamp,
            ));
            images.insert((file_name.clone(), image.image_size, checksum));

            let middle = Address(image.image_base.0 + image.image_size / 2);
            let found = system.module_at(image.process_id.unwrap(), middle, time);
            let (module, rva) = found.unwrap_or_else(|| panic!("{name}: {image:?}"));
            assert_eq!((module.base(), rva), (image.image_base, image.image_size / 2), "{name}: {image:?}");
            assert_eq!((module.size(), module.checksum()), (image.image_size, checksum), "{name}: {image:?}");
            assert_eq!(module.file_name().to_lowercase(), file_name);
            if header.time_date_stamp != 0 {
                assert_eq!(module.time_date_stamp(), Some(header.time_date_stamp), "{name}: {image:?}");
            }
        });
        assert_eq!(stated.len() as u64, fact(name, "distinct_images"), "{name}");
        let modules: BTreeSet<Identity> = system
            .modules()
            .map(|module| (module.file_name().to_lowercase(), module.size(), module.checksum()))
            .collect();
        assert_eq!(modules, images, "{name}");
    }
}

#[test]
fn modules_listed_only_at_the_end_exist_from_the_start() {
    let Some(trace) = open(&[DIAGHUB]) else { return };
    let system = observed(&trace);
    let listed_at_end = |module: &ModuleRef<'_>| module.span().start == Evidence::RundownAtEnd;
    assert!(system.modules().filter(listed_at_end).count() > 14_000);
    for module in system.modules().filter(listed_at_end) {
        let process = module.process();
        assert_eq!(module.span().from, process.map_or(Span::BEGINNING, |process| process.span().from));
        let pid = process.map_or(Pid::IDLE, |process| process.pid());
        let time = module.span().from.max(TraceTime(0));
        assert_eq!(
            system.module_at(pid, module.base(), time).map(|(found, _)| found.id()),
            Some(module.id())
        );
    }
}

#[test]
fn modules_have_their_pdbs() {
    let Some(trace) = open(&[NET]) else { return };
    let system = observed(&trace);
    assert_eq!(system.stats().unclaimed_pdbs, 0);
    let pdbs: BTreeSet<_> =
        system.modules().filter_map(|module| module.pdb()).map(|pdb| (pdb.guid, pdb.age)).collect();
    assert_eq!(pdbs.len() as u64, fact(NET, "distinct_rsds"));

    // Here the identities are in another file than the images, and many have the time of a rundown
    // at the end.
    let Some(trace) = open(&["perfview-diaghub.etl", DIAGHUB]) else { return };
    let system = observed(&trace);
    assert_eq!(system.stats().unclaimed_pdbs, 0);
    let pdbs: BTreeSet<_> =
        system.modules().filter_map(|module| module.pdb()).map(|pdb| (pdb.guid, pdb.age)).collect();
    assert_eq!(pdbs.len() as u64, fact("perfview-diaghub.etl", "distinct_rsds"));
    let kernel32 = system
        .modules()
        .find(|module| (module.time_date_stamp(), module.size()) == (Some(0x7331_7569), 774_144))
        .unwrap();
    assert_eq!(system.dos_path(kernel32.path()), "C:\\Windows\\System32\\kernel32.dll");
    let pdb = kernel32.pdb().unwrap();
    assert_eq!((pdb.guid.to_string().as_str(), pdb.age), ("89c3b9fd-1c79-6a0f-430e-0cef0646f003", 1));
}

#[derive(Clone, Copy)]
struct Sample {
    time: TraceTime,
    address: Address,
    tid: Tid,
}

fn samples(trace: &OpenTrace) -> Vec<Sample> {
    let mut samples = Vec::new();
    each(trace, &[0x0f2e], |event| {
        let record = event.record();
        let address = Address(number(&record, "InstructionPointer"));
        let tid = Tid(number(&record, "ThreadId") as u32);
        samples.push(Sample { time: event.time(), address, tid });
    });
    samples
}

fn module_of_sample(system: &System, sample: &Sample) -> Option<String> {
    let thread = system.thread_of_event(sample.tid, sample.time)?;
    let (module, rva) = system.module_at(thread.pid(), sample.address, sample.time)?;
    Some(format!("{}+{rva:#x}", module.file_name().to_lowercase()))
}

#[test]
fn samples_fall_into_modules() {
    let Some(trace) = open(&[NET]) else { return };
    let system = observed(&trace);
    let samples = samples(&trace);
    assert_eq!(samples.len(), 79_528);
    let (mut outside_kernel, mut outside_user) = (0, HashMap::new());
    for sample in &samples {
        let thread = system.thread_of_event(sample.tid, sample.time).expect("every sampled thread is known");
        if module_of_sample(&system, sample).is_none() {
            if sample.address.is_kernel(PointerSize::Eight) {
                outside_kernel += 1;
            } else {
                *outside_user.entry(thread.process().image_name()).or_default() += 1;
            }
        }
    }
    // The kernel runs a little code outside of images. In user mode, the recorded program is
    // managed: its methods are compiled to private memory.
    assert!(outside_kernel < samples.len() / 1000, "{outside_kernel}");
    let managed: usize = outside_user.remove("Test.x64.exe").unwrap_or_default();
    assert!(managed > 4_000 && outside_user.values().sum::<usize>() < 150, "{managed} {outside_user:?}");
}

#[test]
fn one_pass_knows_as_much_as_two_after_the_rundown() {
    let Some(trace) = open(&[NET]) else { return };
    let whole = observed(&trace);
    let mut samples = samples(&trace).into_iter().peekable();
    let mut so_far = System::of(&trace);
    let (mut earlier, mut compared) = (0, 0);
    let mut last_listed = TraceTime(0);
    each(&trace, &[0x0503, 0x1403], |event| last_listed = event.time());
    let mut events = trace.selected(System::selection());
    while let Some(event) = events.next() {
        // Samples up to here, with all earlier events.
        while let Some(sample) = samples.next_if(|sample| sample.time < event.time()) {
            let (now, then) = (module_of_sample(&so_far, &sample), module_of_sample(&whole, &sample));
            if sample.time > last_listed {
                assert_eq!(now, then);
                compared += 1;
            } else {
                assert!(now.is_none() || now == then);
                earlier += 1;
            }
        }
        so_far.observe(&event);
    }
    assert!(compared > 70_000 && earlier > 0, "{compared} {earlier}");
}

#[test]
fn processes_and_threads_have_their_recorded_lifetimes() {
    let Some(trace) = open(&[NET]) else { return };
    let system = observed(&trace);
    let mut started = system.processes().filter(|process| process.span().start == Evidence::Observed);
    let test = started.next().unwrap();
    assert!(started.next().is_none());
    assert_eq!((test.pid(), test.image_name(), test.exit_status()), (Pid(3676), "Test.x64.exe", Some(0)));
    assert_eq!(test.creator().map(|creator| (creator.pid, creator.tid)), Some((Pid(3508), Tid(3512))));
    assert_eq!(test.parent().map(|parent| parent.pid()), Some(Pid(3508)));
    assert_eq!(test.span().end, Evidence::Observed);
    assert_eq!(system.map_complete(test.pid(), test.span().from), Completeness::Complete);
    assert!(system.process_at(Pid(3676), TraceTime(test.span().to.0 + 1)).is_none());
    let first = system.threads().find(|thread| thread.process().id() == test.id()).unwrap();
    assert_eq!(first.creator(), test.creator());
    assert_eq!(system.threads().filter(|thread| thread.process().id() == test.id()).count(), 4);

    let Some(trace) = open(&["dotnetperf-vs-gconly.etl"]) else { return };
    let system = observed(&trace);
    let count = |evidence| system.processes().filter(|process| process.span().start == evidence).count();
    // The idle process and System are among those that a rundown lists.
    assert_eq!((count(Evidence::Observed), count(Evidence::RundownAtStart)), (124, 396));
    assert_eq!(system.processes().filter(|process| process.is_defunct()).count(), 361);
    let ended = |process: &ProcessRef<'_>| process.span().end == Evidence::Observed;
    assert_eq!(system.processes().filter(ended).count(), 118);
    let starts = system.threads().filter(|thread| thread.span().start == Evidence::Observed).count();
    assert_eq!(starts, 18_850);
    let mut named = 0;
    each(&trace, &[0x0548], |event| {
        let record = event.record();
        let given = view::ThreadSetName::parse(record.payload(), record.version(), record.pointer_size());
        let given = given.expect("a name");
        let thread = system.thread_at(given.thread_id, event.time()).expect("a named thread");
        assert_eq!(
            (thread.pid(), thread.name_at(event.time())),
            (given.process_id, given.thread_name.to_string_lossy().as_str())
        );
        named += 1;
    });
    assert_eq!(named, 2263);
    // No image events were recorded.
    let gap = system.map_complete(Pid::SYSTEM, TraceTime(0));
    assert_eq!(gap, Completeness::Incomplete(Gap::NoRundown));
}

#[test]
fn classic_events_are_handled_like_kernel_events() {
    // The 64-bit versions of these files are marked as 32-bit.
    for name in
        ["sawbuck-image_data_32_v0.etl", "sawbuck-image_data_32_v1.etl", "sawbuck-image_data_32_v2.etl"]
    {
        let Some(trace) = open(&[name]) else { return };
        let system = observed(&trace);
        let listed = system.modules().filter(|module| module.span().start == Evidence::RundownAtStart);
        assert_eq!(listed.count(), 24, "{name}");
        assert!(system.modules().any(|module| module.file_name() == "ntdll.dll"), "{name}");
    }
    for name in ["sawbuck-process_data_32_v2.etl", "sawbuck-process_data_32_v3.etl"] {
        let Some(trace) = open(&[name]) else { return };
        let system = observed(&trace);
        let started = system.processes().find(|process| process.span().start == Evidence::Observed);
        let started = started.map(|process| (process.image_name(), process.span().end));
        assert_eq!(started, Some(("notepad.exe", Evidence::Observed)), "{name}");
    }
}

#[test]
fn files_are_named_by_the_rundown_at_the_end() {
    let Some(trace) = open(&[NET]) else { return };
    let system = observed(&trace);
    let (mut named, mut transfers) = (0, 0);
    each(&trace, &[0x010a, 0x010b], |event| {
        let record = event.record();
        let key = FileKey(number(&record, "FileObject"));
        transfers += 1;
        named += usize::from(system.file_name(Some(key), None, event.time()).is_some());
    });
    assert!(transfers == 1229 && named > 1000, "{named} of {transfers}");
}
