//! The policy's answer for each event, without looking at names again.

use std::borrow::Cow;

use hashbrown::HashMap;
use stackhound_etl::record::ExtendedType;
use stackhound_schema::kernel;
use stackhound_stacks::TriggerKind;
use stackhound_trace::Event;
use stackhound_types::Guid;

use crate::policy::{KernelSymbols, Level, OPEN, Policy};

/// What `stackhound events` calls an event.
#[derive(Clone, Debug)]
pub struct EventNames<'a> {
    /// The provider's name, or its GUID.
    pub provider: Cow<'a, str>,
    /// The event's name, or what stands for one.
    pub event: Cow<'a, str>,
    /// Whether the names come from a schema. Others are asked for again the next time: a schema may come.
    pub are_known: bool,
}

/// Kinds of events, and names of events that describe themselves, whose level is remembered.
const KINDS_MAX: usize = 1 << 16;

/// The provider that `stackhound events` names for kernel events.
const KERNEL: &str = "Kernel";

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A [`Policy`] for use: each kind of event is matched by name once, then found in a table.
#[derive(Debug)]
pub struct Decisions {
    policy: Policy,
    kernel_symbols: KernelSymbols,
    /// By hook, for what is no open.
    by_hook_id: Box<[Option<Level>]>,
    /// By hook, for opens: there are few kinds.
    opens: Map<u16, Level>,
    /// By kind, version, and whether it is an open.
    by_kind: Map<(TriggerKind, u8, bool), Level>,
    /// By provider and name, of events that describe themselves: these have no ids.
    by_name: Map<Guid, Map<Box<str>, Level>>,
    n_names: usize,
}

impl Decisions {
    /// Uses a policy.
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

    /// The policy itself.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How much of kernel parts is named.
    pub fn kernel_symbols(&self) -> KernelSymbols {
        self.kernel_symbols
    }

    /// The level of an event. `is_open` says that it opens a file that is there already; see
    /// [`CreateJoin`](crate::CreateJoin). `names` is asked at most once, and for most events never.
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
                None => self.meet_hook_id(hook_id),
            },
            Some(hook_id) => match self.opens.get(&hook_id) {
                Some(&level) => level,
                None => self.meet_open(hook_id),
            },
            None => self.level_of_other(event, is_open, names),
        }
    }

    #[cold]
    fn meet_hook_id(&mut self, hook_id: u16) -> Level {
        let level = self.policy.level(KERNEL, &hook_id_name(hook_id));
        self.by_hook_id[usize::from(hook_id)] = Some(level);
        level
    }

    #[cold]
    fn meet_open(&mut self, hook_id: u16) -> Level {
        let level = self.policy.level(KERNEL, &(hook_id_name(hook_id).into_owned() + OPEN));
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

fn hook_id_name(hook_id: u16) -> Cow<'static, str> {
    kernel::name(hook_id).map_or_else(|| Cow::Owned(format!("Hook({hook_id:#06x})")), Cow::Borrowed)
}
