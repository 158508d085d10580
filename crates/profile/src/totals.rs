//! Sums of observations, by groups of frames.
//!
//! An observation is a stack with an amount: a processor sample and its time, a read and its bytes.
//! The *self* sum of a frame counts the observations in which it is the innermost frame, its *total*
//! also those in which it is a caller. A group that occurs several times in a stack, because of
//! recursion, counts once. Totals of groups therefore overlap and have no meaningful sum.

use std::ops::AddAssign;

use rustc_hash::FxHashMap;

use crate::model::{FrameId, Origin, SourceLine, StackId};
use crate::profile::Profile;

/// What observations add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// The number of observations.
    pub count: u64,
    /// Their total amount, in the unit of the analysis.
    pub amount: u64,
    /// The largest amount.
    pub max: u64,
}

impl Sums {
    /// One observation.
    pub fn one(amount: u64) -> Sums {
        Sums { count: 1, amount, max: amount }
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        self.count += other.count;
        self.amount = self.amount.saturating_add(other.amount);
        self.max = self.max.max(other.max);
    }
}

/// The sums of a group of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total<T = Sums> {
    /// Observations whose innermost frame is in the group.
    pub own: T,
    /// Observations with any frame in the group.
    pub total: T,
}

/// How frames are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grouping {
    /// By module.
    Module,
    /// By function. Frames without the name of a function are `module!?`, one group for each
    /// module.
    Function,
    /// By function. Frames without the name of a function are module and offset.
    Offset,
    /// By function and source line, as `function (file:line)`. Frames without a source line are
    /// grouped as functions.
    Line,
}

/// The groups of the frames of a profile, by name.
#[derive(Clone, Debug)]
pub struct Groups {
    /// By frame.
    of_frame: Vec<u32>,
    names: Vec<String>,
}

impl Groups {
    /// The groups of all frames. Costs one look-up for each frame.
    pub fn new(profile: &Profile, grouping: Grouping) -> Groups {
        let mut names: Vec<String> = Vec::new();
        let mut known: FxHashMap<String, u32> = FxHashMap::default();
        let of_frame = (0..profile.frames().len()).map(|index| {
            let name = name_of(profile, FrameId(index as u32), grouping);
            *known.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                (names.len() - 1) as u32
            })
        });
        Groups { of_frame: of_frame.collect(), names }
    }

    /// The groups with other names. Groups that get the same name become one.
    #[must_use]
    pub fn renamed(self, rename: impl Fn(&str) -> String) -> Groups {
        let mut names: Vec<String> = Vec::new();
        let mut known: FxHashMap<String, u32> = FxHashMap::default();
        let numbers = self.names.iter().map(|name| {
            *known.entry(rename(name)).or_insert_with_key(|name| {
                names.push(name.clone());
                (names.len() - 1) as u32
            })
        });
        let numbers: Vec<u32> = numbers.collect();
        Groups { of_frame: self.of_frame.iter().map(|&group| numbers[group as usize]).collect(), names }
    }

    /// The names of the groups, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of the group of a frame.
    pub fn of(&self, frame: FrameId) -> usize {
        self.of_frame[frame.index()] as usize
    }

    /// The sums of each group, by number. Costs one step for each frame of each distinct stack.
    pub fn totals<T: Copy + Default + AddAssign>(
        &self,
        profile: &Profile,
        observed: impl IntoIterator<Item = (StackId, T)>,
    ) -> Vec<Total<T>> {
        let mut of_stack: FxHashMap<StackId, T> = FxHashMap::default();
        for (stack, sums) in observed {
            *of_stack.entry(stack).or_default() += sums;
        }
        let mut totals = vec![Total::default(); self.names.len()];
        // The last stack in which each group was counted.
        let mut counted: Vec<Option<StackId>> = vec![None; self.names.len()];
        for (stack, sums) in of_stack {
            for (depth, frame) in profile.stack(stack).enumerate() {
                let group = self.of(frame);
                if depth == 0 {
                    totals[group].own += sums;
                }
                if counted[group].replace(stack) != Some(stack) {
                    totals[group].total += sums;
                }
            }
        }
        totals
    }
}

/// The name of a frame's group.
fn name_of(profile: &Profile, id: FrameId, grouping: Grouping) -> String {
    let frame = profile.frame(id);
    let module = frame.location.map(|location| &*profile.modules()[location.module.index()].name);
    let is_named = !frame.is_unnamed();
    if let (Grouping::Line, Some(SourceLine { file, line })) = (grouping, &frame.source) {
        return format!("{} ({file}:{line})", frame.name);
    }
    match (frame.origin, module, grouping) {
        (Origin::Remark | Origin::Group, ..) => frame.name.clone(),
        (_, Some(module), Grouping::Module) => module.to_owned(),
        (Origin::Method, None, Grouping::Module) => "[compiled at run time]".to_owned(),
        (_, None, Grouping::Module) => "[no module]".to_owned(),
        (_, Some(module), Grouping::Function | Grouping::Line) if !is_named => format!("{module}!?"),
        (_, Some(module), Grouping::Offset) if !is_named => {
            let rva = frame.location.map_or(0, |location| location.rva);
            format!("{module}+{rva:#x}")
        }
        (Origin::Address, None, Grouping::Function | Grouping::Line) => "[no module]".to_owned(),
        _ => frame.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use stackhound_types::{AddressKind, Mode};

    use super::*;
    use crate::model::{CodeKind, ThreadId};
    use crate::{Frame, Module, ModuleOffset, Nanos, ProfileBuilder, Sample};

    /// A profile with functions `a` to `e` of the module `m`, and the stack of each text, outermost
    /// function first.
    fn stacks(texts: &[&str]) -> (Profile, Vec<StackId>) {
        let mut builder = ProfileBuilder::new("", 0);
        let module = Module { name: "m".into(), path: String::new(), pdb: None, image: None };
        let module = builder.module(module).unwrap();
        let frames: Vec<FrameId> = ('a'..='e')
            .map(|name| {
                let rva = name as u32;
                let location = ModuleOffset { module, rva, kind: AddressKind::Return, offset: None };
                // The last two have no names.
                let origin = if name < 'd' { Origin::Pdb } else { Origin::Module };
                let name = if name < 'd' { format!("m!{name}") } else { format!("m+{rva:#x}") };
                let (mode, location) = (Some(Mode::User), Some(location));
                builder
                    .frame(Frame {
                        name,
                        origin,
                        mode,
                        code: CodeKind::User,
                        location,
                        source: None,
                        inlines: Box::default(),
                    })
                    .unwrap()
            })
            .collect();
        let ids = texts.iter().map(|text| {
            let mut stack = None;
            for byte in text.bytes() {
                stack = Some(builder.stack(stack, frames[usize::from(byte - b'a')]).unwrap());
            }
            stack.unwrap()
        });
        let ids = ids.collect();
        (builder.finish(), ids)
    }

    fn shown(texts: &[(&str, u64)], grouping: Grouping) -> Vec<String> {
        let (profile, ids) = stacks(&texts.iter().map(|(text, _)| *text).collect::<Vec<_>>());
        let groups = Groups::new(&profile, grouping);
        let observed = ids.iter().zip(texts).map(|(&id, (_, amount))| (id, Sums::one(*amount)));
        let totals = groups.totals(&profile, observed);
        let mut lines: Vec<String> = groups
            .names()
            .iter()
            .zip(&totals)
            .filter(|(_, total)| total.total.count > 0)
            .map(|(name, total)| format!("{name} {} {}", total.own.amount, total.total.amount))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn recursion_counts_once() {
        type Row = (&'static [(&'static str, u64)], Grouping, &'static [&'static str]);
        let rows: &[Row] = &[
            (&[("abab", 7)], Grouping::Function, &["m!a 0 7", "m!b 7 7"]),
            (&[("ab", 3), ("abc", 4), ("a", 1)], Grouping::Function, &["m!a 1 8", "m!b 3 7", "m!c 4 4"]),
            (&[("ab", 3), ("ab", 4)], Grouping::Function, &["m!a 0 7", "m!b 7 7"]),
            (&[("ade", 2), ("ad", 5)], Grouping::Function, &["m!? 7 7", "m!a 0 7"]),
            (&[("ade", 2), ("ad", 5)], Grouping::Offset, &["m!a 0 7", "m+0x64 5 7", "m+0x65 2 2"]),
            (&[("ade", 2), ("c", 5)], Grouping::Module, &["m 7 7"]),
        ];
        for (stacks, grouping, expected) in rows {
            assert_eq!(shown(stacks, *grouping), *expected, "{stacks:?}");
        }
    }

    #[test]
    fn sums_of_self_are_the_sum_of_the_observations() {
        let (profile, ids) = stacks(&["abab", "abc", "ade", "e", "cba"]);
        let all = [Grouping::Module, Grouping::Function, Grouping::Offset];
        let groups = all.map(|grouping| Groups::new(&profile, grouping)).into_iter();
        let merged = Groups::new(&profile, Grouping::Function).renamed(|name| name.replace('b', "a"));
        assert_eq!(merged.names(), ["m!a", "m!c", "m!?"]);
        for groups in groups.chain([merged]) {
            let observed = ids.iter().enumerate().map(|(index, &id)| (id, Sums::one(index as u64 + 1)));
            let totals = groups.totals(&profile, observed);
            assert_eq!(totals.iter().map(|total| total.own.amount).sum::<u64>(), 15);
            assert!(totals.iter().all(|total| total.own.amount <= total.total.amount));
            assert!(totals.iter().all(|total| total.total.amount <= 15));
        }
    }

    #[test]
    fn unnamed_frames_fold_by_module() {
        let (mut profile, ids) = stacks(&["abab", "addec", "aadd", "dda", "d"]);
        let thread = ThreadId(0);
        let sample = |stack| Sample { time: Nanos(0), thread, stack, weight: 1, cpu: None };
        profile.samples = ids.into_iter().map(sample).collect();
        profile.fold_unnamed();
        let folded = profile.samples().map(|sample| {
            let mut names: Vec<&str> =
                profile.stack(sample.stack).map(|frame| &*profile.frame(frame).name).collect();
            names.reverse();
            names.join(" ")
        });
        let folded: Vec<String> = folded.collect();
        assert_eq!(folded, ["m!a m!b m!a m!b", "m!a m!? m!c", "m!a m!a m!?", "m!? m!a", "m!?"]);
    }
}
