//! Makes events by the names of their properties.

use stackhound_etl::record::{Descriptor, ExtendedType};
use stackhound_etl::write::{EventClass, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec};
use stackhound_schema::Error::NoSchema;
use stackhound_schema::{Identity, OwnedValue, Schema, SchemaStore, kernel};
use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

use super::Error;
use super::event::{OwnedEvent, SESSION, START};

/// An event to be made. What is not said is zero, empty or unknown.
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    kind: Kind,
    /// If unset, [`START`]; a trace with several events sets it.
    pub(super) time: Option<FileTime>,
    processor: u16,
    pointer_size: PointerSize,
    pid: Option<Pid>,
    tid: Option<Tid>,
    items: Vec<Item>,
    values: Vec<(String, OwnedValue)>,
    trim_last_nul: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Of a manifest, TraceLogging or EventSource provider.
    Event { provider: Guid, descriptor: Descriptor, property: u16, activity: Guid },
    /// Of a class.
    Classic(EventClass),
}

#[derive(Clone, Debug)]
enum Item {
    Related(Guid),
    ProcessStartKey(u64),
    ContainerId(Guid),
    Stack { match_id: u64, frames: Vec<Address> },
    Other { item_type: ExtendedType, data: Vec<u8> },
}

impl RecordBuilder {
    fn of(kind: Kind) -> RecordBuilder {
        RecordBuilder {
            kind,
            time: None,
            processor: 0,
            pointer_size: PointerSize::Eight,
            pid: None,
            tid: None,
            items: Vec::new(),
            values: Vec::new(),
            trim_last_nul: false,
        }
    }

    /// An event of a manifest or TraceLogging provider.
    pub fn new(provider: Guid, id: u16, version: u8) -> RecordBuilder {
        let descriptor = Descriptor { id, version, channel: 0, level: 0, opcode: 0, task: 0, keyword: 0 };
        RecordBuilder::of(Kind::Event { provider, descriptor, property: 0, activity: Guid::ZERO })
    }

    /// An event of a classic provider or a class of the kernel, as consumers know it: by class and opcode. Events of the
    /// kernel become what the kernel writes, records with a hook.
    pub fn classic(class: Guid, opcode: u8, version: u8) -> RecordBuilder {
        let version = version.into();
        RecordBuilder::of(Kind::Classic(EventClass { guid: class, opcode, level: 0, version }))
    }

    fn described(mut self, change: impl FnOnce(&mut Descriptor)) -> RecordBuilder {
        if let Kind::Event { descriptor, .. } = &mut self.kind {
            change(descriptor);
        }
        self
    }

    /// The opcode.
    pub fn opcode(mut self, opcode: u8) -> RecordBuilder {
        match &mut self.kind {
            Kind::Event { descriptor, .. } => descriptor.opcode = opcode,
            Kind::Classic(class) => class.opcode = opcode,
        }
        self
    }

    /// The level; 1 is critical, 5 verbose. The kernel's events have none.
    pub fn level(mut self, level: u8) -> RecordBuilder {
        match &mut self.kind {
            Kind::Event { descriptor, .. } => descriptor.level = level,
            Kind::Classic(class) => class.level = level,
        }
        self
    }

    /// The keywords; classic events have none.
    pub fn keyword(self, keyword: u64) -> RecordBuilder {
        self.described(|descriptor| descriptor.keyword = keyword)
    }

    /// The task; classic events have none.
    pub fn task(self, task: u16) -> RecordBuilder {
        self.described(|descriptor| descriptor.task = task)
    }

    /// The channel; classic events have none.
    pub fn channel(self, channel: u8) -> RecordBuilder {
        self.described(|descriptor| descriptor.channel = channel)
    }

    /// How the event wants to be decoded (`EventProperty` of an `EVENT_HEADER`); classic events do not say.
    pub fn event_property(mut self, bits: u16) -> RecordBuilder {
        if let Kind::Event { property, .. } = &mut self.kind {
            *property = bits;
        }
        self
    }

    /// The activity that it belongs to; classic events have none.
    pub fn activity(mut self, id: Guid) -> RecordBuilder {
        if let Kind::Event { activity, .. } = &mut self.kind {
            *activity = id;
        }
        self
    }

    /// The process that logs it.
    pub fn pid(self, pid: u32) -> RecordBuilder {
        RecordBuilder { pid: Some(Pid(pid)), ..self }
    }

    /// The thread that logs it.
    pub fn tid(self, tid: u32) -> RecordBuilder {
        RecordBuilder { tid: Some(Tid(tid)), ..self }
    }

    /// When it is logged. By default, at the beginning of 2024.
    pub fn at(self, time: FileTime) -> RecordBuilder {
        RecordBuilder { time: Some(time), ..self }
    }

    /// The processor, below 64.
    pub fn processor(self, processor: u16) -> RecordBuilder {
        RecordBuilder { processor, ..self }
    }

    /// The pointer size of who logs it.
    pub fn pointer_size(self, pointer_size: PointerSize) -> RecordBuilder {
        RecordBuilder { pointer_size, ..self }
    }

    fn item(mut self, item: Item) -> RecordBuilder {
        self.items.push(item);
        self
    }

    /// The activity that this one is related to.
    pub fn related(self, activity: Guid) -> RecordBuilder {
        self.item(Item::Related(activity))
    }

    /// A number unique to the process.
    pub fn process_start_key(self, key: u64) -> RecordBuilder {
        self.item(Item::ProcessStartKey(key))
    }

    /// The container, which is stored as text.
    pub fn container_id(self, container: Guid) -> RecordBuilder {
        self.item(Item::ContainerId(container))
    }

    /// The stack, innermost return address first. `match_id` is 0 unless the user stack is in an event of its own. Addresses
    /// have the width of the 64-bit system, in events of 32-bit processes too. [`TraceBuilder`](super::TraceBuilder) stores
    /// stacks in all forms.
    pub fn stack(self, match_id: u64, frames: impl IntoIterator<Item = Address>) -> RecordBuilder {
        self.item(Item::Stack { match_id, frames: frames.into_iter().collect() })
    }

    /// Any other extended item: TraceLogging metadata, for example.
    pub fn extended(self, item_type: ExtendedType, data: impl Into<Vec<u8>>) -> RecordBuilder {
        self.item(Item::Other { item_type, data: data.into() })
    }

    /// The value of a property.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<OwnedValue>) -> RecordBuilder {
        self.values.push((name.into(), value.into()));
        self
    }

    /// Leaves out the end of the last text, as some providers do.
    pub fn trim_last_nul(self) -> RecordBuilder {
        RecordBuilder { trim_last_nul: true, ..self }
    }

    /// The values given up to now, in their order.
    pub fn values(&self) -> &[(String, OwnedValue)] {
        &self.values
    }

    /// Makes the event. Every property needs a value of its type.
    ///
    /// # Errors
    /// [`Error::Value`], as [`Schema::pack`] gives it, and if nobody describes the event.
    pub fn pack(&self, store: &mut SchemaStore) -> Result<OwnedEvent, Error> {
        self.packed(store, Schema::pack)
    }

    /// Makes the event, with zeros for what is not given.
    ///
    /// # Errors
    /// As [`pack`](RecordBuilder::pack), but for missing values.
    pub fn pack_incomplete(&self, store: &mut SchemaStore) -> Result<OwnedEvent, Error> {
        self.packed(store, Schema::pack_incomplete)
    }

    /// Makes the event with a payload that is at hand; values are left aside.
    ///
    /// # Errors
    /// If there is no room for it in a record.
    pub fn with_payload(&self, payload: &[u8]) -> Result<OwnedEvent, Error> {
        let mut items = Vec::with_capacity(self.items.len());
        for item in &self.items {
            items.push(match item {
                Item::Related(guid) => ItemSpec::RelatedActivityId(*guid),
                Item::ProcessStartKey(key) => ItemSpec::ProcessStartKey(*key),
                Item::ContainerId(guid) => ItemSpec::ContainerId(*guid),
                Item::Stack { match_id, frames } => {
                    ItemSpec::StackTrace { pointer_size: SESSION.pointer_size, match_id: *match_id, frames }
                }
                Item::Other { item_type, data } => ItemSpec::Other { item_type: *item_type, data },
            });
        }
        let record = RecordSpec {
            time: RawTime(self.time.unwrap_or(START).0),
            pointer_size: self.pointer_size,
            header: self.header(&items)?,
            payload: Payload::Bytes(payload),
        };
        OwnedEvent::made(self.processor, &record)
    }

    fn header<'i>(&self, items: &'i [ItemSpec<'i>]) -> Result<HeaderSpec<'i>, Error> {
        let issuer = Issuer { pid: self.pid, tid: self.tid, ..Issuer::UNKNOWN };
        Ok(match self.kind {
            Kind::Event { provider, descriptor, property, activity } => {
                HeaderSpec::Event { provider, descriptor, property, issuer, activity, items }
            }
            Kind::Classic(_) if !items.is_empty() => return Err(Error::NoItems),
            Kind::Classic(class) => match kernel::hook_id_of(class.guid, class.opcode) {
                // The kernel writes events without ids with a header that has no place for them.
                Some(hook_id) if (self.pid, self.tid) == (None, None) => {
                    let version = class.version as u8;
                    HeaderSpec::PerfInfo { hook_id, version, pebs_index: None, counters: &[] }
                }
                Some(hook_id) => HeaderSpec::System { hook_id, version: class.version as u8, issuer },
                None => HeaderSpec::Full { class, issuer },
            },
        })
    }

    fn packed(
        &self,
        store: &mut SchemaStore,
        pack: impl Fn(&Schema, &[(String, OwnedValue)], PointerSize) -> Result<Vec<u8>, stackhound_schema::Error>,
    ) -> Result<OwnedEvent, Error> {
        // What describes the event, its header and items decide.
        let empty = self.with_payload(&[])?;
        let record = empty.event().record();
        let make = |schema: &Schema| {
            let mut payload = pack(schema, &self.values, self.pointer_size)?;
            if self.trim_last_nul {
                schema.trim_last_nul(&mut payload);
            }
            Ok::<_, Error>(payload)
        };
        let identity = Identity::of(&record).ok_or(NoSchema)?;
        // Where layouts of a version differ by the payload, the one for when nothing is known of it.
        let payload = match identity {
            Identity::Kernel { hook_id, version } => {
                make(kernel::lookup(hook_id, version, self.pointer_size).ok_or(NoSchema)?)
            }
            _ => {
                let plan = store.lookup(&identity, &[], self.pointer_size).ok_or(NoSchema)?;
                make(plan.schema())
            }
        }?;
        self.with_payload(&payload)
    }
}
