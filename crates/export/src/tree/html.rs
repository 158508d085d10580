//! The stack model in HTML: a frame, a tree as a fragment of a page, and a complete page.
//!
//! The HTML loads nothing: collapsible parts are `details` elements. Only the page has a script,
//! which finds names and keeps the callers of the first visible row in view. The policy of the page
//! allows no other script. Without it, the page is complete.

use std::fmt::{self, Write};

use stackhound_calltree::{Bound, Continuity, Frame};

use super::selection::{Relation, Shown, Tree};
use super::text::{frames, remarks};
use super::times::times;
use crate::escape::Markup;

/// A frame, such as `<span class="stackhound-frame" title="…">#199862 -
/// usbhub!UsbhDecHubBusy</span>`.
pub fn frame(frame: Frame<'_>) -> String {
    let mut html = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = span(frame, &mut html);
    html
}

fn span(frame: Frame<'_>, html: &mut String) -> fmt::Result {
    let stack = frame.stack();
    write!(
        html,
        r#"<span class="stackhound-frame" title="{}: {} to {}; started by {}, ended by {}; evidence: {}; {}">{}</span>"#,
        Markup(stack),
        frame.start(),
        frame.end(),
        frame.start_type().name(),
        frame.end_type().name(),
        frame.evidence().name(),
        match frame.continuity() {
            Continuity::Observed => "observed continuously",
            Continuity::Assumed => "assumed to be the same frame",
        },
        Markup(frame),
    )
}

/// A tree with its styles, as a fragment of a page. The active frame is in `strong`, `|- ...` marks
/// frames that are left out, and the calls of frames outside of its path are collapsed.
pub fn fragment(tree: &Tree<'_>) -> String {
    let mut html = String::new();
    let _ = list(tree, &mut html);
    html
}

/// A page with a tree and a legend.
pub fn page(tree: &Tree<'_>) -> String {
    let mut html = String::new();
    let _ = document(tree, &mut html);
    html
}

fn document(tree: &Tree<'_>, html: &mut String) -> fmt::Result {
    let active = tree.active();
    write!(html, "{HEAD_START}{SCRIPT_HASH}{HEAD_END}")?;
    writeln!(html, "<title>{}</title>\n</head>\n<body>\n<main>", Markup(active))?;
    writeln!(html, "<h1>Calls around {}</h1>", Markup(active))?;
    write!(html, "<p>On the {}", Markup(active.stack()))?;
    match tree.above() {
        0 => writeln!(html, ".</p>")?,
        1 => writeln!(html, ". One outer frame is not shown.</p>")?,
        above => writeln!(html, ". {above} outer frames are not shown.</p>")?,
    }
    list(tree, html)?;
    html.push_str(LEGEND);
    if active.trace().is_sampled() {
        html.push_str("<p>The trace is sampled: every number of frames is a lower bound.</p>\n");
    }
    writeln!(html, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>")
}

fn list(tree: &Tree<'_>, html: &mut String) -> fmt::Result {
    writeln!(html, r#"<div class="stackhound-tree">"#)?;
    writeln!(html, "<style>\n{}</style>\n<ul>", include_str!("tree.css"))?;
    let rows = tree.rows();
    let mut open = 0;
    for (index, row) in rows.iter().enumerate() {
        close(html, &mut open, row.level);
        match row.shown {
            Shown::Frame(frame, relation) => {
                let has_calls = rows.get(index + 1).is_some_and(|next| next.level > row.level);
                if has_calls && row.level < NESTED_MAX {
                    let unfolded = if relation == Relation::Beside { "" } else { " open" };
                    write!(html, "<li><details{unfolded}><summary>")?;
                    level(row.level, html)?;
                    label(frame, relation, html)?;
                    let deep = if row.level + 1 > INDENTED_MAX { r#" class="deep""# } else { "" };
                    writeln!(html, "</summary>\n<ul{deep}>")?;
                    open += 1;
                } else {
                    item("leaf", row.level, html)?;
                    label(frame, relation, html)?;
                    html.push_str("</li>\n");
                }
            }
            Shown::Cut(count) => {
                item("leaf cut", row.level, html)?;
                writeln!(html, "|- ... {} left out</li>", Markup(frames(count)))?;
            }
            Shown::Away { left, back } => {
                item("leaf away", row.level, html)?;
                write!(html, "stack left at {left}")?;
                match back {
                    Some(back) => writeln!(html, ", back at {back}</li>")?,
                    None => html.push_str("</li>\n"),
                }
            }
            Shown::MoreAway => {
                item("leaf away", row.level, html)?;
                html.push_str("|- ... and left more often</li>\n");
            }
        }
    }
    close(html, &mut open, 0);
    html.push_str("</ul>\n</div>\n");
    Ok(())
}

/// The number of indented levels. Deeper rows have the number of their level instead, so that names
/// have room at any level.
const INDENTED_MAX: usize = 12;

/// The number of levels with lists of their own. Browsers cut documents of more than 512 nested
/// elements, and each level has three. Deeper rows follow each other in the innermost list.
const NESTED_MAX: usize = 150;

/// The start of a row without a list of calls. The script reads the levels of rows that are not
/// nested.
fn item(class: &str, at: usize, html: &mut String) -> fmt::Result {
    write!(html, r#"<li class="{class}""#)?;
    if at > NESTED_MAX {
        write!(html, r#" data-level="{at}""#)?;
    }
    html.push('>');
    level(at, html)
}

fn level(level: usize, html: &mut String) -> fmt::Result {
    if level > INDENTED_MAX { write!(html, "<small>{level}:</small> ") } else { Ok(()) }
}

/// Closes lists until `level` of them are open.
fn close(html: &mut String, open: &mut usize, level: usize) {
    while *open > level {
        html.push_str("</ul></details></li>\n");
        *open -= 1;
    }
}

fn label(frame: Frame<'_>, relation: Relation, html: &mut String) -> fmt::Result {
    let is_active = relation == Relation::Active;
    html.push_str(if is_active { r#"<strong aria-current="true">"# } else { "" });
    span(frame, html)?;
    html.push_str(if is_active { "</strong>" } else { "" });
    html.push_str(" <small>");
    match frame.end() {
        Bound::Open => write!(html, "{}, not ended", frame.start())?,
        end => write!(html, "{} to {end}", frame.start())?,
    }
    for time in times(frame).into_iter().flatten() {
        write!(html, ", {time}")?;
    }
    for remark in remarks(frame) {
        write!(html, ", {}", Markup(remark))?;
    }
    html.push_str("</small>");
    Ok(())
}

/// The script of the page.
const SCRIPT: &str = include_str!("tree.js");
/// Its SHA-256, by which the policy of the page allows it.
const SCRIPT_HASH: &str = "sha256-RC1DXzGwhnCAwahdF4HBJMcAZyDYpPURmsndYYfgkCw=";

const HEAD_START: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src '"#;
const HEAD_END: &str = r#"'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 110ch; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.3em; overflow-wrap: anywhere; }
h2 { font-size: 1.1em; margin-top: 2em; }
dt { float: left; clear: left; width: 9em; white-space: nowrap; font-family: ui-monospace, monospace; }
dd { margin-left: 9.5em; }
#bar { position: sticky; top: 0; z-index: 1; padding: .4em 0; background: Canvas; border-bottom: 1px solid GrayText; }
#bar ol { list-style: none; height: 4.8em; margin: .3em 0 0; padding: 0; font: 14px/1.6 ui-monospace, monospace; }
#bar li { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; cursor: pointer; }
.found { outline: 2px solid #c26b00; border-radius: .2em; }
.found.current { outline-width: 4px; }
</style>
"#;

const LEGEND: &str = r#"<h2>Legend</h2>
<dl>
<dt>#12 - m!f</dt><dd>the function <code>f</code> of the module <code>m</code>, called by transition 12; in bold the active frame</dd>
<dt>~#12 - m!f</dt><dd>the creation of the frame was not observed; it exists at context 12</dd>
<dt>??? - m!f</dt><dd>the frame already existed when its stack was first observed</dd>
<dt>#13 to #40</dt><dd>first and last context of the frame</dd>
<dt>#13..#15</dt><dd>inferred: at one of these contexts</dd>
<dt>+1.5 ms, 2 µs</dt><dd>start of the frame since the first transition of the trace, and its duration; two of them are the first and the last possible start, and the shortest and the longest possible duration</dd>
<dt>&gt;=12 frames</dt><dd>at least 12 frames</dd>
<dt>stack left</dt><dd>another stack was active between these transitions</dd>
</dl>
"#;
