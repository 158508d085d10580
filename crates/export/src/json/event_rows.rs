//! Writes many events as lines of JSON: [`EventRows`] collects what depends on the state of the trace,
//! and a [`Batch`] writes the lines, also on another thread.
//!
//! A line is that of the type [`Event`](super::event::Event), byte for byte. Most of its bytes are
//! the same in many events, so they are created once and copied:
//!
//! | part of a line | created for |
//! |---|---|
//! | names of the provider and the event, keys of the fields | each schema |
//! | process and thread | the ids that an event states, as long as they refer to the same objects |
//! | stack | each resolved stack, from those of its frames |
//!
//! The rest is appended by the module `append`. Nothing is reused if the state of the trace still
//! changes, and the bytes that are kept are limited.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use stackhound_etl::Block;
use stackhound_frames::{Frame, Level};
use stackhound_pipeline::{Depth, EventView, FrameView, Label, Missing, OwnerCache};
use stackhound_schema::{Plan, Schema};
use stackhound_stacks::{StackState, StackStates};
use stackhound_types::Mode;

use super::append::{self, Times};
use super::event::Create;
use super::facts::{EventFile, EventRegistry, EventTarget, ProcessFacts, ThreadFacts};
use super::field_rows::{FieldRow, append_fields};
use super::frame::Frame as FrameDocument;
use super::stack::{EventFrames, Stack, StackSummary};
use super::system_call::SystemCall;
use crate::escape::json;

/// Collects the events of one run of a pipeline, for lines of JSON.
#[derive(Debug)]
pub struct EventRows {
    with_stacks: bool,
    /// By the address of the schema, which its row keeps.
    schemas: HashMap<usize, Shared<SchemaRow>, FxBuildHasher>,
    owners: OwnerCache<Owner>,
    stacks: Stacks,
    batch: Batch,
    /// The number of the batch.
    number: u64,
}

/// The blocks of events.
#[derive(Debug, Default)]
pub struct Blocks(Vec<Arc<Block>>);

impl Blocks {
    /// The index of a block, which is added if it is new.
    pub fn index(&mut self, block: &Arc<Block>) -> usize {
        // Consecutive events are in few blocks: one of each processor.
        match self.0.iter().rposition(|known| Arc::ptr_eq(known, block)) {
            Some(index) => index,
            None => {
                self.0.push(Arc::clone(block));
                self.0.len() - 1
            }
        }
    }

    /// The block with an index.
    pub fn get(&self, index: usize) -> &Arc<Block> {
        &self.0[index]
    }
}

/// Events that [`EventRows`] collected, with everything that their lines need. Another thread can
/// write the lines.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    blocks: Blocks,
    schemas: Vec<Arc<SchemaRow>>,
    owners: Vec<Arc<[u8]>>,
    stacks: Vec<Arc<[u8]>>,
    /// Parts of single lines.
    bytes: Vec<u8>,
}

/// One line. Numbers are indices in the batch, ranges those of its bytes.
#[derive(Debug)]
struct Row {
    block: usize,
    /// Index of the entry in the block.
    entry: u32,
    id: u16,
    opcode: u8,
    version: u8,
    schema: Option<usize>,
    /// As [`append_names`], unless the schema has them.
    names: Range<usize>,
    /// See [`Owner`].
    owner: Part,
    facts: Range<usize>,
    /// The value of the stack, with its key; empty if lines have no stacks.
    stack: Part,
}

/// A part of a line.
#[derive(Debug)]
enum Part {
    /// Shared with other lines.
    Shared(usize),
    /// Of this line.
    Own(Range<usize>),
}

/// A value that several lines share. A batch has it once.
#[derive(Debug)]
struct Shared<T: ?Sized> {
    value: Arc<T>,
    /// The last batch that has it, and its index there.
    last: (u64, usize),
}

impl<T: ?Sized> Shared<T> {
    /// Creates a value that no batch has. The number of the first batch is 1.
    fn new(value: Arc<T>) -> Shared<T> {
        Shared { value, last: (0, 0) }
    }

    /// Its index in a batch.
    fn index(&mut self, batch: u64, values: &mut Vec<Arc<T>>) -> usize {
        if self.last.0 != batch {
            self.last = (batch, values.len());
            values.push(Arc::clone(&self.value));
        }
        self.last.1
    }
}

/// The reasons why facts about an event are not known. `None` for facts that are known, and for
/// those that the event does not need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MissingFacts {
    /// The path of its program, for processes that have one.
    pub process_path: Option<Missing>,
    /// The path of its file, for events about a file.
    pub file_path: Option<Missing>,
    /// The path of its registry key, for events about a key.
    pub registry_path: Option<Missing>,
}

/// The limit of kept schemas.
const SCHEMAS_MAX: usize = 1 << 14;

/// The limits of a batch.
const ROWS_MAX: usize = 512;
const BYTES_MAX: usize = 1 << 20;

impl EventRows {
    /// Creates a collection, for lines with stacks if `with_stacks` is true. Use it for one run only,
    /// because it keeps facts about the state of the trace.
    pub fn new(with_stacks: bool) -> EventRows {
        EventRows {
            with_stacks,
            schemas: HashMap::default(),
            owners: OwnerCache::default(),
            stacks: Stacks::default(),
            batch: Batch::default(),
            number: 1,
        }
    }

    /// Whether the events should be [taken](EventRows::take).
    pub fn is_full(&self) -> bool {
        self.batch.rows.len() >= ROWS_MAX || self.batch.bytes.len() >= BYTES_MAX
    }

    /// Takes the events since the last call.
    pub fn take(&mut self) -> Batch {
        self.number += 1;
        // Of the same size, because batches are similar.
        let next = Batch {
            rows: Vec::with_capacity(self.batch.rows.len()),
            bytes: Vec::with_capacity(self.batch.bytes.len()),
            ..Batch::default()
        };
        std::mem::replace(&mut self.batch, next)
    }

    /// Adds an event. Returns which facts about it are missing.
    ///
    /// # Errors
    /// None that the caller can cause.
    pub fn push(&mut self, view: &EventView<'_>) -> io::Result<MissingFacts> {
        let (owner, process_path) = self.owner(view)?;
        let mut missing = MissingFacts { process_path, ..MissingFacts::default() };
        let (schema, has_names) = self.schema(view).unzip();
        let EventRows { batch, stacks, number, .. } = self;
        let start = batch.bytes.len();
        if has_names != Some(true) {
            append_names(&mut batch.bytes, view);
        }
        let names = start..batch.bytes.len();
        append_facts(view, &mut batch.bytes, &mut missing)?;
        let facts = names.end..batch.bytes.len();
        let stack = match self.with_stacks {
            true => stacks.part(view, batch, *number)?,
            false => Part::Own(0..0),
        };
        let event = view.event();
        let (id, opcode, version) = (view.id(), view.opcode(), view.version());
        let (block, entry) = (batch.blocks.index(event.block()), event.index());
        batch.rows.push(Row { block, entry, id, opcode, version, schema, names, owner, facts, stack });
        Ok(missing)
    }

    /// The process and thread of an event, and why the path of the program is missing.
    fn owner(&mut self, view: &EventView<'_>) -> io::Result<(Part, Option<Missing>)> {
        let EventRows { owners, batch, number, .. } = self;
        if let Some(known) = owners.find(view) {
            return Ok((Part::Shared(known.bytes.index(*number, &mut batch.owners)), known.path));
        }
        let start = batch.bytes.len();
        let path = append_owner(view, &mut batch.bytes)?;
        let Some(place) = owners.place(view) else {
            return Ok((Part::Own(start..batch.bytes.len()), path));
        };
        let mut bytes = Shared::new(batch.split_off(start));
        let part = Part::Shared(bytes.index(*number, &mut batch.owners));
        place.keep(Owner { bytes, path });
        Ok((part, path))
    }

    /// The index of the row of an event's schema, and whether it has the names; `None` if no schema
    /// is known.
    fn schema(&mut self, view: &EventView<'_>) -> Option<(usize, bool)> {
        let EventRows { schemas, batch, number, .. } = self;
        let schema: &Schema = view.schema()?;
        let address = std::ptr::from_ref(schema).addr();
        if let Some(row) = schemas.get_mut(&address) {
            return Some((row.index(*number, &mut batch.schemas), row.value.names.is_some()));
        }
        if schemas.len() >= SCHEMAS_MAX {
            schemas.clear();
        }
        let row = SchemaRow::new(view, Arc::clone(view.plan()?));
        let row = schemas.entry(address).or_insert(Shared::new(Arc::new(row)));
        Some((row.index(*number, &mut batch.schemas), row.value.names.is_some()))
    }
}

impl Batch {
    /// Removes the bytes from `start` on.
    fn split_off(&mut self, start: usize) -> Arc<[u8]> {
        let bytes = self.bytes[start..].into();
        self.bytes.truncate(start);
        bytes
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends the events as JSON, one per line, with line ends.
    ///
    /// # Errors
    /// None that the caller can cause.
    pub fn append_lines(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut times = Times::default();
        self.rows.iter().try_for_each(|row| self.append_line(row, &mut times, out))
    }

    fn append_line(&self, row: &Row, times: &mut Times, out: &mut Vec<u8>) -> io::Result<()> {
        let block = self.blocks.get(row.block);
        let entry = &block.entries()[row.entry as usize];
        let record = block.record(entry);
        let schema = row.schema.map(|schema| &*self.schemas[schema]);
        out.extend_from_slice(b"{\"time\":");
        times.time(out, block.session().clock().to_file_time(entry.time));
        out.extend_from_slice(b",\"ts\":");
        append::integer(out, entry.time.0);
        out.extend_from_slice(b",\"cpu\":");
        append::optional_integer(out, block.origin().processor);
        out.extend_from_slice(self.part(&row.owner, &self.owners));
        match schema.and_then(|schema| schema.names.as_ref()) {
            Some(names) => out.extend_from_slice(names),
            None => out.extend_from_slice(&self.bytes[row.names.clone()]),
        }
        append::integer(out, row.id);
        out.extend_from_slice(b",\"opcode\":");
        append::integer(out, row.opcode);
        out.extend_from_slice(b",\"version\":");
        append::integer(out, row.version);
        out.extend_from_slice(b",\"fields\":");
        append_fields(out, times, schema.map(|schema| &schema.fields), &record)?;
        out.extend_from_slice(&self.bytes[row.facts.clone()]);
        out.extend_from_slice(self.part(&row.stack, &self.stacks));
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn part<'b>(&'b self, part: &Part, shared: &'b [Arc<[u8]>]) -> &'b [u8] {
        match part {
            Part::Shared(index) => &shared[*index],
            Part::Own(range) => &self.bytes[range.clone()],
        }
    }
}

/// The process and thread of events that state the same ids.
#[derive(Debug)]
struct Owner {
    /// The keys `pid`, `tid`, `process` and `thread`.
    bytes: Shared<[u8]>,
    /// Why the path of the program is missing.
    path: Option<Missing>,
}

fn append_owner(view: &EventView<'_>, out: &mut Vec<u8>) -> io::Result<Option<Missing>> {
    out.extend_from_slice(b",\"pid\":");
    append::optional_integer(out, view.pid().map(|pid| pid.0));
    out.extend_from_slice(b",\"tid\":");
    append::optional_integer(out, view.tid().map(|tid| tid.0));
    let process = view.process();
    out.extend_from_slice(b",\"process\":");
    json(out, &ProcessFacts::of_trace(process))?;
    out.extend_from_slice(b",\"thread\":");
    json(out, &ThreadFacts::of_trace(view.thread_start()))?;
    let has_program = view.pid().is_some_and(|pid| !pid.is_kernel_only());
    Ok(process.and_then(|process| process.path()).err().filter(|_| has_program))
}

/// Appends the keys of the names, and the key `id`.
fn append_names(out: &mut Vec<u8>, view: &EventView<'_>) {
    out.extend_from_slice(b",\"provider\":");
    append::text(out, &view.provider());
    out.extend_from_slice(b",\"event\":");
    append::text(out, &view.name());
    out.extend_from_slice(b",\"id\":");
}

/// Appends the keys that only some kinds of events have.
fn append_facts(view: &EventView<'_>, out: &mut Vec<u8>, missing: &mut MissingFacts) -> io::Result<()> {
    if view.is_about_file() {
        let path = view.file_path();
        missing.file_path = path.as_ref().err().copied();
        out.extend_from_slice(b",\"file\":");
        json(out, &EventFile::at(path.ok()))?;
    }
    if let Some(registry) = view.registry() {
        missing.registry_path = registry.path.as_ref().err().copied();
        out.extend_from_slice(b",\"registry\":");
        json(out, &EventRegistry::new(registry))?;
    }
    if let Some(target) = view.target() {
        out.extend_from_slice(b",\"target\":");
        json(out, &EventTarget::new(target))?;
    }
    if let Some(create) = view.create() {
        out.extend_from_slice(b",\"create\":");
        json(out, &Create::new(create))?;
    }
    if let Some(call) = SystemCall::of_event(view) {
        out.extend_from_slice(b",\"syscall\":");
        json(out, &call)?;
    }
    Ok(())
}

/// The constant bytes of all events with a schema.
#[derive(Debug)]
struct SchemaRow {
    /// As [`append_names`]. `None` if the provider has no name.
    names: Option<Box<[u8]>>,
    fields: FieldRow,
}

impl SchemaRow {
    fn new(view: &EventView<'_>, plan: Arc<Plan>) -> SchemaRow {
        let names = || {
            let mut names = Vec::new();
            append_names(&mut names, view);
            names.into_boxed_slice()
        };
        let has_names = view.provider_name().is_some();
        SchemaRow { names: has_names.then(names), fields: FieldRow::new(plan) }
    }
}

/// The lines' values of stacks. Equal stacks of a process have the same resolved frames, which the
/// resolver shares. Different stacks mostly consist of the same frames.
#[derive(Debug, Default)]
struct Stacks {
    known: HashMap<StackKey, KnownStack, FxBuildHasher>,
    /// The values of frames.
    frames: HashMap<(Frame, Depth), Box<[u8]>, FxBuildHasher>,
    /// Bytes in both.
    size: usize,
}

/// Everything that the value of a stack depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct StackKey {
    /// The address of the resolved frames; `None` without a stack.
    frames: Option<usize>,
    states: StackStates,
    user: Depth,
    kernel: Depth,
}

#[derive(Debug)]
struct KnownStack {
    /// Keeps the address.
    _frames: Option<Arc<[Frame]>>,
    /// With the key.
    bytes: Shared<[u8]>,
}

/// The limit of kept bytes of stacks.
const STACK_BYTES_MAX: usize = 16 << 20;

impl Stacks {
    /// The stack of an event, with its key.
    fn part(&mut self, view: &EventView<'_>, batch: &mut Batch, number: u64) -> io::Result<Part> {
        let start = batch.bytes.len();
        let own = |batch: &Batch| Ok(Part::Own(start..batch.bytes.len()));
        if view.level() == Level::None {
            batch.bytes.extend_from_slice(b",\"stack\":null");
            return own(batch);
        }
        let frames = view.stack().map(|_| view.resolved());
        // Without a cache in the resolver, no other event has the same frames.
        let is_shared = frames.as_ref().is_none_or(|frames| Arc::strong_count(frames) > 1);
        let key = StackKey {
            frames: frames.as_ref().map(|frames| frames.as_ptr().addr()),
            states: view.stack_states(),
            user: view.depth(Mode::User),
            kernel: view.depth(Mode::Kernel),
        };
        if is_shared && let Some(known) = self.known.get_mut(&key) {
            return Ok(Part::Shared(known.bytes.index(number, &mut batch.stacks)));
        }
        batch.bytes.extend_from_slice(b",\"stack\":");
        if !is_shared {
            let stack = Stack::new(view.stack_states(), EventFrames(view), StackSummary::of_event(view));
            json(&mut batch.bytes, &stack)?;
            return own(batch);
        }
        self.append(view, key, frames.as_deref().unwrap_or_default(), &mut batch.bytes)?;
        let mut bytes = Shared::new(batch.split_off(start));
        let part = Part::Shared(bytes.index(number, &mut batch.stacks));
        if self.size + bytes.value.len() > STACK_BYTES_MAX {
            self.known.clear();
            self.frames.clear();
            self.size = 0;
        }
        self.size += bytes.value.len();
        self.known.insert(key, KnownStack { _frames: frames, bytes });
        Ok(part)
    }

    /// Appends a [`Stack`], from the values of its frames.
    fn append(
        &mut self,
        view: &EventView<'_>,
        key: StackKey,
        frames: &[Frame],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        out.extend_from_slice(b"{\"state\":");
        append::text(out, key.states.first().name());
        out.extend_from_slice(b",\"also\":");
        json(out, &key.states.others().map(StackState::name).collect::<Vec<_>>())?;
        out.extend_from_slice(b",\"frames\":[");
        for (index, frame) in frames.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let depth = if frame.mode == Mode::User { key.user } else { key.kernel };
            match self.frames.entry((*frame, depth)) {
                Entry::Occupied(known) => out.extend_from_slice(known.get()),
                Entry::Vacant(new) => {
                    let start = out.len();
                    let frame = FrameView::new(*frame, view.trace_state().system(), depth);
                    let names = view.names(&frame);
                    json(out, &FrameDocument::of_event(&Label { frame: &frame, names: names.as_deref() }))?;
                    self.size += out.len() - start;
                    new.insert(out[start..].into());
                }
            }
        }
        out.push(b']');
        match StackSummary::of_event(view) {
            Some(summary) => {
                let start = out.len();
                json(out, &summary)?;
                out[start] = b',';
            }
            None => out.push(b'}'),
        }
        Ok(())
    }
}
