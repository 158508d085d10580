//! Reads columns of tables that were written before.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::Error;

/// A file of a table.
pub(crate) struct TableFile {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

impl TableFile {
    pub fn open(path: &Path) -> Result<TableFile, Error> {
        let file = File::open(path).map_err(|error| Error::Io { path: path.to_owned(), error })?;
        let reader = SerializedFileReader::new(file);
        let reader = reader.map_err(|error| Error::Parquet { path: path.to_owned(), error })?;
        Ok(TableFile { path: path.to_owned(), reader })
    }

    /// The row groups, each of which is read into memory column by column.
    pub fn groups(&self) -> impl Iterator<Item = Result<Group<'_>, Error>> {
        (0..self.reader.num_row_groups()).map(|number| {
            let group = self.reader.get_row_group(number).map_err(|error| self.error(error))?;
            Ok(Group { file: self, group })
        })
    }

    fn error(&self, error: ParquetError) -> Error {
        Error::Parquet { path: self.path.clone(), error }
    }
}

/// A row group of a file.
pub(crate) struct Group<'f> {
    file: &'f TableFile,
    group: Box<dyn RowGroupReader + 'f>,
}

impl Group<'_> {
    /// The values of a column of numbers or truth values.
    pub fn numbers(&self, column: &'static str) -> Result<Vec<Option<u64>>, Error> {
        match self.column(column)? {
            ColumnReader::BoolColumnReader(reader) => self.values(reader, u64::from),
            ColumnReader::Int32ColumnReader(reader) => {
                self.values(reader, |value| u64::from(value.cast_unsigned()))
            }
            ColumnReader::Int64ColumnReader(reader) => self.values(reader, i64::cast_unsigned),
            _ => Err(self.other_type(column)),
        }
    }

    /// The values of a column of texts.
    pub fn texts(&self, column: &'static str) -> Result<Vec<Option<String>>, Error> {
        let ColumnReader::ByteArrayColumnReader(reader) = self.column(column)? else {
            return Err(self.other_type(column));
        };
        self.values(reader, |value| String::from_utf8_lossy(value.data()).into_owned())
    }

    fn column(&self, name: &'static str) -> Result<ColumnReader, Error> {
        let columns = self.group.metadata().schema_descr().columns().iter();
        let position = columns.enumerate().find(|(_, column)| column.path().parts() == [name]);
        let Some((index, _)) = position else {
            return Err(self.unexpected(format!("expected a column named {name}")));
        };
        self.group.get_column_reader(index).map_err(|error| self.file.error(error))
    }

    fn values<T: DataType, V>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        convert: impl Fn(T::T) -> V,
    ) -> Result<Vec<Option<V>>, Error> {
        let rows = self.group.metadata().num_rows() as usize;
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let mut read = 0;
        while read < rows {
            let (records, ..) = reader
                .read_records(rows - read, Some(&mut levels), None, &mut values)
                .map_err(|error| self.file.error(error))?;
            if records == 0 {
                return Err(self.unexpected(format!("expected {rows} rows, found {read}")));
            }
            read += records;
        }
        let mut values = values.into_iter().map(convert);
        if levels.is_empty() {
            return Ok(values.map(Some).collect());
        }
        Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
    }

    fn other_type(&self, column: &str) -> Error {
        self.unexpected(format!("expected another type of the column {column}"))
    }

    fn unexpected(&self, message: String) -> Error {
        self.file.error(ParquetError::General(message))
    }
}
