//! Folded stacks: one line per distinct stack of a process, outermost frame first, followed by its
//! weight.
//!
//! The text format that `stackcollapse` scripts write and flame graph programs read.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use stackhound_types::Mode;

use crate::escape::folded_name;
use stackhound_profile::Profile;
use stackhound_profile::{ProcessId, StackId};

/// The lines. Lines with the same outer frames are adjacent. `adapt` may change each name: that of
/// the process, without a mode, and those of frames. It must not add a semicolon.
pub(crate) fn lines(profile: &Profile, adapt: impl Fn(&mut String, Option<Mode>)) -> Vec<String> {
    let mut weights: FxHashMap<(ProcessId, StackId), u64> = FxHashMap::default();
    for sample in profile.samples() {
        let process = profile.threads()[sample.thread.index()].process;
        *weights.entry((process, sample.stack)).or_default() += u64::from(sample.weight);
    }
    // Different frames can have the same name.
    let mut merged: FxHashMap<String, u64> = FxHashMap::default();
    for ((process, stack), weight) in weights {
        *merged.entry(path(profile, process, stack, &adapt)).or_default() += weight;
    }
    let mut merged: Vec<(String, u64)> = merged.into_iter().collect();
    // Compares frame by frame: as plain text, `f2;g` would be between `f` and `f;h`.
    merged.sort_unstable_by(|(a, _), (b, _)| a.split(';').cmp(b.split(';')));
    merged.into_iter().map(|(path, weight)| format!("{path} {weight}")).collect()
}

fn path(
    profile: &Profile,
    process: ProcessId,
    stack: StackId,
    adapt: impl Fn(&mut String, Option<Mode>),
) -> String {
    let frames: Vec<_> = profile.stack(stack).map(|frame| profile.frame(frame)).collect();
    let mut path = folded_name(&profile.process_label(process));
    adapt(&mut path, None);
    for frame in frames.iter().rev() {
        let mut name = folded_name(&frame.name);
        adapt(&mut name, frame.mode);
        path.push(';');
        path.push_str(&name);
    }
    path
}

/// Writes the lines.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    lines(profile, |_, _| {}).iter().try_for_each(|line| writeln!(out, "{line}"))
}
