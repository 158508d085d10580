//! Patterns of function names, such as `ntoskrnl!Ke*`.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use crate::{Error, Location};

/// A pattern `module!symbol` with `*`, `?`, `[…]` and `{…,…}` in either part. Matching ignores
/// case. Without a `!`, the pattern applies to the symbols of all modules. The module is its name
/// or the name of its file, with or without the extension. A location without a symbol has an empty
/// symbol, which `*` matches. A function that was called through a stub also has the name in the
/// stub: `strlen` matches `__strlen_avx2` that was called at `strlen@plt`.
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

    /// Whether the pattern matches a module with this name and this path of its file.
    pub(crate) fn fits_module(&self, name: &str, path: Option<&str>) -> bool {
        let Some(pattern) = &self.module else { return true };
        let fits = |name: &str| {
            let is_stem = || name.rsplit_once('.').is_some_and(|(stem, _)| pattern.is_match(stem));
            pattern.is_match(name) || is_stem()
        };
        fits(name) || path.and_then(|path| path.rsplit(['\\', '/']).next()).is_some_and(fits)
    }

    /// Whether the pattern matches the name of a location.
    pub fn fits(&self, location: &Location<'_>) -> bool {
        let (name, path) = location.module().map_or(("", None), |module| (module.name, module.path));
        let called_as = || {
            let stub = location.stub()?.symbol()?;
            stub.split_once('@').map(|(name, _)| self.symbol.is_match(name))
        };
        (self.symbol.is_match(location.symbol().unwrap_or_default()) || called_as() == Some(true))
            && self.fits_module(name, path)
    }
}

/// The pattern as it was written.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
