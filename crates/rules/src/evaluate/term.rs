//! The values that a compiled condition compares: fields, parts of elements, and results of
//! functions.

use std::net::IpAddr;
use std::sync::Arc;

use regex::RegexSet;
use stackhound_expr::Matcher;

use crate::fields::Part;
use crate::functions::Function;
use crate::types::Type;

/// A value of an event, with the fields of its source.
#[derive(Clone, Debug)]
pub(crate) enum Term<F> {
    Field(FieldTerm<F>),
    /// Whether a field has a value that is not empty.
    Exists(FieldTerm<F>),
    /// A field of an event of an earlier slot: the index among the values that were kept.
    Bound {
        index: usize,
        zero: Zero,
        /// The name of the field in conditions.
        name: Arc<str>,
    },
    /// The element of a `foreach`, or a part of it. `outward` counts the calls of `foreach` between.
    Element {
        outward: usize,
        part: Option<&'static Part>,
    },
    Text(Box<str>),
    Number(u64),
    Decimal(f64),
    Truth(bool),
    /// An expression that is true or false.
    Holds(Box<Matcher<Term<F>>>),
    Call(Box<Call<F>>),
    /// Whether a predicate holds for an element.
    ForEach(Box<ForEach<F>>),
    /// Whether a text fits one of the patterns, where an [`expr`](stackhound_expr) filter has no such
    /// comparison.
    Pattern {
        value: Box<Term<F>>,
        patterns: Box<[Term<F>]>,
        test: PatternTest,
    },
}

/// A field of the event.
#[derive(Clone, Debug)]
pub(crate) struct FieldTerm<F> {
    /// `None` if the source does not have it: it is missing in every event.
    pub field: Option<F>,
    /// The index among the [fields](super::compile::FieldNames) of events with this name.
    pub index: usize,
    pub zero: Zero,
    /// The name in conditions, for reports of missing evidence.
    pub name: Arc<str>,
    /// How expensive it is to read: cheaper fields are read first.
    pub cost: u8,
}

/// The value of a missing field in Fibratus, by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Zero {
    Text,
    Number,
    Truth,
    Address,
    List,
}

impl Zero {
    /// The value by type.
    pub fn of(value_type: Type) -> Zero {
        match value_type {
            Type::Texts | Type::Elements(_) => Zero::List,
            Type::Number | Type::Decimal => Zero::Number,
            Type::Truth => Zero::Truth,
            Type::Address => Zero::Address,
            Type::Text | Type::Time | Type::Any => Zero::Text,
        }
    }
}

/// How a text fits a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PatternTest {
    /// A pattern with `*` and `?`.
    Glob { ignores_case: bool },
    /// The characters of the pattern occur in the text in their order.
    Fuzzy { ignores_case: bool, ignores_diacritics: bool },
}

/// A call of a function.
#[derive(Clone, Debug)]
pub(crate) struct Call<F> {
    pub function: &'static Function,
    pub arguments: Box<[Term<F>]>,
    pub prepared: Prepared,
}

/// What is computed once from constant arguments.
#[derive(Clone, Debug)]
pub(crate) enum Prepared {
    Nothing,
    Networks(Box<[Network]>),
    Expressions(RegexSet),
}

/// A call of `foreach`.
#[derive(Clone, Debug)]
pub(crate) struct ForEach<F> {
    pub elements: Term<F>,
    /// The predicate; its negation if the call is negated, so that the exceptions of the condition
    /// are those of the matcher.
    pub predicate: Matcher<Term<F>>,
    pub is_negated: bool,
}

/// Addresses with a common prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads `10.0.0.0/8` or `fe80::/10`.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Network { address, bits })
    }

    /// Whether an address has the prefix.
    pub fn contains(self, address: IpAddr) -> bool {
        let is_same = |one: u128, other: u128, width: u32| {
            let shift = width - u32::from(self.bits);
            // All addresses have a prefix of no bits.
            one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                is_same(u32::from(own).into(), u32::from(other).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => is_same(own.into(), other.into(), 128),
            _ => false,
        }
    }
}

impl<F> Term<F> {
    /// How expensive it is to read.
    pub fn cost(&self) -> u8 {
        let most = |terms: &[Term<F>]| terms.iter().map(Term::cost).max().unwrap_or(0);
        match self {
            Term::Field(field) | Term::Exists(field) => field.cost,
            Term::Bound { .. } | Term::Element { .. } => 0,
            Term::Text(_) | Term::Number(_) | Term::Decimal(_) | Term::Truth(_) => 0,
            Term::Holds(matcher) => most(matcher.fields()),
            Term::Call(call) => most(&call.arguments).saturating_add(1),
            Term::ForEach(each) => each.elements.cost().max(most(each.predicate.fields())).saturating_add(1),
            Term::Pattern { value, patterns, .. } => value.cost().max(most(patterns)).saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_addresses_with_their_prefix() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("1.2.3.4/32", "1.2.3.4", true),
            ("1.2.3.4/32", "1.2.3.5", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
            ("fe80::/10", "fe80::1", true),
            ("fe80::/10", "fec0::1", false),
        ] {
            let network = Network::parse(network).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network:?} {address}");
        }
        for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
