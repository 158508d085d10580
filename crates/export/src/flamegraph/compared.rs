//! A differential flame graph: the stacks of two measurements as one image.
//!
//! Widths are those of one measurement. A frame is red if it has more in B, blue if it has less, and
//! nearly white if the difference is not significant; the more saturated, the larger the difference. It
//! is yellow if losses of the traces may explain the difference.
//!
//! This module does not compare: it draws what the caller found.

use std::collections::BTreeMap;
use std::io::{self, Write};

use stackhound_profile::Unit;

use super::{Empty, Form, Kind, Node, draw};

/// How a frame differs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// More in B.
    More,
    /// Less in B.
    Less,
    /// No significant difference.
    None,
    /// A significant difference that losses of the traces may explain.
    Lost,
}

impl Change {
    /// All of them, in the order of the legend.
    pub const ALL: [Change; 4] = [Change::More, Change::Less, Change::None, Change::Lost];

    pub(super) fn name(self) -> &'static str {
        match self {
            Change::More => "more in B",
            Change::Less => "less in B",
            Change::None => "no change",
            Change::Lost => "may be lost",
        }
    }

    /// The class and the shades, the most saturated first. Black text has a contrast of at least 7
    /// to each.
    pub(super) fn style(self) -> (char, [&'static str; 4]) {
        match self {
            Change::More => ('m', ["#ff8a75", "#ffa391", "#ffbdb0", "#ffd6ce"]),
            Change::Less => ('l', ["#7db4ff", "#98c3ff", "#b4d3ff", "#d0e3ff"]),
            Change::None => ('o', ["#eeeeee"; 4]),
            Change::Lost => ('q', ["#f2df9b"; 4]),
        }
    }
}

/// A box of the image.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// Index of the caller, which is smaller. `None` for the first box, which contains all others.
    pub caller: Option<usize>,
    /// Name of the function or process.
    pub name: String,
    /// Its width: the amount in one of the measurements, such as nanoseconds.
    pub weight: u64,
    /// How it differs.
    pub change: Change,
    /// Size of the difference, from 0 to 1, which is the largest one.
    pub size: f64,
    /// What a tooltip shows after the name. Must not contain an opening parenthesis.
    pub note: String,
}

/// Writes the image. `title` and `header` are the lines above it. Boxes without a width are left out.
///
/// # Errors
/// Errors of `out`, and [`Empty`] if there is nothing to draw.
pub fn write(
    title: &str,
    header: Vec<String>,
    boxes: &[Compared],
    form: Form,
    out: &mut dyn Write,
) -> io::Result<()> {
    if boxes.first().is_none_or(|all| all.weight == 0) {
        return Err(Empty::NoSamples.into());
    }
    let mut nodes: Vec<Node<'_>> = Vec::new();
    // The node of each box. Callers of boxes with a width have one too.
    let mut numbers: Vec<Option<usize>> = Vec::with_capacity(boxes.len());
    for of in boxes {
        numbers.push(None);
        let caller = match of.caller {
            _ if of.weight == 0 => continue,
            None => None,
            Some(caller) => match numbers[caller] {
                Some(caller) => Some(caller),
                None => continue,
            },
        };
        let number = nodes.len();
        let kind = Kind::Compared(of.change);
        // Strictly more than a quarter is one level above the lightest shade.
        let shade = 3 - (of.size.clamp(0.0, 0.999) * 4.0) as usize;
        nodes.push(Node {
            name: &of.name,
            kind,
            weight: of.weight,
            shade,
            note: Some(&of.note),
            calls: BTreeMap::new(),
        });
        if let Some(caller) = caller {
            nodes[caller].calls.insert((&of.name, kind), number);
        }
        if let Some(last) = numbers.last_mut() {
            *last = Some(number);
        }
    }
    draw(&nodes, title, header, (form, Unit::Nanoseconds), out)
}
