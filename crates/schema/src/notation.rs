//! Parses the notation of the built-in tables into layouts, before offsets are computed.
//!
//! ```text
//! # Up to the end of the line: a comment.
//! values WaitReason { 0 Executive 1 FreePage }      names of values; `bits` names bits
//! class 0x05 Thread 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {
//!   0x24 CSwitch                                    type and name; several share the layouts that follow
//!     v0 { NewThreadId tid, OldThreadId tid }       layout from version 0 on
//!     v2 packed { NewThreadId tid, State u8=ThreadState, Frames p[], Slots { Key p }[Count] }
//!   0x23 ConvertToGuiThread                         no layout: it is unknown
//! }
//! provider Microsoft-Windows-Kernel-Process 22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716 {
//!   keywords { 0x10 WINEVENT_KEYWORD_PROCESS }      masks and names, before the first event
//!   tasks { 1 ProcessStart 2 ProcessStop }
//!   opcodes { 10 Rundown 11/2 Flush }               without the standard ones; 11 is one of task 2
//!   fields Ids { ProcessID pid, CreateTime ft }     fields that several layouts share
//!   1 ProcessStart/Start l4 t1 o1 k0x10             id, full name, level, task, opcode, keywords
//!     v0 { ..Ids, ImageName wsz }                   always packed
//!     v1 { ..v0, Flags u32 }                        the fields of version 0 and one more
//!   2 - l4 t2 o2 k0x10 v0 { Reason u32 }     named after its task and opcode
//! }
//! ```
//!
//! * A class has a group number, or `-` if it is only known by its GUID. A type above 0xFF is a
//!   complete hook id of another group that belongs to this class.
//! * A layout applies from its version up to the next one. Several layouts of one version are
//!   alternatives between which the payload decides; the first one is the default.
//! * Fields are aligned as by a C compiler, or `packed`, or `either` (two alternatives).
//! * `[4]` is a fixed count, `[Name]` the value of an earlier field, `[]` extends to the end of the
//!   payload.
//! * Level, task, opcode and keywords can be left out if they are unknown.
//! * Names with blanks or punctuation are in quotes.
//! * `?` instead of a comma: in some builds the layout, or the structure, ends here.
//!
//! The tables are part of the program, so an error in them is a bug. A test reads all tables.

pub(crate) mod layout;

use std::collections::HashMap;

use stackhound_types::Guid;

/// A syntax error in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}")]
pub(crate) struct NotationError {
    line: u32,
    expected: &'static str,
}

/// The content of one table.
#[derive(Debug, Default)]
pub(crate) struct Table<'t> {
    pub maps: Vec<MapText<'t>>,
    pub classes: Vec<ClassText<'t>>,
    pub providers: Vec<ClassText<'t>>,
}

/// The names of values or bits.
#[derive(Debug)]
pub(crate) struct MapText<'t> {
    pub name: &'t str,
    pub bits: bool,
    pub entries: Vec<(u32, &'t str)>,
}

/// A class or a provider, with its events.
#[derive(Debug)]
pub(crate) struct ClassText<'t> {
    pub group: Option<u8>,
    pub name: &'t str,
    pub guid: Guid,
    pub keywords: Vec<(u64, &'t str)>,
    pub tasks: Vec<(u16, &'t str)>,
    pub opcodes: Vec<OpcodeText<'t>>,
    pub events: Vec<EventText<'t>>,
}

/// Opcode, the task that it is limited to, and name.
pub(crate) type OpcodeText<'t> = (u8, Option<u16>, &'t str);

/// Events with the same layouts.
#[derive(Debug)]
pub(crate) struct EventText<'t> {
    pub headers: Vec<HeaderText<'t>>,
    pub layouts: Vec<LayoutText<'t>>,
}

/// What identifies an event, and the facts in its header as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderText<'t> {
    /// Type, hook id or event id.
    pub id: u16,
    /// The name; `-` for events that are named after their task and opcode.
    pub name: &'t str,
    pub level: Option<u8>,
    pub task: Option<u16>,
    pub opcode: Option<u8>,
    pub keywords: Option<u64>,
}

/// The fields of a range of versions.
#[derive(Debug)]
pub(crate) struct LayoutText<'t> {
    pub from_version: u8,
    pub packing: Packing,
    pub fields: Vec<FieldText<'t>>,
}

/// The alignment of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Natural,
    Packed,
    /// Natural alignment, or packed if the payload is too short for it.
    Either,
}

#[derive(Clone, Debug)]
pub(crate) struct FieldText<'t> {
    pub name: &'t str,
    pub kind: KindText<'t>,
    pub count: CountText<'t>,
    pub map: Option<&'t str>,
    /// Whether the layout or structure may end before this field.
    pub may_end_here: bool,
}

/// A simple type by name, or a structure.
#[derive(Clone, Debug)]
pub(crate) enum KindText<'t> {
    Simple(&'t str),
    Struct(Vec<FieldText<'t>>),
}

/// The brackets after a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountText<'t> {
    One,
    Fixed(u16),
    Field(&'t str),
    Rest,
}

/// Parses one table.
pub(crate) fn parse(text: &str) -> Result<Table<'_>, NotationError> {
    let mut parser = Parser { tokens: tokens(text), at: 0, groups: HashMap::new() };
    let mut table = Table::default();
    while let Some(word) = parser.peek() {
        parser.at += 1;
        match word {
            "values" => table.maps.push(parser.map(false)?),
            "bits" => table.maps.push(parser.map(true)?),
            "class" => table.classes.push(parser.class()?),
            "provider" => table.providers.push(parser.provider()?),
            _ => {
                parser.at -= 1;
                return Err(parser.error("values, bits, class or provider"));
            }
        }
    }
    Ok(table)
}

/// Words and punctuation, each with its line number. Quotes are removed.
fn tokens(text: &str) -> Vec<(&str, u32)> {
    let is_punctuation = |c: char| "{}[],=?".contains(c);
    let mut tokens = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next().filter(|first| *first != '#') {
            if let Some((quoted, after)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                tokens.push((quoted, number));
                rest = after.trim_start();
                continue;
            }
            let length = if is_punctuation(first) {
                first.len_utf8()
            } else {
                let is_end = |c: char| c.is_whitespace() || c == '#' || is_punctuation(c);
                rest.find(is_end).unwrap_or(rest.len())
            };
            tokens.push((&rest[..length], number));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

struct Parser<'t> {
    tokens: Vec<(&'t str, u32)>,
    at: usize,
    /// The shared fields of the provider, and the earlier layouts of the event as `v0`.
    groups: HashMap<&'t str, Vec<FieldText<'t>>>,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.tokens.get(self.at).map(|&(token, _)| token)
    }

    /// The error for the next token.
    fn error(&self, expected: &'static str) -> NotationError {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |&(_, line)| line);
        NotationError { line, expected }
    }

    fn next_is(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &'static str) -> Result<(), NotationError> {
        if self.next_is(token) { Ok(()) } else { Err(self.error(token)) }
    }

    fn word(&mut self, expected: &'static str) -> Result<&'t str, NotationError> {
        let word = self.peek().filter(|word| !"{}[],=?".contains(word));
        let word = word.ok_or_else(|| self.error(expected))?;
        self.at += 1;
        Ok(word)
    }

    fn number<N: TryFrom<u64>>(&mut self, expected: &'static str) -> Result<N, NotationError> {
        let error = self.error(expected);
        number(self.word(expected)?).and_then(|value| N::try_from(value).ok()).ok_or(error)
    }

    fn map(&mut self, bits: bool) -> Result<MapText<'t>, NotationError> {
        let name = self.word("the name of a map")?;
        let mut entries = Vec::new();
        self.expect("{")?;
        while !self.next_is("}") {
            entries.push((self.number("a value")?, self.word("the name of a value")?));
        }
        Ok(MapText { name, bits, entries })
    }

    fn class(&mut self) -> Result<ClassText<'t>, NotationError> {
        let group = if self.next_is("-") { None } else { Some(self.number("a group or -")?) };
        Ok(ClassText { group, ..self.events_of("the name of a class")? })
    }

    fn provider(&mut self) -> Result<ClassText<'t>, NotationError> {
        let mut provider = self.events_of("the name of a provider")?;
        for layout in provider.events.iter_mut().flat_map(|event| &mut event.layouts) {
            layout.packing = Packing::Packed;
        }
        Ok(provider)
    }

    fn events_of(&mut self, expected: &'static str) -> Result<ClassText<'t>, NotationError> {
        let name = self.word(expected)?;
        let error = self.error("a GUID");
        let guid = self.word("a GUID")?.parse().map_err(|_| error)?;
        self.groups.clear();
        self.expect("{")?;
        let keywords = self.names("keywords", "the name of a keyword")?;
        let tasks = self.names("tasks", "the name of a task")?;
        let opcodes = self.opcodes()?;
        while self.next_is("fields") {
            let name = self.word("the name of a group")?;
            let fields = self.fields()?;
            self.groups.insert(name, fields);
        }
        let mut events = Vec::new();
        while !self.next_is("}") {
            events.push(self.event()?);
        }
        Ok(ClassText { group: None, name, guid, keywords, tasks, opcodes, events })
    }

    /// A block of numbers with names, if it is present.
    fn names<N: TryFrom<u64>>(
        &mut self,
        block: &str,
        expected: &'static str,
    ) -> Result<Vec<(N, &'t str)>, NotationError> {
        let mut names = Vec::new();
        if self.next_is(block) {
            self.expect("{")?;
            while !self.next_is("}") {
                names.push((self.number("a number")?, self.word(expected)?));
            }
        }
        Ok(names)
    }

    fn opcodes(&mut self) -> Result<Vec<OpcodeText<'t>>, NotationError> {
        let mut opcodes = Vec::new();
        if self.next_is("opcodes") {
            self.expect("{")?;
            while !self.next_is("}") {
                let error = self.error("an opcode such as 10 or 10/2");
                let word = self.word("an opcode")?;
                let (opcode, task) =
                    word.split_once('/').map_or((word, None), |(opcode, task)| (opcode, Some(task)));
                let opcode = number(opcode).and_then(|opcode| opcode.try_into().ok()).ok_or(error)?;
                let task = match task {
                    Some(task) => Some(number(task).and_then(|task| task.try_into().ok()).ok_or(error)?),
                    None => None,
                };
                opcodes.push((opcode, task, self.word("the name of an opcode")?));
            }
        }
        Ok(opcodes)
    }

    fn header(&mut self) -> Result<HeaderText<'t>, NotationError> {
        let id = self.number("the type of an event")?;
        let mut header = HeaderText { id, name: self.word("the name of an event")?, ..HeaderText::default() };
        while let Some((kind, digits)) = self.peek().and_then(|token| token.split_at_checked(1)) {
            match (kind, number(digits)) {
                ("l", Some(level)) => header.level = level.try_into().ok(),
                ("t", Some(task)) => header.task = task.try_into().ok(),
                ("o", Some(opcode)) => header.opcode = opcode.try_into().ok(),
                ("k", Some(keywords)) => header.keywords = Some(keywords),
                _ => break,
            }
            self.at += 1;
        }
        Ok(header)
    }

    /// Whether another layout of the event follows.
    fn next_is_layout(&self) -> bool {
        self.peek().is_some_and(|token| token.starts_with('v'))
    }

    fn event(&mut self) -> Result<EventText<'t>, NotationError> {
        let mut headers = vec![self.header()?];
        while self.next_is(",") {
            headers.push(self.header()?);
        }
        self.groups.retain(|name, _| !is_version(name));
        let mut layouts = Vec::new();
        while self.next_is_layout()
            && let Some(token) = self.peek()
        {
            let from_version = number(&token[1..])
                .and_then(|v| v.try_into().ok())
                .ok_or_else(|| self.error("a version such as v2"))?;
            self.at += 1;
            let packing = match self.peek() {
                Some("packed") => Packing::Packed,
                Some("either") => Packing::Either,
                _ => Packing::Natural,
            };
            self.at += usize::from(packing != Packing::Natural);
            let fields = self.fields()?;
            if self.next_is_layout() {
                self.groups.insert(token, fields.clone());
            }
            layouts.push(LayoutText { from_version, packing, fields });
        }
        Ok(EventText { headers, layouts })
    }

    fn fields(&mut self) -> Result<Vec<FieldText<'t>>, NotationError> {
        let mut fields = Vec::new();
        let mut may_end_here = false;
        self.expect("{")?;
        if self.next_is("}") {
            return Ok(fields);
        }
        loop {
            match self.peek().and_then(|token| token.strip_prefix("..")) {
                Some(group) => {
                    let shared =
                        self.groups.get(group).ok_or_else(|| self.error("a group that is defined"))?;
                    fields.extend_from_slice(shared);
                    self.at += 1;
                }
                None => fields.push(self.field(may_end_here)?),
            }
            may_end_here = self.next_is("?");
            if !may_end_here && !self.next_is(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(fields)
    }

    fn field(&mut self, may_end_here: bool) -> Result<FieldText<'t>, NotationError> {
        let name = self.word("the name of a field")?;
        let kind = if self.peek() == Some("{") {
            KindText::Struct(self.fields()?)
        } else {
            KindText::Simple(self.word("a type")?)
        };
        let mut count = CountText::One;
        if self.next_is("[") {
            count = match self.peek() {
                Some("]") => CountText::Rest,
                Some(text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                    CountText::Fixed(self.number("a count")?)
                }
                _ => CountText::Field(self.word("a count")?),
            };
            self.expect("]")?;
        }
        let map = if self.next_is("=") { Some(self.word("the name of a map")?) } else { None };
        Ok(FieldText { name, kind, count, map, may_end_here })
    }
}

fn is_version(name: &str) -> bool {
    name.strip_prefix('v').is_some_and(|digits| number(digits).is_some())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
