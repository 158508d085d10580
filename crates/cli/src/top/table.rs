//! Tables with aligned columns.

use std::io::{self, Write};

use anstyle::Style;
use stackhound_export::escape::{Plain, line};

use crate::output::{counted, cut, cut_middle, row_width};
use crate::palette;

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

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.clone()).collect();
        let mut widths: Vec<usize> = titles.iter().map(|title| title.chars().count()).collect();
        for cells in &self.rows {
            for (width, text) in widths.iter_mut().zip(cells) {
                *width = (*width).max(text.chars().count());
            }
        }
        let hidden = self.fit(&mut widths, row_width());
        for (number, cells) in std::iter::once(&titles).chain(&self.rows).enumerate() {
            let is_heading = number == 0;
            let mut text = String::from(" ");
            for (index, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
                if hidden.contains(&index) {
                    // One mark for all columns that are left out.
                    text += if hidden.last() == Some(&index) { " …" } else { "" };
                    continue;
                }
                let width = widths[index];
                let is_path = cell.contains(['\\', '/']) && !cell.contains(" < ");
                let cell = if is_path { cut_middle(cell, width) } else { cut(cell, width) };
                text += " ";
                text += &match column.is_right {
                    true if is_heading => format!("{:>width$}", Plain(cell)),
                    true => with_dim_unit(&cell, width),
                    false => format!("{:<width$}", Plain(cell)),
                };
            }
            let style = palette::of(if is_heading { palette::HEADING } else { Style::new() });
            writeln!(out, "{style}{}{style:#}", text.trim_end())?;
        }
        Ok(())
    }

    /// Makes rows fit: leaves out the last columns of numbers, except the first column, until there
    /// is space for texts, and shortens texts. Returns the omitted columns, the last one first.
    fn fit(&self, widths: &mut [usize], row_width: usize) -> Vec<usize> {
        let mut hidden = Vec::new();
        let excess = |widths: &[usize], hidden: &[usize], text_max: usize| {
            let shown = widths.iter().enumerate().filter(|(index, _)| !hidden.contains(index));
            let width = |(index, width): (usize, &usize)| match self.columns[index].is_right {
                true => width + 1,
                false => text_max.min(*width) + 1,
            };
            let mark = if hidden.is_empty() { 0 } else { 2 };
            (1 + mark + shown.map(width).sum::<usize>()).saturating_sub(row_width)
        };
        for index in (1..widths.len()).rev().filter(|index| self.columns[*index].is_right) {
            if excess(widths, &hidden, TEXT_KEPT) > 0 {
                hidden.push(index);
            }
        }
        // Longer texts are shortened first.
        while excess(widths, &hidden, usize::MAX) > 0 {
            let texts = widths.iter_mut().zip(&self.columns).filter(|(_, column)| !column.is_right);
            let longest = texts.map(|(width, _)| width).max().filter(|width| **width > TEXT_MIN);
            let Some(longest) = longest else { break };
            *longest -= 1;
        }
        hidden
    }
}

/// A number aligned to the right, with its unit, such as that of `12.3 %`, in the color of units.
fn with_dim_unit(cell: &str, width: usize) -> String {
    let cell = format!("{:>width$}", Plain(cell));
    match cell.rsplit_once(' ') {
        Some((number, unit)) if !number.trim().is_empty() => {
            let style = palette::of(palette::UNIT);
            format!("{number} {style}{unit}{style:#}")
        }
        _ => cell,
    }
}

/// The title of the column with the share of everything that a filter selects.
pub const SHOWN: &str = "SHOWN %";

/// The width of a text for which columns of numbers are left out, and the least width of a text.
const TEXT_KEPT: usize = 24;
const TEXT_MIN: usize = 8;

/// A number, and what it is a number of: of one, and of several.
pub type Note = (u64, &'static str, &'static str);

/// Writes a line for each note whose number is not 0.
pub fn notes(out: &mut impl Write, notes: impl IntoIterator<Item = Note>) -> io::Result<()> {
    let mut notes = notes.into_iter().filter(|(count, ..)| *count > 0);
    notes.try_for_each(|(count, one, many)| line(out, format_args!("  {}", counted(count, one, many))))
}

/// Nanoseconds as seconds with milliseconds.
pub fn seconds(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000_000_000, nanos / 1_000_000 % 1000)
}

/// Nanoseconds with a unit: milliseconds below one second, which are not cut to 0.
pub fn duration(nanos: u64) -> String {
    match nanos {
        0..1_000_000_000 => format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000),
        _ => format!("{} s", seconds(nanos)),
    }
}

/// A share in percent.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![
            Column::right("%"),
            Column::right("COUNT"),
            Column::right("BYTES"),
            Column::left("USER"),
            Column::left("FILE"),
        ]);
        let path = r"C:\Windows\System32\drivers\etc\hosts";
        table.row(["99.9 %", "1,000", "1,234,567", "ada", path].map(str::to_owned).to_vec());
        table.row(["0.1 %", "1", "2", "a name of 24 characters..", "x"].map(str::to_owned).to_vec());
        table
    }

    #[test]
    fn texts_are_shortened_before_numbers_are_left_out() {
        let table = table();
        let whole = [6, 5, 9, 25, 37];
        for (row_width, hidden, widths) in [
            (200, &[][..], [6, 5, 9, 25, 37]),
            (88, &[], [6, 5, 9, 25, 37]),
            (80, &[], [6, 5, 9, 25, 29]),
            (74, &[], [6, 5, 9, 24, 24]),
            (70, &[2], [6, 5, 9, 25, 27]),
            (40, &[2, 1], [6, 5, 9, 14, 14]),
            (10, &[2, 1], [6, 5, 9, 8, 8]),
        ] {
            let mut found = whole;
            assert_eq!(table.fit(&mut found, row_width), hidden, "{row_width}");
            assert_eq!(found.iter().sum::<usize>(), widths.iter().sum::<usize>(), "{row_width}: {found:?}");
            assert_eq!(found[..3], widths[..3], "{row_width}");
        }
    }
}
