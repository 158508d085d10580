//! The functions of an exact trace as a profile: each path of functions, and how long its innermost
//! one executed. `profile` and `stacks` show it.
//!
//! The weight is the number of transitions, or the time if the trace has times. The stacks of a thread
//! in user mode, in the kernel and for signals have paths of their own.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use stackhound::StacksFrom;
use stackhound::calltree::{Location, StackInfo, StackKind, Trace};
use stackhound::profile::{
    CodeKind, Frame, FrameId, Full, Nanos, Origin, Process, Profile, ProfileBuilder, Sample, StackId, Thread,
    ThreadId, Unit,
};
use stackhound::types::Mode;
use stackhound_export::escape::line;
use stackhound_export::json::stacks::{CallStack, CallStacks};
use stackhound_export::numbers;

use crate::filter::{self, Filters};
use crate::inputs;
use crate::naming::Naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, message};
use crate::top::table::percent;

/// The limit of different paths. Functions that would begin further ones are left out of their paths.
const STACKS_MAX: usize = 1 << 22;

/// The weight of one sample, which viewers read as a signed number of 32 bits.
const WEIGHT_MAX: u64 = i32::MAX as u64;

/// The functions of a trace.
pub struct Folded {
    pub profile: Profile,
    /// The paths, those with the highest weight first.
    paths: Vec<(ThreadId, StackId, u64)>,
    /// The weight of all paths.
    total: u64,
    /// The part of it in which no function is known.
    not_known: u64,
    /// How often a function was entered that is left out and counts for its caller.
    left_out: u64,
    damaged: bool,
}

/// Refuses options that select events and names. `others` are further ones, and whether they are given.
pub fn refuse_options(filters: &Filters, naming: &Naming, others: &[(bool, &str)]) -> Result<()> {
    if !filter::texts(filters).is_empty() || filters.from.is_some() || filters.to.is_some() {
        bail!("filters and times select events, and an exact trace has transitions instead; leave them out");
    }
    if naming.is_stated() || naming.symbols.is_some() {
        bail!("an exact trace contains the names of its functions; leave out the options for symbols");
    }
    if let Some((_, name)) = others.iter().find(|(is_given, _)| *is_given) {
        bail!("{name} is for the events of a trace, which an exact trace does not have; leave it out");
    }
    Ok(())
}

/// Reads an exact trace or an index.
pub fn read(file: &Path, product: String, common: &Common) -> Result<Folded> {
    let (trace, from) = stackhound::open_stacks(file, Default::default(), inputs::grouping(false))?;
    let damaged = matches!(&from, StacksFrom::Journal(replayed, _) if !replayed.finished);
    if damaged && !common.quiet {
        message(format_args!("{} is incomplete; its end is missing.", file.display()));
    }
    fold(&trace, product, damaged, STACKS_MAX)
}

/// The parts of the profile.
struct Parts {
    builder: ProfileBuilder,
    processes: HashMap<(Option<u32>, Option<String>), stackhound::profile::ProcessId>,
    threads: HashMap<(stackhound::profile::ProcessId, Option<u32>), ThreadId>,
    /// By location and mode.
    frames: HashMap<(Option<u32>, Mode), FrameId>,
    /// A function has several locations if it was also called through stubs.
    frames_by_name: HashMap<(String, Mode), FrameId>,
    remarks: HashMap<&'static str, FrameId>,
    left_out: u64,
}

impl Parts {
    fn thread(&mut self, info: &StackInfo) -> Result<ThreadId, Full> {
        let name = info.name.clone();
        let process = match self.processes.get(&(info.process, name.clone())) {
            Some(&known) => known,
            None => {
                let shown = name.clone().unwrap_or_else(|| "process".to_owned());
                let process = Process { pid: info.process, name: shown, ..Process::default() };
                let id = self.builder.process(process)?;
                self.processes.insert((info.process, name), id);
                id
            }
        };
        if let Some(&known) = self.threads.get(&(process, info.thread)) {
            return Ok(known);
        }
        let thread = Thread { process, tid: info.thread, name: String::new(), start: None, end: None };
        let id = self.builder.thread(thread)?;
        self.threads.insert((process, info.thread), id);
        Ok(id)
    }

    fn frame(&mut self, location: Option<Location<'_>>, mode: Mode) -> Result<FrameId, Full> {
        let key = (location.map(|location| location.id().0), mode);
        if let Some(&known) = self.frames.get(&key) {
            return Ok(known);
        }
        let (name, origin) = match location {
            Some(location) if location.symbol().is_some() => (location.name().to_string(), Origin::Pdb),
            Some(location) if location.module().is_some() => (location.name().to_string(), Origin::Module),
            Some(location) => (location.name().to_string(), Origin::Address),
            None => ("???".to_owned(), Origin::Address),
        };
        let code = match (origin, mode) {
            (Origin::Address, _) => CodeKind::Unknown,
            (_, Mode::Kernel) => CodeKind::Kernel,
            (_, Mode::User) => CodeKind::User,
        };
        let by_name = (name, mode);
        let id = match self.frames_by_name.get(&by_name) {
            Some(&known) => known,
            None => {
                let (name, inlines) = (by_name.0.clone(), Box::default());
                let (location, source) = (None, None);
                let frame = Frame { name, origin, mode: Some(mode), code, location, source, inlines };
                let id = self.builder.frame(frame)?;
                self.frames_by_name.insert(by_name, id);
                id
            }
        };
        self.frames.insert(key, id);
        Ok(id)
    }

    fn remark(&mut self, text: &'static str) -> Result<StackId, Full> {
        let frame = match self.remarks.get(text) {
            Some(&known) => known,
            None => {
                let id = self.builder.frame(Frame::remark(text))?;
                self.remarks.insert(text, id);
                id
            }
        };
        self.builder.stack(None, frame)
    }

    /// The path of a caller and a function. If there are too many paths, that of the caller.
    fn path(&mut self, caller: Option<StackId>, frame: FrameId, max: usize) -> Result<StackId, Full> {
        match (caller, self.builder.stack_count() >= max) {
            (Some(caller), true) => match self.builder.known_stack(Some(caller), frame) {
                Some(known) => Ok(known),
                None => {
                    self.left_out += 1;
                    Ok(caller)
                }
            },
            _ => self.builder.stack(caller, frame),
        }
    }
}

/// The outermost frame of a stack that is not of a thread in user mode.
fn kind_remark(kind: StackKind) -> Option<&'static str> {
    match kind {
        StackKind::User => None,
        StackKind::Kernel => Some("kernel stack"),
        StackKind::Interrupt => Some("stack of interrupts"),
        StackKind::Deferred => Some("stack of deferred procedure calls"),
        StackKind::Alternate => Some("other stack of the program"),
        StackKind::Wow64 => Some("stack of 64-bit code"),
    }
}

fn mode_of(kind: StackKind) -> Mode {
    match kind {
        StackKind::User | StackKind::Alternate | StackKind::Wow64 => Mode::User,
        StackKind::Kernel | StackKind::Interrupt | StackKind::Deferred => Mode::Kernel,
    }
}

fn fold(trace: &Trace, product: String, damaged: bool, stacks_max: usize) -> Result<Folded> {
    let unit = match trace.first_context().time() {
        Some(_) => Unit::Nanoseconds,
        None => Unit::Transitions,
    };
    let mut parts = Parts {
        builder: ProfileBuilder::new(product, 0),
        processes: HashMap::new(),
        threads: HashMap::new(),
        frames: HashMap::new(),
        frames_by_name: HashMap::new(),
        remarks: HashMap::new(),
        left_out: 0,
    };
    parts.builder.set_unit(unit);
    // By the stack's number: its thread, kind, and the path of its remark.
    let mut stacks: Vec<(ThreadId, StackKind, Option<StackId>)> = Vec::new();
    for stack in trace.stacks(trace.first_context().id())? {
        let info = stack.info();
        let remark = kind_remark(info.kind).map(|text| parts.remark(text)).transpose()?;
        stacks.push((parts.thread(&info)?, info.kind, remark));
    }
    let nothing = parts.remark("no function is known")?;
    let mut weights: HashMap<(ThreadId, StackId), u64> = HashMap::new();
    let mut not_known = 0;
    trace.fold(
        |stack, caller: Option<StackId>, location| {
            let (_, kind, remark) = stacks[stack.0 as usize];
            let frame = parts.frame(location, mode_of(kind))?;
            parts.path(caller.or(remark), frame, stacks_max)
        },
        |stack, path, range, cpu| {
            let weight = match unit {
                Unit::Nanoseconds => trace.time_in(range).unwrap_or(0).saturating_mul(100),
                _ => trace.transitions_of(cpu, range),
            };
            if weight > 0 {
                not_known += if path.is_none() { weight } else { 0 };
                *weights.entry((stacks[stack.0 as usize].0, path.unwrap_or(nothing))).or_default() += weight;
            }
        },
    )?;
    let mut paths: Vec<(ThreadId, StackId, u64)> =
        weights.into_iter().map(|((thread, path), weight)| (thread, path, weight)).collect();
    paths.sort_unstable_by_key(|&(thread, path, weight)| (std::cmp::Reverse(weight), thread, path));
    let total = paths.iter().map(|(.., weight)| weight).sum();
    let mut time = 0;
    for &(thread, stack, weight) in &paths {
        let mut rest = weight;
        while rest > 0 {
            let weight = rest.min(WEIGHT_MAX);
            parts.builder.sample(Sample {
                time: Nanos(time),
                thread,
                stack,
                weight: weight as u32,
                cpu: None,
            });
            (time, rest) = (time + weight, rest - weight);
        }
    }
    let (profile, left_out) = (parts.builder.finish(), parts.left_out);
    Ok(Folded { profile, paths, total, not_known, left_out, damaged })
}

impl Folded {
    pub fn outcome(&self) -> Outcome {
        Outcome { damaged: self.damaged, ..Outcome::default() }
    }

    fn weight(&self, weight: u64) -> String {
        numbers::weight(self.profile.unit(), weight)
    }

    /// The weights, the number of paths, and what is not in them.
    fn summary(&self) -> Vec<String> {
        let paths = counted(self.paths.len() as u64, "stack", "stacks");
        let mut lines =
            vec![format!("{} in {paths}, by what the innermost function executed", self.weight(self.total))];
        if self.not_known > 0 {
            lines.push(format!("{} without a known function", self.weight(self.not_known)));
        }
        if self.left_out > 0 {
            let calls = counted(self.left_out, "call is", "calls are");
            lines.push(format!("{calls} left out of the stacks, because there are too many different ones"));
        }
        lines
    }

    pub fn report(&self) {
        self.summary().iter().for_each(|text| message(format_args!("{text}")));
    }

    /// Shows the paths with the highest weights.
    pub fn table(&self, out: &mut impl Write, top: usize) -> Result<()> {
        for text in self.summary() {
            line(out, format_args!("{text}"))?;
        }
        for &(thread, path, weight) in self.paths.iter().take(top) {
            let process = self.profile.process_label(self.profile.threads()[thread.index()].process);
            let thread = self.profile.thread_label(thread);
            writeln!(out)?;
            let share = percent(weight, self.total);
            line(out, format_args!("{} ({share}), {process} {thread}", self.weight(weight)))?;
            for name in self.names(path) {
                line(out, format_args!("    {name}"))?;
            }
        }
        Ok(())
    }

    /// The JSON document with the paths with the highest weights.
    pub fn document(&self, top: usize) -> CallStacks<'_> {
        let row = |&(thread, path, weight): &(ThreadId, StackId, u64)| {
            let thread = &self.profile.threads()[thread.index()];
            let process = self.profile.process(thread.process);
            CallStack {
                weight,
                process: &process.name,
                pid: process.pid,
                tid: thread.tid,
                frames: self.names(path).collect(),
            }
        };
        CallStacks {
            unit: match self.profile.unit() {
                Unit::Nanoseconds => "nanoseconds",
                _ => "transitions",
            },
            total: self.total,
            not_known: self.not_known,
            distinct: self.paths.len(),
            stacks: self.paths.iter().take(top).map(row).collect(),
        }
    }

    fn names(&self, path: StackId) -> impl Iterator<Item = &str> {
        self.profile.stack(path).map(|frame| &*self.profile.frame(frame).name)
    }
}

#[cfg(test)]
mod tests {
    use stackhound::calltree::{Builder, Change, ContextId, Cpu, EndType, LocationInfo, StartType};

    use super::*;

    /// `main` calls `a` and `b`, and `b` calls `a`. The kernel runs between two contexts of `main`.
    fn trace(has_times: bool) -> Trace {
        let mut builder = Builder::new();
        let mut stack = |kind| {
            let name = Some("app".to_owned());
            builder.stack(StackInfo {
                kind,
                process: Some(8),
                thread: Some(12),
                cpu: None,
                name,
                region: None,
            })
        };
        let (user, kernel) = (stack(StackKind::User), stack(StackKind::Kernel));
        let mut named = |name: &str| {
            let symbol = Some(name.to_owned());
            Some(builder.location(LocationInfo {
                address: None,
                module: None,
                rva: None,
                symbol,
                symbol_offset: 0,
            }))
        };
        let [main, a, b, service] = ["main", "a", "b", "service"].map(&mut named);
        let enter = |stack, first| Change::Enter { cpu: Cpu(0), stack, first: ContextId(first) };
        let start = StartType::Call;
        let open = |stack, first, location| Change::Open { stack, first: ContextId(first), start, location };
        let close = |stack, last| Change::Close { stack, last: ContextId(last), end: EndType::Return };
        for change in [
            enter(user, 0),
            open(user, 1, main),
            open(user, 3, a),
            close(user, 5),
            open(user, 7, b),
            open(user, 8, a),
            close(user, 8),
            close(user, 9),
            enter(kernel, 11),
            open(kernel, 11, service),
            enter(user, 13),
        ] {
            builder.apply(change).unwrap();
        }
        if has_times {
            let label = builder.label("Event");
            (0..14).for_each(|number| builder.transition(1_000 + 10 * number, Cpu(0), label));
        }
        builder.finish(14).unwrap()
    }

    fn shown(folded: &Folded) -> Vec<String> {
        let row = |&(_, path, weight): &(ThreadId, StackId, u64)| {
            format!("{weight} {}", folded.names(path).collect::<Vec<_>>().join("<"))
        };
        let mut rows: Vec<String> = folded.paths.iter().map(row).collect();
        rows.sort();
        rows
    }

    #[test]
    fn weights_are_those_of_the_innermost_function() {
        let of = |has_times, max| fold(&trace(has_times), String::new(), false, max).unwrap();
        let all = of(false, STACKS_MAX);
        let expected = [
            "1 [no function is known]",
            "1 a<b<main",
            "2 b<main",
            "2 service<[kernel stack]",
            "3 a<main",
            "5 main",
        ];
        assert_eq!(shown(&all), expected);
        assert_eq!((all.total, all.not_known, all.left_out, all.profile.weight()), (14, 1, 0, 14));
        // The context before the first transition has no duration; all others have 1 µs.
        let timed = of(true, STACKS_MAX);
        let expected =
            ["1000 a<b<main", "2000 b<main", "2000 service<[kernel stack]", "3000 a<main", "5000 main"];
        assert_eq!(shown(&timed), expected);
        // The remarks and the first two paths are kept. Other functions are missing from their paths.
        let few = of(false, 4);
        let expected = ["1 [no function is known]", "2 [kernel stack]", "4 a<main", "7 main"];
        assert_eq!(shown(&few), expected);
        assert_eq!((few.total, few.left_out), (14, 2));
    }
}
