//! Frames, stacks and trees of frames as HTML.

use stackhound_calltree as model;

/// A text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A frame on one line.
pub(crate) fn frame(frame: &model::Frame<'_>) -> String {
    format!("<span class=\"stackhound-frame\">{}</span>", escaped(&frame.to_string()))
}

/// A stack: what it is, and its frames from the top down.
pub(crate) fn stack(stack: &model::Stack<'_>) -> String {
    let frames: String = stack.frames().map(|found| format!("<li>{}</li>", frame(&found))).collect();
    format!("{}<ol>{frames}</ol>", escaped(&stack.to_string()))
}

/// How much of a tree is shown: levels up, levels down, and children of each frame.
pub(crate) struct Limits {
    pub(crate) ancestors: usize,
    pub(crate) depth: usize,
    pub(crate) children: usize,
}

/// A frame between its ancestors and its descendants, itself in `<strong>`.
pub(crate) fn tree(active: &model::Frame<'_>, limits: &Limits) -> String {
    let mut line: Vec<model::Frame<'_>> = active.ancestors().take(limits.ancestors).collect();
    line.reverse();
    let mut page = String::from("<ul class=\"stackhound-tree\">");
    for ancestor in &line {
        page += &format!("<li>|- {}<ul>", frame(ancestor));
    }
    page += &format!("<li>|- <strong>{}</strong>", frame(active));
    children(active, limits, limits.depth, &mut page);
    page += "</li>";
    page += &"</ul></li>".repeat(line.len());
    page + "</ul>"
}

fn children(parent: &model::Frame<'_>, limits: &Limits, depth: usize, page: &mut String) {
    let mut left = limits.children;
    let mut called = parent.children().peekable();
    if depth == 0 || called.peek().is_none() {
        return;
    }
    *page += "<ul>";
    for child in called {
        if left == 0 {
            *page += "<li>|- ...</li>";
            break;
        }
        left -= 1;
        *page += &format!("<li>|- {}", frame(&child));
        children(&child, limits, depth - 1, page);
        *page += "</li>";
    }
    *page += "</ul>";
}
