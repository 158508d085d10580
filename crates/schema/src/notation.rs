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
//!   1 ProcessStart/Start                            id and full name
//!     v0 { ProcessID pid, ImageName wsz }           always packed
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
//! * `?` instead of a comma: in some builds the layout, or the structure, ends here.
//!
//! The tables are part of the program, so an error in them is a bug. A test reads all tables.

pub(crate) mod layout;

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
    pub events: Vec<EventText<'t>>,
}

/// Events with the same layouts.
#[derive(Debug)]
pub(crate) struct EventText<'t> {
    /// Type or hook id, and name.
    pub names: Vec<(u16, &'t str)>,
    pub layouts: Vec<LayoutText<'t>>,
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

#[derive(Debug)]
pub(crate) struct FieldText<'t> {
    pub name: &'t str,
    pub kind: KindText<'t>,
    pub count: CountText<'t>,
    pub map: Option<&'t str>,
    /// Whether the layout or structure may end before this field.
    pub may_end_here: bool,
}

/// A simple type by name, or a structure.
#[derive(Debug)]
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
    let mut parser = Parser { tokens: tokens(text), at: 0 };
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

/// Words and punctuation, each with its line number.
fn tokens(text: &str) -> Vec<(&str, u32)> {
    let is_punctuation = |c: char| "{}[],=?".contains(c);
    let mut tokens = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let mut rest = line.split('#').next().unwrap_or_default().trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_punctuation(first) {
                first.len_utf8()
            } else {
                rest.find(|c: char| c.is_whitespace() || is_punctuation(c)).unwrap_or(rest.len())
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
        let (mut keywords, mut events) = (Vec::new(), Vec::new());
        self.expect("{")?;
        if self.next_is("keywords") {
            self.expect("{")?;
            while !self.next_is("}") {
                keywords.push((self.number("a mask")?, self.word("the name of a keyword")?));
            }
        }
        while !self.next_is("}") {
            events.push(self.event()?);
        }
        Ok(ClassText { group: None, name, guid, keywords, events })
    }

    fn event(&mut self) -> Result<EventText<'t>, NotationError> {
        let mut names = Vec::new();
        loop {
            names.push((self.number("the type of an event")?, self.word("the name of an event")?));
            if !self.next_is(",") {
                break;
            }
        }
        let mut layouts = Vec::new();
        while let Some(version) = self.peek().and_then(|token| token.strip_prefix('v')) {
            let from_version = number(version)
                .and_then(|v| v.try_into().ok())
                .ok_or_else(|| self.error("a version such as v2"))?;
            self.at += 1;
            let packing = match self.peek() {
                Some("packed") => Packing::Packed,
                Some("either") => Packing::Either,
                _ => Packing::Natural,
            };
            self.at += usize::from(packing != Packing::Natural);
            layouts.push(LayoutText { from_version, packing, fields: self.fields()? });
        }
        Ok(EventText { names, layouts })
    }

    fn fields(&mut self) -> Result<Vec<FieldText<'t>>, NotationError> {
        let mut fields = Vec::new();
        let mut may_end_here = false;
        self.expect("{")?;
        if self.next_is("}") {
            return Ok(fields);
        }
        loop {
            fields.push(self.field(may_end_here)?);
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

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(text: &str, line: u32, expected: &str) {
        let error = parse(text).expect_err("invalid text");
        assert_eq!((error.line, error.expected), (line, expected), "{text}");
    }

    #[test]
    fn all_parts_of_the_notation_are_parsed() {
        let table = parse(
            "bits Flags { 0x10 High 1 Low } # names\n\
             class 0x05 Thread 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {\n\
               0x24 CSwitch, 0x030A Load v0 { A p, B { C u8 ? D u16 }[A], E wsz } v2 either { F u8[3]=Flags }\n\
               0x23 Unknown 0x25 Empty v0 {}\n\
             }",
        )
        .unwrap();
        assert!(table.maps[0].bits);
        assert_eq!(table.maps[0].entries, [(16, "High"), (1, "Low")]);
        let class = &table.classes[0];
        assert_eq!((class.group, class.name), (Some(5), "Thread"));
        let [shared, unknown, empty] = &class.events[..] else { panic!("expected three events: {class:?}") };
        assert_eq!(shared.names, [(0x24, "CSwitch"), (0x030A, "Load")]);
        assert_eq!((unknown.layouts.len(), empty.layouts.len(), empty.layouts[0].fields.len()), (0, 1, 0));
        let [first, second] = &shared.layouts[..] else { panic!("expected two layouts: {shared:?}") };
        assert_eq!((first.from_version, first.packing, first.fields.len()), (0, Packing::Natural, 3));
        let KindText::Struct(members) = &first.fields[1].kind else { panic!("a structure: {first:?}") };
        assert_eq!(first.fields[1].count, CountText::Field("A"));
        assert_eq!((members[0].may_end_here, members[1].may_end_here), (false, true));
        assert_eq!((second.from_version, second.packing), (2, Packing::Either));
        assert_eq!((second.fields[0].count, second.fields[0].map), (CountText::Fixed(3), Some("Flags")));
    }

    #[test]
    fn errors_name_the_line() {
        check_error("class 0x100 A", 1, "a group or -");
        check_error("class 1 A\nb {", 2, "a GUID");
        check_error("class 1 A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {\n1 B\nv1 { C }", 3, "a type");
        check_error("class 1 A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c { 1 B v1 {\nC p\nD p } }", 3, "}");
        check_error(
            "class 1 A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c { 1 B v300 {} }",
            1,
            "a version such as v2",
        );
        check_error("values A { 1", 1, "the name of a value");
        check_error("\n\nevents", 3, "values, bits, class or provider");
    }
}
