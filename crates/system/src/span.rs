//! The lifetime of an object, and the evidence for it.

use stackhound_trace::TraceTime;

/// The statement of an event about the life of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The object starts to exist.
    Start,
    /// The object ends.
    End,
    /// The object existed when the trace began (`DCStart`).
    RundownAtStart,
    /// The object existed when the trace ended (`DCEnd`).
    RundownAtEnd,
}

/// The evidence for an end of a [`Span`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evidence {
    /// An event reports the time.
    Observed,
    /// A rundown at the start of the trace lists the object. It existed before the trace.
    RundownAtStart,
    /// A rundown at the end of the trace lists the object. As evidence for a start: the start was
    /// not observed and was usually before the trace. As evidence for an end: the object existed
    /// longer than the trace.
    RundownAtEnd,
    /// There is no evidence. An open span may have ended without being observed, or continue after
    /// the trace. A span with an end is that of an object that another one replaced: it existed at
    /// `to` and no longer when the other one was observed.
    Unknown,
}

/// The lifetime of an object, from `from` up to, but not including, `to`.
///
/// Lookups also find the object at `to` itself, unless another object has replaced it by then: the
/// event that ends an object still belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// [`Span::BEGINNING`] if the object existed before the trace.
    pub from: TraceTime,
    /// [`Span::OPEN`] if no end is known.
    pub to: TraceTime,
    /// The evidence for `from`.
    pub start: Evidence,
    /// The evidence for `to`.
    pub end: Evidence,
}

impl Span {
    /// The value of `from` for objects that existed before the trace.
    pub const BEGINNING: TraceTime = TraceTime(i64::MIN);
    /// The value of `to` for objects without a known end.
    pub const OPEN: TraceTime = TraceTime(i64::MAX);

    /// Whether the object may or may not have existed at a time: after the last evidence for it, and
    /// before the evidence for the object that replaced it.
    #[inline]
    pub fn is_uncertain_at(&self, time: TraceTime) -> bool {
        self.end == Evidence::Unknown && self.to < time
    }

    /// Whether the object existed at a time, `to` included.
    #[inline]
    pub fn touches(&self, time: TraceTime) -> bool {
        self.from <= time && time <= self.to
    }
}
