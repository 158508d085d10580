//! Folders with rules.

use std::collections::HashMap;
use std::sync::Arc;

use crate::check::{self, Checked};
use crate::error::{Error, ErrorKind, Lint, LintKind};
use crate::evaluate;
use crate::file::{self, Content, RuleText};
use crate::macros::Macros;
use crate::parse;
use crate::rule::{Library, Rule, RuleCondition};
use crate::source::File;

/// The limit of bytes of a file.
pub const FILE_MAX: usize = 1 << 20;

impl Library {
    /// Reads files, each with its path as the user named it and its bytes.
    pub fn read<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Library {
        let (mut library, mut macros, mut texts) = (Library::default(), Macros::default(), Vec::new());
        for (name, bytes) in files {
            if str::from_utf8(bytes).is_ok_and(has_cases) {
                continue;
            }
            match content(name, bytes) {
                Ok(Content::Rule(rule)) => texts.push((name.to_owned(), rule)),
                Ok(Content::Sigma(rules)) => {
                    library.rules.extend(rules.into_iter().map(|rule| rule.into_rule(name)))
                }
                Ok(Content::Macros(found)) => {
                    found.into_iter().for_each(|(name, text)| macros.add(&name, text));
                }
                Err(error) => library.errors.push(error),
            }
        }
        let mut by_id: HashMap<String, String> = HashMap::new();
        for (file, text) in texts {
            let known = by_id.insert(text.head.id.clone(), file.clone());
            library.rules.push(rule(file, *text, known, &mut macros));
        }
        let names: Vec<String> = macros.names().map(str::to_owned).collect();
        for name in names {
            // An error of a macro that no rule uses would stay unnoticed.
            match parse::expand(&mut macros, &name, 0) {
                Ok(expanded) => check::macro_events(&expanded.body, &mut macros.lints),
                Err(error) if library.errors.contains(&error) => {}
                Err(error) => library.errors.push(error),
            }
        }
        library.lints = macros.lints;
        library.lints.sort();
        library.lints.dedup();
        library
    }
}

/// Whether a file has test cases instead of rules.
pub fn has_cases(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("cases:"))
}

fn content(name: &str, bytes: &[u8]) -> Result<Content, Error> {
    let of_file = |kind| Error::new(File::new(name, "").location(0..0), kind);
    if bytes.len() > FILE_MAX {
        return Err(of_file(ErrorKind::FileTooLarge));
    }
    let text = str::from_utf8(bytes).map_err(|_| of_file(ErrorKind::NotText))?;
    file::read(&Arc::new(File::new(name, text)))
}

fn rule(file: String, text: RuleText, same_id: Option<String>, macros: &mut Macros) -> Rule {
    let RuleText { head, condition: source } = text;
    let (mut lints, whole) = (Vec::new(), source.location(0..source.text().len()));
    let parsed = match same_id {
        Some(other) => Err(Error::new(whole.clone(), ErrorKind::SameId(other))),
        None => parse::condition(&source, macros),
    };
    let condition = parsed.and_then(|parsed| {
        if let Some(rest) = parsed.rest {
            Lint::add(&mut lints, &rest, LintKind::Ignored);
        }
        let Checked { events, needs } = check::condition(&parsed.tree, &mut lints)?;
        if events.iter().any(Vec::is_empty) {
            return Err(Error::new(whole, ErrorKind::NoEvent));
        }
        let condition = RuleCondition { tree: parsed.tree, events, needs };
        evaluate::check(&condition)?;
        Ok(condition)
    });
    lints.sort();
    lints.dedup();
    Rule { file, head, text: source.text().to_owned(), condition, lints }
}
