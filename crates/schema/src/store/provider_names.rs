//! The names of providers: the one place that answers which name belongs to a GUID.
//!
//! A name depends only on the GUID, never on the event, so all events of a provider have one name,
//! whether or not their fields are known. A name does not change once it is known.

use std::sync::{Arc, LazyLock};

use foldhash::HashMap;
use stackhound_types::Guid;

use crate::{builtin, kernel};

/// The names that do not depend on a trace: of kernel classes and of built-in providers.
static BUILT_IN: LazyLock<HashMap<Guid, Arc<str>>> = LazyLock::new(|| {
    let names = kernel::classes().chain(builtin::names());
    names.map(|(guid, name)| (guid, name.into())).collect()
});

/// The built-in names, and those that descriptions and the traits of events contain.
#[derive(Clone, Debug, Default)]
pub(super) struct ProviderNames {
    learned: HashMap<Guid, Arc<str>>,
}

impl ProviderNames {
    /// The name of a provider or class. Built-in names are preferred, so that a provider has the
    /// same name in every trace; merging tools give all kernel classes the name of their session.
    pub fn get(&self, provider: Guid) -> Option<&Arc<str>> {
        BUILT_IN.get(&provider).or_else(|| self.learned.get(&provider))
    }

    /// The learned provider with this name, ignoring the case of ASCII letters. If there are
    /// several, the lowest GUID is returned.
    pub fn find_learned(&self, name: &str) -> Option<Guid> {
        let named = self.learned.iter().filter(|(_, known)| known.eq_ignore_ascii_case(name));
        named.map(|(guid, _)| *guid).min()
    }

    /// Adds the name of a provider that has none.
    pub fn insert(&mut self, provider: Guid, name: &str) {
        self.learned.insert(provider, name.into());
    }

    /// The approximate memory that a name takes.
    pub fn approximate_bytes(name: &str) -> usize {
        size_of::<(Guid, Arc<str>)>() + 2 * size_of::<usize>() + name.len()
    }
}
