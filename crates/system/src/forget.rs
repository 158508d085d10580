//! What a session without end forgets, and when.
//!
//! Two things keep memory flat. [`System::forget_before`] drops what is over; whoever reads a live session calls it now
//! and then. [`Limits`] hold where something comes and does not go, as when a program makes names without end: the
//! oldest names go, and of the rest what the process has that has most. What is forgotten early is counted.

use std::cmp::Reverse;

use stackhound_trace::TraceTime;

use crate::span::Span;
use crate::system::System;
use crate::text::Text;

/// How much a [`System`] remembers at most. Numbers can be exceeded by what a thousand events add.
///
/// With the default limits it takes less than 500 MB where all are reached, which only an attack does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Processes; if there are more, those that are over go at once.
    pub processes: usize,
    /// Threads; if there are more, those that are over go at once.
    pub threads: usize,
    /// Loads and unloads of modules, with modules that were there before. About 330 bytes each.
    pub modules: usize,
    /// The same of compiled methods. About 260 bytes each.
    pub methods: usize,
    /// Calls that reserve, commit or free memory. About 400 bytes each.
    pub allocations: usize,
    /// Mapped and unmapped sections. About 250 bytes each.
    pub views: usize,
    /// Statements about names of files. About 50 bytes each.
    pub file_names: usize,
    /// Statements about names of registry keys. About 50 bytes each.
    pub key_names: usize,
    /// Names that threads were given in mid-life. About 40 bytes each.
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
            allocations: 1 << 18,
            views: 1 << 18,
            file_names: 1 << 18,
            key_names: 1 << 18,
            thread_names: 1 << 16,
            text_bytes: 64 << 20,
        }
    }
}

/// What was forgotten although it was not over, or not for long, because a limit was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ForgottenEarly {
    /// Processes that had just ended.
    pub processes: u64,
    /// Threads that had just ended.
    pub threads: u64,
    /// Modules, some of them loaded: their processes' maps are [incomplete](crate::Gap::Forgotten) from then on.
    pub modules: u64,
    /// Compiled methods, likewise.
    pub methods: u64,
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
    /// Texts for which there was no room, so that they count as not known.
    pub texts: u64,
}

impl ForgottenEarly {
    /// Whether anything was.
    pub fn is_any(&self) -> bool {
        *self != ForgottenEarly::default()
    }
}

/// The state of forgetting.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    limits: Option<Limits>,
    /// Statements since limits were looked at.
    taken: u32,
    early: ForgottenEarly,
    /// What was over.
    over: u64,
    /// Records from which on it is worth while to look for those that are not needed.
    records_full: usize,
    /// Bytes of texts from which on it is worth while to look for those that are not needed.
    texts_full: usize,
}

/// How often limits are looked at, in statements.
const CHECK_EVERY: u32 = 1024;

/// Of fewer records, none is forgotten before its process.
const RECORDS_FULL_MIN: usize = 64;

/// Of fewer bytes of texts, none are forgotten.
const TEXTS_FULL_MIN: usize = 1 << 10;

/// What is left where a limit was exceeded, so that it is not reached again at once.
fn rest(limit: usize) -> usize {
    limit - limit / 4
}

/// The processes of which all is to be forgotten, by index: first those that are over, first those that have most.
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
    /// The same, for a session without end: no more is remembered than these limits allow.
    pub fn limited(mut self, limits: Limits) -> System {
        self.texts.set_bytes_max(limits.text_bytes);
        self.forgetting.limits = Some(limits);
        self
    }

    /// Forgets what was over before a time: processes with all that is theirs, threads, unloaded modules and methods,
    /// memory that was freed, names that were given back, and texts that nothing else uses.
    ///
    /// Answers about this time and later ones are as before, with two exceptions: who was the last to have the id of a
    /// process or thread ([`process_of_event`](System::process_of_event), [`thread_of_event`](System::thread_of_event))
    /// is not known any more if it was over before `time`, and a thread goes with its process even if its own end was
    /// not seen. So `time` is to lie some seconds before the events that are yet to be taken in or asked about. Numbers
    /// of what was forgotten stand for nothing: lookups by them find nothing, and the methods of references panic.
    ///
    /// Takes time in proportion to what is remembered, some 10 ms for a million things: it is meant to be called every
    /// few seconds of trace time. Some things stay until there are twice as many.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.revision += 1;
        let (processes, threads) = self.forget_processes(time);
        self.forgetting.over += processes + threads;
        self.modules.forget_before(time);
        self.methods.spaces.forget_before(time);
        self.views.spaces.forget_before(time);
        self.regions.forget_before(time);
        self.files.forget_before(time);
        self.registry.forget_before(time);
        // References to what a forgotten process had would lead to that process.
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

    /// Forgets processes that ended before a time, and threads; gives how many of each.
    fn forget_processes(&mut self, time: TraceTime) -> (u64, u64) {
        let gone = self.processes.forget_before(time);
        for &index in &gone {
            self.modules.forget_process(index);
            self.methods.spaces.forget_process(index);
            self.views.spaces.forget_process(index);
            self.regions.forget_process(index);
        }
        let is_there = |process| self.processes.span(process).is_some();
        let threads = self.threads.forget_before(time, is_there);
        (gone.len() as u64, threads)
    }

    fn records(&self) -> usize {
        self.modules.len() + self.methods.len() + self.views.len() + self.regions.len()
    }

    /// What was over and is forgotten, and what was forgotten early.
    pub(crate) fn forgotten(&self) -> (u64, ForgottenEarly) {
        let early = ForgottenEarly { texts: self.texts.refused, ..self.forgetting.early };
        (self.forgetting.over, early)
    }

    /// Called for everything that is taken in.
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

    /// Forgets texts that are not needed; if that is not enough, the older half of names, then methods.
    fn make_room_for_texts(&mut self, bytes: usize) {
        self.forget_unused_texts();
        if self.texts.bytes() <= bytes {
            return;
        }
        let early = &mut self.forgetting.early;
        early.file_names += self.files.forget_oldest(self.files.len() / 2);
        early.key_names += self.registry.forget_oldest(self.registry.len() / 2);
        early.thread_names += self.threads.forget_renames(self.threads.renames_len() / 2);
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

    /// Goes through all texts that are referred to.
    fn change_texts(&mut self, change: &mut dyn FnMut(&mut Text)) {
        self.processes.texts_mut().for_each(&mut *change);
        self.threads.texts_mut().for_each(&mut *change);
        self.modules.change_texts(change);
        self.methods.texts_mut().for_each(&mut *change);
        self.files.texts_mut().for_each(&mut *change);
        self.registry.texts_mut().for_each(change);
    }
}
