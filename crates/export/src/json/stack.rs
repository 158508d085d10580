//! A call stack.

use std::borrow::Cow;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use stackhound_detect::report::EventContext;
use stackhound_frames::{Modules, Summary};
use stackhound_pipeline::{Depth, EventView, Label};
use stackhound_stacks::{StackState, StackStates};
use stackhound_types::Mode;

use super::frame::Frame;

/// A call stack.
///
/// `F` is the type that writes the frames. They are a list of [`Frame`].
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "Stack"))]
pub struct Stack<'a, F = Vec<Frame<'a>>> {
    /// The first applicable state of the stack. Null if the source does not report it.
    #[cfg_attr(test, schemars(extend("enum" = [
        "damaged", "lost", "ambiguous", "unconfirmed", "unresolved-key", "truncated", "kernel-only", "user-only", "none",
        "complete", null
    ])))]
    state: Option<&'static str>,
    /// The other applicable states.
    also: Vec<&'static str>,
    /// The frames, innermost first.
    frames: F,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    summary: Option<StackSummary<'a>>,
}

/// A summary of the frames of a stack. Absent if modules were not requested or the event has no
/// stack.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StackSummary<'a> {
    /// Modules of the user frames, innermost first, such as `ntdll.dll|KERNELBASE.dll|unbacked`.
    summary: Cow<'a, str>,
    /// Modules of the kernel frames before the first user frame.
    kernel_summary: Cow<'a, str>,
    /// Whether a user frame is in no image.
    #[cfg_attr(test, schemars(extend("enum" = ["yes", "no", "undetermined"])))]
    contains_unbacked: &'static str,
    /// The innermost user module that does more than pass calls on, or `jit:clr`, `unbacked` or
    /// `unknown`. Null without user frames.
    final_user_module: Option<Cow<'a, str>>,
    /// The module of the innermost frame, if it is a kernel frame.
    final_kernel_module: Option<Cow<'a, str>>,
}

impl StackSummary<'_> {
    /// Converts a summary, with the names of `modules`.
    pub fn new(summary: &Summary, modules: &Modules) -> StackSummary<'static> {
        let owned = |text: &str| Cow::Owned(text.to_owned());
        let kernel = summary.final_kernel_module().map(|module| modules.get(module).name());
        StackSummary {
            summary: owned(summary.user()),
            kernel_summary: owned(summary.kernel()),
            contains_unbacked: summary.contains_unbacked().name(),
            final_user_module: summary.final_user_module(modules).map(owned),
            final_kernel_module: kernel.map(owned),
        }
    }

    /// The summary of an event's stack, if it was requested.
    pub fn of_event(view: &EventView<'_>) -> Option<StackSummary<'static>> {
        if view.stack().is_none() || view.depth(Mode::User) == Depth::Address {
            return None;
        }
        let mut summary = Summary::default();
        view.summarize(&mut summary);
        Some(StackSummary::new(&summary, &view.modules()))
    }
}

impl<'a, F> Stack<'a, F> {
    /// Creates a stack with these states.
    pub fn new(states: StackStates, frames: F, summary: Option<StackSummary<'a>>) -> Stack<'a, F> {
        let also = states.others().map(StackState::name).collect();
        Stack { state: Some(states.first().name()), also, frames, summary }
    }
}

impl<'a> Stack<'a> {
    /// Converts the stack of an evaluated event.
    pub fn of_finding(event_context: &'a EventContext) -> Stack<'a> {
        let mut states = event_context.states.iter().copied();
        Stack {
            state: states.next(),
            also: states.collect(),
            frames: event_context.stack.iter().map(Frame::of_finding).collect(),
            summary: Some(StackSummary {
                summary: Cow::Borrowed(&event_context.summary),
                kernel_summary: Cow::Borrowed(&event_context.kernel_summary),
                contains_unbacked: event_context.contains_unbacked.name(),
                final_user_module: event_context.final_user_module.as_deref().map(Cow::Borrowed),
                final_kernel_module: event_context.final_kernel_module.as_deref().map(Cow::Borrowed),
            }),
        }
    }
}

/// The frames of an event. Each is created when it is written, because its names are borrowed.
#[derive(Clone, Copy, Debug)]
pub struct EventFrames<'s, 'c>(pub &'s EventView<'c>);

impl Serialize for EventFrames<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for frame in self.0.frames() {
            let names = self.0.names(&frame);
            list.serialize_element(&Frame::of_event(&Label { frame: &frame, names: names.as_deref() }))?;
        }
        list.end()
    }
}

#[cfg(test)]
impl JsonSchema for EventFrames<'_, '_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        <Vec<Frame<'_>>>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <Vec<Frame<'_>>>::json_schema(generator)
    }
}
