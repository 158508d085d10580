//! How people say where: contexts, times, threads, frames.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use stackhound::FileTime;
use stackhound::calltree::{Bound, Context, ContextId, Cpu, Frame, FrameId, Stack, Trace, TransitionId};
use stackhound_export::escape::Plain;

use crate::render::utc;
use crate::time::Point;

/// A context, by its number or by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// That before the transition of this number.
    Context(ContextId),
    /// The first one at or behind a time.
    Time(Point),
}

impl FromStr for Position {
    type Err = anyhow::Error;

    /// `#1000`, `1000`, or a time.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(digits) = text.strip_prefix('#') {
            let number = number(digits).with_context(|| format!("`{text}` is no context; write #1000"))?;
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

/// Digits only: `+5` is a number for the standard library.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl Position {
    /// The context.
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
            format!("{} is behind the trace, which ends at {}", utc(FileTime(time)), utc(FileTime(end)))
        })
    }

    /// The first context that does not lie before. Behind the end of the trace it is the one after the last.
    pub fn limit(self, trace: &Trace) -> Result<ContextId> {
        let behind = ContextId(trace.transition_count() + 1);
        match self {
            Self::Context(id) => Ok(trace.context(id)?.id()),
            Self::Time(point) => {
                let time = times(trace, point)?.1.max(0);
                Ok(trace.context_at(time.unsigned_abs()).map_or(behind, |context| context.id()))
            }
        }
    }
}

/// The beginning of a trace and a point in it.
fn times(trace: &Trace, point: Point) -> Result<(i64, i64)> {
    let start = trace.first_context().time().and_then(|start| i64::try_from(start).ok());
    let start = start.context("the trace has no times: name a context by its number, such as #1000")?;
    Ok(match point {
        Point::Absolute(time) => (start, time.0),
        Point::SinceStart(span) => (start, start.saturating_add(span)),
    })
}

/// Whose stack is looked at.
#[derive(Args, Clone, Copy, Debug)]
pub struct StackChoice {
    /// The stack of this thread, also where it is not running
    #[arg(long, value_name = "ID")]
    pub tid: Option<u32>,
    /// The stack of this processor, not of the one of the next transition
    #[arg(long, value_name = "N", conflicts_with = "tid")]
    pub cpu: Option<u16>,
}

/// A point of a trace.
#[derive(Args, Clone, Copy, Debug)]
pub struct PositionArguments {
    /// Where: a context, such as #1000 (or 1000), or a time as RFC 3339 or +5s since the start
    #[arg(long, value_name = "PLACE")]
    pub at: Position,
    #[command(flatten)]
    pub choice: StackChoice,
}

impl StackChoice {
    /// The stack at a place.
    pub fn stack(self, trace: &Trace, at: Position) -> Result<Stack<'_>> {
        let context = at.context(trace)?;
        let number = context.id().0;
        if let Some(tid) = self.tid {
            let mut stacks = context.stacks_of(tid).peekable();
            if stacks.peek().is_none() {
                bail!("thread {tid} is not of this trace");
            }
            // Where the thread does not run, the stack it ran on last.
            let since = |stack: &Stack<'_>| match stack.active_since()? {
                Bound::Observed(context) | Bound::Inferred { hi: context, .. } => Some(context),
                Bound::Open => None,
            };
            return stacks
                .filter(|stack| since(stack).is_some())
                .max_by_key(|stack| (stack.is_active(), since(stack)))
                .with_context(|| format!("thread {tid} was not seen running before context #{number}"));
        }
        let cpu = self.cpu.map_or(context.cpu(), Cpu);
        if u32::from(cpu.0) >= trace.cpu_count() {
            bail!("processor {} is not of this trace, which has {}", cpu.0, trace.cpu_count());
        }
        context.on(cpu).stack().with_context(|| {
            format!("which stack of processor {} is active at context #{number} is not known", cpu.0)
        })
    }

    /// The top frame of the stack at a place.
    pub fn frame(self, trace: &Trace, at: Position) -> Result<Frame<'_>> {
        let stack = self.stack(trace, at)?;
        stack.frame().with_context(|| {
            format!("no frame of the {} is known at context #{}", Plain(stack), stack.context().id().0)
        })
    }
}

/// A frame as people name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameName {
    /// By the transition that created it, as it is shown.
    Created(TransitionId),
    /// By its first context, where how it was created was not seen.
    Seen(ContextId),
    /// By its number, as JSON has it.
    Number(FrameId),
}

impl FromStr for FrameName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = |digits: &str| {
            let digits = digits.strip_prefix('#').unwrap_or(digits);
            number(digits).with_context(|| {
                format!("`{text}` is no frame; write #1000 or ~#1000 as it is shown, or @7 for its number")
            })
        };
        Ok(match text.as_bytes().first() {
            Some(b'~') => Self::Seen(ContextId(digits(&text[1..])?)),
            Some(b'@') => Self::Number(FrameId(digits(&text[1..])?)),
            _ => Self::Created(TransitionId(digits(text)?)),
        })
    }
}

impl FrameName {
    /// The frame.
    pub fn frame(self, trace: &Trace) -> Result<Frame<'_>> {
        let (first, what) = match self {
            Self::Number(id) => return Ok(trace.frame(id)?),
            Self::Created(id) => (trace.transition(id)?.id().context_after(), "transition"),
            Self::Seen(id) => (id, "context"),
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
        match found[..] {
            [frame] => Ok(frame),
            [] => bail!("no frame begins at {what} #{number}; name it as it is shown, or use --at"),
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
                    "{} frames begin at {what} #{number}; say which: {}{more}",
                    found.len(),
                    shown.join(", ")
                )
            }
        }
    }
}

/// A frame, by its name or as the top one at a place.
#[derive(Args, Clone, Copy, Debug)]
pub struct WhichFrame {
    /// The frame: #1000 for the transition that created it, ~#1000 for its first context, @7 for its number
    #[arg(value_name = "FRAME", required_unless_present = "at", conflicts_with = "at")]
    pub frame: Option<FrameName>,
    /// The top frame there: at a context, such as #1000 (or 1000), or a time as RFC 3339 or +5s since the start
    #[arg(long, value_name = "PLACE")]
    pub at: Option<Position>,
    #[command(flatten)]
    pub choice: StackChoice,
}

impl WhichFrame {
    /// The frame.
    pub fn find(self, trace: &Trace) -> Result<Frame<'_>> {
        match (self.frame, self.at) {
            (Some(name), _) => name.frame(trace),
            (None, Some(at)) => self.choice.frame(trace, at),
            (None, None) => bail!("which frame? Write its name, or --at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
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
            ("~#12", Some(FrameName::Seen(ContextId(12)))),
            ("~12", Some(FrameName::Seen(ContextId(12)))),
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
