//! Patterns of function names, such as `ntoskrnl!Ke*`.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use crate::{Error, Location};

/// A pattern `module!symbol` with `*`, `?`, `[…]` and `{…,…}` in either part. Matching ignores
/// case. Without a `!`, the pattern applies to the symbols of all modules. The extension of the
/// module can be omitted. A location without a symbol has an empty symbol, which `*` matches.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    module: Option<GlobMatcher>,
    symbol: GlobMatcher,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The syntax is not valid; for example, a bracket is not closed.
    pub fn new(text: &str) -> Result<Self, Error> {
        let glob = |part: &str| match GlobBuilder::new(part).case_insensitive(true).build() {
            Ok(glob) => Ok(glob.compile_matcher()),
            Err(error) => Err(Error::Pattern { pattern: text.to_owned(), reason: error.kind().to_string() }),
        };
        match text.split_once('!') {
            Some((module, symbol)) => {
                Ok(Self { text: text.to_owned(), module: Some(glob(module)?), symbol: glob(symbol)? })
            }
            None => Ok(Self { text: text.to_owned(), module: None, symbol: glob(text)? }),
        }
    }

    /// Whether the pattern matches a module with this name.
    pub fn fits_module(&self, module: &str) -> bool {
        let fits = |pattern: &GlobMatcher| {
            let is_stem = || module.rsplit_once('.').is_some_and(|(stem, _)| pattern.is_match(stem));
            pattern.is_match(module) || is_stem()
        };
        self.module.as_ref().is_none_or(fits)
    }

    /// Whether the pattern matches the name of a location.
    pub fn fits(&self, location: &Location<'_>) -> bool {
        self.fits_module(location.module().map_or("", |module| module.name))
            && self.symbol.is_match(location.symbol().unwrap_or_default())
    }
}

/// The pattern as it was written.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
