//! Names of events with wildcards, as a policy states them.

use std::cmp::Ordering;

use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::Deserialize;

/// A pattern that is none.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is no pattern of event names: {reason}")]
pub struct PatternError {
    pattern: String,
    reason: String,
}

/// Events by name: `Registry/*`, `FileIo/Create`, `Provider-Name:Event/*`.
///
/// `*` stands for any text, `?` for any character, `{a,b}` for one of several. Before a colon stands the provider, in
/// the spelling of `stackhound events`; without one, any provider is meant. Case counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct EventPattern {
    text: String,
    provider: Option<Glob>,
    event: Glob,
}

/// Bytes of a pattern; longer ones would take long to compile.
const LENGTH_MAX: usize = 1 << 10;

impl EventPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If a bracket or brace is not closed, or the pattern is longer than 1 KiB.
    pub fn new(text: &str) -> Result<EventPattern, PatternError> {
        let wrong = |reason: String| PatternError { pattern: text.to_owned(), reason };
        if text.len() > LENGTH_MAX {
            return Err(wrong(format!("it is longer than {LENGTH_MAX} bytes")));
        }
        let glob = |part: &str| {
            let glob = GlobBuilder::new(part).backslash_escape(true).build();
            glob.map_err(|error| wrong(error.kind().to_string()))
        };
        let (provider, event) = match text.split_once(':') {
            Some((provider, event)) => (Some(glob(provider)?), glob(event)?),
            None => (None, glob(text)?),
        };
        Ok(EventPattern { text: text.to_owned(), provider, event })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For use.
    pub(crate) fn matcher(&self) -> EventMatcher {
        let provider = self.provider.as_ref().map(Glob::compile_matcher);
        EventMatcher { provider, event: self.event.compile_matcher() }
    }

    /// Of several patterns that fit, the one with the greatest counts: one without wildcards, else the longest.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        let wild = |byte: &u8| b"*?[]{}".contains(byte);
        let is_exact = !self.text.bytes().any(|byte| wild(&byte));
        (is_exact, self.text.bytes().filter(|byte| !wild(byte)).count())
    }
}

/// A pattern for use.
#[derive(Clone, Debug)]
pub(crate) struct EventMatcher {
    provider: Option<GlobMatcher>,
    event: GlobMatcher,
}

impl EventMatcher {
    /// Whether an event with these names is meant.
    pub fn fits(&self, provider: &str, event: &str) -> bool {
        self.event.is_match(event) && self.provider.as_ref().is_none_or(|glob| glob.is_match(provider))
    }
}

impl TryFrom<String> for EventPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<EventPattern, PatternError> {
        EventPattern::new(&text)
    }
}

impl PartialEq for EventPattern {
    fn eq(&self, other: &EventPattern) -> bool {
        self.text == other.text
    }
}

impl Eq for EventPattern {}

impl PartialOrd for EventPattern {
    fn partial_cmp(&self, other: &EventPattern) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EventPattern {
    fn cmp(&self, other: &EventPattern) -> Ordering {
        self.text.cmp(&other.text)
    }
}
