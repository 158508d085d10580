//! What handlers are, and what they may give back.

use std::fmt;
use std::ops::ControlFlow;

use stackhound_pipeline::EventView;
use stackhound_trace::Flow;

/// What a handler says: go on or not, or what went wrong with the event.
pub(crate) type Outcome = Result<Flow, stackhound_schema::Error>;

/// A function that is called for events.
pub(crate) type Handler = Box<dyn FnMut(&EventView<'_>) -> Outcome + Send>;

/// A function that is called for errors.
pub(crate) type ErrorHandler = Box<dyn FnMut(&EventError<'_, '_>) -> Outcome + Send>;

/// An event with which something went wrong, and what.
pub struct EventError<'s, 'c> {
    /// The event.
    pub event: &'s EventView<'c>,
    /// What went wrong.
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

/// What a handler may give back: nothing, whether to go on, or an error of its event. An error ends nothing: it goes to
/// [`Trace::on_error`](crate::Trace::on_error), and is counted.
pub trait IntoOutcome {
    /// Go on or not, or the error.
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
