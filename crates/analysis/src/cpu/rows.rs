//! The processor time of a capture, by process, thread, module, function or stack.

use rustc_hash::FxHashMap;
use stackhound_profile::{Grouping, Groups, ProcessId, Profile, StackId, Sums, ThreadId};

use super::CpuReport;

/// What rows are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Processes.
    Process,
    /// Threads.
    Thread,
    /// Groups of frames.
    Frames(Grouping),
    /// Stacks of a process. Frames are named as functions.
    Stack,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What it is about. Of a stack, the names of its frames, innermost first.
    pub names: Vec<String>,
    /// The process id, of rows about a process, a thread or a stack.
    pub pid: Option<u32>,
    /// The thread id, of rows about a thread.
    pub tid: Option<u32>,
    /// Samples with the innermost frame in the row; of processes, threads and stacks all samples.
    pub own: Sums,
    /// Samples with any frame in the row.
    pub total: Sums,
    /// By context switches, of processes and threads: the time, and how often they ran.
    pub exact: Option<Sums>,
}

impl CpuReport {
    /// The rows, those with the most time first.
    pub fn rows(&self, by: By) -> Vec<Row> {
        let mut rows = match by {
            By::Process => self.owners(|thread| self.profile.threads()[thread.index()].process, process_row),
            By::Thread => self.owners(|thread| thread, thread_row),
            By::Frames(grouping) => self.frame_rows(grouping),
            By::Stack => self.stack_rows(),
        };
        let amount = |sums: Option<Sums>| sums.map_or(0, |sums| sums.amount);
        rows.sort_by(|a, b| {
            let measured = |row: &Row| (row.own.amount, row.total.amount, amount(row.exact));
            let id = |row: &Row| (row.pid, row.tid);
            measured(b).cmp(&measured(a)).then_with(|| a.names.cmp(&b.names)).then_with(|| id(a).cmp(&id(b)))
        });
        rows
    }

    /// One row for each owner of a thread.
    fn owners<K: Copy + Eq + std::hash::Hash>(
        &self,
        owner: impl Fn(ThreadId) -> K,
        row: impl Fn(&Profile, K) -> Row,
    ) -> Vec<Row> {
        let mut sums: FxHashMap<K, (Sums, Sums)> = FxHashMap::default();
        for ((thread, _), observed) in &self.samples {
            sums.entry(owner(*thread)).or_default().0 += *observed;
        }
        for (thread, observed) in self.exact.iter().flat_map(|exact| &exact.threads) {
            sums.entry(owner(*thread)).or_default().1 += *observed;
        }
        let rows = sums.into_iter().map(|(key, (own, exact))| {
            let exact = self.exact.as_ref().map(|_| exact);
            Row { own, total: own, exact, ..row(&self.profile, key) }
        });
        rows.collect()
    }

    fn frame_rows(&self, grouping: Grouping) -> Vec<Row> {
        let groups = Groups::new(&self.profile, grouping);
        let totals =
            groups.totals(&self.profile, self.samples.iter().map(|((_, stack), sums)| (*stack, *sums)));
        let named = groups.names().iter().zip(totals).filter(|(_, total)| total.total.count > 0);
        named
            .map(|(name, sums)| Row { own: sums.own, total: sums.total, ..empty(vec![name.clone()]) })
            .collect()
    }

    fn stack_rows(&self) -> Vec<Row> {
        let groups = Groups::new(&self.profile, Grouping::Function);
        let mut stacks: FxHashMap<(ProcessId, StackId), Sums> = FxHashMap::default();
        for ((thread, stack), observed) in &self.samples {
            let process = self.profile.threads()[thread.index()].process;
            *stacks.entry((process, *stack)).or_default() += *observed;
        }
        // Stacks with different addresses can have the same functions.
        let mut named: FxHashMap<(ProcessId, Vec<usize>), Sums> = FxHashMap::default();
        for ((process, stack), observed) in stacks {
            let frames = self.profile.stack(stack).map(|frame| groups.of(frame)).collect();
            *named.entry((process, frames)).or_default() += observed;
        }
        let rows = named.into_iter().map(|((process, frames), own)| {
            let names = frames.iter().map(|&group| groups.names()[group].clone());
            let process = process_row(&self.profile, process);
            let names = names.chain(process.names).collect();
            Row { own, total: own, names, ..process_row_of(process.pid) }
        });
        rows.collect()
    }
}

fn empty(names: Vec<String>) -> Row {
    Row { names, pid: None, tid: None, own: Sums::default(), total: Sums::default(), exact: None }
}

fn process_row_of(pid: Option<u32>) -> Row {
    Row { pid, ..empty(Vec::new()) }
}

fn process_row(profile: &Profile, id: ProcessId) -> Row {
    Row { pid: profile.process(id).pid, ..empty(vec![profile.process_label(id)]) }
}

fn thread_row(profile: &Profile, id: ThreadId) -> Row {
    let thread = &profile.threads()[id.index()];
    let process = profile.process_label(thread.process);
    let name = match thread.tid {
        Some(_) => format!("{process} {}", profile.thread_label(id)),
        None => process,
    };
    Row { pid: profile.process(thread.process).pid, tid: thread.tid, ..empty(vec![name]) }
}
