//! File names from untrusted traces.

use std::fmt;

/// Maximum length of a name, in bytes.
const LENGTH_MAX: usize = 200;

/// A name that is a single component of a path on every system, and not a special file on any.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileName(String);

/// Names that Windows treats as devices, with any extension.
const DEVICES: [&str; 7] = ["con", "prn", "aux", "nul", "conin$", "conout$", "clock$"];

impl FileName {
    /// Returns the last component of a path of any system, if it is a valid name.
    pub fn last_of(path: &str) -> Option<FileName> {
        let name = path.rsplit(['\\', '/']).next()?;
        let is_plain = |c: char| !c.is_control() && !r#"<>:"|?*"#.contains(c);
        let fits = !name.is_empty()
            && name.len() <= LENGTH_MAX
            && name.chars().all(is_plain)
            // Windows drops these. This also excludes "." and "..".
            && !name.ends_with(['.', ' '])
            && !name.starts_with(' ')
            && !is_device(name);
        fits.then(|| FileName(name.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part after the last dot, or an empty string.
    pub fn extension(&self) -> &str {
        self.0.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end().to_ascii_lowercase();
    let is_numbered = ["com", "lpt"].iter().any(|port| {
        stem.strip_prefix(port).is_some_and(|number| number.chars().count() == 1 && number != "0")
    });
    DEVICES.contains(&stem.as_str()) || is_numbered
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_accepted_or_rejected() {
        for (path, name) in [
            ("ntdll.dll", "ntdll.dll"),
            (r"C:\build\out\My App.pdb", "My App.pdb"),
            ("/build/libx.pdb", "libx.pdb"),
            (r"..\..\etc\passwd", "passwd"),
            ("a..pdb", "a..pdb"),
            (".hidden", ".hidden"),
            ("größe.pdb", "größe.pdb"),
            ("console.exe", "console.exe"),
            ("com10.dll", "com10.dll"),
            ("com.dll", "com.dll"),
        ] {
            assert_eq!(FileName::last_of(path).expect(path).as_str(), name);
        }
        for path in [
            "",
            ".",
            "..",
            "...",
            "a/",
            r"a\",
            r"a\..",
            "../..",
            "nul",
            "NUL.pdb",
            "con .dll",
            "Com1.dll",
            "lpt9",
            "a:b",
            "C:",
            "a\0b",
            "a\nb",
            "a*b",
            "a?",
            "a|b",
            "<a>",
            "\"",
            "a.",
            "a ",
            " a",
            "aux.tar.gz",
        ] {
            assert_eq!(FileName::last_of(path), None, "{path:?}");
        }
        assert_eq!(FileName::last_of(&"x".repeat(LENGTH_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn a_name_is_one_component(path in r#"[a-z.:/\\ \x00-\x1f%*~\u{202e}é-]{0,12}"#) {
            if let Some(name) = FileName::last_of(&path) {
                let components: Vec<_> = Path::new(name.as_str()).components().collect();
                prop_assert!(matches!(components[..], [Component::Normal(_)]), "{:?}", name);
                let below = Path::new("x").join(name.as_str());
                prop_assert_eq!(below.parent(), Some(Path::new("x")));
            }
        }
    }
}
