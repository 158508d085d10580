//! The recorded history of memory: which pages were written, made executable, or put in the place
//! of an image, and by what code.
//!
//! The state follows the events in their order, in traces and live sessions alike. It contains only
//! what events report, is bounded for any events, and forgets memory that is freed.

mod author;
mod pages;

use hashbrown::HashMap;
use stackhound_detect::{Author, Change, ChangeKind, History, MemoryKind, Replaced};
use stackhound_etl::Clock;
use stackhound_frames::{Code, Frame};
use stackhound_pipeline::EventView;
use stackhound_schema::kernel::{hook_id, view};
use stackhound_system::{Evidence, ProcessId, Span, System, is_same_name};
use stackhound_trace::{EventKey, TraceTime};
use stackhound_types::{Address, Mode, Pid};

use crate::memory_change::{ChangeEvent, MemoryChange, MemoryChangeKind};
use pages::{Pages, ProtectionChange};

/// Maximum number of processes. If there are more, all but the recently changed half are forgotten.
const PROCESSES_MAX: usize = 1 << 10;
/// Maximum number of segments of all processes: about 10 MB.
const SEGMENTS_MAX: usize = 1 << 16;
/// Maximum number of unmapped images of a process that are remembered. That of the program is never
/// forgotten.
const UNMAPPED_MAX: usize = 64;

const MEM_PRIVATE: u32 = 0x2_0000;
const MEM_MAPPED: u32 = 0x4_0000;
const MEM_IMAGE: u32 = 0x100_0000;

/// An image that was unmapped.
#[derive(Clone, Copy, Debug)]
struct Unmapped {
    range: (u64, u64),
    is_program: bool,
}

#[derive(Debug, Default)]
struct ProcessMemory {
    process: Option<ProcessId>,
    pages: Pages,
    unmapped: Vec<Unmapped>,
    /// Identifies the state of the pages, for caches; 0 if no page has a history.
    generation: u32,
    /// Number of the last change, of any process.
    changed: u32,
}

/// The histories of all processes.
#[derive(Debug, Default)]
pub(super) struct MemoryHistories {
    processes: HashMap<Pid, ProcessMemory, foldhash::fast::RandomState>,
    /// Whether any page had a history so far.
    has_pages: bool,
    /// Number of changes, of all processes.
    changes: u32,
    /// The last observed event that can change memory, with the change that it reports.
    last: Option<(EventKey, Option<Change>)>,
}

/// The kinds of events that change histories.
#[derive(Clone, Copy)]
enum Effect {
    Load,
    Unload,
    /// The process with an id is another one.
    Process,
    Change(ChangeEvent),
}

impl Effect {
    /// The kind of an event, by its ids.
    #[inline]
    fn of(view: &EventView<'_>) -> Option<Effect> {
        let kernel_id = view.kernel_id();
        match kernel_id {
            Some(hook_id::IMAGE_LOAD) => Some(Effect::Load),
            Some(hook_id::IMAGE_UNLOAD) => Some(Effect::Unload),
            Some(hook_id::PROCESS_START | hook_id::PROCESS_END) => Some(Effect::Process),
            _ => ChangeEvent::of(view, kernel_id).map(Effect::Change),
        }
    }
}

/// An image that was mapped or unmapped.
struct ImageEvent {
    pid: Pid,
    range: (u64, u64),
}

fn range(base: u64, size: u64) -> Option<(u64, u64)> {
    Some((base, base.saturating_add(size.checked_sub(1)?)))
}

fn is_kernel(view: &EventView<'_>, address: Address) -> bool {
    address.is_kernel(view.event().block().session().pointer_size)
}

fn overlaps(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

fn image_event(view: &EventView<'_>) -> Option<ImageEvent> {
    let record = view.event().record();
    let image = view::Image::parse(record.payload(), record.version(), record.pointer_size()).ok()?;
    let pid = image.process_id.or(record.pid()).filter(|pid| *pid != Pid::IDLE)?;
    Some(ImageEvent { pid, range: range(image.image_base.0, image.image_size)? })
}

impl MemoryHistories {
    /// Records an event. Events must be in order. An event that was just recorded is not recorded
    /// again. Costs a comparison of ids for most events.
    #[inline]
    pub fn observe(&mut self, view: &EventView<'_>, clock: &Clock) {
        let Some(effect) = Effect::of(view) else { return };
        if self.observed(view).is_none() {
            let change = self.change_of(effect, view, clock);
            self.last = Some((view.event().key(), change));
        }
    }

    /// The change of the last event that can change memory, if this is the event.
    #[inline]
    fn observed(&self, view: &EventView<'_>) -> Option<&Option<Change>> {
        let (last, change) = self.last.as_ref()?;
        (*last == view.event().key()).then_some(change)
    }

    /// The change that an observed event reports.
    pub fn change(&self, view: &EventView<'_>) -> Option<Change> {
        *self.observed(view)?
    }

    /// Whether an observed event reports a change.
    #[inline]
    pub fn has_change(&self, view: &EventView<'_>) -> bool {
        self.observed(view).is_some_and(Option::is_some)
    }

    /// Whether no page of any process had a history so far.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_pages
    }

    /// Identifies the state of a process; 0 if nothing is known.
    pub fn generation(&self, pid: Option<Pid>) -> u32 {
        pid.and_then(|pid| self.processes.get(&pid)).map_or(0, |memory| memory.generation)
    }

    /// The history of the memory at an address.
    pub fn at(&self, pid: Pid, address: u64) -> Option<History> {
        Some(self.processes.get(&pid)?.pages.at(address)?.history)
    }

    /// The histories of frames of a process. `histories` stays empty if nothing is known about the
    /// process.
    pub fn of_frames(&self, pid: Option<Pid>, frames: &[Frame], histories: &mut Vec<Option<History>>) {
        histories.clear();
        let Some(memory) = pid.and_then(|pid| self.processes.get(&pid)) else { return };
        histories.extend(frames.iter().map(|frame| {
            let address = frame.address.filter(|_| frame.mode == Mode::User)?;
            Some(memory.pages.at(address.0)?.history)
        }));
    }

    fn change_of(&mut self, effect: Effect, view: &EventView<'_>, clock: &Clock) -> Option<Change> {
        match effect {
            Effect::Unload => {
                self.unload(view, image_event(view)?);
                None
            }
            Effect::Change(event @ ChangeEvent::Threat) => self.changed(event, view, clock),
            // Allocations state no protection, so they matter only together with other events.
            _ if self.processes.is_empty() => None,
            Effect::Load => self.load(view, image_event(view)?),
            Effect::Process => {
                let record = view.event().record();
                let process =
                    view::Process::parse(record.payload(), record.version(), record.pointer_size()).ok()?;
                self.processes.remove(&process.process_id);
                None
            }
            Effect::Change(event) => self.changed(event, view, clock),
        }
    }

    fn changed(&mut self, event: ChangeEvent, view: &EventView<'_>, clock: &Clock) -> Option<Change> {
        let change = MemoryChange::read(view, event)?;
        (!is_kernel(view, change.base)).then(|| self.apply(view, clock, &change))?
    }

    /// The memory of a process; a new one if another process has the id now.
    fn memory(&mut self, system: &System, pid: Pid, time: TraceTime) -> &mut ProcessMemory {
        let process = system.process_of_event(pid, time).map(|process| process.id());
        self.changes = self.changes.wrapping_add(1).max(1);
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.forget_half();
        }
        let memory = self.processes.entry(pid).or_default();
        if memory.process.is_some() && process.is_some() && memory.process != process {
            *memory = ProcessMemory::default();
        }
        (memory.changed, memory.process) = (self.changes, process.or(memory.process));
        memory
    }

    fn forget_half(&mut self) {
        let mut changes: Vec<u32> = self.processes.values().map(|memory| memory.changed).collect();
        let middle = changes.len() / 2;
        let (_, &mut median, _) = changes.select_nth_unstable(middle);
        self.processes.retain(|_, memory| memory.changed > median);
    }

    fn keep_limit(&mut self) {
        let segments = |memories: &MemoryHistories| -> usize {
            memories.processes.values().map(|memory| memory.pages.len()).sum()
        };
        // A process can have at most this number, so that few processes need not be counted.
        while self.processes.len() > SEGMENTS_MAX / pages::SEGMENTS_MAX && segments(self) > SEGMENTS_MAX {
            self.forget_half();
        }
    }

    /// Forgets the history of memory that is gone. Returns the memory of the process.
    fn clear(&mut self, view: &EventView<'_>, pid: Pid, range: (u64, u64)) -> Option<&mut ProcessMemory> {
        let memory = self.memory(view.trace_state().system(), pid, view.time());
        let before = memory.pages.len();
        if memory.pages.has(range) {
            memory.pages.clear(range);
            memory.set_generation();
        }
        // A segment can be split.
        if memory.pages.len() > before {
            self.keep_limit();
        }
        self.processes.get_mut(&pid)
    }

    fn unload(&mut self, view: &EventView<'_>, image: ImageEvent) {
        let (system, time) = (view.trace_state().system(), view.time());
        if is_kernel(view, Address(image.range.0)) {
            return;
        }
        let is_program = system.process_of_event(image.pid, time).is_some_and(|process| {
            let module = system.module_in(process.id(), Address(image.range.0), time);
            let program = process.image_name();
            module.is_some_and(|(module, _)| is_same_name(module.file_name(), program))
        });
        let Some(memory) = self.clear(view, image.pid, image.range) else { return };
        memory.unmapped.retain(|known| !overlaps(known.range, image.range));
        if memory.unmapped.len() >= UNMAPPED_MAX
            && let Some(oldest) = memory.unmapped.iter().position(|known| !known.is_program)
        {
            memory.unmapped.remove(oldest);
        }
        if memory.unmapped.len() < UNMAPPED_MAX {
            memory.unmapped.push(Unmapped { range: image.range, is_program });
        }
    }

    /// An image in the place of another one.
    fn load(&mut self, view: &EventView<'_>, image: ImageEvent) -> Option<Change> {
        if !self.processes.contains_key(&image.pid) {
            return None;
        }
        let memory = self.clear(view, image.pid, image.range)?;
        let replaced =
            memory.unmapped.iter().any(|known| known.is_program && overlaps(known.range, image.range));
        memory.unmapped.retain(|known| !overlaps(known.range, image.range));
        if !replaced {
            return None;
        }
        let owner = view.stack_owner();
        let is_other = owner.pid.is_some_and(|pid| pid != image.pid);
        Some(Change {
            kind: ChangeKind::Load,
            address: image.range.0,
            size: image.range.1 - image.range.0 + 1,
            protection: None,
            previous: None,
            is_other,
            author: author::of_load(view),
            code: Code::Unknown,
            replaced: Some(Replaced::Program),
            is_whole: true,
            history: History { kind: Some(MemoryKind::Image), ..History::default() },
        })
    }

    fn apply(&mut self, view: &EventView<'_>, clock: &Clock, change: &MemoryChange) -> Option<Change> {
        let (system, time, target) = (view.trace_state().system(), view.time(), change.target);
        let is_of_provider = change.is_by_kernel.is_some();
        if !is_of_provider && !self.processes.contains_key(&target) {
            return None;
        }
        let process = system.process_of_event(target, time).map(|process| process.id());
        let reserved = process.and_then(|process| system.reserved_in(process, change.base, time));
        let size = match (change.size, reserved) {
            (0, Some(reserved)) => reserved.size,
            (size, _) => size,
        };
        let range = range(change.base.0, size)?;
        if matches!(change.kind, MemoryChangeKind::Free | MemoryChangeKind::Unmap) {
            if self.processes.get(&target)?.pages.has(range) {
                self.clear(view, target, range);
            }
            return None;
        }
        let replaced = self.processes.get(&target).and_then(|memory| memory.replaced(change, range));
        // An allocation without protection says nothing about other memory, and the addresses of
        // libraries are used again.
        if !is_of_provider && replaced != Some(Replaced::Program) {
            return None;
        }
        let actor = change.actor.or(view.stack_owner().pid);
        let is_other = actor.is_some_and(|actor| actor != target);
        let module = process.and_then(|process| system.module_in(process, change.base, time));
        // A page that was allocated later than the image was loaded does not belong to it.
        let module =
            module.filter(|(module, _)| reserved.is_none_or(|reserved| reserved.since <= module.span().from));
        let kind = match change.region_type {
            Some(MEM_IMAGE) => Some(MemoryKind::Image),
            Some(MEM_PRIVATE) => Some(MemoryKind::Private),
            Some(MEM_MAPPED) => Some(MemoryKind::Mapped),
            _ if module.is_some() => Some(MemoryKind::Image),
            _ if change.kind == MemoryChangeKind::Allocate => Some(MemoryKind::Private),
            _ => {
                reserved.is_some_and(|memory| memory.since != Span::BEGINNING).then_some(MemoryKind::Private)
            }
        };
        let own_module = module.map(|(module, _)| module).filter(|_| !is_other);
        let author = match change.is_by_kernel {
            Some(true) => Author::Kernel,
            _ => author::of_process(view, clock, own_module),
        };
        let code = match module {
            Some((module, rva)) => Code::Image(view.resolver().loaded(system, module.id()).index, rva),
            None => Code::Unknown,
        };
        let was_allocated = reserved.is_some_and(|memory| memory.since != Span::BEGINNING);
        let was_loaded = module.is_some_and(|(module, _)| module.span().start == Evidence::Observed);
        let protection = change.protection.map(|protection| protection.0);
        let previous = change.old_protection.map(|protection| protection.0);
        let is_executable = protection.is_some_and(stackhound_detect::is_executable);
        let memory = self.memory(system, target, time);
        // Writes to the data of processes are frequent and say nothing.
        let adds = match change.kind {
            MemoryChangeKind::Allocate | MemoryChangeKind::Map => is_executable || replaced.is_some(),
            MemoryChangeKind::Write => is_other || module.is_some(),
            _ => true,
        };
        let before = memory.pages.len();
        memory.pages.update(range, time, adds, |segment| {
            if matches!(change.kind, MemoryChangeKind::Allocate | MemoryChangeKind::Map) && is_of_provider {
                segment.allocate();
            }
            segment.changed_by(author);
            segment.is_whole |= was_allocated || was_loaded;
            let history = &mut segment.history;
            history.kind = kind.or(history.kind);
            history.replaced = history.replaced.or(replaced);
            match change.kind {
                MemoryChangeKind::Write => {
                    history.written_by_other |= is_other;
                    history.image_changed |= history.kind == Some(MemoryKind::Image);
                }
                // The kernel logger states who allocated memory, but not whether it is executable.
                _ => history.changed_by_other |= is_other && (is_executable || history.replaced.is_some()),
            }
            if let Some(protection) = protection {
                let change = ProtectionChange { previous, protection, time };
                segment.protect(change, |raw| clock.span_from_raw(raw));
            }
        });
        memory.set_generation();
        let segment = memory.pages.at(change.base.0).copied();
        let has_forgotten = memory.pages.has_forgotten;
        let has_grown = memory.pages.len() > before;
        self.has_pages = true;
        if has_grown {
            self.keep_limit();
        }
        Some(Change {
            kind: match change.kind {
                MemoryChangeKind::Allocate => ChangeKind::Allocate,
                MemoryChangeKind::Map => ChangeKind::Map,
                MemoryChangeKind::Write => ChangeKind::Write,
                _ => ChangeKind::Protect,
            },
            address: change.base.0,
            size,
            protection,
            previous,
            is_other,
            author,
            code,
            replaced,
            is_whole: segment.is_some_and(|segment| segment.is_whole) && !has_forgotten,
            history: segment.map(|segment| segment.history).unwrap_or_default(),
        })
    }
}

impl ProcessMemory {
    fn set_generation(&mut self) {
        self.generation = if self.pages.len() == 0 { 0 } else { self.changed };
    }

    /// The image whose place new memory takes.
    fn replaced(&self, change: &MemoryChange, range: (u64, u64)) -> Option<Replaced> {
        if !matches!(change.kind, MemoryChangeKind::Allocate | MemoryChangeKind::Map) {
            return None;
        }
        let mut images = self.unmapped.iter().filter(|known| overlaps(known.range, range));
        if images.clone().any(|known| known.is_program) {
            return Some(Replaced::Program);
        }
        images.any(|known| known.range.0 == range.0).then_some(Replaced::Library)
    }
}
