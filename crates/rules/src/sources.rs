//! Where events state the values of fields, as the table of fields (`fields.txt`) has it. The readers
//! of events interpret it.

use crate::names::{self, Names};

/// A field of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadSource {
    /// The name of the field.
    pub name: &'static str,
    /// How rules spell it.
    pub form: PayloadForm,
}

/// How rules spell a field of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadForm {
    /// As a number.
    Number,
    /// As a text.
    Text,
    /// In hexadecimal digits.
    Hex,
    /// `Success`, or something else.
    Status,
    /// The name of some bits: how far they are shifted, and a mask.
    Name(Names, u32, u64),
    /// Names of flags after a shift, joined with `|`.
    Flags(Names, u32),
    /// Names of flags, one by one.
    FlagList(Names),
    /// Parts between semicolons.
    Parts,
    /// Whether it is not 0.
    IsSet,
}

/// Data of events of Windows logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSource {
    /// The names of the value in the data, of which the first one that is there counts.
    pub names: &'static [&'static str],
    /// How rules spell it.
    pub form: DataForm,
}

/// How rules spell a text of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataForm {
    /// As it is.
    Text,
    /// The file name of a path.
    FileName,
    /// The extension of a path with its dot.
    Extension,
    /// In upper case.
    Upper,
    /// The part before a backslash.
    Domain,
    /// The part after a backslash.
    User,
    /// Registry paths with the long names of roots.
    Registry,
    /// Names of flags, one by one.
    FlagList(Names),
    /// Hexadecimal digits without `0x`.
    Hex,
    /// Arguments of a command line.
    Arguments,
    /// `true` and `false`.
    Truth,
    /// Whether a signature is valid.
    IsValid,
    /// Parts between semicolons.
    Parts,
    /// Paths of the modules in a stack.
    StackModules,
    /// The file names of adjacent modules in a stack.
    StackSummary,
    /// Whether a frame of the stack is in no module.
    IsUnbacked,
    /// Always this text.
    Constant(&'static str),
}

impl PayloadSource {
    /// The source in a row: `NAME`, or `NAME:FORM` with a list of names, a shift and a number of bits.
    pub(crate) fn read(text: &'static str) -> Option<PayloadSource> {
        let mut words = text.split(':');
        let name = words.next()?;
        let form = words.next().unwrap_or("text");
        let list = words.next().and_then(names::list);
        let shift = words.next().map_or(Some(0), |shift| shift.parse().ok())?;
        let bits: u32 = words.next().map_or(Some(u64::BITS), |bits| bits.parse().ok())?;
        let form = match form {
            "number" => PayloadForm::Number,
            "text" => PayloadForm::Text,
            "hex" => PayloadForm::Hex,
            "status" => PayloadForm::Status,
            "name" => PayloadForm::Name(list?, shift, u64::MAX >> (u64::BITS - bits)),
            "flags" => PayloadForm::Flags(list?, shift),
            "flag-list" => PayloadForm::FlagList(list?),
            "parts" => PayloadForm::Parts,
            _ => return None,
        };
        Some(PayloadSource { name, form })
    }
}

impl DataSource {
    /// The source in a row: `NAME,NAME`, or `NAME:FORM` with a list of names or a text.
    pub(crate) fn read(text: &'static str) -> Option<DataSource> {
        let mut words = text.split(':');
        let names: Vec<&str> = words.next()?.split(',').filter(|name| *name != "-").collect();
        let form = match words.next().unwrap_or("text") {
            "text" => DataForm::Text,
            "file-name" => DataForm::FileName,
            "extension" => DataForm::Extension,
            "upper" => DataForm::Upper,
            "user" => DataForm::User,
            "registry" => DataForm::Registry,
            "flag-list" => DataForm::FlagList(names::list(words.next()?)?),
            "hex" => DataForm::Hex,
            "arguments" => DataForm::Arguments,
            "truth" => DataForm::Truth,
            "is-valid" => DataForm::IsValid,
            "parts" => DataForm::Parts,
            "stack-modules" => DataForm::StackModules,
            "stack-summary" => DataForm::StackSummary,
            "is-unbacked" => DataForm::IsUnbacked,
            "constant" => DataForm::Constant(words.next()?),
            _ => return None,
        };
        Some(DataSource { names: names.leak(), form })
    }

    /// Whether the field is the value itself, not a part of it or a conclusion.
    pub(crate) fn is_whole(&self) -> bool {
        use DataForm::{Hex, Parts, Text, Truth, Upper};
        matches!(self.form, Text | Upper | Hex | Truth | Parts)
    }
}
