//! The result of a verb, and the exit codes.

/// The result of a verb, as far as the exit code depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// A byte of the input was damaged.
    pub damaged: bool,
    /// Findings were written, or requested differences were found.
    pub found: bool,
}

/// Exit code: findings were written.
pub const FOUND: u8 = 1;
/// Exit code: wrong usage, or an input or output error.
pub const USAGE_OR_IO: u8 = 2;
/// Exit code: the input was damaged, with `--strict`.
pub const DAMAGED: u8 = 3;
