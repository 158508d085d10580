//! What makes a correlator fit for a session that runs for days: nothing of it grows for ever.

use stackhound_trace::{LossMap, TimeBase};

use super::{Correlator, Map, NOTHING, Window};
use crate::table::{StackId, StackTable};

/// Of live sessions: definitions of one and the same time that are remembered.
pub(super) const JUST_DEFINED_MAX: usize = 1 << 12;

/// Of live sessions: parts that an event can have. Windows writes two; a few more where user mode is called back.
pub(super) const PARTS_MAX: usize = 1 << 8;

/// Of live sessions: kinds of owners that are counted each by itself.
pub(super) const OWNER_KINDS_MAX: usize = 1 << 16;

impl Correlator {
    /// Frames of one generation of stacks: about 60 MB, and 32 MB more while the generation before is held.
    pub const FRAMES_MAX: usize = 2 << 20;

    /// Reads a session that may run for days, as [`one_pass`](Correlator::one_pass) does but with bounded memory.
    ///
    /// When `frames_max` frames have been met that were not known, the table of stacks begins a new generation: stacks
    /// of events that are still held back are taken over, the rest is forgotten as soon as no [`Kept`](crate::Kept)
    /// event is of its time. So equal stacks have equal numbers within a generation only; a number never means another
    /// stack. [`FRAMES_MAX`](Correlator::FRAMES_MAX) is for everyday use. No event gets another stack by it.
    pub fn live(window: Window, bases: Vec<TimeBase>, frames_max: usize) -> Correlator {
        let table = StackTable::default();
        let frames_max = frames_max.max(1);
        Correlator {
            frames_max: Some(frames_max),
            next_generation: frames_max,
            ..Correlator::new(window, bases, LossMap::live(), None, table)
        }
    }

    /// Leaves the table's stacks behind but for those of events that are held back.
    #[cold]
    pub(super) fn begin_generation(&mut self) {
        let Some(frames_max) = self.frames_max else { return };
        self.stats.generations += 1;
        self.table.begin_generation();
        self.joined.clear();
        let Correlator { table, partials, just_defined, .. } = self;
        let mut renewed: Map<StackId, Option<StackId>> = Map::default();
        let mut renew = |stack| *renewed.entry(stack).or_insert_with(|| table.renew(stack));
        for held in self.queue.iter().filter(|held| held.partial != NOTHING) {
            partials[held.partial as usize].renumber(&mut renew);
        }
        just_defined.retain_mut(|(_, stack)| renew(*stack).map(|new| *stack = new).is_some());
        // What was taken over does not count, else little could be left until the next time.
        self.next_generation = self.table.generation_len().saturating_add(frames_max);
    }
}
