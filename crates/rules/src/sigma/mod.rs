//! Rules of Sigma. Without the feature `sigma`, they are recognized and refused.

#[cfg(feature = "sigma")]
mod translate;

use std::sync::Arc;

use crate::error::Error;
use crate::evaluate;
use crate::rule::{Head, Rule, RuleCondition};
use crate::source::File;

/// A rule of Sigma.
pub(crate) struct SigmaRule {
    head: Head,
    text: String,
    condition: Result<RuleCondition, Error>,
}

impl SigmaRule {
    pub fn into_rule(self, file: &str) -> Rule {
        let SigmaRule { head, text, condition } = self;
        let condition = condition.and_then(|condition| evaluate::check(&condition).map(|()| condition));
        Rule { file: file.to_owned(), head, text, condition, lints: Vec::new() }
    }
}

/// Whether a file has rules of Sigma.
pub(crate) fn is_sigma(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("detection:") || line.starts_with("correlation:"))
}

/// Reads the rules of a file.
pub(crate) fn read(file: &Arc<File>) -> Result<Vec<SigmaRule>, Error> {
    #[cfg(feature = "sigma")]
    return translate::read(file);
    #[cfg(not(feature = "sigma"))]
    Err(Error::new(
        file.location(0..0),
        crate::error::ErrorKind::Unsupported("a rule of Sigma, without the feature `sigma`,".to_owned()),
    ))
}
