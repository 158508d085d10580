//! Folded stacks: one line per distinct stack of a process, outermost frame first, followed by its
//! weight.
//!
//! The text format that `stackcollapse` scripts write and flame graph programs read.

mod lines;

use std::io::{self, Write};

use rustc_hash::FxHashMap;

pub use lines::{LabelNumber, Lines};

use crate::escape::folded_name;
use stackhound_profile::Profile;
use stackhound_profile::{ProcessId, Sample, StackId};

/// The weights of samples, by process and stack.
pub(crate) fn weights(
    profile: &Profile,
    samples: impl IntoIterator<Item = Sample>,
) -> FxHashMap<(ProcessId, StackId), u64> {
    let mut weights = FxHashMap::default();
    for sample in samples {
        let process = profile.threads()[sample.thread.index()].process;
        *weights.entry((process, sample.stack)).or_default() += u64::from(sample.weight);
    }
    weights
}

/// Writes the lines. Lines with the same outer frames are adjacent.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    // Different frames can have the same name.
    let mut merged: FxHashMap<String, u64> = FxHashMap::default();
    for ((process, stack), weight) in weights(profile, profile.samples()) {
        *merged.entry(path(profile, process, stack)).or_default() += weight;
    }
    let mut merged: Vec<(String, u64)> = merged.into_iter().collect();
    // Compares frame by frame: as plain text, `f2;g` would be between `f` and `f;h`.
    merged.sort_unstable_by(|(a, _), (b, _)| a.split(';').cmp(b.split(';')));
    merged.iter().try_for_each(|(path, weight)| writeln!(out, "{path} {weight}"))
}

fn path(profile: &Profile, process: ProcessId, stack: StackId) -> String {
    let frames: Vec<_> = profile.stack(stack).map(|frame| profile.frame(frame)).collect();
    let mut path = folded_name(&profile.process_label(process));
    for frame in frames.iter().rev() {
        path.push(';');
        path.push_str(&folded_name(&frame.name));
    }
    path
}
