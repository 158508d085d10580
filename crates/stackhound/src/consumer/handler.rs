//! Handlers and their return values.

use std::fmt;
use std::ops::ControlFlow;

use stackhound_pipeline::EventView;
use stackhound_trace::Flow;

/// The outcome of a handler: whether to continue, or the error of the event.
pub(crate) type Outcome = Result<Flow, stackhound_schema::Error>;

/// A function that is called for events.
pub(crate) type Handler = Box<dyn FnMut(&EventView<'_>) -> Outcome + Send>;

/// A function that is called for errors.
pub(crate) type ErrorHandler = Box<dyn FnMut(&EventError<'_, '_>) -> Outcome + Send>;

/// An error in an event.
pub struct EventError<'s, 'c> {
    /// The event.
    pub event: &'s EventView<'c>,
    /// The error.
    pub error: &'s stackhound_schema::Error,
}

impl fmt::Debug for EventError<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventError").field("event", &self.event.name()).field("error", self.error).finish()
    }
}

impl fmt::Display for EventError<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.event.name(), self.event.provider(), self.error)
    }
}

/// The return value of a handler: nothing, whether to continue, or an error of the event. An error
/// does not end the trace; it is passed to [`Trace::on_error`](crate::Trace::on_error) and counted.
pub trait IntoOutcome {
    /// Whether to continue, or the error.
    fn into_outcome(self) -> Result<Flow, stackhound_schema::Error>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Ok(ControlFlow::Continue(()))
    }
}

impl IntoOutcome for Flow {
    fn into_outcome(self) -> Outcome {
        Ok(self)
    }
}

impl<T: IntoOutcome> IntoOutcome for Result<T, stackhound_schema::Error> {
    fn into_outcome(self) -> Outcome {
        self?.into_outcome()
    }
}

/// A handler with its outcome in the common form.
pub(crate) fn boxed<R: IntoOutcome>(
    mut handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
) -> Handler {
    Box::new(move |view| handler(view).into_outcome())
}
