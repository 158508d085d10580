//! Events.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use stackhound_export::json::event_rows::Blocks;
use stackhound_export::json::field_rows::{FieldRow, Times, append_fields};
use stackhound_frames::{CreateEnd, Level};
use stackhound_pipeline::{EventView, OwnerCache};
use stackhound_schema::Schema;
use stackhound_stacks::StackState;

use super::findings::EventIds;
use super::stacks::Stacks;
use super::state::ProcessUids;
use super::{Pending, TableId};
use crate::layout::TextColumn;
use crate::rows::{Rows, SharedText, SharedTexts};

columns! {
    pub(super) Columns {
        /// Position of the event in the trace, starting at 1. With `trace`, it identifies the event.
        number: number required UInt64 Ascending,
        /// Time of the event; null if it is before 1677 or after 2262.
        time: number optional Time Ascending,
        /// Raw time: ticks of the session's clock.
        ts: number required Int64 Ascending,
        /// The processor.
        cpu: number optional UInt16,
        /// The process of the event.
        pid: number optional UInt32,
        /// The thread of the event.
        tid: number optional UInt32,
        /// File name of the program.
        process: shared optional,
        /// The process, in `processes`.
        process_uid: number optional UInt64 LookUp,
        /// Name or GUID of the provider; of kernel events, their class.
        provider: shared required,
        /// Name of the event; `Class/Type` for kernel classes.
        event: shared required,
        /// Id of the event; 0 for kernel classes.
        id: number required UInt16,
        /// Opcode; for kernel classes, the type.
        opcode: number required UInt8,
        /// Version of the fields.
        version: number required UInt8,
        /// The decoded fields, as JSON: the key `fields` of `events`.
        fields: text required Distinct,
        /// The file that the event is about.
        file_path: text optional LookUp,
        /// The registry key that the event is about.
        registry_path: text optional LookUp,
        /// The registry value; empty for the default value of the key.
        registry_value: text optional,
        /// The process that the event acts on, if it is not its own.
        target_pid: number optional UInt32,
        /// The thread that the event acts on, if it is not its own.
        target_tid: number optional UInt32,
        /// The process of `target_pid`, in `processes`.
        target_process_uid: number optional UInt64,
        /// For creating or opening a file: the requested disposition.
        create_requested: shared optional,
        /// Whether its end was found, otherwise why not.
        create_completion: shared optional,
        /// Its result; null unless completed.
        create_result: shared optional,
        /// Its NTSTATUS; null unless completed.
        create_status: number optional UInt32,
        /// For system calls: the name of the service.
        service: shared optional,
        /// Address of the service's routine.
        call_routine: number optional UInt64,
        /// Whether entry and exit of the system call were found, otherwise why not.
        call_completion: shared optional,
        /// NTSTATUS of the system call; null unless completed.
        call_status: number optional UInt32,
        /// Nanoseconds from entry to exit; null unless completed.
        call_duration: number optional UInt64,
        /// The first applicable state of the stack; null for events to which the policy gives no stack.
        stack_state: shared optional,
        /// The other applicable states, separated by `|`; null if there are none.
        stack_also: shared optional,
        /// The stack, in `stacks` and `frames`; null without frames.
        stack_id: number optional UInt64 LookUp,
        /// Whether a user frame is in no image: `yes`, `no` or `undetermined`; null without a stack.
        contains_unbacked: shared optional,
        /// Addresses of the frames outside of modules, innermost first, separated by `|`.
        other_addresses: text optional,
    }
}

/// The parts of a row that are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventParts {
    owner: bool,
    fields: bool,
    pub facts: bool,
    stack: bool,
}

impl EventParts {
    pub const ALL: EventParts = EventParts { owner: true, fields: true, facts: true, stack: true };

    /// The parts with these columns.
    #[cfg(feature = "arrow")]
    pub fn of(columns: &[usize]) -> EventParts {
        let c = Columns::of(&mut TableId::Events.empty());
        let has =
            |range: std::ops::RangeInclusive<usize>| columns.iter().any(|column| range.contains(column));
        EventParts {
            owner: has(c.pid.0..=c.process_uid.0),
            fields: has(c.fields.0..=c.fields.0),
            facts: has(c.file_path.0..=c.call_duration.0),
            stack: has(c.stack_state.0..=c.other_addresses.0),
        }
    }
}

/// The fields of events, which another thread appends to the rows.
#[derive(Debug)]
pub(crate) struct FieldJob {
    column: TextColumn,
    blocks: Blocks,
    /// Block, entry, and index of the schema, of each row.
    records: Vec<(u32, u32, Option<u32>)>,
    /// Schemas that were not in an earlier job.
    new_schemas: Vec<Arc<FieldRow>>,
}

impl FieldJob {
    /// Appends the fields to the rows of this job. `schemas` are those of the earlier jobs.
    ///
    /// # Errors
    /// None that the caller can cause.
    pub fn append(self, schemas: &mut Vec<Arc<FieldRow>>, rows: &mut Rows) -> io::Result<()> {
        schemas.extend(self.new_schemas);
        let mut times = Times::default();
        for (block, entry, schema) in self.records {
            let block = self.blocks.get(block as usize);
            let record = block.record(&block.entries()[entry as usize]);
            let schema = schema.map(|schema| &*schemas[schema as usize]);
            rows.bytes(self.column, |bytes| append_fields(bytes, &mut times, schema, &record)).transpose()?;
        }
        Ok(())
    }
}

/// Rows of events without their fields.
#[derive(Debug)]
pub(crate) struct EventChunk {
    pub rows: Rows,
    pub fields: FieldJob,
}

/// The process and thread of events.
#[derive(Clone, Copy, Debug)]
struct Owner {
    pid: Option<u32>,
    tid: Option<u32>,
    process: Option<SharedText>,
    process_uid: Option<u64>,
}

/// What is the same for all events with a schema.
#[derive(Clone, Copy, Debug)]
struct SchemaNames {
    number: u32,
    provider: Option<SharedText>,
    event: SharedText,
}

/// Collects events.
#[derive(Debug)]
pub(crate) struct Events {
    parts: EventParts,
    pending: Pending<Columns>,
    texts: SharedTexts,
    owners: OwnerCache<Owner>,
    /// By the address of the schema, which a job keeps.
    schemas: HashMap<usize, SchemaNames, FxBuildHasher>,
    /// By the address of the name, which is kept.
    services: HashMap<usize, (Arc<str>, SharedText), FxBuildHasher>,
    blocks: Blocks,
    records: Vec<(u32, u32, Option<u32>)>,
    new_schemas: Vec<Arc<FieldRow>>,
}

impl Events {
    pub fn new(trace: u64, parts: EventParts) -> Events {
        Events {
            parts,
            pending: Pending::new(TableId::Events, Columns::of, trace),
            texts: SharedTexts::default(),
            owners: OwnerCache::default(),
            schemas: HashMap::default(),
            services: HashMap::default(),
            blocks: Blocks::default(),
            records: Vec::new(),
            new_schemas: Vec::new(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.pending.is_full()
    }

    /// The events since the last call, and the texts that were added since.
    pub fn take(&mut self) -> (EventChunk, Vec<Arc<str>>) {
        let fields = FieldJob {
            column: self.pending.columns.fields,
            blocks: std::mem::take(&mut self.blocks),
            records: std::mem::take(&mut self.records),
            new_schemas: std::mem::take(&mut self.new_schemas),
        };
        (EventChunk { rows: self.pending.take(), fields }, self.texts.take_new())
    }

    /// Adds an event with its position in the trace.
    pub fn push(
        &mut self,
        view: &EventView<'_>,
        number: u64,
        processes: &mut ProcessUids,
        stacks: &mut Stacks,
    ) -> EventIds {
        let owner = self.parts.owner.then(|| self.owner(view, processes));
        let schema = self.schema(view);
        let Events { pending: Pending { rows, columns: c, .. }, texts, .. } = self;
        rows.begin();
        rows.number(c.number, number);
        rows.time(c.time, view.utc());
        rows.signed(c.ts, view.raw_time().0);
        view.processor().iter().for_each(|&cpu| rows.number(c.cpu, cpu));
        if let Some(owner) = owner {
            owner.pid.iter().for_each(|&pid| rows.number(c.pid, pid));
            owner.tid.iter().for_each(|&tid| rows.number(c.tid, tid));
            owner.process.iter().for_each(|&name| rows.shared(c.process, name));
            owner.process_uid.iter().for_each(|&uid| rows.number(c.process_uid, uid));
        }
        let named = schema.and_then(|schema| Some((schema.provider?, schema.event)));
        let (provider, event) =
            named.unwrap_or_else(|| (texts.number(&view.provider()), texts.number(&view.name())));
        rows.shared(c.provider, provider);
        rows.shared(c.event, event);
        rows.number(c.id, view.id());
        rows.number(c.opcode, view.opcode());
        rows.number(c.version, view.version());
        if self.parts.fields {
            let block = self.blocks.index(view.event().block());
            rows.will_have(view.payload().len());
            self.records.push((block as u32, view.event().index(), schema.map(|schema| schema.number)));
        }
        if self.parts.facts {
            self.facts(view, processes);
        }
        let stack_id = if self.parts.stack { self.stack(view, stacks) } else { None };
        EventIds { number, process_uid: owner.and_then(|owner| owner.process_uid), stack_id }
    }

    /// The ids of an event that gets no row.
    pub fn ids(
        &mut self,
        view: &EventView<'_>,
        number: u64,
        processes: &mut ProcessUids,
        stacks: &mut Stacks,
    ) -> EventIds {
        EventIds {
            number,
            process_uid: self.owner(view, processes).process_uid,
            stack_id: stacks.of(view).map(|stack| stack.id),
        }
    }

    /// The file, the registry key and the target of an event, and how its operation ended.
    fn facts(&mut self, view: &EventView<'_>, processes: &mut ProcessUids) {
        let Events { pending: Pending { rows, columns: c, .. }, texts, services, .. } = self;
        if let Ok(path) = view.file_path() {
            rows.text(c.file_path, &path);
        }
        if let Some(registry) = view.registry() {
            registry.path.iter().for_each(|path| rows.text(c.registry_path, path));
            registry.value.iter().for_each(|value| rows.text(c.registry_value, value));
        }
        if let Some(target) = view.target() {
            target.pid().iter().for_each(|pid| rows.number(c.target_pid, pid.0));
            target.tid().iter().for_each(|tid| rows.number(c.target_tid, tid.0));
            if let Ok(process) = target.process() {
                rows.number(c.target_process_uid, processes.of(view.trace_state(), process.process()));
            }
        }
        if let Some(create) = view.create() {
            rows.shared(c.create_requested, texts.number(create.requested.name()));
            rows.shared(c.create_completion, texts.number(create.end.name()));
            if let CreateEnd::Completed { status, result, .. } = create.end {
                rows.shared(c.create_result, texts.number(result.name()));
                rows.number(c.create_status, status);
            }
        }
        if let Some(call) = view.call() {
            if let Some(service) = view.service() {
                let known = services
                    .entry(service.as_ptr().addr())
                    .or_insert_with(|| (Arc::clone(&service), texts.number(&service)));
                rows.shared(c.service, known.1);
            }
            call.routine.iter().for_each(|routine| rows.number(c.call_routine, routine.0));
            rows.shared(c.call_completion, texts.number(call.end.name()));
            if let Some((status, nanoseconds)) = call.completed() {
                rows.number(c.call_status, status);
                rows.number(c.call_duration, nanoseconds);
            }
        }
    }

    fn stack(&mut self, view: &EventView<'_>, stacks: &mut Stacks) -> Option<u64> {
        if view.level() == Level::None {
            return None;
        }
        let Events { pending: Pending { rows, columns: c, .. }, texts, .. } = self;
        let states = view.stack_states();
        rows.shared(c.stack_state, texts.number(states.first().name()));
        let mut others = states.others().map(StackState::name).peekable();
        if others.peek().is_some() {
            rows.shared(c.stack_also, texts.number(&others.collect::<Vec<_>>().join("|")));
        }
        let stack = stacks.of(view)?;
        rows.number(c.stack_id, stack.id);
        rows.shared(c.contains_unbacked, texts.number(stack.contains_unbacked(states).name()));
        if let Some(addresses) = &stack.other_addresses {
            rows.text(c.other_addresses, addresses);
        }
        Some(stack.id)
    }

    fn owner(&mut self, view: &EventView<'_>, processes: &mut ProcessUids) -> Owner {
        let Events { owners, texts, .. } = self;
        if let Some(known) = owners.find(view) {
            return *known;
        }
        let process = view.process().ok();
        let owner = Owner {
            pid: view.pid().map(|pid| pid.0),
            tid: view.tid().map(|tid| tid.0),
            process: process.and_then(|process| process.name().ok()).map(|name| texts.number(name)),
            process_uid: process.map(|process| processes.of(view.trace_state(), process.process())),
        };
        if let Some(place) = owners.place(view) {
            place.keep(owner);
        }
        owner
    }

    fn schema(&mut self, view: &EventView<'_>) -> Option<SchemaNames> {
        let Events { schemas, texts, new_schemas, .. } = self;
        let schema: &Schema = view.schema()?;
        let address = std::ptr::from_ref(schema).addr();
        if let Some(known) = schemas.get(&address) {
            return Some(*known);
        }
        let plan = Arc::clone(view.plan()?);
        let names = SchemaNames {
            number: schemas.len() as u32,
            provider: view.provider_name().map(|name| texts.number(name)),
            event: texts.number(&schema.event_name),
        };
        new_schemas.push(Arc::new(FieldRow::new(plan)));
        schemas.insert(address, names);
        Some(names)
    }
}
