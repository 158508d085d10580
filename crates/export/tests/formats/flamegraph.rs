//! The picture: well-formed, and as wide as the samples.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;
use stackhound_export::{ProfileBuilder, flamegraph};
use stackhound_types::Mode;

use crate::folded;
use crate::profiles::{Facts, facts};

/// Depth of a frame's parents, its title and weight, out of the picture. Reading it at all shows that it is XML.
fn read(picture: &[u8]) -> (u64, Vec<(String, u64)>) {
    let mut reader = Reader::from_reader(picture);
    reader.config_mut().check_end_names = true;
    let (mut total, mut frames, mut title) = (None, Vec::new(), None::<String>);
    let mut buffer = Vec::new();
    loop {
        let event = reader.read_event_into(&mut buffer).expect("XML");
        match event {
            Event::Eof => break,
            Event::Start(start) | Event::Empty(start) => {
                for attribute in start.attributes() {
                    let attribute = attribute.expect("an attribute");
                    let value = attribute.value.into_owned();
                    match attribute.key.as_ref() {
                        "total_samples" => total = Some(value.parse().unwrap()),
                        "fg:w" => frames.push((title.take().expect("a title"), value.parse().unwrap())),
                        _ => {}
                    }
                }
                if start.name().as_ref() == "title" {
                    title = Some(String::new());
                }
            }
            Event::Text(text) => {
                if let Some(title) = &mut title {
                    title.push_str(&text);
                }
            }
            _ => {}
        }
        buffer.clear();
    }
    (total.expect("a total"), frames)
}

fn picture(facts: &Facts) -> Vec<u8> {
    let mut picture = Vec::new();
    flamegraph::write(&facts.build(), &mut picture).unwrap();
    picture
}

proptest! {
    #[test]
    fn the_picture_is_as_wide_as_the_samples(facts in facts()) {
        let picture = picture(&facts);
        let (total, frames) = read(&picture);
        prop_assert_eq!(total, facts.weight());
        let all = (format!("all ({total} samples, 100%)"), total);
        prop_assert!(frames.contains(&all));
        // One frame for each beginning of a path, as wide as all paths that begin so. Frames of different modes differ
        // in colour.
        let mut beginnings = BTreeMap::<Vec<&str>, u64>::new();
        let paths = folded::expected(&facts, |mode| if mode == Some(Mode::Kernel) { "k" } else if mode == Some(Mode::User) { "u" } else { "" });
        for (path, weight) in &paths {
            let path: Vec<&str> = path.split(';').collect();
            for length in 0..=path.len() {
                *beginnings.entry(path[..length].to_vec()).or_default() += weight;
            }
        }
        let mut expected: Vec<u64> = beginnings.into_values().collect();
        let mut read: Vec<u64> = frames.iter().map(|(_, weight)| *weight).collect();
        expected.sort_unstable();
        read.sort_unstable();
        prop_assert_eq!(read, expected);
        prop_assert_eq!(picture.clone(), self::picture(&facts), "not the same twice");
        // No address of another place: it stands for itself. Names of namespaces are no addresses to load from.
        let text = String::from_utf8(picture).unwrap();
        prop_assert!(!text.contains("src=") && !text.contains("@import"));
    }
}

#[test]
fn without_samples_there_is_no_picture() {
    let profile = ProfileBuilder::new("nothing", 0).finish();
    assert!(flamegraph::write(&profile, &mut Vec::new()).is_err());
}
