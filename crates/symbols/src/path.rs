//! Symbol paths: the locations to search for files, in the syntax of `_NT_SYMBOL_PATH`.
//!
//! Parses text into an ordered list of elements. Accesses no file and no server. Source of the
//! syntax: "Symbol path for Windows debuggers" and "Advanced SymSrv use" in the documentation of
//! the Debugging Tools for Windows.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Maximum length of a symbol path, in bytes.
const LENGTH_MAX: usize = 64 << 10;

/// An error in a symbol path.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PathError {
    /// It exceeds the maximum length.
    #[error("the symbol path is longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// It contains a zero byte.
    #[error("the symbol path contains a zero byte")]
    ZeroByte,
    /// A server without `srv*`.
    #[error("in the symbol path, the server \"{0}\" must be written as srv*{0}")]
    BareServer(String),
    /// A server that is followed by another part.
    #[error("in \"{0}\" of the symbol path, the server must be the last part")]
    ServerNotLast(String),
    /// An invalid server address.
    #[error(
        "in the symbol path, \"{0}\" is not a server address: expected http://host/path or https://host/path"
    )]
    BadServer(String),
    /// `symsrv*` with another library than `symsrv.dll`.
    #[error("in \"{0}\" of the symbol path, expected symsrv.dll after symsrv*")]
    OtherLibrary(String),
    /// `cache*` with several folders.
    #[error("in \"{0}\" of the symbol path, expected one folder after cache*")]
    SeveralCaches(String),
    /// A `*` in an element that does not start with `srv*`, `symsrv*` or `cache*`.
    #[error("in the symbol path, \"{0}\" must start with srv*, symsrv* or cache*")]
    UnknownKind(String),
}

/// A folder with the layout of symbol stores.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum StoreFolder {
    /// The user's own store, for elements that name none.
    Default,
    /// A specified folder.
    At(PathBuf),
}

/// The address of a symbol server, without a trailing slash.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Parses `text`, which must start with `http://` or `https://` in any case and have a host.
    fn parse(text: &str) -> Result<ServerUrl, PathError> {
        let bad = || PathError::BadServer(text.to_owned());
        let url: http::Uri = text.parse().map_err(|_| bad())?;
        let has_host = url.host().is_some_and(|host| !host.is_empty());
        // A query would precede the name of the file.
        let is_whole = has_host && url.query().is_none() && is_server(text) && !text.contains('#');
        if is_whole { Ok(ServerUrl(url.to_string().trim_end_matches('/').to_owned())) } else { Err(bad()) }
    }

    /// Returns the address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A location to search for files.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PathElement {
    /// A folder with files in it, without a particular layout.
    Folder(PathBuf),
    /// A folder with the layout `name/KEY/name`.
    Store(StoreFolder),
    /// A server with this layout.
    Server {
        /// The address.
        url: ServerUrl,
        /// The store for downloaded files.
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

/// The locations to search for files, in order.
///
/// Elements are separated by `;`. Each is
/// - a folder;
/// - `srv*STORE*…*STORE` or `srv*STORE*…*STORE*URL`: folders with the layout of symbol stores,
///   nearest first, then a server. The last store before the server stores its downloaded files. An
///   empty `STORE` is the user's own store. `symsrv*symsrv.dll*` is the same as `srv*`;
/// - `cache*STORE`: a store that also stores the downloads of all servers to its right, unless
///   their element has a store.
///
/// Prefixes are not case-sensitive. Files in folders are used in place, never copied. There are no
/// other special characters: `~` and `%NAME%` have no special meaning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolPath {
    elements: Vec<PathElement>,
    unusable: Vec<String>,
}

impl SymbolPath {
    /// Returns the default symbol path: the user's own store.
    pub fn user_store() -> SymbolPath {
        SymbolPath { elements: vec![PathElement::Store(StoreFolder::Default)], unusable: Vec::new() }
    }

    /// Returns the path of a text if there is one, otherwise that of the variable `_NT_SYMBOL_PATH`,
    /// otherwise the user's store.
    ///
    /// # Errors
    /// See [`parse`](SymbolPath::parse).
    pub fn of_user(stated: Option<&str>) -> Result<SymbolPath, PathError> {
        let of_system = std::env::var("_NT_SYMBOL_PATH").ok();
        stated.or(of_system.as_deref()).map_or_else(|| Ok(SymbolPath::user_store()), SymbolPath::parse)
    }

    /// Returns a path with one folder that has the layout of stores. The name may contain any
    /// characters.
    pub fn store(folder: PathBuf) -> SymbolPath {
        SymbolPath { elements: vec![PathElement::Store(StoreFolder::At(folder))], unusable: Vec::new() }
    }

    /// Parses a symbol path.
    ///
    /// # Errors
    /// The text is invalid, or its author most likely meant something else. The message is a
    /// complete sentence.
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

    /// Adds a folder before all others: for files in it, and as a store. The name may contain any
    /// characters.
    pub fn with_first(mut self, folder: PathBuf) -> SymbolPath {
        let first = [PathElement::Folder(folder.clone()), PathElement::Store(StoreFolder::At(folder))];
        self.elements.retain(|location| !first.contains(location));
        self.elements.splice(0..0, first);
        self
    }

    /// Returns the elements, in order, each once.
    pub fn elements(&self) -> &[PathElement] {
        &self.elements
    }

    /// Whether it contains a server.
    pub fn has_server(&self) -> bool {
        self.elements.iter().any(|location| matches!(location, PathElement::Server { .. }))
    }

    /// Returns the paths in it that cannot be used on this system: Windows paths on other systems.
    pub fn unusable(&self) -> &[String] {
        &self.unusable
    }
}

fn is_server(text: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// Whether a path has a drive letter, or refers to another machine.
fn is_windows_path(text: &str) -> bool {
    let mut bytes = text.bytes();
    let has_drive =
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic()) && bytes.next() == Some(b':');
    has_drive || text.starts_with(r"\\")
}

struct Reader {
    path: SymbolPath,
    /// The store of the last `cache*`.
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
            // Earlier downloads are found even if the store is not an element.
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

    /// Each row: a path as it is parsed outside of Windows, its elements, and the unusable paths.
    #[test]
    fn paths_are_parsed_into_elements() {
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
    fn invalid_paths_are_rejected() {
        let rows = [
            (
                "https://h/p",
                "in the symbol path, the server \"https://h/p\" must be written as srv*https://h/p",
            ),
            ("cache*http://h", "in the symbol path, the server \"http://h\" must be written as srv*http://h"),
            (
                "srv*http://h*/s",
                "in \"srv*http://h*/s\" of the symbol path, the server must be the last part",
            ),
            (
                "srv*http://g*http://h",
                "in \"srv*http://g*http://h\" of the symbol path, the server must be the last part",
            ),
            (
                "srv*http://",
                "in the symbol path, \"http://\" is not a server address: expected http://host/path or https://host/path",
            ),
            (
                "srv*http://h?x=",
                "in the symbol path, \"http://h?x=\" is not a server address: expected http://host/path or https://host/path",
            ),
            ("symsrv*", "in \"symsrv*\" of the symbol path, expected symsrv.dll after symsrv*"),
            (
                "symsrv*my.dll*/a",
                "in \"symsrv*my.dll*/a\" of the symbol path, expected symsrv.dll after symsrv*",
            ),
            ("cache*/a*/b", "in \"cache*/a*/b\" of the symbol path, expected one folder after cache*"),
            ("/a*", "in the symbol path, \"/a*\" must start with srv*, symsrv* or cache*"),
            ("\0", "the symbol path contains a zero byte"),
        ];
        for (text, message) in rows {
            let error = SymbolPath::parse(text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text}");
        }
        assert_eq!(SymbolPath::parse(&";".repeat(100_000)), Err(PathError::TooLong));
    }

    proptest! {
        /// Any text is parsed or rejected. Elements that are converted to text and back are
        /// unchanged.
        #[test]
        fn elements_round_trip(text in r"((srv|cache|symsrv|x)?(\*|/| |;|a|:|C:|\\\\|http://|h){0,12};){0,4}") {
            if let Ok(path) = SymbolPath::parse_on(&text, false) {
                let again: Vec<_> = path.elements().iter().map(ToString::to_string).collect();
                let again = SymbolPath::parse_on(&again.join(";"), false).unwrap();
                prop_assert_eq!(again.elements(), path.elements());
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in any::<String>()) {
            let _ = SymbolPath::parse(&text);
        }
    }
}
