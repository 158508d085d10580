//! Frames, stacks and trees of frames as HTML, as the program writes them.

use stackhound_calltree::{Frame, Stack};
use stackhound_export::tree::{Limits, Tree, html};

/// A frame on one line.
pub(crate) fn frame(frame: Frame<'_>) -> String {
    html::frame(frame)
}

/// A stack: what it is, and its frames from the top down.
pub(crate) fn stack(stack: &Stack<'_>) -> String {
    let frames: String = stack.frames().map(|found| format!("<li>{}</li>", frame(found))).collect();
    // Names are untrusted.
    let title = stack.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<p>{title}</p><ol>{frames}</ol>")
}

/// A frame between its ancestors and its descendants, itself in `<strong>`.
pub(crate) fn tree(active: Frame<'_>, limits: Limits) -> String {
    html::fragment(&Tree::around(active, limits))
}
