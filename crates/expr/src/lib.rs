//! The filter language: which events are meant.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_expr::{Filter, Value};
//!
//! /// What the filter may ask about.
//! enum Field {
//!     Pid,
//!     Event,
//!     Module,
//! }
//!
//! struct Event {
//!     pid: u32,
//!     name: &'static str,
//!     modules: Vec<&'static str>,
//! }
//!
//! let source = r"event = Process/Start and pid != 4 and stack.module iendswith '\ntdll.dll'";
//! let filter = Filter::parse(source)?;
//! let matcher = filter.compile(&["pid", "event", "stack.module"], |name| match name {
//!     "pid" => Some(Field::Pid),
//!     "event" => Some(Field::Event),
//!     "stack.module" => Some(Field::Module),
//!     _ => None,
//! })?;
//!
//! let event =
//!     Event { pid: 812, name: "Process/Start", modules: vec![r"C:\app.exe", r"C:\Windows\System32\NTDLL.DLL"] };
//! let passes = matcher.matches(|field, visit| match field {
//!     Field::Pid if event.pid == u32::MAX => ControlFlow::Continue(()), // unknown: the field is missing
//!     Field::Pid => visit(Value::Unsigned(event.pid.into())),
//!     Field::Event => visit(Value::Text(event.name)),
//!     Field::Module => event.modules.iter().try_for_each(|module| visit(Value::Text(module))),
//! });
//! assert!(passes);
//! # Ok::<(), stackhound_expr::Error>(())
//! ```
//!
//! This crate knows the language. It does not know events, or which fields they have: names are resolved by the
//! caller, once, when a filter is compiled. Evaluation neither allocates nor looks at names.
//!
//! # Language reference
//!
//! ## Expressions
//!
//! ```text
//! expression = field operator value
//!            | field in ( value , … )
//!            | not expression
//!            | expression and expression
//!            | expression or expression
//!            | ( expression )
//! ```
//!
//! `not` binds tighter than `and`, and `and` tighter than `or`. Keywords and operators that are words may be written
//! in any case. White space, line breaks included, separates words and means nothing else. A filter has at most
//! [`MAX_LENGTH`] bytes, and its parentheses and `not` are nested at most [`MAX_DEPTH`] deep.
//!
//! ## Operators
//!
//! | operator | ignoring case | holds if the field |
//! |---|---|---|
//! | `=` | `i=` | equals the value |
//! | `!=` | `i!=` | has a value, but not this one |
//! | `<` `<=` `>` `>=` | | lies before or behind the value, numbers by size, text by code points |
//! | `~` | `i~` | matches the pattern as a whole: `*` is any text, `?` any one character |
//! | `contains` | `icontains` | has the value somewhere in its text |
//! | `startswith` | `istartswith` | begins with the value |
//! | `endswith` | `iendswith` | ends with the value |
//! | `in (…, …)` | `iin (…, …)` | equals one of the values |
//!
//! The prefix `i` stands right before its operator. Case is ignored as Windows ignores it in file names, character by
//! character, except that no character outside ASCII equals one of ASCII.
//!
//! ## Fields
//!
//! Dotted names: `pid`, `stack.module`, `fields.ImageFileName`. What is not a bare word (below) is put in quotes, as a
//! whole or behind a dot: `fields."Odd Name"`. The quotes are no part of the name; a dot within them is like any other.
//! An unknown name is an error, so a misspelt field never passes for a missing one.
//!
//! ## Values
//!
//! - **Quoted text**, in `'…'` or `"…"`, is text and nothing else. A doubled quote stands for one: `'it''s'`. **A
//!   backslash is an ordinary character**, so that paths are written as they are: `'C:\Windows\System32\'`.
//! - **Numbers**: `42`, `-1`, `0x1f`, `2.5`; neither a `+` nor an exponent. They keep their spelling for operators
//!   that work on text: `startswith 0x7ff` looks for just this. Integers are exact up to 127 bits.
//! - **Truth values**: `true` and `false` in any case; they are the numbers 1 and 0.
//! - **Bare words** are all other text without white space, control characters, quotes and `( ) , = ! < > ~ & |`:
//!   `Process/Start`, `Microsoft-Windows-DNS-Client`, `C:\Windows\*`, `10.0.0.1`. The words `and`, `or` and `not` need
//!   quotes.
//!
//! ## How a field compares with a value
//!
//! 1. *As numbers*, if the value is a number and the field is one, or is text that spells one in the same way
//!    (`0x…` included): `address = 16` holds for the text `0x10`. Integers of either sign, fractions and truth values
//!    compare exactly, without rounding.
//! 2. *As text* otherwise, each side as it is written. A field that is text has all operators. A field that is a number
//!    or a truth value only has equality (`=`, `!=`, `in`), with its decimal text, or with `true` and `false`;
//!    everything else does not hold: `pid = '4'` may hold, `pid < 'x'` and `pid contains 4` never do.
//! 3. `~`, `contains`, `startswith` and `endswith` always compare as text, `<` to `>=` and equality as numbers where
//!    they can. Put a number in quotes to compare text with it: `fields.Version = '1.10'` is not `1.1`.
//! 4. A floating point field that is not a number (NaN) equals no number and lies on no side of one.
//!
//! ## Missing fields, several values
//!
//! A field that the event does not have makes its comparison false, whatever the operator; `missing != 1` is false and
//! `not (missing = 1)` is true.
//!
//! A field may have several values, such as the modules of all frames. A comparison holds if it holds for any of them.
//! `!=` is the exception: it holds if there are values and *none* equals, so that `stack.module != x` says what it
//! seems to say, "there is a stack, and `x` is not on it". (If one other value were enough, nearly every stack would
//! pass.) For a field that is there, `a != 1` and `not (a = 1)` are therefore always the same.

#![forbid(unsafe_code)]

mod compile;
mod error;
mod eval;
mod lex;
mod number;
mod parse;
mod suggest;
mod syntax;
mod text;

use std::fmt::{self, Display, Formatter};

pub use error::Error;
pub use eval::{Matcher, Value, Visitor};

/// The longest filter, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;

/// How many parentheses and `not` may enclose each other.
pub const MAX_DEPTH: usize = 64;

/// A parsed filter.
///
/// `Display` writes it in one canonical form, with no more parentheses than needed and all text quoted. That form
/// parses back to an equal filter, unless the quotes carry it over [`MAX_LENGTH`].
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    expression: syntax::Expression,
}

impl Filter {
    /// Parses a filter; see the [language reference](crate#language-reference). Time is linear in its length.
    ///
    /// # Errors
    ///
    /// Everything but [`Error::UnknownField`], at the first place that is not in the language.
    pub fn parse(source: &str) -> Result<Self, Error> {
        parse::parse(source).map(|expression| Self { expression })
    }

    /// Resolves the fields and prepares the values.
    ///
    /// `resolve` is called once for each name that the filter uses, in the order of their first use, and returns
    /// whatever lets the caller find the field in an event quickly. `candidates` are the names to suggest for one that
    /// it does not know; they need not be all names that it does know.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`] for the first name that `resolve` refuses. Its place is in the text that was parsed.
    pub fn compile<F>(
        &self,
        candidates: &[&str],
        resolve: impl FnMut(&str) -> Option<F>,
    ) -> Result<Matcher<F>, Error> {
        compile::compile(&self.expression, candidates, resolve)
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}
