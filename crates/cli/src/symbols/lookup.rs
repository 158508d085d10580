//! `stackhound symbols lookup`: what stands at addresses of an image.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use serde::Serialize;
use stackhound::symbols::image::Image;
use stackhound::symbols::pdb::Pdb;
use stackhound::symbols::table::{Detail, SymbolTable, SymbolTableBuilder};
use stackhound::symbols::{AddressKind, Line, Name, PdbIdentity, Rva, Symbols};

use super::Format;
use crate::Outcome;
use crate::args::{Common, Output};
use crate::output::Sink;

/// Arguments of `symbols lookup`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).multiple(true).args(["image", "pdb"])))]
pub struct Lookup {
    /// An image file; its PDB is used if it lies beside it
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// A PDB
    #[arg(long, value_name = "FILE")]
    pub pdb: Option<PathBuf>,
    /// Addresses relative to the image's base, such as 0x1a2b; without 0x they are decimal
    #[arg(required = true, value_name = "RVA", value_parser = rva)]
    pub rvas: Vec<Rva>,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    #[command(flatten)]
    pub output: Output,
}

fn rva(text: &str) -> Result<Rva, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // `+5` is a number for the standard library.
    let number = if digits.starts_with('+') { None } else { u32::from_str_radix(digits, radix).ok() };
    number.map(Rva).ok_or_else(|| "expected a number of at most 32 bits, such as 0x1a2b or 6699".to_owned())
}

#[derive(Debug, Serialize)]
struct Row {
    rva: String,
    pdb: Option<NameAt>,
    export: Option<NameAt>,
    nearest_export: Option<NameAt>,
    line: Option<Place>,
    inlines: Vec<InlineAt>,
}

#[derive(Debug, Serialize)]
struct NameAt {
    name: String,
    offset: u32,
}

#[derive(Debug, Serialize)]
struct Place {
    file: String,
    line: u32,
}

#[derive(Debug, Serialize)]
struct InlineAt {
    function: String,
    file: Option<String>,
    line: Option<u32>,
}

impl Row {
    fn new(symbols: &dyn Symbols, rva: Rva) -> Row {
        // Looked up as they are given: whoever asks for a return address knows.
        let kind = AddressKind::Instruction;
        let names = symbols.names(rva, kind);
        let name = |name: Option<Name<'_>>| {
            name.map(|name| NameAt { name: name.text.into_owned(), offset: name.offset })
        };
        let place = |line: Line<'_>| Place { file: line.file.into_owned(), line: line.line };
        let inlines = symbols.inlines(rva, kind).into_iter().map(|inline| {
            let place = inline.line.map(place);
            let line = place.as_ref().map(|place| place.line);
            InlineAt { function: inline.function.into_owned(), file: place.map(|place| place.file), line }
        });
        Row {
            rva: rva.to_string(),
            pdb: name(names.pdb),
            export: name(names.export),
            nearest_export: name(names.nearest_export),
            line: symbols.line(rva, kind).map(place),
            inlines: inlines.collect(),
        }
    }
}

pub fn run(arguments: &Lookup, common: &Common) -> Result<Outcome> {
    let note = |text: String| {
        if !common.quiet {
            anstream::eprintln!("note: {text}");
        }
    };
    let table = table(arguments, &note)?;
    let rows: Vec<Row> = arguments.rvas.iter().map(|rva| Row::new(&table, *rva)).collect();
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match arguments.format {
        Format::Json => sink.json(&rows)?,
        Format::Table => rows.iter().try_for_each(|row| show(&mut sink, row))?,
    }
    sink.finish()?;
    Ok(Outcome::default())
}

/// The names of all files that were given or found.
fn table(arguments: &Lookup, note: &impl Fn(String)) -> Result<SymbolTable> {
    let mut builder = SymbolTableBuilder::new();
    let mut wanted = None;
    if let Some(path) = &arguments.image {
        let context = || path.display().to_string();
        let bytes = super::read_file(path)?;
        let image = Image::parse(&bytes).with_context(context)?;
        let unreadable = builder.add_image(&image).with_context(context)?;
        if unreadable > 0 {
            note(format!("{}: {unreadable} exports and functions cannot be read", path.display()));
        }
        wanted = image.pdb();
    }
    let pdb = match (&arguments.pdb, &arguments.image, &wanted) {
        (Some(path), ..) => {
            let pdb = Pdb::open_path(path).with_context(|| path.display().to_string())?;
            if let Some(wanted) = &wanted
                && !same(&pdb.identity(), wanted)
            {
                bail!("{}: {}", path.display(), mismatch(&pdb.identity(), wanted));
            }
            Some((path.clone(), pdb))
        }
        (None, Some(image), Some(wanted)) => beside(image, wanted, note),
        _ => None,
    };
    if let Some((path, pdb)) = pdb {
        let damaged = builder.add_pdb(&pdb, Detail::Lines).with_context(|| path.display().to_string())?;
        if damaged > 0 {
            note(format!("{}: {damaged} of its object files are damaged and missing", path.display()));
        }
    }
    Ok(builder.build())
}

fn same(found: &PdbIdentity, wanted: &PdbIdentity) -> bool {
    (found.guid, found.age) == (wanted.guid, wanted.age)
}

fn mismatch(found: &PdbIdentity, wanted: &PdbIdentity) -> String {
    format!("is of another build: it is {}, the image wants {}", found.store_key(), wanted.store_key())
}

/// The PDB in the image's folder, if it is there and is the right one.
fn beside(image: &Path, wanted: &PdbIdentity, note: &impl Fn(String)) -> Option<(PathBuf, Pdb)> {
    let folder = image.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Windows does not tell upper from lower case.
    let path = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.eq_ignore_ascii_case(wanted.file_name()))
    })?;
    match Pdb::open_path(&path) {
        Ok(pdb) if same(&pdb.identity(), wanted) => Some((path, pdb)),
        Ok(pdb) => {
            note(format!("{} is not used: it {}", path.display(), mismatch(&pdb.identity(), wanted)));
            None
        }
        Err(error) => {
            note(format!("{} is not used: it {error}", path.display()));
            None
        }
    }
}

fn show(out: &mut impl Write, row: &Row) -> Result<()> {
    writeln!(out, "{}", row.rva)?;
    let mut line = |label: &str, text: String| writeln!(out, "  {label:<15} {text}");
    for (label, name) in [("pdb", &row.pdb), ("export", &row.export), ("nearest export", &row.nearest_export)]
    {
        let text = match name {
            Some(NameAt { name, offset: 0 }) => name.clone(),
            Some(NameAt { name, offset }) => format!("{name}+{offset:#x}"),
            None => "-".to_owned(),
        };
        line(label, text)?;
    }
    if let Some(place) = &row.line {
        line("line", format!("{}:{}", place.file, place.line))?;
    }
    for inline in &row.inlines {
        let place = match (&inline.file, inline.line) {
            (Some(file), Some(number)) => format!(" ({file}:{number})"),
            _ => String::new(),
        };
        line("inlined", format!("{}{place}", inline.function))?;
    }
    Ok(())
}
