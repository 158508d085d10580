//! Rules about individual records (R).

use crate::buffer::{Record, kind};
use crate::bytes::{pointer, u16, u32, u64};
use crate::header::{Session, WINDOWS_8, utf16};
use crate::kernel::{Kernel, hook_id};
use crate::{Report, Rule};

/// Header kinds of a kernel event.
#[derive(Clone, Copy)]
enum Header {
    System,
    PerfInfo,
    Either,
}
use Header::{Either, PerfInfo, System};

/// Hook ids, header, versions, and the size of the payload if it is fixed.
type KernelEvents = (&'static [u16], Header, &'static [u8], Option<usize>);

/// The kernel events of 64-bit Windows 8 and later. 32-bit payloads have other sizes.
const KERNEL_EVENTS: &[KernelEvents] = &[
    (&[0x0000], System, &[2], None),
    (&[0x0005], Either, &[2], Some(36)),
    (&[0x0008], PerfInfo, &[2], Some(0)),
    (&[0x0020], PerfInfo, &[2], Some(36)),
    (&[0x0040, 0x0042, 0x0052, 0x0420, 0x0423, 0x0424, 0x0548, 0x1820, 0x1823, 0x1824], PerfInfo, &[2], None),
    (&[0x0050], System, &[2], Some(48)),
    (&[0x010a, 0x010b], PerfInfo, &[3], Some(52)),
    (&[0x010c, 0x010d, 0x010f], System, &[3], Some(12)),
    (&[0x010e], PerfInfo, &[3], Some(28)),
    (&[0x0220, 0x060a], PerfInfo, &[2], Some(40)),
    (&[0x0301, 0x0302], System, &[4], None),
    (&[0x0303, 0x0304], PerfInfo, &[4], None),
    (&[0x030a], System, &[2, 3], None),
    (&[0x030b], System, &[2], Some(4)),
    (&[0x0320, 0x0321], PerfInfo, &[2], Some(104)),
    (&[0x0327], PerfInfo, &[4, 5], None),
    (&[0x0501, 0x0502, 0x0503, 0x0504], System, &[3], None),
    (&[0x060b, 0x060d, 0x080a, 0x080b], PerfInfo, &[2], Some(32)),
    (&[0x060f], PerfInfo, &[2], Some(48)),
    (&[0x061a], PerfInfo, &[2], Some(64)),
    (&[0x061b], PerfInfo, &[2], Some(56)),
    (&[0x0b0a], System, &[3], Some(828)),
    (&[0x0b0b], System, &[2], Some(568)),
    (&[0x0b0c], System, &[2], Some(112)),
    (&[0x0b10], System, &[2], Some(8)),
    (&[0x0f2e], PerfInfo, &[2], Some(16)),
    (&[0x0f49, 0x0f4a], System, &[3], Some(24)),
    (&[0x1402, 0x1403, 0x1404], Either, &[2, 3], None),
    (&[0x1421], Either, &[2], Some(8)),
    (&[0x1422], PerfInfo, &[2], Some(8)),
    (&[0x1825, 0x1826], PerfInfo, &[2], Some(24)),
];

/// Extended data items in the order in which they occur.
const ITEM_ORDER: &[&[u16]] = &[&[1], &[5, STACK_TRACE64], &[12], &[11]];
const STACK_TRACE32: u16 = 5;
const STACK_TRACE64: u16 = 6;
const HAS_ITEMS: u16 = 1;

/// The class of the system-configuration events that merging adds, in its stored form:
/// 9b79ee91-b5fd-41c0-a243-4248e266e9d0.
const SYSTEM_CONFIG: [u8; 16] = 0x91ee_799b_fdb5_c041_a243_4248_e266_e9d0_u128.to_be_bytes();
const SYSTEM_PATHS: u8 = 33;
const SYSTEM_PROCESS: u32 = 4;
const UNKNOWN: u32 = u32::MAX;

/// Checks the kind and size of a record. Returns whether the rest of its header can be read.
pub(crate) fn check_header(report: &mut Report, at: usize, record: &Record<'_>) -> bool {
    let known = record.is_kernel() && !matches!(record.kind, kind::COMPACT32 | kind::COMPACT64)
        || matches!(record.kind, kind::FULL32 | kind::FULL64 | kind::EVENT32 | kind::EVENT64);
    let header_size = record.header_size();
    report.check(Rule::R01, at, header_size.is_some() && known, || {
        format!("kind {} with marker {:#x}", record.kind, record.marker)
    });
    let Some(header_size) = header_size else { return false };
    let size = record.bytes.len();
    report.check(Rule::R02, at, size >= header_size, || format!("{size} bytes of kind {}", record.kind))
}

/// Checks a record that [`check_header`] accepts.
pub(crate) fn check(
    report: &mut Report,
    session: &Session,
    kernel: &mut Kernel,
    at: usize,
    record: &Record<'_>,
) {
    match record.kind {
        kind::EVENT32 | kind::EVENT64 => check_event(report, session, at, record),
        kind::FULL32 | kind::FULL64 => check_classic(report, session, at, record),
        _ if record.is_kernel() => check_kernel(report, session, kernel, at, record),
        _ => {}
    }
}

fn check_kernel(report: &mut Report, session: &Session, kernel: &mut Kernel, at: usize, record: &Record<'_>) {
    let Some((header, payload)) = record.header_size().and_then(|size| record.bytes.split_at_checked(size))
    else {
        return;
    };
    let (hook_id, version) = (record.hook_id(), header[0]);
    let (thread, process) = (record.thread(), record.process());
    let issuer = || format!("hook id {hook_id:#06x}, thread {thread:#x}, process {process:#x}");
    let is_32_bit = matches!(record.kind, kind::SYSTEM32 | kind::COMPACT32 | kind::PERF_INFO32);
    let mut check = |rule, holds: bool, found: &dyn Fn() -> String| {
        report.check(rule, at, holds, found);
    };
    check(Rule::R03, header[1] == 0, &|| format!("{:#x}", header[1]));
    if let Some((_, kind, versions, size)) = KERNEL_EVENTS.iter().find(|event| event.0.contains(&hook_id))
        && session.windows >= WINDOWS_8
    {
        let system = matches!(record.kind, kind::SYSTEM32 | kind::SYSTEM64);
        let fits = match kind {
            System => system,
            PerfInfo => !system,
            Either => true,
        };
        let sized = is_32_bit || size.is_none_or(|size| size == payload.len());
        check(Rule::R04, fits && sized && versions.contains(&version), &|| {
            let (kind, size) = (record.kind, payload.len());
            format!("hook id {hook_id:#06x} of kind {kind}, version {version}, {size} bytes")
        });
    }
    if record.kind == kind::SYSTEM64 {
        check(Rule::R05, thread != UNKNOWN && process != UNKNOWN, &issuer);
    }

    // Pointers in these payloads have the session's pointer size. In process events, one pointer
    // precedes the process id; in image events, two.
    let own = u32(payload, session.pointer);
    let parent = u32(payload, session.pointer + 4);
    let listed = [u32(payload, 0), u32(payload, 4)];
    match hook_id {
        hook_id::PROCESS_START => check(Rule::R17, process == parent, &issuer),
        hook_id::PROCESS_END => check(Rule::R17, process == own, &issuer),
        hook_id::THREAD_END => check(Rule::R18, [process, thread] == listed, &issuer),
        hook_id::THREAD_START_RUNDOWN | hook_id::THREAD_END_RUNDOWN => {
            check(Rule::R06, [process, thread] == listed || listed[0] == 0, &issuer);
        }
        hook_id::IMAGE_LOAD | hook_id::IMAGE_UNLOAD
            if matches!(record.kind, kind::SYSTEM32 | kind::SYSTEM64) =>
        {
            let image_process = match u32(payload, 2 * session.pointer) {
                0 => SYSTEM_PROCESS,
                process => process,
            };
            check(Rule::R19, process == image_process, &|| format!("{}, not {image_process}", issuer()));
        }
        _ => {}
    }

    let frame = if is_32_bit { 4 } else { 8 };
    let whole = |frames: usize| payload.len() >= frames + frame && payload.len().is_multiple_of(frame);
    let size = || format!("{} bytes", payload.len());
    match hook_id {
        hook_id::STACK | hook_id::STACK_KEY_KERNEL | hook_id::STACK_KEY_USER => {
            let trigger = u64(payload, 0);
            let time = record.time();
            check(Rule::R07, trigger < time, &|| format!("at {time}, of {trigger}"));
            check(Rule::R08, whole(16), &size);
            kernel.triggers.push(trigger);
            if hook_id != hook_id::STACK {
                kernel.uses.push((pointer(payload, 16, frame), time));
            }
        }
        hook_id::STACK_DEFINITION_KERNEL | hook_id::STACK_DEFINITION_USER => {
            check(Rule::R09, whole(frame), &size);
            let latest = kernel.definitions.entry(pointer(payload, 0, frame)).or_default();
            *latest = record.time().max(*latest);
        }
        _ => {}
    }
    kernel.note(hook_id, record.time(), own, parent);
}

fn check_event(report: &mut Report, session: &Session, at: usize, record: &Record<'_>) {
    let (flags, property) = (u16(record.bytes, 4), u16(record.bytes, 6));
    report.check(Rule::R10, at, flags & !5 == 0 && property == 0, || {
        format!("flags {flags:#x}, property {property:#x}")
    });
    let (thread, process) = (record.thread(), record.process());
    report.check(Rule::R11, at, thread != UNKNOWN && process != UNKNOWN, || {
        format!("thread {thread:#x}, process {process:#x}")
    });
    if flags & HAS_ITEMS == 0 {
        return;
    }
    let items = record.header_size().and_then(|size| record.bytes.get(size..)).unwrap_or_default();
    let (types, intact) = item_types(items);
    report.check(Rule::R12, at, intact, || format!("items {types:?}"));
    let ranks: Option<Vec<usize>> =
        types.iter().map(|item| ITEM_ORDER.iter().position(|same| same.contains(item))).collect();
    let ordered = ranks.is_some_and(|ranks| ranks.is_sorted()) && {
        let mut distinct = types.clone();
        distinct.sort_unstable();
        distinct.dedup();
        distinct.len() == types.len()
    };
    report.check(Rule::R13, at, ordered, || format!("items {types:?}"));
    if session.pointer == 8 {
        report.check(Rule::R14, at, !types.contains(&STACK_TRACE32), || format!("items {types:?}"));
    }
}

/// The types of linked extended data items, and whether all sizes, paddings and links are valid.
fn item_types(mut rest: &[u8]) -> (Vec<u16>, bool) {
    let (mut types, mut intact) = (Vec::new(), true);
    loop {
        if rest.len() < 8 {
            return (types, false);
        }
        let (stride, linkage) = (usize::from(u16(rest, 0)), u16(rest, 4));
        let size = 8 + usize::from(u16(rest, 6));
        types.push(u16(rest, 2));
        intact &= stride == size.next_multiple_of(8) && linkage <= 1;
        intact &= rest.get(size..stride).is_some_and(|padding| padding.iter().all(|byte| *byte == 0));
        match rest.get(stride..) {
            _ if linkage == 0 => return (types, intact),
            Some(next) if stride > 0 => rest = next,
            _ => return (types, false),
        }
    }
}

fn check_classic(report: &mut Report, session: &Session, at: usize, record: &Record<'_>) {
    let (thread, process) = (record.thread(), record.process());
    report.check(Rule::R15, at, process != UNKNOWN, || format!("{process:#x}"));
    if record.bytes.get(0x18..0x28) != Some(&SYSTEM_CONFIG) {
        return;
    }
    report.check(Rule::R16, at, thread != UNKNOWN && session.relogged, || {
        format!("thread {thread:#x}, {}", if session.relogged { "relogged" } else { "live" })
    });
    if record.bytes[4] == SYSTEM_PATHS {
        let paths = record.bytes.get(0x30..).and_then(utf16).unwrap_or_default();
        let folder = paths.split('\0').nth(1);
        report.check(Rule::R20, at, folder.is_some_and(|folder| folder.ends_with('\\')), || {
            format!("{folder:?}")
        });
    }
}
