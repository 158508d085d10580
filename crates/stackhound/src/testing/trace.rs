//! Builds the events of a small system: processes with their modules, and events with their stacks.

use stackhound_etl::write::RecordSpec;
use stackhound_etl::write::stack::{self, KeyDefinition, StackMode, Trigger};
use stackhound_schema::Error::NoSchema;
use stackhound_schema::SchemaStore;
use stackhound_schema::event_id::kernel_event_tracing;
use stackhound_schema::kernel::class_guid;
use stackhound_schema::provider_guid::KERNEL_EVENT_TRACING;
use stackhound_types::{Address, FileTime, RawTime};

use super::event::{OwnedEvent, SESSION, START};
use super::{Error, RecordBuilder};

/// Interval between events without a time: 1 ms.
const STEP: i64 = 10_000;
/// Types and versions of `Process/DCStart` and `Image/DCStart` in Windows 10.
const PROCESS_DC_START: (u8, u8) = (3, 4);
const IMAGE_DC_START: (u8, u8) = (3, 3);
/// The event of Microsoft-Windows-Kernel-EventTracing with a user stack.
const USER_STACK: u16 = kernel_event_tracing::STACK_TRACE_USER_MODE_STACK_TRACE;

/// The form in which the trace stores the stack of an event: its kernel stack, its user stack, or
/// both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackForm {
    /// `StackWalk/Stack` records after the event, one for the kernel stack and one for the user
    /// stack, with their frames.
    Walk,
    /// `StackWalk/KeyKernel` and `StackWalk/KeyUser` records after the event, followed by the
    /// definitions of the keys (`StackWalk/KeyDelete`). Each key is used once.
    Keys,
    /// One extended data item of the event. Not available for kernel events and classic events.
    Extended,
    /// The kernel stack in an extended data item of the event, and the user stack in that of a
    /// later event (event 18 of Microsoft-Windows-Kernel-EventTracing), with the same match id.
    /// Without a kernel stack, the same as [`Extended`](StackForm::Extended).
    ExtendedPair,
}

/// A stack to be written.
#[derive(Clone, Debug)]
struct Stack {
    form: StackForm,
    kernel: Vec<Address>,
    user: Vec<Address>,
}

/// Builds the events of a trace: the rundown of the processes and their modules, events, and stack
/// records.
///
/// An event without a time is 1 ms later than the event that was added before it.
#[derive(Clone, Debug, Default)]
pub struct TraceBuilder {
    schemas: SchemaStore,
    rundown: Vec<RecordBuilder>,
    events: Vec<(RecordBuilder, Option<Stack>)>,
}

impl TraceBuilder {
    /// A trace without processes and events.
    pub fn new() -> TraceBuilder {
        TraceBuilder::default()
    }

    /// Sets schemas of providers that are not built in.
    pub fn schemas(self, schemas: SchemaStore) -> TraceBuilder {
        TraceBuilder { schemas, ..self }
    }

    /// Adds a process that is running when the trace starts, with all of its modules: base address,
    /// size in bytes, and NT path, such as `\Device\HarddiskVolume3\Windows\System32
    /// tdll.dll`. Modules of the kernel are those of process 0. An address outside the modules is
    /// unbacked; without any module, its backing is unknown.
    pub fn process(mut self, pid: u32, image_name: &str, modules: &[(u64, u64, &str)]) -> TraceBuilder {
        let (opcode, version) = PROCESS_DC_START;
        let process = RecordBuilder::classic(class_guid::PROCESS, opcode, version);
        self.rundown.push(process.with("ProcessId", pid).with("ImageFileName", image_name));
        let (opcode, version) = IMAGE_DC_START;
        self.rundown.extend(modules.iter().map(|&(base, size, path)| {
            let image = RecordBuilder::classic(class_guid::IMAGE, opcode, version).with("ProcessId", pid);
            image.with("ImageBase", base).with("ImageSize", size).with("FileName", path)
        }));
        self
    }

    /// Adds an event without a stack. Values that are not given are zero.
    pub fn event(mut self, event: RecordBuilder) -> TraceBuilder {
        self.events.push((event, None));
        self
    }

    /// Adds an event with its stack: the addresses of the kernel stack and of the user stack,
    /// innermost first. A stack without addresses is not written. The event must state its process
    /// and its thread.
    pub fn event_with_stack(
        mut self,
        event: RecordBuilder,
        form: StackForm,
        kernel: &[u64],
        user: &[u64],
    ) -> TraceBuilder {
        let addresses = |stack: &[u64]| stack.iter().copied().map(Address).collect();
        self.events.push((event, Some(Stack { form, kernel: addresses(kernel), user: addresses(user) })));
        self
    }

    /// Builds the events, for [`replay`](super::replay), [`incoming`](super::incoming),
    /// [`write_etl`](super::write_etl), [`select`](super::select) or [`evaluate`](super::evaluate).
    /// Events and their stack records are in the order in which they were added.
    ///
    /// # Errors
    /// As [`RecordBuilder::pack_incomplete`], but an event without values needs no schema.
    /// [`Error::NoThread`], [`Error::NotKernel`] and [`Error::NotUser`] for stacks.
    pub fn build(mut self) -> Result<Vec<OwnedEvent>, Error> {
        // The rundown is at the start of the session.
        let mut next = FileTime(START.0 + STEP);
        for (event, _) in &mut self.events {
            next = FileTime(event.time.get_or_insert(next).0 + STEP);
        }
        let first = self.events.iter().filter_map(|(event, _)| event.time).min().unwrap_or(next);
        let mut built = Vec::new();
        for event in self.rundown {
            built.push(event.at(FileTime(first.0 - STEP)).pack_incomplete(&mut self.schemas)?);
        }
        for ((event, stack), number) in self.events.into_iter().zip(1..) {
            match stack {
                Some(stack) => stack.build(event, number, &mut self.schemas, &mut built)?,
                None => built.push(pack(&event, &mut self.schemas)?),
            }
        }
        Ok(built)
    }
}

/// An event without values and without a schema has an empty payload.
fn pack(event: &RecordBuilder, schemas: &mut SchemaStore) -> Result<OwnedEvent, Error> {
    match event.pack_incomplete(schemas) {
        Err(Error::Value(NoSchema)) if event.values().is_empty() => event.with_payload(&[]),
        packed => packed,
    }
}

impl Stack {
    /// Adds the event and all records of its stack. `number` must be unique to the event.
    fn build(
        self,
        event: RecordBuilder,
        number: u64,
        schemas: &mut SchemaStore,
        built: &mut Vec<OwnedEvent>,
    ) -> Result<(), Error> {
        let Stack { form, kernel, user } = self;
        let system = SESSION.pointer_size;
        if let Some(address) = kernel.iter().find(|address| !address.is_kernel(system)) {
            return Err(Error::NotKernel(*address));
        }
        if let Some(address) = user.iter().find(|address| address.is_kernel(system)) {
            return Err(Error::NotUser(*address));
        }
        let is_pair = form == StackForm::ExtendedPair && !kernel.is_empty();
        let event = match form {
            StackForm::Walk | StackForm::Keys => event,
            _ if is_pair => event.stack(number, kernel.iter().copied()),
            _ if kernel.is_empty() && user.is_empty() => event,
            _ => event.stack(0, kernel.iter().chain(&user).copied()),
        };
        let event = pack(&event, schemas)?;
        let header = event.event();
        let (Some(pid), Some(tid)) = (header.header_pid(), header.header_tid()) else {
            return Err(Error::NoThread);
        };
        let (time, processor) = (header.raw_time(), header.processor().unwrap_or_default());
        built.push(event.clone());

        let trigger = Trigger { time, pid, tid };
        let stacks = [(StackMode::Kernel, &kernel), (StackMode::User, &user)];
        let stacks = || stacks.into_iter().filter(|(_, frames)| !frames.is_empty());
        let records: Vec<RecordSpec<'_>> = match form {
            StackForm::Walk => {
                stacks().map(|(_, frames)| stack::frames(time, system, trigger, frames)).collect()
            }
            StackForm::Keys => {
                let keys = stacks().map(|(mode, _)| stack::key(time, system, trigger, mode, number));
                let definition =
                    |frames| stack::definition(time, system, KeyDefinition::Delete, number, frames);
                keys.chain(stacks().map(|(_, frames)| definition(frames))).collect()
            }
            StackForm::Extended | StackForm::ExtendedPair => Vec::new(),
        };
        for (record, ticks) in records.into_iter().zip(1..) {
            let record = RecordSpec { time: RawTime(time.0 + ticks), ..record };
            built.push(OwnedEvent::made(processor, &record)?);
        }
        if is_pair && !user.is_empty() {
            let pair = RecordBuilder::new(KERNEL_EVENT_TRACING, USER_STACK, 0).pid(pid.0).tid(tid.0);
            let pair = pair.at(FileTime(time.0 + 1)).processor(processor);
            built.push(pair.stack(number, user).with_payload(&[])?);
        }
        Ok(())
    }
}
