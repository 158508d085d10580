//! The tables of `docs/baselines.md`: figures, names that differ, differences and their causes.
//!
//! A table is known by the heading above it. Cells may be set in backticks; `\|` is a bar in a cell. Where a pattern is
//! allowed, `*` stands for any text. The last cell of most rows is for people and is not looked at.

use std::fmt;

/// What is compared and how it came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// `EVENT` lines.
    pub lines: u64,
    /// Lines whose event was found.
    pub found: u64,
    /// Lines whose event has a schema.
    pub decoded: u64,
    /// Values of those lines, without the empty ones for which we have no field.
    pub values: u64,
    /// Values that are equal.
    pub equal: u64,
    /// Values that are not.
    pub different: u64,
}

impl Figures {
    /// How many of a thousand values are equal.
    pub fn equal_of_a_thousand(&self) -> u64 {
        self.equal * 1000 / self.values.max(1)
    }

    /// What the page has in its row.
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

/// Everything that the page says.
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

/// From which of our fields one of Microsoft's comes, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Derivation {
    /// Paths of fields, see [`Fields`](crate::fields::Fields).
    pub sources: Vec<String>,
    /// What is done with them.
    pub how: String,
}

impl Explanations {
    /// # Panics
    /// If a table is missing or has a row of another width.
    pub fn parse(page: &str) -> Explanations {
        Explanations {
            figures: table(page, "Figures", 8),
            events: table(page, "Events under other names", 2),
            fields: table(page, "Fields under other names", 4),
            differences: table(page, "Differences", 5),
            counts: table(page, "Counts", 5),
        }
    }

    /// What we call an event of Microsoft's. A row whose both names end in `/*` is for all events of that beginning.
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

    /// How to get at a field of Microsoft's, if not under its own name.
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

    /// Whether a difference between two counts is explained, with just these counts.
    pub fn explains_count(&mut self, etl_file: &str, event: &str, theirs: u64, ours: u64) -> bool {
        let cells = [etl_file, event, &theirs.to_string(), &ours.to_string()];
        find(&mut self.counts, |row| row.iter().zip(cells).all(|(known, cell)| known == cell)).is_some()
    }

    /// Whether the page has these figures.
    pub fn states(&mut self, etl_file: &str, figures: &Figures) -> bool {
        let cells: Vec<String> = [etl_file.to_owned()].into_iter().chain(figures.cells()).collect();
        find(&mut self.figures, |row| *row == cells).is_some()
    }

    /// The rows that were of no use.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let tables = [&self.figures, &self.events, &self.fields, &self.differences, &self.counts];
        let rows = tables.into_iter().flatten().filter(|row| !row.used);
        rows.map(|row| format!("covers nothing: {}", row.cells.join(" | ")))
    }
}

/// The first row that is wanted, which is then used.
fn find(rows: &mut [Row], wanted: impl Fn(&[String]) -> bool) -> Option<&[String]> {
    let row = rows.iter_mut().find(|row| wanted(&row.cells))?;
    row.used = true;
    Some(&row.cells)
}

/// The rows of the table under a heading, without its own head.
fn table(page: &str, heading: &str, width: usize) -> Vec<Row> {
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let section = section.unwrap_or_else(|| panic!("docs/baselines.md has no section {heading}"));
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells = cells(line);
        assert_eq!(cells.len(), width, "a row of another width in {heading}: {line}");
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

/// Whether a text is what a pattern says, in which `*` stands for any text.
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
