//! A flame graph: an SVG image with a script that finds and enlarges frames.
//!
//! Kernel frames are orange, user frames blue, processes green and remarks red.

use std::io::{self, Write};

use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection};

use stackhound_types::Mode;

use crate::folded;
use stackhound_profile::Profile;

/// Writes the image. The width of the root frame is the weight of all samples. A profile without
/// samples is an error.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let lines = folded::lines(profile, adapt);
    let mut options = Options::default();
    options.title = profile.product().to_owned();
    options.colors = Palette::Multi(MultiPalette::Java);
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The library's own order splits frames. This mode keeps the order of the lines, reversed.
    options.flame_chart = true;
    inferno::flamegraph::from_lines(&mut options, lines.iter().rev().map(String::as_str), out)
}

/// Replaces white space.
const SPACE: &str = "\u{2423}";

/// Adjusts a name so that the library reads it unchanged, and appends the suffix that determines
/// its color.
///
/// The library treats a line that starts with `# ` as a comment and a number at the end of the last
/// name as a second weight, and removes white space at both ends. A visible space, which no name
/// contains, prevents this.
fn adapt(name: &mut String, mode: Option<Mode>) {
    let is_plain = |c: char| !(c.is_whitespace() || c.is_ascii_digit() || c == '.' || c == '#');
    let start = name.find(is_plain).unwrap_or(name.len());
    let end = name.rfind(is_plain).unwrap_or(0).max(start);
    if name[..start].contains(char::is_whitespace) || name[end..].contains(char::is_whitespace) {
        let (before, rest) = name.split_at(start);
        let (middle, after) = rest.split_at(end - start);
        *name = [
            &*before.replace(char::is_whitespace, SPACE),
            middle,
            &*after.replace(char::is_whitespace, SPACE),
        ]
        .concat();
    }
    name.push_str(match mode {
        Some(Mode::Kernel) => "_[k]",
        Some(Mode::User) => "_[i]",
        None => "",
    });
}
