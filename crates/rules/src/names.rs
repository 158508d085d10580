//! How Fibratus spells enumerated values and flags.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Numbers with their names.
pub type Names = &'static [(u64, &'static str)];

const TEXT: &str = include_str!("names.txt");

static LISTS: LazyLock<HashMap<&str, Vec<(u64, &str)>>> = LazyLock::new(|| {
    let mut lists: HashMap<&str, Vec<(u64, &str)>> = HashMap::new();
    let mut list = "";
    for line in TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(row) => {
                let row = read(row).unwrap_or_else(|| panic!("names.txt: {line}"));
                lists.entry(list).or_default().push(row);
            }
            None => list = line,
        }
    }
    lists
});

/// A number with its name.
fn read(row: &'static str) -> Option<(u64, &'static str)> {
    let (number, name) = row.split_once(' ')?;
    let number = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => number.parse(),
    };
    Some((number.ok()?, name))
}

/// The list with a name in the table (`names.txt`).
pub fn list(name: &str) -> Option<Names> {
    LISTS.get(name).map(Vec::as_slice)
}

/// The name of a number.
pub fn name(names: Names, number: u64) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The names of the flags in a number, in the order of the table. What a name covers is not named
/// again; a flag of 0 is only named if the whole number is 0.
pub fn flags(names: Names, number: u64) -> impl Iterator<Item = &'static str> {
    let (mut left, is_zero) = (number, number == 0);
    names.iter().filter_map(move |(flag, name)| {
        let is_set = if *flag == 0 { is_zero } else { left & flag == *flag };
        if is_set {
            left &= !flag;
        }
        is_set.then_some(*name)
    })
}

/// The class that sets the size on disk.
pub const INFO_ALLOCATION: u64 = 19;
/// The class that sets the size.
pub const INFO_END_OF_FILE: u64 = 20;
/// The class that deletes the file.
pub const INFO_DISPOSITION: u64 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the public tests of Fibratus: texts of numbers in the upper half of the field.
    #[test]
    fn protections_of_views() {
        let text =
            |number: u64| flags(list("view-protections").unwrap(), number).collect::<Vec<_>>().join("|");
        assert_eq!(text(4_653_056), "EXECUTE_READWRITE|READONLY");
        assert_eq!(text(12_845_056), "READWRITE");
        assert_eq!(text(0x3_0000), "READONLY|EXECUTE");
    }

    #[test]
    fn flags_are_named_once() {
        let text = |name, number| flags(list(name).unwrap(), number).collect::<Vec<_>>().join("|");
        assert_eq!(text("process-access", 0x1f_ffff), "ALL_ACCESS");
        assert_eq!(text("process-access", 0x1410), "VM_READ|QUERY_INFORMATION|QUERY_LIMITED_INFORMATION");
        assert_eq!(text("shares", 0), "DENY");
        assert_eq!(text("shares", 7), "READ|WRITE|DELETE");
    }
}
