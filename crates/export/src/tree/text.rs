//! The stack model as text.

use std::fmt;
use std::io::{self, Write};

use stackhound_calltree::{
    Bound, CallRange, Count, EndType, Evidence, Frame, Stack, StackEvent, StartType, TailCall,
};

use super::selection::{Relation, Shown, Tree};
use super::times::times;
use crate::escape::Plain;

/// Maximum number of tail calls that are shown with a frame.
const TAIL_CALLS_MAX: usize = 3;
/// Maximum indentation, so that endless recursion does not lead to endless lines.
const INDENTATION_MAX: usize = 64;

/// Writes a tree, one line per row: frames after `|- `, and `|- ...` for frames that are left out.
///
/// # Errors
/// Errors of `out`.
pub fn tree(tree: &Tree<'_>, out: &mut dyn Write) -> io::Result<()> {
    for row in tree.rows() {
        if let Some(level) = row.level.checked_sub(1) {
            write!(out, "{:1$}|- ", "", 3 * level.min(INDENTATION_MAX))?;
        }
        match row.shown {
            Shown::Frame(frame, relation) => {
                let mark = if relation == Relation::Active { " <== active" } else { "" };
                writeln!(out, "{}{}{mark}", line(frame), after(frame))?;
            }
            Shown::Cut(count) => writeln!(out, "... {} left out", frames(count))?,
            Shown::Away { left, back: Some(back) } => writeln!(out, "stack left at {left}, back at {back}")?,
            Shown::Away { left, back: None } => writeln!(out, "stack left at {left}")?,
            Shown::MoreAway => writeln!(out, "... and left more often")?,
        }
    }
    Ok(())
}

/// The start and the duration of a frame, after two spaces. Names can contain a single one.
fn after(frame: Frame<'_>) -> String {
    let known: Vec<_> = times(frame).into_iter().flatten().map(|time| time.to_string()).collect();
    if known.is_empty() { String::new() } else { format!("  {}", known.join(", ")) }
}

/// A count such as `12 frames` or `>=1 frames`.
pub(super) fn frames(count: Count) -> String {
    match count {
        Count::Exactly(1) => "1 frame".to_owned(),
        count => format!("{count} frames"),
    }
}

/// A frame, with its unusual properties in brackets.
pub fn line(frame: Frame<'_>) -> impl fmt::Display {
    let remarks = remarks(frame).join(", ");
    fmt::from_fn(move |f| {
        write!(f, "{}", Plain(frame))?;
        if remarks.is_empty() { Ok(()) } else { write!(f, " [{}]", Plain(&remarks)) }
    })
}

/// The unusual properties of a frame, with names from the trace. Calls, returns and inferred bounds are usual.
pub(super) fn remarks(frame: Frame<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    let tail_calls: Vec<_> = frame.tail_calls().collect();
    if !matches!(frame.start_type(), StartType::Call | StartType::Unknown) {
        remarks.push(frame.start_type().name().to_owned());
    }
    for found in tail_calls.iter().take(TAIL_CALLS_MAX) {
        remarks.push(format!("then {} at {}", found.name(), found.transition().id()));
    }
    if let Some(more) = tail_calls.len().checked_sub(TAIL_CALLS_MAX).filter(|more| *more > 0) {
        remarks.push(format!("{more} more"));
    }
    match frame.end_type() {
        EndType::Return | EndType::InterruptReturn | EndType::TraceEnd | EndType::Gone => {}
        unusual => remarks.push(unusual.name().to_owned()),
    }
    if matches!(frame.evidence(), Evidence::Walked | Evidence::Stitched) {
        remarks.push(frame.evidence().name().to_owned());
    }
    remarks
}

/// Writes a stack: its heading, and its frames from the innermost one.
///
/// # Errors
/// Errors of `out`.
pub fn stack(stack: &Stack<'_>, out: &mut dyn Write) -> io::Result<()> {
    heading(stack, out)?;
    for frame in stack.frames() {
        writeln!(out, "  {}", line(frame))?;
    }
    Ok(())
}

/// Writes the heading of a stack: its kind and context, and whether and since when it is active.
///
/// # Errors
/// Errors of `out`.
pub fn heading(stack: &Stack<'_>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{}, {}", Plain(stack), stack.context())?;
    match (stack.is_active(), stack.active_since()) {
        (true, Some(Bound::Inferred { hi, .. })) if !stack.has_bounded_activity() => {
            writeln!(out, ", active since #{} if it was not switched out", hi.0)
        }
        (true, Some(since)) => writeln!(out, ", active since {since}"),
        (false, Some(_)) => writeln!(out, ", not active"),
        (_, None) => writeln!(out, ", not active so far"),
    }
}

/// Writes the stacks of a backtrace one after another.
///
/// # Errors
/// Errors of `out`.
pub fn backtrace(stacks: &[Stack<'_>], out: &mut dyn Write) -> io::Result<()> {
    stacks.iter().try_for_each(|one| stack(one, out))
}

/// A range of one call, such as `[1]#199886 - ntoskrnl!KeWaitForSingleObject [Context before
/// #199887, Context before #199992]`.
pub fn call_range(range: CallRange<'_>) -> impl fmt::Display {
    Plain(range)
}

/// An event, indented by its number of frames below the requested frame, such as `Start #199886 -
/// ntoskrnl!KeWaitForSingleObject`.
pub fn event(depth: usize, event: StackEvent<'_>) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "{:2$}{}", "", Plain(event), 2 * depth.min(INDENTATION_MAX)))
}

/// A call, such as `#199886 ntoskrnl!KeWaitForSingleObject(...) #199992`: the transitions that
/// started and ended it. `~` before a context marks an inferred start or end, `???` an unknown one.
/// Its start and its duration follow, if they are known.
pub fn call(frame: Frame<'_>) -> impl fmt::Display {
    let start = match (frame.creation_transition(), frame.start()) {
        (Some(transition), _) => transition.id().to_string(),
        (None, Bound::Open) => "???".to_owned(),
        (None, _) => format!("~#{}", frame.first_context().id().0),
    };
    let end = match frame.end() {
        Bound::Observed(last) => format!("#{}", last.0),
        Bound::Inferred { lo, .. } => format!("~#{}", lo.0),
        Bound::Open => "???".to_owned(),
    };
    fmt::from_fn(move |f| write!(f, "{start} {}(...) {end}{}", Plain(frame.name()), after(frame)))
}

/// A function that a frame reached by a tail call, such as `#199890 vmlinux!ksys_write(...) #199992  tail call of #199886 -
/// vmlinux!x64_sys_call`: the jump and the last context before the next one or of the frame.
pub fn tail_call(found: TailCall<'_>) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let (start, last) = (found.transition().id(), found.last_context().id().0);
        write!(f, "{start} {}(...) #{last}  tail call of {}", Plain(found.name()), Plain(found.frame()))
    })
}
