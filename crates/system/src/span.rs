//! From when to when something existed, and how that is known.

use stackhound_trace::TraceTime;

/// What an event says of the thing it names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// It comes into being.
    Start,
    /// It goes.
    End,
    /// It was there when the recording began (`DCStart`).
    RundownAtStart,
    /// It was there when the recording ended (`DCEnd`).
    RundownAtEnd,
}

/// What the end of a [`Span`] rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evidence {
    /// An event tells of the moment.
    Observed,
    /// A rundown at the recording's start lists the thing: it is older than the recording.
    RundownAtStart,
    /// A rundown at the recording's end lists the thing. As a start: it came into being unseen, as a rule before the
    /// recording. As an end: it outlived the recording.
    RundownAtEnd,
    /// Nothing tells. An open span may have ended unseen, or go on behind the recording.
    Unknown,
}

/// Something existed from `from` up to, but not including, `to`.
///
/// Lookups also find it at `to` itself, unless something else has taken its place by then: the event that ends a thing
/// still belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// [`Span::BEGINNING`] where it is older than the recording.
    pub from: TraceTime,
    /// [`Span::OPEN`] where no end is known.
    pub to: TraceTime,
    /// How `from` is known.
    pub start: Evidence,
    /// How `to` is known.
    pub end: Evidence,
}

impl Span {
    /// The `from` of what is older than the recording.
    pub const BEGINNING: TraceTime = TraceTime(i64::MIN);
    /// The `to` of what did not end.
    pub const OPEN: TraceTime = TraceTime(i64::MAX);

    /// Whether it existed at a time, `to` included.
    #[inline]
    pub fn touches(&self, time: TraceTime) -> bool {
        self.from <= time && time <= self.to
    }
}
