//! Cuts a trace: writes selected events, and everything that they need, to a smaller trace.
//!
//! In the smaller trace, the selected events have the same stacks, states, facts and names as in the
//! whole one. Besides them, it therefore contains these records of the whole trace:
//!
//! - From the whole trace: everything from which its state is known (processes, threads, images, methods,
//!   memory, files, registry keys, volumes), descriptions of events, names of providers, and the
//!   configuration of the machine and of its session. Also the stacks of those of them whose process only
//!   the stack states. Of each thread whose process no thread event states, the first and the last event
//!   that does, and those before and after each change.
//! - Parts and key definitions of the stacks of selected events, and the evidence about these stacks:
//!   [`NeededStacks`].
//! - Other events with exactly the time of a selected one in its session, because a part of a stack could
//!   be theirs.
//! - The operation that ends a selected create of a file. If an entry or exit of a system call is selected:
//!   all of them, and context switches, up to the last one and the time for which events are held after it.
//! - The first and last records at the bounds of losses.
//! - Events that the caller names, from which sums over the selected ones follow, and notes about what
//!   was cut away: [`CutNote`].
//!
//! Losses stay visible. The file has a mark at each place where records are missing in the whole trace,
//! and its counters state the same losses. If it is not known where records are missing, neither is it
//! in the smaller file. Losses at the end of single processors make it an unfinished trace.
//!
//! The trace is read several times. Memory holds one bit for each record, the ids of the threads of
//! selected events, and the records of one time.
//!
//! This module does not choose events, does not know what sums need, and does not change records.

use std::collections::{HashMap, HashSet};
use std::io::{Seek, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use stackhound_etl::write::{EtlWriter, Form, Session, Totals, WriteError};
use stackhound_etl::{Block, Index, LogFileMode, LogfileHeader, Selection};
use stackhound_frames::{CallJoin, CreateEnds};
use stackhound_schema::ProviderTraits;
use stackhound_schema::kernel::{class_guid, hook_id};
use stackhound_stacks::{NeededStacks, Window, is_stack_record};
use stackhound_system::System;
use stackhound_trace::{Event, LossMap, OpenTrace, TimeBase, TraceTime};
use stackhound_types::{FileTime, Guid, Pid, Tid};

use crate::cut_note::is_note;
pub use crate::cut_note::{CutKind, CutNote};
use crate::event_view::EventView;
use crate::pipeline::{Outcome, Pipeline};
pub use crate::pseudonyms::Pseudonyms;
use crate::trace_state::TraceState;

/// The reason why a trace cannot be cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The sessions have different clocks.
    #[error("the sessions have different clocks, and one .etl file has one; cut one file at a time")]
    Clocks,
    /// The sessions have different pointer sizes.
    #[error("the sessions have different pointer sizes, and one .etl file has one; cut one file at a time")]
    PointerSizes,
    /// Stack keys of several sessions would be confused.
    #[error("several sessions have stack keys, which mean different stacks; cut one file at a time")]
    StackKeys,
    /// The smaller trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// One bit for each record or event of a trace.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, number: u64) -> bool {
        self.0.get((number / 64) as usize).is_some_and(|bits| bits >> (number % 64) & 1 != 0)
    }

    /// Returns whether the bit was not set.
    fn set(&mut self, number: u64) -> bool {
        let (at, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let is_new = self.0[at] & bit == 0;
        self.0[at] |= bit;
        is_new
    }
}

/// The events that are selected.
#[derive(Debug)]
pub struct Selected {
    /// By the number of the event among those that are delivered.
    events: Bits,
    /// The events that are needed without being selected, and those of them whose stacks are, too.
    needed: Bits,
    needed_stacks: Bits,
    /// The events that alone state the process of a thread.
    owners: Bits,
    /// The last event that states the process of each thread.
    last_owners: HashMap<Tid, Statement>,
    /// Whose stacks are selected.
    threads: HashSet<(Pid, Tid)>,
    /// The time of the last entry or exit of a system call.
    last_call: Option<TraceTime>,
    window: Window,
}

impl Selected {
    /// Reads a trace and selects the events for which `choose` returns true, until it breaks. `choose`
    /// also receives the number of the event, and can name events that are needed.
    pub fn by(
        pipeline: &mut Pipeline<'_>,
        mut choose: impl FnMut(&EventView<'_>, u64, &mut Selected) -> ControlFlow<(), bool>,
    ) -> (Selected, Outcome) {
        let mut selected = Selected {
            events: Bits::default(),
            needed: Bits::default(),
            needed_stacks: Bits::default(),
            owners: Bits::default(),
            last_owners: HashMap::new(),
            threads: HashSet::new(),
            last_call: None,
            window: pipeline.window(),
        };
        let mut number = 0;
        let outcome = pipeline.run(|view| {
            if choose(view, number, &mut selected)? {
                selected.add(view, number);
            }
            selected.observe_owners(view, number);
            number += 1;
            ControlFlow::Continue(())
        });
        let last = std::mem::take(&mut selected.last_owners);
        last.into_values().filter(|last| !last.is_repeated).for_each(|last| selected.keep_owner(last));
        (selected, outcome)
    }

    /// Keeps the event with this number, although it is not selected. Its stack is kept if
    /// `with_stack`, and if [`expect_stack`](Selected::expect_stack) was called for the event.
    pub fn need(&mut self, number: u64, with_stack: bool) {
        self.needed.set(number);
        if with_stack {
            self.needed_stacks.set(number);
        }
    }

    /// Notes the threads to which the stack of an event can belong.
    pub fn expect_stack(&mut self, view: &EventView<'_>) {
        let delivered = view.delivered();
        if delivered.stack.is_none() {
            return;
        }
        let pids = [delivered.stack_pid(), delivered.pid()];
        for pid in pids.into_iter().flatten() {
            let tids = [delivered.stack_tid(), delivered.tid()];
            self.threads.extend(tids.into_iter().flatten().map(|tid| (pid, tid)));
        }
    }

    /// Finds the events that alone state the process of a thread.
    fn observe_owners(&mut self, view: &EventView<'_>, number: u64) {
        let delivered = view.delivered();
        let in_header = System::owner_in_header(view.event());
        let in_stack = delivered.stack_pid().zip(delivered.stack_tid()).filter(|_| delivered.stack.is_some());
        let in_stack = in_stack.filter(|ids| in_header != Some(*ids));
        for (ids, in_stack) in [(in_header, false), (in_stack, true)] {
            let Some((pid, tid)) = ids else { continue };
            let thread = view.trace_state().system().thread_at(tid, view.time());
            let is_repeated = thread.is_some_and(|of| of.pid() == pid && of.thread_events().is_some());
            let statement = Statement { pid, tid, number, in_stack, is_repeated };
            match self.last_owners.insert(tid, statement) {
                Some(last) if last.pid == pid => {}
                Some(last) => {
                    self.keep_owner(last);
                    self.keep_owner(statement);
                }
                None if is_repeated => {}
                None => self.keep_owner(statement),
            }
        }
    }

    fn keep_owner(&mut self, statement: Statement) {
        let Statement { pid, tid, number, in_stack, .. } = statement;
        self.owners.set(number);
        if in_stack {
            self.needed_stacks.set(number);
            self.threads.insert((pid, tid));
        }
    }

    fn add(&mut self, view: &EventView<'_>, number: u64) {
        self.events.set(number);
        self.expect_stack(view);
        if view.call().is_some() {
            self.last_call = self.last_call.max(Some(view.time()));
        }
    }
}

/// An event that states the process of a thread.
#[derive(Clone, Copy, Debug)]
struct Statement {
    pid: Pid,
    tid: Tid,
    /// The number of the event.
    number: u64,
    /// Whether its stack states them, and not its header.
    in_stack: bool,
    /// Whether thread events state the same about this thread.
    is_repeated: bool,
}

/// The numbers of records that a cut keeps, by reason: the first that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CutCounts {
    /// Events of the whole trace.
    pub events: u64,
    /// Selected events.
    pub selected: u64,
    /// Events with the time of a selected one.
    pub same_time: u64,
    /// Events from which names, states and schemas are known.
    pub state: u64,
    /// Events that complete system calls and file creates.
    pub joined: u64,
    /// Events that sums over the selected ones need.
    pub sums: u64,
    /// Stack records.
    pub stacks: u64,
    /// Records at the bounds of losses.
    pub bounds: u64,
}

/// The records of a trace that a cut keeps.
#[derive(Debug)]
pub struct Cut {
    /// By the number of the record in the trace.
    records: Bits,
    session: Session,
    losses: CutLosses,
    /// What was cut away.
    note: CutNote,
    /// The number of kept records.
    pub counts: CutCounts,
}

impl Cut {
    /// Finds the records that selected events need. `losses` are those of the whole trace.
    ///
    /// # Errors
    /// If one file cannot hold the sessions of the trace.
    pub fn of(trace: &OpenTrace, losses: &LossMap, selected: &Selected) -> Result<Cut, CutError> {
        let losses_of_cut = CutLosses::of(trace, losses);
        let session = session_of(trace, losses_of_cut.is_open())?;
        let mut search = Search {
            joins: CallJoin::select(Selection::none()),
            joins_until: selected.last_call.map(|last| last.0.saturating_add(selected.window.max_hold)),
            creates: CreateEnds::default(),
            stacks: NeededStacks::of(trace, losses, selected.window, &selected.threads),
            needs_stack_record: !losses.is_lossless(),
            losses: &losses_of_cut,
            records: Bits::default(),
            kinds: HashMap::new(),
            named: HashSet::new(),
            counts: CutCounts::default(),
        };
        let mut events = trace.ordered();
        let mut group = Vec::new();
        let (mut record, mut delivered) = (0, 0);
        let mut ends: HashMap<u16, u64> = HashMap::new();
        while let Some(event) = events.next() {
            if group.len() >= GROUP_MAX
                || group.first().is_some_and(|first: &Member| first.time != event.time())
            {
                search.group(&group);
                group.clear();
            }
            let is_stack_record = is_stack_record(&event);
            let is_in = |events: &Bits| !is_stack_record && events.has(delivered);
            let member = Member {
                block: Arc::clone(event.block()),
                index: event.index(),
                time: event.time(),
                record,
                is_stack_record,
                is_selected: is_in(&selected.events),
                is_needed: is_in(&selected.needed),
                needs_stack: is_in(&selected.needed_stacks),
                is_owner: is_in(&selected.owners),
            };
            group.push(member);
            delivered += u64::from(!is_stack_record);
            if losses_of_cut.is_open() {
                ends.insert(event.processor().unwrap_or(0), record);
            }
            record += 1;
        }
        search.group(&group);
        // In an unfinished trace, records can be missing after the last one of each processor.
        for end in ends.into_values() {
            search.counts.bounds += u64::from(search.records.set(end));
        }
        if search.stacks.has_keys_of_several_sessions() {
            return Err(CutError::StackKeys);
        }
        let Search { records, kinds, counts, .. } = search;
        let counts = CutCounts { events: delivered, ..counts };
        let mut kinds: Vec<CutKind> = kinds
            .into_iter()
            .map(|(hook_id, (events, kept))| CutKind { hook_id, events, kept })
            .filter(|kind| kind.kept < kind.events)
            .collect();
        kinds.sort_by_key(|kind| kind.hook_id);
        let note = CutNote { events: delivered, selected: counts.selected, kinds, ..CutNote::default() };
        Ok(Cut { records, session, losses: losses_of_cut, note, counts })
    }

    /// The name of the session in the smaller trace.
    pub fn session_name(&mut self) -> &mut String {
        &mut self.session.name
    }

    /// The note about what was cut away, with all kinds of kernel events. Only the caller knows the
    /// conditions, the times, and which kinds matter.
    pub fn note(&mut self) -> &mut CutNote {
        &mut self.note
    }

    /// Writes the smaller trace to the current position of `output`. `change` receives each kept event
    /// with the bytes of its record, from the header on, and may change the payload. If it returns
    /// false, the record is left out.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn write<W: Write + Seek>(
        &self,
        trace: &OpenTrace,
        output: W,
        mut change: impl FnMut(&Event<'_>, &mut Vec<u8>) -> bool,
    ) -> Result<(W, Totals), CutError> {
        let mut writer = EtlWriter::new(self.session.clone(), output)?;
        writer.lose_events(self.losses.events);
        writer.lose_buffers(self.losses.buffers);
        let mut last: HashMap<u16, i64> = HashMap::new();
        let mut bytes = Vec::new();
        let mut events = trace.ordered();
        let mut number = 0;
        let mut is_noted = false;
        while let Some(event) = events.next() {
            // Without conditions, nothing was cut away.
            if !std::mem::replace(&mut is_noted, true) && !self.note.selection.is_empty() {
                let time = event.raw_time().min(self.session.start);
                let pointer_size = self.session.pointer_size;
                self.note.write(time, pointer_size, |record| writer.write(0, record))?;
            }
            let is_kept = self.records.has(number);
            number += 1;
            if !is_kept {
                continue;
            }
            bytes.clear();
            bytes.extend_from_slice(event.record().bytes());
            if !change(&event, &mut bytes) {
                continue;
            }
            let (processor, time) = (event.processor().unwrap_or(0), event.time().0);
            let previous = last.insert(processor, time).unwrap_or(i64::MIN);
            if self.losses.is_between(processor, previous, time) {
                writer.mark_loss(processor)?;
            }
            writer.copy_bytes(processor, &bytes, event.raw_time())?;
        }
        Ok(writer.finish()?)
    }
}

/// Maximum number of records with equal times that are considered together.
const GROUP_MAX: usize = 1 << 16;

/// A record of a group with equal times.
struct Member {
    block: Arc<Block>,
    index: u32,
    time: TraceTime,
    record: u64,
    is_stack_record: bool,
    is_selected: bool,
    is_needed: bool,
    needs_stack: bool,
    is_owner: bool,
}

impl Member {
    fn event(&self) -> Event<'_> {
        Event::new(&self.block, self.index, self.time)
    }

    fn is_definition(&self) -> bool {
        matches!(
            self.event().hook_id(),
            Some(
                hook_id::STACK_WALK_KEY_CREATE
                    | hook_id::STACK_WALK_KEY_DELETE
                    | hook_id::STACK_WALK_KEY_RUNDOWN
            )
        )
    }
}

/// The search for the records to keep.
struct Search<'l> {
    joins: Selection,
    /// Until when the records of system calls are needed.
    joins_until: Option<i64>,
    creates: CreateEnds,
    stacks: NeededStacks,
    /// Whether the first stack record is still needed. It shows that the session records stacks, so that
    /// those of other events can have been lost.
    needs_stack_record: bool,
    losses: &'l CutLosses,
    records: Bits,
    /// By hook id: the number of kernel events, and of those that are kept.
    kinds: HashMap<u16, (u64, u64)>,
    /// The providers whose names kept events state.
    named: HashSet<Guid>,
    counts: CutCounts,
}

impl Search<'_> {
    /// Finds the records to keep in a group of records with equal times.
    fn group(&mut self, group: &[Member]) {
        let Some(first) = group.first() else { return };
        let (of_stacks, events): (Vec<&Member>, Vec<&Member>) =
            group.iter().partition(|member| member.is_stack_record);
        let sessions: Vec<u32> =
            events.iter().filter(|member| member.is_selected).map(|of| of.event().session_number()).collect();
        self.stacks.advance(first.time, events.len() as u64);
        for member in &events {
            let event = member.event();
            // The writer writes its own.
            if event.hook_id() == Some(hook_id::EVENT_TRACE_HEADER) {
                self.counts.selected += u64::from(member.is_selected);
                continue;
            }
            let has_time = sessions.contains(&event.session_number());
            let is_name = self.is_name(&event);
            let is_state = TraceState::uses(&event) || is_configuration(&event) || is_name || member.is_owner;
            // Only the stack of some events states their process. Without it, a filter would take the
            // process in the payload, which can be another one.
            let is_by_stack = || is_state && event.hook_id().is_some() && event.header_pid().is_none();
            if has_time || member.needs_stack || is_by_stack() {
                self.stacks.keep(&event);
            }
            if member.is_selected {
                self.creates.await_end(&event);
            }
            let count = match () {
                () if member.is_selected => &mut self.counts.selected,
                () if is_state => &mut self.counts.state,
                () if has_time => &mut self.counts.same_time,
                () if self.joins_until >= Some(event.time().0) && self.joins.has(&event.entry()) => {
                    &mut self.counts.joined
                }
                () if member.is_needed => &mut self.counts.sums,
                () if self.losses.is_bound(&event) => &mut self.counts.bounds,
                () => continue,
            };
            *count += u64::from(self.records.set(member.record));
        }
        for member in events.iter().filter(|member| !member.is_selected) {
            if self.creates.is_end(&member.event()) {
                self.counts.joined += u64::from(self.records.set(member.record));
            }
        }
        for member in &events {
            let hook_id = member.event().hook_id();
            if let Some(hook_id) = hook_id.filter(|hook_id| *hook_id != hook_id::EVENT_TRACE_HEADER) {
                let (all, kept) = self.kinds.entry(hook_id).or_default();
                *all += 1;
                *kept += u64::from(self.records.has(member.record));
            }
        }
        let (definitions, parts): (Vec<&Member>, Vec<&Member>) =
            of_stacks.into_iter().partition(|member| member.is_definition());
        // A definition at the time of a reference applies to it, whatever their order.
        for member in parts.into_iter().chain(definitions) {
            let (event, Search { stacks, records, counts, .. }) = (member.event(), &mut *self);
            stacks.record(&event, member.record, |number| counts.stacks += u64::from(records.set(number)));
            if std::mem::take(&mut self.needs_stack_record) || self.losses.is_bound(&event) {
                self.counts.bounds += u64::from(self.records.set(member.record));
            }
        }
    }

    /// Whether an event is the first one with the name of its provider.
    fn is_name(&mut self, event: &Event<'_>) -> bool {
        event.has_extended_items()
            && ProviderTraits::name_in(&event.record())
                .is_some_and(|(provider, _)| self.named.insert(provider))
    }
}

/// Whether an event describes the machine, the session, losses of the session, or an earlier cut.
fn is_configuration(event: &Event<'_>) -> bool {
    match event.hook_id() {
        Some(
            hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START
            | hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END
            | hook_id::PERF_INFO_SET_INTERVAL,
        ) => true,
        Some(hook_id) => matches!(hook_id >> 8, 0x00 | 0x0b),
        None if event.kind().is_classic() => event.guid() == Some(class_guid::LOST_EVENT),
        None => is_note(event),
    }
}

/// The session of the smaller trace.
fn session_of(trace: &OpenTrace, is_open: bool) -> Result<Session, CutError> {
    let sessions: Vec<&LogfileHeader> = trace.sessions().collect();
    let first = sessions[0];
    if sessions.iter().any(|session| session.pointer_size != first.pointer_size) {
        return Err(CutError::PointerSizes);
    }
    if trace.time_bases().iter().any(|base| !matches!(base, TimeBase::Same)) {
        return Err(CutError::Clocks);
    }
    let buffers = trace.indexes().iter().flat_map(|index| &index.buffers);
    let largest = buffers.map(|buffer| buffer.processor).max().unwrap_or(0);
    let one_stream = LogFileMode::NO_PER_PROCESSOR_BUFFERING;
    let mode = if sessions.iter().all(|session| session.mode.has(one_stream)) { one_stream.0 } else { 0 };
    let session = Session::of(first);
    let buffer_size = sessions.iter().map(|session| session.buffer_size).max().unwrap_or(0);
    let buffer_size = buffer_size.saturating_add(1023) / 1024 * 1024;
    let is_open = is_open || sessions.iter().any(|session| session.end_time.is_none());
    let end = sessions.iter().filter_map(|session| session.end_time).max().filter(|_| !is_open);
    Ok(Session {
        processors: session.processors.max(largest.saturating_add(1)),
        buffer_size: buffer_size.clamp(MIN_BUFFER_SIZE, MAX_BUFFER_SIZE),
        end_time: Some(end.unwrap_or(RUNNING)),
        mode: LogFileMode(session.mode.0 | mode),
        form: Form::Merged,
        ..session
    })
}

/// Any record fits into a buffer of the largest size. A record of the trace fits into one of its own.
const MAX_BUFFER_SIZE: u32 = 128 << 10;
const MIN_BUFFER_SIZE: u32 = 4 << 10;
/// The end of an unfinished session.
const RUNNING: FileTime = FileTime(0);

/// The losses of the whole trace, as the smaller one states them.
#[derive(Debug)]
struct CutLosses {
    /// The intervals in which records of a processor are missing.
    intervals: HashMap<u16, Vec<(i64, i64)>>,
    events: u32,
    buffers: u32,
}

impl CutLosses {
    fn of(trace: &OpenTrace, losses: &LossMap) -> CutLosses {
        let sources = || 0..trace.sources().len() as u16;
        let mut intervals: HashMap<u16, Vec<(i64, i64)>> = HashMap::new();
        // Where it is not known where records are missing, marks would state that it is.
        if !sources().any(|source| losses.is_beyond_processors(source)) {
            for (processor, lost) in sources().flat_map(|source| losses.of_processors(source)) {
                intervals.entry(processor.unwrap_or(0)).or_default().extend(lost);
            }
        }
        let events: u64 = trace.sessions().map(|session| u64::from(session.events_lost)).sum();
        let lost: u64 = trace.sessions().map(|session| u64::from(session.buffers_lost)).sum();
        let missing: u64 = trace.indexes().iter().map(Index::missing_buffers).sum();
        let buffers = lost.saturating_add(missing).saturating_add(losses.damaged_buffers());
        let is_uncounted = intervals.is_empty() && events + buffers == 0 && !losses.is_lossless();
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        CutLosses { intervals, events: count(events), buffers: count(buffers.max(is_uncounted.into())) }
    }

    /// Whether records are missing up to the end of the trace.
    fn is_open(&self) -> bool {
        self.intervals.values().flatten().any(|&(_, until)| until == i64::MAX)
    }

    /// Whether records of a processor are missing between two consecutive ones of the smaller trace.
    fn is_between(&self, processor: u16, previous: i64, next: i64) -> bool {
        self.intervals.get(&processor).is_some_and(|intervals| {
            intervals.iter().any(|&(from, until)| match from == until {
                true => previous <= from && from <= next,
                false => from < next && previous < until,
            })
        })
    }

    /// Whether an event is at the bound of a loss.
    fn is_bound(&self, event: &Event<'_>) -> bool {
        let intervals = self.intervals.get(&event.processor().unwrap_or(0));
        let time = event.time().0;
        intervals
            .is_some_and(|intervals| intervals.iter().any(|&(from, until)| time == from || time == until))
    }
}
