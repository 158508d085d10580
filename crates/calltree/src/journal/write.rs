//! Writing of journals.

use std::io::{self, Write};

use super::followers::Followers;
use super::{HEADER, MAGIC, PAGE, PAGE_HEADER, PAGE_MAX, TEXT_MAX, VERSION, tag};
use crate::change::{Change, LocationInfo, ModuleInfo, StackInfo};
use crate::id::{LocationId, ModuleId, StackId};
use crate::kind::{EndType, StartType};
use crate::varint;

/// Writes a journal. Output is written when a page is full or [`Writer::flush`] is called. A page
/// that is not flushed is lost when the writer is dropped.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    page: Vec<u8>,
    modules: u32,
    locations: u32,
    stacks: u32,
    /// The boundary and the stack of the previous change in this page.
    boundary: u64,
    stack: u32,
    followers: Followers,
}

impl<W: Write> Writer<W> {
    /// Starts a journal.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(mut to: W) -> io::Result<Self> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        to.write_all(&header)?;
        let mut writer = Self {
            to,
            page: Vec::new(),
            modules: 0,
            locations: 0,
            stacks: 0,
            boundary: 0,
            stack: 0,
            followers: Followers::default(),
        };
        writer.begin();
        Ok(writer)
    }

    /// Defines a new module.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn module(&mut self, module: &ModuleInfo) -> io::Result<ModuleId> {
        self.page.push(tag::MODULE);
        self.text(&module.name);
        self.optional_text(module.path.as_deref());
        self.optional(module.base.map(|base| base.0));
        self.modules += 1;
        self.written().map(|()| ModuleId(self.modules - 1))
    }

    /// Defines a new location.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn location(&mut self, location: &LocationInfo) -> io::Result<LocationId> {
        self.page.push(tag::LOCATION);
        self.optional(location.address.map(|address| address.0));
        self.optional(location.module.map(|module| u64::from(module.0)));
        self.optional(location.rva);
        self.optional_text(location.symbol.as_deref());
        self.number(location.symbol_offset);
        self.locations += 1;
        self.written().map(|()| LocationId(self.locations - 1))
    }

    /// Defines a new location: a function that is entered through a stub.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn entry(&mut self, function: LocationId, stub: LocationId) -> io::Result<LocationId> {
        self.page.push(tag::ENTRY);
        self.number(u64::from(function.0));
        self.number(u64::from(stub.0));
        self.locations += 1;
        self.written().map(|()| LocationId(self.locations - 1))
    }

    /// Defines a new stack.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn stack(&mut self, stack: &StackInfo) -> io::Result<StackId> {
        self.page.push(tag::STACK);
        self.page.push(stack.kind as u8);
        self.optional(stack.process.map(u64::from));
        self.optional(stack.thread.map(u64::from));
        self.optional(stack.cpu.map(|cpu| u64::from(cpu.0)));
        self.optional_text(stack.name.as_deref());
        self.optional(stack.region.map(|(low, _)| low.0));
        self.optional(stack.region.map(|(_, high)| high.0));
        self.stacks += 1;
        self.written().map(|()| StackId(self.stacks - 1))
    }

    /// Gives a stack another name, which replaces the earlier one in the whole trace.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn name(&mut self, stack: StackId, name: &str) -> io::Result<()> {
        self.page.push(tag::NAMED);
        self.number(u64::from(stack.0));
        self.text(name);
        self.written()
    }

    /// Writes a change.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn change(&mut self, change: Change) -> io::Result<()> {
        match change {
            Change::Enter { cpu, stack, first } => {
                self.page.push(tag::ENTER);
                self.number(u64::from(cpu.0));
                self.position(stack, first.0);
            }
            Change::Leave { cpu, last } => {
                self.page.push(tag::LEAVE);
                self.number(u64::from(cpu.0));
                self.position(StackId(self.stack), last.0.saturating_add(1));
            }
            Change::Open { stack, first, start: StartType::Call, location } if stack.0 == self.stack => {
                self.page.push(tag::CALL);
                self.step(first.0);
                self.begun(location);
            }
            Change::Open { stack, first, start, location } => {
                self.page.extend([tag::OPEN, start as u8]);
                self.position(stack, first.0);
                self.begun(location);
            }
            Change::Close { stack, last, end: EndType::Return } if stack.0 == self.stack => {
                self.page.push(tag::RETURN);
                self.step(last.0.saturating_add(1));
            }
            Change::Close { stack, last, end } => {
                self.page.extend([tag::CLOSE, end as u8]);
                self.position(stack, last.0.saturating_add(1));
            }
            Change::Target { stack, location } => {
                self.page.push(tag::TARGET);
                self.number(u64::from(stack.0));
                self.number(u64::from(location.0));
            }
            Change::TailCall { stack, first, location } => {
                let later = first.0.wrapping_sub(self.boundary);
                let is_here = stack.0 == self.stack;
                if is_here
                    && later <= u64::from(u8::MAX - tag::TAIL_CALL_PREDICTED)
                    && self.followers.predicted() == Some(location.0)
                {
                    self.page.push(tag::TAIL_CALL_PREDICTED + later as u8);
                    self.boundary = first.0;
                } else if is_here {
                    self.page.push(tag::TAIL_CALL_HERE);
                    self.step(first.0);
                    self.number(u64::from(location.0));
                } else {
                    self.page.push(tag::TAIL_CALL);
                    self.position(stack, first.0);
                    self.number(u64::from(location.0));
                }
                self.followers.reach(location.0);
            }
            Change::Below { stack, location } => {
                self.page.push(tag::BELOW);
                self.number(u64::from(stack.0));
                self.optional(location.map(|location| u64::from(location.0)));
            }
        }
        self.written()
    }

    /// Writes the current page.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.page.len() > PAGE_HEADER {
            let length = (self.page.len() - PAGE_HEADER) as u32;
            let checksum = crc32fast::hash(&self.page[PAGE_HEADER..]);
            self.page[..4].copy_from_slice(&length.to_le_bytes());
            self.page[4..PAGE_HEADER].copy_from_slice(&checksum.to_le_bytes());
            self.to.write_all(&self.page)?;
            self.begin();
        }
        self.to.flush()
    }

    /// Writes the end record with the number of transitions, and the last page.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn finish(mut self, transitions: u64) -> io::Result<W> {
        self.page.push(tag::END);
        self.number(transitions);
        self.flush()?;
        Ok(self.to)
    }

    /// Starts a page, which can be read without the changes of previous pages.
    fn begin(&mut self) {
        self.page.clear();
        self.page.resize(PAGE_HEADER, 0);
        (self.boundary, self.stack) = (0, 0);
        self.followers.clear();
    }

    fn written(&mut self) -> io::Result<()> {
        debug_assert!(self.page.len() <= PAGE_MAX);
        if self.page.len() < PAGE { Ok(()) } else { self.flush() }
    }

    /// Writes the location of a frame that begins.
    fn begun(&mut self, location: Option<LocationId>) {
        self.optional(location.map(|location| u64::from(location.0)));
        if let Some(location) = location {
            self.followers.begin(location.0);
        }
    }

    fn position(&mut self, stack: StackId, boundary: u64) {
        self.number(u64::from(stack.0));
        self.stack = stack.0;
        self.step(boundary);
    }

    /// Writes the difference of a boundary from the previous one. It is seldom negative; the sign
    /// is the lowest bit.
    fn step(&mut self, boundary: u64) {
        let step = boundary.wrapping_sub(self.boundary) as i64;
        self.boundary = boundary;
        self.number((step << 1 ^ step >> 63) as u64);
    }

    /// Writes seven bits in each byte, lowest first. The highest bit of a byte means that more
    /// bytes follow.
    fn number(&mut self, number: u64) {
        varint::push(&mut self.page, number);
    }

    /// Writes the number plus one, or zero for `None`. The greatest possible number is read as
    /// `None`.
    fn optional(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number.wrapping_add(1)));
    }

    fn text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_MAX)];
        self.number(text.len() as u64);
        self.page.extend_from_slice(text.as_bytes());
    }

    fn optional_text(&mut self, text: Option<&str>) {
        self.page.push(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }
}
