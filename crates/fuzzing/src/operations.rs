//! Traces made of arbitrary operations: any records that a session can log, in any order, with
//! contradictions.

use std::io::Cursor;
use std::num::NonZeroU32;

use arbitrary::Arbitrary;
use stackhound_etl::record::{Descriptor, ExtendedType, MessageOptions};
use stackhound_etl::write::stack::{self, KeyDefinition, StackMode, Trigger};
use stackhound_etl::write::{
    EtlWriter, EventClass, Form, HeaderSpec, Issuer, ItemSpec, MessageSpec, Payload, RecordSpec, Session,
};
use stackhound_etl::{ClockKind, LogFileMode};
use stackhound_types::{Address, Guid, Pid, PointerSize, RawTime, Tid};

use crate::correlation::{KERNEL_EVENT_TRACING, USER_STACK};

/// The description of a whole trace file.
#[derive(Arbitrary, Debug)]
pub(crate) struct Plan {
    processors: u8,
    is_32_bit: bool,
    /// The only clock that can run backwards.
    system_clock: bool,
    one_stream: bool,
    form: PlanForm,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum PlanForm {
    Live,
    Windows7,
    Merged,
    Compressed,
    Circular(u8),
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Record { step: Step, processor: u8, kind: Kind },
    Flush(u8),
    LoseBuffer(u8),
    LoseEvents,
}

/// The time since the previous record.
#[derive(Arbitrary, Debug)]
enum Step {
    None,
    Forward(u8),
    /// Can be negative, if the clock allows it.
    Any(i8),
    To(i64),
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Event {
        hook_id: HookId,
        compact: bool,
        thread: Thread,
    },
    /// A kernel event without process and thread in its header.
    Bare(HookId),
    Sample {
        thread: Thread,
        address: u8,
    },
    Provider {
        thread: Thread,
        items: Vec<Item>,
    },
    UserStack {
        thread: Thread,
        items: Vec<Item>,
    },
    Classic(Thread),
    Message {
        options: u8,
        thread: Thread,
    },
    Error,
    Stack {
        trigger: TriggerSpec,
        frames: Vec<u8>,
    },
    Key {
        trigger: TriggerSpec,
        user: bool,
        key: u8,
    },
    Definition {
        reason: u8,
        key: u8,
        frames: Vec<u8>,
    },
}

#[derive(Arbitrary, Debug)]
enum HookId {
    SystemCall,
    ContextSwitch,
    DiskRead,
    ImageLoad,
    /// An event that cannot trigger a stack.
    ProcessRundown,
    Any(u16),
}

/// Few ids, so that events share threads; process 4 has no user mode.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Thread {
    Unknown,
    Kernel(bool),
    User(bool, bool),
}

/// The event that triggered the stack of a record.
#[derive(Arbitrary, Debug)]
struct TriggerSpec {
    time: TriggerTime,
    thread: Thread,
}

#[derive(Arbitrary, Debug)]
enum TriggerTime {
    /// The time of a previous record, counted backwards.
    Back(u8),
    At(i64),
}

#[derive(Arbitrary, Debug)]
enum Item {
    Stack { match_id: MatchId, frames: Vec<u8> },
    Key { match_id: MatchId, key: u8 },
    Other(u8),
}

/// An item whose numbers were replaced by addresses.
enum Content {
    Stack(u64, Vec<Address>),
    Key(u64, u64),
    Other(u8),
}

#[derive(Arbitrary, Debug)]
enum MatchId {
    None,
    Small(u8),
    Huge(u64),
}

/// A file, and the number of its records, including the logfile header. `None` if records were
/// lost.
pub(crate) struct Written {
    pub file: Vec<u8>,
    pub records: Option<u64>,
}

impl Plan {
    /// Writes the file, without the records that the writer refuses.
    pub fn write(&self) -> Written {
        let processors = u16::from(self.processors % 4) + 1;
        let mut session = Session { processors, buffer_size: 1024, ..Session::default() };
        if self.is_32_bit {
            session.pointer_size = PointerSize::Four;
        }
        if self.system_clock {
            session.clock = ClockKind::SystemTime;
            session.start = RawTime(session.start_time.0);
        }
        if self.one_stream {
            session.mode = LogFileMode(LogFileMode::NO_PER_PROCESSOR_BUFFERING.0 | 1);
        }
        match self.form {
            PlanForm::Live => {}
            PlanForm::Windows7 => {
                session.form = Form::Windows7;
                session.windows_version = (6, 1);
            }
            PlanForm::Merged => session.form = Form::Merged,
            PlanForm::Compressed => session.compressed = true,
            PlanForm::Circular(buffers) => session.circular = NonZeroU32::new(buffers.into()),
        }
        let whole = session.circular.is_none();
        let mut writing = Writing {
            processors,
            pointer_size: session.pointer_size,
            times: vec![session.start],
            whole,
            writer: EtlWriter::new(session, Cursor::new(Vec::new())).expect("a valid session"),
        };
        self.operations.iter().for_each(|operation| writing.operation(operation));
        let whole = writing.whole;
        let (file, totals) = writing.writer.finish().expect("writing to memory succeeds");
        Written { file: file.into_inner(), records: whole.then_some(1 + totals.records) }
    }
}

struct Writing {
    writer: EtlWriter<Cursor<Vec<u8>>>,
    processors: u16,
    pointer_size: PointerSize,
    /// Times of all records so far.
    times: Vec<RawTime>,
    /// Whether all records will be in the file.
    whole: bool,
}

impl Writing {
    fn operation(&mut self, operation: &Operation) {
        let on = |processor: u8| u16::from(processor) % self.processors;
        match operation {
            Operation::Record { step, processor, kind } => {
                let last = self.times[self.times.len() - 1].0;
                let time = RawTime(match step {
                    Step::None => last,
                    Step::Forward(ticks) => last.saturating_add((*ticks).into()),
                    Step::Any(ticks) => last.saturating_add((*ticks).into()),
                    Step::To(time) => *time,
                });
                if self.record(time, on(*processor), kind) {
                    self.times.push(time);
                }
            }
            Operation::Flush(processor) => {
                self.writer.flush(on(*processor)).expect("writing to memory succeeds");
            }
            Operation::LoseBuffer(processor) => {
                self.whole = false;
                self.writer.lose_buffer(on(*processor)).expect("writing to memory succeeds");
            }
            Operation::LoseEvents => self.writer.lose_events(1),
        }
    }

    /// Writes a record. Returns whether the writer accepted it.
    fn record(&mut self, time: RawTime, processor: u16, kind: &Kind) -> bool {
        let pointer_size = self.pointer_size;
        let perf_info =
            |hook_id| HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index: None, counters: &[] };
        let (frames, contents, items): (Vec<Address>, Vec<Content>, Vec<ItemSpec<'_>>);
        let mut payload = Vec::new();
        let header = match kind {
            Kind::Event { hook_id, compact: false, thread } => {
                HeaderSpec::System { hook_id: hook_id.number(), version: 2, issuer: thread.issuer() }
            }
            Kind::Event { hook_id, compact: true, thread } => {
                HeaderSpec::Compact { hook_id: hook_id.number(), version: 2, issuer: thread.issuer() }
            }
            Kind::Bare(hook_id) => perf_info(hook_id.number()),
            Kind::Sample { thread, address } => {
                let pointer = self.address(*address).0.to_le_bytes();
                payload.extend(&pointer[..pointer_size.bytes()]);
                payload.extend(thread.tid().0.to_le_bytes());
                payload.extend([0; 4]);
                perf_info(0x0f2e)
            }
            Kind::Provider { thread, items: specs } | Kind::UserStack { thread, items: specs } => {
                let is_user_stack = matches!(kind, Kind::UserStack { .. });
                contents = specs.iter().map(|item| self.content(item)).collect();
                items = contents.iter().map(|content| content.spec(pointer_size)).collect();
                HeaderSpec::Event {
                    provider: if is_user_stack { KERNEL_EVENT_TRACING } else { Guid([7; 16]) },
                    descriptor: Descriptor {
                        id: if is_user_stack { USER_STACK } else { 1 },
                        version: 0,
                        channel: 0,
                        level: 0,
                        opcode: 0,
                        task: 0,
                        keyword: 0,
                    },
                    property: 0,
                    issuer: thread.issuer(),
                    activity: Guid::ZERO,
                    items: &items,
                }
            }
            Kind::Classic(thread) => {
                let class = EventClass { guid: Guid([9; 16]), opcode: 1, level: 0, version: 0 };
                HeaderSpec::Full { class, issuer: thread.issuer() }
            }
            Kind::Message { options, thread } => HeaderSpec::Message(MessageSpec {
                number: 1,
                options: MessageOptions((*options).into()),
                sequence: 1,
                guid: Guid([3; 16]),
                component: 1,
                issuer: thread.issuer(),
            }),
            Kind::Error => HeaderSpec::Error,
            Kind::Stack { trigger, frames: numbers } => {
                frames = self.addresses(numbers);
                let record = stack::frames(time, pointer_size, self.trigger(trigger), &frames);
                return self.writer.write(processor, &record).is_ok();
            }
            Kind::Key { trigger, user, key } => {
                let mode = if *user { StackMode::User } else { StackMode::Kernel };
                let record = stack::key(time, pointer_size, self.trigger(trigger), mode, u64::from(*key % 4));
                return self.writer.write(processor, &record).is_ok();
            }
            Kind::Definition { reason, key, frames: numbers } => {
                let reasons = [KeyDefinition::Create, KeyDefinition::Delete, KeyDefinition::Rundown];
                let reason = reasons[usize::from(*reason) % reasons.len()];
                frames = self.addresses(numbers);
                let record = stack::definition(time, pointer_size, reason, u64::from(*key % 4), &frames);
                return self.writer.write(processor, &record).is_ok();
            }
        };
        let record = RecordSpec { time, pointer_size, header, payload: Payload::Bytes(&payload) };
        self.writer.write(processor, &record).is_ok()
    }

    fn content(&self, item: &Item) -> Content {
        match item {
            Item::Stack { match_id, frames } => Content::Stack(match_id.number(), self.addresses(frames)),
            Item::Key { match_id, key } => Content::Key(match_id.number(), u64::from(*key % 4)),
            Item::Other(item_type) => Content::Other(*item_type),
        }
    }

    /// Odd numbers are kernel addresses.
    fn address(&self, number: u8) -> Address {
        let kernel = match self.pointer_size {
            PointerSize::Four => 0x8000_0000,
            PointerSize::Eight => 0xffff_8000_0000_0000,
        };
        Address(u64::from(number) + if number % 2 == 1 { kernel } else { 0 })
    }

    fn addresses(&self, numbers: &[u8]) -> Vec<Address> {
        numbers.iter().map(|&number| self.address(number)).collect()
    }

    fn trigger(&self, spec: &TriggerSpec) -> Trigger {
        let time = match spec.time {
            TriggerTime::Back(back) => self.times[self.times.len().saturating_sub(1 + usize::from(back))],
            TriggerTime::At(time) => RawTime(time),
        };
        Trigger { time, pid: spec.thread.pid(), tid: spec.thread.tid() }
    }
}

impl MatchId {
    fn number(&self) -> u64 {
        match *self {
            MatchId::None => 0,
            MatchId::Small(number) => number.into(),
            MatchId::Huge(number) => number,
        }
    }
}

impl Content {
    fn spec(&self, pointer_size: PointerSize) -> ItemSpec<'_> {
        match *self {
            Content::Stack(match_id, ref frames) => ItemSpec::StackTrace { pointer_size, match_id, frames },
            Content::Key(match_id, key) => ItemSpec::StackKey { pointer_size, match_id, key },
            Content::Other(number) => {
                ItemSpec::Other { item_type: ExtendedType(number.into()), data: &[1; 9] }
            }
        }
    }
}

impl HookId {
    fn number(&self) -> u16 {
        match *self {
            HookId::SystemCall => 0x0f33,
            HookId::ContextSwitch => 0x0524,
            HookId::DiskRead => 0x010c,
            HookId::ImageLoad => 0x140a,
            HookId::ProcessRundown => 0x0303,
            HookId::Any(number) => number,
        }
    }
}

impl Thread {
    fn tid(self) -> Tid {
        match self {
            Thread::Unknown => Tid(u32::MAX),
            Thread::Kernel(other) => Tid(8 + u32::from(other)),
            Thread::User(_, other) => Tid(16 + u32::from(other)),
        }
    }

    fn pid(self) -> Pid {
        match self {
            Thread::Unknown => Pid(u32::MAX),
            Thread::Kernel(_) => Pid::SYSTEM,
            Thread::User(other, _) => Pid(20 + u32::from(other)),
        }
    }

    fn issuer(self) -> Issuer {
        match self {
            Thread::Unknown => Issuer::UNKNOWN,
            _ => Issuer::new(self.pid(), self.tid()),
        }
    }
}
