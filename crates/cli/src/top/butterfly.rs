//! `callers` and `callees`: who calls a function, and what it calls.

use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use rustc_hash::FxHashMap;
use stackhound::analysis::costs::{Costs, Figures, Unit};
use stackhound::analysis::cpu::Cpu;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::rows::{Amount, Applied};
use stackhound::analysis::wait::{Measure, Waits};
use stackhound::expr::most_similar;
use stackhound::profile::{Butterfly, Groups, Pattern, Profile, StackId, Sums, Total};
use stackhound::trace::TraceTime;
use stackhound::{Clock, analysis};
use stackhound_export::escape::{cell, line, row};
use stackhound_export::json::butterfly::{self as json, ButterflyRow};
use stackhound_export::json::top::Cut;

use super::costs::{MEASUREMENTS, Measurement, shown, suffix};
use super::table::{SHOWN, Table, percent, seconds};
use super::{Read, Shared, optional, wait, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::grouped;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Name of the function, with or without its module, or a pattern (* matches any text); functions
    /// that match count as one
    function: String,
    #[command(flatten)]
    shared: Shared,
    /// Measure what this command of `top` measures
    #[arg(long, value_name = "METRIC", default_value = "cpu", value_parser = metrics())]
    metric: String,
}

fn metrics() -> PossibleValuesParser {
    PossibleValuesParser::new(all_metrics().map(|metric| metric.name))
}

/// What can be measured: the commands of `top`.
fn all_metrics() -> impl Iterator<Item = Metric> {
    let metric = |name, title, measured| Metric { name, title, measured };
    let times = [
        metric("cpu", "processor time", Measured::Cpu),
        metric("wait", "waits", Measured::Wait(Measure::Waits)),
        metric("ready", "time ready to run", Measured::Wait(Measure::Ready)),
    ];
    let costs = MEASUREMENTS.iter().map(move |of| metric(of.metric.name, of.amount, Measured::Costs(of)));
    times.into_iter().chain(costs)
}

#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    title: &'static str,
    measured: Measured,
}

#[derive(Clone, Copy)]
enum Measured {
    Cpu,
    Wait(Measure),
    Costs(&'static Measurement),
}

/// Which neighbours of the function are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Side {
    name: &'static str,
    title: &'static str,
    /// The name of the row without a neighbour.
    none: &'static str,
}

pub const CALLERS: Side = Side { name: "callers", title: "caller", none: "[outermost frame]" };
pub const CALLEES: Side = Side { name: "callees", title: "callee", none: "[self]" };

/// The analyzed capture.
struct Analyzed {
    clock: Clock,
    window: (TraceTime, TraceTime),
    unit: Unit,
    /// Whether observations were counted.
    has_counts: bool,
    /// The functions that match, and the names of all observed ones, in order.
    functions: Vec<String>,
    names: Vec<String>,
    butterfly: Butterfly<Sums>,
    /// The rows that are shown, those with the most first.
    rows: Vec<(Option<String>, Sums)>,
    applied: Option<Applied>,
}

/// The number of functions in one line.
const LISTED_MAX: usize = 8;
/// The number of similar names in a message, and of functions among which they are looked for.
const SIMILAR_MAX: usize = 3;
const CANDIDATES_MAX: usize = 1 << 16;

/// What is asked.
struct Request<'a> {
    shared: &'a Shared,
    common: &'a Common,
    function: &'a str,
    pattern: Pattern,
    side: Side,
}

pub fn run(arguments: &Arguments, common: &Common, side: Side) -> Result<Outcome> {
    let (shared, function) = (&arguments.shared, &*arguments.function);
    let pattern = Pattern::new(function).context("FUNCTION")?;
    let request = Request { shared, common, function, pattern, side };
    let known = all_metrics().find(|metric| metric.name == arguments.metric);
    let Metric { name: metric, title, measured } = known.context("--metric")?;
    let read = match measured {
        Measured::Cpu => of_processors(&request)?,
        Measured::Wait(measure) => of_waits(&request, measure)?,
        Measured::Costs(costs) => of_costs(&request, costs)?,
    };
    if read.found.iter().all(|found| found.functions.is_empty()) {
        let names: Vec<&str> = read.found.iter().flat_map(|found| &found.names).map(String::as_str).collect();
        if names.is_empty() {
            bail!(
                "there are no stacks; `stackhound top {metric}` with the same files and filters says what is missing"
            );
        }
        bail!("no function on the stacks matches `{function}`{}", similar(function, names));
    }
    read.write(
        shared,
        |out, found| table(out, &request, title, found),
        |out, found| csv(out, &request, found),
        |found, cut| document(&request, metric, found, cut),
    )
}

fn of_processors(request: &Request<'_>) -> Result<Read<Analyzed>> {
    super::read(
        request.shared,
        |_| false,
        request.common,
        |trace, window| Cpu::new(String::new(), trace, window, Weighing::Elapsed),
        |cpu, view, filter| cpu.observe(view, || filter.wants(view)),
        |cpu, known, naming, patterns| {
            let mut report = cpu.finish(known, naming);
            let applied = patterns.map(|patterns| report.regroup(patterns, request.shared.unnamed()));
            let observed = report.samples.iter().map(|((_, stack), sums)| (*stack, *sums));
            analyzed(request, &report.profile, (report.clock, report.window), observed, applied)
        },
    )
}

fn of_waits(request: &Request<'_>, measure: Measure) -> Result<Read<Analyzed>> {
    super::read(
        request.shared,
        wait::is_scheduling,
        request.common,
        |trace, window| Waits::new(String::new(), trace, window),
        |waits, view, filter| waits.observe(view, || filter.holds_at_any_time(view)),
        |waits, known, naming, patterns| {
            let mut report = waits.finish(known, naming);
            let applied =
                patterns.map(|patterns| report.regroup(measure, patterns, request.shared.unnamed()));
            let observed = report.observed(measure).iter().map(|((_, stack), sums)| (*stack, *sums));
            analyzed(request, &report.profile, (report.clock, report.window), observed, applied)
        },
    )
}

fn of_costs(request: &Request<'_>, measurement: &Measurement) -> Result<Read<Analyzed>> {
    super::read(
        request.shared,
        measurement.needs,
        request.common,
        |trace, window| Costs::new(measurement.metric, String::new(), trace, window),
        |costs, view, filter| costs.observe(view, || filter.holds_at_any_time(view)),
        |costs, known, naming, patterns| {
            let mut report = costs.finish(known, naming);
            let applied = patterns.map(|patterns| report.regroup(patterns, request.shared.unnamed()));
            let main = |figures: &Figures| Sums { amount: figures.amount(), ..Sums::default() };
            let applied = applied.map(|applied| Applied {
                excluded: main(&applied.excluded),
                own_directories: applied.own_directories,
            });
            let observed = report.observed();
            let observed = observed.iter().map(|((_, stack), figures)| (*stack, main(figures)));
            let found = analyzed(request, &report.profile, (report.clock, report.window), observed, applied);
            let unit = report.metric.columns.first().map_or(Unit::Count, |column| column.unit);
            Analyzed { unit, has_counts: false, ..found }
        },
    )
}

fn analyzed(
    request: &Request<'_>,
    profile: &Profile,
    (clock, window): (Clock, (TraceTime, TraceTime)),
    observed: impl Iterator<Item = (StackId, Sums)>,
    applied: Option<Applied>,
) -> Analyzed {
    let mut by_stack: FxHashMap<StackId, Sums> = FxHashMap::default();
    for (stack, sums) in observed {
        *by_stack.entry(stack).or_default() += sums;
    }
    let observed = || by_stack.iter().map(|(stack, sums)| (*stack, *sums));
    let groups = Groups::new(profile, request.shared.unnamed());
    let names = groups.names();
    let totals = groups.totals(profile, observed());
    let is_observed = |number: usize| totals[number].total != Sums::default();
    let is_named = |name: &str| {
        let function = name.split_once('!').map_or(name, |(_, function)| function);
        [name, function].iter().any(|name| name.eq_ignore_ascii_case(request.function))
    };
    let select = |is_function: &dyn Fn(&str) -> bool| -> Vec<bool> {
        names.iter().enumerate().map(|(number, name)| is_observed(number) && is_function(name)).collect()
    };
    let mut selected = select(&is_named);
    if !selected.contains(&true) {
        selected = select(&|name| request.pattern.matches(name));
    }
    let listed = |is_listed: &dyn Fn(usize) -> bool| -> Vec<String> {
        let mut listed: Vec<String> = (0..names.len())
            .filter(|&number| is_listed(number))
            .map(|number| names[number].clone())
            .collect();
        listed.sort();
        listed
    };
    let butterfly = Butterfly::new(profile, &groups, observed(), |number| selected[number]);
    let neighbours = if request.side == CALLERS { &butterfly.callers } else { &butterfly.callees };
    let rows = neighbours.iter().map(|(number, sums)| (number.map(|number| names[number].clone()), *sums));
    let mut rows: Vec<(Option<String>, Sums)> = rows.collect();
    rows.sort_by(|(a, a_sums), (b, b_sums)| {
        let measured = |sums: &Sums| (sums.amount, sums.count);
        measured(b_sums).cmp(&measured(a_sums)).then_with(|| a.cmp(b))
    });
    Analyzed {
        clock,
        window,
        unit: Unit::Ticks,
        has_counts: true,
        functions: listed(&|number| selected[number]),
        names: listed(&is_observed),
        butterfly,
        rows: request.shared.first(rows),
        applied,
    }
}

/// Names that are similar to a function that was not found.
fn similar(function: &str, names: Vec<&str>) -> String {
    let mut candidates: FxHashMap<&str, &str> = FxHashMap::default();
    for name in names.into_iter().take(CANDIDATES_MAX) {
        candidates.insert(name, name);
        candidates.extend(name.split_once('!').map(|(_, function)| (function, name)));
    }
    let mut left: Vec<&str> = candidates.keys().copied().collect();
    left.sort_unstable();
    let mut found: Vec<&str> = Vec::new();
    while found.len() < SIMILAR_MAX
        && let Some(candidate) = most_similar(function, &left)
    {
        left.retain(|&other| other != candidate);
        let name = candidates[candidate];
        if !found.contains(&name) {
            found.push(name);
        }
    }
    match &*found {
        [] => "; `stackhound top cpu --by function` lists functions".to_owned(),
        names => format!("; similar names: {}", names.join(", ")),
    }
}

impl Analyzed {
    /// An amount in the unit of the output.
    fn value(&self, sums: Sums) -> u64 {
        match self.unit {
            Unit::Ticks => analysis::nanos(&self.clock, sums.amount),
            Unit::Bytes | Unit::Count => sums.amount,
        }
    }

    fn text(&self, sums: Sums) -> String {
        format!("{}{}", shown(self.value(sums), self.unit), suffix(self.unit))
    }
}

fn document<'a>(
    request: &Request<'a>,
    metric: &'static str,
    found: &'a Analyzed,
    cut: Vec<Cut>,
) -> json::Butterfly<'a> {
    let rows = found.rows.iter().map(|(name, sums)| ButterflyRow {
        name: name.as_deref(),
        amount: found.value(*sums),
        count: found.has_counts.then_some(sums.count),
    });
    let butterfly = &found.butterfly;
    json::Butterfly {
        metric,
        cut,
        side: request.side.name,
        function: request.function,
        functions: &found.functions,
        unit: found.unit.name(),
        window: window(&found.clock, found.window),
        whole: found.value(butterfly.whole),
        total: found.value(butterfly.function.total),
        own: found.value(butterfly.function.own),
        repeated: found.value(butterfly.repeated),
        grouping: request.shared.patterns.document(found.applied.as_ref(), |excluded| found.value(excluded)),
        rows: rows.collect(),
    }
}

fn csv(out: &mut impl Write, request: &Request<'_>, analyzed: &[Analyzed]) -> Result<()> {
    let number = (analyzed.len() > 1).then_some("capture");
    row(out, number.into_iter().chain([request.side.title, "amount", "count"]))?;
    for (index, found) in analyzed.iter().enumerate() {
        let number = (analyzed.len() > 1).then(|| (index + 1).to_string());
        for (name, sums) in &found.rows {
            let name = cell(name.as_deref().unwrap_or(request.side.none));
            let count = optional(found.has_counts.then_some(sums.count));
            let cells = [name.to_string(), found.value(*sums).to_string(), count];
            row(out, number.iter().cloned().chain(cells))?;
        }
    }
    Ok(())
}

fn table(out: &mut impl Write, request: &Request<'_>, title: &str, found: &Analyzed) -> Result<()> {
    let (side, butterfly) = (request.side, &found.butterfly);
    let function = match &*found.functions {
        [one] => one.clone(),
        several => format!("{} functions", grouped(several.len() as u64)),
    };
    let (from, to) = found.window;
    let length = seconds(analysis::nanos(&found.clock, to.ticks_since(from)));
    let name = side.name;
    line(out, format_args!("The {name} of {function} by {title}, in {length} s of trace"))?;
    match &*found.functions {
        [] => line(out, format_args!("  no function on the stacks matches {}", request.function))?,
        [_] => {}
        several if several.len() <= LISTED_MAX => line(out, format_args!("  {}", several.join(", ")))?,
        several => {
            let (listed, more) = (several[..LISTED_MAX].join(", "), several.len() - LISTED_MAX);
            line(out, format_args!("  {listed} and {more} more"))?;
        }
    }
    let Total { total, own } = butterfly.function;
    let share = |part: Sums, of: Sums| percent(part.amount, of.amount);
    line(
        out,
        format_args!(
            "  total {} ({} of {}), self {} ({})",
            found.text(total),
            share(total, butterfly.whole),
            found.text(butterfly.whole),
            found.text(own),
            share(own, butterfly.whole),
        ),
    )?;
    if butterfly.repeated != Sums::default() {
        line(
            out,
            format_args!(
                "  more than once on the stack: {}; callers are those of the outermost occurrence, callees those of \
                 the innermost one",
                found.text(butterfly.repeated)
            ),
        )?;
    }
    let shared = request.shared;
    shared.patterns.write(out, found.applied.as_ref(), |excluded| found.text(excluded))?;
    writeln!(out)?;
    let mut table = Table::<(Option<String>, Sums)>::new();
    table.right("%", |(_, sums)| share(*sums, total));
    table.right(format!("TOTAL{}", suffix(found.unit)), |(_, sums)| shown(found.value(*sums), found.unit));
    if shared.selects() {
        table.right(SHOWN, |(_, sums)| share(*sums, butterfly.whole));
    }
    if found.has_counts {
        table.right("COUNT", |(_, sums)| grouped(sums.count));
    }
    table.left(side.title.to_uppercase(), |(name, _)| name.as_deref().unwrap_or(side.none).to_owned());
    table.write(out, &found.rows)?;
    Ok(())
}
