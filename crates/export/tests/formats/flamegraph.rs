//! The flame graph: well-formed XML with the weight of all samples.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;
use stackhound_export::flamegraph;
use stackhound_profile::ProfileBuilder;
use stackhound_types::Mode;

use crate::folded;
use crate::profiles::{Facts, facts};

/// The total weight, and the title and weight of each frame. Reading the image also checks that it
/// is XML.
fn read(image: &[u8]) -> (u64, Vec<(String, u64)>) {
    let mut reader = Reader::from_reader(image);
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

fn image(facts: &Facts) -> Vec<u8> {
    let mut image = Vec::new();
    flamegraph::write(&facts.build(), &mut image).unwrap();
    image
}

proptest! {
    #[test]
    fn widths_are_the_weights_of_samples(facts in facts()) {
        let image = image(&facts);
        let (total, frames) = read(&image);
        prop_assert_eq!(total, facts.weight());
        let all = (format!("all ({total} samples, 100%)"), total);
        prop_assert!(frames.contains(&all));
        // One frame per prefix of a path, with the weight of all paths that have the prefix. Frames
        // of different modes differ in color.
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
        prop_assert_eq!(image.clone(), self::image(&facts), "different output for the same profile");
        // The image loads nothing. Names of namespaces are not loaded.
        let text = String::from_utf8(image).unwrap();
        prop_assert!(!text.contains("src=") && !text.contains("@import"));
    }
}

#[test]
fn profiles_without_samples_are_errors() {
    let profile = ProfileBuilder::new("nothing", 0).finish();
    assert!(flamegraph::write(&profile, &mut Vec::new()).is_err());
}
