//! Reads journals of calls, and builds traces of calls from them.

use stackhound_calltree::journal::{self, Writer};
use stackhound_calltree::{
    Change, ContextId, Cpu, EndType, Frame, FrameId, LocationInfo, ModuleInfo, StackEvent, StackInfo,
    StackKind, StartType, Trace,
};

/// Magic, version, padding.
const HEADER: usize = 16;
/// Length and checksum of a page.
const PAGE_HEADER: usize = 8;
/// Maximum number of frames that are checked, and of checked entries in each of their lists.
const CHECKED_MAX: usize = 200;

/// Uses bytes as the content of the only page of a journal, and builds a trace from it.
pub fn journal(bytes: &[u8]) {
    let mut file = b"shcalls\n\x04\0\0\0\0\0\0\0".to_vec();
    file.extend((bytes.len() as u32).to_le_bytes());
    file.extend(crc32fast::hash(bytes).to_le_bytes());
    file.extend(bytes);
    let Ok((trace, replayed)) = journal::trace(&file) else { return };
    assert_eq!(trace.transition_count(), replayed.transitions);
    assert_eq!(trace.made_from(), Some(journal::fingerprint(&file)));
    let again = Trace::open(trace.as_bytes().to_vec().into()).expect("an index that was built here");
    assert_eq!(again.frame_count(), trace.frame_count());
    for id in 0..trace.frame_count().min(CHECKED_MAX as u64) {
        check(trace.frame(FrameId(id)).expect("a frame of this trace"));
    }
}

fn check(frame: Frame<'_>) {
    let range = frame.range();
    assert!(range.last() <= frame.trace().last_context().id());
    if let Some(parent) = frame.parent() {
        assert!(parent.range().begin() <= range.begin() && range.last() <= parent.range().last());
    }
    let stack = frame.trace().stack(frame.stack().id(), range.begin()).expect("a stack of this trace");
    assert!(stack.frames().any(|open| open == frame));

    // The ranges that are split at calls cover the same contexts.
    let plain: Vec<_> = frame.execution_ranges().take(CHECKED_MAX).collect();
    assert!(plain.is_sorted_by(|one, next| one.last() < next.begin()));
    let mut contexts = plain.iter().flat_map(|range| [range.begin().0, range.last().0 + 1]);
    let mut at = contexts.next();
    for part in frame.execution_ranges_by_call().take(CHECKED_MAX) {
        assert_eq!(at, Some(part.range.begin().0));
        at = Some(part.range.last().0 + 1);
        if plain.iter().any(|range| range.last() == part.range.last()) {
            assert_eq!(contexts.next(), at);
            at = contexts.next();
        }
    }
    for tail in frame.tail_calls().take(CHECKED_MAX) {
        assert!(range.contains(tail.first_context().id()) && range.contains(tail.last_context().id()));
    }
    let mut open = Vec::new();
    for event in frame.descendant_events().take(CHECKED_MAX) {
        match event {
            StackEvent::FrameStart(inner) => open.push(inner),
            StackEvent::FrameEnd(inner) => assert_eq!(open.pop(), Some(inner)),
            StackEvent::StackLeave(_) | StackEvent::StackEnter(_) => {}
        }
    }
}

/// Pages of journals with two stacks and all kinds of records.
pub(crate) fn pages() -> Vec<Vec<u8>> {
    let starts =
        [StartType::Call, StartType::Interrupt, StartType::Manual, StartType::Damaged, StartType::Unknown];
    let ends = [EndType::Return, EndType::Unwound, EndType::InterruptReturn, EndType::Replaced];
    let seeds = (0..4).map(|variant| {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file)?;
        let module =
            writer.module(&ModuleInfo { name: "m".to_owned(), path: Some("/m".to_owned()), base: None })?;
        let location = LocationInfo {
            address: None,
            module: Some(module),
            rva: Some(16),
            symbol: Some("function".to_owned()),
            symbol_offset: variant,
        };
        let location = writer.location(&location)?;
        let entry = writer.entry(location, location)?;
        let location = Some(location);
        let kinds = [StackKind::User, StackKind::Kernel];
        let mut stacks = Vec::new();
        for kind in kinds {
            let thread = Some(1);
            stacks.push(writer.stack(&StackInfo {
                kind,
                process: None,
                thread,
                cpu: None,
                name: None,
                region: None,
            })?);
        }
        for turn in 0..6 {
            let (stack, from) = (stacks[turn as usize % 2], turn * 20);
            writer.change(Change::Enter { cpu: Cpu(0), stack, first: ContextId(from) })?;
            let start = starts[(turn + variant) as usize % starts.len()];
            writer.change(Change::Open { stack, first: ContextId(from), start, location })?;
            writer.change(Change::Open {
                stack,
                first: ContextId(from + 4),
                start: StartType::Call,
                location,
            })?;
            writer.change(Change::Target { stack, location: entry })?;
            writer.change(Change::TailCall { stack, first: ContextId(from + 6), location: entry })?;
            let end = ends[(turn + variant) as usize % ends.len()];
            writer.change(Change::Close { stack, last: ContextId(from + 9), end })?;
            if turn % 3 == 2 {
                writer.change(Change::Leave { cpu: Cpu(0), last: ContextId(from + 12) })?;
            }
        }
        let stack = stacks[0];
        writer.name(stack, "later")?;
        for _ in 0..3 {
            writer.change(Change::Close { stack, last: ContextId(130), end: EndType::Return })?;
        }
        writer.change(Change::Below { stack, location })?;
        writer.finish(140)?;
        Ok(file.split_off(HEADER + PAGE_HEADER))
    });
    seeds.collect::<std::io::Result<_>>().expect("writing to memory succeeds")
}
