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
use stackhound_pipeline::{Depth, EventView, FrameView, Label, Missing, StatedIds};
use stackhound_schema::{Array, Decoder, Field, Item, MapKind, OutType, Plan, Schema, Value};
use stackhound_stacks::{StackState, StackStates};
use stackhound_system::ValidityRange;
use stackhound_types::{Mode, PointerSize};

use super::append::{self, Times};
use super::event::{Create, Form};
use super::event_facts::{EventFile, EventProcess, EventRegistry, EventTarget, EventThread};
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
    owners: HashMap<StatedIds, Owner, FxBuildHasher>,
    stacks: Stacks,
    batch: Batch,
    /// The number of the batch.
    number: u64,
}

/// Events that [`EventRows`] collected, with everything that their lines need. Another thread can
/// write the lines.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    blocks: Vec<Arc<Block>>,
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

/// The limit of kept schemas, and of kept owners.
const KEPT_MAX: usize = 1 << 14;

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
            owners: HashMap::default(),
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
        let (block, entry) = (batch.block(event.block()), event.index());
        batch.rows.push(Row { block, entry, id, opcode, version, schema, names, owner, facts, stack });
        Ok(missing)
    }

    /// The process and thread of an event, and why the path of the program is missing.
    fn owner(&mut self, view: &EventView<'_>) -> io::Result<(Part, Option<Missing>)> {
        let EventRows { owners, batch, number, .. } = self;
        let (ids, time) = (view.stated_ids(), view.time());
        if let Some(known) = owners.get_mut(&ids)
            && known.validity.iter().all(|range| range.has(time))
        {
            return Ok((Part::Shared(known.bytes.index(*number, &mut batch.owners)), known.path));
        }
        let start = batch.bytes.len();
        let path = append_owner(view, &mut batch.bytes)?;
        let Some(validity) = view.owner_validity() else {
            return Ok((Part::Own(start..batch.bytes.len()), path));
        };
        let mut bytes = Shared::new(batch.split_off(start));
        let part = Part::Shared(bytes.index(*number, &mut batch.owners));
        if owners.len() >= KEPT_MAX {
            owners.clear();
        }
        owners.insert(ids, Owner { validity, bytes, path });
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
        if schemas.len() >= KEPT_MAX {
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

    /// The index of a block.
    fn block(&mut self, block: &Arc<Block>) -> usize {
        // Consecutive events are in few blocks: one of each processor.
        match self.blocks.iter().rposition(|known| Arc::ptr_eq(known, block)) {
            Some(index) => index,
            None => {
                self.blocks.push(Arc::clone(block));
                self.blocks.len() - 1
            }
        }
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
        let block = &self.blocks[row.block];
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
        let payload = record.payload();
        match schema {
            Some(schema) => schema.fields(times, out, payload, record.pointer_size())?,
            None if payload.is_empty() => out.extend_from_slice(b"{}"),
            None => {
                out.extend_from_slice(b"{\"raw\":");
                append::hex_bytes(out, payload);
                out.push(b'}');
            }
        }
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
    /// The times at which they are the same are in all of these ranges.
    validity: [ValidityRange; 3],
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
    json(out, &EventProcess::new(process))?;
    out.extend_from_slice(b",\"thread\":");
    json(out, &EventThread::new(view.thread_start()))?;
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
    plan: Arc<Plan>,
    /// As [`append_names`]. `None` if the provider has no name.
    names: Option<Box<[u8]>>,
    /// A comma and the key of each field, by index.
    keys: Box<[Box<[u8]>]>,
}

/// A comma and the key of each field.
fn keys(schema: &Schema) -> Box<[Box<[u8]>]> {
    let key = |field: &Field| {
        let mut key = b",".to_vec();
        append::text(&mut key, &field.name);
        key.push(b':');
        key.into_boxed_slice()
    };
    schema.fields.iter().map(key).collect()
}

impl SchemaRow {
    fn new(view: &EventView<'_>, plan: Arc<Plan>) -> SchemaRow {
        let schema = plan.schema();
        let names = || {
            let mut names = Vec::new();
            append_names(&mut names, view);
            names.into_boxed_slice()
        };
        SchemaRow { keys: keys(schema), names: (!schema.provider_name.is_empty()).then(names), plan }
    }

    /// Appends the fields of a payload.
    fn fields(
        &self,
        times: &mut Times,
        out: &mut Vec<u8>,
        payload: &[u8],
        pointer: PointerSize,
    ) -> io::Result<()> {
        FieldWriter { schema: self, times, out }.members(self.plan.decode(payload, pointer))
    }
}

/// Appends decoded fields.
struct FieldWriter<'w> {
    schema: &'w SchemaRow,
    times: &'w mut Times,
    out: &'w mut Vec<u8>,
}

impl FieldWriter<'_> {
    /// Appends fields. If one cannot be decoded, the error follows under the key `error`.
    fn members(&mut self, mut fields: Decoder<'_>) -> io::Result<()> {
        let start = self.out.len();
        loop {
            while let Some((index, field, value)) = fields.next_value() {
                self.out.extend_from_slice(&self.schema.keys[index]);
                self.value(field, value)?;
            }
            match fields.next() {
                None => break,
                Some(Ok(decoded)) => {
                    self.out.extend_from_slice(&self.schema.keys[decoded.index]);
                    self.item(decoded.field, decoded.item)?;
                }
                Some(Err(error)) => {
                    self.out.extend_from_slice(b",\"error\":");
                    append::shown(self.out, error);
                }
            }
        }
        // The comma before the first key becomes the brace.
        match self.out.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
        Ok(())
    }

    fn item(&mut self, field: &Field, item: Item<'_>) -> io::Result<()> {
        match item {
            Item::Value(value) => self.value(field, value),
            Item::Array(array) => self.array(array),
            Item::Struct(members) => self.members(members),
        }
    }

    fn array(&mut self, array: Array<'_>) -> io::Result<()> {
        let field = array.field();
        self.out.push(b'[');
        match array.values() {
            Some(values) => {
                for (index, value) in values.enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.value(field, value)?;
                }
            }
            None => {
                for (index, item) in array.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.item(field, item)?;
                }
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn value(&mut self, field: &Field, value: Value<'_>) -> io::Result<()> {
        let out = &mut *self.out;
        match Form::of(field, value) {
            Form::Null => out.extend_from_slice(b"null"),
            Form::Boolean(truth) => append::boolean(out, truth),
            Form::Unsigned(number) => append::integer(out, number),
            Form::Signed(number) => append::integer(out, number),
            Form::Hex(number) => append::hex(out, number),
            Form::Float(number) => json(out, &number)?,
            Form::Ticks(ticks) => append::decimal_text(out, ticks),
            Form::Bytes(bytes) => append::hex_bytes(out, bytes),
            Form::Rendered => self.rendered(field, value),
        }
        Ok(())
    }

    /// Appends the text of [`Field::render`].
    fn rendered(&mut self, field: &Field, value: Value<'_>) {
        let out = &mut *self.out;
        if let Some(map) = &field.map {
            let number = value.as_u64().filter(|_| map.kind == MapKind::Values);
            return match number.and_then(|number| map.value_name(number)) {
                Some(name) => append::text(out, name),
                None => append::shown(out, field.render(value)),
            };
        }
        match (value, field.out_type) {
            (Value::Unsigned(number), OutType::Default) => append::decimal_text(out, number),
            (Value::Signed(number), OutType::Default) => append::decimal_text(out, number),
            (Value::Unsigned(number), OutType::Hex | OutType::CodePointer) => append::hex(out, number),
            (Value::Utf16(bytes), _) => append::utf16(out, bytes),
            (Value::Ansi(bytes), _) => append::ansi(out, bytes),
            (Value::Guid(guid), _) => append::guid(out, guid),
            (Value::FileTime(time), _) => self.times.time(out, time),
            _ => append::shown(out, field.render(value)),
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stackhound_schema::{Count, InType, Length, Map, SchemaSource};
    use stackhound_types::Guid;

    use super::super::event::Fields;
    use super::*;

    fn out_types() -> impl Strategy<Value = OutType> {
        prop::sample::select(vec![
            OutType::Default,
            OutType::Default,
            OutType::String,
            OutType::Boolean,
            OutType::Hex,
            OutType::Pid,
            OutType::Tid,
            OutType::Port,
            OutType::Ipv4,
            OutType::Ipv6,
            OutType::SocketAddress,
            OutType::Xml,
            OutType::Json,
            OutType::Win32Error,
            OutType::NtStatus,
            OutType::HResult,
            OutType::DateTime,
            OutType::Signed,
            OutType::Unsigned,
            OutType::Utf8,
            OutType::CodePointer,
            OutType::Other(9),
        ])
    }

    fn maps() -> impl Strategy<Value = Option<Arc<Map>>> {
        let kinds = prop::sample::select(vec![MapKind::Values, MapKind::Bits]);
        let entries = prop::collection::vec((0_u32..9, any::<String>()), 1..5);
        let map = (kinds, entries).prop_map(|(kind, entries)| {
            let entries = entries.into_iter().map(|(number, name)| (number, name.into())).collect();
            Arc::new(Map { name: "Map".into(), kind, entries })
        });
        prop::option::weighted(0.2, map)
    }

    fn fields() -> impl Strategy<Value = Vec<Field>> {
        let counts = prop_oneof![
            4 => Just(Count::One),
            1 => (0_u16..4).prop_map(Count::Fixed),
            1 => Just(Count::Field(0)),
            1 => Just(Count::Prefixed),
            1 => Just(Count::Rest),
        ];
        let lengths = prop_oneof![
            4 => Just(Length::Natural),
            1 => (0_u16..9).prop_map(Length::Fixed),
            1 => Just(Length::Field(0)),
            1 => Just(Length::Rest),
        ];
        let in_types = prop::sample::select(&InType::ALL);
        let field = (any::<String>(), in_types, out_types(), counts, lengths, maps());
        let field = field.prop_map(|(name, in_type, out_type, count, length, map)| Field {
            name: name.into(),
            in_type,
            out_type,
            count,
            length,
            map,
        });
        prop::collection::vec(field, 0..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn fields_are_those_of_the_document(
            fields in fields(),
            payload in prop::collection::vec(prop_oneof![3 => 0_u8..9, 1 => any::<u8>()], 0..200),
            pointer in prop::sample::select(vec![PointerSize::Four, PointerSize::Eight]),
        ) {
            let plan = Plan::new(Arc::new(Schema {
                source: SchemaSource::Manifest,
                provider: Guid::ZERO,
                provider_name: "Provider".into(),
                event_name: "Event".into(),
                message: None,
                fields,
            }));
            let mut expected = Vec::new();
            json(&mut expected, &Fields { fields: Some(plan.decode(&payload, pointer)), payload: &payload }).unwrap();
            let row = SchemaRow { keys: keys(plan.schema()), names: None, plan: Arc::new(plan) };
            let mut appended = Vec::new();
            row.fields(&mut Times::default(), &mut appended, &payload, pointer).unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&appended), String::from_utf8_lossy(&expected));
        }
    }
}
