//! Evaluations that were made before.
//!
//! The same few stacks come again and again. An evaluation holds as long as nothing that it rests on has changed, so it is kept
//! under numbers that stand for all of that. The cache changes no answer: what is not in it is evaluated.
//!
//! Three keys lead to an evaluation, each looked up only where the one before it fails:
//!
//! 1. [`Key`]: the stack, and numbers for the process with its modules, the start of the thread, the event's facts and its kind.
//!    It holds until the process, its modules or what is known of them change.
//! 2. The *signature*: a row of numbers for all that detections read, without the process. The first ones are those of the
//!    [head](head), the others stand for the frames by their [cache key](Frame::cache_key). Cases of different processes that
//!    mean the same are evaluated once.
//! 3. [`FrameNumbers`]: the number of the frame at an address, as long as the modules of the process stay as they are; for frames
//!    outside of images, as long as all of its memory does.
//!
//! A detection that reads more of a frame changes [`Frame::cache_key`]; one that reads more of an event changes the number of the
//! event's facts (`facts` of [`Key`]), and one that reads more of a process changes
//! [`ProcessContext`], which is numbered as a whole. `stackhound/tests/hunt/changes.rs` compares with no cache at all.

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

/// What tells cases apart. All that an evaluation rests on, but for the memory outside of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Key {
    pub stack: Option<StackId>,
    /// Of the process, its modules and those of the kernel, and what is known of them.
    pub module_map_generation: u32,
    /// Of where the thread started.
    pub start: u32,
    /// Of the service or of the target.
    pub facts: u32,
    /// The kind of event, what its innermost frames are, and how much of the stack there is.
    pub what: u32,
}

impl Key {
    /// Where it is looked for: the same in each run.
    #[inline]
    fn hash(&self) -> u64 {
        const FACTORS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];
        let fold = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let stack = self.stack.map_or(0, |stack| stack.index() as u64 + 1);
        let around = u64::from(self.module_map_generation) << 32 | u64::from(self.start);
        let event = u64::from(self.facts) << 32 | u64::from(self.what);
        fold(fold(stack ^ FACTORS[0], around ^ FACTORS[1]) ^ event, FACTORS[2])
    }
}

/// A case that is remembered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachedEvaluation {
    key: Key,
    /// Of the memory that it rests on where it rests on more than modules: where all user frames lie in images, only modules
    /// count. 0 if it does not. (That a place was taken by something else while the unload was not recorded is noticed when
    /// modules change.)
    pub memory: u32,
    /// Of the evaluation; 0 in a free place.
    pub number: u32,
}

/// Cases that can be in one place of the table: as many as fit a line of the processor's cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket([CachedEvaluation; 2]);

/// Buckets of the table of cases, at first and at most: 4 MB. Cases come again soon or, since modules have changed, never; in a
/// larger table each look would wait for memory.
const BUCKETS: std::ops::RangeInclusive<usize> = 1 << 8..=1 << 16;
/// Distinct evaluations that are kept, at most: about 13 MB.
const JUDGEMENTS_MAX: usize = 1 << 14;
/// NumberSource in signatures that are kept, at most: 8 MB.
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
    /// As many as a power of two.
    buckets: Vec<Bucket>,
    /// Cases that were put into the buckets.
    kept: usize,
    signatures: HashTable<Signature>,
    /// Of all signatures, one behind the other.
    signature_numbers: Vec<u32>,
    /// Each once; many cases have the same.
    evaluations: Vec<Evaluation>,
    /// How many events each was made of.
    counts: Vec<u64>,
    /// Of evaluations that were given up.
    totals: Totals,
    /// NumberSource of evaluations, from 1.
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
    /// What is remembered of a case. It holds if it rests on no memory, or that is as it was.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<CachedEvaluation> {
        let Bucket(locations) = &self.buckets[self.bucket(key)];
        locations.iter().find(|known| known.key == *key && known.number != 0).copied()
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        key.hash() as usize & (self.buckets.len() - 1)
    }

    /// Remembers a case, in place of the one that was put into its bucket first.
    pub fn keep(&mut self, key: Key, memory: u32, number: u32) {
        if self.kept >= self.buckets.len() && self.buckets.len() < *BUCKETS.end() {
            let larger = vec![Bucket::default(); 4 * self.buckets.len()];
            let smaller = std::mem::replace(&mut self.buckets, larger);
            self.kept = 0;
            for Bucket(locations) in smaller {
                locations
                    .into_iter()
                    .rev()
                    .filter(|known| known.number != 0)
                    .for_each(|known| self.put(known));
            }
        }
        self.put(CachedEvaluation { key, memory, number });
    }

    fn put(&mut self, known: CachedEvaluation) {
        let bucket = self.bucket(&known.key);
        let Bucket(locations) = &mut self.buckets[bucket];
        if locations[0].key != known.key {
            self.kept += usize::from(locations[1].number == 0);
            locations[1] = locations[0];
        }
        locations[0] = known;
    }

    /// The number of the evaluation of a signature.
    pub fn of_signature(&self, signature: &[u32]) -> Option<u32> {
        let is_same = |known: &Signature| known.numbers(&self.signature_numbers) == signature;
        self.signatures.find(self.hasher.hash_one(signature), is_same).map(|known| known.number)
    }

    /// Remembers the evaluation of a signature.
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

    /// The number of an evaluation, which is good until the next one is asked for. Where there are too many, all that is
    /// remembered is forgotten first.
    pub fn number(&mut self, evaluation: Evaluation) -> u32 {
        if self.evaluations.len() >= JUDGEMENTS_MAX {
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
            Entry::Vacant(location) => {
                evaluations.push(evaluation);
                counts.push(0);
                let number = evaluations.len() as u32;
                location.insert(number);
                number
            }
        }
    }

    /// Forgets all but what was counted.
    pub fn forget(&mut self) {
        *self = Cache { totals: self.totals(), ..Cache::default() };
    }

    /// Counts an event for an evaluation, which is given by its number.
    #[inline]
    pub fn count(&mut self, number: u32) -> &Evaluation {
        let index = number as usize - 1;
        self.counts[index] += 1;
        &self.evaluations[index]
    }

    /// The answers of all evaluations that were counted.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        let counted = self.evaluations.iter().zip(&self.counts);
        counted.for_each(|(evaluation, count)| totals.add(evaluation, *count));
        totals
    }
}

/// Addresses that are remembered; each has one place where it can be. 1 MB.
const PLACES: usize = 1 << 16;

/// In place of a frame's number: what it is depends on more than modules.
const OUTSIDE: u32 = 0;

#[derive(Clone, Copy, Default)]
struct CachedFrame {
    address: u64,
    /// Of the modules, or of the memory, in which this holds; 0 in a free place.
    module_map_generation: u32,
    /// Of the frame. The highest bit says that the address is an instruction's.
    number: u32,
}

const INSTRUCTION: u32 = 1 << 31;

/// Frames by address.
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
        let known = vec![CachedFrame::default(); PLACES].into_boxed_slice();
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
    fn location(address: Address, module_map_generation: u32) -> usize {
        let hash = (address.0 ^ u64::from(module_map_generation) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 40) as usize % PLACES
    }

    #[inline]
    fn find(&self, address: Address, kind: AddressKind, module_map_generation: u32) -> Option<u32> {
        let known = &self.known[FrameNumbers::location(address, module_map_generation)];
        let is_same = known.address == address.0
            && known.module_map_generation == module_map_generation
            && known.number & INSTRUCTION == kind_bit(kind);
        is_same.then_some(known.number & !INSTRUCTION)
    }

    fn keep(&mut self, address: Address, kind: AddressKind, module_map_generation: u32, number: u32) {
        let number = number | kind_bit(kind);
        self.known[FrameNumbers::location(address, module_map_generation)] =
            CachedFrame { address: address.0, module_map_generation, number };
    }

    fn number(&mut self, frame: Frame, numbers: &mut NumberSource) -> u32 {
        self.numbers.of(frame, numbers)
    }
}

/// NumberSource of a signature in front of those of the frames.
const HEAD: usize = 5;

fn head(key: &Key, around: &StackContext) -> [u32; HEAD] {
    let flags = u32::from(around.is_complete) | u32::from(around.is_lossy) << 1;
    [around.facts, key.start, key.facts, key.what, flags]
}

impl HuntSession {
    /// Finds the signature of a case. Gives the number of the memory that it rests on, 0 if on none but that of images.
    pub(super) fn find_signature(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        all: &CaseContext,
        key: &Key,
    ) -> u32 {
        let around = &all.around;
        let session = around.pointer_size;
        let mut signature = std::mem::take(&mut self.signature);
        signature.clear();
        signature.extend(head(key, around));
        let mut memory = 0;
        for (address, kind) in addresses(session, view.delivered()) {
            let module_map_generation = match address.is_kernel(session) {
                true => around.kernel_module_map_generation,
                false => around.module_map_generation,
            };
            signature.push(match self.frame_numbers.find(address, kind, module_map_generation) {
                Some(number) if number != OUTSIDE => number,
                known => self.look_at_frame((view, resolver), around, (address, kind), known, &mut memory),
            });
        }
        self.signature = signature;
        memory
    }

    #[cold]
    fn look_at_frame(
        &mut self,
        (view, resolver): (&EventView<'_>, &mut FrameResolver),
        around: &StackContext,
        (address, kind): (Address, AddressKind),
        known: Option<u32>,
        memory: &mut u32,
    ) -> u32 {
        let (system, owner) = (view.trace_state().system(), around.owner);
        let mut frames = resolver.at(system, owner, view.time(), around.pointer_size);
        let is_kernel = address.is_kernel(around.pointer_size);
        if known.is_none()
            && let Some(frame) = frames.in_module(address, kind)
        {
            let module_map_generation =
                if is_kernel { around.kernel_module_map_generation } else { around.module_map_generation };
            return self.keep_frame(resolver, &frame, (address, kind), module_map_generation);
        }
        let module_map_generation = match is_kernel {
            true => around.kernel_module_map_generation,
            false => {
                if *memory == 0 {
                    *memory = self.contexts.memory(system, owner.process, view.time(), &mut self.numbers);
                }
                if known.is_none() {
                    self.frame_numbers.keep(address, kind, around.module_map_generation, OUTSIDE);
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

    /// The signature of a case with the frames that were just evaluated.
    pub(super) fn signature_of_evaluated(&mut self, resolver: &FrameResolver, all: &CaseContext, key: &Key) {
        let HuntSession { signature, frames, frame_numbers, numbers, binaries, .. } = self;
        signature.clear();
        signature.extend(head(key, &all.around));
        let key = |frame: &Frame| frame.cache_key(resolver.modules(), !binaries.is_none());
        signature.extend(frames.iter().map(|frame| frame_numbers.number(key(frame), numbers)));
    }
}

/// Gives numbers, from 1; never the same one twice.
#[derive(Debug, Default)]
pub(super) struct NumberSource(u32);

impl NumberSource {
    /// The highest bit is free for other things.
    const MAX: u32 = u32::MAX >> 1;
    /// More than one event takes.
    const LEFT: u32 = 1 << 20;

    /// The next one.
    pub fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }

    /// Whether there are hardly any left. Then all that is known by number has to be forgotten, and numbers begin again.
    #[inline]
    pub fn are_spent(&self) -> bool {
        self.0 >= NumberSource::MAX - NumberSource::LEFT
    }
}

/// Things with a number each. Of very many, all are forgotten, and get new numbers.
#[derive(Debug)]
pub(super) struct Interner<T>(HashMap<T, u32, foldhash::fast::RandomState>);

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner(HashMap::default())
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// Things that are known at once, at most.
    const MAX: usize = 1 << 16;

    /// The number of a thing.
    pub fn of(&mut self, thing: T, numbers: &mut NumberSource) -> u32 {
        if self.0.len() >= Self::MAX && !self.0.contains_key(&thing) {
            self.0.clear();
        }
        *self.0.entry(thing).or_insert_with(|| numbers.next())
    }
}

/// NumberSource of what is known of processes. Processes of which the same is known have the same number.
#[derive(Debug, Default)]
pub(super) struct ContextNumbers {
    /// By the system's index of each process: the context's own number, and ours.
    known: Vec<Option<(ProcessId, u32, u32)>>,
    numbered: Interner<ProcessContext>,
}

impl ContextNumbers {
    /// A number that stands for all that is known of a process: two states of knowledge never have the same. 0 is that of unknown
    /// processes.
    pub fn of(
        &mut self,
        process: Option<ProcessId>,
        (context, revision): (&ProcessContext, u32),
        numbers: &mut NumberSource,
    ) -> u32 {
        let Some(id) = process else { return 0 };
        let location = slots::at(&mut self.known, id.index());
        match location {
            Some((known, then, number)) if (*known, *then) == (id, revision) => *number,
            _ => {
                let number = self.numbered.of(context.clone(), numbers);
                *location = Some((id, revision, number));
                number
            }
        }
    }
}
