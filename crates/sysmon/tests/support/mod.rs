//! A minimal writer of event logs: chunks with one template for each kind of event.

use std::collections::HashMap;

const CHUNK: usize = 1 << 16;

/// The value of a field, in the types that Sysmon uses.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    Text(&'a str),
    Number(u32),
    /// Shown as `0x…`.
    Hex(u32),
}

/// An event of a provider.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    pub provider: &'a str,
    pub id: u16,
    pub computer: &'a str,
    pub data: Vec<(&'a str, Value<'a>)>,
}

/// Writes a log with at most `per_chunk` events in each chunk.
pub fn log(events: &[Event<'_>], per_chunk: usize) -> Vec<u8> {
    let mut file = header(events.chunks(per_chunk).len() as u16, events.len() as u64);
    let mut number = 1;
    for events in events.chunks(per_chunk) {
        file.extend(Chunk::new(number, events));
        number += events.len() as u64;
    }
    file
}

fn header(chunks: u16, events: u64) -> Vec<u8> {
    let mut header = b"ElfFile\0".to_vec();
    for number in [0, u64::from(chunks.max(1)) - 1, events + 1] {
        header.extend(number.to_le_bytes());
    }
    header.extend(128_u32.to_le_bytes());
    for number in [1, 3, 4096, chunks] {
        header.extend(number.to_le_bytes());
    }
    header.resize(120, 0);
    let sum = crc32fast::hash(&header);
    header.extend(0_u32.to_le_bytes());
    header.extend(sum.to_le_bytes());
    header.resize(4096, 0);
    header
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// The bytes of a chunk from its start, because names and templates are referenced by their offset.
struct Chunk {
    bytes: Vec<u8>,
    /// Offsets of templates by provider, id and names.
    templates: HashMap<String, u32>,
}

impl Chunk {
    #[allow(clippy::new_ret_no_self, reason = "a chunk is built only to be written")]
    fn new(first: u64, events: &[Event<'_>]) -> Vec<u8> {
        let mut chunk = Chunk { bytes: vec![0; 512], templates: HashMap::new() };
        let mut last_record = 512;
        for (number, event) in (first..).zip(events) {
            last_record = chunk.bytes.len() as u32;
            chunk.record(number, event);
        }
        let mut bytes = chunk.bytes;
        assert!(bytes.len() <= CHUNK, "fewer events fit into a chunk");
        let free = bytes.len() as u32;
        let last = first + events.len() as u64 - 1;
        let mut header = b"ElfChnk\0".to_vec();
        for number in [first, last, first, last] {
            header.extend(number.to_le_bytes());
        }
        for number in [128, last_record, free, crc32fast::hash(&bytes[512..])] {
            header.extend(number.to_le_bytes());
        }
        header.resize(120, 0);
        let sum = crc32fast::hash(&[&header[..], &bytes[128..512]].concat());
        header.extend(0_u32.to_le_bytes());
        header.extend(sum.to_le_bytes());
        bytes[..128].copy_from_slice(&header);
        bytes.resize(CHUNK, 0);
        bytes
    }

    fn location(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn u16(&mut self, number: u16) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend(number.to_le_bytes());
    }

    /// Writes the number of bytes since `from` to the size field at `at`.
    fn close_size(&mut self, at: u32, from: u32) {
        let size = self.location() - from;
        self.bytes[at as usize..][..4].copy_from_slice(&size.to_le_bytes());
    }

    fn record(&mut self, number: u64, event: &Event<'_>) {
        let start = self.location();
        self.bytes.extend(b"\x2a\x2a\0\0");
        self.u32(0);
        self.bytes.extend(number.to_le_bytes());
        self.bytes.extend(132_476_682_564_730_000_u64.to_le_bytes());
        self.bytes.extend([0x0f, 1, 1, 0]);
        self.instance(event);
        self.bytes.push(0);
        let size = self.location() + 4 - start;
        self.u32(size);
        self.close_size(start + 4, start);
    }

    /// Writes the template of an event, unless it was written before, and the values of the event.
    fn instance(&mut self, event: &Event<'_>) {
        self.bytes.extend([0x0c, 1]);
        let names: Vec<&str> = event.data.iter().map(|(name, _)| *name).collect();
        let key = format!("{} {} {names:?}", event.provider, event.id);
        let id = crc32fast::hash(key.as_bytes());
        self.u32(id);
        match self.templates.get(&key) {
            Some(&location) => self.u32(location),
            None => {
                let location = self.location() + 4;
                self.u32(location);
                self.templates.insert(key, location);
                self.template(id, event);
            }
        }
        let values = [Value::Number(event.id.into()), Value::Text(event.computer)];
        let values: Vec<(u8, Vec<u8>)> = values
            .iter()
            .chain(event.data.iter().map(|(_, value)| value))
            .map(|value| match value {
                Value::Text(text) => (0x01, utf16(text)),
                Value::Number(number) => (0x08, number.to_le_bytes().to_vec()),
                Value::Hex(number) => (0x14, number.to_le_bytes().to_vec()),
            })
            .collect();
        self.u32(values.len() as u32);
        for (kind, bytes) in &values {
            self.u16(bytes.len() as u16);
            self.bytes.extend([*kind, 0]);
        }
        self.bytes.extend(values.into_iter().flat_map(|(_, bytes)| bytes));
    }

    fn template(&mut self, id: u32, event: &Event<'_>) {
        self.u32(0);
        self.u32(id);
        self.bytes.extend([7; 12]);
        let size = self.location();
        self.u32(0);
        let start = self.location();
        self.bytes.extend([0x0f, 1, 1, 0]);
        let xmlns = "http://schemas.microsoft.com/win/2004/08/events/event";
        self.element("Event", Some(("xmlns", xmlns)), |chunk| {
            chunk.element("System", None, |chunk| {
                chunk.element("Provider", Some(("Name", event.provider)), |_| {});
                chunk.element("EventID", None, |chunk| chunk.substitution(0));
                chunk.element("Computer", None, |chunk| chunk.substitution(1));
            });
            chunk.element("EventData", None, |chunk| {
                for (number, (name, _)) in (2..).zip(&event.data) {
                    chunk.element("Data", Some(("Name", name)), |chunk| chunk.substitution(number));
                }
            });
        });
        self.bytes.push(0);
        self.close_size(size, start);
    }

    fn element(&mut self, name: &str, attribute: Option<(&str, &str)>, content: impl FnOnce(&mut Chunk)) {
        self.bytes.push(if attribute.is_some() { 0x41 } else { 0x01 });
        self.u16(0xffff);
        let size = self.location();
        self.u32(0);
        self.name(name);
        if let Some((name, text)) = attribute {
            let attributes = self.location();
            self.u32(0);
            self.bytes.push(0x06);
            self.name(name);
            self.bytes.extend([0x05, 0x01]);
            self.u16(text.encode_utf16().count() as u16);
            self.bytes.extend(utf16(text));
            self.close_size(attributes, attributes + 4);
        }
        self.bytes.push(0x02);
        content(self);
        self.bytes.push(0x04);
        self.close_size(size, size + 4);
    }

    /// Writes a name in place.
    fn name(&mut self, name: &str) {
        let location = self.location() + 4;
        self.u32(location);
        self.u32(0);
        let hash =
            name.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(65_599).wrapping_add(unit.into()));
        self.u16(hash as u16);
        self.u16(name.encode_utf16().count() as u16);
        self.bytes.extend(utf16(name));
        self.u16(0);
    }

    /// Writes the placeholder of a value. The value has its own type.
    fn substitution(&mut self, number: u16) {
        self.bytes.push(0x0e);
        self.u16(number);
        self.bytes.push(0);
    }
}
