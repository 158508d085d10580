//! Symbol paths: where a user wants files to be looked for, in the syntax of `_NT_SYMBOL_PATH`.
//!
//! Parses text into places, in order. Touches no file and asks no server. The syntax: "Symbol path for Windows
//! debuggers" and "Advanced SymSrv use" in the documentation of the Debugging Tools for Windows.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Longest path that is read, in bytes.
const LENGTH_MAX: usize = 64 << 10;

/// Why a symbol path cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PathError {
    /// Longer than any that a person writes.
    #[error("the symbol path is longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// A zero byte.
    #[error("the symbol path has a zero byte in it")]
    ZeroByte,
    /// A server without `srv*`.
    #[error("in the symbol path, \"{0}\" is a server, which is written srv*{0}")]
    BareServer(String),
    /// A server that is followed by something.
    #[error("in \"{0}\" of the symbol path, the server must stand last")]
    ServerNotLast(String),
    /// No address of a server.
    #[error(
        "in the symbol path, \"{0}\" is no address of a server: http://host/path or https://host/path is expected"
    )]
    BadServer(String),
    /// `symsrv*` with another library than `symsrv.dll`.
    #[error("in \"{0}\" of the symbol path, only symsrv.dll can stand behind symsrv*")]
    OtherLibrary(String),
    /// `cache*` with several folders.
    #[error("in \"{0}\" of the symbol path, one folder can stand behind cache*")]
    SeveralCaches(String),
    /// A `*` in an element that does not start with `srv*`, `symsrv*` or `cache*`.
    #[error("in the symbol path, \"{0}\" starts with none of srv*, symsrv*, cache*")]
    UnknownKind(String),
}

/// A folder with the layout of symbol stores.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum StoreFolder {
    /// The user's own, where an element names none.
    Default,
    /// This one.
    At(PathBuf),
}

/// The address of a symbol server, without a slash at its end.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// `text` must start with `http://` or `https://`, whatever the case, and have a host.
    fn parse(text: &str) -> Result<ServerUrl, PathError> {
        let bad = || PathError::BadServer(text.to_owned());
        let url: http::Uri = text.parse().map_err(|_| bad())?;
        let has_host = url.host().is_some_and(|host| !host.is_empty());
        // A query would end up in front of the file's name.
        let is_whole = has_host && url.query().is_none() && is_server(text) && !text.contains('#');
        if is_whole { Ok(ServerUrl(url.to_string().trim_end_matches('/').to_owned())) } else { Err(bad()) }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place where files are looked for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PathElement {
    /// A folder with files in it, in any order.
    Folder(PathBuf),
    /// A folder with the layout `name/KEY/name`.
    Store(StoreFolder),
    /// A server with this layout.
    Server {
        /// Where it is.
        url: ServerUrl,
        /// Where downloaded files are kept.
        keep_in: StoreFolder,
    },
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Folder(path) => write!(f, "{}", path.display()),
            PathElement::Store(StoreFolder::Default) => f.write_str("srv*"),
            PathElement::Store(StoreFolder::At(path)) => write!(f, "srv*{}", path.display()),
            PathElement::Server { url, keep_in: StoreFolder::Default } => write!(f, "srv**{url}"),
            PathElement::Server { url, keep_in: StoreFolder::At(path) } => {
                write!(f, "srv*{}*{url}", path.display())
            }
        }
    }
}

/// Where files are looked for, in order.
///
/// Elements are separated by `;`; each is
/// - a folder;
/// - `srv*STORE*…*STORE` or `srv*STORE*…*STORE*URL`: folders with the layout of symbol stores, nearest first, then a
///   server, whose files are kept in the last store before it. An empty `STORE` is the user's own. `symsrv*symsrv.dll*`
///   is the same as `srv*`;
/// - `cache*STORE`: a store that also keeps what servers to its right give, unless their element has a store.
///
/// Kinds are read in any case. What lies in folders is used where it lies, never copied. There are no other special
/// characters: `~` and `%NAME%` mean themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolPath {
    elements: Vec<PathElement>,
    unusable: Vec<String>,
}

impl SymbolPath {
    /// What is used if nothing is said: the user's own store.
    pub fn user_store() -> SymbolPath {
        SymbolPath { elements: vec![PathElement::Store(StoreFolder::Default)], unusable: Vec::new() }
    }

    /// One folder with the layout of stores, whatever characters its name has.
    pub fn store(folder: PathBuf) -> SymbolPath {
        SymbolPath { elements: vec![PathElement::Store(StoreFolder::At(folder))], unusable: Vec::new() }
    }

    /// Reads a path.
    ///
    /// # Errors
    /// If the text has another meaning than its writer can have wanted. The message is a whole sentence.
    pub fn parse(text: &str) -> Result<SymbolPath, PathError> {
        SymbolPath::parse_on(text, cfg!(windows))
    }

    fn parse_on(text: &str, windows: bool) -> Result<SymbolPath, PathError> {
        if text.len() > LENGTH_MAX {
            return Err(PathError::TooLong);
        }
        if text.contains('\0') {
            return Err(PathError::ZeroByte);
        }
        let mut reader = Reader { path: SymbolPath::default(), keep_in: StoreFolder::Default, windows };
        for element in text.split(';').map(str::trim).filter(|element| !element.is_empty()) {
            reader.element(element)?;
        }
        Ok(reader.path)
    }

    /// With a folder before all others, whatever characters its name has: files in it, and in it as a store.
    pub fn behind(mut self, folder: PathBuf) -> SymbolPath {
        let first = [PathElement::Folder(folder.clone()), PathElement::Store(StoreFolder::At(folder))];
        self.elements.retain(|location| !first.contains(location));
        self.elements.splice(0..0, first);
        self
    }

    /// The places, in order; each once.
    pub fn elements(&self) -> &[PathElement] {
        &self.elements
    }

    /// Whether it names a server.
    pub fn has_server(&self) -> bool {
        self.elements.iter().any(|location| matches!(location, PathElement::Server { .. }))
    }

    /// Paths in it that cannot be used on this system: those of Windows elsewhere.
    pub fn unusable(&self) -> &[String] {
        &self.unusable
    }
}

fn is_server(text: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// Whether a path has a drive letter, or names another machine.
fn is_windows_path(text: &str) -> bool {
    let mut bytes = text.bytes();
    let has_drive =
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic()) && bytes.next() == Some(b':');
    has_drive || text.starts_with(r"\\")
}

struct Reader {
    path: SymbolPath,
    /// Of the last `cache*`.
    keep_in: StoreFolder,
    windows: bool,
}

impl Reader {
    fn element(&mut self, element: &str) -> Result<(), PathError> {
        let mut parts = element.split('*').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        if kind.len() == element.len() {
            return self.folder(element);
        }
        let parts: Vec<&str> = parts.collect();
        match kind.to_ascii_lowercase().as_str() {
            "srv" => self.server(element, &parts),
            "symsrv" => match parts.split_first() {
                Some((library, parts)) if library.eq_ignore_ascii_case("symsrv.dll") => {
                    self.server(element, parts)
                }
                _ => Err(PathError::OtherLibrary(element.to_owned())),
            },
            "cache" => match parts[..] {
                [part] => {
                    if is_server(part) {
                        return Err(PathError::BareServer(part.to_owned()));
                    }
                    if let Some(store) = self.store(part) {
                        self.add(PathElement::Store(store.clone()));
                        self.keep_in = store;
                    }
                    Ok(())
                }
                _ => Err(PathError::SeveralCaches(element.to_owned())),
            },
            _ => Err(PathError::UnknownKind(element.to_owned())),
        }
    }

    fn folder(&mut self, element: &str) -> Result<(), PathError> {
        if is_server(element) {
            return Err(PathError::BareServer(element.to_owned()));
        }
        if let Some(path) = self.usable(element) {
            self.add(PathElement::Folder(path));
        }
        Ok(())
    }

    fn server(&mut self, element: &str, parts: &[&str]) -> Result<(), PathError> {
        let (stores, server) = match parts.split_last() {
            Some((last, stores)) if is_server(last) => (stores, Some(ServerUrl::parse(last)?)),
            _ => (parts, None),
        };
        if stores.iter().any(|store| is_server(store)) {
            return Err(PathError::ServerNotLast(element.to_owned()));
        }
        let mut keep_in = None;
        for store in stores {
            if let Some(store) = self.store(store) {
                self.add(PathElement::Store(store.clone()));
                keep_in = Some(store);
            }
        }
        if let Some(url) = server {
            let keep_in = keep_in.unwrap_or_else(|| self.keep_in.clone());
            // What was downloaded before is there, whether or not it is named as a store.
            self.add(PathElement::Store(keep_in.clone()));
            self.add(PathElement::Server { url, keep_in });
        }
        Ok(())
    }

    fn store(&mut self, part: &str) -> Option<StoreFolder> {
        if part.is_empty() { Some(StoreFolder::Default) } else { self.usable(part).map(StoreFolder::At) }
    }

    fn usable(&mut self, path: &str) -> Option<PathBuf> {
        if self.windows || !is_windows_path(path) {
            return Some(Path::new(path).to_owned());
        }
        self.path.unusable.push(path.to_owned());
        None
    }

    fn add(&mut self, location: PathElement) {
        if !self.path.elements.contains(&location) {
            self.path.elements.push(location);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each row: a path as it is read outside Windows, its places, and what is unusable.
    #[test]
    fn elements_become_places() {
        type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);
        let rows: [Row<'_>; 22] = [
            ("", &[], &[]),
            (" ; ;", &[], &[]),
            ("/a/b", &["/a/b"], &[]),
            ("symbols;../more symbols; /x ", &["symbols", "../more symbols", "/x"], &[]),
            ("/a;/a", &["/a"], &[]),
            ("~/symbols;%TEMP%", &["~/symbols", "%TEMP%"], &[]),
            ("srv*", &["srv*"], &[]),
            ("srv*/s", &["srv*/s"], &[]),
            ("SRV*/s*/t", &["srv*/s", "srv*/t"], &[]),
            ("srv*https://h/p", &["srv*", "srv**https://h/p"], &[]),
            ("srv**https://h/p/", &["srv*", "srv**https://h/p"], &[]),
            ("Srv*/s*HTTP://h:81", &["srv*/s", "srv*/s*http://h:81"], &[]),
            ("srv*/s*/t*http://h", &["srv*/s", "srv*/t", "srv*/t*http://h"], &[]),
            ("symsrv*SymSrv.dll*/s*http://h", &["srv*/s", "srv*/s*http://h"], &[]),
            ("symsrv*symsrv.dll", &[], &[]),
            ("cache*", &["srv*"], &[]),
            ("cache*/c;srv*http://h", &["srv*/c", "srv*/c*http://h"], &[]),
            (
                "srv*http://g;cache*/c;srv*http://h",
                &["srv*", "srv**http://g", "srv*/c", "srv*/c*http://h"],
                &[],
            ),
            ("cache*/c;srv*/s*http://h", &["srv*/c", "srv*/s", "srv*/s*http://h"], &[]),
            (r"C:\Symbols;\\server\share;/a", &["/a"], &[r"C:\Symbols", r"\\server\share"]),
            (r"srv*C:\Symbols*http://h", &["srv*", "srv**http://h"], &[r"C:\Symbols"]),
            (r"cache*c:/x;srv*http://h", &["srv*", "srv**http://h"], &["c:/x"]),
        ];
        for (text, elements, unusable) in rows {
            let path = SymbolPath::parse_on(text, false).unwrap_or_else(|error| panic!("{text}: {error}"));
            let shown: Vec<_> = path.elements().iter().map(ToString::to_string).collect();
            assert_eq!(
                (&shown[..], path.unusable()),
                (
                    &elements.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..],
                    &unusable.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]
                ),
                "{text}"
            );
            assert_eq!(path.has_server(), text.to_lowercase().contains("http"), "{text}");
        }
        let windows = SymbolPath::parse_on(r"srv*C:\Symbols*\\server\share*http://h;D:\x", true).unwrap();
        assert_eq!((windows.elements().len(), windows.unusable().len()), (4, 0));
    }

    #[test]
    fn bad_paths_are_explained() {
        let rows = [
            (
                "https://h/p",
                "in the symbol path, \"https://h/p\" is a server, which is written srv*https://h/p",
            ),
            ("cache*http://h", "in the symbol path, \"http://h\" is a server, which is written srv*http://h"),
            ("srv*http://h*/s", "in \"srv*http://h*/s\" of the symbol path, the server must stand last"),
            (
                "srv*http://g*http://h",
                "in \"srv*http://g*http://h\" of the symbol path, the server must stand last",
            ),
            (
                "srv*http://",
                "in the symbol path, \"http://\" is no address of a server: http://host/path or https://host/path is expected",
            ),
            (
                "srv*http://h?x=",
                "in the symbol path, \"http://h?x=\" is no address of a server: http://host/path or https://host/path is expected",
            ),
            ("symsrv*", "in \"symsrv*\" of the symbol path, only symsrv.dll can stand behind symsrv*"),
            (
                "symsrv*my.dll*/a",
                "in \"symsrv*my.dll*/a\" of the symbol path, only symsrv.dll can stand behind symsrv*",
            ),
            ("cache*/a*/b", "in \"cache*/a*/b\" of the symbol path, one folder can stand behind cache*"),
            ("/a*", "in the symbol path, \"/a*\" starts with none of srv*, symsrv*, cache*"),
            ("\0", "the symbol path has a zero byte in it"),
        ];
        for (text, message) in rows {
            let error = SymbolPath::parse(text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text}");
        }
        assert_eq!(SymbolPath::parse(&";".repeat(100_000)), Err(PathError::TooLong));
    }

    proptest! {
        /// Any text is read or refused, and places mean what they say: as text again, they are the same places.
        #[test]
        fn places_are_paths_again(text in r"((srv|cache|symsrv|x)?(\*|/| |;|a|:|C:|\\\\|http://|h){0,12};){0,4}") {
            if let Ok(path) = SymbolPath::parse_on(&text, false) {
                let again: Vec<_> = path.elements().iter().map(ToString::to_string).collect();
                let again = SymbolPath::parse_on(&again.join(";"), false).unwrap();
                prop_assert_eq!(again.elements(), path.elements());
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = SymbolPath::parse(&text);
        }
    }
}
