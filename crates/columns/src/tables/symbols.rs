//! The names of frames.

use std::collections::{HashMap, HashSet};

use rustc_hash::FxBuildHasher;
use stackhound_export::escape::json;
use stackhound_export::json::frame::Names;
use stackhound_pipeline::ShownName;
use stackhound_symbols::{Origin, Symbolizer};
use stackhound_types::{AddressKind, ModuleIdentity, Rva};

use super::{Pending, TableId};
use crate::rows::Rows;

columns! {
    pub(super) Columns {
        /// The module, in `modules`.
        module_id: number required UInt64,
        /// Offset in the module in bytes.
        rva: number required UInt64,
        /// As in `frames`.
        is_return: number required Flag,
        /// The best name of the function.
        name: text required,
        /// Bytes from the start of the function to the address.
        offset: number required UInt64,
        /// Source of the name: `pdb`, `export` or `nearest_export`.
        origin: text required,
        /// All names, the source line and inlined functions, as JSON: the keys of frames in `events`.
        names: text required,
    }
}

/// An address in a module, relative to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub module: u64,
    pub rva: Rva,
    pub kind: AddressKind,
}

/// The names of a place, as a row states them.
#[derive(Debug)]
pub(crate) struct Named {
    pub name: String,
    pub offset: u64,
    pub origin: String,
    pub names: String,
}

/// Collects the distinct places of frames in modules.
#[derive(Debug)]
pub(crate) struct Symbols {
    trace: u64,
    modules: HashMap<u64, ModuleIdentity, FxBuildHasher>,
    known: HashSet<Place, FxBuildHasher>,
    places: Vec<Place>,
}

impl Symbols {
    pub fn new(trace: u64) -> Symbols {
        Symbols { trace, modules: HashMap::default(), known: HashSet::default(), places: Vec::new() }
    }

    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Adds a place. `identity` is called for the first one of a module. Offsets that cannot be in
    /// an image have no names.
    pub fn add(
        &mut self,
        module: u64,
        rva: u64,
        kind: AddressKind,
        identity: impl FnOnce() -> ModuleIdentity,
    ) {
        let Ok(rva) = u32::try_from(rva) else { return };
        let place = Place { module, rva: Rva(rva), kind };
        if self.known.insert(place) {
            self.places.push(place);
            self.modules.entry(module).or_insert_with(identity);
        }
    }

    /// Names the places, and returns the rows of those with names. `known` has earlier names, which
    /// stay unless these are from a better source.
    pub fn rows(self, symbolizer: &mut Symbolizer, mut known: HashMap<Place, Named, FxBuildHasher>) -> Rows {
        let Pending { mut rows, columns: c, .. } = Pending::new(TableId::Symbols, Columns::of, self.trace);
        let mut numbers = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let module = symbolizer.module(&self.modules[&place.module]);
            numbers.push(symbolizer.request(module, place.rva, place.kind));
        }
        symbolizer.wait();
        for (place, number) in self.places.into_iter().zip(numbers) {
            let resolved = symbolizer.frame(number);
            let name = resolved.and_then(|resolved| Some((resolved, ShownName::of_files(resolved)?)));
            let old = known.remove(&place).filter(|old| match &name {
                Some((_, name)) => rank(&old.origin) < rank(name.origin.name()),
                None => true,
            });
            if old.is_none() && name.is_none() {
                continue;
            }
            rows.begin();
            rows.number(c.module_id, place.module);
            rows.number(c.rva, place.rva.0);
            rows.number(c.is_return, place.kind == AddressKind::Return);
            if let Some(old) = old {
                rows.text(c.name, &old.name);
                rows.number(c.offset, old.offset);
                rows.text(c.origin, &old.origin);
                rows.text(c.names, &old.names);
            } else if let Some((resolved, name)) = name {
                rows.text(c.name, &name.text);
                rows.number(c.offset, name.offset);
                rows.text(c.origin, name.origin.name());
                rows.bytes(c.names, |bytes| json(bytes, &Names::new(resolved)));
            }
        }
        rows
    }
}

/// The better a source is, the smaller. Unknown ones come last.
fn rank(origin: &str) -> (bool, Option<Origin>) {
    let origin = Origin::from_name(origin);
    (origin.is_none(), origin)
}
