//! Source lines: the C13 line tables of a module, and the names of source files.

use std::borrow::Cow;

use ms_pdb::lines::{FileChecksumsSubsection, LineData, LinesSubsection, SubsectionKind, is_jmc_line};
use ms_pdb::names::NamesStream;

use super::{Module, Pdb, PdbError, SectionOffset};

/// Maximum length of a file name, in bytes. Longer names are truncated.
const FILE_NAME_LENGTH_MAX: usize = 32 << 10;

/// The offset of a source file's name in the PDB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SourceFile(pub(super) u32);

/// The code of a source line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeLine {
    /// Its start.
    pub location: SectionOffset,
    /// Its size in bytes.
    pub length: u32,
    /// The file. `None` if the PDB does not contain it, or if the code is not from a source line.
    pub file: Option<SourceFile>,
    /// The line number, from 1, or 0 if the code is not from a source line.
    pub line: u32,
}

/// The names of source files.
pub struct SourceNames {
    names: Option<NamesStream<Vec<u8>>>,
}

impl std::fmt::Debug for SourceNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SourceNames({} bytes)", self.size())
    }
}

impl SourceNames {
    /// Returns the size of all names, in bytes.
    pub fn size(&self) -> usize {
        self.names.as_ref().map_or(0, |names| names.strings_size)
    }

    /// Returns the path as the compiler wrote it, or `None` if the PDB does not contain the name.
    pub fn name(&self, file: SourceFile) -> Option<Cow<'_, str>> {
        let rest = self.names.as_ref()?.strings_bytes().get(file.0 as usize..)?;
        let rest = &rest[..rest.len().min(FILE_NAME_LENGTH_MAX)];
        let length = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        Some(String::from_utf8_lossy(&rest[..length]))
    }
}

impl Pdb {
    /// Reads the names of source files.
    ///
    /// # Errors
    /// The stream is damaged. A missing stream is not an error: PDBs without private symbols have
    /// none.
    pub fn source_names(&self) -> Result<SourceNames, PdbError> {
        const PART: &str = "names of source files";
        let Some(stream) = self.info.named_streams.get("/names") else {
            return Ok(SourceNames { names: None });
        };
        let names = NamesStream::parse(self.streams.read(stream, PART)?.into_vec());
        Ok(SourceNames { names: Some(names.map_err(|error| PdbError::damaged(PART, error))?) })
    }
}

/// The files of a module, by their offset in its table.
pub(super) struct Files<'m>(Option<FileChecksumsSubsection<'m>>);

impl<'m> Files<'m> {
    pub fn of(lines: &LineData<'m>) -> Files<'m> {
        Files(lines.find_checksums())
    }

    pub fn get(&self, offset: u32) -> Option<SourceFile> {
        Some(SourceFile(self.0.as_ref()?.get_file(offset).ok()?.name().0))
    }
}

impl Module {
    /// Returns the lines in the order of the tables. Each extends to the next line or to the end of
    /// the compiler's contribution. The code of inlined functions belongs to the line of the call
    /// here.
    pub fn lines(&self) -> Vec<CodeLine> {
        let tables = self.content.c13_line_data();
        let files = Files::of(&tables);
        let mut lines = Vec::new();
        for table in tables.subsections().filter(|table| table.kind == SubsectionKind::LINES) {
            let Ok(table) = LinesSubsection::parse(table.data) else { continue };
            add_lines(&table, &files, &mut lines);
        }
        lines
    }
}

fn add_lines(table: &LinesSubsection<'_>, files: &Files<'_>, lines: &mut Vec<CodeLine>) {
    let section = table.contribution.segment.get();
    let start = table.contribution.offset.get();
    let size = table.contribution.size.get();
    let mut starts = Vec::new();
    for block in table.blocks() {
        let file = files.get(block.header.file_index.get());
        starts.extend(block.lines().iter().map(|line| (line.offset.get(), file, line.line_num_start())));
    }
    starts.sort_by_key(|line| line.0);
    let ends = starts.iter().skip(1).map(|next| next.0).chain([size]);
    for (&(offset, file, line), end) in starts.iter().zip(ends) {
        let (Some(length), Some(offset)) = (end.min(size).checked_sub(offset), start.checked_add(offset))
        else {
            continue;
        };
        // Compilers use special numbers for code that belongs to no line.
        let (file, line) = if is_jmc_line(line) { (None, 0) } else { (file, line) };
        if length > 0 {
            lines.push(CodeLine { location: SectionOffset { section, offset }, length, file, line });
        }
    }
}
