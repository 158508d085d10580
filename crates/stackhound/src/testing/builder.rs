//! Builds events from the names and values of their properties.

use stackhound_etl::record::{Descriptor, ExtendedType};
use stackhound_etl::write::{EventClass, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec};
use stackhound_schema::Error::NoSchema;
use stackhound_schema::{Identity, OwnedValue, Schema, SchemaStore, kernel};
use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

use super::Error;
use super::event::{OwnedEvent, SESSION, START};

/// An event to be built. Parts that are not set are zero, empty or unknown.
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    kind: Kind,
    /// If unset, [`START`]. A trace with several events sets it.
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
    /// Event of a manifest, TraceLogging or EventSource provider.
    Event { provider: Guid, descriptor: Descriptor, property: u16, activity: Guid },
    /// Event of a class.
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

    /// An event of a classic provider or a kernel class, identified by class and opcode. Kernel
    /// events become records with a hook id, as the kernel writes them.
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

    /// The level; 1 is critical, 5 verbose. Kernel events have none.
    pub fn level(mut self, level: u8) -> RecordBuilder {
        match &mut self.kind {
            Kind::Event { descriptor, .. } => descriptor.level = level,
            Kind::Classic(class) => class.level = level,
        }
        self
    }

    /// The keywords. Classic events have none.
    pub fn keyword(self, keyword: u64) -> RecordBuilder {
        self.described(|descriptor| descriptor.keyword = keyword)
    }

    /// The task. Classic events have none.
    pub fn task(self, task: u16) -> RecordBuilder {
        self.described(|descriptor| descriptor.task = task)
    }

    /// The channel. Classic events have none.
    pub fn channel(self, channel: u8) -> RecordBuilder {
        self.described(|descriptor| descriptor.channel = channel)
    }

    /// The `EventProperty` bits of an `EVENT_HEADER`, which affect decoding. Classic events have
    /// none.
    pub fn event_property(mut self, bits: u16) -> RecordBuilder {
        if let Kind::Event { property, .. } = &mut self.kind {
            *property = bits;
        }
        self
    }

    /// The activity to which the event belongs. Classic events have none.
    pub fn activity(mut self, id: Guid) -> RecordBuilder {
        if let Kind::Event { activity, .. } = &mut self.kind {
            *activity = id;
        }
        self
    }

    /// The process that logs the event.
    pub fn pid(self, pid: u32) -> RecordBuilder {
        RecordBuilder { pid: Some(Pid(pid)), ..self }
    }

    /// The thread that logs the event.
    pub fn tid(self, tid: u32) -> RecordBuilder {
        RecordBuilder { tid: Some(Tid(tid)), ..self }
    }

    /// The time of the event. The default is the beginning of 2024.
    pub fn at(self, time: FileTime) -> RecordBuilder {
        RecordBuilder { time: Some(time), ..self }
    }

    /// The processor, less than 64.
    pub fn processor(self, processor: u16) -> RecordBuilder {
        RecordBuilder { processor, ..self }
    }

    /// The pointer size of the logging process.
    pub fn pointer_size(self, pointer_size: PointerSize) -> RecordBuilder {
        RecordBuilder { pointer_size, ..self }
    }

    fn item(mut self, item: Item) -> RecordBuilder {
        self.items.push(item);
        self
    }

    /// The related activity.
    pub fn related(self, activity: Guid) -> RecordBuilder {
        self.item(Item::Related(activity))
    }

    /// The key unique to the process.
    pub fn process_start_key(self, key: u64) -> RecordBuilder {
        self.item(Item::ProcessStartKey(key))
    }

    /// The container id, which is stored as text.
    pub fn container_id(self, container: Guid) -> RecordBuilder {
        self.item(Item::ContainerId(container))
    }

    /// The stack, innermost return address first. `match_id` is 0 unless the user stack is in a
    /// separate event. Addresses have the size of the 64-bit system, also in events of 32-bit
    /// processes. [`TraceBuilder`](super::TraceBuilder) stores stacks in all forms.
    pub fn stack(self, match_id: u64, frames: impl IntoIterator<Item = Address>) -> RecordBuilder {
        self.item(Item::Stack { match_id, frames: frames.into_iter().collect() })
    }

    /// Any other extended data item, such as TraceLogging metadata.
    pub fn extended(self, item_type: ExtendedType, data: impl Into<Vec<u8>>) -> RecordBuilder {
        self.item(Item::Other { item_type, data: data.into() })
    }

    /// Sets the value of a property.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<OwnedValue>) -> RecordBuilder {
        self.values.push((name.into(), value.into()));
        self
    }

    /// Omits the terminating null of the last text, as some providers do.
    pub fn trim_last_nul(self) -> RecordBuilder {
        RecordBuilder { trim_last_nul: true, ..self }
    }

    /// The values in the order in which they were set.
    pub fn values(&self) -> &[(String, OwnedValue)] {
        &self.values
    }

    /// Builds the event. Every property needs a value of its type.
    ///
    /// # Errors
    /// [`Error::Value`], as [`Schema::pack`] returns it, or if no schema is known for the event.
    pub fn pack(&self, store: &mut SchemaStore) -> Result<OwnedEvent, Error> {
        self.packed(store, Schema::pack)
    }

    /// Builds the event, with zeros for missing values.
    ///
    /// # Errors
    /// As [`pack`](RecordBuilder::pack), except for missing values.
    pub fn pack_incomplete(&self, store: &mut SchemaStore) -> Result<OwnedEvent, Error> {
        self.packed(store, Schema::pack_incomplete)
    }

    /// Builds the event with the given payload; values are ignored.
    ///
    /// # Errors
    /// [`Error::Write`] if the payload does not fit into a record; [`Error::NoItems`] for a classic
    /// event with extended data items.
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
                // The kernel uses a header without process and thread for events without these ids.
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
        // The schema depends on the header and the items.
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
        // If layouts of a version depend on the payload, the default layout is used.
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
