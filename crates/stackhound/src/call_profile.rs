//! The functions of call trees as a profile: each path of functions, and how long its innermost one
//! executed.
//!
//! The weight is the number of transitions, or the time if the trace has times. The stacks of a thread
//! in user mode, in the kernel and for signals have paths of their own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use stackhound_calltree::{Location, StackInfo, StackKind, Trace};
use stackhound_profile::{
    CodeKind, Frame, FrameId, Full, Nanos, Origin, Process, ProcessId, Profile, ProfileBuilder, Sample,
    StackId, Thread, ThreadId, Unit,
};
use stackhound_types::Mode;

/// The limit of different paths. Functions that would begin further ones are left out of their paths.
const STACKS_MAX: usize = 1 << 22;

/// The weight of one sample, which viewers read as a signed number of 32 bits.
const WEIGHT_MAX: u64 = i32::MAX as u64;

/// The functions of call trees.
#[derive(Debug)]
pub struct CallProfile {
    /// The profile, with a sample for each path, or several if one cannot have the weight.
    pub profile: Profile,
    /// The paths, those with the highest weight first.
    pub paths: Vec<CallPath>,
    /// The weight of all paths.
    pub total: u64,
    /// The part of it in which no function is known.
    pub not_known: u64,
    /// How often a function was entered that is left out and counts for its caller, because there are too
    /// many different paths.
    pub left_out: u64,
}

/// A path of functions of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallPath {
    /// The thread.
    pub thread: ThreadId,
    /// The functions.
    pub stack: StackId,
    /// How long the innermost one executed: transitions, or nanoseconds.
    pub weight: u64,
}

/// The parts of the profile.
struct Parts {
    builder: ProfileBuilder,
    processes: HashMap<(Option<u32>, Option<String>), ProcessId>,
    threads: HashMap<(ProcessId, Option<u32>), ThreadId>,
    /// By location and mode.
    frames: HashMap<(Option<u32>, Mode), FrameId>,
    /// A function has several locations if it was also called through stubs.
    frames_by_name: HashMap<(String, Mode), FrameId>,
    remarks: HashMap<&'static str, FrameId>,
    left_out: u64,
}

impl Parts {
    fn thread(&mut self, info: &StackInfo) -> Result<ThreadId, Full> {
        let Parts { builder, processes, threads, .. } = self;
        let process = known(processes, (info.process, info.name.clone()), |(pid, name)| {
            let name = name.clone().unwrap_or_else(|| "process".to_owned());
            builder.process(Process { pid: *pid, name, ..Process::default() })
        })?;
        known(threads, (process, info.thread), |_| {
            builder.thread(Thread { process, tid: info.thread, name: String::new(), start: None, end: None })
        })
    }

    fn frame(&mut self, location: Option<Location<'_>>, mode: Mode) -> Result<FrameId, Full> {
        let Parts { builder, frames, frames_by_name, .. } = self;
        known(frames, (location.map(|location| location.id().0), mode), |_| {
            let name = location.map_or_else(|| "???".to_owned(), |location| location.name().to_string());
            let origin = match location {
                Some(location) if location.symbol().is_some() => Origin::Pdb,
                Some(location) if location.module().is_some() => Origin::Module,
                _ => Origin::Address,
            };
            let code = match (origin, mode) {
                (Origin::Address, _) => CodeKind::Unknown,
                (_, Mode::Kernel) => CodeKind::Kernel,
                (_, Mode::User) => CodeKind::User,
            };
            known(frames_by_name, (name, mode), |(name, _)| {
                let (name, inlines) = (name.clone(), Box::default());
                let (location, source) = (None, None);
                builder.frame(Frame { name, origin, mode: Some(mode), code, location, source, inlines })
            })
        })
    }

    fn remark(&mut self, text: &'static str) -> Result<StackId, Full> {
        let Parts { builder, remarks, .. } = self;
        let frame = known(remarks, text, |text| builder.frame(Frame::remark(text)))?;
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

/// The value of a key, which is added if there is none.
fn known<K: Eq + Hash, V: Copy>(
    values: &mut HashMap<K, V>,
    key: K,
    add: impl FnOnce(&K) -> Result<V, Full>,
) -> Result<V, Full> {
    match values.entry(key) {
        Entry::Occupied(known) => Ok(*known.get()),
        Entry::Vacant(new) => {
            let value = add(new.key())?;
            Ok(*new.insert(value))
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

impl CallProfile {
    /// The functions of a trace. `product` names it. Needs memory for each different path.
    ///
    /// # Errors
    /// If there are too many different functions, processes or threads.
    pub fn new(trace: &Trace, product: String) -> Result<CallProfile, Full> {
        CallProfile::with_limit(trace, product, STACKS_MAX)
    }

    fn with_limit(trace: &Trace, product: String, stacks_max: usize) -> Result<CallProfile, Full> {
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
        for stack in trace.stacks(trace.first_context().id()).into_iter().flatten() {
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
                    *weights.entry((stacks[stack.0 as usize].0, path.unwrap_or(nothing))).or_default() +=
                        weight;
                }
            },
        )?;
        let paths = weights.into_iter().map(|((thread, stack), weight)| CallPath { thread, stack, weight });
        let mut paths: Vec<CallPath> = paths.collect();
        paths.sort_unstable_by_key(|path| (std::cmp::Reverse(path.weight), path.thread, path.stack));
        let total = paths.iter().map(|path| path.weight).sum();
        let mut time = 0;
        for &CallPath { thread, stack, weight } in &paths {
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
        Ok(CallProfile { profile, paths, total, not_known, left_out })
    }

    /// The names of the functions of a path, innermost first.
    pub fn names(&self, path: CallPath) -> impl Iterator<Item = &str> {
        self.profile.stack(path.stack).map(|frame| &*self.profile.frame(frame).name)
    }
}

#[cfg(test)]
mod tests {
    use stackhound_calltree::{Builder, Change, ContextId, Cpu, EndType, LocationInfo, StartType};

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

    fn shown(folded: &CallProfile) -> Vec<String> {
        let row = |path: &CallPath| {
            format!("{} {}", path.weight, folded.names(*path).collect::<Vec<_>>().join("<"))
        };
        let mut rows: Vec<String> = folded.paths.iter().map(row).collect();
        rows.sort();
        rows
    }

    #[test]
    fn weights_are_those_of_the_innermost_function() {
        let of = |has_times, max| CallProfile::with_limit(&trace(has_times), String::new(), max).unwrap();
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
