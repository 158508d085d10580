//! How many calls some frames are, where a frame that was lost sight of may be the one that is seen later.

use std::collections::{BTreeSet, HashMap};

use crate::Trace;
use crate::frame::Frame;
use crate::id::StackId;
use crate::kind::{Bound, Count};

/// Frames of one stack that are taken for one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    Function(StackId, u32),
    /// No name tells which function it is.
    Nameless(StackId),
    All(StackId),
}

/// Counts frames, which come in the order of their first contexts.
pub(crate) fn count<'t>(trace: &Trace, frames: impl Iterator<Item = Frame<'t>>) -> Count {
    if !trace.is_sampled() {
        return Count::Exactly(frames.count() as u64);
    }
    // The last contexts of frames that may have lived on until the end of the trace.
    let mut open: HashMap<Group, BTreeSet<u64>> = HashMap::new();
    let (mut seen, mut least) = (0, 0);
    let end = trace.last_context().id();
    for frame in frames {
        seen += 1;
        let stack = frame.stack_id();
        let location = frame.function_location().filter(|location| location.symbol().is_some());
        let own = location.map_or(Group::Nameless(stack), |of| Group::Function(stack, of.id().0));
        // What has no name may be any function.
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
