//! Folded stacks: one line for each distinct stack of a process, outermost frame first, then its weight.
//!
//! The text that `stackcollapse` scripts write and flame graph programs read.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::Profile;
use crate::model::{Mode, ProcessId, StackId};

/// What is put behind names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marks {
    /// Nothing.
    None,
    /// `_[k]` behind those of the kernel, as flame graph programs know it.
    #[cfg(feature = "flamegraph")]
    Kernel,
}

/// The lines, in alphabetical order.
pub(crate) fn lines(profile: &Profile, marks: Marks) -> Vec<String> {
    let mut weights: FxHashMap<(ProcessId, StackId), u64> = FxHashMap::default();
    for sample in &profile.samples {
        let process = profile.threads[sample.thread.index()].process;
        *weights.entry((process, sample.stack)).or_default() += u64::from(sample.weight);
    }
    // Different frames can have one name.
    let mut merged: BTreeMap<String, u64> = BTreeMap::new();
    for ((process, stack), weight) in weights {
        *merged.entry(path(profile, process, stack, marks)).or_default() += weight;
    }
    merged.into_iter().map(|(path, weight)| format!("{path} {weight}")).collect()
}

fn path(profile: &Profile, process: ProcessId, stack: StackId, marks: Marks) -> String {
    let frames: Vec<_> = profile.stack(stack).map(|frame| profile.frame(frame)).collect();
    let length = frames.iter().map(|frame| frame.name.len() + 1).sum();
    let mut path = String::with_capacity(length);
    push(&mut path, &profile.process_label(process));
    for frame in frames.iter().rev() {
        path.push(';');
        push(&mut path, &frame.name);
        if marks != Marks::None && frame.mode == Mode::Kernel {
            path.push_str("_[k]");
        }
    }
    path
}

/// A semicolon separates frames and a line end stacks; names of files may contain both.
fn push(path: &mut String, name: &str) {
    path.extend(name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    }));
}

/// Writes the lines.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    lines(profile, Marks::None).iter().try_for_each(|line| writeln!(out, "{line}"))
}
