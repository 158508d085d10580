//! Random conditions with random events: the answers are those of the second evaluation.

use std::collections::BTreeMap;

use stackhound_rules::evaluate::Mode;

use crate::chains::answers;
use crate::event::{Data, Datum, Event, List, answer, library, rule_set, text};
use crate::random::Random;

const TEXTS: [&str; 6] = ["ab", "AB", "abc", r"C:\a\ab.exe", r"C:\A\b.dll", ""];
const PATTERNS: [&str; 5] = ["a*", "*B", "?b", r"C:\\a\\*", "*"];
const CONDITIONS: usize = 300;
const EVENTS: usize = 12;

pub struct Writer {
    pub random: Random,
    pub mode: Mode,
}

impl Writer {
    fn pick(&mut self, values: &[&str]) -> String {
        let index = self.random.below(values.len());
        values[index].to_owned()
    }

    /// A condition with parts within each other.
    pub fn condition(&mut self, depth: usize) -> String {
        let next = depth.saturating_sub(1);
        match self.random.below(if depth == 0 { 1 } else { 5 }) {
            0 => self.comparison(),
            1 => format!("({} and {})", self.condition(next), self.condition(next)),
            2 => format!("({} or {})", self.condition(next), self.condition(next)),
            3 => format!("not ({})", self.condition(next)),
            _ => format!("not {}", self.condition(0)),
        }
    }

    fn not(&mut self) -> &'static str {
        if self.random.one_of(3) { "not " } else { "" }
    }

    fn literal(&mut self) -> String {
        self.pick(&TEXTS).replace('\\', r"\\")
    }

    /// A text, or a list of texts.
    fn literals(&mut self, texts: &[&str]) -> String {
        let mut one = || format!("'{}'", self.pick(texts).replace(r"\\", r"\").replace('\\', r"\\"));
        let (first, second) = (one(), one());
        if self.random.one_of(2) { first } else { format!("({first}, {second})") }
    }

    fn text_field(&mut self) -> String {
        self.pick(&["file.name", "ps.name", "evt.arg[exe]"])
    }

    /// A text that is computed.
    fn computed(&mut self) -> String {
        let field = self.text_field();
        let literal = self.literal();
        match self.random.below(8) {
            0 => format!("base({field})"),
            1 => format!("lower({field})"),
            2 => format!("upper({field})"),
            3 => format!("ltrim({field}, '{literal}')"),
            4 => format!("rtrim({field}, '{literal}')"),
            5 => format!("substr({field}, 1, 2)"),
            6 => format!("substr({field}, 1)"),
            _ => format!("ext({field})"),
        }
    }

    fn text_operator(&mut self) -> String {
        let prefix = self.pick(&["", "i"]);
        format!("{prefix}{}", self.pick(&["contains", "startswith", "endswith", "fuzzy"]))
    }

    fn comparison(&mut self) -> String {
        let (field, other, not) = (self.text_field(), self.text_field(), self.not());
        match self.random.below(14) {
            0 => format!("{field} {} '{}'", self.pick(&["=", "!=", "~=", "<>", "<", ">="]), self.literal()),
            1 => format!("{field} {not}{} {}", self.text_operator(), self.literals(&TEXTS)),
            2 => format!("{field} {not}{} {}", self.pick(&["matches", "imatches"]), self.literals(&PATTERNS)),
            3 => format!(
                "{field} {not}{} ('{}', '{}')",
                self.pick(&["in", "iin"]),
                self.literal(),
                self.literal()
            ),
            4 => format!("{field} {} {other}", self.pick(&["=", "!=", "~=", "<"])),
            5 => format!("{field} {not}{} {other}", self.text_operator()),
            6 => format!("{} {} {}", self.computed(), self.pick(&["=", "!=", "~="]), other),
            7 => format!("{} {not}{} '{}'", self.computed(), self.text_operator(), self.literal()),
            8 => {
                let operator = self.pick(&["=", "!=", "<", "<=", ">", ">="]);
                let right = self.pick(&["4", "0", "5", "thread.pid", "length(file.name)"]);
                format!("evt.pid {operator} {right}")
            }
            9 => match self.random.below(4) {
                0 => "file.is_dll".to_owned(),
                1 => format!("file.is_dll = {}", self.pick(&["true", "false"])),
                2 => format!("evt.pid {not}in (4, 5)"),
                _ => format!("regex({field}, '^a', '{}$')", self.pick(&["b", "c"])),
            },
            10 => {
                let operator =
                    self.pick(&["contains", "startswith", "endswith", "matches", "in", "intersects"]);
                let operator = format!("{}{operator}", self.pick(&["", "i"]));
                let right = match operator.ends_with("in") {
                    true => format!("('{}')", self.literal()),
                    false => self.literals(&TEXTS),
                };
                format!("ps.args {not}{operator} {right}")
            }
            11 => format!("length(ps.args) {} 1", self.pick(&["=", "!=", ">", "<="])),
            12 => format!("foreach(ps.args, $a, $a {} '{}')", self.pick(&["=", "!=", "~="]), self.literal()),
            _ => {
                let part = self.element();
                let more = self.element();
                let join = self.pick(&[" and ", " or "]);
                format!("foreach(thread._callstack, $f, {part}{join}{more})")
            }
        }
    }

    fn element(&mut self) -> String {
        let not = self.not();
        match self.random.below(4) {
            0 => format!("$f.symbol {not}imatches '{}'", self.pick(&PATTERNS)),
            1 => format!("$f.module {} '{}'", self.pick(&["=", "!="]), self.literal()),
            2 => format!("$f.allocation_size {} 4", self.pick(&["<", ">", "=", "!="])),
            _ => format!("$f.is_unbacked = {}", self.pick(&["true", "false"])),
        }
    }

    /// A value, or less.
    fn data(&mut self, value: fn(&mut Writer) -> Datum, has_several: bool) -> Data {
        match self.random.below(10) {
            0 => vec![],
            1 => vec![Datum::Unknown],
            // What is known to have no value.
            2 if self.mode == Mode::Strict => vec![Datum::Absent],
            3 if has_several => vec![value(self), Datum::Unknown],
            4 | 5 if has_several => vec![value(self), value(self)],
            _ => vec![value(self)],
        }
    }

    pub fn event(&mut self) -> Event {
        let of_text: fn(&mut Writer) -> Datum = |writer| text(&writer.pick(&TEXTS));
        let of_number: fn(&mut Writer) -> Datum = |writer| Datum::Number(*writer.random.pick(&[0, 2, 4, 5]));
        let of_truth: fn(&mut Writer) -> Datum = |writer| Datum::Truth(writer.random.one_of(2));
        let mut event = Event::new("CreateFile");
        for (field, value) in [
            ("file.name", of_text),
            ("ps.name", of_text),
            ("evt.arg[exe]", of_text),
            ("evt.pid", of_number),
            ("thread.pid", of_number),
            ("file.is_dll", of_truth),
        ] {
            event = event.with(field, self.data(value, false));
        }
        event = event.with("ps.args", self.data(of_text, true));
        let mut list = List { elements: Vec::new(), is_complete: self.random.one_of(2) };
        for _ in 0..self.random.below(3) {
            let mut element = BTreeMap::new();
            for (part, value) in [
                ("symbol", of_text),
                ("module", of_text),
                ("allocation_size", of_number),
                ("is_unbacked", of_truth),
            ] {
                element.insert(part.to_owned(), self.data(value, false));
            }
            list.elements.push(element);
        }
        event.lists.insert("thread._callstack".to_owned(), list);
        event
    }
}

fn compare(mode: Mode) {
    let mut writer = Writer { random: Random(7), mode };
    let mut different = Vec::new();
    let mut counts = BTreeMap::new();
    for _ in 0..CONDITIONS {
        let depth = writer.random.below(4);
        let condition = format!("evt.name = 'CreateFile' and {}", writer.condition(depth));
        let library = library(&condition);
        let tree = &library.rules[0].condition.as_ref().unwrap().tree;
        let mut set = rule_set(&library, mode);
        for _ in 0..EVENTS {
            let event = writer.event();
            let expected = answers(tree, mode, std::slice::from_ref(&event))[0];
            let found = answer(&mut set, &event);
            *counts.entry(expected).or_insert(0) += 1;
            if found != expected {
                different.push(format!(
                    "{condition}, {mode:?}: {found:?}, not {expected:?}\n  {:?} {:?}",
                    event.fields, event.lists
                ));
                break;
            }
        }
    }
    println!("{mode:?}: {counts:?}");
    different.sort_by_key(String::len);
    different.truncate(20);
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn strict_answers_of_random_conditions() {
    compare(Mode::Strict);
}

#[test]
fn compatible_answers_of_random_conditions() {
    compare(Mode::Compatible);
}
