//! The differential flame graph.

use std::io::Write;

use anyhow::{Result, anyhow};
use stackhound::analysis::diff::tree::{Kind, Node, Tree, tree};
use stackhound::analysis::diff::{Difference, Verdict};
use stackhound_export::flamegraph::Form;
use stackhound_export::flamegraph::compared::{self, Change};

use super::read::Capture;
use super::write::{self, Unit};
use super::{Arguments, changes, samples};
use crate::output::counted;
use crate::top::table::percent;

/// Writes the image, and returns the number of changed boxes.
pub fn draw(arguments: &Arguments, captures: &[Capture; 2], out: &mut impl Write) -> Result<usize> {
    let [a, b] = samples(arguments, captures).ok_or_else(|| anyhow!("{}", NO_SAMPLES))?;
    let tree = tree(&a, &b, arguments.grouping_of_functions(), arguments.normalize.into());
    let largest = tree.nodes.iter().filter(|node| node.difference.verdict.is_change());
    let largest = largest.map(|node| node.difference.delta.abs()).fold(0.0, f64::max);
    let totals = [tree.nodes[0].difference.a.amount, tree.nodes[0].difference.b.amount];
    let unit = Unit::of(arguments, captures, totals);
    let boxes: Vec<compared::Compared> =
        tree.nodes.iter().map(|node| drawn(node, largest, unit, arguments.reverse)).collect();
    let form = if arguments.icicle { Form::Icicle } else { Form::Flame };
    let title = "Differential flame graph";
    compared::write(title, header(arguments, captures, &tree, totals), &boxes, form, out)?;
    Ok(changes(&tree.comparison))
}

const NO_SAMPLES: &str = "a differential flame graph needs profile samples in both traces; `stackhound top cpu` shows what each has";

fn drawn(node: &Node, largest: f64, unit: Unit, is_reversed: bool) -> compared::Compared {
    let Difference { a, b, delta, z, verdict, .. } = node.difference;
    let change = match verdict {
        Verdict::Lost => Change::Lost,
        verdict if !verdict.is_change() => Change::None,
        _ if delta > 0.0 => Change::More,
        _ => Change::Less,
    };
    let kind = match node.kind {
        Kind::All => String::new(),
        Kind::Process => "process, ".to_owned(),
        Kind::Frame(kind) => format!("{}, ", kind.name()),
    };
    let mut note = format!("{kind}A {}, B {}", unit.of_a(a.amount), unit.of_b(b.amount));
    if let (true, Some(z)) = (verdict.is_change(), z) {
        note += &format!(", {} by {}, {:.1} deviations", verdict.name(), unit.difference(delta), z.abs());
    } else if verdict == Verdict::Lost {
        note += ", may be a loss";
    }
    compared::Compared {
        caller: node.caller,
        name: node.name.clone(),
        weight: if is_reversed { a.amount } else { b.amount },
        change,
        size: delta.abs() / largest.max(1.0),
        note,
    }
}

/// The lines below the title.
fn header(arguments: &Arguments, captures: &[Capture; 2], tree: &Tree, totals: [u64; 2]) -> Vec<String> {
    let mut lines = write::about(arguments, captures, totals);
    let (shown, hidden) = if arguments.reverse { ("A", "B") } else { ("B", "A") };
    lines.push(format!("widths: time in {shown}; colors: B compared with A"));
    let weight = |node: &Node, of_a: bool| {
        if of_a { node.difference.a.amount } else { node.difference.b.amount }
    };
    let is_hidden = |node: &Node| {
        let is_absent = |node: &Node| weight(node, arguments.reverse) == 0;
        is_absent(node) && node.caller.is_some_and(|caller| !is_absent(&tree.nodes[caller]))
    };
    // The outermost ones, which contain the others.
    let absent: Vec<&Node> = tree.nodes.iter().filter(|node| is_hidden(node)).collect();
    if !absent.is_empty() {
        let time: u64 = absent.iter().map(|node| weight(node, !arguments.reverse)).sum();
        let total = totals[usize::from(arguments.reverse)];
        let frames = counted(absent.len() as u64, "frame", "frames");
        let hint = if arguments.reverse { "without --reverse" } else { "with --reverse" };
        lines.push(format!(
            "{frames} only in {hidden}, {} of its time with what they call, not shown; drawn {hint}",
            percent(time, total)
        ));
    }
    lines
}
