//! The stack model in HTML: a frame, a tree as a fragment of a page, and a complete page.
//!
//! The HTML loads nothing and runs no script: collapsible parts are `details` elements.

use std::fmt::{self, Write};

use stackhound_calltree::{Bound, Continuity, Frame};

use super::selection::{Relation, Shown, Tree};
use super::text::{frames, remarks};
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
    html.push_str(HEAD);
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
    html.push_str("</main>\n</body>\n</html>\n");
    Ok(())
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
                if rows.get(index + 1).is_some_and(|next| next.level > row.level) {
                    let unfolded = if relation == Relation::Beside { "" } else { " open" };
                    write!(html, "<li><details{unfolded}><summary>")?;
                    label(frame, relation, html)?;
                    html.push_str("</summary>\n<ul>\n");
                    open += 1;
                } else {
                    html.push_str(r#"<li class="leaf">"#);
                    label(frame, relation, html)?;
                    html.push_str("</li>\n");
                }
            }
            Shown::Cut(count) => {
                writeln!(html, r#"<li class="leaf cut">|- ... {} left out</li>"#, Markup(frames(count)))?;
            }
            Shown::Away { left, back } => {
                write!(html, r#"<li class="leaf away">stack left at {left}"#)?;
                match back {
                    Some(back) => writeln!(html, ", back at {back}</li>")?,
                    None => html.push_str("</li>\n"),
                }
            }
            Shown::MoreAway => html.push_str("<li class=\"leaf away\">|- ... and left more often</li>\n"),
        }
    }
    close(html, &mut open, 0);
    html.push_str("</ul>\n</div>\n");
    Ok(())
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
    for remark in remarks(frame) {
        write!(html, ", {remark}")?;
    }
    html.push_str("</small>");
    Ok(())
}

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 110ch; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.3em; overflow-wrap: anywhere; }
h2 { font-size: 1.1em; margin-top: 2em; }
dt { float: left; clear: left; width: 9em; font-family: ui-monospace, monospace; }
dd { margin-left: 9.5em; }
</style>
"#;

const LEGEND: &str = r#"<h2>Legend</h2>
<dl>
<dt>#12 - m!f</dt><dd>the function <code>f</code> of the module <code>m</code>, called by transition 12; in bold the active frame</dd>
<dt>~#12 - m!f</dt><dd>the creation of the frame was not observed; it exists at context 12</dd>
<dt>??? - m!f</dt><dd>the frame already existed when its stack was first observed</dd>
<dt>#13 to #40</dt><dd>first and last context of the frame</dd>
<dt>#13..#15</dt><dd>inferred: at one of these contexts</dd>
<dt>&gt;=12 frames</dt><dd>at least 12 frames</dd>
<dt>stack left</dt><dd>another stack was active between these transitions</dd>
</dl>
"#;
