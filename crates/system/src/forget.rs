//! Bounded memory for live sessions.
//!
//! Two mechanisms bound memory. [`System::forget_before`] drops state that is over; the reader of a
//! live session calls it from time to time. [`Limits`] apply if state is added and never removed,
//! for example if a program creates names without limit: the oldest names are forgotten, and
//! otherwise the state of the process that has the most. State that is forgotten before its end is
//! counted.

use std::cmp::Reverse;

use stackhound_trace::TraceTime;

use crate::span::Span;
use crate::system::System;
use crate::text::Text;

/// The maximum amount of state that a [`System`] keeps. A number can be exceeded by the additions
/// of about a thousand events.
///
/// With the default limits, a system takes less than 500 MB if all limits are reached, which only
/// an attack does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Processes. If there are more, ended processes are forgotten at once.
    pub processes: usize,
    /// Threads. If there are more, ended threads are forgotten at once.
    pub threads: usize,
    /// Loads and unloads of modules, and modules that existed before the trace. About 330 bytes
    /// each.
    pub modules: usize,
    /// The same for JIT-compiled methods. About 260 bytes each.
    pub methods: usize,
    /// Loads and unloads of .NET modules. About 60 bytes each.
    pub managed_modules: usize,
    /// Calls that reserve, commit or free memory. About 400 bytes each.
    pub allocations: usize,
    /// Mapped and unmapped sections. About 250 bytes each.
    pub views: usize,
    /// Statements about names of files. About 50 bytes each.
    pub file_names: usize,
    /// Statements about names of registry keys. About 50 bytes each.
    pub key_names: usize,
    /// Names given during the life of threads. About 40 bytes each.
    pub thread_names: usize,
    /// Bytes of all distinct texts.
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            processes: 1 << 15,
            threads: 1 << 17,
            modules: 1 << 17,
            methods: 1 << 18,
            managed_modules: 1 << 17,
            allocations: 1 << 18,
            views: 1 << 18,
            file_names: 1 << 18,
            key_names: 1 << 18,
            thread_names: 1 << 16,
            text_bytes: 64 << 20,
        }
    }
}

/// State that was forgotten before its end, or soon after it, because a limit was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ForgottenEarly {
    /// Processes that had just ended.
    pub processes: u64,
    /// Threads that had just ended.
    pub threads: u64,
    /// Modules. Some may still be loaded: the module maps of their processes are
    /// [incomplete](crate::Gap::Forgotten) from then on.
    pub modules: u64,
    /// JIT-compiled methods, with the same effect.
    pub methods: u64,
    /// Statements about .NET modules.
    pub managed_modules: u64,
    /// Calls that reserved or committed memory.
    pub allocations: u64,
    /// Mapped sections.
    pub views: u64,
    /// Statements about names of files.
    pub file_names: u64,
    /// Statements about names of registry keys.
    pub key_names: u64,
    /// Names of threads.
    pub thread_names: u64,
    /// Texts that exceeded the limit and count as unknown.
    pub texts: u64,
}

impl ForgottenEarly {
    /// Whether any state was forgotten early.
    pub fn is_any(&self) -> bool {
        *self != ForgottenEarly::default()
    }
}

/// The limits, and the counters of forgotten state.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    limits: Option<Limits>,
    /// Statements since the last check of the limits.
    taken: u32,
    early: ForgottenEarly,
    /// The amount of state that was over and is forgotten.
    over: u64,
    /// The number of records at which unneeded records are searched for.
    records_full: usize,
    /// The number of bytes of texts at which unneeded texts are searched for.
    texts_full: usize,
}

/// The number of statements between two checks of the limits.
const CHECK_EVERY: u32 = 1024;

/// The minimum number of records for forgetting records of existing processes.
const RECORDS_FULL_MIN: usize = 64;

/// The minimum number of bytes for forgetting texts.
const TEXTS_FULL_MIN: usize = 1 << 10;

/// The target size after a limit was exceeded. It is lower than the limit, so that the limit is not
/// reached again at once.
fn rest(limit: usize) -> usize {
    limit - limit / 4
}

/// The indexes of the processes whose state is to be forgotten: ended processes first, then those
/// with the most state.
fn heaviest(lens: impl Iterator<Item = usize>, limit: usize, is_over: impl Fn(u32) -> bool) -> Vec<u32> {
    let lens: Vec<usize> = lens.collect();
    let mut total: usize = lens.iter().sum();
    if total <= limit {
        return Vec::new();
    }
    let mut order: Vec<u32> = (0..lens.len() as u32).filter(|&index| lens[index as usize] > 0).collect();
    order.sort_by_key(|&index| (!is_over(index), Reverse(lens[index as usize])));
    let goes = |&index: &u32| {
        let goes = total > rest(limit);
        total -= if goes { lens[index as usize] } else { 0 };
        goes
    };
    order.into_iter().take_while(goes).collect()
}

impl System {
    /// Limits the amount of state, for live sessions.
    pub fn limited(mut self, limits: Limits) -> System {
        self.texts.set_bytes_max(limits.text_bytes);
        self.forgetting.limits = Some(limits);
        self
    }

    /// Forgets state that was over before a time: ended processes with all of their state, ended
    /// threads, unloaded modules and methods, freed memory, deleted names, and texts that are no
    /// longer used.
    ///
    /// Queries about this time and later times have the same answers as before, with two
    /// exceptions. The last holder of a process or thread id
    /// ([`process_of_event`](System::process_of_event),
    /// [`thread_of_event`](System::thread_of_event)) is no longer known if it ended before `time`.
    /// A thread is forgotten with its process even if its own end was not observed. Therefore,
    /// `time` should be some seconds before all later events and queries. Ids of forgotten state
    /// are invalid: lookups by them find nothing, and the methods of references panic.
    ///
    /// The cost is proportional to the stored state: about 10 ms for a million entries. The method
    /// is meant to be called every few seconds of trace time. Some state is kept until its amount
    /// has doubled.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.revision += 1;
        let (processes, threads) = self.forget_processes(time);
        self.forgetting.over += processes + threads;
        self.modules.forget_before(time);
        self.methods.spaces.forget_before(time);
        self.managed_modules.forget_before(time);
        self.views.spaces.forget_before(time);
        self.regions.forget_before(time);
        self.files.forget_before(time);
        self.registry.forget_before(time);
        // References to the state of a forgotten process would lead to that process.
        if processes > 0 || self.records() >= self.forgetting.records_full.max(RECORDS_FULL_MIN) {
            let swept =
                [self.modules.sweep(), self.methods.sweep(), self.views.sweep(), self.regions.sweep()];
            self.forgetting.over += swept.iter().sum::<u64>();
            self.forgetting.records_full = 2 * self.records();
        }
        if self.texts.bytes() >= self.forgetting.texts_full.max(TEXTS_FULL_MIN) {
            self.forget_unused_texts();
        }
        self.enforce_limits();
    }

    /// Forgets processes and threads that ended before a time. Returns the number of each.
    fn forget_processes(&mut self, time: TraceTime) -> (u64, u64) {
        let gone = self.processes.forget_before(time);
        for &index in &gone {
            self.modules.forget_process(index);
            self.methods.spaces.forget_process(index);
            self.views.spaces.forget_process(index);
            self.regions.forget_process(index);
        }
        let is_there = |process| self.processes.span(process).is_some();
        if !gone.is_empty() {
            self.managed_modules.forget_processes(is_there);
        }
        let threads = self.threads.forget_before(time, is_there);
        (gone.len() as u64, threads)
    }

    fn records(&self) -> usize {
        self.modules.len() + self.methods.len() + self.views.len() + self.regions.len()
    }

    /// The amount of state that was over and is forgotten, and the state that was forgotten early.
    pub(crate) fn forgotten(&self) -> (u64, ForgottenEarly) {
        let early = ForgottenEarly { texts: self.texts.refused, ..self.forgetting.early };
        (self.forgetting.over, early)
    }

    /// Called for every recorded statement.
    #[inline]
    pub(crate) fn keep_limits(&mut self) {
        if self.forgetting.limits.is_some() {
            self.forgetting.taken += 1;
            if self.forgetting.taken >= CHECK_EVERY {
                self.enforce_limits();
            }
        }
    }

    #[cold]
    fn enforce_limits(&mut self) {
        let Some(limits) = self.forgetting.limits else { return };
        self.forgetting.taken = 0;
        self.revision += 1;
        if self.processes.len() > limits.processes || self.threads.len() > limits.threads {
            let (processes, threads) = self.forget_processes(Span::OPEN);
            self.forgetting.early.processes += processes;
            self.forgetting.early.threads += threads;
            self.modules.sweep();
            self.methods.sweep();
        }
        let early = &mut self.forgetting.early;
        if self.files.len() > limits.file_names {
            early.file_names += self.files.forget_oldest(rest(limits.file_names));
        }
        if self.registry.len() > limits.key_names {
            early.key_names += self.registry.forget_oldest(rest(limits.key_names));
        }
        if self.threads.renames_len() > limits.thread_names {
            early.thread_names += self.threads.forget_renames(rest(limits.thread_names));
        }
        if self.managed_modules.len() > limits.managed_modules {
            early.managed_modules += self.managed_modules.forget_oldest(rest(limits.managed_modules));
        }
        self.shed_modules(limits.modules);
        self.shed_methods(limits.methods);
        let is_over = |index| self.processes.is_over(index);
        let views = heaviest(self.views.spaces.lens(), limits.views, is_over);
        if !views.is_empty() {
            views.into_iter().for_each(|index| self.views.spaces.forget_process(index));
            self.forgetting.early.views += self.views.sweep();
        }
        let regions = heaviest(self.regions.lens(), limits.allocations, is_over);
        if !regions.is_empty() {
            regions.into_iter().for_each(|index| self.regions.forget_process(index));
            self.forgetting.early.allocations += self.regions.sweep();
        }
        if self.texts.bytes() > rest(limits.text_bytes) {
            self.make_room_for_texts(rest(limits.text_bytes));
        }
    }

    fn shed_modules(&mut self, limit: usize) {
        let shed = heaviest(self.modules.lens(), limit, |index| self.processes.is_over(index));
        if !shed.is_empty() {
            for index in shed {
                self.modules.forget_process(index);
                self.processes.mark_shed(index);
            }
            self.forgetting.early.modules += self.modules.sweep();
        }
    }

    fn shed_methods(&mut self, limit: usize) {
        let shed = heaviest(self.methods.spaces.lens(), limit, |index| self.processes.is_over(index));
        if !shed.is_empty() {
            for index in shed {
                self.methods.spaces.forget_process(index);
                self.processes.mark_shed(index);
            }
            self.forgetting.early.methods += self.methods.sweep();
        }
    }

    /// Forgets unneeded texts; if that is not enough, the older half of names, then methods.
    fn make_room_for_texts(&mut self, bytes: usize) {
        self.forget_unused_texts();
        if self.texts.bytes() <= bytes {
            return;
        }
        let early = &mut self.forgetting.early;
        early.file_names += self.files.forget_oldest(self.files.len() / 2);
        early.key_names += self.registry.forget_oldest(self.registry.len() / 2);
        early.thread_names += self.threads.forget_renames(self.threads.renames_len() / 2);
        early.managed_modules += self.managed_modules.forget_oldest(self.managed_modules.len() / 2);
        self.forget_unused_texts();
        if self.texts.bytes() > bytes {
            self.shed_methods(self.methods.spaces.lens().sum::<usize>() / 2);
            self.forget_unused_texts();
        }
    }

    fn forget_unused_texts(&mut self) {
        let mut used = self.texts.nothing_used();
        self.change_texts(&mut |text| used.mark(*text));
        let renumbered = self.texts.forget_unused(&used);
        self.change_texts(&mut |text| renumbered.apply(text));
        self.forgetting.texts_full = 2 * self.texts.bytes();
    }

    /// Calls `change` for all referenced texts.
    fn change_texts(&mut self, change: &mut dyn FnMut(&mut Text)) {
        self.processes.texts_mut().for_each(&mut *change);
        self.threads.texts_mut().for_each(&mut *change);
        self.modules.change_texts(change);
        self.image_versions.texts_mut().for_each(&mut *change);
        self.methods.texts_mut().for_each(&mut *change);
        self.managed_modules.texts_mut().for_each(&mut *change);
        self.files.texts_mut().for_each(&mut *change);
        self.registry.texts_mut().for_each(change);
    }
}
