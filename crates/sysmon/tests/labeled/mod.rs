//! The evaluated rows of the corpus with their lines, which have the labels of the rows.

use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound_detect::{Binaries, Detector};
use stackhound_frames::Lists;
use stackhound_sysmon::{Evaluated, Found, Sysmon};

/// Evaluates files of the corpus, and collects what `row` makes of each row and its line; `None` if
/// the corpus is absent.
pub fn rows<T>(
    names: &[&str],
    lists: Lists,
    mut row: impl FnMut(&Evaluated<'_>, &str, &str) -> T,
) -> Option<Vec<T>> {
    let mut detector = Detector::new(lists, Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    let mut rows = Vec::new();
    for name in names {
        let text = stackhound_corpus::text(&format!("calltrace/{name}"))?;
        let mut lines = text.lines();
        let totals = sysmon.hunt(Cursor::new(&text), name, &mut detector, |found| {
            let Found::Evaluated(evaluated) = found else { panic!("{found:?}") };
            rows.push(row(&evaluated, name, lines.next().expect("a line for each row")));
            ControlFlow::Continue(())
        });
        let totals = totals.expect("a file that can be read");
        assert!(lines.next().is_none(), "each row is evaluated");
        assert_eq!((totals.unreadable, totals.damaged_stacks, totals.other), (0, 0, 0));
    }
    Some(rows)
}
