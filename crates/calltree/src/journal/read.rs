//! Reading of journals.

use stackhound_types::Address;

use super::followers::Followers;
use super::{FIRST_VERSION, HEADER, MAGIC, PAGE_HEADER, PAGE_MAX, Record, TEXT_MAX, VERSION, tag};
use crate::change::{Change, LocationInfo, ModuleInfo, StackInfo};
use crate::id::{ContextId, Cpu, LocationId, ModuleId, StackId};
use crate::kind::{EndType, StackKind, StartType};
use crate::{Builder, Error, Trace};

/// Whether the bytes start with the magic of a journal.
pub fn is_journal(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads the records of a journal, up to its end or to the first incomplete page.
#[derive(Clone, Debug)]
pub struct Reader<'b> {
    bytes: &'b [u8],
    /// The offset of the next page.
    next: usize,
    /// The rest of the current page, and its offset.
    page: &'b [u8],
    offset: usize,
    boundary: u64,
    stack: u32,
    followers: Followers,
    modules: u32,
    locations: u32,
    stacks: u32,
    lost: u64,
}

/// The result of reading a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The number of transitions. Without an end record, the number that the changes show.
    pub transitions: u64,
    /// Whether the recorder finished and wrote an end record.
    pub finished: bool,
    /// Bytes at the end that are not a complete page.
    pub lost_bytes: u64,
}

/// Returns the length and the checksum of a journal, which identify it. A trace that was made from
/// it returns them from [`Trace::made_from`].
pub fn fingerprint(bytes: &[u8]) -> (u64, u64) {
    (bytes.len() as u64, u64::from(crc32fast::hash(bytes)))
}

/// Converts a journal to a trace, which contains the journal's length and checksum.
///
/// # Errors
/// The bytes are not a journal, the journal has another version, or a page has a correct checksum
/// but invalid content. A truncated journal is not an error.
pub fn trace(bytes: &[u8]) -> Result<(Trace, Replayed), Error> {
    let mut builder = Builder::new();
    let (length, checksum) = fingerprint(bytes);
    builder.made_from(length, checksum);
    let mut reader = Reader::new(bytes)?;
    let mut replayed = Replayed::default();
    while let Some(record) = reader.next_record()? {
        match record {
            Record::Module(module) => _ = builder.define_module(module),
            Record::Location(location) => _ = builder.define_location(location),
            Record::Entry { function, stub } => builder.define_entry(function, stub),
            Record::Stack(stack) => _ = builder.stack(stack),
            Record::Named { stack, name } => builder.name_stack(stack, name),
            Record::Change(change) => {
                builder.apply(change)?;
                replayed.transitions = replayed.transitions.max(reader.boundary);
            }
            Record::End(transitions) => {
                (replayed.transitions, replayed.finished) = (transitions, true);
                break;
            }
        }
    }
    replayed.lost_bytes = reader.lost;
    Ok((builder.finish(replayed.transitions)?, replayed))
}

impl<'b> Reader<'b> {
    /// Creates a reader at the start of a journal.
    ///
    /// # Errors
    /// The bytes are not a journal, or the journal has another version.
    pub fn new(bytes: &'b [u8]) -> Result<Self, Error> {
        if !is_journal(bytes) {
            return Err(Error::NoJournal);
        }
        let version =
            bytes.get(8..12).and_then(|version| version.first_chunk()).map(|v| u32::from_le_bytes(*v));
        match version {
            Some(FIRST_VERSION..=VERSION) if bytes.len() >= HEADER => Ok(Self {
                bytes,
                next: HEADER,
                page: &[],
                offset: HEADER,
                boundary: 0,
                stack: 0,
                followers: Followers::default(),
                modules: 0,
                locations: 0,
                stacks: 0,
                lost: 0,
            }),
            Some(found) if !(FIRST_VERSION..=VERSION).contains(&found) => {
                Err(Error::JournalVersion { found, expected: VERSION })
            }
            _ => {
                Err(Error::JournalDamaged { offset: bytes.len() as u64, expected: "the rest of the header" })
            }
        }
    }

    /// Returns the number of bytes at the end that are not a complete page. It is known when there
    /// are no more records.
    pub fn lost_bytes(&self) -> u64 {
        self.lost
    }

    /// Returns the next record, or `None` at the end.
    ///
    /// # Errors
    /// A page has a correct checksum but invalid content.
    pub fn next_record(&mut self) -> Result<Option<Record>, Error> {
        if self.page.is_empty() && !self.next_page() {
            return Ok(None);
        }
        Ok(Some(match self.byte()? {
            tag::END => Record::End(self.number()?),
            tag::MODULE => {
                self.modules += 1;
                Record::Module(ModuleInfo {
                    name: self.text()?,
                    path: self.optional_text()?,
                    base: self.optional()?.map(Address),
                })
            }
            tag::LOCATION => {
                self.locations += 1;
                Record::Location(LocationInfo {
                    address: self.optional()?.map(Address),
                    module: self.below(self.modules, "a defined module")?.map(ModuleId),
                    rva: self.optional()?,
                    symbol: self.optional_text()?,
                    symbol_offset: self.number()?,
                })
            }
            tag::ENTRY => {
                let (function, stub) = (self.defined_location()?, self.defined_location()?);
                self.locations += 1;
                Record::Entry { function, stub }
            }
            tag::STACK => {
                let stack = self.stack()?;
                self.stacks += 1;
                Record::Stack(stack)
            }
            tag::NAMED => {
                let number = self.number()?;
                if number >= u64::from(self.stacks) {
                    return Err(self.damaged("a defined stack"));
                }
                Record::Named { stack: StackId(number as u32), name: self.text()? }
            }
            tag => Record::Change(self.change(tag)?),
        }))
    }

    fn next_page(&mut self) -> bool {
        let rest = &self.bytes[self.next..];
        if rest.is_empty() || self.lost > 0 {
            return false;
        }
        let field = |at: usize| rest.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
        let page = match (field(0), field(4)) {
            (Some(length), Some(checksum)) if (1..=PAGE_MAX as u32).contains(&length) => rest
                .get(PAGE_HEADER..PAGE_HEADER + length as usize)
                .filter(|page| crc32fast::hash(page) == checksum),
            _ => None,
        };
        let Some(page) = page else {
            self.lost = rest.len() as u64;
            return false;
        };
        self.offset = self.next + PAGE_HEADER;
        self.next = self.offset + page.len();
        self.page = page;
        (self.boundary, self.stack) = (0, 0);
        self.followers.clear();
        true
    }

    fn change(&mut self, tag: u8) -> Result<Change, Error> {
        Ok(match tag {
            tag::ENTER => {
                let cpu = self.cpu()?;
                let (stack, first) = self.position()?;
                Change::Enter { cpu, stack, first }
            }
            tag::LEAVE => {
                let cpu = self.cpu()?;
                self.position()?;
                Change::Leave { cpu, last: self.last()? }
            }
            tag::OPEN => {
                let start = self.kind(StartType::ALL, "a start type")?;
                let (stack, first) = self.position()?;
                Change::Open { stack, first, start, location: self.begun()? }
            }
            tag::CALL => {
                let first = self.step()?;
                let location = self.begun()?;
                Change::Open { stack: StackId(self.stack), first, start: StartType::Call, location }
            }
            tag::CLOSE => {
                let end = self.kind(EndType::ALL, "an end type")?;
                let (stack, _) = self.position()?;
                Change::Close { stack, last: self.last()?, end }
            }
            tag::RETURN => {
                self.step()?;
                Change::Close { stack: StackId(self.stack), last: self.last()?, end: EndType::Return }
            }
            tag::TARGET => {
                let stack = StackId(self.number()? as u32);
                Change::Target { stack, location: self.defined_location()? }
            }
            tag::TAIL_CALL => {
                let (stack, first) = self.position()?;
                Change::TailCall { stack, first, location: self.reached()? }
            }
            tag::TAIL_CALL_HERE => {
                let first = self.step()?;
                Change::TailCall { stack: StackId(self.stack), first, location: self.reached()? }
            }
            tag::TAIL_CALL_PREDICTED.. => {
                self.boundary = self.boundary.wrapping_add(u64::from(tag - tag::TAIL_CALL_PREDICTED));
                let predicted = self.followers.predicted();
                let location = predicted.ok_or_else(|| self.damaged("an earlier tail call"))?;
                self.followers.reach(location);
                let (stack, first) = (StackId(self.stack), ContextId(self.boundary));
                Change::TailCall { stack, first, location: LocationId(location) }
            }
            tag::BELOW => {
                let stack = StackId(self.number()? as u32);
                Change::Below { stack, location: self.location()? }
            }
            _ => return Err(self.damaged("a kind of record")),
        })
    }

    fn stack(&mut self) -> Result<StackInfo, Error> {
        let kind = self.kind(StackKind::ALL, "a kind of stack")?;
        let process = self.optional()?.map(|number| number as u32);
        let thread = self.optional()?.map(|number| number as u32);
        let cpu = self.optional()?.map(|number| Cpu(number as u16));
        let name = self.optional_text()?;
        let (low, high) = (self.optional()?, self.optional()?);
        let region = low.zip(high).map(|(low, high)| (Address(low), Address(high)));
        Ok(StackInfo { kind, process, thread, cpu, name, region })
    }

    fn position(&mut self) -> Result<(StackId, ContextId), Error> {
        self.stack = self.number()? as u32;
        Ok((StackId(self.stack), self.step()?))
    }

    fn step(&mut self) -> Result<ContextId, Error> {
        let number = self.number()?;
        let step = (number >> 1) as i64 ^ -((number & 1) as i64);
        self.boundary = self.boundary.wrapping_add_signed(step);
        Ok(ContextId(self.boundary))
    }

    /// Returns the context before the boundary.
    fn last(&self) -> Result<ContextId, Error> {
        self.boundary.checked_sub(1).map(ContextId).ok_or_else(|| self.damaged("a context after the first"))
    }

    /// The location of a frame that begins.
    fn begun(&mut self) -> Result<Option<LocationId>, Error> {
        let location = self.location()?;
        if let Some(location) = location {
            self.followers.begin(location.0);
        }
        Ok(location)
    }

    /// The location of a tail call.
    fn reached(&mut self) -> Result<LocationId, Error> {
        let location = self.defined_location()?;
        self.followers.reach(location.0);
        Ok(location)
    }

    fn location(&mut self) -> Result<Option<LocationId>, Error> {
        Ok(self.below(self.locations, "a defined location")?.map(LocationId))
    }

    fn defined_location(&mut self) -> Result<LocationId, Error> {
        match self.number()? {
            number if number < u64::from(self.locations) => Ok(LocationId(number as u32)),
            _ => Err(self.damaged("a defined location")),
        }
    }

    fn below(&mut self, count: u32, expected: &'static str) -> Result<Option<u32>, Error> {
        match self.optional()? {
            None => Ok(None),
            Some(number) if number < u64::from(count) => Ok(Some(number as u32)),
            Some(_) => Err(self.damaged(expected)),
        }
    }

    fn cpu(&mut self) -> Result<Cpu, Error> {
        let number = self.number()?;
        u16::try_from(number).map(Cpu).map_err(|_| self.damaged("a processor number"))
    }

    fn kind<T: Copy>(&mut self, all: &[T], expected: &'static str) -> Result<T, Error> {
        let number = self.byte()?;
        all.get(usize::from(number)).copied().ok_or_else(|| self.damaged(expected))
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let Some((first, rest)) = self.page.split_first() else {
            return Err(self.damaged("the rest of a record"));
        };
        (self.page, self.offset) = (rest, self.offset + 1);
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, Error> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            match byte {
                0..0x80 => return Ok(number),
                _ if shift > 63 => return Err(self.damaged("a number of at most ten bytes")),
                _ => {}
            }
        }
    }

    fn optional(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.number()?.checked_sub(1))
    }

    fn text(&mut self) -> Result<String, Error> {
        let length = self.number()?;
        let text = usize::try_from(length)
            .ok()
            .filter(|length| *length <= TEXT_MAX)
            .and_then(|length| self.page.split_at_checked(length));
        let Some((text, rest)) = text else { return Err(self.damaged("a string")) };
        let text = str::from_utf8(text).map_err(|_| self.damaged("a string in UTF-8"))?;
        (self.page, self.offset) = (rest, self.offset + text.len());
        Ok(text.to_owned())
    }

    fn optional_text(&mut self) -> Result<Option<String>, Error> {
        if self.byte()? == 0 { Ok(None) } else { Ok(Some(self.text()?)) }
    }

    fn damaged(&self, expected: &'static str) -> Error {
        Error::JournalDamaged { offset: self.offset as u64, expected }
    }
}
