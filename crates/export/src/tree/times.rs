//! When frames started, and how long they existed.

use std::fmt;

use stackhound_calltree::Frame;

/// The start of a frame, relative to the start of the trace, and its duration. Each is missing if it
/// is not known.
pub(super) fn times(frame: Frame<'_>) -> [Option<Spans>; 2] {
    let zero = frame.trace().first_context().time();
    let since_zero = |(lo, hi): (u64, u64)| {
        let zero = zero?;
        Some(Spans { prefix: "+", shortest: lo.saturating_sub(zero), longest: hi.saturating_sub(zero) })
    };
    let duration = frame.duration().map(|(shortest, longest)| Spans { prefix: "", shortest, longest });
    [frame.start_time().and_then(since_zero), duration]
}

/// One span, or the shortest and the longest possible one, in units of 100 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// A sign before each.
    pub prefix: &'static str,
    /// The shortest one.
    pub shortest: u64,
    /// The longest one.
    pub longest: u64,
}

/// For example `1.2 µs`, or `+3.000 ms to +4.000 ms`.
impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, Span(self.shortest))?;
        if self.shortest == self.longest {
            Ok(())
        } else {
            write!(f, " to {}{}", self.prefix, Span(self.longest))
        }
    }
}

struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.0 as f64;
        match self.0 {
            0..10_000 => write!(f, "{:.1} µs", units / 10.0),
            10_000..10_000_000 => write!(f, "{:.3} ms", units / 1e4),
            _ => write!(f, "{:.3} s", units / 1e7),
        }
    }
}
