//! The columns of a table: names, types and descriptions, from which files and their documentation
//! are made.

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// A truth value.
    Flag,
    /// An unsigned integer of 8 bits.
    UInt8,
    /// An unsigned integer of 16 bits.
    UInt16,
    /// An unsigned integer of 32 bits.
    UInt32,
    /// An unsigned integer of 64 bits.
    UInt64,
    /// A signed integer of 64 bits.
    Int64,
    /// Nanoseconds since 1970 in UTC.
    Time,
    /// Text in UTF-8.
    Text,
}

impl Type {
    /// The spelling in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Type::Flag => "bool",
            Type::UInt8 => "uint8",
            Type::UInt16 => "uint16",
            Type::UInt32 => "uint32",
            Type::UInt64 => "uint64",
            Type::Int64 => "int64",
            Type::Time => "time",
            Type::Text => "text",
        }
    }
}

/// How the values of a column are stored, if a hint makes files smaller or faster to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// As a number of a dictionary, if there are few distinct values.
    Plain,
    /// As the difference from the value before.
    Ascending,
    /// As [`Storage::Plain`], with a Bloom filter.
    LookUp,
    /// As text of which most values are distinct.
    Distinct,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The name in files.
    pub name: &'static str,
    /// The type of the values.
    pub r#type: Type,
    /// Whether a value can be missing.
    pub is_optional: bool,
    /// See [`Storage`].
    pub storage: Storage,
    /// The meaning of a value, and of a missing one.
    pub doc: &'static str,
}

impl Column {
    /// A column that has a value in each row.
    pub fn required(name: &'static str, r#type: Type, doc: &'static str) -> Column {
        Column { name, r#type, is_optional: false, storage: Storage::Plain, doc }
    }

    /// A column of which values can be missing.
    pub fn optional(name: &'static str, r#type: Type, doc: &'static str) -> Column {
        Column { is_optional: true, ..Column::required(name, r#type, doc) }
    }

    /// The same column, stored in another way.
    pub fn stored(self, storage: Storage) -> Column {
        Column { storage, ..self }
    }
}

/// A column of numbers, of times or of truth values.
#[derive(Clone, Copy, Debug)]
pub struct NumberColumn(pub(crate) usize);

/// The first column of all tables.
pub(crate) const TRACE: NumberColumn = NumberColumn(0);

/// A column of texts.
#[derive(Clone, Copy, Debug)]
pub struct TextColumn(pub(crate) usize);

/// A column of texts of which few are distinct in a trace.
#[derive(Clone, Copy, Debug)]
pub struct SharedColumn(pub(crate) usize);

/// Where the values of a column come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Numbers,
    Texts,
    Shared,
}

/// A table: its columns in their order.
#[derive(Clone, Debug)]
pub struct Table {
    name: &'static str,
    doc: &'static str,
    columns: Vec<Column>,
    sources: Vec<Source>,
}

impl Table {
    /// A table with the column that all have.
    pub fn new(name: &'static str, doc: &'static str) -> Table {
        let mut table = Table { name, doc, columns: Vec::new(), sources: Vec::new() };
        let trace = Column::required("trace", Type::UInt64, "Id of the trace, from its content.");
        table.number(trace);
        table
    }

    /// The name, which is that of its folder.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What a row is.
    pub fn doc(&self) -> &'static str {
        self.doc
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    fn add(&mut self, column: Column, source: Source) -> usize {
        self.columns.push(column);
        self.sources.push(source);
        self.columns.len() - 1
    }

    /// Adds a column of numbers, of times or of truth values.
    pub(crate) fn number(&mut self, column: Column) -> NumberColumn {
        debug_assert_ne!(column.r#type, Type::Text);
        NumberColumn(self.add(column, Source::Numbers))
    }

    /// Adds a column of texts.
    pub(crate) fn text(&mut self, column: Column) -> TextColumn {
        debug_assert_eq!(column.r#type, Type::Text);
        TextColumn(self.add(column, Source::Texts))
    }

    /// Adds a column of texts of which few are distinct in a trace.
    pub(crate) fn shared(&mut self, column: Column) -> SharedColumn {
        debug_assert_eq!(column.r#type, Type::Text);
        SharedColumn(self.add(column, Source::Shared))
    }
}
