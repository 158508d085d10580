//! Errors and lint findings of rules, with their locations.

use std::fmt;

use strum::IntoStaticStr;

use crate::source::{SourceLocation, Span};

/// Why a file or a rule cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Where the reason is.
    pub location: Box<SourceLocation>,
    /// The reason.
    pub kind: ErrorKind,
}

/// The reasons.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ErrorKind {
    /// The file is larger than 1 MiB.
    #[error("the file is larger than 1 MiB")]
    FileTooLarge,
    /// The file is not UTF-8.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// The YAML cannot be read.
    #[error("{0}")]
    Yaml(String),
    /// The file has neither a rule nor macros.
    #[error("expected a rule with `condition`, a rule of Sigma with `detection`, or a list of macros")]
    NoRule,
    /// A macro has both or neither of `expr` and `list`.
    #[error("the macro `{0}` needs either `expr` or `list`")]
    MacroText(String),
    /// A list has no values.
    #[error("the list has no values")]
    EmptyList,
    /// A text has no end.
    #[error("the text is not closed; a text ends on its line")]
    UnclosedText,
    /// An escape is not known.
    #[error("`\\{0}` is not an escape; write `\\\\` for a backslash")]
    Escape(char),
    /// A number cannot be read.
    #[error("expected a number of at most 64 bits, an address or a time span")]
    Number,
    /// A character has no meaning.
    #[error("`{0}` has no meaning here")]
    Character(char),
    /// Something else was expected.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A name is not known.
    #[error("there is no field, function or macro `{name}`{}", did_you_mean(.suggestion.as_ref()))]
    Unknown {
        /// The name.
        name: String,
        /// A similar name.
        suggestion: Option<String>,
    },
    /// A variable is not known.
    #[error("`${0}` is neither a variable of `foreach` nor the name of an earlier slot")]
    UnknownVariable(String),
    /// A field needs an argument.
    #[error("`{0}` needs a name in brackets, such as `{0}[status]`")]
    NoArgument(String),
    /// A function has a wrong number of arguments.
    #[error("`{name}` takes {expected} arguments, not {found}")]
    Arguments {
        /// The function.
        name: &'static str,
        /// The permitted numbers.
        expected: String,
        /// The number in the condition.
        found: usize,
    },
    /// The condition is nested too deep.
    #[error("the condition is nested deeper than 64 levels")]
    TooDeep,
    /// The condition is too long.
    #[error("the condition is too long: at most 64 KiB, and 65,536 words or 4 MiB with its macros")]
    TooLong,
    /// A macro uses itself.
    #[error("the macro `{0}` uses itself")]
    EndlessMacro(String),
    /// The time span is too long.
    #[error("a sequence takes at most 4 hours")]
    SpanTooLong,
    /// A sequence has too many slots.
    #[error("a sequence has at most {0} slots")]
    TooManySlots(usize),
    /// `by` is stated for all slots and for one.
    #[error("`by` is stated for the sequence, so a slot cannot have its own")]
    ByTwice,
    /// Only some slots have `by`.
    #[error("either all slots have `by`, or none has")]
    ByOfSomeSlots,
    /// A value has another type than it must have.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The expected type.
        expected: &'static str,
        /// The type in the condition.
        found: &'static str,
    },
    /// A part of an element is not known.
    #[error("{element} have no part `{part}`; write one of {}", .known.join(", "))]
    Part {
        /// The elements.
        element: &'static str,
        /// The name in the condition.
        part: String,
        /// All names.
        known: Vec<&'static str>,
    },
    /// The rule is not about an event type.
    #[error("the rule names no event: add `evt.name = '…'` or `evt.category = '…'`")]
    NoEvent,
    /// Another rule has the same id.
    #[error("the rule in {0} has the same id")]
    SameId(String),
    /// A rule of Sigma is about other events.
    #[error("{0} is not a log source that can be evaluated: expected a category or service of Windows")]
    LogSource(String),
    /// A rule of Sigma uses something that is not supported.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A regular expression takes too much memory.
    #[error("the regular expressions are too large: at most 1 MiB after compilation")]
    RegularExpression,
    /// A severity is not known.
    #[error("`{0}` is not a severity; write one of low, medium, high, critical")]
    Severity(String),
}

fn did_you_mean(suggestion: Option<&String>) -> String {
    suggestion.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

/// Something suspicious about a rule that can be used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lint {
    /// Where it is.
    pub location: SourceLocation,
    /// What it is.
    pub kind: LintKind,
}

/// The kinds of lint findings.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum LintKind {
    /// The end of the condition is ignored.
    #[error("the parenthesis or comma is superfluous, and what follows is ignored")]
    #[strum(serialize = "ignored-end")]
    Ignored,
    /// A list field is compared with one value by an operator that Fibratus only knows for lists.
    #[error(
        "`{field}` has several values, and Fibratus compares them with `{operator}` only if the right side is a list: write ({value})"
    )]
    ListWithValue {
        /// The field.
        field: &'static str,
        /// The operator.
        operator: String,
        /// The right side.
        value: String,
    },
    /// A pattern that the values of a field never match.
    #[error("`{field}` never matches this: {reason}")]
    NeverMatches {
        /// The field.
        field: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A path that does not exist on Windows.
    #[error("the path lacks the blank in `Program Files (x86)`")]
    MissingBlank,
    /// A pattern for a folder that matches no file in it.
    #[error("the pattern has no `*` after the folder, so it matches no file in it")]
    FolderOnly,
    /// A macro with `or` next to `and` or `not`, without parentheses.
    #[error("Fibratus reads the macro `{0}`, which contains `or`, without parentheses here: write ({0})")]
    OpenMacro(String),
    /// Two macros have the same name.
    #[error("the macro `{0}` is defined twice; the last definition counts")]
    MacroTwice(String),
    /// An event that Fibratus does not have.
    #[error("there is no event `{name}`{}", did_you_mean(.suggestion.as_ref()))]
    UnknownEvent {
        /// The name.
        name: String,
        /// A similar name.
        suggestion: Option<String>,
    },
}

impl LintKind {
    /// The name in output.
    pub fn code(&self) -> &'static str {
        self.into()
    }
}

/// The limit of lint findings of a rule, and of all macros.
const LINTS_MAX: usize = 1_000;

impl Lint {
    /// Adds a finding, unless there are too many.
    pub(crate) fn add(lints: &mut Vec<Lint>, span: &Span, kind: LintKind) {
        if lints.len() < LINTS_MAX {
            lints.push(Lint { location: span.location(), kind });
        }
    }
}

impl Error {
    pub(crate) fn new(location: SourceLocation, kind: ErrorKind) -> Error {
        Error { location: Box::new(location), kind }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.kind)
    }
}

impl std::error::Error for Error {}
