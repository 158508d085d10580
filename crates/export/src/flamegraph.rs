//! A flame graph: an SVG image with a script that enlarges and finds frames.
//!
//! The width of a frame is its share of the samples; the horizontal order is that of names and not
//! of time. The color of a frame shows the [kind](CodeKind) of its code, its shade depends on the
//! name. Without the script, such as in a viewer of images, the image has a width of 1200 pixels.
//!
//! This module does not name frames and does not select samples, except that it leaves out [idle
//! processors](Profile::is_idle). [`compared`] draws the difference of two measurements.

pub mod compared;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, Write};

use stackhound_profile::{CodeKind, Profile, Sample, Unit};

use crate::escape::Markup;
use crate::folded;
use crate::numbers::{self, counted};

/// The form of the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The outermost frames are at the bottom.
    Flame,
    /// The outermost frames are at the top.
    Icicle,
}

/// Properties of the image that are not in the profile.
#[derive(Clone, Debug)]
pub struct Options {
    /// The form.
    pub form: Form,
    /// How the samples were selected, for the header; may be empty.
    pub filter: String,
}

/// There is nothing to draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Empty {
    /// The profile has no samples.
    #[error("no selected event has a stack, so there is no flame graph to draw")]
    NoSamples,
    /// All samples were left out.
    #[error(
        "all selected samples are of idle processors, which a flame graph does not show; other formats do"
    )]
    OnlyIdle,
}

impl From<Empty> for io::Error {
    fn from(empty: Empty) -> io::Error {
        io::Error::other(empty)
    }
}

/// Width without the script, in pixels. All lengths below are pixels.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: usize = 17;
/// Width of a character, rounded up.
const CHARACTER: f64 = 7.3;
/// Distance of a frame's text from both of its sides.
const PADDING: f64 = 3.0;
/// Of this many parts of the width, a frame that is not drawn has less than one.
const PARTS: u64 = 10_000;
/// Maximum number of characters of a line of the header.
const TEXT_MAX: usize = 1000;
/// Number of columns of the legend, which must fit on a telephone.
const LEGEND_COLUMNS: usize = 3;
const LEGEND_COLUMN: usize = 120;

/// What a box stands for: all samples, a process, or a frame; or how it differs in two measurements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    All,
    Process,
    Frame(CodeKind),
    Compared(compared::Change),
}

impl Kind {
    /// All kinds that are in the legend, in its order.
    fn all() -> impl Iterator<Item = Kind> {
        let frames = CodeKind::ALL.iter().copied().map(Kind::Frame);
        std::iter::once(Kind::Process).chain(frames).chain(compared::Change::ALL.map(Kind::Compared))
    }

    fn name(self) -> &'static str {
        match self {
            Kind::All => "all",
            Kind::Process => "process",
            Kind::Frame(kind) => kind.name(),
            Kind::Compared(change) => change.name(),
        }
    }

    /// Its class, and its shades. Black text has a contrast of at least 7 to each.
    fn style(self) -> (char, [&'static str; 4]) {
        match self {
            Kind::All | Kind::Process => ('p', ["#e8e1cb", "#ece6d4", "#efeadb", "#e4dcc2"]),
            Kind::Frame(CodeKind::Kernel) => ('k', ["#f4a259", "#f6ae6e", "#f3b67f", "#f8c08e"]),
            Kind::Frame(CodeKind::User) => ('u', ["#82c0ea", "#92c9ee", "#a0d1f0", "#aed9f4"]),
            Kind::Frame(CodeKind::Jit) => ('j', ["#72cf9f", "#84d6ac", "#95dcb8", "#a6e3c4"]),
            Kind::Frame(CodeKind::Unbacked) => ('b', ["#ff8585", "#ff9292", "#ff9f9f", "#ffacac"]),
            Kind::Frame(CodeKind::Unknown) => ('n', ["#cbaaec", "#d2b5ef", "#d9c0f1", "#e0cbf4"]),
            Kind::Frame(CodeKind::Remark) => ('r', ["#c9c9c9", "#d0d0d0", "#d7d7d7", "#dedede"]),
            Kind::Compared(change) => change.style(),
        }
    }
}

/// A box of the image. Equal boxes with equal callers are one.
#[derive(Debug)]
struct Node<'p> {
    name: &'p str,
    kind: Kind,
    weight: u64,
    /// The number of its shade.
    shade: usize,
    /// What a tooltip shows in parentheses after the name, if not the kind and the samples.
    note: Option<&'p str>,
    /// By name, which is their order in the image.
    calls: BTreeMap<(&'p str, Kind), usize>,
}

/// A box with its position: number of samples to its left, and number of callers.
struct Drawn {
    node: usize,
    left: u64,
    depth: usize,
}

/// Writes the image.
///
/// # Errors
/// Errors of `out`, and [`Empty`] if there are no samples to draw.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    if shown(profile).next().is_none() {
        return Err(if profile.sample_count() == 0 { Empty::NoSamples } else { Empty::OnlyIdle }.into());
    }
    let labels: Vec<String> = profile.process_ids().map(|(id, _)| profile.process_label(id)).collect();
    let nodes = merge(profile, &labels);
    let header = header(profile, nodes[0].weight, options);
    draw(&nodes, profile.product(), header, (options.form, profile.unit()), out)
}

/// The samples that are not those of idle processors.
fn shown(profile: &Profile) -> impl Iterator<Item = Sample> {
    profile.samples().filter(move |sample| !profile.is_idle(sample.thread))
}

/// Writes an image. The first of the boxes is the outermost one.
fn draw(
    nodes: &[Node<'_>],
    title: &str,
    mut header: Vec<String>,
    (form, unit): (Form, Unit),
    out: &mut dyn Write,
) -> io::Result<()> {
    let total = nodes[0].weight;
    let drawn = place(nodes);
    let rows = drawn.iter().map(|drawn| drawn.depth + 1).max().unwrap_or(0);
    let omitted = (nodes.len() - drawn.len()) as u64;
    if omitted > 0 {
        header.push(format!("{} narrower than 0.01 % not shown", counted(omitted, "frame", "frames")));
    }
    let kinds: Vec<Kind> = Kind::all().filter(|kind| nodes.iter().any(|node| node.kind == *kind)).collect();
    let top = ROW * (header.len() + kinds.len().div_ceil(LEGEND_COLUMNS) + 4);
    let height = top + ROW * rows + MARGIN as usize;
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" id="flamegraph" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="graphics-document" data-rows="{rows}" data-icicle="{}">"#,
        form == Form::Icicle,
    )?;
    writeln!(out, "<title>{}</title>", Markup(Start(title, TEXT_MAX)))?;
    style(out, &kinds)?;
    writeln!(out, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
    let columns = (WIDTH - 2.0 * MARGIN) * 100.0 / WIDTH;
    writeln!(
        out,
        r#"<svg id="frames" x="{MARGIN}" y="{top}" width="{columns:.4}%" height="{}" data-total="{total}">"#,
        ROW * rows
    )?;
    for drawn in &drawn {
        let row = if form == Form::Icicle { drawn.depth } else { rows - 1 - drawn.depth };
        frame(out, &nodes[drawn.node], drawn, row, (total, unit))?;
    }
    writeln!(out, "</svg>")?;
    head(out, title, &header, &kinds, top)?;
    writeln!(out, "<script><![CDATA[\n{}]]></script>\n</svg>", include_str!("flamegraph.js"))
}

/// The boxes of all samples. The first one is for all of them; callers come before their calls.
fn merge<'p>(profile: &'p Profile, labels: &'p [String]) -> Vec<Node<'p>> {
    let node = |(name, kind): (&'p str, Kind)| {
        let shade =
            name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 4;
        Node { name, kind, weight: 0, shade, note: None, calls: BTreeMap::new() }
    };
    let mut nodes = vec![node(("all", Kind::All))];
    let mut path = Vec::new();
    for ((process, stack), weight) in folded::weights(profile, shown(profile)) {
        path.clear();
        path.extend(profile.stack(stack).map(|frame| {
            let frame = profile.frame(frame);
            (&*frame.name, Kind::Frame(frame.code))
        }));
        path.push((&labels[process.index()], Kind::Process));
        nodes[0].weight += weight;
        let mut at = 0;
        for &key in path.iter().rev() {
            let next = nodes.len();
            at = *nodes[at].calls.entry(key).or_insert(next);
            if at == next {
                nodes.push(node(key));
            }
            nodes[at].weight += weight;
        }
    }
    nodes
}

/// The boxes that are wide enough to be drawn, each before its calls, from left to right.
fn place(nodes: &[Node<'_>]) -> Vec<Drawn> {
    let total = u128::from(nodes[0].weight);
    let mut drawn = Vec::new();
    let mut pending = vec![Drawn { node: 0, left: 0, depth: 0 }];
    while let Some(next) = pending.pop() {
        let mut left = next.left;
        let first = pending.len();
        for &node in nodes[next.node].calls.values() {
            let weight = nodes[node].weight;
            if u128::from(weight) * u128::from(PARTS) >= total {
                pending.push(Drawn { node, left, depth: next.depth + 1 });
            }
            left += weight;
        }
        pending[first..].reverse();
        drawn.push(next);
    }
    drawn
}

/// The lines below the title.
fn header(profile: &Profile, total: u64, options: &Options) -> Vec<String> {
    let seconds = |time: u64| time as f64 / 1e9;
    let first = shown(profile).map(|sample| sample.time.0).min().unwrap_or(0);
    let last = shown(profile).map(|sample| sample.time.0).max().unwrap_or(0);
    let weight = numbers::weight(profile.unit(), total);
    let mut lines = vec![match profile.unit() {
        Unit::Samples => format!("{weight}, +{:.3} s to +{:.3} s", seconds(first), seconds(last)),
        Unit::Transitions | Unit::Nanoseconds => weight,
    }];
    let idle = profile.weight() - total;
    if idle > 0 {
        let share = percent(idle, profile.weight());
        lines.push(format!("idle: {share} of all samples, not shown"));
    }
    if !options.filter.is_empty() {
        lines.push(format!("filter: {}", options.filter));
    }
    lines
}

fn style(out: &mut dyn Write, kinds: &[Kind]) -> io::Result<()> {
    writeln!(
        out,
        "<style>\ntext {{ font: 12px monospace; fill: black; white-space: pre; }}\n#title {{ font-weight: bold; }}\n\
         #frames g {{ cursor: pointer; }}\n#frames g:hover rect {{ stroke: black; }}\n.hidden {{ display: none; }}\n\
         .button {{ cursor: pointer; text-decoration: underline; }}"
    )?;
    for kind in kinds {
        let (class, shades) = kind.style();
        for (number, shade) in shades.iter().enumerate() {
            writeln!(out, ".{class}{number} {{ fill: {shade}; }}")?;
        }
    }
    writeln!(
        out,
        "#frames .outer rect {{ opacity: 0.6; }}\n#frames .found rect {{ fill: #fff200; }}\n</style>"
    )
}

fn frame(
    out: &mut dyn Write,
    node: &Node<'_>,
    drawn: &Drawn,
    row: usize,
    (total, unit): (u64, Unit),
) -> io::Result<()> {
    let percent_of = |part: u64| part as f64 * 100.0 / total as f64;
    let (x, width) = (percent_of(drawn.left), percent_of(node.weight));
    let kind = if node.kind == Kind::All { "" } else { node.kind.name() };
    let separator = if kind.is_empty() { "" } else { ", " };
    let of_samples = || {
        format!("{kind}{separator}{}, {}", numbers::weight(unit, node.weight), percent(node.weight, total))
    };
    let space = (WIDTH - 2.0 * MARGIN) * width / 100.0 - 2.0 * PADDING;
    let text_x = x + PADDING * 100.0 / (WIDTH - 2.0 * MARGIN);
    let (class, shade) = (node.kind.style().0, node.shade);
    writeln!(
        out,
        r#"<g data-x="{}" data-w="{}"><title>{} ({})</title><rect class="{class}{shade}" x="{x:.4}%" y="{}" width="{width:.4}%" height="{}"/><text x="{text_x:.4}%" y="{}">{}</text></g>"#,
        drawn.left,
        node.weight,
        Markup(node.name),
        Markup(node.note.map_or_else(of_samples, str::to_owned)),
        row * ROW,
        ROW - 1,
        row * ROW + 12,
        Markup(fitted(node.name, space)),
    )
}

/// The title, the lines below it, the legend, and the texts that the script changes. In a group
/// above the frames, so that it can stay in view while the frames are scrolled.
fn head(out: &mut dyn Write, title: &str, lines: &[String], kinds: &[Kind], height: usize) -> io::Result<()> {
    writeln!(out, r#"<g id="head"><rect id="cover" width="100%" height="{height}" fill="white"/>"#)?;
    let mut row = 0;
    for line in std::iter::once(title).chain(lines.iter().map(String::as_str)) {
        row += 1;
        let id = if row == 1 { r#"id="title" "# } else { "" };
        // The script continues the line below, where this text ends.
        let attributes = format!(r#"{id}class="line" data-text="{}""#, Markup(Start(line, TEXT_MAX)));
        let fitted = fitted(line, WIDTH - 2.0 * MARGIN);
        write_text(out, &attributes, MARGIN, row * ROW + 2, &fitted)?;
    }
    writeln!(out, r#"<g id="legend" transform="translate({MARGIN},{})">"#, (lines.len() + 1) * ROW + 8)?;
    for (index, kind) in kinds.iter().enumerate() {
        let (x, y) = (index % LEGEND_COLUMNS * LEGEND_COLUMN, index / LEGEND_COLUMNS * ROW);
        let class = kind.style().0;
        writeln!(out, r#"<rect class="{class}0" x="{x}" y="{y}" width="14" height="14"/>"#)?;
        write_text(out, "", x as f64 + 20.0, y + 12, &kind.name())?;
    }
    writeln!(out, "</g>\n<g id=\"controls\" class=\"hidden\">")?;
    write_text(out, r#"id="search" class="button" role="button" tabindex="0""#, MARGIN, 0, &"Search")?;
    let reset = r#"id="reset" class="button hidden" role="button" tabindex="0""#;
    write_text(out, reset, MARGIN + 70.0, 0, &"Reset")?;
    write_text(out, r#"id="found""#, MARGIN + 130.0, 0, &"")?;
    write_text(out, r#"id="details""#, MARGIN, ROW, &"")?;
    writeln!(out, "</g></g>")
}

fn write_text(out: &mut dyn Write, attributes: &str, x: f64, y: usize, text: &dyn Display) -> io::Result<()> {
    writeln!(out, r#"<text {attributes} x="{x}" y="{y}">{}</text>"#, Markup(text))
}

/// The start of a text: at most this many characters, and an ellipsis if there are more.
struct Start<'t>(&'t str, usize);

impl Display for Start<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(self.1) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

/// The start of a text that fits into a width. Characters outside of ASCII may be twice as wide as
/// others.
fn fitted(text: &str, width: f64) -> String {
    let size = |c: char| if c.is_ascii() { 1.0 } else { 2.0 };
    let room = width / CHARACTER;
    if text.chars().map(size).sum::<f64>() <= room {
        return text.to_owned();
    }
    // With the ellipsis.
    let mut used = 2.0;
    let start = text.chars().take_while(|&c| {
        used += size(c);
        used <= room
    });
    let start: String = start.collect();
    if start.is_empty() { start } else { start + "…" }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / whole as f64)
}
