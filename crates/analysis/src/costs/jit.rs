//! Methods that the JIT compilers of .NET processes compiled, with their sizes and times.
//!
//! A compilation begins with `MethodJittingStarted` and ends with `MethodLoadVerbose` of the same
//! method on the same thread. Compilations can be nested. The time is that of the clock, not of the
//! processor.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::provider_guid;
use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

use super::{Column, Figures, Key, MAX, Measure, Metric, Observations, bytes, count, number, ticks};

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

/// `MethodLoadVerbose`.
const LOADED: u16 = 143;
/// `MethodJittingStarted`.
const STARTED: u16 = 145;

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
    il_size: u64,
}

#[derive(Debug, Default)]
struct Compilations {
    begun: FxHashMap<(Pid, Tid), Vec<Begun>>,
}

const NOT_LOADED: &str = "compilations without a method that was loaded";

impl Compilations {
    fn begin(&mut self, view: &EventView<'_>, thread: (Pid, Tid), out: &mut Observations) {
        let Some(method) = number(view, "MethodID") else { return };
        if self.begun.len() >= THREADS_MAX {
            self.end(out);
        }
        let begun = self.begun.entry(thread).or_default();
        if begun.len() >= NESTED_MAX {
            begun.drain(..).for_each(|_| out.remain(NOT_LOADED, 0));
        }
        let il_size = number(view, "MethodILSize").unwrap_or(0);
        begun.push(Begun { method, time: view.time(), il_size });
    }

    /// The compilation of a method that is loaded. Those inside of it did not end.
    fn finish(&mut self, thread: (Pid, Tid), method: u64, out: &mut Observations) -> Option<Begun> {
        let begun = self.begun.get_mut(&thread)?;
        let at = begun.iter().rposition(|begun| begun.method == method)?;
        begun.drain(at + 1..).for_each(|_| out.remain(NOT_LOADED, 0));
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
        let (Some(pid), Some(tid), LOADED | STARTED) = (view.pid(), view.tid(), id) else { return Ok(()) };
        if id == STARTED {
            self.begin(view, (pid, tid), out);
            return Ok(());
        }
        let flags = number(view, "MethodFlags").unwrap_or(0);
        let Some(method) = number(view, "MethodID").filter(|_| flags & JITTED != 0) else { return Ok(()) };
        out.events += 1;
        let begun = self.finish((pid, tid), method, out);
        let is_counted = out.window.contains(view.time());
        let time = begun.map_or(0, |begun| out.window.overlap(begun.time, view.time()));
        if (!is_counted && time == 0) || !wanted() {
            return Ok(());
        }
        let mut figures = Figures::lasting(time);
        if is_counted {
            if begun.is_none() {
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
            (_, name) => name.unwrap_or_default(),
        };
        let labels = [out.label(&name), out.label(tier(flags))];
        let (thread, stack) = out.actor(view)?;
        out.add(Key { thread, stack, labels }, figures);
        Ok(())
    }

    fn end(&mut self, out: &mut Observations) {
        self.begun.drain().flat_map(|(_, begun)| begun).for_each(|_| out.remain(NOT_LOADED, 0));
    }
}
