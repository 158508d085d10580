//! Paths of Windows.

/// The last component of a path of any system, after the last `\\` or `/`: linkers write both.
pub fn last_component(path: &str) -> &str {
    path.rsplit(['\\', '/']).next().unwrap_or(path)
}

/// The last component of a path: all of it after the last `\\`.
pub fn file_name(path: &str) -> &str {
    path.rsplit('\\').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_components_follow_either_separator() {
        for (path, expected) in [
            (r"C:\build\a.pdb", "a.pdb"),
            ("/builds/worker/a.pdb", "a.pdb"),
            (r"C:\build/out/a.pdb", "a.pdb"),
            ("a.pdb", "a.pdb"),
            (r"C:\build\", ""),
            ("", ""),
        ] {
            assert_eq!(last_component(path), expected, "{path}");
        }
    }
}
