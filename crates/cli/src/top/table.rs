//! Tables with aligned columns.

use std::io::{self, Write};
use std::iter;

use anstyle::Style;
use stackhound_export::escape::{Plain, line};

use crate::output::{counted, cut, cut_middle, row_width};
use crate::palette;

/// A column: its title, and its cell of a row.
struct Column<'c, R> {
    title: String,
    is_right: bool,
    cell: Box<dyn Fn(&R) -> String + 'c>,
}

/// The columns of rows, which are written when the widths of all columns are known. The last column is
/// never padded.
pub struct Table<'c, R> {
    columns: Vec<Column<'c, R>>,
}

impl<'c, R> Table<'c, R> {
    pub fn new() -> Table<'c, R> {
        Table { columns: Vec::new() }
    }

    /// Adds a column of numbers.
    pub fn right(&mut self, title: impl Into<String>, cell: impl Fn(&R) -> String + 'c) {
        self.columns.push(Column { title: title.into(), is_right: true, cell: Box::new(cell) });
    }

    /// Adds a column of texts.
    pub fn left(&mut self, title: impl Into<String>, cell: impl Fn(&R) -> String + 'c) {
        self.columns.push(Column { title: title.into(), is_right: false, cell: Box::new(cell) });
    }

    pub fn write<'r>(&self, out: &mut impl Write, rows: impl IntoIterator<Item = &'r R>) -> io::Result<()>
    where
        R: 'r,
    {
        let titles = self.columns.iter().map(|column| column.title.clone()).collect();
        let cells = |row| self.columns.iter().map(|column| (column.cell)(row)).collect();
        let rows: Vec<Vec<String>> = iter::once(titles).chain(rows.into_iter().map(cells)).collect();
        let mut widths = vec![0; self.columns.len()];
        for cells in &rows {
            for (width, text) in widths.iter_mut().zip(cells) {
                *width = (*width).max(text.chars().count());
            }
        }
        let hidden = self.fit(&mut widths, row_width());
        for (number, cells) in rows.iter().enumerate() {
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

    fn table() -> Table<'static, ()> {
        let mut table = Table::new();
        for title in ["%", "COUNT", "BYTES"] {
            table.right(title, |()| String::new());
        }
        for title in ["USER", "FILE"] {
            table.left(title, |()| String::new());
        }
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
