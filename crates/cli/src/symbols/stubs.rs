//! `stackhound symbols stubs`: the system-call stubs of an image.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use stackhound::symbols::image::Image;
use stackhound::symbols::stubs::{self, Stub, StubState};
use stackhound::types::Rva;
use stackhound_export::escape::line;
use stackhound_export::json::symbols::Stub as Row;
use stackhound_export::json::value::Hex;

use crate::options::{Common, ListFormat, Output};
use crate::outcome::Outcome;
use crate::output::{counted, grouped, message};

#[derive(Args, Debug)]
pub struct Stubs {
    /// Read this image, such as ntdll.dll or win32u.dll
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub output: Output,
}

fn row(stub: Stub) -> Row {
    let path = stub.path().copied();
    let hex = |rva: Rva| Hex(rva.0.into());
    let (state, leads_to) = match &stub.state {
        StubState::Intact(_) => ("intact", None),
        StubState::Hooked { leads_to } => ("hooked", *leads_to),
        StubState::Foreign => ("foreign", None),
    };
    Row {
        ssn: stub.number,
        rva: hex(stub.start),
        syscall_rva: path.and_then(|path| path.syscall).map(hex),
        return_rva: path.map(|path| hex(path.return_address)),
        int2e_return_rva: path.and_then(|path| path.int2e_return).map(hex),
        state,
        leads_to: leads_to.map(Hex),
        name: stub.name,
        aliases: stub.aliases,
    }
}

pub fn run(arguments: &Stubs, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let bytes = super::read_file(&arguments.image)?;
    let context = || arguments.image.display().to_string();
    let image = Image::parse(&bytes).with_context(context)?;
    let stubs = stubs::read(&image).with_context(context)?;
    let rows: Vec<Row> = stubs.into_iter().map(row).collect();
    let mut sink = arguments.output.rows(format)?;
    match format {
        ListFormat::Json => sink.json(&rows)?,
        ListFormat::Table => table(&mut sink, &rows)?,
    }
    sink.finish()?;
    if !common.quiet {
        let count = |state| grouped(rows.iter().filter(|row| row.state == state).count() as u64);
        let all = counted(rows.len() as u64, "stub", "stubs");
        message(format_args!("{all}, {} hooked, {} foreign", count("hooked"), count("foreign")));
    }
    Ok(Outcome::default())
}

fn table(out: &mut impl Write, rows: &[Row]) -> Result<()> {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
    line(
        out,
        format_args!(
            "{:>6}  {:<width$}  {:<10}  {:<10}  {:<10}  {:<10}  state",
            "number", "name", "rva", "syscall", "returns to", "int 2e"
        ),
    )?;
    for row in rows {
        let or_dash = |rva: Option<Hex>| rva.map_or_else(|| "-".to_owned(), |rva| rva.to_string());
        let number = row.ssn.map_or("-".to_owned(), |number| format!("{number:#x}"));
        let leads = row.leads_to.as_ref().map(|address| format!(", leads to {address}")).unwrap_or_default();
        line(
            out,
            format_args!(
                "{number:>6}  {:<width$}  {:<10}  {:<10}  {:<10}  {:<10}  {}{leads}",
                row.name,
                row.rva.to_string(),
                or_dash(row.syscall_rva),
                or_dash(row.return_rva),
                or_dash(row.int2e_return_rva),
                row.state
            ),
        )?;
    }
    Ok(())
}
