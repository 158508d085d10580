//! Which stack is the active one: regions as they are declared and given back, threads, and the way from one stack to
//! another.

use stackhound_types::Address;

use super::open::OpenStack;
use super::regions::RegionIndex;
use super::{Class, Now, Position, Read, STACKS_MAX, Sink, Space, THREADS_MAX, Thread, Tracked, Tracker};
use crate::id::{ContextId, StackId};
use crate::kind::{EndType, StackKind};

impl Tracker {
    /// Memory was set up as a stack, by the next transition: a thread's, an alternate one for signals, a coroutine's.
    /// What was known of other stacks that lie in it is given up, but a region that only grew from what was seen, or
    /// ends at the same address, goes on with these bounds. Memory of a region that is larger is cut out of it.
    pub fn declare(
        &mut self,
        space: Space,
        low: Address,
        high: Address,
        kind: StackKind,
        mut sink: impl FnMut(Tracked),
    ) {
        let (low, high) = (low.0, high.0);
        if low >= high {
            return;
        }
        let known = self.regions.within(space, low, high);
        let inside = |tracker: &Tracker, index: RegionIndex| {
            tracker.regions.get(index).is_some_and(|region| low <= region.low && region.high <= high)
        };
        let grown = known.iter().copied().find(|&index| {
            let region = self.regions.get(index);
            inside(self, index)
                && region.is_some_and(|region| region.high == high || (known.len() == 1 && !region.declared))
        });
        if let Some(index) = grown {
            self.regions.adopt(index, low, high, kind);
            self.look_around();
            return;
        }
        for &index in &known {
            if inside(self, index) {
                self.discard(index, &mut sink);
            }
        }
        if self.regions.len() >= STACKS_MAX {
            self.counts.stacks_refused += 1;
            return;
        }
        self.regions.declare(space, low, high, kind);
        for index in known {
            if self.regions.is_covered(index) {
                self.discard(index, &mut sink);
            }
        }
        self.look_around();
    }

    /// Memory is given back by the next transition. A stack all of whose frames lie above it only loses free memory;
    /// others are abandoned.
    pub fn release(&mut self, space: Space, low: Address, high: Address, mut sink: impl FnMut(Tracked)) {
        let (low, high) = (low.0, high.0);
        for index in self.regions.within(space, low, high) {
            let Some(region) = self.regions.get(index) else { continue };
            let sp = match &region.stack {
                Some(_) if self.active == Some(index) => Some(self.sp),
                Some(stack) => Some(stack.left),
                None => None,
            };
            if sp.is_none_or(|sp| high <= sp) {
                self.regions.trim(index, high);
                if self.regions.is_covered(index) {
                    self.discard(index, &mut sink);
                }
            } else {
                self.discard(index, &mut sink);
            }
        }
        self.look_around();
    }

    /// A thread ends by the next transition. The stack it is on and the one it began with are abandoned. Declared memory
    /// stays declared, for the stack of another thread.
    pub fn exit(&mut self, thread: Thread, mut sink: impl FnMut(Tracked)) {
        let active = self.active.filter(|_| thread == self.thread);
        let mut ended: Vec<RegionIndex> = active.into_iter().collect();
        if let Some(position) = self.threads.remove(&thread) {
            let last = position.last.filter(|_| thread != self.thread);
            let stacks = [position.own, last].into_iter().flatten().filter(|&(index, id)| {
                self.stack_id(index) == Some(id) && (self.active != Some(index) || active.is_some())
            });
            ended.extend(stacks.map(|(index, _)| index));
        }
        for index in ended {
            if self.regions.get(index).is_some_and(|region| region.declared) {
                self.abandon(index, &mut sink);
            } else {
                self.discard(index, &mut sink);
            }
        }
    }

    pub(super) fn switch(&mut self, now: &Now, to: Thread, read: Read, sink: Sink) {
        self.announce(sink);
        let place = self.place();
        if self.threads.len() < THREADS_MAX || self.threads.contains_key(&self.thread) {
            let space = self
                .active
                .and_then(|index| self.regions.get(index))
                .map_or(now.space, |region| region.space);
            let position =
                self.threads.entry(self.thread).or_insert(Position { own: None, last: None, space, sp: 0 });
            (position.last, position.space, position.sp) = (place, space, now.before.sp.0);
        } else {
            self.counts.stacks_refused += 1;
        }
        self.thread = to;
        let known = self.threads.get(&to).copied();
        // Where it stopped, it goes on, even if its pointer has left the region by then.
        let known_stack = known
            .filter(|position| position.space == now.space && position.sp == now.after.sp.0)
            .and_then(|position| position.last)
            .filter(|&(index, id)| self.stack_id(index) == Some(id))
            .map(|(index, _)| index);
        self.go(now, known_stack, read, sink);
        if known.is_none() {
            self.remember_own();
        }
    }

    /// Notes the active stack as the one that the thread began with.
    pub(super) fn remember_own(&mut self) {
        let own = self.place();
        if self.threads.len() < THREADS_MAX {
            let space = Space::default();
            self.threads.entry(self.thread).or_insert(Position { own, last: None, space, sp: 0 });
        }
    }

    /// Makes the stack of the new pointer the active one. `false` if that is not known.
    pub(super) fn reach(&mut self, now: &Now, known: Option<RegionIndex>, sink: Sink) -> bool {
        if let Some(active) = self.active {
            // Whatever the pointer did in static steps, it was still on this stack.
            self.regions.extend(active, now.before.sp.0);
        }
        let (kind, pushes) = match now.class {
            Class::Signal { .. } => (StackKind::Alternate, true),
            Class::Interrupt { .. } => (StackKind::Kernel, true),
            Class::Dynamic => (StackKind::Alternate, false),
            _ => (StackKind::User, false),
        };
        let index = known.or_else(|| self.locate(now.space, now.after.sp.0, kind, pushes));
        if index.is_none() || index != self.active {
            self.announce(sink);
            if let Some(stack) = self.stack() {
                stack.left = now.before.sp.0;
            }
            self.arrive(now.first(), index, sink);
        }
        self.look_around();
        self.active.is_some()
    }

    /// Makes the stack in a region the active one, if there is room for it.
    pub(super) fn arrive(&mut self, first: ContextId, index: Option<RegionIndex>, sink: Sink) {
        let (thread, number) = (self.thread, self.stacks);
        let region = index.and_then(|index| self.regions.get_mut(index));
        let Some(region) = region.filter(|region| region.stack.is_some() || number < u32::MAX) else {
            self.counts.stacks_refused += 1;
            if self.active.take().is_some() {
                sink(Tracked::Leave { last: ContextId(first.0.saturating_sub(1)) });
            }
            return;
        };
        let (kind, space) = (region.kind, region.space);
        let bounds = region.declared.then_some((Address(region.low), Address(region.high)));
        let stack = region.stack.get_or_insert_with(|| {
            self.stacks += 1;
            let stack = StackId(number);
            sink(Tracked::Stack { stack, kind, thread, space, region: bounds });
            OpenStack::new(stack)
        });
        stack.doubtful = stack.frames.len();
        sink(Tracked::Enter { stack: stack.id, first });
        self.active = index;
    }

    /// The region of a stack pointer: a known one, the nearest, or a new one of that kind. Declared bounds are exact,
    /// except that a system that `pushes` may go on below them on the active stack.
    pub(super) fn locate(
        &mut self,
        space: Space,
        sp: u64,
        kind: StackKind,
        pushes: bool,
    ) -> Option<RegionIndex> {
        // Nothing lies below address 0, where hostile pointers point.
        let sp = sp.max(1);
        if let Some((index, ..)) = self.regions.find(space, sp) {
            return Some(index);
        }
        let active = self.active;
        let near = self
            .regions
            .near(space, sp, |index, region| Some(index) == active && (pushes || !region.declared))
            .or_else(|| self.regions.near(space, sp, |_, region| !region.declared));
        if let Some(index) = near {
            self.regions.extend(index, sp);
            return Some(index);
        }
        (self.regions.len() < STACKS_MAX).then(|| self.regions.observe(space, sp, kind))
    }

    /// Forgets a region, and ends its stack.
    pub(super) fn discard(&mut self, index: RegionIndex, sink: Sink) {
        self.abandon(index, sink);
        self.regions.remove(index);
    }

    /// Ends a region's stack between two transitions.
    pub(super) fn abandon(&mut self, index: RegionIndex, sink: Sink) {
        if self.active == Some(index) {
            self.announce(sink);
        }
        let Some(stack) = self.regions.get_mut(index).and_then(|region| region.stack.take()) else { return };
        let last = ContextId(self.next);
        for _ in 0..stack.frames.len() + usize::from(stack.base.is_some()) {
            sink(Tracked::Close { stack: stack.id, last, end: EndType::Abandoned });
        }
        self.frames -= stack.frames.len();
        if self.active == Some(index) {
            sink(Tracked::Leave { last });
            self.active = None;
            self.look_around();
        }
    }

    pub(super) fn stack_id(&self, index: RegionIndex) -> Option<StackId> {
        Some(self.regions.get(index)?.stack.as_ref()?.id)
    }

    /// The active stack, with its number to tell it from later ones in the same region.
    pub(super) fn place(&self) -> Option<(RegionIndex, StackId)> {
        let index = self.active?;
        Some((index, self.stack_id(index)?))
    }

    /// Renews what quick steps are judged by, after regions or the active stack have changed.
    pub(super) fn look_around(&mut self) {
        self.renew_limit();
        self.window = match self.active.and_then(|index| Some((index, self.regions.get(index)?))) {
            Some((index, region)) => match self.regions.find(region.space, self.sp) {
                Some((found, low, high)) if found == index => (region.space, low, high),
                _ => Default::default(),
            },
            None => Default::default(),
        };
    }

    pub(super) fn renew_limit(&mut self) {
        // Without an active stack, static steps mean nothing. The first step starts one.
        let none = if self.started { u64::MAX } else { 0 };
        self.limit = self.stack().map_or(none, |stack| stack.limit());
    }
}
