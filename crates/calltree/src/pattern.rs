//! Patterns of function names, as in `ntoskrnl!Ke*`.

use globset::{GlobBuilder, GlobMatcher};

use crate::{Error, Location};

/// A pattern `module!symbol` with `*`, `?`, `[…]` and `{…,…}` in either part; case does not matter. Without a `!` it is
/// one of symbols, in any module. The module may be written without its extension. A location without a symbol has the
/// empty one, which `*` fits.
#[derive(Clone, Debug)]
pub struct Pattern {
    module: Option<GlobMatcher>,
    symbol: GlobMatcher,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A bracket is not closed, or the like.
    pub fn new(text: &str) -> Result<Self, Error> {
        let glob = |part: &str| match GlobBuilder::new(part).case_insensitive(true).build() {
            Ok(glob) => Ok(glob.compile_matcher()),
            Err(error) => Err(Error::Pattern { pattern: text.to_owned(), reason: error.kind().to_string() }),
        };
        match text.split_once('!') {
            Some((module, symbol)) => Ok(Self { module: Some(glob(module)?), symbol: glob(symbol)? }),
            None => Ok(Self { module: None, symbol: glob(text)? }),
        }
    }

    /// Whether a location's name fits.
    pub fn fits(&self, location: &Location<'_>) -> bool {
        let module = || location.module().map_or("", |module| module.name);
        let fits = |pattern: &GlobMatcher| {
            let is_stem = || module().rsplit_once('.').is_some_and(|(stem, _)| pattern.is_match(stem));
            pattern.is_match(module()) || is_stem()
        };
        self.module.as_ref().is_none_or(fits) && self.symbol.is_match(location.symbol().unwrap_or_default())
    }
}
