//! The survey: a first pass over a trace that collects key definitions and thread roots.

use stackhound_etl::Selection;
use stackhound_schema::kernel::hook_id;
use stackhound_trace::{Event, LossMap, OpenTrace};
use stackhound_types::{Address, PointerSize, RawTime};

use crate::keys::{Key, KeyDefinitions, Map};
use crate::part::{Frames, StackRecord};
use crate::roots::{Thread, ThreadRoots};

/// Maximum number of threads that wait for the definition of a key.
const WAITING_MAX: usize = 64;

/// A thread that a key was used for, and the raw times of the first and the last event for which it
/// was.
#[derive(Clone, Copy, Debug)]
struct Use {
    thread: Thread,
    first: RawTime,
    last: RawTime,
    /// When it was used first. User parts are logged some time after their events.
    since: i64,
}

/// Key definitions and roots of threads, collected in a first pass over the trace.
#[derive(Debug, Default)]
pub struct StackSurvey {
    definitions: KeyDefinitions,
    roots: ThreadRoots,
    /// The uses of user keys since the last definition.
    uses: Map<Key, Vec<Use>>,
    /// Uses of keys with their definitions, as evidence of thread roots. Which of them belong
    /// together is known only when the losses are known.
    keyed: Vec<Keyed>,
}

/// A thread's use of a key whose definition came at a time.
#[derive(Clone, Copy, Debug)]
struct Keyed {
    by: Use,
    source: u16,
    defined: i64,
    end: Address,
}

impl StackSurvey {
    /// Hook ids of the records that a survey reads.
    pub const HOOK_IDS: [u16; 6] = [
        hook_id::THREAD_START,
        hook_id::STACK_WALK_STACK,
        hook_id::STACK_WALK_KEY_CREATE,
        hook_id::STACK_WALK_KEY_DELETE,
        hook_id::STACK_WALK_KEY_RUNDOWN,
        hook_id::STACK_WALK_KEY_USER,
    ];

    /// Reads a trace once, and returns the survey and the loss intervals.
    pub fn of(trace: &OpenTrace) -> (StackSurvey, LossMap) {
        let mut survey = StackSurvey::default();
        let mut events = trace.selected(Selection::none().hook_ids(Self::HOOK_IDS));
        while let Some(event) = events.next() {
            survey.observe(&event);
        }
        (survey, LossMap::surveyed(trace, events))
    }

    /// Adds the next event in time order. Events other than stack records and thread starts are
    /// ignored.
    #[inline]
    pub fn observe(&mut self, event: &Event<'_>) {
        if let Some(hook_id) = event.hook_id().filter(|hook_id| Self::HOOK_IDS.contains(hook_id)) {
            self.observe_record(event, hook_id);
        }
    }

    /// The collected definitions and roots, given the losses of the trace.
    pub(crate) fn finish(mut self, losses: &LossMap) -> (KeyDefinitions, ThreadRoots) {
        for Keyed { by, source, defined, end } in self.keyed {
            if losses.is_lossless() || !losses.between(source, by.since, defined) {
                self.roots.observe(by.thread, end, by.first, by.last);
            }
        }
        (self.definitions, self.roots)
    }

    fn observe_record(&mut self, event: &Event<'_>, hook_id: u16) {
        if hook_id == hook_id::THREAD_START {
            return self.roots.observe_start(event);
        }
        let (time, pointer) = (event.time(), event.block().session().pointer_size);
        match StackRecord::parse(event, hook_id) {
            StackRecord::Part(trigger, frames) => {
                if ends_in_user_mode(&frames, pointer)
                    && let Some(end) = frames.last()
                {
                    let thread = self.roots.thread(trigger.pid, trigger.tid, trigger.time);
                    self.roots.observe(thread, end, trigger.time, trigger.time);
                }
            }
            StackRecord::Reference(trigger, number, _) => {
                let key = Key { session: event.session_number(), kernel: false, number };
                let thread = self.roots.thread(trigger.pid, trigger.tid, trigger.time);
                let uses = self.uses.entry(key).or_default();
                if let Some(known) = uses.iter_mut().find(|known| known.thread == thread) {
                    known.last = known.last.max(trigger.time);
                    known.first = known.first.min(trigger.time);
                } else if uses.len() < WAITING_MAX {
                    uses.push(Use { thread, first: trigger.time, last: trigger.time, since: time.0 });
                }
            }
            StackRecord::Definition(number, frames) => {
                let key = self.definitions.define(event, number, &frames);
                let Some(uses) = self.uses.get_mut(&key) else { return };
                let end = frames.last().filter(|_| ends_in_user_mode(&frames, pointer));
                for known in uses.drain(..) {
                    let source = event.source();
                    self.keyed.extend(end.map(|end| Keyed { by: known, source, defined: time.0, end }));
                }
            }
            StackRecord::Malformed => {}
        }
    }
}

/// Whether the two outermost frames are in user mode.
pub(crate) fn ends_in_user_mode(frames: &Frames<'_>, pointer: PointerSize) -> bool {
    let mut outer = frames.iter().rev();
    let mut is_user = || outer.next().is_some_and(|address| !address.is_kernel(pointer));
    is_user() && is_user()
}
