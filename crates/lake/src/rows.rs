//! Rows of results as text: a table, CSV or NDJSON. Names in traces are untrusted, so control
//! characters are replaced or escaped as in all output of the main program.

use std::collections::{HashSet, VecDeque};
use std::io::Write;

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Schema, TimeUnit, TimestampNanosecondType,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use stackhound_export::escape::{self, Plain};

use crate::sink::Sink;

/// A form of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// One JSON object per row
    Ndjson,
    /// Comma-separated values
    Csv,
    /// Parquet file, with -o
    Parquet,
}

impl Format {
    /// The format that the extension of a file states.
    pub fn of_extension(extension: &str) -> Option<Format> {
        match extension {
            "ndjson" | "jsonl" => Some(Format::Ndjson),
            "csv" => Some(Format::Csv),
            "parquet" => Some(Format::Parquet),
            "txt" => Some(Format::Table),
            _ => None,
        }
    }
}

/// Writes rows in a format.
#[derive(Debug)]
pub struct Rows {
    out: Output,
    count: u64,
}

#[derive(Debug)]
enum Output {
    Table(Sink, Table),
    Ndjson(Sink, Vec<Vec<u8>>),
    Csv(Sink),
    // Owns the sink until the footer is written.
    Parquet(Box<ArrowWriter<Sink>>),
}

impl Rows {
    /// Begins the output: writes what precedes the rows.
    pub fn begin(format: Format, schema: &Schema, mut sink: Sink) -> Result<Rows> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if matches!(format, Format::Ndjson | Format::Parquet) {
            let mut known = HashSet::new();
            if let Some(name) = names.iter().find(|name| !known.insert(**name)) {
                bail!("several columns have the name `{name}`; name them with AS");
            }
        }
        let out = match format {
            Format::Table => {
                let width = matches!(sink, Sink::Standard(_)).then(terminal_width).flatten();
                Output::Table(sink, Table::new(schema, width))
            }
            Format::Ndjson => {
                let key = |name: &&str| {
                    let mut key = Vec::new();
                    escape::json(&mut key, name)?;
                    Ok(key)
                };
                Output::Ndjson(sink, names.iter().map(key).collect::<Result<_>>()?)
            }
            Format::Csv => {
                escape::row(&mut sink, names.iter().map(|name| escape::cell(name)))?;
                Output::Csv(sink)
            }
            Format::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .build();
                let writer = ArrowWriter::try_new(sink, schema.clone().into(), Some(properties))?;
                Output::Parquet(Box::new(writer))
            }
        };
        Ok(Rows { out, count: 0 })
    }

    /// Writes rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.count += batch.num_rows() as u64;
        let out = match &mut self.out {
            Output::Parquet(writer) => return Ok(writer.write(batch)?),
            other => other,
        };
        let columns = batch.columns().iter().map(Column::new).collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            match out {
                Output::Parquet(_) => {}
                Output::Csv(sink) => {
                    let cell = |column: &Column<'_>| -> Result<String> {
                        let text = column.text(row)?;
                        let is_text = column.kind == Kind::Text;
                        Ok(text.map_or_else(String::new, |text| match is_text {
                            true => escape::cell(&text),
                            false => text,
                        }))
                    };
                    escape::row(sink, columns.iter().map(cell).collect::<Result<Vec<_>>>()?)?;
                }
                Output::Ndjson(sink, keys) => {
                    for (number, (key, column)) in keys.iter().zip(&columns).enumerate() {
                        sink.write_all(if number == 0 { b"{" } else { b"," })?;
                        sink.write_all(key)?;
                        sink.write_all(b":")?;
                        match (column.text(row)?, column.kind) {
                            (None, _) => sink.write_all(b"null")?,
                            (Some(text), Kind::Number) => sink.write_all(text.as_bytes())?,
                            (Some(text), _) => escape::json(sink, &text)?,
                        }
                    }
                    sink.write_all(if keys.is_empty() { b"{}\n" } else { b"}\n" })?;
                }
                Output::Table(sink, table) => {
                    let cell = |column: &Column<'_>| -> Result<String> {
                        Ok(column.text(row)?.unwrap_or_else(|| "NULL".to_owned()))
                    };
                    let cells = columns.iter().map(cell).collect::<Result<Vec<_>>>()?;
                    // Plans have several lines. Cells of traces have line ends only in texts.
                    let lines =
                        |text: &String| text.trim_end().lines().map(|line| Plain(line).to_string()).collect();
                    let cells: Vec<VecDeque<String>> = cells.iter().map(lines).collect();
                    table.add(cells, sink)?;
                }
            }
        }
        Ok(())
    }

    /// Completes the output. Returns the number of rows.
    pub fn finish(self) -> Result<u64> {
        let sink = match self.out {
            Output::Table(mut sink, mut table) => {
                table.flush(&mut sink)?;
                sink
            }
            Output::Ndjson(sink, _) | Output::Csv(sink) => sink,
            Output::Parquet(writer) => writer.into_inner()?,
        };
        sink.finish()?;
        Ok(self.count)
    }
}

/// The type of a value in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A number or a truth value, which JSON writes as it is.
    Number,
    /// A text that may come from a trace.
    Text,
    /// A text of digits: a time, or an integer that other programs would round.
    Digits,
}

/// A column of rows, as text.
struct Column<'b> {
    array: &'b ArrayRef,
    kind: Kind,
    formatter: ArrayFormatter<'b>,
}

const OPTIONS: FormatOptions<'static> = FormatOptions::new()
    .with_timestamp_format(Some("%Y-%m-%dT%H:%M:%S%.9f"))
    .with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.9fZ"));

impl<'b> Column<'b> {
    fn new(array: &'b ArrayRef) -> Result<Column<'b>> {
        let kind = match array.data_type() {
            DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::Float32
            | DataType::Float64 => Kind::Number,
            DataType::UInt64 | DataType::Timestamp(..) => Kind::Digits,
            _ => Kind::Text,
        };
        let formatter = ArrayFormatter::try_new(array, &OPTIONS).context("cannot show a column")?;
        Ok(Column { array, kind, formatter })
    }

    /// A value; `None` if it is null or not a number that JSON has.
    fn text(&self, row: usize) -> Result<Option<String>> {
        let is_finite = match self.array.data_type() {
            DataType::Float32 => self.array.as_primitive::<Float32Type>().value(row).is_finite(),
            DataType::Float64 => self.array.as_primitive::<Float64Type>().value(row).is_finite(),
            _ => true,
        };
        if self.array.is_null(row) || !is_finite {
            return Ok(None);
        }
        let mut text = self.formatter.value(row).try_to_string()?;
        // Traces have times of 100 ns.
        if matches!(self.array.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _))
            && self.array.as_primitive::<TimestampNanosecondType>().value(row) % 100 == 0
        {
            let end = text.len() - usize::from(text.ends_with('Z'));
            text.replace_range(end - 2..end, "");
        }
        Ok(Some(text))
    }
}

/// The number of rows that determine the widths of columns.
const MEASURED_ROWS: usize = 1000;

/// A table of which the first rows determine the widths.
#[derive(Debug)]
struct Table {
    heading: Vec<String>,
    is_number: Vec<bool>,
    /// Rows that are not written yet; `None` after the heading was written.
    first: Option<Vec<Vec<String>>>,
    widths: Vec<usize>,
    /// Of the terminal.
    width: Option<usize>,
}

impl Table {
    fn new(schema: &Schema, width: Option<usize>) -> Table {
        let heading: Vec<String> =
            schema.fields().iter().map(|field| Plain(field.name()).to_string()).collect();
        let is_number = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        let widths = heading.iter().map(|name| name.chars().count()).collect();
        Table { heading, is_number, first: Some(Vec::new()), widths, width }
    }

    /// Adds a row whose cells can have several lines.
    fn add(&mut self, mut cells: Vec<VecDeque<String>>, out: &mut Sink) -> Result<()> {
        loop {
            let line = cells.iter_mut().map(|lines| lines.pop_front().unwrap_or_default());
            self.add_line(line.collect(), out)?;
            if cells.iter().all(VecDeque::is_empty) {
                return Ok(());
            }
        }
    }

    fn add_line(&mut self, row: Vec<String>, out: &mut Sink) -> Result<()> {
        let Some(first) = &mut self.first else { return self.line(&row, out) };
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.chars().count());
        }
        first.push(row);
        if first.len() == MEASURED_ROWS { self.flush(out) } else { Ok(()) }
    }

    /// Writes the heading and the first rows, if they were not written.
    fn flush(&mut self, out: &mut Sink) -> Result<()> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let heading = std::mem::take(&mut self.heading);
        self.line(&heading, out)?;
        first.iter().try_for_each(|row| self.line(row, out))
    }

    fn line(&self, row: &[String], out: &mut Sink) -> Result<()> {
        let mut line = String::new();
        for (number, ((cell, width), is_number)) in
            row.iter().zip(&self.widths).zip(&self.is_number).enumerate()
        {
            let gap = if number == 0 { "" } else { "  " };
            let padding = width.saturating_sub(cell.chars().count());
            line += gap;
            if *is_number {
                line.extend(std::iter::repeat_n(' ', padding));
            }
            line += cell;
            if !*is_number {
                line.extend(std::iter::repeat_n(' ', padding));
            }
        }
        let line = line.trim_end();
        match self.width.filter(|width| line.chars().count() > *width) {
            None => writeln!(out, "{line}")?,
            Some(width) => {
                let start: String = line.chars().take(width.saturating_sub(1)).collect();
                writeln!(out, "{start}…")?;
            }
        }
        Ok(())
    }
}

/// The width of the terminal: `COLUMNS` if it is set, otherwise that of the terminal of standard
/// output.
fn terminal_width() -> Option<usize> {
    let stated = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    stated.or_else(terminal).filter(|width| *width > 0)
}
