//! The callers and the callees of a function.
//!
//! A stack in which the function occurs several times, because of recursion, counts once: its caller
//! is that of the outermost occurrence, its callee that of the innermost one. So the callers add up to
//! the total of the function, and the callees and its own sum do, too. (PerfView divides the amount
//! among the occurrences instead.)

use std::ops::AddAssign;

use rustc_hash::FxHashMap;

use crate::model::StackId;
use crate::profile::Profile;
use crate::totals::{Groups, Total};

/// The callers and the callees of a function, as numbers of [`Groups`].
#[derive(Clone, Debug, Default)]
pub struct Butterfly<T> {
    /// The sums of the function.
    pub function: Total<T>,
    /// The part of the total in which the function occurs more than once on the stack.
    pub repeated: T,
    /// Who calls it; `None` if it is the outermost frame. The sum is the total of the function.
    pub callers: FxHashMap<Option<usize>, T>,
    /// What it calls; `None` if it is the innermost frame. The sum is the total of the function.
    pub callees: FxHashMap<Option<usize>, T>,
    /// Everything that was observed.
    pub whole: T,
}

impl<T: Copy + Default + AddAssign> Butterfly<T> {
    /// The butterfly of the groups for which `is_function` is true, as if they were one. Costs one step
    /// for each frame of each observed stack.
    pub fn new(
        profile: &Profile,
        groups: &Groups,
        observed: impl IntoIterator<Item = (StackId, T)>,
        is_function: impl Fn(usize) -> bool,
    ) -> Butterfly<T> {
        let mut butterfly = Butterfly::default();
        for (stack, sums) in observed {
            butterfly.add(profile.stack(stack).map(|frame| groups.of(frame)), sums, &is_function);
        }
        butterfly
    }

    /// Adds a stack, innermost group first.
    fn add(&mut self, stack: impl Iterator<Item = usize>, sums: T, is_function: impl Fn(usize) -> bool) {
        self.whole += sums;
        let (mut callee, mut caller, mut inner) = (None, None, None);
        let mut occurrences = 0_u32;
        for group in stack {
            if is_function(group) {
                if occurrences == 0 {
                    callee = inner;
                }
                occurrences += 1;
                caller = None;
            } else if inner.is_some_and(&is_function) {
                caller = Some(group);
            }
            inner = Some(group);
        }
        if occurrences == 0 {
            return;
        }
        self.function.total += sums;
        if callee.is_none() {
            self.function.own += sums;
        }
        if occurrences > 1 {
            self.repeated += sums;
        }
        *self.callers.entry(caller).or_default() += sums;
        *self.callees.entry(callee).or_default() += sums;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The butterfly of `f` in stacks of one letter for each frame, outermost first: its total and
    /// own sums, callers, and callees.
    fn butterfly(stacks: &[(&str, u64)]) -> [String; 3] {
        let mut found = Butterfly::<u64>::default();
        for (stack, amount) in stacks {
            let frames = stack.bytes().rev().map(usize::from);
            found.add(frames, *amount, |group| group == usize::from(b'f'));
        }
        let shown = |sums: &FxHashMap<Option<usize>, u64>| {
            let name = |group: &Option<usize>| group.map_or('-', |group| char::from(group as u8));
            let mut sums: Vec<String> =
                sums.iter().map(|(group, sum)| format!("{}{sum}", name(group))).collect();
            sums.sort();
            sums.join(" ")
        };
        let sums = [found.function.total, found.function.own, found.repeated, found.whole];
        [sums.map(|sum| sum.to_string()).join(" "), shown(&found.callers), shown(&found.callees)]
    }

    #[test]
    fn callers_and_callees() {
        type Row = (&'static [(&'static str, u64)], [&'static str; 3]);
        let rows: &[Row] = &[
            (&[("afb", 5)], ["5 0 0 5", "a5", "b5"]),
            // Outermost and innermost at the same time.
            (&[("f", 3)], ["3 3 0 3", "-3", "-3"]),
            (&[("afb", 5), ("cf", 2), ("fb", 1), ("ab", 9)], ["8 2 0 17", "-1 a5 c2", "-2 b6"]),
            // Recursion, direct and through others.
            (&[("affb", 4)], ["4 0 4 4", "a4", "b4"]),
            (&[("afcfb", 4)], ["4 0 4 4", "a4", "b4"]),
            (&[("fcf", 7)], ["7 7 7 7", "-7", "-7"]),
            (&[("fcfb", 7), ("afcf", 2)], ["9 2 9 9", "-7 a2", "-2 b7"]),
            (&[("ab", 1)], ["0 0 0 1", "", ""]),
        ];
        for (stacks, expected) in rows {
            assert_eq!(butterfly(stacks), *expected, "{stacks:?}");
        }
    }
}
