//! Tables with aligned columns.

use std::io::{self, Write};

use stackhound_export::escape::{Plain, line};

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    is_right: bool,
}

impl Column {
    /// A column of numbers.
    pub fn right(title: impl Into<String>) -> Column {
        Column { title: title.into(), is_right: true }
    }

    /// A column of texts.
    pub fn left(title: impl Into<String>) -> Column {
        Column { title: title.into(), is_right: false }
    }
}

/// Rows, which are written when the widths of all columns are known. The last column is never
/// padded.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: Vec<Column>) -> Table {
        Table { columns, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.clone()).collect();
        let mut widths: Vec<usize> = titles.iter().map(|title| title.chars().count()).collect();
        for cells in &self.rows {
            for (width, text) in widths.iter_mut().zip(cells) {
                *width = (*width).max(text.chars().count());
            }
        }
        for cells in std::iter::once(&titles).chain(&self.rows) {
            let mut text = String::from(" ");
            for ((column, cell), &width) in self.columns.iter().zip(cells).zip(&widths) {
                text += " ";
                text += &if column.is_right {
                    format!("{:>width$}", Plain(cell))
                } else {
                    format!("{:<width$}", Plain(cell))
                };
            }
            line(out, format_args!("{}", text.trim_end()))?;
        }
        Ok(())
    }
}

/// Nanoseconds as seconds with milliseconds.
pub fn seconds(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000_000_000, nanos / 1_000_000 % 1000)
}

/// A share in percent.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}
