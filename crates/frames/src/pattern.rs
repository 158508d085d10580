//! Patterns of event names with wildcards, as used in a policy.

use std::cmp::Ordering;

use globset::{Glob, GlobBuilder, GlobMatcher};
use serde::Deserialize;

/// An invalid pattern.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern of event names: {reason}")]
pub struct PatternError {
    pattern: String,
    reason: String,
}

/// Selects events by name: `Registry/*`, `FileIo/Create`, `Provider-Name:Event/*`.
///
/// `*` matches any text, `?` any character, `{a,b}` one of several alternatives. The text before a
/// colon is the provider, in the spelling of `stackhound events`; without a colon, any provider
/// matches. Patterns are case-sensitive.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct EventPattern {
    text: String,
    provider: Option<Glob>,
    event: Glob,
}

/// Maximum length of a pattern, in bytes. Longer patterns would be slow to compile.
const LENGTH_MAX: usize = 1 << 10;

impl EventPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If a bracket or brace is not closed, or if the pattern is longer than 1 KiB.
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

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The compiled pattern.
    pub(crate) fn matcher(&self) -> EventMatcher {
        let provider = self.provider.as_ref().map(Glob::compile_matcher);
        EventMatcher { provider, event: self.event.compile_matcher() }
    }

    /// Orders patterns that match the same event: the greatest one applies. That is a pattern
    /// without wildcards, otherwise the one with the most other characters.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        let wild = |byte: &u8| b"*?[]{}".contains(byte);
        let is_exact = !self.text.bytes().any(|byte| wild(&byte));
        (is_exact, self.text.bytes().filter(|byte| !wild(byte)).count())
    }
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct EventMatcher {
    provider: Option<GlobMatcher>,
    event: GlobMatcher,
}

impl EventMatcher {
    /// Whether an event with these names matches.
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
