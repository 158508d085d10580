//! The types of values in conditions.

use strum::IntoStaticStr;

/// The type of a field or another value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// A text.
    Text,
    /// An integer.
    Number,
    /// A fraction.
    Decimal,
    /// `true` or `false`.
    Truth,
    /// An IP address.
    Address,
    /// A time.
    Time,
    /// Several texts.
    Texts,
    /// Elements with parts, which only `foreach` can visit.
    Elements(Elements),
    /// A type that depends on the argument.
    Any,
}

/// The elements that `foreach` visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Elements {
    /// The frames of the stack.
    Frames,
    /// The modules of the process.
    Modules,
    /// The threads of the process.
    Threads,
    /// The memory-mapped files of the process.
    #[strum(serialize = "mapped files")]
    Mappings,
    /// The parent of the process, its parent, and so on.
    Ancestors,
    /// The sections of the program's file.
    Sections,
}

impl Type {
    /// The type with a name in the table of fields.
    pub(crate) fn of(name: &str) -> Option<Type> {
        Some(match name {
            "text" => Type::Text,
            "number" => Type::Number,
            "fraction" => Type::Decimal,
            "truth" => Type::Truth,
            "address" => Type::Address,
            "time" => Type::Time,
            "texts" => Type::Texts,
            "any" => Type::Any,
            "frames" => Type::Elements(Elements::Frames),
            "modules" => Type::Elements(Elements::Modules),
            "threads" => Type::Elements(Elements::Threads),
            "mappings" => Type::Elements(Elements::Mappings),
            "ancestors" => Type::Elements(Elements::Ancestors),
            "sections" => Type::Elements(Elements::Sections),
            _ => return None,
        })
    }

    /// The type for people.
    pub fn name(self) -> &'static str {
        match self {
            Type::Text => "a text",
            Type::Number => "a number",
            Type::Decimal => "a fraction",
            Type::Truth => "true or false",
            Type::Address => "an address",
            Type::Time => "a time",
            Type::Texts => "a list of texts",
            Type::Elements(elements) => elements.name(),
            Type::Any => "a value",
        }
    }
}

impl Elements {
    /// The elements for people.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
