//! Writes rows as a Parquet file.
//!
//! The pages of a column are encoded as soon as rows arrive, and wait in memory for the end of
//! their row group: a file needs the memory of one row group, as it is stored.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, ColumnWriterImpl, get_column_writer};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnPath, SchemaDescriptor, Type as SchemaType};
use rayon::prelude::*;
use stackhound_symbols::temporary::Temporary;

use crate::Error;
use crate::layout::{Column, Storage, Table, Type};
use crate::rows::{ColumnRows, Rows, Values};
use crate::tables::TableId;

/// The rows of a row group.
const GROUP_ROWS: usize = 1 << 20;

/// The bytes of a page before it is compressed.
const PAGE_SIZE: usize = 1 << 20;

/// A file that is being written.
pub(crate) struct Part<W: Write + Send> {
    file: SerializedFileWriter<W>,
    table: Arc<Table>,
    properties: WriterPropertiesPtr,
    schema: SchemaDescriptor,
    chunks: Vec<Chunk>,
    group_rows: usize,
    /// The texts that rows share.
    texts: Vec<ByteArray>,
}

impl<W: Write + Send> Part<W> {
    pub fn new(table: Arc<Table>, output: W) -> Result<Part<W>, ParquetError> {
        let schema = Arc::new(schema(&table)?);
        let properties = Arc::new(properties(&table)?);
        let file = SerializedFileWriter::new(output, Arc::clone(&schema), Arc::clone(&properties))?;
        let schema = SchemaDescriptor::new(schema);
        let mut part =
            Part { file, table, properties, schema, chunks: Vec::new(), group_rows: 0, texts: Vec::new() };
        part.begin_group();
        Ok(part)
    }

    fn begin_group(&mut self) {
        let columns = self.schema.columns().iter();
        self.chunks = columns.map(|column| Chunk::new(column.clone(), &self.properties)).collect();
        self.group_rows = 0;
    }

    /// Adds texts that rows share, in the order of their numbers.
    pub fn add_texts(&mut self, texts: &[Arc<str>]) {
        self.texts.extend(texts.iter().map(|text| ByteArray::from(text.as_bytes().to_vec())));
    }

    /// Appends rows, whose columns are encoded in parallel if there is a pool.
    pub fn append(&mut self, rows: Rows, pool: Option<&rayon::ThreadPool>) -> Result<(), ParquetError> {
        let Part { chunks, table, texts, .. } = self;
        let (len, columns) = (rows.len(), rows.into_columns());
        let encode =
            |((chunk, column), of): ((&mut Chunk, &Column), ColumnRows)| chunk.append(column, of, len, texts);
        if let Some(pool) = pool {
            let columns = chunks.par_iter_mut().zip(table.columns()).zip(columns);
            pool.install(|| columns.try_for_each(encode))?;
        } else {
            chunks.iter_mut().zip(table.columns()).zip(columns).try_for_each(encode)?;
        }
        self.group_rows += len;
        if self.group_rows >= GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for chunk in std::mem::take(&mut self.chunks) {
            let (pages, result) = chunk.close()?;
            group.append_column(&pages, result)?;
        }
        group.close()?;
        self.begin_group();
        Ok(())
    }

    /// Writes the end of the file, and returns the output and the number of its rows.
    pub fn finish(mut self) -> Result<(W, u64), ParquetError> {
        if self.group_rows > 0 {
            self.end_group()?;
        }
        let rows = self.file.flushed_row_groups().iter().map(|group| group.num_rows() as u64).sum();
        Ok((self.file.into_inner()?, rows))
    }
}

/// Starts a file, which will have a path when it is complete.
pub(crate) fn create(table: TableId, path: &Path) -> Result<Part<Temporary>, Error> {
    let folder = path.parent().unwrap_or(path);
    let file = fs::create_dir_all(folder).and_then(|()| Temporary::in_folder(folder));
    let file = file.map_err(|error| Error::Io { path: folder.to_owned(), error })?;
    let part = Part::new(Arc::new(table.table()), file);
    part.map_err(|error| Error::Parquet { path: path.to_owned(), error })
}

/// Completes a file. Returns the number of its rows and of its bytes.
pub(crate) fn persist(part: Part<Temporary>, path: &Path) -> Result<(u64, u64), Error> {
    let finished = part.finish();
    let (file, rows) = finished.map_err(|error| Error::Parquet { path: path.to_owned(), error })?;
    let size = file.path().metadata().map_or(0, |metadata| metadata.len());
    file.persist(path).map_err(|error| Error::Io { path: path.to_owned(), error })?;
    Ok((rows, size))
}

/// The pages of a column of a row group.
#[derive(Clone, Debug, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Pages(TrackedWrite<Buffer>);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        SerializedPageWriter::new(&mut self.0).write_page(page)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        Ok(self.0.flush()?)
    }
}

/// One column of the row group that is being written.
struct Chunk {
    writer: ColumnWriter<'static>,
    buffer: Buffer,
}

impl Chunk {
    fn new(column: parquet::schema::types::ColumnDescPtr, properties: &WriterPropertiesPtr) -> Chunk {
        let buffer = Buffer::default();
        let pages = Box::new(Pages(TrackedWrite::new(buffer.clone())));
        let writer = get_column_writer(column, Arc::clone(properties), pages);
        Chunk { writer, buffer }
    }

    fn append(
        &mut self,
        column: &Column,
        of: ColumnRows,
        rows: usize,
        texts: &[ByteArray],
    ) -> Result<(), ParquetError> {
        let present = of.rows.as_deref();
        match (&mut self.writer, of.values) {
            (ColumnWriter::BoolColumnWriter(writer), Values::Numbers(numbers)) => {
                write(writer, rows, present, numbers.iter().map(|&number| number != 0))
            }
            (ColumnWriter::Int32ColumnWriter(writer), Values::Numbers(numbers)) => {
                write(writer, rows, present, numbers.iter().map(|&number| (number as u32).cast_signed()))
            }
            (ColumnWriter::Int64ColumnWriter(writer), Values::Numbers(numbers)) => {
                write(writer, rows, present, numbers.iter().map(|number| number.cast_signed()))
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Values::Texts(bytes, ends)) => {
                let bytes = Bytes::from(bytes);
                let starts = std::iter::once(0).chain(ends.iter().copied());
                let values = starts.zip(&ends).map(|(start, &end)| ByteArray::from(bytes.slice(start..end)));
                write(writer, rows, present, values)
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Values::Shared(numbers)) => {
                write(writer, rows, present, numbers.iter().map(|text| texts[text.index()].clone()))
            }
            _ => Err(ParquetError::General(format!("column {} has another type", column.name))),
        }
    }

    fn close(self) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let result = match self.writer {
            ColumnWriter::BoolColumnWriter(writer) => writer.close(),
            ColumnWriter::Int32ColumnWriter(writer) => writer.close(),
            ColumnWriter::Int64ColumnWriter(writer) => writer.close(),
            ColumnWriter::ByteArrayColumnWriter(writer) => writer.close(),
            _ => Err(ParquetError::General("a column of no type of a table".to_owned())),
        }?;
        let bytes = std::mem::take(&mut *self.buffer.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((bytes.into(), result))
    }
}

/// The rows that are converted and written at once: as many as the writer encodes at once.
const WINDOW: usize = 1024;

/// Writes a column of some rows, of which those in `present` have the values, or all.
fn write<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    rows: usize,
    present: Option<&[u32]>,
    mut values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let (mut window, mut levels) = (Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
    let mut left = present.unwrap_or_default();
    for start in (0..rows).step_by(WINDOW) {
        let end = rows.min(start + WINDOW);
        levels.clear();
        let count = if present.is_some() {
            let of_window = left.partition_point(|&row| (row as usize) < end);
            let (these, rest) = left.split_at(of_window);
            left = rest;
            levels.resize(end - start, 0);
            these.iter().for_each(|&row| levels[row as usize - start] = 1);
            these.len()
        } else {
            end - start
        };
        window.clear();
        window.extend(values.by_ref().take(count));
        writer.write_batch(&window, present.map(|_| &*levels), None)?;
    }
    Ok(())
}

fn schema(table: &Table) -> Result<SchemaType, ParquetError> {
    let fields: Result<Vec<_>, _> =
        table.columns().iter().map(|column| field(column).map(Arc::new)).collect();
    SchemaType::group_type_builder(table.name()).with_fields(fields?).build()
}

fn field(column: &Column) -> Result<SchemaType, ParquetError> {
    let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
    let (physical, logical) = match column.r#type {
        Type::Flag => (Physical::BOOLEAN, None),
        Type::UInt8 => (Physical::INT32, unsigned(8)),
        Type::UInt16 => (Physical::INT32, unsigned(16)),
        Type::UInt32 => (Physical::INT32, unsigned(32)),
        Type::UInt64 => (Physical::INT64, unsigned(64)),
        Type::Int64 => (Physical::INT64, None),
        Type::Time => {
            let time = LogicalType::timestamp(true, TimeUnit::NANOS);
            (Physical::INT64, Some(time))
        }
        Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    SchemaType::primitive_type_builder(column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

fn properties(table: &Table) -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("stackhound ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_size_limit(PAGE_SIZE);
    for column in table.columns() {
        let path = ColumnPath::from(column.name);
        builder = match column.storage {
            Storage::Plain => builder,
            Storage::Ascending => builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Storage::LookUp => builder.set_column_bloom_filter_max_ndv(path, GROUP_ROWS as u64),
            Storage::Distinct => builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path, EnabledStatistics::None),
        };
    }
    Ok(builder.build())
}

/// The level from which smaller files cost much more time.
const ZSTD_LEVEL: i32 = 3;
