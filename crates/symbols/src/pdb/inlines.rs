//! Inlined functions.
//!
//! Each of them has a record in the scope of the procedure, with a small program (*binary
//! annotations*) that advances through code and lines. Its first line is in a table of the module.

use std::collections::HashMap;

use ms_pdb::lines::SubsectionKind;
use ms_pdb::syms::{InlineSite, InlineSite2, Proc, Sym, SymKind};

use super::lines::Files;
use super::{Module, SectionOffset, SourceFile, u32_at};

/// Maximum depth of nested inlined functions. Deeper ones are skipped.
pub const INLINE_DEPTH_MAX: usize = 64;

/// The number of a function among the items (IPI) of a PDB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ItemId(pub u32);

impl ItemId {
    /// Whether it refers to an item of another module, as with link-time code generation. Such an
    /// item has no name here.
    pub fn is_of_another_module(self) -> bool {
        self.0 >> 31 == 1
    }
}

/// Code of an inlined function, from one source line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineCode {
    /// The number of inlined functions that contain this one.
    pub depth: usize,
    /// The function.
    pub function: ItemId,
    /// The start of the code.
    pub location: SectionOffset,
    /// Its size in bytes.
    pub length: u32,
    /// The source file, if the PDB contains it.
    pub file: Option<SourceFile>,
    /// The line number, from 1.
    pub line: u32,
}

/// The open scopes at a record.
#[derive(Default)]
struct Scopes {
    open: Vec<Scope>,
    procedure: Option<SectionOffset>,
    /// The number of open inlined functions in the procedure.
    inlines: usize,
}

enum Scope {
    /// With the procedure and the number of inlined functions before it.
    Procedure(Option<SectionOffset>, usize),
    Inline,
    Other,
}

impl Scopes {
    fn open_procedure(&mut self, location: Option<SectionOffset>) {
        self.open.push(Scope::Procedure(self.procedure, self.inlines));
        (self.procedure, self.inlines) = (location, 0);
    }

    fn open_inline(&mut self) {
        self.open.push(Scope::Inline);
        self.inlines += 1;
    }

    fn close(&mut self) {
        match self.open.pop() {
            Some(Scope::Procedure(procedure, inlines)) => {
                (self.procedure, self.inlines) = (procedure, inlines)
            }
            Some(Scope::Inline) => self.inlines -= 1,
            Some(Scope::Other) | None => {}
        }
    }
}

impl Module {
    /// Returns the inlined functions in the order of the records: a function precedes those inlined
    /// into it.
    pub fn inlines(&self) -> Vec<InlineCode> {
        let tables = self.content.c13_line_data();
        let files = Files::of(&tables);
        let mut first_lines = HashMap::new();
        for table in tables.subsections().filter(|table| table.kind == SubsectionKind::INLINEELINES) {
            add_first_lines(table.data, &files, &mut first_lines);
        }
        let mut found = Vec::new();
        let mut scopes = Scopes::default();
        for record in self.content.iter_syms() {
            match record.kind {
                kind if kind.ends_scope() => scopes.close(),
                kind if kind.is_proc() => {
                    let location = record.parse_as().ok().map(|procedure: Proc<'_>| {
                        let location = procedure.fixed.offset_segment;
                        SectionOffset { section: location.segment(), offset: location.offset() }
                    });
                    scopes.open_procedure(location);
                }
                SymKind::S_INLINESITE | SymKind::S_INLINESITE2 => {
                    let depth = scopes.inlines;
                    scopes.open_inline();
                    let (Some((function, program)), Some(location)) = (site(&record), scopes.procedure)
                    else {
                        continue;
                    };
                    if let Some(&(file, line)) =
                        first_lines.get(&function).filter(|_| depth < INLINE_DEPTH_MAX)
                    {
                        let function = ItemId(function);
                        run(
                            program,
                            InlineCode { depth, function, location, length: 0, file, line },
                            &files,
                            &mut found,
                        );
                    }
                }
                kind if kind.starts_scope() => scopes.open.push(Scope::Other),
                _ => {}
            }
        }
        found
    }
}

/// Returns the function and the program.
fn site<'m>(record: &Sym<'m>) -> Option<(u32, &'m [u8])> {
    if record.kind == SymKind::S_INLINESITE {
        let site: InlineSite<'_> = record.parse_as().ok()?;
        return Some((site.fixed.inlinee.get(), site.binary_annotations));
    }
    let site: InlineSite2<'_> = record.parse_as().ok()?;
    Some((site.fixed.inlinee.get(), site.binary_annotations))
}

/// Reads the table of first lines: a signature, then function, file and line of each function, with
/// more files if the signature indicates this.
fn add_first_lines(
    table: &[u8],
    files: &Files<'_>,
    first_lines: &mut HashMap<u32, (Option<SourceFile>, u32)>,
) {
    const WITH_FILES: u32 = 1;
    let with_files = u32_at(table, 0) == Some(WITH_FILES);
    let mut at = 4;
    while let (Some(function), Some(file), Some(line)) =
        (u32_at(table, at), u32_at(table, at + 4), u32_at(table, at + 8))
    {
        first_lines.insert(function, (files.get(file), line));
        at += 12;
        if with_files {
            let Some(more) = u32_at(table, at) else { break };
            at = at.saturating_add(4).saturating_add(4 * more as usize);
        }
    }
}

/// Runs a program from the start of the procedure and the first line of the function.
fn run(mut program: &[u8], mut now: InlineCode, files: &Files<'_>, found: &mut Vec<InlineCode>) {
    let start = now.location.offset;
    let mut base = 0_u32;
    let mut code = start;
    // The last entry, while its length is unknown.
    let mut open: Option<InlineCode> = None;
    let mut finish = |open: &mut Option<InlineCode>, length: u32| {
        found.extend(open.take().map(|code| InlineCode { length, ..code }).filter(|code| code.length > 0));
    };
    while let Some((operation, first)) = number(&mut program).zip(number(&mut program)) {
        let mut length = None;
        match operation {
            // Offsets are relative to the start of the procedure.
            1 => code = start.wrapping_add(first),
            2 => base = first,
            3 => code = code.wrapping_add(first),
            4 => {
                finish(&mut open, first);
                code = code.wrapping_add(first);
            }
            5 => now.file = files.get(first),
            6 => now.line = now.line.wrapping_add_signed(signed(first)),
            // End lines, kinds of ranges, columns.
            7..=10 | 13 => {}
            11 => {
                code = code.wrapping_add(first & 0xf);
                now.line = now.line.wrapping_add_signed(signed(first >> 4));
            }
            12 => {
                let Some(second) = number(&mut program) else { break };
                length = Some(first);
                code = code.wrapping_add(second);
            }
            _ => break,
        }
        if matches!(operation, 3 | 11 | 12) {
            now.location.offset = code.wrapping_add(base);
            let before = open.map_or(0, |open| now.location.offset.saturating_sub(open.location.offset));
            finish(&mut open, before);
            open = Some(now);
            if let Some(length) = length {
                finish(&mut open, length);
            }
        }
    }
}

/// Reads a number of one, two or four bytes. The highest bits indicate the size.
fn number(program: &mut &[u8]) -> Option<u32> {
    let (size, mask) = match program.first()? {
        0x00..=0x7f => (1, 0x7f),
        0x80..=0xbf => (2, 0x3fff),
        0xc0..=0xdf => (4, 0x1fff_ffff),
        _ => return None,
    };
    let (bytes, rest) = program.split_at_checked(size)?;
    *program = rest;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)) & mask)
}

/// Decodes a signed number, whose sign is the lowest bit.
fn signed(number: u32) -> i32 {
    let size = (number >> 1) as i32;
    if number & 1 == 0 { size } else { -size }
}
