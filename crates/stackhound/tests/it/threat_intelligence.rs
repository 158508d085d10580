//! Events of Microsoft-Windows-Threat-Intelligence become operations: generated records of every
//! version of every event.

use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::detect::Binaries;
use stackhound::detect::report::{RegionReport, SourceLocation};
use stackhound::frames::Operation;
use stackhound::hunt::{
    HuntSession, MemoryChange, MemoryChangeKind, PageProtection, ThreatEvent, ThreatKind,
};
use stackhound::schema::{EventDescription, OwnedValue, SchemaStore, provider_guid};
use stackhound::trace::TraceFiles;
use stackhound::{Passes, Pipeline};
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

const ACTOR: (u32, u32) = (4000, 4004);
const TARGET: (u32, u32) = (700, 704);
const BASE: u64 = 0x1234_0000;
const SIZE: u64 = 0x2000;
const EXECUTE_READ: PageProtection = PageProtection(0x20);
const READ_WRITE: PageProtection = PageProtection(0x04);
const PRIVATE: u64 = 0x2_0000;
const PARTIAL_COPY: u64 = 0x8000_000d;

/// The value of a field by its name; other fields are zero.
fn value(field: &str, is_remote: bool, status: u64) -> Option<OwnedValue> {
    let number = match field {
        "CallingProcessId" => ACTOR.0.into(),
        "CallingThreadId" => ACTOR.1.into(),
        "TargetProcessId" => if is_remote { TARGET.0 } else { ACTOR.0 }.into(),
        "TargetThreadId" => TARGET.1.into(),
        // The meaning of these fields is not known, so they must not be used.
        "OriginalProcessId" => 13,
        "TargetAddress" | "FullRegionSize" => 17,
        "BaseAddress" | "ApcRoutine" | "Pc" => BASE,
        "RegionSize" | "ViewSize" | "BytesCopied" => SIZE,
        "ProtectionMask" => EXECUTE_READ.0.into(),
        "LastProtectionMask" | "VaVadAllocationProtect" => READ_WRITE.0.into(),
        "VaVadRegionType" => PRIVATE,
        "OperationStatus" => status,
        "CallingProcessCreateTime" => return Some(OwnedValue::FileTime(FileTime(132_000_000_000_000_000))),
        _ => return None,
    };
    Some(OwnedValue::Unsigned(number))
}

/// The provider's events, each with the name of its keyword, which states the operation.
fn events() -> Vec<(&'static EventDescription, String)> {
    let is_it = |guid| guid == provider_guid::THREAT_INTELLIGENCE;
    let provider = SchemaStore::built_in_providers().find(|provider| is_it(provider.guid));
    let provider = provider.expect("the built-in table");
    let keyword = |event: &EventDescription| {
        let names = provider.keyword_names(event.keywords.expect("a keyword"));
        names.map(|name| name.trim_start_matches("KERNEL_THREATINT_KEYWORD_")).collect::<String>()
    };
    provider.events.iter().map(|event| (event, keyword(event))).collect()
}

/// A trace with these events, and the values of their fields.
fn trace(events: &[(&EventDescription, String)], pointer_size: PointerSize, status: u64) -> Vec<u8> {
    let session = Session { pointer_size, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a session");
    for (number, (event, keyword)) in events.iter().enumerate() {
        let fields = event.schema.fields.iter();
        let values: Vec<_> = fields
            .filter_map(|field| Some((&*field.name, value(&field.name, !keyword.contains("LOCAL"), status)?)))
            .collect();
        let payload = event.schema.pack_incomplete(&values, pointer_size).expect("a payload");
        let descriptor = Descriptor {
            id: event.id,
            version: event.version,
            channel: 16,
            level: 4,
            opcode: 0,
            task: event.task.expect("a task"),
            keyword: event.keywords.expect("a keyword") | 1 << 63,
        };
        let header = HeaderSpec::Event {
            provider: provider_guid::THREAT_INTELLIGENCE,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(ACTOR.0), Tid(ACTOR.1)),
            activity: Guid::ZERO,
            items: &[],
        };
        let time = RawTime(start + 1 + number as i64);
        let record = RecordSpec { time, pointer_size, header, payload: Payload::Bytes(&payload) };
        writer.write(0, &record).expect("a record");
    }
    writer.finish().expect("a trace").0.into_inner()
}

/// The kind that a keyword states.
fn kind(keyword: &str, id: u16) -> ThreatKind {
    match keyword.split('_').next().unwrap_or_default() {
        "ALLOCVM" => ThreatKind::Allocate,
        "PROTECTVM" => ThreatKind::Protect,
        "MAPVIEW" => ThreatKind::MapView,
        "QUEUEUSERAPC" => ThreatKind::QueueApc,
        "SETTHREADCONTEXT" => ThreatKind::SetContext,
        "READVM" => ThreatKind::ReadMemory,
        "WRITEVM" => ThreatKind::WriteMemory,
        "SUSPEND" if keyword.ends_with("THREAD") => ThreatKind::SuspendThread,
        "RESUME" if keyword.ends_with("THREAD") => ThreatKind::ResumeThread,
        "SUSPEND" => ThreatKind::SuspendProcess,
        "RESUME" => ThreatKind::ResumeProcess,
        "FREEZE" => ThreatKind::FreezeProcess,
        "THAW" => ThreatKind::ThawProcess,
        "DRIVER" if id == 29 => ThreatKind::LoadDriver,
        "DRIVER" => ThreatKind::UnloadDriver,
        "DEVICE" => ThreatKind::Device,
        "PROCESS" if keyword.contains("IMPERSONATION") => ThreatKind::Impersonate,
        "PROCESS" => ThreatKind::FirstUse,
        _ => panic!("unknown keyword {keyword}"),
    }
}

fn for_each(bytes: &[u8], mut visit: impl FnMut(usize, &stackhound::EventView<'_>)) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("threats.etl");
    std::fs::write(&path, bytes).expect("a file");
    let trace = TraceFiles::file(&path).open().expect("a trace");
    let mut pipeline = Pipeline::new(&trace, Passes::Two);
    let mut number = 0;
    pipeline.run(|view| {
        if view.provider_guid() == Some(provider_guid::THREAT_INTELLIGENCE) {
            visit(number, view);
            number += 1;
        }
        ControlFlow::Continue(())
    });
    number
}

#[test]
fn every_event_becomes_an_operation() {
    let events = events();
    for pointer_size in [PointerSize::Four, PointerSize::Eight] {
        let bytes = trace(&events, pointer_size, 0);
        let mut session = HuntSession::new(Binaries::none(), stackhound_etl::Clock::system_time());
        let seen = for_each(&bytes, |number, view| {
            let (event, keyword) = &events[number];
            let what = format!("{} v{} {keyword} {pointer_size:?}", event.id, event.version);
            let threat = ThreatEvent::of(view).unwrap_or_else(|| panic!("{what} is not an operation"));
            assert_eq!(threat.kind, kind(keyword, event.id), "{what}");
            assert_eq!(threat.is_by_kernel, keyword.contains("KERNEL_CALLER"), "{what}");
            let scope = [("REMOTE", true), ("LOCAL", false)];
            let is_remote =
                scope.iter().find(|(word, _)| keyword.contains(word)).map(|(_, is_remote)| *is_remote);
            assert_eq!(threat.is_remote, is_remote, "{what}");

            let fields: Vec<&str> = event.schema.fields.iter().map(|field| &*field.name).collect();
            let has = |field: &str| fields.contains(&field);
            let target = if keyword.contains("LOCAL") { ACTOR.0 } else { TARGET.0 };
            assert_eq!(threat.actor, has("CallingProcessId").then_some(Pid(ACTOR.0)), "{what}");
            assert_eq!(threat.actor_thread, has("CallingThreadId").then_some(Tid(ACTOR.1)), "{what}");
            assert_eq!(threat.target, has("TargetProcessId").then_some(Pid(target)), "{what}");
            assert_eq!(threat.target_thread, has("TargetThreadId").then_some(Tid(TARGET.1)), "{what}");
            let has_region = ["BaseAddress", "ApcRoutine", "Pc"].into_iter().any(has);
            assert_eq!(threat.base, has_region.then_some(Address(BASE)), "{what}");
            let has_size = ["RegionSize", "ViewSize", "BytesCopied"].into_iter().any(has);
            assert_eq!(threat.size, has_size.then_some(SIZE), "{what}");
            assert_eq!(threat.protection, has("ProtectionMask").then_some(EXECUTE_READ), "{what}");
            assert_eq!(threat.old_protection, has("LastProtectionMask").then_some(READ_WRITE), "{what}");
            let of_vad = has("VaVadAllocationProtect").then_some(READ_WRITE);
            assert_eq!(threat.allocation_protection, of_vad, "{what}");

            let change = match threat.kind {
                ThreatKind::Allocate => Some(MemoryChangeKind::Allocate),
                ThreatKind::Protect => Some(MemoryChangeKind::Protect),
                ThreatKind::MapView => Some(MemoryChangeKind::Map),
                ThreatKind::WriteMemory => Some(MemoryChangeKind::Write),
                _ => None,
            };
            let expected = change.map(|kind| MemoryChange {
                kind,
                target: Pid(target),
                base: Address(BASE),
                size: SIZE,
                protection: threat.protection,
                old_protection: threat.old_protection,
                allocation_protection: threat.allocation_protection,
                region_type: has("VaVadRegionType").then_some(PRIVATE as u32),
                actor: Some(Pid(ACTOR.0)),
                actor_thread: Some(Tid(ACTOR.1)),
                is_by_kernel: Some(threat.is_by_kernel),
            });
            assert_eq!(MemoryChange::of(view), expected, "{what}");

            assert!(HuntSession::can_evaluate(view), "{what}");
            let report = session.event_context(view, SourceLocation::default()).event;
            let of_target = report.target.as_ref();
            let is_other = target != ACTOR.0;
            let expected = (has("TargetProcessId") && is_other).then_some(target);
            assert_eq!(of_target.and_then(|process| process.pid), expected, "{what}");
            let expected = has("TargetThreadId").then_some(TARGET.1);
            assert_eq!(of_target.and_then(|process| process.tid), expected, "{what}");
            let region = has_region.then_some(RegionReport {
                address: BASE,
                size: has_size.then_some(SIZE),
                protection: has("ProtectionMask").then_some(EXECUTE_READ.0),
                old_protection: has("LastProtectionMask").then_some(READ_WRITE.0),
            });
            assert_eq!(report.region, region, "{what}");
        });
        assert_eq!(seen, events.len());
        assert_eq!(seen, 46);
    }
}

/// Operations that failed changed nothing. A write can fail after its first pages.
#[test]
fn failed_operations_change_no_memory() {
    let events = events();
    let bytes = trace(&events, PointerSize::Eight, PARTIAL_COPY);
    for_each(&bytes, |number, view| {
        let (event, keyword) = &events[number];
        let threat = ThreatEvent::of(view).expect("an operation");
        let has_status = event.schema.field_index("OperationStatus").is_some();
        assert_eq!(threat.has_failed(), has_status, "{keyword}");
        let is_write = threat.kind == ThreatKind::WriteMemory;
        assert_eq!(MemoryChange::of(view).is_some_and(|_| has_status), is_write, "{keyword}");
    });
}

#[test]
fn operations_are_those_of_detections() {
    for (kind, operation) in [
        (ThreatKind::Allocate, Operation::MemoryAllocate),
        (ThreatKind::Protect, Operation::MemoryProtect),
        (ThreatKind::MapView, Operation::MapView),
        (ThreatKind::QueueApc, Operation::ThreadControl),
        (ThreatKind::SetContext, Operation::ThreadControl),
        (ThreatKind::ReadMemory, Operation::MemoryAccess),
        (ThreatKind::WriteMemory, Operation::MemoryAccess),
        (ThreatKind::SuspendProcess, Operation::ThreadControl),
        (ThreatKind::LoadDriver, Operation::DriverLoad),
        (ThreatKind::Impersonate, Operation::Other),
    ] {
        assert_eq!(kind.operation(), operation, "{kind:?}");
    }
}
