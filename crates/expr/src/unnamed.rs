//! Tests of functions whose module is known, and whose name is not.
//!
//! A test is decided if all names have the same answer. The names that are possible are texts of at
//! least one character, with `!` only at the end of `operator!`, as in the names of C++. A pattern
//! allows it only if it contains this word: otherwise `nt*!*File` could be an operator of any module.

use std::cmp::Ordering;

use crate::needle::{Needle, Part};
use crate::syntax::Case;
use crate::text::{Glob, Piece};

/// After this text, a name can contain `!`.
const BEFORE_MARK: &[char] = &['o', 'p', 'e', 'r', 'a', 't', 'o', 'r'];

/// How much of [`BEFORE_MARK`] the last characters of a name are: from 0 to all of it.
type Progress = usize;

const STATES: usize = BEFORE_MARK.len() + 1;

/// A pattern, and whether names can be the rest of it.
#[derive(Clone, Debug)]
pub(crate) struct NamePattern {
    glob: Glob,
    /// For each number of pieces that the text before the name matches: the answer for the names
    /// after it.
    rests: Box<[Rest]>,
}

/// The names that match the remaining pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rest {
    None,
    /// Some of them, depending on their characters.
    Some,
    /// Those with this number of characters.
    Length(usize),
    /// Those with at least this number of characters.
    AtLeast(usize),
}

impl Rest {
    /// `None` if the answer depends on characters.
    fn of_lengths(pieces: &[Piece]) -> Option<Rest> {
        let count = |piece| pieces.iter().filter(|own| **own == piece).count();
        let length = count(Piece::AnyCharacter);
        let any_texts = count(Piece::AnyText);
        if length + any_texts < pieces.len() {
            return None;
        }
        Some(match any_texts {
            0 if length == 0 => Rest::None,
            0 => Rest::Length(length),
            _ => Rest::AtLeast(length),
        })
    }
}

impl NamePattern {
    pub(crate) fn new(glob: Glob) -> NamePattern {
        let pieces = glob.pieces();
        let has_mark = contains_mark(pieces, glob.case());
        // Whether some name, of which one state is known, can continue so that it matches.
        let mut ends = vec![[true; STATES]];
        let mut rests = vec![Rest::None];
        for at in (0..pieces.len()).rev() {
            let next = ends[ends.len() - 1];
            let mut own = [false; STATES];
            for (progress, own) in own.iter_mut().enumerate() {
                *own = match pieces[at] {
                    // It can match any part of the text before a mark.
                    Piece::AnyText if has_mark => next.contains(&true),
                    Piece::AnyText => next[0] || next[progress],
                    piece => step(piece, glob.case(), progress).is_some_and(|step| next[step]),
                };
            }
            ends.push(own);
            let by_characters = if own[0] { Rest::Some } else { Rest::None };
            rests.push(Rest::of_lengths(&pieces[at..]).unwrap_or(by_characters));
        }
        rests.reverse();
        // A `*` can match the end of the text before the name and the start of the name.
        for (at, piece) in pieces.iter().enumerate() {
            if *piece == Piece::AnyText {
                rests[at + 1] = rests[at];
            }
        }
        NamePattern { glob, rests: rests.into() }
    }

    pub(crate) fn of_needle(needle: &Needle, part: Part) -> NamePattern {
        let before = matches!(part, Part::End | Part::Anywhere).then_some(Piece::AnyText);
        let after = matches!(part, Part::Start | Part::Anywhere).then_some(Piece::AnyText);
        let characters = needle.text().chars().map(Piece::Character);
        let pieces = before.into_iter().chain(characters).chain(after).collect();
        NamePattern::new(Glob::of_pieces(pieces, needle.case()))
    }

    /// Whether the function of `module` matches; `None` if that depends on its name.
    fn matches(&self, module: &str) -> Option<bool> {
        let mut answer = Some(false);
        // A bit for each number of characters, from 1: whether all names with as many match.
        let mut lengths = 0_u64;
        for (length, &rest) in self.rests.iter().enumerate() {
            if rest == Rest::None || !self.glob.starts_as(length, before_name(module)) {
                continue;
            }
            answer = None;
            lengths |= match rest {
                Rest::Length(length @ 1..64) => 1 << (length - 1),
                Rest::AtLeast(length @ ..=64) => u64::MAX << length.saturating_sub(1),
                _ => 0,
            };
        }
        // Bit 63, for longer names, is only set by `AtLeast`.
        if lengths == u64::MAX { Some(true) } else { answer }
    }
}

/// Whether the function of `module` matches one of the patterns; `None` if that depends on its name.
pub(crate) fn matches_any(patterns: &[NamePattern], module: &str) -> Option<bool> {
    let mut answer = Some(false);
    for pattern in patterns {
        match pattern.matches(module) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => answer = None,
        }
    }
    answer
}

/// The order of the function of `module` relative to a text; `None` if that depends on its name.
pub(crate) fn order(module: &str, text: &str) -> Option<Ordering> {
    let mut text = text.chars();
    for character in before_name(module) {
        match text.next().map(|other| character.cmp(&other)) {
            Some(Ordering::Equal) => {}
            Some(order) => return Some(order),
            None => return Some(Ordering::Greater),
        }
    }
    if text.next().is_none() { Some(Ordering::Greater) } else { None }
}

/// The text before the name.
fn before_name(module: &str) -> impl Iterator<Item = char> + Clone {
    let mark = if module.is_empty() { None } else { Some('!') };
    module.chars().chain(mark)
}

/// Whether a pattern contains `operator!` if each `*` matches nothing.
fn contains_mark(pieces: &[Piece], case: Case) -> bool {
    let own: Vec<Option<char>> = pieces
        .iter()
        .filter(|piece| **piece != Piece::AnyText)
        .map(|piece| match piece {
            Piece::Character(character) => Some(prepared(*character, case)),
            _ => None,
        })
        .collect();
    let mark: Vec<Option<char>> = BEFORE_MARK.iter().copied().chain(['!']).map(Some).collect();
    own.windows(mark.len()).any(|window| window == mark)
}

fn prepared(character: char, case: Case) -> char {
    match case {
        Case::Sensitive => character,
        Case::Ignored => character.to_lowercase().next().unwrap_or(character),
    }
}

/// The state after a piece that stands for at least one character; `None` if no name continues so.
fn step(piece: Piece, case: Case, progress: Progress) -> Option<Progress> {
    let Piece::Character(character) = piece else { return Some(0) };
    let character = prepared(character, case);
    match BEFORE_MARK.get(progress) {
        None if character == '!' => Some(0),
        _ if character == '!' => None,
        Some(expected) if *expected == character => Some(progress + 1),
        // The second `o` can also be the first one.
        _ if progress == 7 && character == BEFORE_MARK[1] => Some(2),
        _ => Some(usize::from(character == BEFORE_MARK[0])),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::encoding::Text;

    /// All names of at most four parts with at most two marks, as patterns. `x` is in no pattern.
    fn names() -> Vec<String> {
        let parts = ["a", "b", "A", "B", "x", "operator", "r", "operator!"];
        let mut names = vec![String::new()];
        let mut last = 0;
        for _ in 0..4 {
            let until = names.len();
            for index in last..until {
                names.extend(parts.map(|part| names[index].clone() + part));
            }
            last = until;
        }
        names.remove(0);
        names.retain(|name| name.matches('!').count() <= 2);
        names
    }

    /// By definition: the answers of all names.
    fn by_definition(names: &[&String], module: &str, test: impl Fn(&str) -> bool) -> Option<bool> {
        let mut answers = names.iter().map(|name| match module {
            "" => test(name.as_str()),
            module => test(&format!("{module}!{name}")),
        });
        let first = answers.next().expect("a name");
        answers.all(|answer| answer == first).then_some(first)
    }

    #[test]
    fn rows() {
        let rows = [
            ("ntdll.dll!Nt*", "zzz.dll", Some(false)),
            ("ntdll.dll!Nt*", "ntdll.dll", None),
            ("ntdll.dll!Nt*", "", Some(false)),
            ("ntdll.dll!*", "ntdll.dll", Some(true)),
            ("ntdll.dll!?*", "ntdll.dll", Some(true)),
            ("ntdll.dll!??*", "ntdll.dll", None),
            ("n*!Nt*", "win32u.dll", Some(false)),
            ("*!Nt*", "win32u.dll", None),
            ("*!Nt*", "", Some(false)),
            ("*??", "a", Some(true)),
            ("*????", "a", None),
            ("Nt*", "ntdll.dll", Some(false)),
            ("Nt*", "ntdll", Some(false)),
            ("Nt*", "", None),
            ("operator!=", "", None),
            ("app.exe!operator!=", "app.exe", None),
            ("app.exe!operator!=", "", Some(false)),
            ("nt*!*File", "", Some(false)),
            ("*operator!=*", "", None),
            ("operator*!", "operator", None),
            ("nt*!", "ntdll", Some(false)),
            ("ntdll.dll", "ntdll.dll", Some(false)),
            ("ntdll.dll!", "ntdll.dll", Some(false)),
            ("*", "ntdll.dll", Some(true)),
            ("", "", Some(false)),
        ];
        for (pattern, module, expected) in rows {
            let own = NamePattern::new(Glob::new(pattern, Case::Sensitive));
            assert_eq!(matches_any(&[own], module), expected, "{pattern} {module}");
        }
    }

    #[test]
    fn answers_are_those_of_all_names() {
        let names = names();
        let pattern = vec(select(vec!["a", "b", "B", "*", "?", "!", "operator", "r!"]), 0..5);
        let module = select(vec!["", "a", "ab", "Ba.b", "operator"]);
        let case = select(vec![Case::Sensitive, Case::Ignored]);
        let config = Config { failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&(pattern, module, case), |(pattern, module, case)| {
                let pattern = pattern.concat();
                let possible = |text: &str| -> Vec<&String> {
                    let has_operator = case.prepare(text).contains(&*case.prepare("operator!"));
                    names.iter().filter(|name| has_operator || !name.contains('!')).collect()
                };
                let names = possible(&pattern.replace('*', ""));
                let glob = Glob::new(&pattern, case);
                let expected = by_definition(&names, module, |text| glob.matches(Text::Utf8(text)));
                prop_assert_eq!(
                    matches_any(&[NamePattern::new(glob)], module),
                    expected,
                    "{} {}",
                    pattern,
                    module
                );
                // The names that are tried contain none of them.
                let text = pattern.replace(['*', '?'], "a");
                let names = possible(&text);
                let needle = Needle::new(&text, case);
                for part in [Part::Whole, Part::Start, Part::End, Part::Anywhere] {
                    let expected = by_definition(&names, module, |text| needle.is_in(part, Text::Utf8(text)));
                    let own = NamePattern::of_needle(&needle, part);
                    prop_assert_eq!(matches_any(&[own], module), expected, "{:?} {} {}", part, text, module);
                }
                let expected = by_definition(&names, module, |name| name < text.as_str());
                let own = order(module, &text).map(Ordering::is_lt);
                prop_assert!(
                    own.is_none() || own == expected,
                    "{} {}: {:?} {:?}",
                    text,
                    module,
                    own,
                    expected
                );
                Ok(())
            })
            .unwrap();
    }
}
