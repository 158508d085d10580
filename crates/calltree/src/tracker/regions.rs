//! Assigns memory to stacks.
//!
//! A region is declared memory, or the range of the observed stack pointers. The pointer of an
//! empty stack is the end address of its memory, and the pointer of a full stack hardly ever
//! occurs. A pointer therefore belongs to the region from `low` to `high` if `low < pointer <=
//! high`. A region can be inside another one (an alternate stack in a local variable); the inner
//! region has priority.

use std::collections::BTreeMap;

use super::open::OpenStack;
use super::step::Space;
use crate::kind::StackKind;

/// Maximum distance in bytes from observed stack pointers at which a new pointer still belongs to
/// the same stack.
pub const MERGE_DISTANCE: u64 = 64 << 10;
/// The same for stacks in the kernel's space. They are small, and often separated by one guard page only.
/// Kernels limit the size of a function's frame to about this number.
pub const KERNEL_MERGE_DISTANCE: u64 = 2 << 10;

#[derive(Debug)]
pub(super) struct Region {
    pub space: Space,
    pub low: u64,
    pub high: u64,
    pub kind: StackKind,
    pub declared: bool,
    /// Set from the first use of the region until its stack ends.
    pub stack: Option<OpenStack>,
}

impl Region {
    pub fn is_of_kernel(&self) -> bool {
        matches!(self.kind, StackKind::Kernel | StackKind::Interrupt | StackKind::Deferred)
    }

    /// Whether it is a stack of interrupts, which belongs to the processor and not to a thread.
    pub fn is_of_processor(&self) -> bool {
        self.declared && matches!(self.kind, StackKind::Interrupt | StackKind::Deferred)
    }
}

/// The number of a region. Numbers of removed regions are reused.
pub(super) type RegionIndex = usize;

/// A part of a region without inner regions.
#[derive(Clone, Copy, Debug)]
struct Span {
    low: u64,
    region: RegionIndex,
}

#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Disjoint spans, by their end address.
    spans: BTreeMap<(Space, u64), Span>,
    regions: Vec<Option<Region>>,
    free: Vec<RegionIndex>,
}

impl Regions {
    pub fn len(&self) -> usize {
        self.regions.len() - self.free.len()
    }

    /// Returns `None` for an unused number.
    pub fn get(&self, region: RegionIndex) -> Option<&Region> {
        self.regions.get(region)?.as_ref()
    }

    pub fn get_mut(&mut self, region: RegionIndex) -> Option<&mut Region> {
        self.regions.get_mut(region)?.as_mut()
    }

    pub fn stack_mut(&mut self, region: RegionIndex) -> Option<&mut OpenStack> {
        self.get_mut(region)?.stack.as_mut()
    }

    /// Returns the region that contains a stack pointer, and the bounds of the span.
    pub fn find(&self, space: Space, sp: u64) -> Option<(RegionIndex, u64, u64)> {
        let (&(_, high), span) = self.above(space, sp)?;
        (span.low < sp).then_some((span.region, span.low, high))
    }

    /// Returns the nearest region to a stack pointer that is in no region, if it is near enough and
    /// `wanted`.
    pub fn near(
        &self,
        space: Space,
        sp: u64,
        wanted: impl Fn(RegionIndex, &Region) -> bool,
    ) -> Option<RegionIndex> {
        let most = if space == Space::KERNEL { KERNEL_MERGE_DISTANCE } else { MERGE_DISTANCE };
        let above = self.above(space, sp).map(|(_, span)| (span.low.saturating_sub(sp), span.region));
        let below = self.below(space, sp).map(|(&(_, high), span)| (sp - high, span.region));
        [above, below]
            .into_iter()
            .flatten()
            .filter(|&(distance, region)| {
                distance <= most && self.get(region).is_some_and(|found| wanted(region, found))
            })
            .min()
            .map(|(_, region)| region)
    }

    /// Creates a region that contains one stack pointer.
    pub fn observe(&mut self, space: Space, sp: u64, kind: StackKind) -> RegionIndex {
        let low = sp.saturating_sub(1);
        let region = self.put(Region { space, low, high: sp, kind, declared: false, stack: None });
        self.spans.insert((space, sp), Span { low, region });
        region
    }

    /// Extends a region to a stack pointer, unless another region is in between.
    pub fn extend(&mut self, region: RegionIndex, sp: u64) {
        let Some(space) = self.get(region).map(|found| found.space) else { return };
        if self.find(space, sp).is_some() {
            return;
        }
        if let Some((&key, &span)) = self.above(space, sp)
            && span.region == region
        {
            let low = sp.saturating_sub(1);
            self.spans.insert(key, Span { low, ..span });
            if let Some(found) = self.get_mut(region) {
                found.low = found.low.min(low);
            }
        } else if let Some((&key, &span)) = self.below(space, sp)
            && span.region == region
        {
            self.spans.remove(&key);
            self.spans.insert((space, sp), span);
            if let Some(found) = self.get_mut(region) {
                found.high = found.high.max(sp);
            }
        }
    }

    /// Returns the regions that overlap with the bounds, each once.
    pub fn within(&self, space: Space, low: u64, high: u64) -> Vec<RegionIndex> {
        let mut found: Vec<RegionIndex> = self
            .spans
            .range((space, low.saturating_add(1))..)
            .take_while(|(key, span)| key.0 == space && span.low < high)
            .map(|(_, span)| span.region)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Creates a declared region. The overlapping parts are removed from other regions. The caller
    /// must first remove regions that lose all of their memory.
    pub fn declare(&mut self, space: Space, low: u64, high: u64, kind: StackKind) -> RegionIndex {
        self.cut(space, low, high);
        let region = self.put(Region { space, low, high, kind, declared: true, stack: None });
        self.spans.insert((space, high), Span { low, region });
        region
    }

    /// Declares bounds for a region, which contain its current bounds. Inner regions are not
    /// changed.
    pub fn adopt(&mut self, region: RegionIndex, low: u64, high: u64, kind: StackKind) {
        let Some(found) = self.get_mut(region) else { return };
        found.kind = kind;
        found.declared = true;
        self.extend(region, high);
        self.extend(region, low.saturating_add(1));
    }

    /// Removes all memory below an address from a region.
    pub fn trim(&mut self, region: RegionIndex, low: u64) {
        let Some(found) = self.get_mut(region) else { return };
        let (space, from) = (found.space, found.low);
        found.low = found.low.max(low);
        let keys: Vec<(Space, u64)> = self.spans_of(region, space, from, low);
        for key in keys {
            if let Some(span) = self.spans.remove(&key)
                && key.1 > low
            {
                self.spans.insert(key, Span { low: span.low.max(low), ..span });
            }
        }
    }

    /// Whether inner regions cover a region completely.
    pub fn is_covered(&self, region: RegionIndex) -> bool {
        self.get(region)
            .is_some_and(|found| self.spans_of(region, found.space, found.low, found.high).is_empty())
    }

    /// Removes a region. If it was inside another region, its memory belongs to that region again.
    pub fn remove(&mut self, region: RegionIndex) -> Option<Region> {
        let removed = self.regions.get_mut(region)?.take()?;
        self.free.push(region);
        for key in self.spans_of(region, removed.space, removed.low, removed.high) {
            let Some(span) = self.spans.remove(&key) else { continue };
            let (space, high) = key;
            let below = self.spans.get(&(space, span.low)).copied();
            let above = self.above(space, high).map(|(&key, &span)| (key, span));
            if let (Some(below), Some((above_key, above))) = (below, above)
                && below.region == above.region
                && above.low == high
            {
                self.spans.remove(&(space, span.low));
                self.spans.insert(above_key, below);
            }
        }
        Some(removed)
    }

    fn put(&mut self, region: Region) -> RegionIndex {
        match self.free.pop() {
            Some(index) => {
                self.regions[index] = Some(region);
                index
            }
            None => {
                self.regions.push(Some(region));
                self.regions.len() - 1
            }
        }
    }

    fn cut(&mut self, space: Space, low: u64, high: u64) {
        let keys: Vec<(Space, u64)> = self
            .spans
            .range((space, low.saturating_add(1))..)
            .take_while(|(key, span)| key.0 == space && span.low < high)
            .map(|(&key, _)| key)
            .collect();
        for key in keys {
            let Some(span) = self.spans.remove(&key) else { continue };
            if key.1 > high {
                self.spans.insert(key, Span { low: high, ..span });
            }
            if span.low < low {
                self.spans.insert((space, low), span);
            }
        }
    }

    fn spans_of(&self, region: RegionIndex, space: Space, low: u64, high: u64) -> Vec<(Space, u64)> {
        self.spans
            .range((space, low)..)
            .take_while(|(key, span)| key.0 == space && span.low < high)
            .filter(|(_, span)| span.region == region)
            .map(|(&key, _)| key)
            .collect()
    }

    fn above(&self, space: Space, sp: u64) -> Option<(&(Space, u64), &Span)> {
        self.spans.range((space, sp)..).next().filter(|(key, _)| key.0 == space)
    }

    fn below(&self, space: Space, sp: u64) -> Option<(&(Space, u64), &Span)> {
        self.spans.range(..(space, sp)).next_back().filter(|(key, _)| key.0 == space)
    }
}
