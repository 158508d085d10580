//! The built-in tables agree with the dumps of manifests in the corpus: every version of every
//! event has its level, keywords and fields. Names of fields that differ are listed.

use std::collections::BTreeMap;

use stackhound_corpus as corpus;
use stackhound_schema::{Count, EventDescription, InType, Length, SchemaStore};

/// Names of PerfView, and those of the dumps.
const RENAMED: [(&str, &str, &str); 2] = [
    ("Microsoft-Windows-DotNETRuntime", "Promoted", "Bytes"),
    ("Microsoft-Windows-DotNETRuntime", "Count", "GCName"),
];

/// Events with fields that the dumps lack, or that traces do not contain: provider, id, version.
const OTHER_FIELDS: [(&str, u16, u8); 2] =
    [("Microsoft-Windows-DotNETRuntimePrivate", 4, 2), ("Microsoft-Windows-DotNETRuntimePrivate", 158, 0)];

/// A version of an event in a dump.
#[derive(Debug, Default)]
struct Fact {
    level: String,
    keywords: String,
    fields: Vec<String>,
}

fn facts(text: &str) -> BTreeMap<(u16, u8), Fact> {
    let mut facts: BTreeMap<(u16, u8), Fact> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let key = (columns[0].parse().expect("an id"), columns[1].parse().expect("a version"));
        let fact = facts.entry(key).or_default();
        (fact.level, fact.keywords) = (columns[5].to_owned(), columns[6].to_owned());
        // Members of structures have an index with a dot.
        if !columns[9].is_empty() && !columns[8].contains('.') {
            fact.fields.push(columns[9].to_owned());
        }
    }
    facts
}

/// Top-level fields, and whether the last one is a remainder whose parts are not known.
fn fields(event: &EventDescription) -> (Vec<&str>, bool) {
    let fields: Vec<usize> = event.schema.top_level().collect();
    let is_open = fields.last().is_some_and(|&last| {
        let field = &event.schema.fields[last];
        field.in_type == InType::Binary && field.length == Length::Rest && field.count == Count::One
    });
    (fields.into_iter().map(|index| &*event.schema.fields[index].name).collect(), is_open)
}

fn level(name: &str) -> Option<u8> {
    let names = ["Always", "Critical", "Error", "Warning", "Informational", "Verbose"];
    names.iter().position(|known| name.ends_with(known)).map(|level| level as u8)
}

#[test]
fn tables_agree_with_the_dumps() {
    let Some(providers) = corpus::text("manifests/providers.tsv") else { return };
    let (mut n_events, mut n_open) = (0, 0);
    for line in providers.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (file, name, guid) = (columns[0], columns[1], columns[2]);
        let provider = SchemaStore::built_in_providers().find(|provider| provider.guid.to_string() == guid);
        let provider = provider.unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(&*provider.name, name);
        let text = corpus::text(&format!("manifests/{file}")).expect("a readable table");
        let is_other_source = file.contains(".coreclr");
        for ((id, version), fact) in facts(&text) {
            n_events += 1;
            let what = format!("{name} {id} v{version}");
            let event = provider.events.iter().find(|event| (event.id, event.version) == (id, version));
            let event = event.unwrap_or_else(|| panic!("{what} is missing"));
            // Level and keywords are those of the newest version and of Windows.
            let is_newest = !provider.events.iter().any(|other| other.id == id && other.version > version);
            if is_newest && !is_other_source {
                assert_eq!(event.level, level(&fact.level), "{what}");
                let keywords = fact.keywords.strip_prefix("0x");
                let keywords = keywords.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                assert_eq!(event.keywords, keywords, "{what}");
            }
            let (fields, is_open) = fields(event);
            n_open += usize::from(is_open);
            if OTHER_FIELDS.contains(&(name, id, version)) {
                continue;
            }
            let renamed = |field: &str| {
                let found = RENAMED.iter().find(|(of, own, _)| (*of, *own) == (name, field));
                found.map_or(field.to_owned(), |(.., other)| (*other).to_owned())
            };
            let given = if is_open { fields.len().min(fact.fields.len()) } else { fact.fields.len() };
            let is_equal = fields
                .iter()
                .zip(&fact.fields[..given])
                .all(|(field, expected)| *field == expected.as_str() || renamed(field) == *expected);
            assert!(is_equal && fields.len() == given, "{what}: {fields:?}, expected {:?}", fact.fields);
        }
    }
    println!("{n_events} versions of events, {n_open} of them with a remainder");
}
