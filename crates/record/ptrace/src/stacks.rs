//! The memory that the program uses as stacks, as far as system calls specify it.

use std::ops::Range;

use stackhound_record_names::Process;

use crate::code::CodeCache;
use crate::control::Registers;

/// The assumed size of the first stack if the system sets no limit.
const SIZE_WITHOUT_LIMIT: u64 = 64 << 20;

/// The effect of a system call on memory for stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// This memory is a stack for signal handlers.
    Alternate(Range<u64>),
    /// This memory is unmapped.
    Released(Range<u64>),
}

/// The effect of a completed system call on memory for stacks.
pub(crate) fn notice(code: &CodeCache, before: Registers, after: Registers) -> Option<Notice> {
    let [first, second, _] = before.arguments;
    let range = |start: u64, length: u64| start..start.saturating_add(length);
    match (before.rax as i64, after.rax) {
        (libc::SYS_sigaltstack, 0) if first != 0 => {
            // `stack_t`: the start, flags and size.
            let start = code.read_word(first)?;
            let flags = code.read_word(first.checked_add(8)?)? as i32;
            let size = code.read_word(first.checked_add(16)?)?;
            (flags & libc::SS_DISABLE == 0).then(|| Notice::Alternate(range(start, size)))
        }
        (libc::SYS_munmap, 0) => Some(Notice::Released(range(first, second))),
        (libc::SYS_mremap, result) if result < u64::MAX - 4096 && result != first => {
            Some(Notice::Released(range(first, second)))
        }
        _ => None,
    }
}

/// The first stack of a program. It may grow down to its limit, but not into another mapping.
pub(crate) fn first_stack(code: &mut CodeCache, sp: u64) -> Option<Range<u64>> {
    let mapping = code.map().at(sp)?.addresses.clone();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one such structure through its second argument.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    let size =
        if known && limit.rlim_cur != libc::RLIM_INFINITY { limit.rlim_cur } else { SIZE_WITHOUT_LIMIT };
    let lowest = code.map().end_below(mapping.start);
    let start = mapping.end.saturating_sub(size).max(lowest).min(mapping.start);
    Some(start..mapping.end)
}

/// The stack of a new thread, whose stack pointer is still near its highest address.
pub(crate) fn thread_stack(
    code: &mut CodeCache,
    sp: u64,
    declared: Option<Range<u64>>,
) -> Option<Range<u64>> {
    let fits = |range: &Range<u64>| range.start < sp && sp <= range.end;
    // If the system call did not specify the size, an anonymous mapping is a good guess, but not
    // the heap.
    let mapped = |code: &mut CodeCache| {
        let mapping = code.map().at(sp.checked_sub(1)?)?;
        mapping.name.as_os_str().is_empty().then(|| mapping.addresses.clone())
    };
    declared.filter(fits).or_else(|| mapped(code))
}
