//! Values in the fields of events. Each costs a look-up by name.

use std::borrow::Cow;

use stackhound_pipeline::{EventView, Missing};
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

/// The path of the file that the event is about, or a remark in brackets.
pub fn file_name<'v>(view: &'v EventView<'_>) -> Cow<'v, str> {
    match view.file_path() {
        Ok(path) => path,
        Err(Missing::Lost) => "[file name not certain: lost records]".into(),
        Err(_) => "[no file name]".into(),
    }
}
