//! Which events get stacks, and how much of them is named: plain data that a config file can change.
//!
//! A [`Policy`] is the built-in statements with those of files on top, each with its [`Origin`].
//! [`Decisions`](crate::Decisions) answers with it for each event.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::pattern::{EventMatcher, EventPattern};

/// How much of a stack is named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The event gets no stack.
    None,
    /// Modules and offsets in them, from the state of the process only: the cheap way for events of high volume.
    Modules,
    /// Functions too.
    Full,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 3] = [Level::None, Level::Modules, Level::Full];

    /// The spelling in config files.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Modules => "modules",
            Level::Full => "full",
        }
    }
}

/// How much of a stack's kernel part is named, at most: an event's [`Level`] can be lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelSymbols {
    /// Addresses only.
    Off,
    /// Modules and offsets in them.
    Modules,
    /// Functions too.
    Full,
}

impl KernelSymbols {
    /// The spelling in config files.
    pub fn name(self) -> &'static str {
        match self {
            KernelSymbols::Off => "off",
            KernelSymbols::Modules => "modules",
            KernelSymbols::Full => "full",
        }
    }
}

/// Who made a statement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// Nobody: it is built in.
    Default,
    /// A file or argument, as the user named it.
    Named(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Named(name) => f.write_str(name),
        }
    }
}

/// What one file states; all of it may be left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyText {
    /// See [`KernelSymbols`].
    pub kernel_symbols: Option<KernelSymbols>,
    /// The level of all events that fit a pattern and none that is more specific.
    pub events: BTreeMap<EventPattern, Level>,
}

/// One statement of a [`Policy`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting<'p> {
    /// As in a config file: `kernel_symbols`, `events."Process/Start"`.
    pub key: String,
    /// As in a config file.
    pub value: &'static str,
    /// Who made it.
    pub origin: &'p Origin,
}

/// Statements of one origin, the most specific pattern first.
#[derive(Clone, Debug)]
struct Layer {
    origin: Origin,
    kernel_symbols: Option<KernelSymbols>,
    events: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: EventPattern,
    matcher: EventMatcher,
    level: Level,
}

impl Layer {
    fn new(text: PolicyText, origin: Origin) -> Layer {
        let rule = |(pattern, level): (EventPattern, Level)| {
            let matcher = pattern.matcher();
            Rule { pattern, matcher, level }
        };
        let mut events: Vec<Rule> = text.events.into_iter().map(rule).collect();
        events.sort_by_key(|rule| Reverse(rule.pattern.specificity()));
        Layer { origin, kernel_symbols: text.kernel_symbols, events }
    }
}

/// What stands behind the name of a file event that opens what is there already.
pub const OPEN: &str = "(open)";

const AUDIT: &str = "Microsoft-Windows-Kernel-Audit-API-Calls";

/// The events that get all names unless a file says otherwise.
const FULL: [&str; 26] = [
    "Process/Start",
    "Thread/Start",
    "Thread/End",
    "Image/Load",
    "Registry/Create",
    "Registry/Delete",
    "Registry/SetValue",
    "Registry/DeleteValue",
    "FileIo/Create",
    "FileIo/CreateNew",
    "FileIo/Delete",
    "FileIo/DeletePath",
    "FileIo/Rename",
    "FileIo/RenamePath",
    "PageFault/VirtualAlloc",
    "ThreadPool/*",
    "Microsoft-Windows-Kernel-Process:ProcessStart/Start",
    "Microsoft-Windows-Kernel-Process:ThreadStart/Start",
    "Microsoft-Windows-Kernel-Process:ThreadStop/Stop",
    "Microsoft-Windows-Kernel-Process:ImageLoad",
    "Microsoft-Windows-Kernel-File:Create",
    "Microsoft-Windows-Kernel-File:CreateNewFile",
    "Microsoft-Windows-Kernel-File:SetDelete",
    "Microsoft-Windows-Kernel-File:DeletePath",
    "Microsoft-Windows-Kernel-File:Rename",
    "Microsoft-Windows-Kernel-File:RenamePath",
];

/// Who may do what, decided by name.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The one that counts most last; never empty.
    layers: Vec<Layer>,
}

impl Default for Policy {
    fn default() -> Policy {
        let pattern = |text: &str| EventPattern::new(text).expect("a built-in pattern");
        let mut events: BTreeMap<_, _> = FULL.iter().map(|text| (pattern(text), Level::Full)).collect();
        // With a manifest its events have other names than without: the provider tells enough.
        events.insert(pattern(&format!("{AUDIT}:*")), Level::Full);
        events.insert(pattern("*"), Level::Modules);
        let text = PolicyText { kernel_symbols: Some(KernelSymbols::Modules), events };
        Policy { layers: vec![Layer::new(text, Origin::Default)] }
    }
}

impl Policy {
    /// Puts statements on top: where they say something, what was stated before does not count.
    pub fn put(&mut self, text: PolicyText, origin: Origin) {
        self.layers.push(Layer::new(text, origin));
    }

    /// The level of an event, by the names that `stackhound events` gives it. Names of opens end with [`OPEN`].
    pub fn level(&self, provider: &str, event: &str) -> Level {
        let fits = |layer: &Layer| {
            let rule = layer.events.iter().find(|rule| rule.matcher.fits(provider, event));
            rule.map(|rule| rule.level)
        };
        self.layers.iter().rev().find_map(fits).unwrap_or(Level::Modules)
    }

    /// How much of kernel parts is named.
    pub fn kernel_symbols(&self) -> KernelSymbols {
        let stated = self.layers.iter().rev().find_map(|layer| layer.kernel_symbols);
        stated.unwrap_or(KernelSymbols::Modules)
    }

    /// All statements that count, in the order in which they are looked at.
    pub fn settings(&self) -> Vec<Setting<'_>> {
        let mut settings = Vec::new();
        let mut seen: Vec<&EventPattern> = Vec::new();
        let stated = self.layers.iter().rev().find(|layer| layer.kernel_symbols.is_some());
        if let Some(layer) = stated {
            let value = self.kernel_symbols().name();
            settings.push(Setting { key: "kernel_symbols".into(), value, origin: &layer.origin });
        }
        for layer in self.layers.iter().rev() {
            for Rule { pattern, level, .. } in &layer.events {
                if !seen.contains(&pattern) {
                    seen.push(pattern);
                    let key = format!("events.{:?}", pattern.text());
                    settings.push(Setting { key, value: level.name(), origin: &layer.origin });
                }
            }
        }
        settings
    }
}
