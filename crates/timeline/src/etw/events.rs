//! Converts the pipeline's events into stack events: threads, processors and stacks.

use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_calltree::{Builder, LabelId};
use stackhound_pipeline::EventView;
use stackhound_schema::kernel::{hook_id, is_added_by_tools, is_sample, view};
use stackhound_stacks::{StackId, StackState, StackStates, WALK_FRAMES_MAX};
use stackhound_system::{ProcessId, ValidityId};
use stackhound_trace::{OpenTrace, TimeBase};
use stackhound_types::{Address, Mode, PointerSize, RawTime, Tid};

use super::functions::Functions;
use crate::{EventKind, Interruption, Part, SampledFrame, Snapshot};

const THREAD_START: u16 = hook_id::THREAD_START;
const THREAD_END: u16 = hook_id::THREAD_END;
const CONTEXT_SWITCH: u16 = hook_id::THREAD_C_SWITCH;
const SYSTEM_CALL_ENTER: u16 = hook_id::PERF_INFO_SYS_CALL_ENTER;
const SYSTEM_CALL_EXIT: u16 = hook_id::PERF_INFO_SYS_CALL_EXIT;
const INTERRUPT_ROUTINES: [u16; 3] =
    [hook_id::PERF_INFO_ISR, hook_id::PERF_INFO_ISR_MSI, hook_id::PERF_INFO_ISR_PASS];
const DEFERRED_CALLS: [u16; 3] =
    [hook_id::PERF_INFO_DPC, hook_id::PERF_INFO_TIMER_DPC, hook_id::PERF_INFO_IO_TIMER];
/// Rundown of existing processes, threads and images, which other threads log.
const RUNDOWN: [u16; 6] = [
    hook_id::PROCESS_DC_START,
    hook_id::PROCESS_DC_END,
    hook_id::THREAD_DC_START,
    hook_id::THREAD_DC_END,
    hook_id::IMAGE_DC_START,
    hook_id::IMAGE_DC_END,
];
/// Maximum number of cached stacks.
const KEPT_MAX: usize = 1 << 13;

/// The cache key of a snapshot: the properties of an event's stack on which the snapshot depends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SnapshotKey {
    stack: StackId,
    process: Option<ProcessId>,
    /// While these are equal, the modules are equal.
    validity_ids: [ValidityId; 2],
    states: StackStates,
    is_sample: bool,
    has_lower_half: bool,
}

/// Reads events.
#[derive(Debug)]
pub(crate) struct Events {
    bases: Vec<TimeBase>,
    wants_stacks: bool,
    labels: HashMap<u16, LabelId, foldhash::fast::RandomState>,
    snapshots: HashMap<SnapshotKey, Option<Arc<Snapshot>>, foldhash::fast::RandomState>,
    /// Memory for the frames of one stack by part: [`KERNEL`], [`WOW64`], [`USER`].
    parts: [Vec<SampledFrame>; 3],
}

const KERNEL: usize = 0;
const WOW64: usize = 1;
const USER: usize = 2;

impl Events {
    pub fn new(trace: &OpenTrace, wants_stacks: bool) -> Events {
        let (labels, snapshots, parts) = Default::default();
        Events { bases: trace.time_bases(), wants_stacks, labels, snapshots, parts }
    }

    /// The label of an event.
    pub fn label(&mut self, view: &EventView<'_>, builder: &mut Builder) -> LabelId {
        match view.event().hook_id() {
            Some(hook_id) => *self.labels.entry(hook_id).or_insert_with(|| builder.label(&view.name())),
            None => builder.label(&view.name()),
        }
    }

    /// The thread that logged the event, if the event contains it.
    pub fn thread(&self, view: &EventView<'_>) -> Option<Tid> {
        match view.event().hook_id() {
            Some(hook_id) if RUNDOWN.contains(&hook_id) || matches!(hook_id >> 8, 0x00 | 0x0b) => None,
            Some(CONTEXT_SWITCH) => None,
            Some(hook_id) if is_sample(hook_id) => view.stack_owner().tid,
            // The thread belongs to a merging tool, which ran at another time or on another
            // machine.
            None if view.provider_guid().is_some_and(is_added_by_tools) => None,
            _ if view.stack().is_some() => view.stack_owner().tid,
            _ => view.event().header_tid(),
        }
    }

    /// The effect of an event on threads and processors.
    pub fn what(&self, view: &EventView<'_>, functions: &mut Functions, builder: &mut Builder) -> EventKind {
        let Some(hook_id) = view.event().hook_id() else { return EventKind::Other };
        let record = view.event().record();
        let (payload, version, pointer) = (record.payload(), record.version(), record.pointer_size());
        let mut routine = |address: Address| {
            let known = Some(address).filter(|address| address.0 != 0);
            known.and_then(|address| functions.routine(view, address, builder))
        };
        let known = match hook_id {
            CONTEXT_SWITCH => {
                view::CSwitch::parse(payload, version, pointer).ok().map(|switch| EventKind::Switch {
                    old: switch.old_thread_id,
                    new: switch.new_thread_id,
                    old_waits: switch.old_thread_waits(),
                })
            }
            SYSTEM_CALL_ENTER => {
                let call = view::SysCallEnter::parse(payload, version, pointer);
                let address = call.ok().map(|call| call.sys_call_address);
                Some(EventKind::SystemCallEnter { routine: address.and_then(&mut routine) })
            }
            SYSTEM_CALL_EXIT => Some(EventKind::SystemCallExit),
            THREAD_START | THREAD_END => view::Thread::parse(payload, version, pointer).ok().map(|thread| {
                let tid = thread.thread_id;
                if hook_id == THREAD_START { EventKind::ThreadStart(tid) } else { EventKind::ThreadEnd(tid) }
            }),
            hook_id if INTERRUPT_ROUTINES.contains(&hook_id) || DEFERRED_CALLS.contains(&hook_id) => {
                let by = if DEFERRED_CALLS.contains(&hook_id) {
                    Interruption::Deferred
                } else {
                    Interruption::Service
                };
                // Events of interrupt routines and deferred calls begin with the same fields: start
                // time and address.
                let run = view::Dpc::parse(payload, version, pointer).ok();
                run.filter(|run| run.initial_time.0 >= 0).map(|run| EventKind::Interrupted {
                    by,
                    since: self.trace_time(view, run.initial_time),
                    routine: routine(run.routine),
                })
            }
            _ => None,
        };
        known.unwrap_or_default()
    }

    fn trace_time(&self, view: &EventView<'_>, raw: RawTime) -> i64 {
        let base = self.bases.get(view.event().session_number() as usize);
        base.map_or(raw.0, |base| base.trace_time(raw).0)
    }

    /// The event's stack, if it was recorded and is certain.
    pub fn stack(
        &mut self,
        view: &EventView<'_>,
        functions: &mut Functions,
        builder: &mut Builder,
    ) -> Option<Arc<Snapshot>> {
        let stack = view.stack().filter(|_| self.wants_stacks)?;
        let event = view.event();
        let is_sample = event.hook_id().is_some_and(is_sample);
        // For 32-bit programs, stacks in extended data contain only the 32-bit frames.
        let has_lower_half = event.hook_id().is_none()
            && event.record().pointer_size() == PointerSize::Four
            && event.block().session().pointer_size == PointerSize::Eight;
        let (system, process) = (view.trace_state().system(), view.stack_owner().process);
        let user = process.map(|process| system.validity_id(Some(process), view.time())).unwrap_or_default();
        let key = SnapshotKey {
            stack,
            process,
            validity_ids: [user, system.validity_id(None, view.time())],
            states: view.stack_states(),
            is_sample,
            has_lower_half,
        };
        if let Some(snapshot) = self.snapshots.get(&key) {
            return snapshot.clone();
        }
        let session = event.block().session().pointer_size;
        let is_wow64 = view.resolver().process(system, session, process, view.time()).0.is_wow64();
        let parts = &mut self.parts;
        parts.iter_mut().for_each(Vec::clear);
        for frame in view.frames() {
            let part = match frame.mode {
                Mode::Kernel => KERNEL,
                Mode::User if is_wow64 && !frame.is_wow64 => WOW64,
                Mode::User => USER,
            };
            parts[part].push(functions.frame(view, &frame, builder));
        }
        let snapshot = snapshot(parts, &key).map(Arc::new);
        if self.snapshots.len() >= KEPT_MAX {
            self.snapshots.clear();
        }
        self.snapshots.insert(key, snapshot.clone());
        snapshot
    }
}

/// The certain parts of a stack, from its frames by part, innermost first.
fn snapshot(frames: &[Vec<SampledFrame>; 3], key: &SnapshotKey) -> Option<Snapshot> {
    let part = |frames: &[SampledFrame]| match frames.len() {
        0 => Part::Absent,
        // The walk may have been truncated.
        length if length >= usize::from(WALK_FRAMES_MAX) => Part::Unknown,
        _ => Part::Frames(frames.iter().rev().copied().collect()),
    };
    let (mut kernel, mut wow64, mut user) =
        (part(&frames[KERNEL]), part(&frames[WOW64]), part(&frames[USER]));
    if !key.states.has_certain_frames() || key.states.has(StackState::None) {
        return None;
    }
    // The frames of a truncated walk may be other calls of the same functions.
    if key.states.has(StackState::KernelOnly) || key.states.has(StackState::Truncated) {
        (wow64, user) = (Part::Unknown, Part::Unknown);
    }
    if key.states.has(StackState::UserOnly) {
        kernel = Part::Unknown;
    }
    // A user-mode event is logged by a system call, whose kernel part is not recorded.
    if kernel == Part::Absent && !key.is_sample {
        kernel = Part::Unknown;
    }
    if key.has_lower_half {
        (wow64, user) = (Part::Unknown, Part::Unknown);
    }
    Some(Snapshot { kernel, wow64, user })
}
