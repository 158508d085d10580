//! The cache folder of the user.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Returns the folder of this user for files that can be deleted at any time: `stackhound` in
/// `$XDG_CACHE_HOME` (`~/.cache`), in `~/Library/Caches` on macOS, in `%LOCALAPPDATA%` on Windows.
/// `None` if the system does not define this folder.
pub fn cache_directory() -> Option<PathBuf> {
    let base = if cfg!(windows) {
        folder(env::var_os("LOCALAPPDATA"))
    } else if cfg!(target_os = "macos") {
        folder(env::var_os("HOME")).map(|home| home.join("Library/Caches"))
    } else {
        unix(|name| env::var_os(name))
    };
    base.map(|base| base.join("stackhound"))
}

/// Relative paths are invalid according to the XDG Base Directory Specification.
fn folder(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn unix(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let home = || folder(variable("HOME")).map(|home| home.join(".cache"));
    folder(variable("XDG_CACHE_HOME")).or_else(home)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_cache_folder_follows_the_environment() {
        for (cache, home, expected) in [
            (Some("/c"), Some("/home/u"), Some("/c")),
            (Some("c"), Some("/home/u"), Some("/home/u/.cache")),
            (None, Some("/home/u"), Some("/home/u/.cache")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let value = |name: &str| if name == "HOME" { home } else { cache }.map(OsString::from);
            assert_eq!(unix(value), expected.map(PathBuf::from));
        }
    }
}
