//! What was observed of threads and stacks, as rows by process, thread, module, function or stack.

use std::hash::Hash;
use std::ops::AddAssign;

use rustc_hash::FxHashMap;
use stackhound_profile::{
    Grouping, Groups, Patterns, ProcessId, Profile, Regrouped, StackId, Sums, ThreadId,
};

/// What was observed, by thread and stack.
pub type ByStack<T = Sums> = FxHashMap<(ThreadId, StackId), T>;

/// What observations add up to.
pub trait Amount: Copy + Default + PartialEq + AddAssign {
    /// The sum that rows are sorted by.
    fn amount(self) -> u64;
}

impl Amount for Sums {
    fn amount(self) -> u64 {
        self.amount
    }
}

/// What patterns did to the stacks of an analysis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied<T = Sums> {
    /// What was observed with stacks that the patterns left out.
    pub excluded: T,
    /// The directories of the programs whose code was kept as own code, in order.
    pub own_directories: Vec<String>,
}

/// Applies patterns to the stacks of a profile. `observed` has a thread and a stack in each key.
pub(crate) fn regroup<K: Copy + Eq + Hash, T: Amount>(
    profile: &mut Profile,
    observed: &mut FxHashMap<K, T>,
    (patterns, grouping): (&Patterns, Grouping),
    thread: impl Fn(K) -> ThreadId,
    stack: impl Fn(&mut K) -> &mut StackId,
) -> Applied<T> {
    let regrouped = patterns.regroup(profile, observed.keys().map(|&key| thread(key)), grouping);
    let excluded = rekey(observed, &regrouped, stack);
    let own_directories = regrouped.own_directories.clone();
    profile.replace_stacks(regrouped);
    Applied { excluded, own_directories }
}

/// Moves what was observed to the grouped stacks. Returns the sum of what was left out.
pub(crate) fn rekey<K: Copy + Eq + Hash, T: Amount>(
    observed: &mut FxHashMap<K, T>,
    regrouped: &Regrouped,
    stack: impl Fn(&mut K) -> &mut StackId,
) -> T {
    let mut excluded = T::default();
    for (mut key, sums) in std::mem::take(observed) {
        let at = stack(&mut key);
        match regrouped.of(*at) {
            Some(grouped) => {
                *at = grouped;
                *observed.entry(key).or_default() += sums;
            }
            None => excluded += sums,
        }
    }
    excluded
}

/// What rows are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Processes.
    Process,
    /// Threads.
    Thread,
    /// Windows services that threads worked for. Other threads are one row.
    Service,
    /// Groups of frames.
    Frames(Grouping),
    /// Stacks of a process. Frames are named as functions.
    Stack,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row<T = Sums> {
    /// What it is about. Of a stack, the names of its frames, innermost first, and its process.
    pub names: Vec<String>,
    /// The process id, of rows about a process, a thread or a stack.
    pub pid: Option<u32>,
    /// The thread id, of rows about a thread.
    pub tid: Option<u32>,
    /// What was observed with the innermost frame in the row; of processes, threads and stacks
    /// everything.
    pub own: T,
    /// What was observed with any frame in the row.
    pub total: T,
    /// Of processes and threads, by another measurement: the exact processor time, and how often
    /// they ran.
    pub exact: Option<Sums>,
}

/// The rows, those with the largest amount first.
pub fn rows<T: Amount>(
    profile: &Profile,
    observed: &ByStack<T>,
    exact: Option<&FxHashMap<ThreadId, Sums>>,
    by: By,
) -> Vec<Row<T>> {
    let of_process = |thread: ThreadId| profile.threads()[thread.index()].process;
    let mut rows = match by {
        By::Process => owners(observed, exact, of_process, |id| process_row(profile, id)),
        By::Thread => owners(observed, exact, |thread| thread, |id| thread_row(profile, id)),
        By::Service => owners(
            observed,
            exact,
            |thread| profile.service(thread),
            |service| {
                let name = service.map_or("[no service]", |service| profile.text(service));
                empty(vec![name.to_owned()])
            },
        ),
        By::Frames(grouping) => frame_rows(profile, observed, grouping),
        By::Stack => stack_rows(profile, observed),
    };
    sort(&mut rows);
    rows
}

/// Rows with names of their own, such as reasons.
pub fn named_rows<T: Amount>(sums: impl IntoIterator<Item = (String, T)>) -> Vec<Row<T>> {
    let mut named: FxHashMap<String, T> = FxHashMap::default();
    for (name, sums) in sums {
        *named.entry(name).or_default() += sums;
    }
    let mut rows: Vec<Row<T>> =
        named.into_iter().map(|(name, own)| Row { own, total: own, ..empty(vec![name]) }).collect();
    sort(&mut rows);
    rows
}

fn sort<T: Amount>(rows: &mut [Row<T>]) {
    let amount = |sums: Option<Sums>| sums.map_or(0, |sums| sums.amount);
    rows.sort_by(|a, b| {
        let measured = |row: &Row<T>| (row.own.amount(), row.total.amount(), amount(row.exact));
        let id = |row: &Row<T>| (row.pid, row.tid);
        measured(b).cmp(&measured(a)).then_with(|| a.names.cmp(&b.names)).then_with(|| id(a).cmp(&id(b)))
    });
}

/// One row for each owner of a thread.
fn owners<T: Amount, K: Copy + Eq + std::hash::Hash>(
    observed: &ByStack<T>,
    exact: Option<&FxHashMap<ThreadId, Sums>>,
    owner: impl Fn(ThreadId) -> K,
    row: impl Fn(K) -> Row<T>,
) -> Vec<Row<T>> {
    let mut sums: FxHashMap<K, (T, Sums)> = FxHashMap::default();
    for ((thread, _), observed) in observed {
        sums.entry(owner(*thread)).or_default().0 += *observed;
    }
    for (thread, observed) in exact.into_iter().flatten() {
        sums.entry(owner(*thread)).or_default().1 += *observed;
    }
    let rows = sums.into_iter().map(|(key, (own, measured))| Row {
        own,
        total: own,
        exact: exact.map(|_| measured),
        ..row(key)
    });
    rows.collect()
}

fn frame_rows<T: Amount>(profile: &Profile, observed: &ByStack<T>, grouping: Grouping) -> Vec<Row<T>> {
    let groups = Groups::new(profile, grouping);
    let totals = groups.totals(profile, observed.iter().map(|((_, stack), sums)| (*stack, *sums)));
    let named = groups.names().iter().zip(totals).filter(|(_, total)| total.total != T::default());
    named.map(|(name, sums)| Row { own: sums.own, total: sums.total, ..empty(vec![name.clone()]) }).collect()
}

fn stack_rows<T: Amount>(profile: &Profile, observed: &ByStack<T>) -> Vec<Row<T>> {
    let groups = Groups::new(profile, Grouping::Function);
    let mut stacks: FxHashMap<(ProcessId, StackId), T> = FxHashMap::default();
    for ((thread, stack), observed) in observed {
        let process = profile.threads()[thread.index()].process;
        *stacks.entry((process, *stack)).or_default() += *observed;
    }
    // Stacks with different addresses can have the same functions.
    let mut named: FxHashMap<(ProcessId, Vec<usize>), T> = FxHashMap::default();
    for ((process, stack), observed) in stacks {
        let frames = profile.stack(stack).map(|frame| groups.of(frame)).collect();
        *named.entry((process, frames)).or_default() += observed;
    }
    let rows = named.into_iter().map(|((process, frames), own)| {
        let process = process_row(profile, process);
        let names = frames.iter().map(|&group| groups.names()[group].clone());
        Row { own, total: own, names: names.chain(process.names.iter().cloned()).collect(), ..process }
    });
    rows.collect()
}

fn empty<T: Amount>(names: Vec<String>) -> Row<T> {
    Row { names, pid: None, tid: None, own: T::default(), total: T::default(), exact: None }
}

fn process_row<T: Amount>(profile: &Profile, id: ProcessId) -> Row<T> {
    Row { pid: profile.process(id).pid, ..empty(vec![profile.process_label(id)]) }
}

fn thread_row<T: Amount>(profile: &Profile, id: ThreadId) -> Row<T> {
    let thread = &profile.threads()[id.index()];
    Row { pid: profile.process(thread.process).pid, tid: thread.tid, ..empty(vec![thread_name(profile, id)]) }
}

/// The process and the name of a thread.
pub fn thread_name(profile: &Profile, id: ThreadId) -> String {
    let thread = &profile.threads()[id.index()];
    let process = profile.process_label(thread.process);
    match thread.tid {
        Some(_) => format!("{process} {}", profile.thread_label(id)),
        None => process,
    }
}
