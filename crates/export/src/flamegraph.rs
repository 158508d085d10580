//! A flame graph: a picture that stands for itself, in which a script of its own finds and enlarges frames.
//!
//! Kernel frames are orange, those of user mode red or, with C++ names, yellow.

use std::io::{self, Write};

use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection};

use crate::Profile;
use crate::folded::{self, Marks};

/// Writes the picture. The root frame is as wide as all samples together; a profile without samples is an error.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut lines = folded::lines(profile, Marks::Kernel);
    lines.iter_mut().for_each(harmless);
    let mut options = Options::default();
    options.title = profile.product.clone();
    options.colors = Palette::Multi(MultiPalette::Java);
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

/// The library takes a line that starts with `# ` for a remark, and a number at the end of the last name for a second
/// weight. Another kind of space prevents both.
fn harmless(line: &mut String) {
    const NO_BREAK_SPACE: &str = "\u{a0}";
    if line.starts_with("# ") {
        line.replace_range(1..2, NO_BREAK_SPACE);
    }
    let Some(end) = line.rfind(' ') else { return };
    if let Some(space) = line[..end].rfind(' ')
        && line[space + 1..end].chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        line.replace_range(space..space + 1, NO_BREAK_SPACE);
    }
}
