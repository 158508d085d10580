//! The records that the plugin sends to the recorder through shared memory, and the requests that it
//! receives over a pipe while the system waits.
//!
//! Both sides run on the same machine: numbers have its byte order.

use std::sync::atomic::AtomicU64;

/// The number of words of eight bytes in a record.
pub const WORDS: usize = 6;
/// The length of a record in bytes.
pub const LENGTH: usize = 8 * WORDS;
/// The number of records that shared memory holds.
pub const RING_RECORDS: u64 = 1 << 16;
/// How often to look for an answer before waiting with the system: 50 µs or more.
pub const LOOKS: u32 = 2000;
/// The number of words before the records, which keep the counters in different cache lines.
const RING_HEADER: usize = 16;
/// The number of words of shared memory.
pub const RING_WORDS: usize = RING_HEADER + RING_RECORDS as usize * WORDS;

/// The memory that both sides share: how many records were written and read, and the latest records.
/// The side that writes announces new records by bytes in a pipe.
///
/// Both sides wait for each other's answers without the system at first: an answer takes less time than to
/// wake a process.
#[derive(Debug)]
#[repr(transparent)]
pub struct Ring([AtomicU64; RING_WORDS]);

impl Ring {
    /// The number of records that can be read.
    pub fn written(&self) -> &AtomicU64 {
        &self.0[0]
    }

    /// The number of records that were read. Their memory can be written again.
    pub fn read(&self) -> &AtomicU64 {
        &self.0[RING_HEADER / 2]
    }

    /// The number of requests that were sent through the pipe.
    pub fn requested(&self) -> &AtomicU64 {
        &self.0[RING_HEADER / 2 + 1]
    }

    /// The words of the record with a number, from 0.
    pub fn record(&self, number: u64) -> &[AtomicU64] {
        let start = RING_HEADER + (number % RING_RECORDS) as usize * WORDS;
        &self.0[start..start + WORDS]
    }
}

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A near call.
    Call = 1,
    /// A near return.
    Return = 2,
    /// A far return.
    FarReturn = 3,
    /// A new value of the stack pointer that is not relative to the old one.
    Load = 4,
    /// A system call.
    SystemCall = 5,
    /// The return from a system call.
    SystemReturn = 6,
    /// An interrupt, an exception or a fault. It is a transition of its own, after the interrupted
    /// instruction. `detail` is the vector, `extra` the offset of the slot from the new stack pointer.
    Interrupt = 7,
    /// The return from an interrupt.
    InterruptReturn = 8,
    /// A new address space, before the transition that sets it. `sp_after` is the value of CR3.
    Space = 9,
    /// The end of the execution. `sp_before` is the number of instructions that the emulator executed,
    /// `pc_after` that of iterations and `sp_after` that of interrupts.
    End = 10,
    /// The kernel is about to execute its first recorded instruction, at `pc_before`. The system waits
    /// for requests.
    Begun = 11,
    /// The function of a hook is about to execute. `extra` is the number of the hook, `sp_before` and
    /// `sp_after` are the first two arguments. The system waits for requests, if the hook does.
    Hooked = 12,
    /// The answer to a request for memory. Its length in bytes is `sp_before`, 0 if the memory cannot be
    /// read. The bytes follow, padded to a multiple of [`LENGTH`].
    Memory = 13,
    /// Another thread of a program executes from now on, which is a transition of its own. `sp_before` is
    /// its number, `pc_after` and `sp_after` are its registers.
    Thread = 14,
    /// The current thread ends by its next transition.
    ThreadEnd = 15,
    /// The system is about to deliver a signal. `sp_before` is the return address of the handler.
    Restorer = 16,
    /// The system has delivered a signal, which is a transition of its own.
    Signal = 17,
    /// The memory from `sp_before` to `sp_after` becomes the stack of signal handlers.
    Alternate = 18,
    /// The memory from `sp_before` to `sp_after` was released.
    Released = 19,
    /// An indirect jump. In a system, those of the kernel, and its direct jumps to other functions.
    Jump = 20,
    /// The mapped files of a program, in the form of `/proc/self/maps`. The length in bytes is
    /// `sp_before`. The bytes follow, padded to a multiple of [`LENGTH`].
    Maps = 21,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The type.
    pub kind: Kind,
    /// The ring before: 0 or 3. Only for interrupts.
    pub ring_before: u8,
    /// The ring after: 0 or 3. Only for returns from interrupts.
    pub ring_after: u8,
    /// See [`Kind`].
    pub detail: u8,
    /// The length of the instruction.
    pub length: u8,
    /// See [`Kind`].
    pub extra: u8,
    /// The number of transitions before this one.
    pub transition: u64,
    /// The address of the instruction, or of the next one that was not executed because of an
    /// interrupt.
    pub pc_before: u64,
    /// The stack pointer before the transition.
    pub sp_before: u64,
    /// The address of the next instruction.
    pub pc_after: u64,
    /// The stack pointer after the transition.
    pub sp_after: u64,
}

impl Kind {
    const ALL: [Kind; 21] = [
        Kind::Call,
        Kind::Return,
        Kind::FarReturn,
        Kind::Load,
        Kind::SystemCall,
        Kind::SystemReturn,
        Kind::Interrupt,
        Kind::InterruptReturn,
        Kind::Space,
        Kind::End,
        Kind::Begun,
        Kind::Hooked,
        Kind::Memory,
        Kind::Thread,
        Kind::ThreadEnd,
        Kind::Restorer,
        Kind::Signal,
        Kind::Alternate,
        Kind::Released,
        Kind::Jump,
        Kind::Maps,
    ];
}

impl Record {
    /// Creates a record whose other fields are 0.
    pub fn new(kind: Kind, transition: u64) -> Record {
        Record {
            kind,
            ring_before: 0,
            ring_after: 0,
            detail: 0,
            length: 0,
            extra: 0,
            transition,
            pc_before: 0,
            sp_before: 0,
            pc_after: 0,
            sp_after: 0,
        }
    }

    /// Returns the words of the record.
    pub fn to_words(self) -> [u64; WORDS] {
        let [a, b, c, d, e, f] =
            [self.kind as u8, self.ring_before, self.ring_after, self.detail, self.length, self.extra];
        let first = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
        [first, self.transition, self.pc_before, self.sp_before, self.pc_after, self.sp_after]
    }

    /// Reads a record. Returns `None` if its type is unknown.
    pub fn from_words(words: [u64; WORDS]) -> Option<Record> {
        let [first, transition, pc_before, sp_before, pc_after, sp_after] = words;
        let [kind, ring_before, ring_after, detail, length, extra, ..] = first.to_ne_bytes();
        Some(Record {
            kind: *Kind::ALL.get(usize::from(kind).checked_sub(1)?)?,
            ring_before,
            ring_after,
            detail,
            length,
            extra,
            transition,
            pc_before,
            sp_before,
            pc_after,
            sp_after,
        })
    }
}

/// The length of a request in bytes.
pub const REQUEST_LENGTH: usize = 24;
/// Maximum number of functions of a kernel.
pub const FUNCTIONS_MAX: u64 = 1 << 20;
/// Maximum length of memory in one request.
pub const MEMORY_MAX: u64 = 2 << 20;

/// A request to the system while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks for memory of the current address space: a [`Kind::Memory`] record.
    Read {
        /// The address.
        address: u64,
        /// The number of bytes, at most [`MEMORY_MAX`].
        length: u64,
    },
    /// Asks for records of the calls of a function that was not executed yet.
    Hook {
        /// Its address.
        address: u64,
        /// A number that the records repeat.
        number: u8,
        /// Whether the system waits for requests at each call.
        waits: bool,
    },
    /// Gives the addresses of the kernel's functions. They follow in rising order, eight bytes each.
    Functions {
        /// Their number, at most [`FUNCTIONS_MAX`].
        count: u64,
    },
    /// The system continues.
    Continue,
}

impl Request {
    /// Returns the bytes of the request.
    pub fn to_bytes(self) -> [u8; REQUEST_LENGTH] {
        let words = match self {
            Request::Read { address, length } => [1, address, length],
            Request::Hook { address, number, waits } => {
                [2, address, u64::from(number) << 1 | u64::from(waits)]
            }
            Request::Continue => [3, 0, 0],
            Request::Functions { count } => [4, count, 0],
        };
        let mut bytes = [0; REQUEST_LENGTH];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads a request. Returns `None` if its type is unknown.
    pub fn from_bytes(bytes: &[u8; REQUEST_LENGTH]) -> Option<Request> {
        let (words, _) = bytes.as_chunks::<8>();
        let [kind, address, detail] = [0, 1, 2].map(|index: usize| u64::from_ne_bytes(words[index]));
        Some(match kind {
            1 => Request::Read { address, length: detail },
            2 => Request::Hook { address, number: (detail >> 1) as u8, waits: detail & 1 != 0 },
            3 => Request::Continue,
            4 => Request::Functions { count: address },
            _ => return None,
        })
    }
}
