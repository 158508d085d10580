//! Paths of Windows.

/// The last component of a path: all of it after the last `\\`.
pub fn file_name(path: &str) -> &str {
    path.rsplit('\\').next().unwrap_or(path)
}
