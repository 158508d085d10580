//! The cache of evaluations.
//!
//! The same few stacks occur again and again. An evaluation is valid as long as everything that it
//! depends on is unchanged, so it is cached under numbers for all of these facts. The cache changes
//! no answer: cases that are not in it are evaluated.
//!
//! Three keys lead to an evaluation. Each is looked up only if the previous one fails:
//!
//! 1. [`Key`]: the stack, and numbers for the process with its modules, the start of the thread,
//!    the facts of the event and its kind. It is valid until the process, its modules or the facts
//!    about them change.
//! 2. The *signature*: a list of numbers for everything that detections read, without the process.
//!    The first numbers are those of the [head](head), the others identify the frames by their
//!    [cache key](Frame::cache_key). Equivalent cases of different processes are evaluated once.
//! 3. [`FrameNumbers`]: the number of the frame at an address. It is valid as long as the modules
//!    of the process are unchanged; for frames outside of images, as long as all of its memory is
//!    unchanged.
//!
//! A detection that reads more facts of a frame requires a change of [`Frame::cache_key`]. One that
//! reads more facts of an event requires a change of the number of the event's facts (`facts` of
//! [`Key`]). One that reads more facts of a process requires a change of [`ProcessContext`], which
//! is numbered as a whole. `stackhound/tests/it/hunt/changes.rs` compares the results with those
//! without a cache.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashMap;
use hashbrown::hash_table::{Entry, HashTable};
use stackhound_detect::{Evaluation, Totals};
use stackhound_frames::{Frame, FrameResolver, ProcessContext, addresses};
use stackhound_pipeline::{EventView, slots};
use stackhound_stacks::StackId;
use stackhound_system::ProcessId;
use stackhound_types::{Address, AddressKind};

use super::context::StackContext;
use super::{CaseContext, HuntSession};

/// Identifies a case: everything that its evaluation depends on, except for memory outside of
/// images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Key {
    pub stack: Option<StackId>,
    /// Number of the state of the process, its modules, those of the kernel, and the known facts
    /// about them.
    pub module_map_generation: u32,
    /// Number of the thread's start code.
    pub start: u32,
    /// Number of the service or of the target.
    pub facts: u32,
    /// The kind of the event, its innermost frames, and the states of the stack.
    pub event_bits: u32,
}

impl Key {
    /// A hash that is the same in each run.
    #[inline]
    fn hash(&self) -> u64 {
        const FACTORS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];
        let fold = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let stack = self.stack.map_or(0, |stack| stack.index() as u64 + 1);
        let context = u64::from(self.module_map_generation) << 32 | u64::from(self.start);
        let event = u64::from(self.facts) << 32 | u64::from(self.event_bits);
        fold(fold(stack ^ FACTORS[0], context ^ FACTORS[1]) ^ event, FACTORS[2])
    }
}

/// A cached case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachedEvaluation {
    key: Key,
    /// Number of the state of all memory, if the evaluation depends on it; 0 if all user frames are
    /// in images, so that only modules matter. (If other memory replaced an image whose unload was
    /// not recorded, this is noticed when modules change.)
    pub memory: u32,
    /// Number of the evaluation; 0 in a free entry.
    pub number: u32,
}

/// The entries of one bucket of the table. They fit into one cache line of the processor.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket([CachedEvaluation; 2]);

/// Minimum and maximum number of buckets: at most 4 MB. Cases either occur again soon or never,
/// because modules have changed. In a larger table, look-ups would wait for memory.
const BUCKETS: std::ops::RangeInclusive<usize> = 1 << 8..=1 << 16;
/// Maximum number of distinct evaluations: about 13 MB.
const EVALUATIONS_MAX: usize = 1 << 14;
/// Maximum number of numbers in signatures: 8 MB.
const SIGNATURES_MAX: usize = 1 << 21;

#[derive(Clone, Copy, Debug)]
struct Signature {
    from: u32,
    to: u32,
    number: u32,
}

impl Signature {
    fn numbers(self, all: &[u32]) -> &[u32] {
        &all[self.from as usize..self.to as usize]
    }
}

/// Evaluations by case.
#[derive(Debug)]
pub(super) struct Cache {
    /// A power of two.
    buckets: Vec<Bucket>,
    /// Number of cases in the buckets.
    kept: usize,
    signatures: HashTable<Signature>,
    /// The numbers of all signatures, concatenated.
    signature_numbers: Vec<u32>,
    /// Distinct evaluations, which many cases share.
    evaluations: Vec<Evaluation>,
    /// Number of events by evaluation.
    counts: Vec<u64>,
    /// Totals of evaluations that were removed.
    totals: Totals,
    /// Numbers of evaluations, starting at 1.
    numbers: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            buckets: vec![Bucket::default(); *BUCKETS.start()],
            kept: 0,
            signatures: HashTable::default(),
            signature_numbers: Vec::new(),
            evaluations: Vec::new(),
            counts: Vec::new(),
            totals: Totals::default(),
            numbers: HashTable::default(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Cache {
    /// The cached case with a key. The caller checks that its memory is unchanged.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<CachedEvaluation> {
        let Bucket(entries) = &self.buckets[self.bucket(key)];
        entries.iter().find(|known| known.key == *key && known.number != 0).copied()
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        key.hash() as usize & (self.buckets.len() - 1)
    }

    /// Adds a case, which replaces the older entry of its bucket.
    pub fn keep(&mut self, key: Key, memory: u32, number: u32) {
        if self.kept >= self.buckets.len() && self.buckets.len() < *BUCKETS.end() {
            let larger = vec![Bucket::default(); 4 * self.buckets.len()];
            let smaller = std::mem::replace(&mut self.buckets, larger);
            self.kept = 0;
            for Bucket(entries) in smaller {
                entries.into_iter().rev().filter(|known| known.number != 0).for_each(|known| self.put(known));
            }
        }
        self.put(CachedEvaluation { key, memory, number });
    }

    fn put(&mut self, known: CachedEvaluation) {
        let bucket = self.bucket(&known.key);
        let Bucket(entries) = &mut self.buckets[bucket];
        if entries[0].key != known.key {
            self.kept += usize::from(entries[1].number == 0);
            entries[1] = entries[0];
        }
        entries[0] = known;
    }

    /// The number of the evaluation of a signature.
    pub fn of_signature(&self, signature: &[u32]) -> Option<u32> {
        let is_same = |known: &Signature| known.numbers(&self.signature_numbers) == signature;
        self.signatures.find(self.hasher.hash_one(signature), is_same).map(|known| known.number)
    }

    /// Adds the evaluation of a signature.
    pub fn keep_signature(&mut self, signature: &[u32], number: u32) {
        if self.signature_numbers.len() + signature.len() > SIGNATURES_MAX {
            self.signatures.clear();
            self.signature_numbers.clear();
        }
        let from = self.signature_numbers.len() as u32;
        self.signature_numbers.extend_from_slice(signature);
        let known = Signature { from, to: self.signature_numbers.len() as u32, number };
        let Cache { signatures, signature_numbers, hasher, .. } = self;
        let hash = |known: &Signature| hasher.hash_one(known.numbers(signature_numbers));
        signatures.insert_unique(hash(&known), known, hash);
    }

    /// The number of an evaluation, which is valid until the next call. If there are too many
    /// evaluations, the cache is cleared first.
    pub fn number(&mut self, evaluation: Evaluation) -> u32 {
        if self.evaluations.len() >= EVALUATIONS_MAX {
            self.forget();
        }
        let Cache { evaluations, counts, numbers, hasher, .. } = self;
        let entry = numbers.entry(
            hasher.hash_one(evaluation),
            |number| evaluations[*number as usize - 1] == evaluation,
            |number| hasher.hash_one(evaluations[*number as usize - 1]),
        );
        match entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(slot) => {
                evaluations.push(evaluation);
                counts.push(0);
                let number = evaluations.len() as u32;
                slot.insert(number);
                number
            }
        }
    }

    /// Clears everything except for the totals.
    pub fn forget(&mut self) {
        *self = Cache { totals: self.totals(), ..Cache::default() };
    }

    /// Counts an event for the evaluation with this number.
    #[inline]
    pub fn count(&mut self, number: u32) -> &Evaluation {
        let index = number as usize - 1;
        self.counts[index] += 1;
        &self.evaluations[index]
    }

    /// The answers of all counted evaluations.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        let counted = self.evaluations.iter().zip(&self.counts);
        counted.for_each(|(evaluation, count)| totals.add(evaluation, *count));
        totals
    }
}

/// Number of slots for addresses; each address has one slot. 1 MB.
const FRAME_SLOTS: usize = 1 << 16;

/// Replaces the number of a frame that does not depend on modules alone.
const OUTSIDE: u32 = 0;

#[derive(Clone, Copy, Default)]
struct CachedFrame {
    address: u64,
    /// Number of the state of modules or memory for which the entry is valid; 0 in a free entry.
    module_map_generation: u32,
    /// Number of the frame. The highest bit is set if the address is an instruction.
    number: u32,
}

const INSTRUCTION: u32 = 1 << 31;

/// Numbers of frames by address.
pub(super) struct FrameNumbers {
    known: Box<[CachedFrame]>,
    numbers: Interner<Frame>,
}

impl std::fmt::Debug for FrameNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameNumbers").finish_non_exhaustive()
    }
}

impl Default for FrameNumbers {
    fn default() -> FrameNumbers {
        let known = vec![CachedFrame::default(); FRAME_SLOTS].into_boxed_slice();
        FrameNumbers { known, numbers: Interner::default() }
    }
}

fn kind_bit(kind: AddressKind) -> u32 {
    match kind {
        AddressKind::Instruction => INSTRUCTION,
        AddressKind::Return => 0,
    }
}

impl FrameNumbers {
    #[inline]
    fn slot(address: Address, module_map_generation: u32) -> usize {
        let hash = (address.0 ^ u64::from(module_map_generation) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 40) as usize % FRAME_SLOTS
    }

    #[inline]
    fn find(&self, address: Address, kind: AddressKind, module_map_generation: u32) -> Option<u32> {
        let known = &self.known[FrameNumbers::slot(address, module_map_generation)];
        let is_same = known.address == address.0
            && known.module_map_generation == module_map_generation
            && known.number & INSTRUCTION == kind_bit(kind);
        is_same.then_some(known.number & !INSTRUCTION)
    }

    fn keep(&mut self, address: Address, kind: AddressKind, module_map_generation: u32, number: u32) {
        let number = number | kind_bit(kind);
        self.known[FrameNumbers::slot(address, module_map_generation)] =
            CachedFrame { address: address.0, module_map_generation, number };
    }

    fn number(&mut self, frame: Frame, numbers: &mut NumberSource) -> u32 {
        self.numbers.of(frame, numbers)
    }
}

/// Count of the numbers of a signature before those of the frames.
const HEAD: usize = 5;

fn head(key: &Key, stack_context: &StackContext) -> [u32; HEAD] {
    let flags = u32::from(stack_context.is_complete) | u32::from(stack_context.is_lossy) << 1;
    [stack_context.facts, key.start, key.facts, key.event_bits, flags]
}

impl HuntSession {
    /// Finds the signature of a case. Returns the number of the memory state that it depends on; 0
    /// if it depends only on images.
    pub(super) fn find_signature(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        all: &CaseContext,
        key: &Key,
    ) -> u32 {
        let stack_context = &all.stack_context;
        let session = stack_context.pointer_size;
        let mut signature = std::mem::take(&mut self.signature);
        signature.clear();
        signature.extend(head(key, stack_context));
        let mut memory = 0;
        for (address, kind) in addresses(session, view.delivered()) {
            let module_map_generation = match address.is_kernel(session) {
                true => stack_context.kernel_module_map_generation,
                false => stack_context.module_map_generation,
            };
            signature.push(match self.frame_numbers.find(address, kind, module_map_generation) {
                Some(number) if number != OUTSIDE => number,
                known => {
                    self.resolve_frame((view, resolver), stack_context, (address, kind), known, &mut memory)
                }
            });
        }
        self.signature = signature;
        memory
    }

    #[cold]
    fn resolve_frame(
        &mut self,
        (view, resolver): (&EventView<'_>, &mut FrameResolver),
        stack_context: &StackContext,
        (address, kind): (Address, AddressKind),
        known: Option<u32>,
        memory: &mut u32,
    ) -> u32 {
        let (system, owner) = (view.trace_state().system(), stack_context.owner);
        let mut frames = resolver.at(system, owner, view.time(), stack_context.pointer_size);
        let is_kernel = address.is_kernel(stack_context.pointer_size);
        if known.is_none()
            && let Some(frame) = frames.in_module(address, kind)
        {
            let module_map_generation = if is_kernel {
                stack_context.kernel_module_map_generation
            } else {
                stack_context.module_map_generation
            };
            return self.keep_frame(resolver, &frame, (address, kind), module_map_generation);
        }
        let module_map_generation = match is_kernel {
            true => stack_context.kernel_module_map_generation,
            false => {
                if *memory == 0 {
                    *memory = self.contexts.memory(system, owner.process, view.time(), &mut self.numbers);
                }
                if known.is_none() {
                    self.frame_numbers.keep(address, kind, stack_context.module_map_generation, OUTSIDE);
                }
                *memory
            }
        };
        if known == Some(OUTSIDE)
            && let Some(number) = self.frame_numbers.find(address, kind, module_map_generation)
        {
            return number;
        }
        let frame = frames.frame(address, kind);
        self.keep_frame(resolver, &frame, (address, kind), module_map_generation)
    }

    fn keep_frame(
        &mut self,
        resolver: &FrameResolver,
        frame: &Frame,
        (address, kind): (Address, AddressKind),
        module_map_generation: u32,
    ) -> u32 {
        let key = frame.cache_key(resolver.modules(), !self.binaries.is_none());
        let number = self.frame_numbers.number(key, &mut self.numbers);
        self.frame_numbers.keep(address, kind, module_map_generation, number);
        number
    }

    /// The signature of a case whose frames were just evaluated.
    pub(super) fn signature_of_evaluated(&mut self, resolver: &FrameResolver, all: &CaseContext, key: &Key) {
        let HuntSession { signature, frames, frame_numbers, numbers, binaries, .. } = self;
        signature.clear();
        signature.extend(head(key, &all.stack_context));
        let key = |frame: &Frame| frame.cache_key(resolver.modules(), !binaries.is_none());
        signature.extend(frames.iter().map(|frame| frame_numbers.number(key(frame), numbers)));
    }
}

/// A source of unique numbers, starting at 1.
#[derive(Debug, Default)]
pub(super) struct NumberSource(u32);

impl NumberSource {
    /// The highest bit is used for other purposes.
    const MAX: u32 = u32::MAX >> 1;
    /// More numbers than one event needs.
    const LEFT: u32 = 1 << 20;

    /// The next number.
    pub fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }

    /// Whether few numbers are left. The caller must then clear everything that is identified by
    /// numbers.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.0 >= NumberSource::MAX - NumberSource::LEFT
    }
}

/// Assigns numbers to values. If there are too many values, all are removed and get new numbers.
#[derive(Debug)]
pub(super) struct Interner<T>(HashMap<T, u32, foldhash::fast::RandomState>);

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner(HashMap::default())
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// Maximum number of values.
    const MAX: usize = 1 << 16;

    /// The number of a value.
    pub fn of(&mut self, value: T, numbers: &mut NumberSource) -> u32 {
        if self.0.len() >= Self::MAX && !self.0.contains_key(&value) {
            self.0.clear();
        }
        *self.0.entry(value).or_insert_with(|| numbers.next())
    }
}

/// Numbers of the known facts about processes. Processes with equal facts have the same number.
#[derive(Debug, Default)]
pub(super) struct ContextNumbers {
    /// By the system's index of each process: the revision of its context, and the number.
    known: Vec<Option<(ProcessId, u32, u32)>>,
    numbered: Interner<ProcessContext>,
}

impl ContextNumbers {
    /// The number of the known facts about a process. Different facts never have the same number.
    /// Unknown processes have 0.
    pub fn of(
        &mut self,
        process: Option<ProcessId>,
        (context, revision): (&ProcessContext, u32),
        numbers: &mut NumberSource,
    ) -> u32 {
        let Some(id) = process else { return 0 };
        let slot = slots::at(&mut self.known, id.index());
        match slot {
            Some((known, then, number)) if (*known, *then) == (id, revision) => *number,
            _ => {
                let number = self.numbered.of(context.clone(), numbers);
                *slot = Some((id, revision, number));
                number
            }
        }
    }
}
