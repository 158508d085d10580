//! Which known name a misspelt one may have meant.

/// Names with more characters get no suggestion, since time grows with the square of their length.
const LONGEST: usize = 100;

/// The candidate with the fewest typing errors, if these are few for the length of `name`; the
/// first of several.
///
/// A name without its prefix (`ImageFileName` for `fields.ImageFileName`) counts as no error.
pub fn most_similar<'c>(name: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let characters = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let name = characters(name);
    if name.len() > LONGEST {
        return None;
    }
    let tolerated = (name.len() / 3).max(1);
    let errors = |candidate: &str| {
        let last = candidate.rsplit('.').next().unwrap_or(candidate);
        let similar_length = |text: &Vec<char>| text.len().abs_diff(name.len()) <= tolerated;
        let spellings = [candidate, last].map(characters).into_iter().filter(similar_length);
        spellings.map(|spelling| distance(&name, &spelling)).min().filter(|&errors| errors <= tolerated)
    };
    let scored =
        candidates.iter().filter_map(|candidate| errors(candidate).map(|errors| (errors, *candidate)));
    scored.min_by_key(|(errors, _)| *errors).map(|(_, candidate)| candidate)
}

/// How many characters have to be inserted, removed, replaced or swapped with their neighbour.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, &from) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &to) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(from != to);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && from == right[column - 1] && left[row - 1] == to {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let check = |left: &str, right: &str, expected: usize| {
            let [left, right] = [left, right].map(|text| text.chars().collect::<Vec<_>>());
            assert_eq!(distance(&left, &right), expected, "{left:?} {right:?}");
            assert_eq!(distance(&right, &left), expected, "{right:?} {left:?}");
        };
        check("", "", 0);
        check("", "abc", 3);
        check("pid", "pid", 0);
        check("pdi", "pid", 1);
        check("pd", "pid", 1);
        check("ppid", "tid", 2);
        check("kitten", "sitting", 3);
        check("abcd", "badc", 2);
    }

    #[test]
    fn suggestions() {
        let candidates = ["pid", "tid", "provider", "stack.module", "fields.ImageFileName"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(most_similar(name, &candidates), expected, "{name}");
        };
        check("PID", Some("pid"));
        check("pdi", Some("pid"));
        check("id", Some("pid"));
        check("providor", Some("provider"));
        check("stack.modul", Some("stack.module"));
        check("module", Some("stack.module"));
        check("imagefilename", Some("fields.ImageFileName"));
        check("fields.ImagFileNam", Some("fields.ImageFileName"));
        check("something", None);
        check("", None);
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(most_similar(&long, &[&long]), None);
        assert_eq!(most_similar(&long[1..], &[&long]), Some(long.as_str()));
    }
}
