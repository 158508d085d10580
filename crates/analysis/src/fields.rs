//! Numbers in the fields of events. Each costs a look-up by name.

use stackhound_pipeline::EventView;
use stackhound_types::{Pid, Tid};

/// The number in a field.
pub fn number(view: &EventView<'_>, name: &str) -> Option<u64> {
    view.field(name)?.1.as_u64()
}

/// The process id in a field. `None` if the field states that it is not known.
pub fn pid(view: &EventView<'_>, name: &str) -> Option<Pid> {
    Pid::known(number(view, name)?.try_into().ok()?)
}

/// The thread id in a field. `None` if the field states that it is not known.
pub fn tid(view: &EventView<'_>, name: &str) -> Option<Tid> {
    Tid::known(number(view, name)?.try_into().ok()?)
}
