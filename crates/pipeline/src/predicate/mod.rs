//! Event filters: applies the [filter language](stackhound_expr) to events.
//!
//! A [`Predicate`] is a filter whose names are resolved. It is parsed from text, as for `--where`,
//! or created from a [`Filter`] that was built in Rust with [`pred`](crate::pred); both have the
//! same tree and the same meaning. This module does not decode payloads.

mod fact;
mod field;
mod look_up;
mod shown;

use std::cell::Cell;
use std::ops::ControlFlow;

use stackhound_expr::{Error, Filter, Matcher, Undecided, Visitor};
use stackhound_frames::RegionKind;
use stackhound_system::System;

use crate::event_view::EventView;
use crate::facts::Missing;
use crate::label::stem;
pub use fact::{Fact, FactSubject, visit_fact};
pub(crate) use field::PAYLOAD;
use field::{Cost, Name};

/// A filter that can be evaluated for events.
///
/// # Fields
///
/// | name | value | requires |
/// |---|---|---|
/// | `ts` `cpu` `id` `opcode` `version` | as in NDJSON | the header |
/// | `level` `keyword` `channel` `task` `flags` | from the header, as numbers; `level` also for classic events | the header |
/// | `activity` | the activity's GUID, if there is one | the header |
/// | `provider_guid` | GUID of provider or class | the header |
/// | `provider` | name and GUID of provider or class | the header |
/// | `time` | UTC, RFC 3339 with seven digits of a second | the header |
/// | `stack.state` | completeness of the stack | the header |
/// | `pid` `tid` `process` | process and thread of the event; `process.name` is the same as `process` | the header; for kernel events without IDs, the payload |
/// | `event` | name | the schema |
/// | `create.requested` `create.result` | of file creations | – |
/// | `process.path` `process.command_line` `process.parent.pid` `process.parent.name` `process.parent.path` | program and parent of the process | the state |
/// | `process.user` `process.user.sid` `process.user.name` `process.session` `process.integrity` | on whose behalf it runs; `process.user` is the name and the SID | the state |
/// | `process.start_time` `process.entity` | RFC 3339; identity among processes with the same id | the state |
/// | `process.image.time_date_stamp` `process.image.size` `process.image.pdb.name` `process.image.pdb.guid` | identity of the program's files | the state |
/// | `thread.start_address` `thread.start_module` `thread.start_rva` | start of the thread; the module as for `stack.module` | the state |
/// | `file.path` `file.name` `registry.path` `registry.value` | the file, the key or the value that the event is about | the state, the payload |
/// | `target.pid` `target.tid` `target.process.…` `target.thread.…` | the process and thread that the event acts on, if they are others | the state, the payload |
/// | `fields.NAME` | a field of the payload: a value, or each element of an array | the payload |
/// | `stack.module` | file name of each frame's module, also without its extension, and path | the stack |
/// | `stack.summary` `stack.kernel_summary` `stack.contains_unbacked` `stack.final_user_module` `stack.final_kernel_module` | as in NDJSON | the stack |
/// | `stack.frame.backing` `stack.frame.region.kind` `.base` `.size` `.protection` | of each frame, as in NDJSON; regions of user frames | the stack |
/// | `stack.frame.call_site.instruction` | the call before each return address | images |
/// | `syscall.completion` `syscall.status` `syscall.duration` | of system calls, as in NDJSON | – |
/// | `syscall.service` | name of the service | function names |
/// | `stack.symbol` | all names of each frame's function, alone, after `module!` and as printed; `module+0x…` | function names |
///
/// Cheaper fields are evaluated first, regardless of their order in the text, so a filter that is
/// decided by header fields never decodes a payload. GUIDs are lower case, without braces. A field
/// of the payload is compared by its value (number or text) and, if it is displayed differently (as
/// the name of a value, an address or a time), also by its displayed text. An array of characters
/// is text.
///
/// A comparison does not allocate, regardless of the encoding of text. Exceptions are values whose
/// displayed text takes more than 128 bytes, and events without a known name.
///
/// ```
/// use stackhound_pipeline::{Predicate, pred};
///
/// let parsed = Predicate::parse("id = 10 and fields.daddr = '10.0.0.1'")?;
/// let built = Predicate::new(&(pred::id_is(10) & pred::property("daddr").equals("10.0.0.1")))?;
/// assert!(parsed.needs_payload() && built.needs_payload());
///
/// let error = Predicate::parse("lvel <= 3").unwrap_err();
/// assert_eq!(error.to_string(), "unknown field `lvel`, did you mean `level`?");
/// # Ok::<(), stackhound_expr::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Predicate {
    matcher: Matcher<Name>,
    filter: Filter,
}

/// One field of filters, to read its values without a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterField(Name);

impl FilterField {
    /// The names of all [fields](Predicate#fields) but those of payloads.
    pub fn names() -> impl Iterator<Item = &'static str> {
        field::NAMES.iter().map(|(name, _)| *name).chain(Fact::names())
    }

    /// The [field](Predicate#fields) with a name.
    pub fn of(name: &str) -> Option<FilterField> {
        Name::of(name).map(FilterField)
    }

    /// Passes all values that an event has for the field to `visit`.
    pub fn visit(&self, view: &EventView<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        look_up::look_up(view, &self.0, visit)
    }

    /// How expensive it is to read, from 0.
    pub fn cost(&self) -> u8 {
        self.0.cost() as u8
    }
}

impl Predicate {
    /// Parses the text of a filter and resolves its names.
    ///
    /// # Errors
    /// The error and its position: see [`Error::render`].
    pub fn parse(text: &str) -> Result<Predicate, Error> {
        Predicate::new(&Filter::parse(text)?)
    }

    /// Resolves the names of a filter.
    ///
    /// # Errors
    /// [`Error::UnknownField`] if a name is not a [field](Predicate#fields); for filters built in
    /// Rust, also [`Error::TooDeep`] and [`Error::TooLong`].
    pub fn new(filter: &Filter) -> Result<Predicate, Error> {
        let names: Vec<&str> = FilterField::names().collect();
        let as_printed = filter.tested_texts(field::SYMBOL).iter().any(|text| field::is_long(text.as_str()));
        let resolve = |name: &str| match Name::of(name) {
            Some(Name::StackSymbol) if as_printed => Some(Name::StackSymbolAsPrinted),
            other => other,
        };
        let matcher = filter.compile(&names, resolve)?.cheapest_first(|name| name.cost() as u8);
        Ok(Predicate { matcher, filter: filter.clone() })
    }

    /// Whether the event passes. An undecided event does not pass. If no schema is known for the
    /// event, all fields of the payload are missing.
    pub fn matches(&self, view: &EventView<'_>) -> bool {
        self.decide(view) == Ok(true)
    }

    /// Whether the event passes.
    ///
    /// # Errors
    /// The missing field if the result depends on it, as an index into [`names`](Predicate::names).
    pub fn decide(&self, view: &EventView<'_>) -> Result<bool, Undecided> {
        self.matcher.decide(|name, visit| look_up::look_up(view, name, visit))
    }

    /// The reason why an event does not have a field, by its index in
    /// [`names`](Predicate::names); `None` if the event has it, and for fields that are not facts
    /// of the state.
    pub fn missing(&self, view: &EventView<'_>, field: usize) -> Option<Missing> {
        let fact = match self.matcher.fields().get(field)? {
            Name::Fact(fact) => *fact,
            Name::Process => Fact::of("process.name")?,
            _ => return None,
        };
        fact.missing(view)
    }

    /// The fields that the filter uses, in the order of their first use.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.matcher.fields().iter().map(Name::text)
    }

    /// Whether the event passes, if that can be decided.
    ///
    /// # Errors
    /// [`NoSchema`](stackhound_schema::Error::NoSchema) if the filter needs fields of the payload,
    /// because no cheaper field decides, and no schema is known for the event.
    pub fn try_matches(&self, view: &EventView<'_>) -> Result<bool, stackhound_schema::Error> {
        let has_schema = Cell::new(true);
        let matches = self.matcher.matches(|name, visit| {
            has_schema.set(has_schema.get() && (name.cost() != Cost::Payload || view.schema().is_some()));
            look_up::look_up(view, name, visit)
        });
        if has_schema.get() { Ok(matches) } else { Err(stackhound_schema::Error::NoSchema) }
    }

    /// Whether the filter uses function names: they should then be looked up in advance.
    pub fn names_functions(&self) -> bool {
        self.uses(Cost::Functions)
    }

    /// Whether the filter uses the code of images: they should then be read.
    pub fn reads_code(&self) -> bool {
        self.matcher.fields().contains(&Name::Frame(field::FrameFact::Call))
    }

    /// Whether the filter uses fields of the payload, unless a cheaper field decides.
    pub fn needs_payload(&self) -> bool {
        self.uses(Cost::Payload)
    }

    /// The module names in the filter that match no module of the system: text of `stack.module`,
    /// and the part before `!` in text of `stack.symbol`, such as `ntdl` in `ntdl!Nt*`.
    pub fn unknown_modules(&self, system: &System) -> Vec<String> {
        let names = || {
            let modules = system.modules().flat_map(|module| [module.file_name(), module.path()]);
            let runtimes = system.methods().map(|method| RegionKind::Jit(method.runtime()).name());
            modules.chain(runtimes).flat_map(|name| [Some(name), stem(name)]).flatten()
        };
        let functions = self.filter.tested_texts(field::SYMBOL).into_iter();
        let modules = functions
            .filter_map(|function| function.before('!'))
            .chain(self.filter.tested_texts(field::MODULE))
            .filter(|module| module.is_whole() && !module.fits_any(names()));
        modules.map(|module| module.as_str().to_owned()).collect()
    }

    fn uses(&self, cost: Cost) -> bool {
        self.matcher.fields().iter().any(|name| name.cost() == cost)
    }
}
