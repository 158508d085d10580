//! Methods that the JIT compilers of .NET processes compiled, with their sizes and times.
//!
//! A compilation begins with `MethodJittingStarted` and ends with `MethodLoadVerbose` of the same
//! method on the same thread. Without the level 5, the runtime logs no beginnings, and the ends as
//! `MethodLoad`, without names, except for generic and dynamic methods. Compilations can be nested.
//! The time is that of the clock, not of the processor.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::event_id::dot_net_runtime::{
    METHOD_JITTING_STARTED, METHOD_LOAD, METHOD_LOAD_VERBOSE,
};
use stackhound_schema::provider_guid;
use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

use super::{Column, Figures, Key, MAX, Measure, Metric, Observations, bytes, count, ticks};
use crate::fields::number;
use crate::loss::is_lost;

const METHODS: usize = 1;
const IL: usize = 2;
const NATIVE: usize = 3;

pub(super) const METRIC: Metric = Metric {
    name: "jit",
    columns: COLUMNS,
    dimensions: &["method", "tier"],
    start: || Box::new(Compilations::default()),
};

const COLUMNS: &[Column] = &[
    ticks("duration", 0),
    count("methods", METHODS),
    bytes("il_bytes", IL),
    bytes("native_bytes", NATIVE),
    ticks("max", MAX),
];

/// Whether events of the provider with this id matter.
pub(super) fn reads(id: u16) -> bool {
    matches!(id, METHOD_LOAD | METHOD_LOAD_VERBOSE | METHOD_JITTING_STARTED)
}

/// The flag of methods that the JIT compiler compiled.
const JITTED: u64 = 8;
/// The tier of a method, in the flags.
const TIER_SHIFT: u32 = 7;
const TIER_MASK: u64 = 7;

/// Maximum number of threads, and of nested compilations of each.
const THREADS_MAX: usize = 1 << 14;
const NESTED_MAX: usize = 64;

/// A compilation that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    method: u64,
    time: TraceTime,
    source: u16,
    il_size: u64,
    /// Whether it counts.
    is_wanted: bool,
}

impl Begun {
    /// Its end is not known.
    fn remain(&self, out: &mut Observations) {
        if self.is_wanted && out.window.contains(self.time) {
            out.remain("compilations without a method that was loaded", 0);
        }
    }
}

#[derive(Debug, Default)]
struct Compilations {
    begun: FxHashMap<(Pid, Tid), Vec<Begun>>,
}

impl Compilations {
    fn begin(&mut self, view: &EventView<'_>, thread: (Pid, Tid), is_wanted: bool, out: &mut Observations) {
        let Some(method) = number(view, "MethodID") else { return };
        if self.begun.len() >= THREADS_MAX {
            self.end(out);
        }
        let begun = self.begun.entry(thread).or_default();
        if begun.len() >= NESTED_MAX {
            begun.drain(..).for_each(|begun| begun.remain(out));
        }
        let il_size = number(view, "MethodILSize").unwrap_or(0);
        let (time, source) = (view.time(), view.event().source());
        begun.push(Begun { method, time, source, il_size, is_wanted });
    }

    /// The compilation of a method that is loaded. Those inside of it did not end.
    fn finish(&mut self, thread: (Pid, Tid), method: u64, out: &mut Observations) -> Option<Begun> {
        let begun = self.begun.get_mut(&thread)?;
        let at = begun.iter().rposition(|begun| begun.method == method)?;
        begun.drain(at + 1..).for_each(|begun| begun.remain(out));
        begun.pop()
    }
}

/// The tiers of methods (`OptimizationTier`).
fn tier(flags: u64) -> &'static str {
    match flags >> TIER_SHIFT & TIER_MASK {
        0 => "not stated",
        1 => "minimal optimization",
        2 => "optimized",
        3 => "tier 0",
        4 => "tier 1",
        // Their names differ between versions of .NET.
        5 => "number 5",
        6 => "number 6",
        _ => "number 7",
    }
}

impl Measure for Compilations {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        if view.kernel_id().is_some() || view.event().guid() != Some(provider_guid::DOT_NET_RUNTIME) {
            return Ok(());
        }
        let id = view.id();
        let (Some(pid), Some(tid)) = (view.pid(), view.tid()) else { return Ok(()) };
        if !reads(id) || out.is_repeated(view) {
            return Ok(());
        }
        if id == METHOD_JITTING_STARTED {
            self.begin(view, (pid, tid), wanted(), out);
            return Ok(());
        }
        let flags = number(view, "MethodFlags").unwrap_or(0);
        let Some(method) = number(view, "MethodID").filter(|_| flags & JITTED != 0) else { return Ok(()) };
        out.events += 1;
        let begun = self.finish((pid, tid), method, out);
        // The same method is compiled again, and the start can be another one if records are missing.
        let is_uncertain = begun.is_some_and(|begun| is_lost(view, begun.source, begun.time));
        let begun = begun.filter(|_| !is_uncertain);
        let is_counted = out.window.contains(view.time());
        let time = begun.map_or(0, |begun| out.window.overlap(begun.time, view.time()));
        if (!is_counted && time == 0) || !wanted() {
            return Ok(());
        }
        let mut figures = Figures::lasting(time);
        if is_counted {
            if is_uncertain {
                out.remain("methods with lost records since their start: no duration and IL size", 0);
            } else if begun.is_none() {
                out.remain("methods without a known start: no duration and IL size", 0);
            }
            figures = figures
                .with(METHODS, 1)
                .with(IL, begun.map_or(0, |begun| begun.il_size))
                .with(NATIVE, number(view, "MethodSize").unwrap_or(0));
        }
        let text = |name| view.field(name).map(|(field, value)| field.render(value).to_string());
        let name = match (text("MethodNamespace"), text("MethodName")) {
            (Some(class), Some(name)) if !class.is_empty() => format!("{class}.{name}"),
            (_, Some(name)) => name,
            (_, None) => "[no name]".to_owned(),
        };
        let labels = [out.label(&name), out.label(tier(flags))];
        let (thread, stack) = out.actor(view)?;
        out.add(Key { thread, stack, labels }, figures);
        Ok(())
    }

    fn end(&mut self, out: &mut Observations) {
        self.begun.drain().flat_map(|(_, begun)| begun).for_each(|begun| begun.remain(out));
    }
}
