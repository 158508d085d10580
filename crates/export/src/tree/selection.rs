//! Which frames of a tree are shown.

use stackhound_calltree::{ContextId, ContextRange, Count, Frame, FrameId, TransitionId};

/// How much of a tree is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How far up: how many frames above the active one.
    pub ancestors: usize,
    /// How far down: how many levels of calls below the active frame, and below its siblings as well.
    pub depth: usize,
    /// How many of the calls of one frame.
    pub children: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ancestors: 2, depth: 2, children: 5 }
    }
}

/// A tree shows no calls any more once it has so many rows.
pub const ROWS_MAX: usize = 100_000;

/// The calls around a frame, from an ancestor of it down.
#[derive(Clone, Debug)]
pub struct Tree<'t> {
    active: Frame<'t>,
    above: u64,
    rows: Vec<Row<'t>>,
}

/// A row of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'t> {
    /// How far below the first row it is.
    pub level: usize,
    /// What it shows.
    pub shown: Shown<'t>,
}

/// What a row of a tree shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown<'t> {
    /// A frame. What it calls stands behind it, one level below.
    Frame(Frame<'t>, Relation),
    /// Here so many frames are left out: calls of the frame above, and what these call.
    Cut(Count),
    /// Here another stack was active.
    Away {
        /// The transition that left the frame's stack.
        left: TransitionId,
        /// The transition that led back; `None` if none did while the frame existed.
        back: Option<TransitionId>,
    },
    /// Here other stacks were active more often than is shown.
    MoreAway,
}

/// What a frame of a tree is to the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// An ancestor of it.
    Above,
    /// The active frame itself.
    Active,
    /// Called by it, or by what it calls.
    Below,
    /// Any other.
    Beside,
}

impl Relation {
    /// As it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Above => "above",
            Self::Active => "active",
            Self::Below => "below",
            Self::Beside => "beside",
        }
    }
}

impl<'t> Tree<'t> {
    /// The tree around `active`: its ancestors, as far as there are so many, and the calls of the outermost one of these,
    /// level by level.
    ///
    /// Of each frame the first calls are shown. Where the way to the active frame goes through a later one, that and its
    /// neighbours are shown instead.
    pub fn around(active: Frame<'t>, limits: Limits) -> Self {
        let mut path: Vec<_> =
            std::iter::once(active).chain(active.ancestors().take(limits.ancestors)).collect();
        path.reverse();
        let root = path[0];
        let levels = (path.len() - 1).saturating_add(limits.depth);
        let walk = Walk { path, levels, children: limits.children.min(ROWS_MAX) };
        let mut rows = Vec::new();
        let mut pending = vec![Row { level: 0, shown: Shown::Frame(root, walk.relation(root, 0, None)) }];
        while let Some(row) = pending.pop() {
            rows.push(row);
            if let Shown::Frame(frame, relation) = row.shown {
                let below = walk.below(frame, relation, row.level, rows.len() + pending.len() < ROWS_MAX);
                pending.extend(below.into_iter().rev());
            }
        }
        Self { active, above: root.depth(), rows }
    }

    /// The frame it is around.
    pub fn active(&self) -> Frame<'t> {
        self.active
    }

    /// How many ancestors the first row's frame has, which are not shown.
    pub fn above(&self) -> u64 {
        self.above
    }

    /// Its rows, from the top down. The first one is a frame.
    pub fn rows(&self) -> &[Row<'t>] {
        &self.rows
    }
}

struct Walk<'t> {
    /// From the first row's frame to the active one.
    path: Vec<Frame<'t>>,
    /// The level at which no calls are shown any more.
    levels: usize,
    children: usize,
}

impl<'t> Walk<'t> {
    /// What a frame at a level is to the active one, given what its parent is.
    fn relation(&self, frame: Frame<'t>, level: usize, parent: Option<Relation>) -> Relation {
        match parent {
            Some(Relation::Active | Relation::Below) => Relation::Below,
            Some(Relation::Beside) => Relation::Beside,
            _ if self.path.get(level) != Some(&frame) => Relation::Beside,
            _ if level + 1 == self.path.len() => Relation::Active,
            _ => Relation::Above,
        }
    }

    /// The rows below a frame, one level down only.
    fn below(&self, frame: Frame<'t>, relation: Relation, level: usize, has_room: bool) -> Vec<Row<'t>> {
        let on_path = (relation == Relation::Above).then(|| self.path[level + 1]);
        let children = if level < self.levels && has_room { self.children } else { 0 };
        let mut rows = Vec::new();
        let mut push = |shown| rows.push(Row { level: level + 1, shown });
        let mut aways = Aways { frame, left: children.max(1), is_cut: false };
        // Frames are numbered so that those below one follow it: numbers tell how many are left out.
        let mut next = frame.id().0 + 1;
        let mut since = frame.first_context().id();
        let end = next + frame.descendant_number();
        for child in window(frame, on_path, children) {
            match child.id().0.saturating_sub(next) {
                0 => aways.between(since, child.first_context().id().0.checked_sub(1), &mut push),
                cut => push(Shown::Cut(cut_out(frame, next, cut))),
            }
            push(Shown::Frame(child, self.relation(child, level + 1, Some(relation))));
            next = child.id().0 + 1 + child.descendant_number();
            since = ContextId(child.last_context().id().0 + 1);
        }
        match end.saturating_sub(next) {
            0 => aways.between(since, Some(frame.last_context().id().0), &mut push),
            cut => push(Shown::Cut(cut_out(frame, next, cut))),
        }
        rows
    }
}

/// The first calls of a frame; or, where that is not among them, those around the one that leads to the active frame.
fn window<'t>(frame: Frame<'t>, on_path: Option<Frame<'t>>, children: usize) -> Vec<Frame<'t>> {
    let first: Vec<_> = frame.children().take(children).collect();
    let Some(middle) = on_path.filter(|child| !first.contains(child)) else { return first };
    let behind: Vec<_> =
        std::iter::successors(middle.next_sibling(), Frame::next_sibling).take(children / 2).collect();
    let rest = children.saturating_sub(behind.len() + 1);
    let mut shown: Vec<_> =
        std::iter::successors(middle.previous_sibling(), Frame::previous_sibling).take(rest).collect();
    shown.reverse();
    shown.push(middle);
    shown.extend(behind);
    shown
}

/// The times at which the stack of a frame was left in the frame itself, not in what it calls.
struct Aways<'t> {
    frame: Frame<'t>,
    /// How many may still be shown.
    left: usize,
    /// Whether it was said that there are more.
    is_cut: bool,
}

impl<'t> Aways<'t> {
    /// Those that begin behind one of the contexts from `from` to `to`.
    fn between(&mut self, from: ContextId, to: Option<u64>, push: &mut impl FnMut(Shown<'t>)) {
        let last = self.frame.last_context().id();
        let (Some(to), Ok(range)) = (to, ContextRange::new(from, last)) else { return };
        let mut ranges = self.frame.execution_ranges_within(range).peekable();
        while let Some(range) = ranges.next() {
            let ends = range.last();
            if ends.0 > to || ends == last {
                return;
            }
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None if self.is_cut => return,
                None => {
                    self.is_cut = true;
                    return push(Shown::MoreAway);
                }
            }
            let back = ranges.peek().map(|next| TransitionId(next.begin().0.saturating_sub(1)));
            push(Shown::Away { left: TransitionId(ends.0), back });
        }
    }
}

/// How many calls the frames of a trace from one number on are.
fn cut_out(frame: Frame<'_>, first: u64, frames: u64) -> Count {
    let trace = frame.trace();
    trace.counted_frames((first..first + frames).filter_map(|number| trace.frame(FrameId(number)).ok()))
}
