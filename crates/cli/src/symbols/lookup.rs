//! `stackhound symbols lookup`: the names at addresses of an image.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use stackhound::symbols::image::Image;
use stackhound::symbols::pdb::Pdb;
use stackhound::symbols::table::{Detail, SymbolTable, SymbolTableBuilder};
use stackhound::symbols::{ResolvedFrame, ResolvedName, Symbols};
use stackhound::types::{AddressKind, PdbIdentity, Rva};
use stackhound_export::escape::line;
use stackhound_export::json::symbols::AddressNames;

use crate::options::{Common, ListFormat, Output};
use crate::outcome::Outcome;
use crate::output::{counted, message};

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).multiple(true).args(["image", "pdb"])))]
pub struct Lookup {
    /// Look up names in this image, and in its PDB if that is in the same folder
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Look up names in this PDB
    #[arg(long, value_name = "FILE")]
    pub pdb: Option<PathBuf>,
    /// Look up these addresses relative to the base of the image, such as 0x1a2b; without 0x they
    /// are decimal
    #[arg(required = true, value_name = "RVA", value_parser = rva)]
    pub rvas: Vec<Rva>,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub output: Output,
}

fn rva(text: &str) -> Result<Rva, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // The standard library would accept `+5`.
    let number = if digits.starts_with('+') { None } else { u32::from_str_radix(digits, radix).ok() };
    number.map(Rva).ok_or_else(|| "expected a number of at most 32 bits, such as 0x1a2b or 6699".to_owned())
}

/// An address and its names.
struct Row {
    rva: Rva,
    names: ResolvedFrame,
}

impl Row {
    fn new(symbols: &dyn Symbols, rva: Rva) -> Row {
        // Looked up exactly: the user decides whether to subtract 1 from a return address.
        Row { rva, names: ResolvedFrame::look_up(symbols, rva, AddressKind::Instruction) }
    }
}

pub fn run(arguments: &Lookup, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let note = |text: String| {
        if !common.quiet {
            message(format_args!("note: {text}"));
        }
    };
    let table = table(arguments, &note)?;
    let rows: Vec<Row> = arguments.rvas.iter().map(|rva| Row::new(&table, *rva)).collect();
    let mut sink = arguments.output.rows(format)?;
    match format {
        ListFormat::Json => {
            let names = rows.iter().map(|row| AddressNames::new(row.rva, &row.names));
            sink.json(&names.collect::<Vec<_>>())?;
        }
        ListFormat::Table => rows.iter().try_for_each(|row| show(&mut sink, row))?,
    }
    sink.finish()?;
    Ok(Outcome::default())
}

/// The names in all files that were given or found.
fn table(arguments: &Lookup, note: &impl Fn(String)) -> Result<SymbolTable> {
    let mut builder = SymbolTableBuilder::new();
    let mut wanted = None;
    if let Some(path) = &arguments.image {
        let context = || path.display().to_string();
        let bytes = super::read_file(path)?;
        let image = Image::parse(&bytes).with_context(context)?;
        let unreadable = builder.add_image(&image).with_context(context)?;
        if unreadable > 0 {
            let unreadable = counted(unreadable as u64, "export or function", "exports and functions");
            note(format!("{}: {unreadable} cannot be read", path.display()));
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
        (None, Some(image), Some(wanted)) => adjacent_pdb(image, wanted, note),
        _ => None,
    };
    if let Some((path, pdb)) = pdb {
        let damaged = builder.add_pdb(&pdb, Detail::Lines).with_context(|| path.display().to_string())?;
        if damaged > 0 {
            note(format!("{}: skipped damaged object files: {damaged}", path.display()));
        }
    }
    Ok(builder.build())
}

fn same(found: &PdbIdentity, wanted: &PdbIdentity) -> bool {
    (found.guid, found.age) == (wanted.guid, wanted.age)
}

fn mismatch(found: &PdbIdentity, wanted: &PdbIdentity) -> String {
    format!("is of another build: expected {}, found {}", wanted.store_key(), found.store_key())
}

/// The PDB in the folder of the image, if it matches. Reports a PDB that does not match.
fn adjacent_pdb(image: &Path, wanted: &PdbIdentity, note: &impl Fn(String)) -> Option<(PathBuf, Pdb)> {
    let folder = image.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // File names on Windows are not case-sensitive.
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
            note(format!("{} is not used: {error}", path.display()));
            None
        }
    }
}

fn show(out: &mut impl Write, row: &Row) -> Result<()> {
    line(out, format_args!("{}", row.rva))?;
    let names = &row.names;
    let mut line = |label: &str, text: String| line(out, format_args!("  {label:<15} {text}"));
    let all = [("pdb", &names.pdb), ("export", &names.export), ("nearest export", &names.nearest_export)];
    for (label, name) in all {
        let text = match name {
            Some(ResolvedName { text, offset: 0 }) => text.to_string(),
            Some(ResolvedName { text, offset }) => format!("{text}+{offset:#x}"),
            None => "-".to_owned(),
        };
        line(label, text)?;
    }
    if let Some(source) = &names.line {
        line("line", source.to_string())?;
    }
    for inline in &names.inlines {
        let location = inline.line.as_ref().map(|line| format!(" ({line})"));
        line("inlined", format!("{}{}", inline.function, location.unwrap_or_default()))?;
    }
    Ok(())
}
