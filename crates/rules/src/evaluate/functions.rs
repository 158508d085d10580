//! The functions of conditions on texts.

/// The folder of a path by the rules of Windows; `.` for a file name alone.
pub(crate) fn folder(path: &str) -> &str {
    let volume = volume(path).len();
    let (root, rest) = path.split_at(volume);
    match rest.rfind(is_separator) {
        None if root.is_empty() => ".",
        None => root,
        // The root folder keeps its separator.
        Some(0) => &path[..volume + 1],
        Some(at) => &path[..volume + at],
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '\\' | '/')
}

/// The last component of a path.
pub(crate) fn file_name(path: &str) -> &str {
    let path = path.trim_end_matches(is_separator);
    path.rsplit(is_separator).next().unwrap_or(path)
}

/// The file name without its last extension; a name that begins with its only dot has none.
pub(crate) fn file_stem(path: &str) -> &str {
    let name = file_name(path);
    match name.rfind('.') {
        None | Some(0) => name,
        Some(at) => &name[..at],
    }
}

/// The extension of a file name with its dot; empty if there is none.
pub(crate) fn extension(path: &str) -> &str {
    let name = path.rsplit(is_separator).next().unwrap_or(path);
    name.rfind('.').map_or("", |at| &name[at..])
}

/// The volume of a path: `C:`, or `\\host\share`; empty if there is none.
pub(crate) fn volume(path: &str) -> &str {
    let bytes = path.as_bytes();
    if bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' {
        return &path[..2];
    }
    let Some(rest) = path.strip_prefix(r"\\").or_else(|| path.strip_prefix("//")) else { return "" };
    let Some(host) = rest.find(is_separator).filter(|at| *at > 0) else { return "" };
    let share = &rest[host + 1..];
    let end = share.find(is_separator).unwrap_or(share.len());
    if end == 0 { "" } else { &path[..2 + host + 1 + end] }
}

/// Whether a path begins at the root of a volume.
pub(crate) fn is_absolute(path: &str) -> bool {
    let volume = volume(path);
    !volume.is_empty() && (volume.len() > 2 || path[volume.len()..].starts_with(is_separator))
}

/// A part of a text by bytes, the end not included. Positions out of range return the whole text,
/// as does an end at the end of the text.
pub(crate) fn part(text: &str, start: i128, end: Option<i128>) -> &str {
    let at = |position: i128| usize::try_from(position).ok().filter(|position| *position < text.len());
    let range = match (at(start), end) {
        (Some(start), None) => text.get(start..),
        (Some(start), Some(end)) => at(end).and_then(|end| text.get(start..end)),
        (None, _) => None,
    };
    range.unwrap_or(text)
}

/// The byte offset of a text in another one, or of one of its characters; -1 if there is none.
/// `None` if the order is not one of `first`, `last`, `any` and `lastany`.
pub(crate) fn index_of(text: &str, wanted: &str, order: &str) -> Option<i64> {
    let is_wanted = |c: char| wanted.contains(c);
    let found = match order {
        "first" => text.find(wanted),
        "last" => text.rfind(wanted),
        "any" => text.find(is_wanted),
        "lastany" => text.rfind(is_wanted),
        _ => return None,
    };
    Some(found.map_or(-1, |at| at as i64))
}

/// The entropy of a text as Fibratus computes it: bits per character, rounded up, times the number of
/// bytes.
pub(crate) fn entropy(text: &str) -> u64 {
    let mut counts: std::collections::BTreeMap<char, u32> = std::collections::BTreeMap::new();
    text.chars().for_each(|c| *counts.entry(c).or_default() += 1);
    let length = text.chars().count() as f64;
    let bits: f64 = counts
        .values()
        .map(|count| {
            let share = f64::from(*count) / length;
            -share * share.log2()
        })
        .sum();
    bits.ceil() as u64 * text.len() as u64
}

/// Whether the characters of the pattern occur in the text in their order.
pub(crate) fn is_fuzzy(text: impl Iterator<Item = char>, pattern: &str) -> bool {
    let mut wanted = pattern.chars().peekable();
    for c in text {
        if wanted.peek() == Some(&c) {
            wanted.next();
        }
    }
    wanted.peek().is_none()
}

/// The letter without its diacritics, for letters of Latin scripts that have a code point with them.
pub(crate) fn without_diacritics(c: char) -> char {
    const LETTERS: [(char, &str); 46] = [
        ('A', "ÀÁÂÃÄÅĀĂĄǍ"),
        ('C', "ÇĆĈĊČ"),
        ('D', "Ď"),
        ('E', "ÈÉÊËĒĔĖĘĚ"),
        ('G', "ĜĞĠĢǦ"),
        ('H', "Ĥ"),
        ('I', "ÌÍÎÏĨĪĬĮİǏ"),
        ('J', "Ĵ"),
        ('K', "Ķ"),
        ('L', "ĹĻĽ"),
        ('N', "ÑŃŅŇ"),
        ('O', "ÒÓÔÕÖŌŎŐǑ"),
        ('R', "ŔŖŘ"),
        ('S', "ŚŜŞŠȘ"),
        ('T', "ŢŤȚ"),
        ('U', "ÙÚÛÜŨŪŬŮŰŲǓ"),
        ('W', "Ŵ"),
        ('Y', "ÝŶŸ"),
        ('Z', "ŹŻŽ"),
        ('a', "àáâãäåāăąǎ"),
        ('c', "çćĉċč"),
        ('d', "ď"),
        ('e', "èéêëēĕėęě"),
        ('g', "ĝğġģǧ"),
        ('h', "ĥ"),
        ('i', "ìíîïĩīĭįǐ"),
        ('j', "ĵǰ"),
        ('k', "ķ"),
        ('l', "ĺļľ"),
        ('n', "ñńņň"),
        ('o', "òóôõöōŏőǒ"),
        ('r', "ŕŗř"),
        ('s', "śŝşšș"),
        ('t', "ţťț"),
        ('u', "ùúûüũūŭůűųǔ"),
        ('w', "ŵ"),
        ('y', "ýÿŷ"),
        ('z', "źżž"),
        ('B', "Ḃ"),
        ('F', "Ḟ"),
        ('M', "Ṁ"),
        ('P', "Ṗ"),
        ('b', "ḃ"),
        ('f', "ḟ"),
        ('m', "ṁ"),
        ('p', "ṗ"),
    ];
    if c.is_ascii() {
        return c;
    }
    LETTERS.iter().find(|(_, with)| with.contains(c)).map_or(c, |(letter, _)| *letter)
}

/// The arguments of a command line, by the rules of `CommandLineToArgvW`, without the program.
pub fn arguments(command_line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = command_line.trim_start_matches([' ', '\t']);
    // The name of the program has no escapes.
    rest = match rest.strip_prefix('"') {
        Some(quoted) => quoted.find('"').map_or("", |end| &quoted[end + 1..]),
        None => rest.find([' ', '\t']).map_or("", |end| &rest[end..]),
    };
    let mut chars = rest.chars().peekable();
    loop {
        while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        if chars.peek().is_none() {
            return all;
        }
        let (mut argument, mut is_quoted) = (String::new(), false);
        loop {
            let mut backslashes = 0;
            while chars.next_if_eq(&'\\').is_some() {
                backslashes += 1;
            }
            if chars.peek() == Some(&'"') {
                argument.extend(std::iter::repeat_n('\\', backslashes / 2));
                chars.next();
                if backslashes % 2 == 1 || is_quoted && chars.next_if_eq(&'"').is_some() {
                    argument.push('"');
                } else {
                    is_quoted = !is_quoted;
                }
                continue;
            }
            argument.extend(std::iter::repeat_n('\\', backslashes));
            match chars.next_if(|c| is_quoted || !matches!(c, ' ' | '\t')) {
                Some(c) => argument.push(c),
                None => break,
            }
        }
        all.push(argument);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        // Path, folder, file name, stem, extension, volume, whether it is absolute.
        for (path, expected) in [
            (r"C:\a\b.dll", (r"C:\a", "b.dll", "b", ".dll", "C:", true)),
            (r"C:\b.tar.gz", (r"C:\", "b.tar.gz", "b.tar", ".gz", "C:", true)),
            ("C:b", ("C:", "C:b", "C:b", "", "C:", false)),
            ("b", (".", "b", "b", "", "", false)),
            (r"\\host\share\x\.dot", (r"\\host\share\x", ".dot", ".dot", ".dot", r"\\host\share", true)),
            (r"\Device\x", (r"\Device", "x", "x", "", "", false)),
            ("", (".", "", "", "", "", false)),
        ] {
            let found = (
                folder(path),
                file_name(path),
                file_stem(path),
                extension(path),
                volume(path),
                is_absolute(path),
            );
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn positions_are_bytes() {
        for (start, end, expected) in [
            (0, None, "abcdef"),
            (2, None, "cdef"),
            (6, None, "abcdef"),
            (-1, None, "abcdef"),
            (1, Some(3), "bc"),
            (1, Some(6), "abcdef"),
            (3, Some(1), "abcdef"),
        ] {
            assert_eq!(part("abcdef", start, end), expected, "{start} {end:?}");
        }
        assert_eq!(part("äb", 1, None), "äb");
        assert_eq!(index_of("abcabc", "bc", "first"), Some(1));
        assert_eq!(index_of("abcabc", "bc", "last"), Some(4));
        assert_eq!(index_of("abcabc", "xc", "any"), Some(2));
        assert_eq!(index_of("abcabc", "xc", "lastany"), Some(5));
        assert_eq!(index_of("abcabc", "x", "first"), Some(-1));
        assert_eq!(index_of("abcabc", "a", "middle"), None);
    }

    #[test]
    fn entropies() {
        // One bit for each of four bytes; no information in equal characters.
        assert_eq!((entropy("abab"), entropy("aaaa"), entropy("")), (4, 0, 0));
        // 1.585 bits, rounded up.
        assert_eq!(entropy("abc"), 6);
    }

    #[test]
    fn fuzzy_patterns_are_subsequences() {
        let fits = |text: &str, pattern| is_fuzzy(text.chars(), pattern);
        assert!(fits("cartwheel", "cwl") && fits("a", "") && !fits("cartwheel", "lw"));
        let plain: String = "crème brûlée Ž".chars().map(without_diacritics).collect();
        assert_eq!(plain, "creme brulee Z");
    }

    /// Examples of the documentation of `CommandLineToArgvW`.
    #[test]
    fn command_lines_are_split_as_windows_does() {
        for (line, expected) in [
            (r#"test.exe "abc" d e"#, vec!["abc", "d", "e"]),
            (r#"test.exe a\\\b d"e f"g h"#, vec![r"a\\\b", "de fg", "h"]),
            (r#"test.exe a\\\"b c d"#, vec![r#"a\"b"#, "c", "d"]),
            (r#"test.exe a\\\\"b c" d e"#, vec![r"a\\b c", "d", "e"]),
            (r#""C:\Program Files\a.exe" -x"#, vec!["-x"]),
            (r#"a.exe """#, vec![""]),
            ("a.exe", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(arguments(line), expected, "{line}");
        }
    }
}
