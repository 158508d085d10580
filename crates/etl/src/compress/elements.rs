//! Elements of compressed data, for tests that generate such data.

use proptest::prelude::*;

/// One element of compressed data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Element {
    Literal(u8),
    Match { distance: usize, length: usize },
}

impl Element {
    /// Appends the expanded element.
    pub(super) fn expand(self, output: &mut Vec<u8>) {
        match self {
            Element::Literal(byte) => output.push(byte),
            Element::Match { distance, length } => {
                for _ in 0..length {
                    output.push(output[output.len() - distance]);
                }
            }
        }
    }
}

/// Elements without a match that refers to bytes before the start.
pub(super) fn elements(distance_max: usize, length_max: usize) -> impl Strategy<Value = Vec<Element>> {
    let literal = any::<u8>().prop_map(Element::Literal);
    let repeat = (1..=distance_max, 3..=length_max.min(40), 3..=length_max, 0..20u8).prop_map(
        |(distance, short, long, choice)| {
            let length = if choice == 0 { long } else { short };
            Element::Match { distance, length }
        },
    );
    prop::collection::vec(prop_oneof![2 => literal, 1 => repeat], 0..400).prop_map(move |mut elements| {
        let mut written = 0;
        for element in &mut elements {
            match element {
                Element::Match { .. } if written == 0 => *element = Element::Literal(0),
                Element::Match { distance, .. } => {
                    *distance = (*distance - 1) % written.min(distance_max) + 1
                }
                Element::Literal(_) => {}
            }
            written += match element {
                Element::Literal(_) => 1,
                Element::Match { length, .. } => *length,
            };
        }
        elements
    })
}
