//! Positions on the command line: contexts, times, threads, processors and frames.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use globset::GlobMatcher;
use stackhound::FileTime;
use stackhound::calltree::{
    Context, ContextId, Cpu, Frame, FrameId, Stack, StackId, StackInfo, Trace, TransitionId,
};
use stackhound_export::escape::Plain;

use crate::inputs;
use crate::output::counted;
use crate::render::utc;
use crate::time::Point;

/// A context, by its number or by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The context before the transition of this number.
    Context(ContextId),
    /// The first context at or after a time.
    Time(Point),
}

impl FromStr for Position {
    type Err = anyhow::Error;

    /// `#1000`, `1000`, or a time.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(digits) = text.strip_prefix('#') {
            let number =
                number(digits).with_context(|| format!("`{text}` is not a valid context; write #1000"))?;
            return Ok(Self::Context(ContextId(number)));
        }
        match number(text) {
            Some(number) => Ok(Self::Context(ContextId(number))),
            None => Ok(Self::Time(text.parse().with_context(|| {
                format!("`{text}` is neither a context, such as #1000, nor a time, such as +5s")
            })?)),
        }
    }
}

/// Parses digits only. The standard library would also accept `+5`.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl Position {
    /// Finds the context.
    pub fn context(self, trace: &Trace) -> Result<Context<'_>> {
        let point = match self {
            Self::Context(id) => return Ok(trace.context(id)?),
            Self::Time(point) => point,
        };
        let (start, time) = times(trace, point)?;
        if time < start {
            bail!("{} is before the trace, which begins at {}", utc(FileTime(time)), utc(FileTime(start)));
        }
        trace.context_at(time.unsigned_abs()).with_context(|| {
            let end = trace.last_context().time().and_then(|end| i64::try_from(end).ok()).unwrap_or(start);
            format!("{} is after the trace, which ends at {}", utc(FileTime(time)), utc(FileTime(end)))
        })
    }

    /// The first context at or after the position. After the end of the trace, this is one after
    /// the last.
    pub fn limit(self, trace: &Trace) -> Result<ContextId> {
        let end = ContextId(trace.transition_count() + 1);
        match self {
            Self::Context(id) => Ok(trace.context(id)?.id()),
            Self::Time(point) => {
                let time = times(trace, point)?.1.max(0);
                Ok(trace.context_at(time.unsigned_abs()).map_or(end, |context| context.id()))
            }
        }
    }
}

/// The start of a trace and a point in it, in units of 100 ns since 1601.
fn times(trace: &Trace, point: Point) -> Result<(i64, i64)> {
    let start = trace.first_context().time().and_then(|start| i64::try_from(start).ok());
    let start = start.context("the trace has no times; use the number of a context, such as #1000")?;
    Ok(match point {
        Point::Absolute(time) => (start, time.0),
        Point::SinceStart(span) => (start, start.saturating_add(span)),
    })
}

/// The choice of processes and threads.
#[derive(Args, Clone, Debug)]
pub struct ThreadChoice {
    /// Show only threads of these processes
    #[arg(long, value_name = "ID")]
    pub pid: Vec<u32>,
    /// Show only threads of processes with these image names (* and ? match any text)
    #[arg(long, value_name = "NAME", value_parser = ProcessName::from_str)]
    pub process: Vec<ProcessName>,
    /// Show only this thread
    #[arg(long, value_name = "ID")]
    pub tid: Option<u32>,
}

/// A pattern of image names.
#[derive(Clone, Debug)]
pub struct ProcessName(GlobMatcher);

impl FromStr for ProcessName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(Self(inputs::wildcards(text, true)?))
    }
}

impl ProcessName {
    /// Whether one of the patterns matches. Without patterns, every name is chosen.
    pub fn choose(patterns: &[Self], name: Option<&str>) -> bool {
        let fits = |pattern: &Self| name.is_some_and(|name| pattern.0.is_match(name));
        patterns.is_empty() || patterns.iter().any(fits)
    }
}

/// The stacks of the chosen threads; `None` for all stacks.
#[derive(Clone, Debug)]
pub struct ChosenStacks(Option<Vec<bool>>);

impl ChosenStacks {
    pub fn has(&self, stack: StackId) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.get(stack.0 as usize) == Some(&true))
    }

    /// Whether the stack of a frame is chosen. The stack is not looked up if all are.
    pub fn has_frame(&self, frame: &Frame<'_>) -> bool {
        self.0.is_none() || self.has(frame.stack().id())
    }
}

impl ThreadChoice {
    /// Whether it selects anything, and not every stack.
    pub fn is_made(&self) -> bool {
        self.tid.is_some() || !self.pid.is_empty() || !self.process.is_empty()
    }

    fn fits(&self, info: &StackInfo) -> bool {
        self.tid.is_none_or(|tid| info.thread == Some(tid))
            && (self.pid.is_empty() || info.process.is_some_and(|pid| self.pid.contains(&pid)))
            && ProcessName::choose(&self.process, info.name.as_deref())
    }

    /// Finds the stacks that it selects in a trace.
    pub fn stacks(&self, trace: &Trace) -> Result<ChosenStacks> {
        if !self.is_made() {
            return Ok(ChosenStacks(None));
        }
        let stacks = trace.stacks(ContextId(0))?;
        let chosen: Vec<bool> = stacks.map(|stack| self.fits(&stack.info())).collect();
        if chosen.contains(&true) {
            return Ok(ChosenStacks(Some(chosen)));
        }
        match self {
            Self { tid: Some(tid), pid, process } if pid.is_empty() && process.is_empty() => {
                bail!("thread {tid} is not in this trace; `stackhound threads` lists the threads")
            }
            _ => bail!(
                "no thread of this trace is selected by --pid, --process and --tid; `stackhound threads` lists the threads"
            ),
        }
    }
}

/// The choice between the stacks at a position.
#[derive(Args, Clone, Debug)]
pub struct StackChoice {
    #[command(flatten)]
    pub threads: ThreadChoice,
    /// Show the stack of this processor; by default the processor of the next transition
    #[arg(long, value_name = "N", conflicts_with_all = ["tid", "pid", "process"])]
    pub cpu: Option<u16>,
}

#[derive(Args, Clone, Debug)]
pub struct PositionArguments {
    /// Show the stacks at this context, such as #1000 (or 1000), or time: RFC 3339, or +5s since
    /// the start
    #[arg(long, value_name = "POSITION")]
    pub at: Position,
    #[command(flatten)]
    pub choice: StackChoice,
}

impl StackChoice {
    /// Finds the stack at a position: the active one of the chosen threads, else the one of them that
    /// was active last.
    pub fn stack<'t>(&self, trace: &'t Trace, at: Position) -> Result<Stack<'t>> {
        let context = at.context(trace)?;
        let number = context.id().0;
        if self.threads.is_made() {
            let chosen = self.threads.stacks(trace)?;
            let stacks = trace.stacks(context.id())?.filter(|stack| chosen.has(stack.id()));
            return Ok(Stack::latest(stacks)
                .with_context(|| match self.threads.tid {
                    Some(tid) => format!("thread {tid} was not observed running before context #{number}"),
                    None => format!("none of these threads was observed running before context #{number}"),
                })?
                .0);
        }
        let cpu = self.cpu.map_or(context.cpu(), Cpu);
        if u32::from(cpu.0) >= trace.cpu_count() {
            bail!(
                "processor {} is not in this trace, which has {}",
                cpu.0,
                counted(trace.cpu_count().into(), "processor", "processors")
            );
        }
        context.on(cpu).stack().with_context(|| {
            format!("the active stack of processor {} at context #{number} is unknown", cpu.0)
        })
    }

    /// Finds the top frame of the stack at a position.
    pub fn frame<'t>(&self, trace: &'t Trace, at: Position) -> Result<Frame<'t>> {
        let stack = self.stack(trace, at)?;
        stack.frame().with_context(|| {
            format!("no frame of the {} is known at context #{}", Plain(stack), stack.context().id().0)
        })
    }
}

/// A frame on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameName {
    /// By the transition that created it, as output shows it.
    Created(TransitionId),
    /// By its first context, if its creation was not observed.
    First(ContextId),
    /// By its number in JSON.
    Number(FrameId),
}

impl FromStr for FrameName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = |digits: &str| {
            let digits = digits.strip_prefix('#').unwrap_or(digits);
            number(digits).with_context(|| {
                format!("`{text}` is not a valid frame; write #1000 or ~#1000 as shown in output, or @7 for its number")
            })
        };
        Ok(match text.as_bytes().first() {
            Some(b'~') => Self::First(ContextId(digits(&text[1..])?)),
            Some(b'@') => Self::Number(FrameId(digits(&text[1..])?)),
            _ => Self::Created(TransitionId(digits(text)?)),
        })
    }
}

impl FrameName {
    /// Finds the frame; of several, those on the chosen stacks.
    pub fn frame<'t>(self, trace: &'t Trace, chosen: &ChosenStacks) -> Result<Frame<'t>> {
        let (first, unit) = match self {
            Self::Number(id) => return Ok(trace.frame(id)?),
            Self::Created(id) => (trace.transition(id)?.id().context_after(), "transition"),
            Self::First(id) => (id, "context"),
        };
        let mut found = trace.frames_from(first)?;
        let number = match self {
            Self::Created(id) => {
                found.retain(|frame| frame.creation_transition().is_some_and(|by| by.id() == id));
                id.0
            }
            _ => {
                found.retain(|frame| frame.creation_transition().is_none());
                first.0
            }
        };
        found.retain(|frame| chosen.has_frame(frame));
        match found[..] {
            [frame] => Ok(frame),
            [] => bail!("no frame begins at {unit} #{number}; write it as shown in output, or use --at"),
            _ => {
                let shown: Vec<_> = found
                    .iter()
                    .take(5)
                    .map(|frame| {
                        format!("@{} ({} on the {})", frame.id().0, Plain(frame.name()), Plain(frame.stack()))
                    })
                    .collect();
                let more = if found.len() > shown.len() { ", …" } else { "" };
                bail!(
                    "{} frames begin at {unit} #{number}; use one of their numbers: {}{more}",
                    found.len(),
                    shown.join(", ")
                )
            }
        }
    }
}

/// A frame, by its name or as the top frame at a position.
#[derive(Args, Clone, Debug)]
pub struct WhichFrame {
    /// Use the frame that transition #1000 created, with the first context ~#1000, or with the
    /// number @7
    #[arg(value_name = "FRAME", required_unless_present = "at", conflicts_with = "at")]
    pub frame: Option<FrameName>,
    /// Use the top frame at this context, such as #1000 (or 1000), or time: RFC 3339, or +5s since
    /// the start
    #[arg(long, value_name = "POSITION")]
    pub at: Option<Position>,
    #[command(flatten)]
    pub choice: StackChoice,
}

impl WhichFrame {
    /// Finds the frame.
    pub fn find<'t>(&self, trace: &'t Trace) -> Result<Frame<'t>> {
        match (self.frame, self.at) {
            (Some(name), _) => name.frame(trace, &self.choice.threads.stacks(trace)?),
            (None, Some(at)) => self.choice.frame(trace, at),
            (None, None) => bail!("expected a frame; write it as shown in output, or use --at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read() {
        for (text, expected) in [
            ("#1000", Some(Position::Context(ContextId(1000)))),
            ("1000", Some(Position::Context(ContextId(1000)))),
            ("+5s", Some(Position::Time(Point::SinceStart(50_000_000)))),
            ("", None),
            ("#", None),
            ("#+5", None),
            ("-1", None),
            ("#99999999999999999999", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(text.parse::<Position>().ok(), expected, "{text}");
        }
    }

    #[test]
    fn frame_names_are_read() {
        for (text, expected) in [
            ("#1000", Some(FrameName::Created(TransitionId(1000)))),
            ("1000", Some(FrameName::Created(TransitionId(1000)))),
            ("~#12", Some(FrameName::First(ContextId(12)))),
            ("~12", Some(FrameName::First(ContextId(12)))),
            ("@7", Some(FrameName::Number(FrameId(7)))),
            ("", None),
            ("???", None),
            ("@", None),
            ("~x", None),
            ("é", None),
        ] {
            assert_eq!(text.parse::<FrameName>().ok(), expected, "{text}");
        }
    }
}
