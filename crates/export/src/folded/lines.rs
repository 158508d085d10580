//! Lines of folded stacks, as numbers of labels. A line is compared and written label by label,
//! because all lines together are many times larger than their labels.

use std::cmp::Ordering;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

/// The number of a label: a process, a frame with the functions that were inlined there, or an
/// event.
pub type LabelNumber = u32;

/// Lines of folded stacks.
#[derive(Debug, Default)]
pub struct Lines {
    numbers: FxHashMap<String, LabelNumber>,
    /// The labels of all lines.
    parts: Vec<LabelNumber>,
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    end: usize,
    count: u64,
}

impl Lines {
    /// The number of a label. Its names are separated by semicolons and contain none.
    pub fn label(&mut self, text: String) -> LabelNumber {
        let next = self.numbers.len() as LabelNumber;
        *self.numbers.entry(text).or_insert(next)
    }

    /// Adds a line. Equal lines are merged when they are written.
    pub fn add(&mut self, labels: impl IntoIterator<Item = LabelNumber>, count: u64) {
        let start = self.parts.len();
        self.parts.extend(labels);
        self.lines.push(Line { start, end: self.parts.len(), count });
    }

    /// Writes the lines in the order of their bytes. Counts of equal lines are summed.
    pub fn write(self, out: &mut impl Write) -> io::Result<()> {
        let Lines { numbers, parts, mut lines } = self;
        let sorted = Sorted::new(numbers, parts);
        lines.sort_unstable_by(|a, b| sorted.compare(a, b));
        let mut text = Vec::new();
        for equal in lines.chunk_by(|a, b| sorted.compare(a, b) == Ordering::Equal) {
            let count: u64 = equal.iter().map(|line| line.count).sum();
            text.clear();
            text.extend(bytes(&sorted.labels, sorted.parts(&equal[0])));
            writeln!(text, " {count}")?;
            out.write_all(&text)?;
        }
        Ok(())
    }
}

/// The labels in the order of their bytes followed by a semicolon, which is that of their numbers.
struct Sorted {
    labels: Vec<String>,
    parts: Vec<LabelNumber>,
}

impl Sorted {
    fn new(numbers: FxHashMap<String, LabelNumber>, mut parts: Vec<LabelNumber>) -> Sorted {
        let mut labels: Vec<(String, LabelNumber)> = numbers.into_iter().collect();
        labels.sort_unstable_by(|(a, _), (b, _)| a.bytes().chain([b';']).cmp(b.bytes().chain([b';'])));
        let mut renumbered = vec![0; labels.len()];
        for (new, (_, old)) in (0..).zip(&labels) {
            renumbered[*old as usize] = new;
        }
        parts.iter_mut().for_each(|part| *part = renumbered[*part as usize]);
        Sorted { labels: labels.into_iter().map(|(label, _)| label).collect(), parts }
    }

    fn parts(&self, line: &Line) -> &[LabelNumber] {
        &self.parts[line.start..line.end]
    }

    /// Compares lines by their bytes. The numbers of labels have the order of their bytes if a
    /// semicolon follows both and none is in them.
    fn compare(&self, a: &Line, b: &Line) -> Ordering {
        let (a, b) = (self.parts(a), self.parts(b));
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (a, b) = (&a[common..], &b[common..]);
        let is_one_name = |label: LabelNumber| !self.labels[label as usize].contains(';');
        match (a, b) {
            // A semicolon follows the common labels of the longer line.
            (&[], _) | (_, &[]) => a.len().cmp(&b.len()),
            (&[a, _, ..], &[b, _, ..]) if is_one_name(a) && is_one_name(b) => a.cmp(&b),
            _ => bytes(&self.labels, a).cmp(bytes(&self.labels, b)),
        }
    }
}

/// The bytes of labels, separated by semicolons.
fn bytes<'l>(labels: &'l [String], parts: &'l [LabelNumber]) -> impl Iterator<Item = u8> + 'l {
    parts.iter().enumerate().flat_map(|(index, &part)| {
        let separator = if index == 0 { "" } else { ";" };
        separator.bytes().chain(labels[part as usize].bytes())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn written(stacks: &[(Vec<String>, u64)]) -> String {
        let mut lines = Lines::default();
        for (stack, count) in stacks {
            let labels: Vec<LabelNumber> = stack.iter().map(|text| lines.label(text.clone())).collect();
            lines.add(labels, *count);
        }
        let mut written = Vec::new();
        lines.write(&mut written).unwrap();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn an_empty_label_at_the_end_is_a_label() {
        let stack = |labels: &[&str]| (labels.iter().map(|&label| label.to_owned()).collect(), 1);
        assert_eq!(written(&[stack(&["", ""]), stack(&[""])]), " 1\n; 1\n");
        assert_eq!(written(&[stack(&["a", "", ""]), stack(&["a"]), stack(&["a", ""])]), "a 1\na; 1\na;; 1\n");
    }

    proptest! {
        /// The order is that of the texts of the lines, also where names begin with other names,
        /// and where characters are smaller than a semicolon.
        #[test]
        fn lines_are_sorted_and_merged(
            stacks in prop::collection::vec((prop::collection::vec("[a ~]{0,2}(;[a!]{1,2})?", 1..5), 1..9_u64), 0..40)
        ) {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for (stack, count) in &stacks {
                *expected.entry(stack.join(";")).or_default() += count;
            }
            let expected: String = expected.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect();
            prop_assert_eq!(written(&stacks), expected);
        }
    }
}
