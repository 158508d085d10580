//! A flame graph: a picture that stands for itself, in which a script of its own finds and enlarges frames.
//!
//! Kernel frames are orange, those of user mode blue, processes green and remarks red.

use std::io::{self, Write};

use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection};

use stackhound_types::Mode;

use crate::Profile;
use crate::folded;

/// Writes the picture. The root frame is as wide as all samples together; a profile without samples is an error.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let lines = folded::lines(profile, adapt);
    let mut options = Options::default();
    options.title = profile.product.clone();
    options.colors = Palette::Multi(MultiPalette::Java);
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The library's own order tears frames apart. This form takes lines as they come, backwards.
    options.flame_chart = true;
    inferno::flamegraph::from_lines(&mut options, lines.iter().rev().map(String::as_str), out)
}

/// Stands for white space.
const SPACE: &str = "\u{2423}";

/// Makes a name one that the library reads as it is, and puts behind it what the library gives a colour.
///
/// The library takes a line that starts with `# ` for a remark, a number at the end of the last name for a second
/// weight, and leaves out white space at both ends. A visible space, which no name has, prevents all that.
fn adapt(name: &mut String, mode: Option<Mode>) {
    let is_plain = |c: char| !(c.is_whitespace() || c.is_ascii_digit() || c == '.' || c == '#');
    let start = name.find(is_plain).unwrap_or(name.len());
    let end = name.rfind(is_plain).unwrap_or(0).max(start);
    if name[..start].contains(char::is_whitespace) || name[end..].contains(char::is_whitespace) {
        let (before, rest) = name.split_at(start);
        let (middle, behind) = rest.split_at(end - start);
        *name = [
            &*before.replace(char::is_whitespace, SPACE),
            middle,
            &*behind.replace(char::is_whitespace, SPACE),
        ]
        .concat();
    }
    name.push_str(match mode {
        Some(Mode::Kernel) => "_[k]",
        Some(Mode::User) => "_[i]",
        None => "",
    });
}
