//! Macros: named expressions and lists that conditions use.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Lint, LintKind};
use crate::source::{Source, Span};
use crate::syntax::Expression;

/// What a macro stands for in its file.
#[derive(Clone, Debug)]
pub(crate) enum MacroText {
    Expression(Arc<Source>),
    List(Vec<(String, Arc<Source>)>),
}

impl MacroText {
    fn source(&self) -> Option<&Arc<Source>> {
        match self {
            MacroText::Expression(source) => Some(source),
            MacroText::List(values) => values.first().map(|(_, source)| source),
        }
    }
}

/// A macro that was parsed.
#[derive(Clone, Debug)]
pub(crate) struct Expanded {
    pub body: Arc<Expression>,
    /// Number of tokens, with those of the macros in it.
    pub size: usize,
    /// The number of expressions within each other, with those of the macros in it.
    pub depth: usize,
}

/// The macros of a library. Each is parsed when it is first used, by the parser of conditions.
#[derive(Debug, Default)]
pub(crate) struct Macros {
    texts: BTreeMap<String, MacroText>,
    parsed: HashMap<String, Result<Expanded, Error>>,
    /// Those that are being parsed.
    open: HashSet<String>,
    /// What is suspicious about macros themselves.
    pub lints: Vec<Lint>,
}

impl Macros {
    /// Adds a macro. The last one of several with the same name counts.
    pub fn add(&mut self, name: &str, text: MacroText) {
        if self.texts.contains_key(name)
            && let Some(source) = text.source()
        {
            let span = Span { source: Arc::clone(source), range: 0..source.text().len() };
            Lint::add(&mut self.lints, &span, LintKind::MacroTwice(name.to_owned()));
        }
        self.texts.insert(name.to_owned(), text);
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }

    /// The result of an earlier [`take`](Macros::take).
    pub fn parsed(&self, name: &str) -> Option<&Result<Expanded, Error>> {
        self.parsed.get(name)
    }

    /// Whether there is such a macro.
    pub fn has(&self, name: &str) -> bool {
        self.texts.contains_key(name)
    }

    /// The text of a macro that exists and is parsed next.
    ///
    /// # Errors
    /// If it is being parsed, so that it uses itself.
    pub fn take(&mut self, name: &str) -> Result<MacroText, Error> {
        let text = &self.texts[name];
        if !self.open.insert(name.to_owned()) {
            let location = text.source().map(|source| source.location(0..1)).unwrap_or_default();
            return Err(Error::new(location, ErrorKind::EndlessMacro(name.to_owned())));
        }
        Ok(text.clone())
    }

    /// The macro was parsed.
    pub fn set_parsed(&mut self, name: &str, parsed: &Result<Expanded, Error>) {
        self.open.remove(name);
        // Elsewhere, there may be room for it.
        let is_too_deep = matches!(parsed, Err(Error { kind: ErrorKind::TooDeep, .. }));
        if !is_too_deep {
            self.parsed.insert(name.to_owned(), parsed.clone());
        }
    }
}
