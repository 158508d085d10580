//! Reads a table of a trace as record batches of Arrow.
//!
//! Columns have the types that Parquet readers give to the files of [`convert`](crate::convert()).

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use arrow_array::builder::make_view;
use arrow_array::types::{
    ArrowPrimitiveType, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use stackhound_detect::Binaries;
use stackhound_export::json::field_rows::FieldRow;
use stackhound_hunt::{FindingSelection, Hunt, Policy};
use stackhound_pipeline::{Depth, Enrichment, EventView, Passes, Pipeline};
use stackhound_symbols::path::SymbolPath;
use stackhound_symbols::store::StoreOptions;
use stackhound_symbols::{Symbolizer, SymbolizerOptions, file_loader};
use stackhound_trace::Capture;

use crate::collect::{About, Message, Wanted, collect};
use crate::dataset::{TraceId, date, host};
use crate::layout::{Column, Type};
use crate::rows::{ColumnRows, Rows, Values};
use crate::tables::{EventChunk, TableId};

/// Why a table could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Rows cannot be expressed as a record batch.
    #[error("a record batch: {0}")]
    Arrow(#[from] ArrowError),
    /// The threads that read symbol files cannot be started.
    #[error("cannot start the symbol threads: {0}")]
    Threads(#[source] io::Error),
    /// The fields of an event cannot be written as text.
    #[error("fields of events: {0}")]
    Fields(#[from] io::Error),
}

/// The schema of a table.
pub fn schema(table: TableId) -> SchemaRef {
    let table = table.table();
    let fields = table.columns().iter().map(field);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn field(column: &Column) -> Field {
    let data_type = match column.r#type {
        Type::Flag => DataType::Boolean,
        Type::UInt8 => DataType::UInt8,
        Type::UInt16 => DataType::UInt16,
        Type::UInt32 => DataType::UInt32,
        Type::UInt64 => DataType::UInt64,
        Type::Int64 => DataType::Int64,
        Type::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        Type::Text => DataType::Utf8View,
    };
    Field::new(column.name, data_type, column.is_optional)
}

/// The tables of a trace.
#[derive(Debug)]
pub struct TraceTables {
    capture: Capture,
    host: String,
    date: String,
    id: OnceLock<TraceId>,
    symbols: SymbolPath,
}

/// What is read.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// The table.
    pub table: TableId,
    /// The positions of the columns, each at most once. Others are not computed, if they are
    /// expensive.
    pub columns: &'a [usize],
    /// Whether names of functions are needed to select events.
    pub selects_by_function: bool,
}

impl TraceTables {
    /// The tables of a trace, with names and code from the files along a symbol path. Nothing is
    /// read or downloaded.
    pub fn new(capture: Capture, symbols: SymbolPath) -> TraceTables {
        let (host, date) = (host(&capture, None).to_owned(), date(&capture));
        TraceTables { capture, host, date, id: OnceLock::new(), symbols }
    }

    /// The name of the computer, the value of the column `host`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The day on which the trace starts, the value of the column `date`.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// Reads a table, and passes its rows to `receive` until that breaks. Tables about events have
    /// those that `choose` selects until it breaks. Needs memory for a batch, and for the state of
    /// the trace. All bytes of the trace are read once more for the first scan that needs its id.
    ///
    /// # Errors
    /// See [`ScanError`].
    pub fn scan(
        &self,
        scan: Scan<'_>,
        choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
        mut receive: impl FnMut(RecordBatch) -> ControlFlow<()>,
    ) -> Result<(), ScanError> {
        let Scan { table, columns, selects_by_function } = scan;
        let (layout, capture) = (table.table(), &self.capture);
        let schema = Arc::new(schema(table).project(columns)?);
        let (mut schemas, mut texts) = (Vec::<Arc<FieldRow>>::new(), Texts::default());
        let send = |message| {
            let rows = match message {
                Message::Events(chunk, new) if table == TableId::Events => {
                    let EventChunk { mut rows, fields } = *chunk;
                    texts.add(&new);
                    fields.append(&mut schemas, &mut rows)?;
                    rows
                }
                Message::Rows(of, rows) if of == table => rows,
                _ => return Ok(()),
            };
            if rows.len() == 0 {
                return Ok(());
            }
            let batch = batch(rows, layout.columns(), columns, &schema, &texts)?;
            match receive(batch) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(End::Break),
            }
        };
        let wanted = Wanted::of(table, columns);
        let store = StoreOptions { path: self.symbols.clone(), ..StoreOptions::default() };
        let binaries = if wanted.findings {
            let (_, load) = file_loader(store.clone(), true);
            Binaries::new(Box::new(move |module| load(&module.identity)))
        } else {
            Binaries::none()
        };
        let has_names = wanted.has_names() || selects_by_function;
        let symbolizer = || Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() });
        let symbolizer = has_names.then(symbolizer).transpose().map_err(ScanError::Threads)?;
        let enrichment = Enrichment { depth: Some(Depth::Function), symbolizer, ..Enrichment::default() };
        let pipeline = Pipeline::new(&capture.trace, Passes::Two).with(enrichment);
        let hunt = Hunt::new(Policy::default(), binaries, FindingSelection::default());
        // Most questions about events do not need the id.
        let has_id = |column: &usize| HAVE_ID.contains(&layout.columns()[*column].name);
        let has_id = table != TableId::Events || columns.iter().any(has_id);
        let id = || *self.id.get_or_init(|| TraceId::of(&capture.trace, ""));
        let trace = if has_id { id() } else { TraceId(0) };
        let about = About { capture, trace, host: &self.host, selection: "" };
        match collect(about, pipeline, hunt, wanted, choose, send) {
            Ok(_) | Err(End::Break) => Ok(()),
            Err(End::Error(error)) => Err(error),
        }
    }
}

/// The columns of events whose values can depend on the id of the trace.
const HAVE_ID: [&str; 3] = ["trace", "process_uid", "target_process_uid"];

/// Why reading ended early.
enum End {
    Break,
    Error(ScanError),
}

impl<E: Into<ScanError>> From<E> for End {
    fn from(error: E) -> End {
        End::Error(error.into())
    }
}

/// Texts that rows share, as views of one buffer.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    views: Vec<u128>,
    buffer: Option<Buffer>,
}

impl Texts {
    /// Adds texts, in the order of their numbers. All of them are shorter than 4 GiB together.
    fn add(&mut self, texts: &[Arc<str>]) {
        for text in texts {
            self.views.push(make_view(text.as_bytes(), 0, self.bytes.len() as u32));
            self.bytes.extend_from_slice(text.as_bytes());
        }
        if !texts.is_empty() || self.buffer.is_none() {
            self.buffer = Some(Buffer::from_slice_ref(&self.bytes));
        }
    }
}

fn batch(
    rows: Rows,
    layout: &[Column],
    columns: &[usize],
    schema: &SchemaRef,
    texts: &Texts,
) -> Result<RecordBatch, ArrowError> {
    let len = rows.len();
    let mut of_table: Vec<Option<ColumnRows>> = rows.into_columns().into_iter().map(Some).collect();
    let mut arrays = Vec::with_capacity(columns.len());
    for &column in columns {
        let rows = of_table.get_mut(column).and_then(Option::take);
        let rows = rows.ok_or_else(|| ArrowError::SchemaError("a column is read once".to_owned()))?;
        arrays.push(array(&layout[column], rows, len, texts)?);
    }
    // Without columns, only their number is known.
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
}

fn array(column: &Column, of: ColumnRows, len: usize, texts: &Texts) -> Result<ArrayRef, ArrowError> {
    let present = of.rows.as_deref();
    let nulls = present.filter(|rows| rows.len() < len).map(|rows| {
        let mut bits = vec![false; len];
        rows.iter().for_each(|&row| bits[row as usize] = true);
        NullBuffer::new(BooleanBuffer::from(bits))
    });
    Ok(match (of.values, column.r#type) {
        (Values::Numbers(values), Type::Flag) => {
            let bits = spread(values.iter().map(|&value| value != 0), present, len);
            Arc::new(BooleanArray::new(BooleanBuffer::from(bits), nulls))
        }
        (Values::Numbers(values), Type::UInt8) => {
            numbers::<UInt8Type>(&values, present, len, nulls, |value| value as u8)
        }
        (Values::Numbers(values), Type::UInt16) => {
            numbers::<UInt16Type>(&values, present, len, nulls, |value| value as u16)
        }
        (Values::Numbers(values), Type::UInt32) => {
            numbers::<UInt32Type>(&values, present, len, nulls, |value| value as u32)
        }
        (Values::Numbers(values), Type::UInt64) => {
            numbers::<UInt64Type>(&values, present, len, nulls, |value| value)
        }
        (Values::Numbers(values), Type::Int64) => {
            numbers::<Int64Type>(&values, present, len, nulls, u64::cast_signed)
        }
        (Values::Numbers(values), Type::Time) => {
            let values = spread(values.iter().map(|value| value.cast_signed()), present, len);
            Arc::new(
                PrimitiveArray::<TimestampNanosecondType>::new(values.into(), nulls).with_timezone("UTC"),
            )
        }
        (Values::Texts(bytes, ends), Type::Text) => {
            if u32::try_from(bytes.len()).is_err() {
                return Err(ArrowError::ComputeError("texts of 4 GiB in one batch".to_owned()));
            }
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let views = starts.zip(&ends).map(|(start, &end)| make_view(&bytes[start..end], 0, start as u32));
            let views = spread(views, present, len);
            text_array(views, Buffer::from_vec(bytes), nulls)?
        }
        (Values::Shared(numbers), Type::Text) => {
            let views = numbers.iter().map(|text| texts.views[text.index()]);
            let buffer = texts.buffer.clone().unwrap_or_else(|| Buffer::from_vec(Vec::<u8>::new()));
            text_array(spread(views, present, len), buffer, nulls)?
        }
        _ => return Err(ArrowError::SchemaError(format!("the column {} has another type", column.name))),
    })
}

fn numbers<T: ArrowPrimitiveType>(
    values: &[u64],
    present: Option<&[u32]>,
    len: usize,
    nulls: Option<NullBuffer>,
    convert: impl Fn(u64) -> T::Native,
) -> ArrayRef {
    let values = spread(values.iter().map(|&value| convert(value)), present, len);
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

fn text_array(views: Vec<u128>, buffer: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let views = ScalarBuffer::from(views);
    Ok(Arc::new(StringViewArray::try_new(views, vec![buffer], nulls)?))
}

/// One value for each row, the default one for those that have none.
fn spread<T: Clone + Default>(
    values: impl Iterator<Item = T>,
    present: Option<&[u32]>,
    len: usize,
) -> Vec<T> {
    let Some(present) = present else { return values.collect() };
    let mut all = vec![T::default(); len];
    present.iter().zip(values).for_each(|(&row, value)| all[row as usize] = value);
    all
}
