//! The expected answers of the device, written from `docs/kstack-protocol.md` alone: the rules by
//! their numbers there, the fields by their offsets, and every byte of an answer. It shares no code
//! with the device.

use stackhound_kstack_core::{Caller, Refusal, ThreadRelation};
use stackhound_kstack_proto::Missing;

use super::mock::{Mock, OWN_CODE, Reaction, SOON, Thread};

/// A request to the device as the system passes it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The process that opened the device.
    pub opener: u32,
    pub caller: Caller,
    pub code: u32,
    pub buffer: Vec<u8>,
    pub input: usize,
    pub output: usize,
}

const VERSION: u32 = 0x22_e000;
const CAPTURE: u32 = 0x22_e004;

/// A number in little-endian bytes.
fn number(bytes: &[u8], offset: usize, length: usize) -> u64 {
    bytes[offset..offset + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A field with bounds: its offset, its length, and whether a value is valid, given the flags.
type Field = (usize, usize, fn(u64, u64) -> bool);

const FIELDS: [Field; 8] = [
    (0, 4, |magic, _| magic == 0x534b_4853),
    (4, 2, |version, _| version == 2),
    (6, 2, |size, _| size == 48),
    (24, 2, |frames, flags| frames <= 256 && frames >= (flags & 1) + (flags >> 1 & 1)),
    (26, 2, |flags, _| [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15].contains(&flags)),
    (28, 4, |timeout, _| timeout != 0 && timeout <= 1000),
    (40, 2, |skip, _| skip <= 256),
    (42, 6, |reserved, _| reserved == 0),
];

/// A condition, and the refusal if it does not hold.
type Rule = (fn(&Call) -> bool, Refusal);

/// The first six rules of the page's table.
const RULES: [Rule; 6] = [
    (|call| call.caller.from_user_mode && call.caller.pid == call.opener, Refusal::AccessDenied),
    (|call| call.code == VERSION || call.code == CAPTURE, Refusal::UnknownRequest),
    (|call| call.buffer.len() >= call.input && call.buffer.len() >= call.output, Refusal::Internal),
    (|call| call.input == if call.code == VERSION { 0 } else { 48 }, Refusal::InvalidParameter),
    (
        |call| {
            let field = |offset, length| number(&call.buffer, offset, length);
            let allowed = |&(offset, length, may): &Field| may(field(offset, length), field(26, 2));
            call.code == VERSION || FIELDS.iter().all(allowed)
        },
        Refusal::InvalidParameter,
    ),
    (
        |call| {
            let space = |call: &Call| 64 + 8 * number(&call.buffer, 24, 2) as usize;
            call.output >= if call.code == VERSION { 16 } else { space(call) }
        },
        Refusal::BufferTooSmall,
    ),
];

/// The expected answer, or the expected refusal.
pub fn expected(mock: &Mock, call: &Call) -> Result<Vec<u8>, Refusal> {
    for (holds, refusal) in RULES {
        if !holds(call) {
            return Err(refusal);
        }
    }
    if call.code == VERSION {
        let mut version = *b"SHKS\x02\0\0\x01\xe8\x03\0\0\x40\0\0\0";
        version[14] = mock.settings.can_remove.into();
        return Ok(version.to_vec());
    }
    answer(mock, &call.buffer[..48])
}

const CAPTURED: u32 = 0;
const NO_THREAD: u32 = 1;
const TERMINATING: u32 = 2;
const TIMED_OUT: u32 = 3;
const IDLE: u32 = 4;

/// The outcome of the capture of a thread, and its duration; `timeout` in 100 ns.
fn outcome(thread: &Thread, timeout: u64) -> (u32, u64) {
    match (thread.relation, thread.reaction) {
        (ThreadRelation::Idle, _) => (IDLE, 0),
        (ThreadRelation::Own, _) | (ThreadRelation::Other, Reaction::AtOnce) => (CAPTURED, 0),
        (ThreadRelation::Other, Reaction::Soon) => (CAPTURED, SOON),
        // The frames that are published by then are answered.
        (ThreadRelation::Other, Reaction::Last | Reaction::HangsInUser) => (CAPTURED, timeout),
        (ThreadRelation::Other, Reaction::Slow | Reaction::Late | Reaction::EndsLate) => (TIMED_OUT, timeout),
        (ThreadRelation::Other, Reaction::EndsAtOnce) => (TERMINATING, 0),
        (ThreadRelation::Other, Reaction::EndsSoon) => (TERMINATING, SOON),
        (ThreadRelation::Other, Reaction::EndsLast) => (TERMINATING, timeout),
    }
}

/// The seventh rule, and every byte of the answer.
fn answer(mock: &Mock, request: &[u8]) -> Result<Vec<u8>, Refusal> {
    let (pid, tid, created) = (number(request, 8, 4), number(request, 12, 4), number(request, 16, 8));
    let is_it = |thread: &Thread| {
        let matches_time = created == 0 || (mock.settings.reports_created && created == thread.created);
        u64::from(thread.pid) == pid && u64::from(thread.tid) == tid && matches_time
    };
    let mut parts = Parts::default();
    let (mut outcome_and_wait, mut created_at) = ((NO_THREAD, 0), 0);
    if let Some(index) = mock.threads.iter().position(is_it) {
        let thread = &mock.threads[index];
        let takes_requests = matches!(thread.relation, ThreadRelation::Own | ThreadRelation::Other);
        if takes_requests && (mock.outstanding() == mock.settings.slots || mock.is_outstanding(index)) {
            return Err(Refusal::Busy);
        }
        created_at = if mock.settings.reports_created { thread.created } else { 0 };
        outcome_and_wait = outcome(thread, number(request, 28, 4) * 10_000);
        if outcome_and_wait.0 == CAPTURED {
            parts = Parts::of(thread, request, mock.settings.memory);
        }
    }
    let entries: Vec<u8> =
        parts.kernel.iter().chain(&parts.user).flat_map(|entry| entry.to_le_bytes()).collect();
    let mut bytes = b"SHKS\x02\0\x40\0".to_vec();
    bytes.extend(&request[8..16]);
    bytes.extend(created_at.to_le_bytes());
    bytes.extend(&request[32..40]);
    bytes.extend(outcome_and_wait.0.to_le_bytes());
    for number in [parts.kernel.len(), parts.user.len(), parts.flags, parts.machinery, parts.skipped, 0] {
        bytes.extend((number as u16).to_le_bytes());
    }
    let hash = entries.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    bytes.extend(hash.to_le_bytes());
    bytes.extend(outcome_and_wait.1.to_le_bytes());
    bytes.extend(entries);
    Ok(bytes)
}

#[derive(Default)]
struct Parts {
    kernel: Vec<u64>,
    user: Vec<u64>,
    flags: usize,
    machinery: usize,
    skipped: usize,
}

/// The entries of a missing stack.
fn sentinel(missing: Missing) -> Vec<u64> {
    let reason = match missing {
        Missing::Nothing => 1,
        Missing::System => 2,
        Missing::Faulted => 3,
        Missing::Attached => 4,
        Missing::Protected => 5,
        Missing::NoRoom => 6,
        Missing::NotNow => 7,
        Missing::CriticalRegion => 8,
        Missing::Unfinished => 9,
    };
    vec![0x5d00_0bad_0000_0000 + reason]
}

impl Parts {
    /// The section "Omitted frames".
    fn of(thread: &Thread, request: &[u8], memory: usize) -> Self {
        let (flags, max_frames) = (number(request, 26, 2), number(request, 24, 2) as usize);
        let own = thread.relation == ThreadRelation::Own;
        let mut parts = Parts { flags: usize::from(own), ..Parts::default() };
        let mut left = memory;
        if flags & 1 != 0 {
            let room = max_frames - usize::from(flags & 2 != 0);
            let limit = memory.min(max_frames + number(request, 40, 2) as usize + 16);
            parts.kernel = match &thread.kernel {
                Err(missing) => sentinel(*missing),
                Ok(stack) => {
                    let walked = &stack[..stack.len().min(limit)];
                    left -= walked.len();
                    if flags & 4 == 0 {
                        let own_code = walked.iter().take_while(|&frame| OWN_CODE.contains(frame)).count();
                        let dispatcher = usize::from(own_code > 0 && !own && walked.len() > own_code);
                        parts.machinery = own_code + dispatcher;
                    }
                    parts.skipped = (walked.len() - parts.machinery).min(number(request, 40, 2) as usize);
                    let rest = &walked[parts.machinery + parts.skipped..];
                    let end = rest.iter().position(|frame| frame >> 63 == 0).unwrap_or(rest.len());
                    if end > room || (walked.len() == limit && limit > 0 && end == rest.len()) {
                        parts.flags |= 2;
                    }
                    if end == 0 { sentinel(Missing::Nothing) } else { rest[..end.min(room)].to_vec() }
                }
            };
        }
        if flags & 2 != 0 {
            let room = max_frames - parts.kernel.len();
            let limit = left.min(max_frames);
            let hangs = !own && thread.reaction == Reaction::HangsInUser;
            let withheld = thread.in_critical_region && !own && flags & 8 == 0;
            parts.user = match (thread.may, &thread.user) {
                (Err(missing), _) => sentinel(missing),
                (Ok(()), _) if hangs => sentinel(Missing::Unfinished),
                (Ok(()), _) if limit == 0 => sentinel(Missing::NoRoom),
                (Ok(()), _) if withheld => sentinel(Missing::CriticalRegion),
                (Ok(()), Err(missing)) => sentinel(*missing),
                (Ok(()), Ok(stack)) => {
                    let walked = &stack[..stack.len().min(limit)];
                    let ends = |frame: &u64| *frame == 0 || is_sentinel(*frame);
                    let end = walked.iter().position(ends);
                    let may_continue = end.is_some() || walked.len() == limit;
                    let end = end.unwrap_or(walked.len());
                    if end > 0 && (end > room || may_continue) {
                        parts.flags |= 4;
                    }
                    if end == 0 { sentinel(Missing::Nothing) } else { walked[..end.min(room)].to_vec() }
                }
            };
        }
        parts
    }
}

fn is_sentinel(frame: u64) -> bool {
    (0x5d00_0bad_0000_0001..=0x5d00_0bad_0000_0009).contains(&frame)
}

/// The kinds of results.
pub const KINDS: [&str; 14] = [
    "access denied",
    "unknown request",
    "internal",
    "invalid parameter",
    "buffer too small",
    "busy",
    "version",
    "captured, own",
    "captured, other",
    "captured, cut",
    "no thread",
    "terminating",
    "timed out",
    "idle",
];

/// The index of a result in [`KINDS`].
pub fn kind(result: &Result<Vec<u8>, Refusal>) -> usize {
    let bytes = match result {
        Err(Refusal::AccessDenied) => return 0,
        Err(Refusal::UnknownRequest) => return 1,
        Err(Refusal::Internal) => return 2,
        Err(Refusal::InvalidParameter) => return 3,
        Err(Refusal::BufferTooSmall) => return 4,
        Err(Refusal::Busy) => return 5,
        Ok(bytes) => bytes,
    };
    if bytes.len() == 16 {
        return 6;
    }
    match (number(bytes, 32, 4) as u32, number(bytes, 40, 2)) {
        (CAPTURED, 1) => 7,
        (CAPTURED, 0) => 8,
        (CAPTURED, _) => 9,
        (other, _) => 9 + other as usize,
    }
}
