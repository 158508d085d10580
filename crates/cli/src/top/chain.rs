//! `top wait --chain`: the critical path of a thread.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::analysis::chain::path::{Did, End, Gap, Segment, Stop, Wait};
use stackhound::analysis::chain::{Chain, ChainReport, Found};
use stackhound::analysis::rows::thread_name;
use stackhound::analysis::wait::wait_reason;
use stackhound::profile::{FrameId, Groups, Origin, Profile, StackId, ThreadId};
use stackhound::types::Tid;
use stackhound_export::escape::{cell, line, row};
use stackhound_export::json::chain::{ChainSegment, ChainTotal, ChainWait, TopChain};
use stackhound_export::json::top::Cut;
use stackhound_export::numbers::seconds_with_micros;

use super::table::{self, Table, percent, seconds};
use super::{Shared, optional, wait, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

#[derive(Args, Debug)]
pub struct ChainArguments {
    #[command(flatten)]
    waits: wait::Arguments,
    /// Show the critical path of the thread --tid: what it waited for, and who worked in this time.
    /// The longest segments are shown
    #[arg(long, requires = "tid", conflicts_with = "by")]
    chain: bool,
    /// The thread of --chain
    #[arg(long, value_name = "TID", requires = "chain")]
    tid: Option<u32>,
}

/// Modules in which threads wait and run on behalf of others. The frame outside of them says more.
const SYSTEM_MODULES: [&str; 12] = [
    "ntoskrnl.exe",
    "ntkrnlmp.exe",
    "ntkrnlpa.exe",
    "ntkrpamp.exe",
    "hal.dll",
    "ntdll.dll",
    "kernelbase.dll",
    "kernel32.dll",
    "win32u.dll",
    "wow64.dll",
    "wow64cpu.dll",
    "wow64win.dll",
];

pub fn run(arguments: &ChainArguments, common: &Common) -> Result<Outcome> {
    let Some(tid) = arguments.tid else {
        return wait::run(&arguments.waits, common, wait::WAITS);
    };
    let shared = &arguments.waits.shared;
    if shared.is_filtered() {
        bail!("--chain follows all threads; only --from and --to select a part of it");
    }
    if shared.patterns.compile()?.is_some() {
        bail!("--chain shows stacks as they are; leave out the patterns of frames");
    }
    let read = super::read(
        shared,
        wait::is_scheduling,
        common,
        |trace, window| Chain::new(String::new(), trace, window, Tid(tid)),
        |chain, view, filter| {
            filter.holds_at_any_time(view);
            chain.observe(view)
        },
        |chain, known, naming, _| chain.finish(known, naming),
    )?;
    let [report] = &read.found[..] else {
        bail!("the input has {} captures, but a path is within one; name the files of one", read.found.len());
    };
    let report = report.as_ref().map_err(|full| *full)?;
    wait::require_switches([(report.stats.switches, report.compact)])?;
    let Some(found) = &report.found else {
        bail!(
            "no context switch of thread {tid} is in the selected part of the trace; `stackhound top wait --by \
             thread` lists threads"
        );
    };
    let names = Names { report, groups: Groups::new(&report.profile, shared.unnamed()) };
    let shown = longest(shared, &found.path.segments);
    read.write(
        shared,
        |out, _| table(out, &names, found, &shown),
        |out, _| csv(out, &names, found, &shown),
        |_, cut| document(&names, found, &shown, tid, cut),
    )
}

/// The longest segments, in the order of time.
fn longest<'a>(shared: &Shared, segments: &'a [Segment<ThreadId>]) -> Vec<&'a Segment<ThreadId>> {
    let mut shown: Vec<&Segment<ThreadId>> = segments.iter().collect();
    if !shared.all && shown.len() > shared.top {
        shown.sort_by_key(|segment| std::cmp::Reverse(segment.until.ticks_since(segment.from)));
        shown.truncate(shared.top);
        shown.sort_by_key(|segment| segment.from);
    }
    shown
}

/// What the parts of a path are called.
struct Names<'a> {
    report: &'a ChainReport,
    groups: Groups,
}

impl Names<'_> {
    fn profile(&self) -> &Profile {
        &self.report.profile
    }

    fn thread(&self, thread: ThreadId) -> String {
        thread_name(self.profile(), thread)
    }

    fn ids(&self, thread: ThreadId) -> (Option<u32>, Option<u32>) {
        let thread = &self.profile().threads()[thread.index()];
        (self.profile().process(thread.process).pid, thread.tid)
    }

    fn stack(&self, stack: StackId) -> Vec<String> {
        let frames = self.profile().stack(stack);
        frames.map(|frame| self.name(frame).to_owned()).collect()
    }

    fn name(&self, frame: FrameId) -> &str {
        &self.groups.names()[self.groups.of(frame)]
    }

    /// The innermost frame outside of the system's own modules; without one, the innermost frame.
    fn frame(&self, stack: StackId) -> &str {
        self.name(self.outside(stack).unwrap_or(self.profile().node(stack).frame))
    }

    /// The innermost frame outside of the system's own modules.
    fn outside(&self, stack: StackId) -> Option<FrameId> {
        let profile = self.profile();
        profile.stack(stack).find(|frame| {
            let frame = profile.frame(*frame);
            let module = frame.location.map(|location| &profile.modules()[location.module.index()].name);
            frame.origin != Origin::Remark
                && module.is_none_or(|name| !SYSTEM_MODULES.iter().any(|of| of.eq_ignore_ascii_case(name)))
        })
    }

    /// The stack of a segment, and the number of samples of a thread that ran.
    fn stack_of(&self, segment: &Segment<ThreadId>) -> (Option<StackId>, Option<usize>) {
        if segment.did != Did::Ran {
            return (segment.stack, None);
        }
        let samples = self.report.samples(segment);
        (samples.map(|(_, stack)| stack), Some(samples.map_or(0, |(count, _)| count)))
    }

    fn did(&self, segment: &Segment<ThreadId>) -> String {
        match segment.did {
            Did::Ran => "ran".to_owned(),
            Did::WasReady { is_preempted: true } => "was preempted".to_owned(),
            Did::WasReady { is_preempted: false } => "was ready to run".to_owned(),
            Did::Unknown(gap) => gap_name(gap).to_owned(),
            Did::Waited { end, stop, .. } => match (end, stop) {
                (End::Disk(file), _) => match self.report.label(file) {
                    "" => "waited for a disk".to_owned(),
                    file => format!("waited for a disk: {file}"),
                },
                (End::Timer, _) => "waited for a timer".to_owned(),
                (End::Dpc, _) => match segment.ready_stack.and_then(|stack| self.outside(stack)) {
                    Some(frame) => format!("waited until a deferred procedure call of {}", self.name(frame)),
                    None => "waited until a deferred procedure call".to_owned(),
                },
                (End::Idle, _) => "waited until an idle processor made it ready".to_owned(),
                (End::UnknownThread, _) => "waited for a thread that is not known".to_owned(),
                (End::NoEvent, _) => "waited, and no event ended it".to_owned(),
                (End::StillOpen, _) => "still waited at the end".to_owned(),
                (End::Thread(_), Some(Stop::Itself)) => "waited, and ended it itself".to_owned(),
                (End::Thread(by), Some(Stop::Repeats)) => {
                    format!("waited for {}, which waited for it", self.thread(by))
                }
                (End::Thread(by), _) => format!("waited for {}: too many waits", self.thread(by)),
            },
        }
    }
}

fn gap_name(gap: Gap) -> &'static str {
    match gap {
        Gap::NotStarted => "was not yet started",
        Gap::NotObserved => "not known: no switch of the thread",
        Gap::Lost => "not known: lost or contradictory records",
        Gap::NotKept => "not known: too long before the end",
        Gap::TooLong => "not known: too many steps",
    }
}

/// The key of the total in which a segment counts.
fn kind(did: &Did<ThreadId>) -> &'static str {
    match did {
        Did::Ran => "running",
        Did::WasReady { .. } => "ready",
        Did::Waited { end: End::Disk(_), .. } => "disk",
        Did::Waited { end: End::Timer, .. } => "timer",
        Did::Waited { end: End::Dpc, .. } => "interrupt",
        Did::Waited { .. } => "other_wait",
        Did::Unknown(_) => "unknown",
    }
}

/// The times in raw ticks by kind, as nanoseconds.
fn total(names: &Names<'_>, segments: &[Segment<ThreadId>]) -> ChainTotal {
    let of = |wanted: &str| {
        let segments = segments.iter().filter(|segment| kind(&segment.did) == wanted);
        names.report.nanos(segments.map(|segment| segment.until.ticks_since(segment.from)).sum())
    };
    ChainTotal {
        running: of("running"),
        ready: of("ready"),
        disk: of("disk"),
        timer: of("timer"),
        interrupt: of("interrupt"),
        other_wait: of("other_wait"),
        unknown: of("unknown"),
    }
}

fn table(out: &mut impl Write, names: &Names<'_>, found: &Found, shown: &[&Segment<ThreadId>]) -> Result<()> {
    let (report, path) = (names.report, &found.path);
    let length = |segment: &Segment<ThreadId>| segment.until.ticks_since(segment.from);
    let whole = found.window.1.ticks_since(found.window.0);
    let title = format_args!(
        "Critical path of {}, in {} s until {} s after the start of the trace",
        names.thread(found.thread),
        seconds(report.nanos(whole)),
        seconds(report.since_start(found.window.1))
    );
    line(out, title)?;
    let sums = total(names, &path.segments);
    let parts = [
        ("running", sums.running),
        ("ready", sums.ready),
        ("waiting for disks", sums.disk),
        ("for timers", sums.timer),
        ("for other interrupts", sums.interrupt),
        ("for others", sums.other_wait),
        ("unknown", sums.unknown),
    ];
    let mut text = String::new();
    for (index, (name, nanos)) in parts.into_iter().enumerate() {
        write!(text, "{}{name} {} s", if index > 0 { ", " } else { "" }, seconds(nanos))?;
    }
    line(out, format_args!("  {text}"))?;
    let in_shown: u64 = shown.iter().map(|segment| length(segment)).sum();
    let segments = counted(path.segments.len() as u64, "segment", "segments");
    let waits = counted(path.waits.len() as u64, "wait is", "waits are");
    let longest = match shown.len() < path.segments.len() {
        true => format!("; the longest {} have {}", grouped(shown.len() as u64), percent(in_shown, whole)),
        false => String::new(),
    };
    line(out, format_args!("  {segments}{longest}; {waits} replaced with what the other thread did (>)"))?;
    table::notes(
        out,
        [
            (
                found.earlier as u64,
                "other thread had the id before; --to selects it",
                "other threads had the id before; --to selects them",
            ),
            wait::compact(report.compact),
        ],
    )?;
    writeln!(out)?;
    let rows: Vec<_> = shown.iter().map(|segment| (*segment, names.stack_of(segment))).collect();
    let mut table = Table::<(&Segment<ThreadId>, (Option<StackId>, Option<usize>))>::new();
    table.right("FROM s", |(segment, _)| seconds_with_micros(report.since_start(segment.from)));
    table.right("TIME s", |(segment, _)| seconds_with_micros(report.nanos(length(segment))));
    table.right("SHARE", |(segment, _)| percent(length(segment), whole));
    table.left("THREAD", |(segment, _)| {
        let thread = names.thread(segment.thread);
        match depth(found, segment) {
            0 => thread,
            depth @ 1..=8 => format!("{} {thread}", ">".repeat(depth)),
            depth => format!(">{depth} {thread}"),
        }
    });
    table.left("DID", |(segment, (_, samples))| match *samples {
        Some(count @ 1..) => {
            format!("{} ({})", names.did(segment), counted(count as u64, "sample", "samples"))
        }
        _ => names.did(segment),
    });
    table.left("FRAME", |(_, (stack, _))| stack.map_or("-", |stack| names.frame(stack)).to_owned());
    table.write(out, &rows)?;
    Ok(())
}

/// How many waits a segment is part of.
fn depth(found: &Found, segment: &Segment<ThreadId>) -> usize {
    segment.wait.map_or(0, |wait| found.path.waits[wait].depth + 1)
}

fn csv(out: &mut impl Write, names: &Names<'_>, found: &Found, shown: &[&Segment<ThreadId>]) -> Result<()> {
    let columns = ["from", "duration", "depth", "thread", "pid", "tid", "kind", "did", "samples", "stack"];
    row(out, columns)?;
    for segment in shown {
        let nanos = |ticks| names.report.nanos(ticks).to_string();
        let (stack, samples) = names.stack_of(segment);
        let (pid, tid) = names.ids(segment.thread);
        let cells = [
            nanos(segment.from.ticks_since(found.window.0)),
            nanos(segment.until.ticks_since(segment.from)),
            depth(found, segment).to_string(),
            cell(&names.thread(segment.thread)),
            optional(pid.map(u64::from)),
            optional(tid.map(u64::from)),
            kind(&segment.did).to_owned(),
            cell(&names.did(segment)),
            optional(samples.map(|count| count as u64)),
            cell(&stack.map(|stack| names.stack(stack).join("<")).unwrap_or_default()),
        ];
        row(out, cells)?;
    }
    Ok(())
}

fn document(
    names: &Names<'_>,
    found: &Found,
    shown: &[&Segment<ThreadId>],
    tid: u32,
    cut: Vec<Cut>,
) -> TopChain {
    let (report, path) = (names.report, &found.path);
    // The waits that shown segments are part of, in their order, with new indexes.
    let mut is_used = vec![false; path.waits.len()];
    for segment in shown {
        let mut wait = segment.wait;
        while let Some(index) = wait.filter(|&index| !is_used[index]) {
            is_used[index] = true;
            wait = path.waits[index].within;
        }
    }
    let mut numbers = vec![0; path.waits.len()];
    let mut waits: Vec<&Wait<ThreadId>> = Vec::new();
    for (index, wait) in path.waits.iter().enumerate().filter(|(index, _)| is_used[*index]) {
        numbers[index] = waits.len();
        waits.push(wait);
    }
    let number = |wait: Option<usize>| wait.map(|wait| numbers[wait]);
    let start = found.window.0;
    let waits = waits.into_iter().map(|wait| {
        let (pid, tid) = names.ids(wait.thread);
        ChainWait {
            name: names.thread(wait.thread),
            pid,
            tid,
            within: number(wait.within),
            from: report.nanos(wait.from.ticks_since(start)),
            duration: report.nanos(wait.until.ticks_since(wait.from)),
            reason: wait_reason(wait.reason),
            stack: wait.stack.map(|stack| names.stack(stack)),
            readied_by: names.thread(wait.by),
            ready_stack: wait.ready_stack.map(|stack| names.stack(stack)),
        }
    });
    let segments = shown.iter().map(|segment| {
        let (pid, tid) = names.ids(segment.thread);
        let (stack, samples) = names.stack_of(segment);
        let (reason, file) = match segment.did {
            Did::Waited { reason, end: End::Disk(file), .. } => (Some(reason), Some(report.label(file))),
            Did::Waited { reason, .. } => (Some(reason), None),
            _ => (None, None),
        };
        ChainSegment {
            from: report.nanos(segment.from.ticks_since(start)),
            duration: report.nanos(segment.until.ticks_since(segment.from)),
            wait: number(segment.wait),
            name: names.thread(segment.thread),
            pid,
            tid,
            kind: kind(&segment.did),
            did: names.did(segment),
            reason: reason.map(wait_reason),
            file: file.filter(|file| !file.is_empty()).map(str::to_owned),
            samples,
            stack: stack.map(|stack| names.stack(stack)),
            ready_stack: segment.ready_stack.map(|stack| names.stack(stack)),
        }
    });
    TopChain {
        cut,
        name: names.thread(found.thread),
        pid: names.ids(found.thread).0,
        tid,
        earlier_threads: found.earlier,
        window: window(&report.clock, found.window),
        total: total(names, &path.segments),
        segment_count: path.segments.len(),
        switches: report.stats.switches,
        contradictions: report.stats.contradictions,
        compact_records: report.compact,
        waits: waits.collect(),
        segments: segments.collect(),
    }
}
