//! The right-hand sides of comparisons: values and other fields.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::number::{Number, is_numeral};
use crate::syntax::Field;

/// The right side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A value.
    Literal(Literal),
    /// Whatever another field has.
    Field(Field),
}

impl<T: Into<Literal>> From<T> for Operand {
    fn from(value: T) -> Self {
        Self::Literal(value.into())
    }
}

impl From<Field> for Operand {
    fn from(field: Field) -> Self {
        Self::Field(field)
    }
}

/// A value that a filter compares fields with: text, a number or a truth value.
///
/// `Display` writes it as the language spells it: text in quotes, all else bare.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    /// The text between the quotes, or the bare word.
    pub(crate) text: Box<str>,
    /// The value of a bare numeral, `true` or `false`.
    pub(crate) number: Option<Number>,
}

/// A number that no field can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutOfRange;

impl Literal {
    /// A literal in quotes: text and nothing else.
    pub(crate) fn quoted(text: impl Into<Box<str>>) -> Self {
        Self { text: text.into(), number: None }
    }

    /// The number or truth value that a bare word spells, if it spells one.
    pub(crate) fn bare(word: &str) -> Result<Option<Self>, OutOfRange> {
        let number = match truth_value(word) {
            Some(truth) => Number::Integer(truth.into()),
            None if is_numeral(word) => Number::parse(word).filter(Number::fits_fields).ok_or(OutOfRange)?,
            None => return Ok(None),
        };
        Ok(Some(Self { text: word.into(), number: Some(number) }))
    }

    fn integer(value: i128) -> Self {
        Self { text: value.to_string().into(), number: Some(Number::Integer(value)) }
    }
}

/// The truth value of a bare word.
pub(crate) fn truth_value(word: &str) -> Option<bool> {
    [true, false].into_iter().find(|truth| word.eq_ignore_ascii_case(if *truth { "true" } else { "false" }))
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(_) => f.write_str(&self.text),
            None => write!(f, "'{}'", self.text.replace('\'', "''")),
        }
    }
}

/// Text and nothing else, also where it spells a number.
impl From<&str> for Literal {
    fn from(text: &str) -> Self {
        Self::quoted(text)
    }
}

/// Text and nothing else, also where it spells a number.
impl From<String> for Literal {
    fn from(text: String) -> Self {
        Self::quoted(text)
    }
}

impl From<bool> for Literal {
    fn from(truth: bool) -> Self {
        Self { text: truth.to_string().into(), number: Some(Number::Integer(truth.into())) }
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Literal {
            fn from(value: $integer) -> Self {
                Self::integer(value as i128)
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

/// A number that is not finite becomes its name, which is not equal to any number.
impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        let mut text = value.to_string();
        if value.is_finite() && !text.contains('.') {
            text += ".0";
        }
        Self { number: Number::parse(&text), text: text.into() }
    }
}

impl From<f32> for Literal {
    fn from(value: f32) -> Self {
        f64::from(value).into()
    }
}

/// Its text: `10.0.0.1`, `2001:db8::1`.
impl From<IpAddr> for Literal {
    fn from(address: IpAddr) -> Self {
        Self::quoted(address.to_string())
    }
}

/// Its text: `10.0.0.1`.
impl From<Ipv4Addr> for Literal {
    fn from(address: Ipv4Addr) -> Self {
        Self::quoted(address.to_string())
    }
}

/// Its text: `2001:db8::1`.
impl From<Ipv6Addr> for Literal {
    fn from(address: Ipv6Addr) -> Self {
        Self::quoted(address.to_string())
    }
}

/// Its text: `10.0.0.1:53`, `[2001:db8::1]:53`.
impl From<SocketAddr> for Literal {
    fn from(address: SocketAddr) -> Self {
        Self::quoted(address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(literal: impl Into<Literal>, spelled: &str) {
        let literal = literal.into();
        assert_eq!(literal.to_string(), spelled);
        if literal.number.is_some() {
            assert_eq!(Literal::bare(spelled), Ok(Some(literal)));
        }
    }

    #[test]
    fn values_are_spelled_as_the_language_spells_them() {
        check(7, "7");
        check(u64::MAX, "18446744073709551615");
        check(i64::MIN, "-9223372036854775808");
        check(-1_i8, "-1");
        check(true, "true");
        check("7", "'7'");
        check("it's".to_owned(), "'it''s'");
        check(1.0, "1.0");
        check(-0.25_f32, "-0.25");
        check(f64::NAN, "'NaN'");
        check(f64::INFINITY, "'inf'");
        check(IpAddr::from([10, 0, 0, 1]), "'10.0.0.1'");
        check(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 53)), "'[::1]:53'");
    }

    proptest! {
        #[test]
        fn finite_numbers_keep_their_value(value in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO) {
            let literal = Literal::from(value);
            prop_assert_eq!(literal.number, Some(Number::Float(value)));
            prop_assert_eq!(Literal::bare(&literal.to_string()), Ok(Some(literal)));
        }
    }
}
