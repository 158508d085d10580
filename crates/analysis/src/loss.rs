//! Lost records between the two events of an interval.

use stackhound_pipeline::EventView;
use stackhound_trace::TraceTime;

/// Whether records of a source may be missing between a time and an event.
pub fn is_lost(view: &EventView<'_>, source: u16, since: TraceTime) -> bool {
    let losses = view.trace_state().losses();
    !losses.is_lossless() && losses.between(source, since.0, view.time().0)
}
