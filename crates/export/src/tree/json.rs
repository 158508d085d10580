//! The stack model as JSON. Contexts, transitions, numbers of frames and of stacks are integers, addresses strings; what
//! is not known is null. Beside each count stands `at_least`, true where there may have been more, and `least`, which is
//! smaller than the count where some of what was seen may be the same, seen again.

use serde::ser::{Serialize, SerializeMap, Serializer};
use stackhound_calltree::{Bound, CallRange, ContextRange, Frame, Stack, StackEvent};

use super::selection::{Row, Shown, Tree};
use crate::hex::Hex;

/// A thing of a trace, to be serialized.
///
/// | of | keys |
/// |---|---|
/// | [`Frame`] | `frame`, `stack`, `name`, `module`, `symbol`, `offset`, `address`, `rva`, `creation`, `first`, `last`, `start`, `end`, `start_type`, `end_type`, `evidence`, `continuity`, `depth`, `descendants`, `least`, `at_least` |
/// | [`Bound`] | `{"observed": n}`, `{"inferred": {"lo": n, "hi": n}}` or `"open"` |
/// | [`ContextRange`] | `first`, `last`, `contexts` |
/// | [`CallRange`] | `depth`, `frame`, `name`, and those of its range |
/// | [`Stack`] | `stack`, `kind`, `process`, `thread`, `cpu`, `name`, `context`, `active`, `active_since`, `frames` |
/// | [`Tree`] | `active`, `above`, `rows`: each with `level` and one of `frame` (with `relation`), `cut`, `left` and `back`, or `more_changes` |
/// | event and depth | `event` (`start`, `end`, `leave` or `enter`), `depth`, `transition`, `context`; of frames also `frame`, `name`, and `start` and `start_type` or `end` and `end_type` |
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// Anything as a string by its `Display`.
struct Text<T>(T);

impl<T: std::fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for Json<Bound> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Ends(u64, u64);
        impl Serialize for Ends {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("lo", &self.0)?;
                map.serialize_entry("hi", &self.1)?;
                map.end()
            }
        }
        let mut map = match self.0 {
            Bound::Open => return serializer.serialize_str("open"),
            Bound::Observed(_) | Bound::Inferred { .. } => serializer.serialize_map(Some(1))?,
        };
        match self.0 {
            Bound::Open => {}
            Bound::Observed(context) => map.serialize_entry("observed", &context.0)?,
            Bound::Inferred { lo, hi } => map.serialize_entry("inferred", &Ends(lo.0, hi.0))?,
        }
        map.end()
    }
}

impl Serialize for Json<Frame<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        frame_into(&mut map, self.0)?;
        map.end()
    }
}

/// The keys of a frame.
fn frame_into<M: SerializeMap>(map: &mut M, frame: Frame<'_>) -> Result<(), M::Error> {
    let location = frame.function_location();
    let module = location.and_then(|location| location.module());
    map.serialize_entry("frame", &frame.id().0)?;
    map.serialize_entry("stack", &frame.stack().id().0)?;
    map.serialize_entry("name", &Text(frame.name()))?;
    map.serialize_entry("module", &module.map(|module| module.name))?;
    let symbol = location.and_then(|location| location.symbol());
    map.serialize_entry("symbol", &symbol)?;
    let offset = location.filter(|_| symbol.is_some()).map(|location| location.symbol_offset());
    map.serialize_entry("offset", &offset)?;
    let address = location.and_then(|location| location.address());
    map.serialize_entry("address", &address.map(|address| Hex(address.0)))?;
    map.serialize_entry("rva", &location.and_then(|location| location.rva()).map(Hex))?;
    map.serialize_entry("creation", &frame.creation_transition().map(|transition| transition.id().0))?;
    map.serialize_entry("first", &frame.first_context().id().0)?;
    map.serialize_entry("last", &frame.last_context().id().0)?;
    map.serialize_entry("start", &Json(frame.start()))?;
    map.serialize_entry("end", &Json(frame.end()))?;
    map.serialize_entry("start_type", frame.start_type().name())?;
    map.serialize_entry("end_type", frame.end_type().name())?;
    map.serialize_entry("evidence", frame.evidence().name())?;
    map.serialize_entry("continuity", frame.continuity().name())?;
    map.serialize_entry("depth", &frame.depth())?;
    let descendants = frame.descendant_count();
    map.serialize_entry("descendants", &descendants.number())?;
    map.serialize_entry("least", &descendants.least())?;
    map.serialize_entry("at_least", &descendants.is_lower_bound())
}

impl Serialize for Json<ContextRange> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        range_into(&mut map, self.0)?;
        map.end()
    }
}

fn range_into<M: SerializeMap>(map: &mut M, range: ContextRange) -> Result<(), M::Error> {
    map.serialize_entry("first", &range.begin().0)?;
    map.serialize_entry("last", &range.last().0)?;
    map.serialize_entry("contexts", &range.len())
}

impl Serialize for Json<CallRange<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("depth", &self.0.depth)?;
        map.serialize_entry("frame", &self.0.frame.id().0)?;
        map.serialize_entry("name", &Text(self.0.frame.name()))?;
        range_into(&mut map, self.0.range)?;
        map.end()
    }
}

/// A stack, with or without its frames.
#[derive(Clone, Copy, Debug)]
pub struct StackOnly<'t>(pub Stack<'t>);

impl Serialize for StackOnly<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        stack_into(&mut map, &self.0)?;
        map.end()
    }
}

impl Serialize for Json<Stack<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frames: Vec<_> = self.0.frames().map(Json).collect();
        let mut map = serializer.serialize_map(None)?;
        stack_into(&mut map, &self.0)?;
        map.serialize_entry("frames", &frames)?;
        map.end()
    }
}

fn stack_into<M: SerializeMap>(map: &mut M, stack: &Stack<'_>) -> Result<(), M::Error> {
    let info = stack.info();
    map.serialize_entry("stack", &stack.id().0)?;
    map.serialize_entry("kind", info.kind.name())?;
    map.serialize_entry("process", &info.process)?;
    map.serialize_entry("thread", &info.thread)?;
    map.serialize_entry("cpu", &info.cpu.map(|cpu| cpu.0))?;
    map.serialize_entry("name", &info.name)?;
    map.serialize_entry("context", &stack.context().id().0)?;
    map.serialize_entry("active", &stack.is_active())?;
    map.serialize_entry("active_since", &stack.active_since().map(Json))
}

impl Serialize for Json<&Tree<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = self.0.rows().iter().copied().map(Json).collect();
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("active", &self.0.active().id().0)?;
        map.serialize_entry("above", &self.0.above())?;
        map.serialize_entry("rows", &rows)?;
        map.end()
    }
}

impl Serialize for Json<Row<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("level", &self.0.level)?;
        match self.0.shown {
            Shown::Frame(frame, relation) => {
                map.serialize_entry("relation", relation.name())?;
                map.serialize_entry("frame", &Json(frame))?;
            }
            Shown::Cut(count) => {
                map.serialize_entry("cut", &count.number())?;
                map.serialize_entry("least", &count.least())?;
                map.serialize_entry("at_least", &count.is_lower_bound())?;
            }
            Shown::Away { left, back } => {
                map.serialize_entry("left", &left.0)?;
                map.serialize_entry("back", &back.map(|back| back.0))?;
            }
            Shown::MoreAway => map.serialize_entry("more_changes", &true)?,
        }
        map.end()
    }
}

impl Serialize for Json<(usize, StackEvent<'_>)> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (depth, event) = self.0;
        let mut map = serializer.serialize_map(None)?;
        let (name, transition, context) = match event {
            StackEvent::FrameStart(frame) => {
                ("start", frame.creation_transition().map(|by| by.id()), frame.first_context())
            }
            StackEvent::FrameEnd(frame) => {
                let seen = frame.has_ended() && matches!(frame.end(), Bound::Observed(_));
                let last = frame.last_context();
                ("end", last.transition_after().filter(|_| seen).map(|transition| transition.id()), last)
            }
            StackEvent::StackLeave(by) => ("leave", Some(by.id()), by.context_before()),
            StackEvent::StackEnter(by) => ("enter", Some(by.id()), by.context_after()),
        };
        map.serialize_entry("event", name)?;
        map.serialize_entry("depth", &depth)?;
        map.serialize_entry("transition", &transition.map(|transition| transition.0))?;
        map.serialize_entry("context", &context.id().0)?;
        match event {
            StackEvent::FrameStart(frame) => {
                map.serialize_entry("frame", &frame.id().0)?;
                map.serialize_entry("name", &Text(frame.name()))?;
                map.serialize_entry("start", &Json(frame.start()))?;
                map.serialize_entry("start_type", frame.start_type().name())?;
            }
            StackEvent::FrameEnd(frame) => {
                map.serialize_entry("frame", &frame.id().0)?;
                map.serialize_entry("name", &Text(frame.name()))?;
                map.serialize_entry("end", &Json(frame.end()))?;
                map.serialize_entry("end_type", frame.end_type().name())?;
            }
            StackEvent::StackLeave(_) | StackEvent::StackEnter(_) => {}
        }
        map.end()
    }
}
