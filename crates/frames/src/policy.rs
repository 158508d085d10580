//! Configures which events get stacks, and the level of detail of each stack.
//!
//! A [`Policy`] consists of built-in settings, which settings from files can override, each with
//! its [`Origin`]. [`Decisions`](crate::Decisions) applies it to each event.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::pattern::{EventMatcher, EventPattern};

/// The level of detail of a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The event gets no stack.
    None,
    /// Modules and offsets, from the state of the process only. This is cheap, for frequent events.
    Modules,
    /// Modules, offsets and function names.
    Full,
}

impl Level {
    /// All levels, lowest first.
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

/// The maximum level of detail for kernel stacks. The [`Level`] of an event can be lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelSymbols {
    /// Addresses only.
    Off,
    /// Modules and offsets.
    Modules,
    /// Modules, offsets and function names.
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

/// The origin of a setting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// The built-in policy.
    Default,
    /// A file or argument, in the spelling of the user.
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

/// The settings of one file. All of them are optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyText {
    /// Level of detail for kernel stacks; see [`KernelSymbols`].
    pub kernel_symbols: Option<KernelSymbols>,
    /// Level by pattern. The most specific pattern that matches an event applies.
    pub events: BTreeMap<EventPattern, Level>,
}

/// One setting of a [`Policy`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting<'p> {
    /// Key as in a config file: `kernel_symbols`, `events."Process/Start"`.
    pub key: String,
    /// Value as in a config file.
    pub value: &'static str,
    /// Origin of the setting.
    pub origin: &'p Origin,
}

/// Settings of one origin, the most specific pattern first.
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

/// Suffix of the name of a file event that opens an existing file.
pub const OPEN: &str = "(open)";

const AUDIT: &str = "Microsoft-Windows-Kernel-Audit-API-Calls";

/// The events with [`Level::Full`] in the built-in policy.
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

/// The levels of detail of all events, by name.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The layer with the highest priority last; never empty.
    layers: Vec<Layer>,
}

impl Default for Policy {
    fn default() -> Policy {
        let pattern = |text: &str| EventPattern::new(text).expect("a built-in pattern");
        let mut events: BTreeMap<_, _> = FULL.iter().map(|text| (pattern(text), Level::Full)).collect();
        // The names of its events depend on the availability of a manifest, so all of its events
        // match.
        events.insert(pattern(&format!("{AUDIT}:*")), Level::Full);
        events.insert(pattern("*"), Level::Modules);
        let text = PolicyText { kernel_symbols: Some(KernelSymbols::Modules), events };
        Policy { layers: vec![Layer::new(text, Origin::Default)] }
    }
}

impl Policy {
    /// Adds settings with the highest priority. They override earlier settings for all events that
    /// they match.
    pub fn put(&mut self, text: PolicyText, origin: Origin) {
        self.layers.push(Layer::new(text, origin));
    }

    /// The level of an event, by its names in the output of `stackhound events`. The names of
    /// events that open existing files end with [`OPEN`].
    pub fn level(&self, provider: &str, event: &str) -> Level {
        let fits = |layer: &Layer| {
            let rule = layer.events.iter().find(|rule| rule.matcher.fits(provider, event));
            rule.map(|rule| rule.level)
        };
        self.layers.iter().rev().find_map(fits).unwrap_or(Level::Modules)
    }

    /// Level of detail for kernel stacks.
    pub fn kernel_symbols(&self) -> KernelSymbols {
        let setting = self.layers.iter().rev().find_map(|layer| layer.kernel_symbols);
        setting.unwrap_or(KernelSymbols::Modules)
    }

    /// All settings in effect, highest priority first.
    pub fn settings(&self) -> Vec<Setting<'_>> {
        let mut settings = Vec::new();
        let mut seen: Vec<&EventPattern> = Vec::new();
        let set = self.layers.iter().rev().find(|layer| layer.kernel_symbols.is_some());
        if let Some(layer) = set {
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
