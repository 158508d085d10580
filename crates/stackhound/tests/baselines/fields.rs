//! The decoded fields of an event, and the fields that TraceEvent derives from them.

use std::borrow::Cow;

use stackhound::schema::{Decoder, Field, Item, Value};
use stackhound::system::{FileKey, System};
use stackhound::{EventView, FileTime, TICKS_PER_SECOND};

use crate::explanations::Derivation;
use crate::notation::{self, date, grouped};

/// The decoded fields by path: members of structures after a point, the first element of an array
/// after `[0]`.
pub struct Fields<'s> {
    view: &'s EventView<'s>,
    system: &'s System,
    found: Vec<(String, &'s Field, Item<'s>)>,
}

impl<'s> Fields<'s> {
    /// `None` if no schema is known for the event.
    pub fn of(view: &'s EventView<'s>, system: &'s System) -> Option<Fields<'s>> {
        let mut found = Vec::new();
        collect("", view.fields()?, &mut found);
        Some(Fields { view, system, found })
    }

    /// A field by its path, which is not case-sensitive.
    pub fn get(&self, path: &str) -> Option<(&'s Field, &Item<'s>)> {
        let (_, field, item) = self.found.iter().find(|(known, _, _)| known.eq_ignore_ascii_case(path))?;
        Some((field, item))
    }

    /// A number: that of a field, or that of the event's header if the path is in parentheses.
    fn number(&self, path: &str) -> Option<u64> {
        match path {
            "(processor)" => self.view.processor().map(u64::from),
            "(payload length)" => Some(self.view.payload().len() as u64),
            "(header PID)" => self.view.event().header_pid().map(|pid| u64::from(pid.0)),
            "(header TID)" => self.view.event().header_tid().map(|tid| u64::from(tid.0)),
            _ => self.get(path)?.1.value()?.as_u64(),
        }
    }

    fn text(&self, path: &str) -> Option<Cow<'_, str>> {
        self.get(path)?.1.value()?.text()
    }

    /// The expected output for a field that TraceEvent derives from the fields of the event.
    ///
    /// # Panics
    /// If the derivation is not known.
    pub fn derive(&self, Derivation { sources, how }: &Derivation) -> Option<Vec<String>> {
        let source = &*sources[0];
        let number = || self.number(source);
        let clock = self.view.event().block().session().clock();
        let milliseconds = |ticks: i64| milliseconds(ticks, clock.ticks_per_second());
        if let Some(bits) = how.strip_prefix("bits ") {
            let (first, last) = bits.split_once(" to ").expect("the first and the last bit");
            let [first, last]: [u32; 2] = [first, last].map(|bit| bit.parse().expect("a bit"));
            return Some(notation::of_number(number()? >> first & ((1 << (last - first + 1)) - 1)));
        }
        if let Some(bit) = how.strip_prefix("bit ") {
            let bit: u32 = bit.parse().expect("a bit");
            return Some(vec![notation::truth(number()? >> bit & 1 == 1)]);
        }
        Some(match &**how {
            "the same" => match self.get(source) {
                Some((field, item)) => notation::of(field, item),
                None => notation::of_number(number()?),
            },
            "sum" => notation::of_number(self.sum(sources)),
            "bytes of one number" => {
                let bytes: Vec<_> = sources.iter().map(|path| self.number(path)).collect::<Option<_>>()?;
                notation::of_number(bytes.iter().rev().fold(0, |value, byte| value << 8 | byte))
            }
            "number of the last that is not 0" => {
                let last =
                    sources.iter().rposition(|path| self.number(path).is_some_and(|number| number != 0));
                notation::of_number(last.unwrap_or(0) as u64)
            }
            "seconds since 1970" => vec![unix_date(number()?)?],
            "ticks in ms" => vec![milliseconds(number()?.try_into().ok()?)],
            "ticks to the event in ms" => {
                let Value::RawTime(from) = self.get(source)?.1.value()? else { return None };
                vec![milliseconds(self.view.raw_time().0.checked_sub(from.0)?)]
            }
            "file name" => vec![self.text(source)?.rsplit('\\').next()?.to_owned()],
            "path on a drive" => vec![self.system.dos_path(&self.text(source)?).into_owned()],
            "name of the file" => {
                let name = self.system.file_name(Some(FileKey(number()?)), None, self.view.time())?;
                vec![self.system.dos_path(name).into_owned()]
            }
            how => panic!("docs/baselines.md contains an unknown derivation: {how}"),
        })
    }

    /// The sum of the existing fields; versions have different numbers of fields.
    fn sum(&self, paths: &[String]) -> u64 {
        paths.iter().filter_map(|path| self.number(path)).sum()
    }
}

/// The expected output for a header value; `None` for values that identify the event.
pub fn of_header(view: &EventView<'_>, name: &str) -> Option<String> {
    let id = |id: Option<u32>| id.map_or_else(|| "-1".to_owned(), |id| id.to_string());
    let pid = view.pid().map(|pid| pid.0);
    match name {
        "PID" => Some(id(pid)),
        "TID" => Some(id(view.tid().map(|tid| tid.0))),
        "PName" => Some(match (view.process_name(), pid) {
            (Some(image), _) => image.rsplit_once('.').map_or(image, |(name, _)| name).to_owned(),
            (None, Some(pid)) => format!("Process({pid})"),
            (None, None) => String::new(),
        }),
        _ => None,
    }
}

fn collect<'s>(prefix: &str, fields: Decoder<'s>, found: &mut Vec<(String, &'s Field, Item<'s>)>) {
    for decoded in fields.filter_map(Result::ok) {
        let path = format!("{prefix}{}", decoded.field.name);
        match &decoded.item {
            Item::Struct(members) => collect(&format!("{path}."), members.clone(), found),
            Item::Array(array) => {
                if let Some(Item::Struct(members)) = array.iter().next() {
                    collect(&format!("{path}[0]."), members, found);
                }
            }
            Item::Value(_) => {}
        }
        found.push((path, decoded.field, decoded.item));
    }
}

/// Ticks as milliseconds with three decimal places.
fn milliseconds(ticks: i64, ticks_per_second: u64) -> String {
    let doubled = i128::from(ticks) * 2_000_000 / i128::from(ticks_per_second.max(1));
    let microseconds = u64::try_from((doubled + 1) / 2).unwrap_or(0);
    format!("{}.{:03}", grouped(microseconds / 1000), microseconds % 1000)
}

fn unix_date(seconds: u64) -> Option<String> {
    const EPOCH: i64 = 11_644_473_600;
    let ticks = i64::try_from(seconds).ok()?.checked_add(EPOCH)?.checked_mul(TICKS_PER_SECOND)?;
    Some(date(&stackhound::types::Rfc3339(FileTime(ticks)).to_string()))
}

#[test]
fn ticks() {
    for (ticks, frequency, expected) in [
        (0, 10_000_000, "0.000"),
        (1_097_765, 10_000_000, "109.777"),
        (25, 10_000_000, "0.003"),
        (3, 2, "1,500.000"),
    ] {
        assert_eq!(milliseconds(ticks, frequency), expected);
    }
    assert_eq!(unix_date(1_343_270_522).unwrap(), "12/07/26 02:42:02.000000");
}
