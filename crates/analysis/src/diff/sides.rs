//! Processor time as a side of a comparison.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stackhound_profile::{FrameId, Grouping, Groups, ProcessId, Profile, StackId, ThreadId};

use super::{Measured, Side, names};
use crate::cpu::{CpuReport, SlicedSamples};
use crate::slices::Sliced;

/// A name: of a stack, the names of its frames, innermost first, and its process; otherwise one.
pub type Names = Vec<String>;

/// Names of processes that the trace does not name.
const UNKNOWN_PROCESSES: [&str; 2] = ["unknown", "no process"];

/// What distinguishes rows, which losses can make uncertain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uses {
    /// The process of a sample.
    Process,
    /// Its innermost frame.
    Innermost,
    /// Its whole stack.
    Stack,
}

/// The samples of one capture, ready for a comparison.
#[derive(Debug)]
pub struct Samples<'r> {
    report: &'r CpuReport,
    sliced: &'r SlicedSamples,
    is_filtered: bool,
}

impl<'r> Samples<'r> {
    /// The samples of a report. `None` if it has none, or not their [distribution over
    /// time](crate::cpu::Cpu::with_slices). `is_filtered` if only some events were selected.
    pub fn of(report: &'r CpuReport, is_filtered: bool) -> Option<Samples<'r>> {
        let sliced = report.sliced.as_ref().filter(|_| report.interval.is_some())?;
        Some(Samples { report, sliced, is_filtered })
    }

    /// Any amount may be wrong by this number of nanoseconds because of losses. `None` if there is no
    /// bound.
    pub fn uncertain(&self, uses: Uses) -> Option<u64> {
        let SlicedSamples { is_lossy, lost, uncertain_stacks, uncertain_innermost, .. } = *self.sliced;
        if !is_lossy {
            return Some(0);
        }
        let (report, sliced) = (self.report, self.sliced);
        let ticks = match uses {
            // Whether a sample whose facts are missing would have been selected is not known.
            _ if self.is_filtered => return None,
            Uses::Process => without_process(report, sliced),
            Uses::Innermost => uncertain_innermost,
            Uses::Stack => uncertain_stacks.saturating_add(without_process(report, sliced)),
        };
        Some(report.nanos(lost.saturating_add(ticks)))
    }

    /// The profile that the samples refer to.
    pub(super) fn profile(&self) -> &'r Profile {
        &self.report.profile
    }

    /// The samples by thread and stack.
    pub(super) fn sums(&self) -> &'r FxHashMap<(ThreadId, StackId), Sliced> {
        self.sliced.slices.sums()
    }

    /// A side with these rows.
    pub(super) fn side<K: Ord>(&self, uses: Uses, rows: impl IntoIterator<Item = (K, Sliced)>) -> Side<K> {
        let rows = rows.into_iter().filter(|(_, sliced)| sliced.sums.count > 0);
        let axis = self.sliced.slices.axis();
        let measured = |sliced: Sliced| {
            let amount = self.report.nanos(sliced.sums.amount);
            Measured::counted(amount, sliced.sums.count, sliced.variance(axis))
        };
        Side {
            rows: rows.map(|(name, sliced)| (name, measured(sliced))).collect(),
            total: self.report.nanos(self.report.classes.busy().amount),
            duration: self.report.duration(),
            is_lossy: self.sliced.is_lossy,
            uncertain: self.uncertain(uses),
            slices: axis.slices(),
        }
    }

    /// By name of the process. Processes of the same name are one.
    pub fn processes(&self) -> Side<Names> {
        let mut rows: BTreeMap<Names, Sliced> = BTreeMap::new();
        for ((thread, _), sliced) in self.sums() {
            let process = self.profile().threads()[thread.index()].process;
            *rows.entry(vec![self.process_name(process)]).or_default() += *sliced;
        }
        self.side(Uses::Process, rows)
    }

    /// By group of frames: the sums of samples whose innermost frame is in the group, and of samples
    /// with any frame in it.
    pub fn frames(&self, grouping: Grouping) -> [Side<Names>; 2] {
        let groups = groups(self.profile(), grouping);
        let totals =
            groups.totals(self.profile(), self.sums().iter().map(|((_, stack), sums)| (*stack, *sums)));
        let names = || groups.names().iter().map(|name| vec![name.clone()]);
        [
            self.side(Uses::Innermost, names().zip(totals.iter().map(|total| total.own))),
            self.side(Uses::Stack, names().zip(totals.iter().map(|total| total.total))),
        ]
    }

    /// By stack and name of the process. Consecutive functions without a name are one.
    pub fn stacks(&self, grouping: Grouping) -> Side<Names> {
        let groups = groups(self.profile(), grouping);
        let mut rows: FxHashMap<Names, Sliced> = FxHashMap::default();
        for (process, stack, sliced) in self.by_process() {
            let path = path(self.profile(), &groups, stack);
            let names = path.into_iter().rev().map(|(name, _)| name.to_owned());
            *rows.entry(names.chain([self.process_name(process)]).collect()).or_default() += sliced;
        }
        self.side(Uses::Stack, rows)
    }

    /// The samples by process and stack.
    pub(super) fn by_process(&self) -> Vec<(ProcessId, StackId, Sliced)> {
        let mut stacks: BTreeMap<(ProcessId, StackId), Sliced> = BTreeMap::new();
        for ((thread, stack), sliced) in self.sums() {
            let process = self.profile().threads()[thread.index()].process;
            *stacks.entry((process, *stack)).or_default() += *sliced;
        }
        stacks.into_iter().map(|((process, stack), sliced)| (process, stack, sliced)).collect()
    }

    pub(super) fn process_name(&self, process: ProcessId) -> String {
        self.profile().process(process).name.clone()
    }
}

/// The groups of frames with names that both traces have.
pub(super) fn groups(profile: &Profile, grouping: Grouping) -> Groups {
    let rename = if grouping == Grouping::Module { str::to_ascii_lowercase } else { names::frames };
    Groups::new(profile, grouping).renamed(rename)
}

/// The frames of a stack with their names, outermost first. Consecutive functions without a name are
/// one, if they are in the same module.
pub(super) fn path<'g>(profile: &Profile, groups: &'g Groups, stack: StackId) -> Vec<(&'g str, FrameId)> {
    let named = |frame| (&*groups.names()[groups.of(frame)], frame);
    let mut path: Vec<(&str, FrameId)> = profile.stack(stack).map(named).collect();
    path.reverse();
    path.dedup_by(|(name, frame), (caller, _)| name == caller && profile.frame(*frame).is_unnamed());
    path
}

/// Time of samples of processes that are not known, in raw ticks.
fn without_process(report: &CpuReport, sliced: &SlicedSamples) -> u64 {
    let profile = &report.profile;
    let is_unknown = |thread: &ThreadId| {
        let process = profile.process(profile.threads()[thread.index()].process);
        UNKNOWN_PROCESSES.contains(&&*process.name)
    };
    let unknown = sliced.slices.sums().iter().filter(|((thread, _), _)| is_unknown(thread));
    unknown.fold(0, |sum, (_, sliced)| sum.saturating_add(sliced.sums.amount))
}

/// Processor time by context switches, by name of the process. `None` without context switches.
/// `is_lossy` if the trace lost records.
pub fn exact(report: &CpuReport, is_lossy: bool) -> Option<Side<Names>> {
    let exact = report.exact.as_ref()?;
    let mut rows: BTreeMap<Names, (u64, u64)> = BTreeMap::new();
    for (thread, sums) in &exact.threads {
        let process = report.profile.threads()[thread.index()].process;
        let (amount, count) = rows.entry(vec![report.profile.process(process).name.clone()]).or_default();
        (*amount, *count) = (amount.saturating_add(sums.amount), *count + sums.count);
    }
    let measured = |(amount, count)| Measured::exact(report.nanos(amount), count);
    Some(Side {
        rows: rows.into_iter().map(|(name, sums)| (name, measured(sums))).collect(),
        total: report.nanos(exact.busy()),
        duration: report.duration(),
        is_lossy,
        uncertain: if is_lossy { None } else { Some(0) },
        slices: 0,
    })
}
