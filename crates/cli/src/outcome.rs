//! What running a verb came to, and the exit codes.

/// What a verb found, as far as the exit code says it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// A byte of the input was damaged.
    pub damaged: bool,
    /// Something was found that somebody has to look at.
    pub found: bool,
}

/// Exit code: something was found.
pub const FOUND: u8 = 1;
/// Exit code: wrong usage, or input and output failed.
pub const USAGE_OR_IO: u8 = 2;
/// Exit code: the input was damaged, with `--strict`.
pub const DAMAGED: u8 = 3;
