//! Applies the policy to each event. The level of each kind of event is cached, so that names are
//! matched once.

use std::borrow::Cow;

use stackhound_etl::record::ExtendedType;
use stackhound_stacks::TriggerKind;
use stackhound_trace::Event;
use stackhound_types::Guid;

use crate::Map;
use crate::policy::{KernelSymbols, Level, OPEN, Policy};

/// The names of an event in the output of `stackhound events`.
#[derive(Clone, Debug)]
pub struct EventNames<'a> {
    /// The provider's name, or its GUID.
    pub provider: Cow<'a, str>,
    /// The event's name, or its substitute.
    pub event: Cow<'a, str>,
    /// Whether the names come from a schema. Other names are not cached, because a schema may
    /// follow.
    pub are_known: bool,
}

/// Maximum number of cached levels, for kinds of events and for names of self-describing events
/// each.
const KINDS_MAX: usize = 1 << 16;

/// A [`Policy`] with a cache: each kind of event is matched by name once, then looked up in a
/// table.
#[derive(Debug)]
pub struct Decisions {
    policy: Policy,
    kernel_symbols: KernelSymbols,
    /// For kernel events that do not open files.
    by_hook_id: Box<[Option<Level>]>,
    /// For kernel events that open files, which have few hook ids.
    opens: Map<u16, Level>,
    /// By kind, version, and whether the event opens a file.
    by_kind: Map<(TriggerKind, u8, bool), Level>,
    /// By provider and name, for self-describing events, which have no ids.
    by_name: Map<Guid, Map<Box<str>, Level>>,
    n_names: usize,
}

impl Decisions {
    /// Decisions of a policy, with an empty cache.
    pub fn new(policy: Policy) -> Decisions {
        Decisions {
            kernel_symbols: policy.kernel_symbols(),
            policy,
            by_hook_id: vec![None; 1 << 16].into_boxed_slice(),
            opens: Map::default(),
            by_kind: Map::default(),
            by_name: Map::default(),
            n_names: 0,
        }
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Level of detail for kernel stacks.
    pub fn kernel_symbols(&self) -> KernelSymbols {
        self.kernel_symbols
    }

    /// The level of an event. `is_open` means that it opens an existing file; see
    /// [`CreateJoin`](crate::CreateJoin). `names` is called at most once, and for most events
    /// never.
    #[inline]
    pub fn level<'n>(
        &mut self,
        event: &Event<'_>,
        is_open: bool,
        names: impl FnOnce() -> EventNames<'n>,
    ) -> Level {
        match event.hook_id() {
            Some(hook_id) if !is_open => match self.by_hook_id[usize::from(hook_id)] {
                Some(level) => level,
                None => self.match_hook_id(hook_id, &names()),
            },
            Some(hook_id) => match self.opens.get(&hook_id) {
                Some(&level) => level,
                None => self.match_open(hook_id, &names()),
            },
            None => self.level_of_other(event, is_open, names),
        }
    }

    #[cold]
    fn match_hook_id(&mut self, hook_id: u16, names: &EventNames<'_>) -> Level {
        let level = self.policy.level(&names.provider, &names.event);
        self.by_hook_id[usize::from(hook_id)] = Some(level);
        level
    }

    #[cold]
    fn match_open(&mut self, hook_id: u16, names: &EventNames<'_>) -> Level {
        let level = self.policy.level(&names.provider, &format!("{}{OPEN}", names.event));
        self.opens.insert(hook_id, level);
        level
    }

    fn level_of_other<'n>(
        &mut self,
        event: &Event<'_>,
        is_open: bool,
        names: impl FnOnce() -> EventNames<'n>,
    ) -> Level {
        let record = event.record();
        if event.kind().has_descriptor() && record.extended_items().find(ExtendedType::SCHEMA).is_some() {
            return self.level_of_named(record.guid().unwrap_or(Guid::ZERO), &names());
        }
        let key = (TriggerKind::of(event), record.version(), is_open);
        if let Some(&level) = self.by_kind.get(&key) {
            return level;
        }
        let names = names();
        let open = if is_open { OPEN } else { "" };
        let level = self.policy.level(&names.provider, &format!("{}{open}", names.event));
        if names.are_known && key.0 != TriggerKind::Other && self.by_kind.len() < KINDS_MAX {
            self.by_kind.insert(key, level);
        }
        level
    }

    fn level_of_named(&mut self, provider: Guid, names: &EventNames<'_>) -> Level {
        let known = self.by_name.get(&provider).and_then(|known| known.get(&*names.event));
        if let Some(&level) = known {
            return level;
        }
        let level = self.policy.level(&names.provider, &names.event);
        if self.n_names < KINDS_MAX {
            self.by_name.entry(provider).or_default().insert(Box::from(&*names.event), level);
            self.n_names += 1;
        }
        level
    }
}
