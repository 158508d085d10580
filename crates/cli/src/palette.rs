//! The colors of text, which carry no information that the text does not have.
//!
//! Only results for people are colored, on a terminal without `NO_COLOR` or with `--color always`. The
//! colors of findings are those of the crate `export`.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use stackhound::types::Mode;
use stackhound::{Depth, FrameView};

/// Headings of tables and names of facts.
pub const HEADING: Style = Style::new().bold();

/// Units of numbers.
pub const UNIT: Style = Style::new().dimmed();

/// Errors.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();

const KERNEL: Style = AnsiColor::Cyan.on_default();
const JIT: Style = AnsiColor::Magenta.on_default();
const UNBACKED: Style = AnsiColor::Yellow.on_default();

/// Whether the result is colored.
static IS_COLORED: AtomicBool = AtomicBool::new(false);

/// Decides whether text in a file, or on standard output, is colored.
pub fn begin(path: Option<&Path>) {
    IS_COLORED.store(is_wanted(path), Ordering::Relaxed);
}

/// Whether text in a file, or on standard output, would be colored.
pub fn is_wanted(path: Option<&Path>) -> bool {
    match anstream::ColorChoice::global() {
        anstream::ColorChoice::Always | anstream::ColorChoice::AlwaysAnsi => true,
        anstream::ColorChoice::Never => false,
        anstream::ColorChoice::Auto => {
            path.is_none()
                && std::io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// The style, or none if the result is not colored.
pub fn of(style: Style) -> Style {
    if IS_COLORED.load(Ordering::Relaxed) { style } else { Style::new() }
}

/// The style of kernel code and user code.
pub fn of_mode(mode: Mode) -> Style {
    if mode == Mode::Kernel { of(KERNEL) } else { Style::new() }
}

/// The style of a kind of code: of the kernel, JIT-compiled, or in no module.
pub fn of_code(frame: &FrameView<'_>) -> Style {
    if frame.mode == Mode::Kernel {
        of(KERNEL)
    } else if frame.method().is_some() {
        of(JIT)
    } else if frame.depth() != Depth::Address && frame.module().is_none() {
        of(UNBACKED)
    } else {
        Style::new()
    }
}
