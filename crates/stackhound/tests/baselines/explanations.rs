//! The tables of `docs/baselines.md`: figures, different names, differences and their causes.
//!
//! A table is identified by the heading above it. Cells may be in backticks; `\|` is a bar in a
//! cell. In patterns, `*` matches any text. The last cell of most rows is for readers and is
//! ignored.

use std::fmt;

/// The results of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// `EVENT` lines.
    pub lines: u64,
    /// Lines whose event was found.
    pub found: u64,
    /// Lines whose event has a schema.
    pub decoded: u64,
    /// Values of these lines, without the empty ones for which there is no field.
    pub values: u64,
    /// Values that are equal.
    pub equal: u64,
    /// Values that are different.
    pub different: u64,
}

impl Figures {
    /// The share of equal values in thousandths.
    pub fn equal_of_a_thousand(&self) -> u64 {
        self.equal * 1000 / self.values.max(1)
    }

    /// The cells of the row in the page.
    fn cells(&self) -> [String; 7] {
        let Figures { lines, found, decoded, values, equal, different } = *self;
        let share = self.equal_of_a_thousand();
        let numbers = [lines, found, decoded, values, equal, different].map(|number| number.to_string());
        let [lines, found, decoded, values, equal, different] = numbers;
        [lines, found, decoded, values, equal, different, format!("{}.{} %", share / 10, share % 10)]
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lines, found, decoded, values, equal, different, share] = self.cells();
        write!(f, "{lines} lines, {found} found, {decoded} decoded; ")?;
        write!(f, "{values} values, {equal} equal, {different} different: {share}")
    }
}

/// The contents of the page.
#[derive(Debug)]
pub struct Explanations {
    figures: Vec<Row>,
    events: Vec<Row>,
    fields: Vec<Row>,
    differences: Vec<Row>,
    counts: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    used: bool,
}

/// The fields from which TraceEvent derives a field, and the derivation.
#[derive(Debug, PartialEq, Eq)]
pub struct Derivation {
    /// Paths of fields, see [`Fields`](crate::fields::Fields).
    pub sources: Vec<String>,
    /// The derivation.
    pub how: String,
}

impl Explanations {
    /// # Panics
    /// If a table is missing, or a row has another number of cells.
    pub fn parse(page: &str) -> Explanations {
        Explanations {
            figures: table(page, "Figures", 8),
            events: table(page, "Events under other names", 2),
            fields: table(page, "Fields under other names", 4),
            differences: table(page, "Differences", 5),
            counts: table(page, "Counts", 5),
        }
    }

    /// Our name for an event of TraceEvent. A row whose two names end in `/*` applies to all events
    /// with that prefix.
    pub fn our_event(&mut self, microsoft: &str) -> String {
        for row in &mut self.events {
            let (theirs, ours) = (&row.cells[0], &row.cells[1]);
            let found = match (theirs.strip_suffix('*'), ours.strip_suffix('*')) {
                (Some(theirs), Some(ours)) => {
                    microsoft.strip_prefix(theirs).map(|rest| format!("{ours}{rest}"))
                }
                _ => (theirs == microsoft).then(|| ours.clone()),
            };
            if let Some(name) = found {
                row.used = true;
                return name;
            }
        }
        microsoft.to_owned()
    }

    /// The derivation of a field of TraceEvent, if it does not have the same name here.
    pub fn derivation(&mut self, event: &str, field: &str) -> Option<Derivation> {
        let row = find(&mut self.fields, |cells| matches(&cells[0], event) && cells[1] == field)?;
        let sources = row[2].split(", ").map(str::to_owned).collect();
        Some(Derivation { sources, how: row[3].clone() })
    }

    /// Whether a difference is explained.
    pub fn explains(&mut self, event: &str, field: &str, theirs: &str, ours: &str) -> bool {
        let cells = [event, field, theirs, ours];
        let covers = |row: &[String]| row.iter().zip(cells).all(|(pattern, cell)| matches(pattern, cell));
        find(&mut self.differences, covers).is_some()
    }

    /// Whether a difference between two counts is explained, with exactly these counts.
    pub fn explains_count(&mut self, etl_file: &str, event: &str, theirs: u64, ours: u64) -> bool {
        let cells = [etl_file, event, &theirs.to_string(), &ours.to_string()];
        find(&mut self.counts, |row| row.iter().zip(cells).all(|(known, cell)| known == cell)).is_some()
    }

    /// Whether the page contains these figures.
    pub fn states(&mut self, etl_file: &str, figures: &Figures) -> bool {
        let cells: Vec<String> = [etl_file.to_owned()].into_iter().chain(figures.cells()).collect();
        find(&mut self.figures, |row| *row == cells).is_some()
    }

    /// The rows that were not used.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let tables = [&self.figures, &self.events, &self.fields, &self.differences, &self.counts];
        let rows = tables.into_iter().flatten().filter(|row| !row.used);
        rows.map(|row| format!("covers nothing: {}", row.cells.join(" | ")))
    }
}

/// The first matching row, which is marked as used.
fn find(rows: &mut [Row], wanted: impl Fn(&[String]) -> bool) -> Option<&[String]> {
    let row = rows.iter_mut().find(|row| wanted(&row.cells))?;
    row.used = true;
    Some(&row.cells)
}

/// The rows of the table under a heading, without the header rows.
fn table(page: &str, heading: &str, width: usize) -> Vec<Row> {
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let section = section.unwrap_or_else(|| panic!("docs/baselines.md has no section {heading}"));
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells = cells(line);
        assert_eq!(cells.len(), width, "wrong number of cells in {heading}: {line}");
        Row { cells, used: false }
    })
    .collect()
}

fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{0}";
    let line = line.replace(r"\|", BAR);
    let inner = line.trim_end().strip_prefix('|').and_then(|line| line.strip_suffix('|')).unwrap_or_default();
    let plain = |cell: &str| match cell.trim().strip_prefix('`').and_then(|cell| cell.strip_suffix('`')) {
        Some(code) if !code.contains('`') => code.replace(BAR, "|"),
        _ => cell.trim().replace(BAR, "|"),
    };
    inner.split('|').map(plain).collect()
}

/// Whether a text matches a pattern, in which `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = text.char_indices().map(|(index, _)| index).chain([text.len()]);
            ends.any(|index| matches(rest, &text[index..]))
        }),
    }
}

#[test]
fn rows_have_cells() {
    let rows = table(
        "# Page\n\n## Other\n\n| a |\n|---|\n\n## Counts\n\nText.\n\n| a | b |\n|---|---|\n| `x` | a\\|b `y` |\n",
        "Counts",
        2,
    );
    assert_eq!(rows[0].cells, ["x", "a|b `y`"]);
}

#[test]
fn patterns() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("a", "ab", false),
        ("*", "", true),
        ("a*", "abc", true),
        ("*c", "abcc", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abced", false),
        ("a*a", "a", false),
        ("ä*", "ä…", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}
