//! The selection of frames that a tree shows.

use stackhound_calltree::{ContextId, ContextRange, Count, Frame, FrameId, TransitionId};

/// Limits of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of frames above the active one.
    pub ancestors: usize,
    /// Maximum number of levels of calls below the active frame and below its siblings.
    pub depth: usize,
    /// Maximum number of calls of one frame.
    pub children: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ancestors: 2, depth: 2, children: 5 }
    }
}

/// A tree with this many rows shows no further calls.
pub const ROWS_MAX: usize = 100_000;

/// The calls around a frame, from one of its ancestors down.
#[derive(Clone, Debug)]
pub struct Tree<'t> {
    active: Frame<'t>,
    above: u64,
    rows: Vec<Row<'t>>,
}

/// A row of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'t> {
    /// Number of levels below the first row.
    pub level: usize,
    /// Content of the row.
    pub shown: Shown<'t>,
}

/// The content of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown<'t> {
    /// A frame. Its calls follow, one level below.
    Frame(Frame<'t>, Relation),
    /// This many frames are left out: calls of the frame above, with the calls below them.
    Cut(Count),
    /// Another stack was active.
    Away {
        /// The transition that left the stack of the frame.
        left: TransitionId,
        /// The transition that returned to it; `None` if there was none while the frame existed.
        back: Option<TransitionId>,
    },
    /// Other stacks were active more often than shown.
    MoreAway,
}

/// The relation of a frame to the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// An ancestor of the active frame.
    Above,
    /// The active frame itself.
    Active,
    /// A direct or indirect call of the active frame.
    Below,
    /// Any other frame.
    Beside,
}

impl Relation {
    /// The name in JSON.
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
    /// The tree around `active`: its ancestors, as far as the limits allow, and the calls of the
    /// outermost of them, level by level.
    ///
    /// The first calls of each frame are shown. If the path to the active frame goes through a
    /// later call, that call and its neighbors are shown instead.
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

    /// The active frame.
    pub fn active(&self) -> Frame<'t> {
        self.active
    }

    /// Number of ancestors of the first row's frame, which are not shown.
    pub fn above(&self) -> u64 {
        self.above
    }

    /// The rows, from top to bottom. The first one is a frame.
    pub fn rows(&self) -> &[Row<'t>] {
        &self.rows
    }
}

struct Walk<'t> {
    /// The frames from the first row to the active one.
    path: Vec<Frame<'t>>,
    /// The level below which no calls are shown.
    levels: usize,
    children: usize,
}

impl<'t> Walk<'t> {
    /// The relation of a frame to the active one, given the relation of its parent.
    fn relation(&self, frame: Frame<'t>, level: usize, parent: Option<Relation>) -> Relation {
        match parent {
            Some(Relation::Active | Relation::Below) => Relation::Below,
            Some(Relation::Beside) => Relation::Beside,
            _ if self.path.get(level) != Some(&frame) => Relation::Beside,
            _ if level + 1 == self.path.len() => Relation::Active,
            _ => Relation::Above,
        }
    }

    /// The rows one level below a frame.
    fn below(&self, frame: Frame<'t>, relation: Relation, level: usize, has_room: bool) -> Vec<Row<'t>> {
        let on_path = (relation == Relation::Above).then(|| self.path[level + 1]);
        let children = if level < self.levels && has_room { self.children } else { 0 };
        let mut rows = Vec::new();
        let mut push = |shown| rows.push(Row { level: level + 1, shown });
        let mut aways = Aways { frame, left: children.max(1), is_cut: false };
        // The frames below a frame have the numbers after it, so that numbers give the count of
        // frames that are left out.
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

/// The first calls of a frame, or those around the call that leads to the active frame if it is not
/// among them.
fn window<'t>(frame: Frame<'t>, on_path: Option<Frame<'t>>, children: usize) -> Vec<Frame<'t>> {
    let first: Vec<_> = frame.children().take(children).collect();
    let Some(middle) = on_path.filter(|child| !first.contains(child)) else { return first };
    let after: Vec<_> =
        std::iter::successors(middle.next_sibling(), Frame::next_sibling).take(children / 2).collect();
    let rest = children.saturating_sub(after.len() + 1);
    let mut shown: Vec<_> =
        std::iter::successors(middle.previous_sibling(), Frame::previous_sibling).take(rest).collect();
    shown.reverse();
    shown.push(middle);
    shown.extend(after);
    shown
}

/// The times when the stack was left in the frame itself, not in its calls.
struct Aways<'t> {
    frame: Frame<'t>,
    /// How many more may be shown.
    left: usize,
    /// Whether a row for further ones was added.
    is_cut: bool,
}

impl<'t> Aways<'t> {
    /// Adds those that begin after one of the contexts from `from` to `to`.
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

/// Counts the calls among the frames with consecutive numbers.
fn cut_out(frame: Frame<'_>, first: u64, frames: u64) -> Count {
    let trace = frame.trace();
    trace.counted_frames((first..first + frames).filter_map(|number| trace.frame(FrameId(number)).ok()))
}
