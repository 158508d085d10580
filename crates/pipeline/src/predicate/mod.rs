//! Filters over events: the one place where the [filter language](stackhound_expr) meets them.
//!
//! A [`Predicate`] is a filter whose names are resolved. It comes from text, as `--where` has it, or from a
//! [`Filter`] that was built in Rust with [`pred`](crate::pred); both are the same tree and mean the same. Does not know
//! how the fields of a payload are decoded.

mod field;
mod look_up;
mod shown;

use std::cell::Cell;

use stackhound_expr::{Error, Filter, Matcher, Undecided};
use stackhound_frames::RegionKind;
use stackhound_system::System;

use crate::event_view::EventView;
use crate::label::stem;
pub(crate) use field::PAYLOAD;
use field::{Cost, Name};

/// A filter that can be asked about events.
///
/// # Fields
///
/// | name | what it is | costs |
/// |---|---|---|
/// | `ts` `cpu` `id` `opcode` `version` | as in NDJSON | the header |
/// | `level` `keyword` `channel` `task` `flags` | of the header, as numbers; `level` also of classic events | the header |
/// | `activity` | the activity's GUID, if there is one | the header |
/// | `provider_guid` | GUID of provider or class | the header |
/// | `time` | UTC, RFC 3339 with seven digits of a second | the header |
/// | `stack.state` | how much of the stack there is | the header |
/// | `pid` `tid` `process` | of the event's owner; `process.name` is the same as `process` | the header; of kernel events without ids, the payload |
/// | `provider` | name, and GUID | the schema |
/// | `event` | name | the schema |
/// | `create.requested` `create.result` | of files' creations | – |
/// | `fields.NAME` | of the payload: a value, or each element of an array | the payload |
/// | `stack.module` | file name of each frame's module, also without its extension, and path | the stack |
/// | `stack.summary` `stack.contains_unbacked` `stack.final_user_module` | as in NDJSON | the stack |
/// | `stack.symbol` | all names of each frame's function, alone, after `module!` and as they are printed; `module+0x…` | names of functions |
///
/// What costs less is asked first, whatever the order of the text, so a filter whose header fields decide never decodes a
/// payload. GUIDs are lower case, without braces. A field of the payload is compared as what it is (numbers, text), and
/// where it is shown as something else (the name of a value, an address, a time), as that text too. An array of
/// characters is text.
///
/// A comparison allocates nothing, whichever encoding a text has; values that are shown as something else and take more
/// than 128 bytes then are the exception, as are events without a known name.
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

impl Predicate {
    /// Parses the text of a filter and resolves its names.
    ///
    /// # Errors
    /// What is wrong and where: see [`Error::render`].
    pub fn parse(text: &str) -> Result<Predicate, Error> {
        Predicate::new(&Filter::parse(text)?)
    }

    /// Resolves the names of a filter.
    ///
    /// # Errors
    /// [`Error::UnknownField`] if a name is no [field](Predicate#fields); of filters that were built, [`Error::TooDeep`] and
    /// [`Error::TooLong`].
    pub fn new(filter: &Filter) -> Result<Predicate, Error> {
        let names: Vec<&str> = field::NAMES.iter().map(|(name, _)| *name).collect();
        let as_printed = filter.tested_texts(field::SYMBOL).iter().any(|text| field::is_long(text.as_str()));
        let resolve = |name: &str| match Name::of(name) {
            Some(Name::StackSymbol) if as_printed => Some(Name::StackSymbolAsPrinted),
            other => other,
        };
        let matcher = filter.compile(&names, resolve)?.cheapest_first(|name| name.cost() as u8);
        Ok(Predicate { matcher, filter: filter.clone() })
    }

    /// Whether the event passes; what cannot be decided does not. Of an event that nobody describes, all fields of the
    /// payload are missing.
    pub fn matches(&self, view: &EventView<'_>) -> bool {
        self.decide(view) == Ok(true)
    }

    /// Whether the event passes.
    ///
    /// # Errors
    /// The missing field, if that leaves it open, by its place in [`names`](Predicate::names).
    pub fn decide(&self, view: &EventView<'_>) -> Result<bool, Undecided> {
        self.matcher.decide(|name, visit| look_up::look_up(view, name, visit))
    }

    /// The fields that are asked for, in the order of their first use.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.matcher.fields().iter().map(Name::text)
    }

    /// Whether the event passes, where that can be told.
    ///
    /// # Errors
    /// [`NoSchema`](stackhound_schema::Error::NoSchema) if fields of the payload are asked for, since nothing cheaper
    /// decided, and nobody describes the event.
    pub fn try_matches(&self, view: &EventView<'_>) -> Result<bool, stackhound_schema::Error> {
        let described = Cell::new(true);
        let matches = self.matcher.matches(|name, visit| {
            described.set(described.get() && (name.cost() != Cost::Payload || view.schema().is_some()));
            look_up::look_up(view, name, visit)
        });
        if described.get() { Ok(matches) } else { Err(stackhound_schema::Error::NoSchema) }
    }

    /// Whether names of functions are asked for: then they should be looked up ahead.
    pub fn names_functions(&self) -> bool {
        self.asks_for(Cost::Functions)
    }

    /// Whether fields of the payload are asked for, where nothing cheaper decides.
    pub fn needs_payload(&self) -> bool {
        self.asks_for(Cost::Payload)
    }

    /// What the filter wants modules to be called that no module of the system is: text of `stack.module`, and of
    /// `stack.symbol` what comes before `!`, such as `ntdl` of `ntdl!Nt*`.
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

    fn asks_for(&self, cost: Cost) -> bool {
        self.matcher.fields().iter().any(|name| name.cost() == cost)
    }
}
