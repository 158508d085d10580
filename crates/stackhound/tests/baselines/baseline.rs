//! TraceEvent's output: one line per event, then one line per kind of event with its count.

use std::collections::BTreeMap;

/// The text for one trace.
#[derive(Debug)]
pub struct Baseline {
    /// The first five events of each kind, in time order.
    pub lines: Vec<Line>,
    /// The number of events of each kind.
    pub counts: BTreeMap<String, u64>,
}

/// One `EVENT` line.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// Microseconds since the session's start, rounded.
    pub time: i64,
    /// Provider and event, such as `Windows Kernel/Image/Load`.
    pub event: String,
    pub processor: u16,
    /// Length of the payload.
    pub length: usize,
    /// All values with their names, as printed in the line, including those of the header.
    pub values: Vec<(String, String)>,
}

impl Baseline {
    /// # Panics
    /// If a line has another form.
    pub fn parse(text: &str) -> Baseline {
        let mut baseline = Baseline { lines: Vec::new(), counts: BTreeMap::new() };
        for line in text.trim_start_matches('\u{feff}').lines() {
            let parsed = match line.split_once(' ') {
                Some(("EVENT", rest)) => Line::parse(rest).map(|line| baseline.lines.push(line)),
                Some(("COUNT", rest)) => count(rest).map(|(event, number)| {
                    baseline.counts.insert(event, number);
                }),
                _ => None,
            };
            parsed.unwrap_or_else(|| panic!("neither an EVENT nor a COUNT line: {line}"));
        }
        baseline
    }
}

fn count(text: &str) -> Option<(String, u64)> {
    let (event, number) = text.rsplit_once(':')?;
    Some((event.to_owned(), number.parse().ok()?))
}

/// Number of values in a line that belong to the header.
const N_HEADER_VALUES: usize = 5;

impl Line {
    /// The values of the event's header.
    pub fn header(&self) -> &[(String, String)] {
        &self.values[..N_HEADER_VALUES]
    }

    /// The values of the payload.
    pub fn payload(&self) -> &[(String, String)] {
        &self.values[N_HEADER_VALUES..]
    }

    /// Parses a line such as `1,581.386: Provider/Task/Opcode PID=2876; TID=3016; PName=explorer;
    /// ProceNum=4; DataLen=4; Message=19; `.
    fn parse(text: &str) -> Option<Line> {
        let (time, rest) = text.split_once(": ")?;
        let (milliseconds, microseconds) = time.split_once('.')?;
        let time = format!("{milliseconds}{microseconds}").replace(',', "").parse().ok()?;
        let (event, rest) = rest.split_at(rest.find(" PID=")?);
        let values = values(rest);
        let value =
            |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let processor = value("ProceNum")?.parse().ok()?;
        let length = value("DataLen")?.parse().ok()?;
        Some(Line { time, event: event.to_owned(), processor, length, values })
    }
}

/// `Name=Value; ` any number of times. A value may contain the separator; a name consists of
/// letters, digits and `_`.
fn values(text: &str) -> Vec<(String, String)> {
    let mut values: Vec<(String, String)> = Vec::new();
    for part in text.trim_start().strip_suffix("; ").unwrap_or_default().split("; ") {
        let is_name = |name: &str| name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
        match part.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, value)) => values.push((name.to_owned(), value.to_owned())),
            None => {
                let (_, value) = values.last_mut().expect("a value that the separator belongs to");
                value.push_str("; ");
                value.push_str(part);
            }
        }
    }
    values
}

#[test]
fn lines_have_values() {
    let line = "EVENT 1,581.386: A B/C/D PID=2876; TID=-1; PName=; ProceNum=4; DataLen=4; Text=a; b c; None=; Cut=x y...; \n\
                COUNT A B/C/D:12\n";
    let baseline = Baseline::parse(line);
    let [line] = &baseline.lines[..] else { panic!("one line: {baseline:?}") };
    assert_eq!((line.time, &*line.event, line.processor, line.length), (1_581_386, "A B/C/D", 4, 4));
    let values: Vec<_> = line.values.iter().map(|(name, value)| format!("{name}|{value}")).collect();
    let expected = "PID|2876 TID|-1 PName| ProceNum|4 DataLen|4 Text|a; b c None| Cut|x y...";
    assert_eq!(values.join(" "), expected);
    assert_eq!(baseline.counts, BTreeMap::from([("A B/C/D".to_owned(), 12)]));
}
