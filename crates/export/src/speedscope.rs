//! The native format of speedscope: one sampled profile per thread, in the order of time.
//!
//! Follows <https://www.speedscope.app/file-format-schema.json>.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use crate::escape;
use stackhound_profile::Profile;
use stackhound_profile::{StackId, ThreadId, Unit};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'p> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'p str,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared<'p>,
    profiles: Vec<Thread<'p>>,
}

#[derive(Serialize)]
struct Shared<'p> {
    frames: Vec<Frame<'p>>,
}

#[derive(Serialize)]
struct Frame<'p> {
    name: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'p str>,
}

#[derive(Serialize)]
struct Thread<'p> {
    #[serde(rename = "type")]
    form: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Stacks<'p>,
    weights: Vec<u64>,
}

/// Stacks as lists of frames, outermost first. They are written one by one, because together they
/// are large.
struct Stacks<'p> {
    profile: &'p Profile,
    numbers: &'p [u32],
    stacks: Vec<StackId>,
}

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.stacks.iter().map(|&stack| {
            let mut frames: Vec<u32> =
                self.profile.stack(stack).map(|frame| self.numbers[frame.index()]).collect();
            frames.reverse();
            frames
        }))
    }
}

/// Writes the profile. Weights are in the unit of the profile. Consecutive samples with the same stack are
/// merged.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let (frames, numbers) = frames(profile);
    let busy: Vec<ThreadId> =
        profile.thread_ids().map(|(id, _)| id).filter(|&id| profile.sample_count_of(id) > 0).collect();
    let active = profile.busiest_thread();
    let active = busy.iter().position(|&id| Some(id) == active).unwrap_or(0);
    let profiles = busy.iter().map(|&id| thread(profile, &numbers, id)).collect();
    let file = File {
        schema: SCHEMA,
        exporter: concat!("stackhound ", env!("CARGO_PKG_VERSION")),
        name: profile.product(),
        active,
        shared: Shared { frames },
        profiles,
    };
    escape::json(out, &file)?;
    out.write_all(b"\n")
}

/// Each distinct name once, and the index of each frame's name. The source file of a name is that
/// of its first frame.
fn frames(profile: &Profile) -> (Vec<Frame<'_>>, Vec<u32>) {
    let mut frames = Vec::new();
    let mut by_name: FxHashMap<&str, u32> = FxHashMap::default();
    let numbers = profile.frames().iter().map(|frame| {
        *by_name.entry(&frame.name).or_insert_with(|| {
            frames.push(Frame { name: &frame.name, file: frame.source.as_ref().map(|source| &*source.file) });
            frames.len() as u32 - 1
        })
    });
    let numbers = numbers.collect();
    (frames, numbers)
}

fn thread<'p>(profile: &'p Profile, numbers: &'p [u32], id: ThreadId) -> Thread<'p> {
    let mut stacks: Vec<StackId> = Vec::new();
    let mut weights: Vec<u64> = Vec::new();
    for sample in profile.samples_of(id) {
        match (stacks.last(), weights.last_mut()) {
            (Some(&last), Some(weight)) if last == sample.stack => *weight += u64::from(sample.weight),
            _ => {
                stacks.push(sample.stack);
                weights.push(u64::from(sample.weight));
            }
        }
    }
    let process = profile.process_label(profile.threads()[id.index()].process);
    Thread {
        form: "sampled",
        name: format!("{process} {}", profile.thread_label(id)),
        unit: match profile.unit() {
            Unit::Samples | Unit::Transitions => "none",
            Unit::Nanoseconds => "nanoseconds",
        },
        start: 0,
        end: weights.iter().sum(),
        samples: Stacks { profile, numbers, stacks },
        weights,
    }
}
