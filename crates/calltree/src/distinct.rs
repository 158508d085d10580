//! Counts the calls that a set of frames represents. In a sampled trace, a frame that is no longer
//! observed and a frame that is observed later can be the same call.

use std::collections::{BTreeSet, HashMap};

use crate::Trace;
use crate::frame::Frame;
use crate::id::StackId;
use crate::kind::{Bound, Count};

/// Frames of one stack that may be calls of the same function.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    Function(StackId, u32),
    /// The function is unknown.
    Nameless(StackId),
    All(StackId),
}

/// Counts frames, which must be in the order of their first contexts.
pub(crate) fn count<'t>(trace: &Trace, frames: impl Iterator<Item = Frame<'t>>) -> Count {
    if !trace.is_sampled() {
        return Count::Exactly(frames.count() as u64);
    }
    // The last contexts of frames that may have continued until the end of the trace.
    let mut open: HashMap<Group, BTreeSet<u64>> = HashMap::new();
    let (mut seen, mut least) = (0, 0);
    let end = trace.last_context().id();
    for frame in frames {
        seen += 1;
        let stack = frame.stack_id();
        let location = frame.function_location().filter(|location| location.symbol().is_some());
        let own = location.map_or(Group::Nameless(stack), |of| Group::Function(stack, of.id().0));
        // A frame without a name can be any function.
        let others = if location.is_some() { [own, Group::Nameless(stack)] } else { [Group::All(stack); 2] };
        let first = frame.first_context().id().0;
        let earliest = match frame.start() {
            Bound::Observed(_) => first,
            Bound::Inferred { lo, .. } => lo.0,
            Bound::Open => 0,
        };
        let goes_on = |group: &Group| {
            let ended = open.get(group);
            ended.is_some_and(|ended| earliest < first && ended.range(earliest..first).next().is_some())
        };
        least += u64::from(!others.iter().any(goes_on));
        if let Bound::Inferred { lo, hi } = frame.end()
            && hi == end
            && lo < hi
        {
            for group in [own, Group::All(stack)] {
                open.entry(group).or_default().insert(lo.0);
            }
        }
    }
    match least == seen {
        true => Count::AtLeast(seen),
        false => Count::Between { least, seen },
    }
}
