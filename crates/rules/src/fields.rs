//! The fields of conditions, by the names that Fibratus gives them.
//!
//! The table (`fields.txt`) also has the names of the same values in filters, which are the names of
//! this project.

use std::collections::HashMap;
use std::sync::LazyLock;

use stackhound_facts::{FactId, ProcessFact};

use crate::needs::{Need, Needs};
use crate::sources::{DataSource, PayloadSource};
use crate::types::{Elements, Type};

/// A field.
#[derive(Debug, PartialEq)]
pub struct Field {
    /// The current name in conditions.
    pub name: &'static str,
    /// The name of the field with the same value for all readers; mostly its own.
    pub canonical_name: &'static str,
    /// The type of its value.
    pub value_type: Type,
    /// What it needs in addition to the event.
    pub needs: Needs,
    /// The field of filters with the same value, if there is one.
    pub filter_field: Option<&'static str>,
    /// The field of payloads with the value, if there is one.
    pub payload: Option<PayloadSource>,
    /// The data of Windows logs with the value, if there is any. The catalogue of facts has it for
    /// facts about processes.
    pub data: Option<DataSource>,
    /// Whether it needs a name or a number in brackets.
    pub takes_argument: bool,
}

/// A part of an element that `foreach` visits.
#[derive(Debug, PartialEq)]
pub struct Part {
    /// The name after the variable.
    pub name: &'static str,
    /// The type of its value.
    pub value_type: Type,
    /// What it needs in addition to the elements.
    pub needs: Needs,
}

const fn part_of(name: &'static str, value_type: Type, needs: Needs) -> Part {
    Part { name, value_type, needs }
}

const fn plain(name: &'static str, value_type: Type) -> Part {
    part_of(name, value_type, Needs::NONE)
}

const SIGNATURES: Needs = Needs::of(Need::Signatures);
const DETAILS: Needs = Needs::of(Need::ProcessDetails);
const MEMORY: Needs = Needs::of(Need::LiveMemory);

use Type::{Decimal, Number, Text, Texts, Truth};

static FRAME: [Part; 13] = [
    plain("address", Text),
    plain("offset", Number),
    part_of("symbol", Text, Needs::of(Need::FunctionNames)),
    plain("module", Text),
    part_of("allocation_size", Number, MEMORY),
    part_of("protection", Text, MEMORY),
    plain("is_unbacked", Truth),
    part_of("callsite_leading_assembly", Text, MEMORY),
    part_of("callsite_trailing_assembly", Text, MEMORY),
    part_of("module.signature.exists", Truth, SIGNATURES),
    part_of("module.signature.trusted", Truth, SIGNATURES),
    part_of("module.signature.issuer", Text, SIGNATURES),
    part_of("module.signature.subject", Text, SIGNATURES),
];

static PROCESS: [Part; 13] = [
    plain("name", Text),
    plain("pid", Number),
    plain("cmdline", Text),
    plain("exe", Text),
    plain("args", Texts),
    part_of("cwd", Text, Needs::of(Need::LiveSystem)),
    plain("sid", Text),
    plain("sessionid", Number),
    plain("username", Text),
    plain("domain", Text),
    part_of("token.integrity_level", Text, DETAILS),
    part_of("token.is_elevated", Truth, DETAILS),
    part_of("token.elevation_type", Text, DETAILS),
];

static THREAD: [Part; 6] = [
    plain("tid", Number),
    plain("start_address", Text),
    plain("user_stack_base", Text),
    plain("user_stack_limit", Text),
    plain("kernel_stack_base", Text),
    plain("kernel_stack_limit", Text),
];

static MODULE: [Part; 5] = [
    plain("path", Text),
    plain("name", Text),
    plain("address", Text),
    plain("size", Number),
    plain("checksum", Number),
];

static MAPPING: [Part; 5] = [
    plain("address", Text),
    plain("type", Text),
    plain("size", Number),
    plain("protection", Text),
    plain("path", Text),
];

static SECTION: [Part; 4] =
    [plain("name", Text), plain("size", Number), plain("entropy", Decimal), plain("md5", Text)];

/// A part of elements, by its name.
///
/// # Errors
/// All names if there is no such part.
pub(crate) fn part(elements: Elements, name: &str) -> Result<&'static Part, Vec<&'static str>> {
    let parts: &'static [Part] = match elements {
        Elements::Frames => &FRAME,
        Elements::Modules => &MODULE,
        Elements::Threads => &THREAD,
        Elements::Mappings => &MAPPING,
        Elements::Ancestors => &PROCESS,
        Elements::Sections => &SECTION,
    };
    let found = parts.iter().find(|part| part.name == name);
    found.ok_or_else(|| parts.iter().map(|part| part.name).collect())
}

const TEXT: &str = include_str!("fields.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::default();
    for line in TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        table.add(line).unwrap_or_else(|| panic!("fields.txt: {line}"));
    }
    table
});

#[derive(Default)]
struct Table {
    /// Fields by all their names.
    fields: HashMap<&'static str, &'static Field>,
    /// By the argument of `evt.arg`.
    arguments: HashMap<&'static str, &'static Field>,
    /// By the names of their values in data of Windows logs.
    data: HashMap<&'static str, &'static Field>,
}

impl Table {
    fn add(&mut self, line: &'static str) -> Option<()> {
        let (name, field) = match line.split_once(" = ") {
            Some((other, name)) => (other, *self.fields.get(name)?),
            None => {
                let field: &Field = Box::leak(Box::new(self.read(line)?));
                (field.name, field)
            }
        };
        if let Some(argument) = name.strip_prefix("evt.arg[") {
            self.arguments.insert(argument.strip_suffix(']')?, field);
            return Some(());
        }
        self.fields.insert(name, field);
        for name in field.data.iter().filter(|data| data.is_whole()).flat_map(|data| data.names) {
            self.data.entry(name).or_insert(field);
        }
        Some(())
    }

    fn read(&self, line: &'static str) -> Option<Field> {
        if let Some((name, other)) = line.split_once(" like ") {
            return Some(Field { name, ..**self.fields.get(other)? });
        }
        let mut words = line.split(' ');
        let (name, value_type, needs, ours) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let needs = match needs {
            "-" => Needs::NONE,
            list => {
                let mut needs = list.split(',').map(Need::of);
                needs.try_fold(Needs::NONE, |all, need| Some(all.with(Needs::of(need?))))?
            }
        };
        let of_process = || {
            let fact = ProcessFact::with_alias(name.strip_prefix("ps.")?)?;
            Some(&*Box::leak(format!("process.{}", fact.row().path).into_boxed_str()))
        };
        let mut field = Field {
            name,
            canonical_name: name,
            value_type: Type::of(value_type)?,
            needs,
            filter_field: Some(ours).filter(|name| *name != "-").or_else(of_process),
            payload: None,
            data: None,
            takes_argument: false,
        };
        for word in words {
            match word.split_once('=') {
                Some(("payload", source)) => field.payload = Some(PayloadSource::read(source)?),
                Some(("data", source)) => field.data = Some(DataSource::read(source)?),
                None if word == "[]" => field.takes_argument = true,
                None if word == "[?]" => {}
                _ => return None,
            }
        }
        Some(field)
    }
}

impl Field {
    /// The field with a current or older name.
    pub fn of(name: &str) -> Option<&'static Field> {
        TABLE.fields.get(name).copied()
    }

    /// The field with the same value as `evt.arg` with an argument.
    pub fn of_argument(argument: &str) -> Option<&'static Field> {
        TABLE.arguments.get(argument).copied()
    }

    /// The field with the value that has this name in data of Windows logs.
    pub fn of_data(name: &str) -> Option<&'static Field> {
        TABLE.data.get(name).copied()
    }

    /// The current names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        TABLE.fields.iter().filter(|(name, field)| **name == field.name).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::PayloadForm;

    #[test]
    fn the_table_is_complete() {
        assert_eq!((Field::names().count(), TABLE.fields.len()), (251, 323));
        assert_eq!(Field::of("image.base.address").unwrap().name, "module.base");
        assert_eq!(Field::of("ps.name").unwrap().filter_field, Some("process.name"));
        let symbols = Field::of("thread.callstack.symbols").unwrap();
        assert!(symbols.needs.has(Need::Stacks) && symbols.needs.has(Need::FunctionNames));
        assert_eq!(Field::of("thread._callstack").unwrap().value_type, Type::Elements(Elements::Frames));
        assert!(Field::of("evt.arg").unwrap().takes_argument);
    }

    #[test]
    fn fields_are_found_by_what_events_state() {
        let dll = Field::of("dll.base").unwrap();
        assert_eq!((dll.name, dll.canonical_name), ("dll.base", "module.base"));
        assert_eq!(dll.payload, Some(PayloadSource { name: "ImageBase", form: PayloadForm::Hex }));
        assert_eq!(Field::of_argument("dip").unwrap().name, "net.dip");
        assert_eq!(Field::of_data("TargetFilename").unwrap().name, "file.path");
        // The name of the user is only a part of it.
        assert_eq!(Field::of_data("ParentUser"), None);
    }

    #[test]
    fn parts_are_found_by_name() {
        assert_eq!(part(Elements::Frames, "symbol").unwrap().value_type, Type::Text);
        let known = part(Elements::Sections, "symbol").unwrap_err();
        assert_eq!(known, ["name", "size", "entropy", "md5"]);
    }
}
