//! The output of the correlator: events with their stacks.

use std::sync::Arc;

use stackhound_etl::Block;
use stackhound_trace::{Event, LossMap, TraceTime};
use stackhound_types::{Address, Pid, Tid};

use crate::partial::StatedIds;
use crate::state::{StackState, StackStates};
use crate::table::{Hold, StackId, StackTable};
use crate::trigger::thread_of;

/// An event that leaves the correlator.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'c> {
    /// The event.
    pub event: Event<'c>,
    /// Its stack, if at least one part of it is known.
    pub stack: Option<StackId>,
    /// How much of the stack there is, and how certain it is.
    pub states: StackStates,
    pub(crate) stated: Option<StatedIds>,
    pub(crate) table: &'c StackTable,
    pub(crate) losses: Option<&'c LossMap>,
}

impl<'c> Delivered<'c> {
    /// The first of the states that apply.
    #[inline]
    pub fn state(&self) -> StackState {
        self.states.first()
    }

    /// The frames of the stack, innermost first; none if there is no stack.
    pub fn frames(&self) -> impl Iterator<Item = Address> + use<'c> {
        let table = self.table;
        self.stack.into_iter().flat_map(move |stack| table.frames(stack))
    }

    /// The table that the stack is in.
    pub fn table(&self) -> &'c StackTable {
        self.table
    }

    /// The losses known when the event left the correlator. `None` for events that were kept.
    pub fn losses(&self) -> Option<&'c LossMap> {
        self.losses
    }

    /// The process in whose address space the stack was taken: the one that a stack record states,
    /// else the header's.
    ///
    /// It is the acting process, such as the creator of a process or of a thread in another
    /// process. The payload is not read, because it names the target.
    pub fn stack_pid(&self) -> Option<Pid> {
        self.stated.and_then(|ids| Pid::known(ids.pid)).or_else(|| self.event.header_pid())
    }

    /// The thread whose stack it is: the one that a stack record states, else as
    /// [`tid`](Delivered::tid).
    pub fn stack_tid(&self) -> Option<Tid> {
        self.stated.and_then(|ids| Tid::known(ids.tid)).or_else(|| self.tid())
    }

    /// The process: the header's, else the one that a stack record states.
    pub fn pid(&self) -> Option<Pid> {
        self.event.header_pid().or_else(|| Pid::known(self.stated?.pid))
    }

    /// Whether the header and the stack records state different processes.
    pub fn is_pid_contradictory(&self) -> bool {
        let Some(mut stated) = self.stated else { return false };
        if let Some(pid) = self.event.header_pid() {
            stated.compare(StatedIds::new(pid.0, stated.tid));
        }
        stated.is_contradictory
    }

    /// The thread: the header's, else the one that a stack record or the payload states.
    pub fn tid(&self) -> Option<Tid> {
        self.event.header_tid().or_else(|| Tid::known(self.stated?.tid)).or_else(|| thread_of(&self.event))
    }
}

impl Delivered<'_> {
    /// Keeps the event and its stack after the next call of [`pop`](crate::Correlator::pop). Costs
    /// two reference counts. In a live correlator, it keeps the whole generation of stacks in
    /// memory.
    pub fn keep(&self) -> Kept {
        let (block, index, time) = (Arc::clone(self.event.block()), self.event.index(), self.event.time());
        let _hold = self.stack.and_then(|stack| self.table.hold(stack));
        Kept { block, index, time, stack: self.stack, states: self.states, stated: self.stated, _hold }
    }
}

/// An event that left the correlator and is kept, with its block.
#[derive(Clone, Debug)]
pub struct Kept {
    block: Arc<Block>,
    index: u32,
    time: TraceTime,
    stack: Option<StackId>,
    states: StackStates,
    stated: Option<StatedIds>,
    /// Keeps the stack in the table.
    _hold: Option<Hold>,
}

impl Kept {
    /// The event's time.
    pub fn time(&self) -> TraceTime {
        self.time
    }

    /// The event as delivered; `table` must be that of its correlator.
    pub fn delivered<'k>(&'k self, table: &'k StackTable) -> Delivered<'k> {
        let event = Event::new(&self.block, self.index, self.time);
        let Kept { stack, states, stated, .. } = *self;
        Delivered { event, stack, states, stated, table, losses: None }
    }
}
