//! The filter language: boolean expressions that select events by their fields.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_expr::{Filter, Value};
//!
//! /// The fields of the filter.
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
//! This crate implements the language. It does not depend on events or their fields: the caller resolves
//! field names once, when a filter is compiled. Evaluation neither allocates nor compares names.
//!
//! # Language reference
//!
//! ## Expressions
//!
//! ```text
//! expression = field operator operand
//!            | field operator ( operand , … )
//!            | not expression
//!            | expression and expression
//!            | expression or expression
//!            | ( expression )
//!            | true
//!            | false
//! operand    = value
//!            | field
//! ```
//!
//! `true` alone holds for every event, `false` for none; before an operator they are field names. `not`
//! binds tighter than `and`, and `and` tighter than `or`. Keywords and operators that are words may be written
//! in any case. White space, line breaks included, separates words and means nothing else. A filter has at most
//! [`MAX_LENGTH`] bytes, and its parentheses and `not` are nested at most [`MAX_DEPTH`] deep.
//!
//! ## Operators
//!
//! | operator | ignoring case | holds if the field |
//! |---|---|---|
//! | `=` | `i=` | equals the value |
//! | `!=` | `i!=` | has a value, but not this one |
//! | `<` `<=` `>` `>=` | | is less or greater than the value; numbers are compared by value, text by code points |
//! | `~` | `i~` | matches the pattern as a whole: `*` is any text, `?` any one character. No field can be the pattern |
//! | `contains` | `icontains` | contains the value in its text |
//! | `startswith` | `istartswith` | begins with the value |
//! | `endswith` | `iendswith` | ends with the value |
//! | `in (…, …)` | `iin (…, …)` | equals one of the values |
//! | `is` | | equals the value and is of its kind: text if it is text, a number if it is one |
//! | `hasany` `hasall` | | is an integer that has any, or all, of the bits of the value; of 0, none and all |
//!
//! `~`, `contains`, `startswith` and `endswith` also take a list, and hold if they hold for any of its values:
//! `stack.symbol i~ ('nt*!NtCreate*', 'nt*!ZwCreate*')`.
//!
//! The prefix `i` is written right before its operator. Case is ignored as Windows ignores it in file names, character by
//! character, except that no character outside ASCII equals one of ASCII.
//!
//! ## Fields
//!
//! Dotted names: `pid`, `stack.module`, `fields.ImageFileName`. Names that are not bare words (below) are put in quotes, as a
//! whole or after a dot: `fields."Odd Name"`. The quotes are not part of the name; a dot within them is an ordinary character.
//! An unknown name is an error, so a misspelt field never passes for a missing one.
//!
//! ## Values
//!
//! - **Quoted text**, in `'…'` or `"…"`, is always text. A doubled quote represents one quote: `'it''s'`. **A
//!   backslash is an ordinary character**, so that paths are written as they are: `'C:\Windows\System32\'`.
//! - **Numbers**: `42`, `-1`, `0x1f`, `2.5`; neither a `+` nor an exponent. They keep their spelling for operators
//!   that work on text: `startswith 0x7ff` looks for just this. Integers have 64 bits, with or without a sign.
//! - **Truth values**: `true` and `false` in any case; they are the numbers 1 and 0.
//! - **Names of events** need no quotes: a bare word with a `/` in it is text, `Process/Start`, `FileIo/*`.
//!
//! A bare word is anything without white space, control characters, quotes and `( ) , = ! < > ~ & |`, except `and`, `or`
//! and `not`. Any other bare word on the right is a **field**: `pid != fields.ProcessId`. If there is no such field, it is
//! an error, so text that was left without quotes never passes for a field that is missing.
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
//! 4. A floating point field that is not a number (NaN) is not equal to, less than or greater than any number.
//! 5. Two fields compare as numbers if both are numbers, if one is and the other is text that spells one, or if both are
//!    text that spells integers; as text if both are text; otherwise neither equality nor order holds. Where a field is a
//!    number with a name, order is that of the numbers.
//! 6. `is` never compares a number with text: `pid is '4'` and `fields.Name is 4` do not hold, whatever is in them.
//!    Truth values are numbers. `hasany` and `hasall` see negative integers as two's complement of 64 bits, and take
//!    text that spells an integer for one.
//!
//! ## Missing fields, several values
//!
//! There are three answers: yes, no, and unknown. A comparison with a field that the event does not have is unknown,
//! whatever the operator. `not` of unknown is unknown. `and` is no where one side is, and unknown where one side is and
//! the other is not no; `or` is yes where one side is. Only events for which the answer is yes pass; so neither
//! `missing = 1` nor `not (missing = 1)` holds, and [`Matcher::decide`] names the missing field.
//!
//! A field may have several values, such as the modules of all frames. A comparison holds if it holds for any of them,
//! and of two fields, if it holds for any pair. If it holds for none, and one of them is not known, the answer is unknown.
//! Of a function without a name the module is known: a comparison with a value is unknown only if the name decides it.
//! `!=` is the exception: it holds if there are values and *none* equals, so that `stack.module != x` has its
//! apparent meaning, "there is a stack, and `x` is not on it". (If one other value were enough, nearly every stack would
//! pass.) For a field that is there, `a != 1` and `not (a = 1)` are therefore always the same.
//!
//! # In Rust
//!
//! [`field`] and the operators `&`, `|` and `!` build the same filters without text, from values of Rust's types:
//!
//! ```
//! use stackhound_expr::{Filter, field};
//!
//! let files = [r"\config\sam", r"\config\security"].map(|end| field("fields.FileName").iends_with(end));
//! let built = field("event").equals("FileIo/Create") & !field("pid").one_of([4, 8]) & Filter::any_of(files);
//! let parsed = Filter::parse(
//!     r"event = FileIo/Create and not pid in (4, 8)
//!         and (fields.FileName iendswith '\config\sam' or fields.FileName iendswith '\config\security')",
//! )?;
//! assert_eq!(built, parsed);
//! # Ok::<(), stackhound_expr::Error>(())
//! ```
//!
//! Text of Rust is quoted text, never a number; [`field`] on the right is another field. The limits are those of the text: a filter that is nested deeper or is
//! longer is refused when it is compiled.
//!
//! # Evaluation
//!
//! The parts of a list of `and` or `or` are evaluated in order, until one of them decides.
//! [`Matcher::cheapest_first`] changes that order by what the fields cost. The result is the same in any order.

#![forbid(unsafe_code)]

mod build;
mod compile;
mod encoding;
mod error;
mod eval;
mod lex;
mod literal;
mod needle;
mod number;
mod parse;
mod suggest;
mod syntax;
mod tested_texts;
mod text;
mod unnamed;

use std::fmt::{self, Display, Formatter};

pub use build::field;
pub use error::Error;
pub use eval::{Matcher, Undecided, Value, Visitor};
pub use literal::{Literal, Operand};
pub use suggest::most_similar;
pub use syntax::{Case, Field, TextOperator};
pub use tested_texts::TestedText;

/// Whether a text matches a pattern of `*` and `?` as a whole, like the operator `~`. Allocates for
/// the pattern.
pub fn fits_pattern(text: &str, pattern: &str, ignores_case: bool) -> bool {
    let case = if ignores_case { Case::Ignored } else { Case::Sensitive };
    text::Glob::new(pattern, case).matches(encoding::Text::Utf8(text))
}

/// The longest filter, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;

/// How many parentheses and `not` may enclose each other.
pub const MAX_DEPTH: usize = 64;

/// A filter, parsed or built with [`field`] and the operators `&`, `|` and `!`.
///
/// `Display` writes it in one canonical form, with no more parentheses than needed and all text
/// quoted. That form parses back to an equal filter, unless the quotes carry it over
/// [`MAX_LENGTH`], it was refused as [too deep](Error::TooDeep), or a field on the right needs
/// quotes and has no dot before them.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// `None` if it was built deeper than [`MAX_DEPTH`].
    expression: Option<syntax::Expression>,
    /// How many parentheses and `not` enclose each other in the canonical form.
    depth: usize,
}

impl Filter {
    /// Parses a filter; see the [language reference](crate#language-reference). Time is linear in
    /// its length.
    ///
    /// # Errors
    ///
    /// Everything but [`Error::UnknownField`], at the first place that is not in the language.
    pub fn parse(source: &str) -> Result<Self, Error> {
        let expression = parse::parse(source)?;
        Ok(Self { depth: expression.depth(), expression: Some(expression) })
    }

    /// Resolves the fields and prepares the values.
    ///
    /// `resolve` is called once for each name that the filter uses, in the order of their first
    /// use, and returns whatever lets the caller find the field in an event quickly. `candidates`
    /// are the names to suggest for one that it does not know; they need not be all names that it
    /// does know.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`] for the first name that `resolve` refuses. Its place is in the text
    /// that was parsed; what was built has no places. Of a filter that was built also
    /// [`Error::TooDeep`] and [`Error::TooLong`], which keep it within the limits of the text.
    pub fn compile<F>(
        &self,
        candidates: &[&str],
        resolve: impl FnMut(&str) -> Option<F>,
    ) -> Result<Matcher<F>, Error> {
        self.compile_within(MAX_LENGTH, candidates, resolve)
    }

    /// The same with another limit than [`MAX_LENGTH`], in bytes.
    ///
    /// # Errors
    ///
    /// As [`compile`](Filter::compile).
    pub fn compile_within<F>(
        &self,
        length_max: usize,
        candidates: &[&str],
        resolve: impl FnMut(&str) -> Option<F>,
    ) -> Result<Matcher<F>, Error> {
        let expression = self.expression.as_ref().ok_or(Error::TooDeep { at: 0 })?;
        match expression.length() {
            length if length > length_max => Err(Error::TooLong { length }),
            _ => compile::compile(expression, candidates, resolve),
        }
    }
}

/// Expressions that are nested too deep are written as `…`, which does not parse.
impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.expression {
            Some(expression) => expression.fmt(f),
            None => f.write_str("…"),
        }
    }
}
