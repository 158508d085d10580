//! Compares the call trees that are built from recorded stacks with the truth about each stack.
//!
//! `merge_truth TRACE TRUTH SYMBOLS` reads a trace of one program, and a file with a line for each of its events with
//! stacks: its time, the thread, and for each frame, innermost first, the addresses
//! of the function that was called and of the one that executes, and a number that identifies the frame.
//! `scripts/pe-truth.sh` makes both from an exact trace. `SYMBOLS` is a folder with symbols or images.
//!
//! Prints how many frames have the right function, and in how many cases a frame of two successive stacks of a thread is
//! rightly or wrongly regarded as one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;

use stackhound::calltree::{ContextId, Frame, FrameId, StackKind};
use stackhound::symbols::path::SymbolPath;
use stackhound::trace::Grouping;
use stackhound::{Enrichment, open_stacks};

/// A line of the truth: the time, a thread, and for each frame the function that was called, the one that executes, and
/// its number.
type Line = (u64, u32, Vec<(Option<u64>, Option<u64>, u64)>);

/// The events whose stacks are compared.
const EVENTS: [&str; 2] = ["PerfInfo/SampledProfile", "PerfInfo/SysCallEnter"];

/// What became of the frames.
#[derive(Default)]
struct Counts {
    stacks: u64,
    frames: u64,
    /// Frames with the function that was called; with another one, to which it has jumped; without a function; and with
    /// a wrong one.
    functions: u64,
    jumped: u64,
    modules: u64,
    wrong: u64,
    /// Frames that two successive stacks of a thread share, in truth and in the call tree; only in truth; and only in the
    /// call tree.
    joined: u64,
    split: u64,
    merged: u64,
    /// Stacks whose depth, outermost function or thread is another one.
    missing: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [trace, truth, symbols] = &arguments[..] else { return Err("expected three arguments".into()) };
    let enrichment = Enrichment::named(SymbolPath::default().with_first(symbols.into()))?;
    let (trace, _) = open_stacks(Path::new(trace), enrichment, Grouping::default())?;
    let lines = BufReader::new(std::fs::File::open(truth)?).lines();
    let mut transitions = (0..trace.transition_count()).filter(|&number| {
        let transition = trace.transition(stackhound::calltree::TransitionId(number));
        transition.is_ok_and(|transition| transition.label().is_some_and(|label| EVENTS.contains(&label)))
    });
    let mut counts = Counts::default();
    let mut before: HashMap<u32, Vec<(u64, FrameId)>> = HashMap::new();
    let mut true_frames = HashSet::new();
    let mut found_frames = HashSet::new();
    let mut wrong: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        let (_, tid, frames): Line = serde_json::from_str(&line?)?;
        let number = transitions.next().ok_or("the trace has fewer events than the truth")?;
        let context = trace.context(ContextId(number))?;
        counts.stacks += 1;
        let Some(stack) = context.stack_of(tid, StackKind::User) else {
            counts.missing += 1;
            continue;
        };
        // The outermost frame stands for what no stack shows.
        let mut found: Vec<_> = stack.frames().collect();
        found.pop();
        // The stack of the event was not used: an older one is shown.
        let start = |frame: &Frame| Some(frame.function_location()?.address()?.0);
        let outermost = frames.last().and_then(|&(_, executes, _)| executes);
        let is_older = found.last().and_then(start).is_some_and(|start| Some(start) != outermost);
        if found.len() != frames.len() || is_older {
            counts.missing += 1;
            before.remove(&tid);
            continue;
        }
        for (&(called, executes, _), frame) in frames.iter().zip(&found) {
            counts.frames += 1;
            let location = frame.function_location();
            let location =
                location.as_ref().and_then(|location| Some((location.symbol()?, location.address()?.0)));
            match location {
                None => counts.modules += 1,
                Some((_, address)) if Some(address) == called => counts.functions += 1,
                Some((_, address)) if Some(address) == executes => counts.jumped += 1,
                Some((name, address)) => {
                    counts.wrong += 1;
                    *wrong.entry(format!("{name} at {address:#x}, expected {executes:x?}")).or_default() += 1;
                }
            }
        }
        let now: Vec<(u64, FrameId)> =
            frames.iter().zip(&found).rev().map(|(&(_, _, number), frame)| (number, frame.id())).collect();
        for &(number, id) in &now {
            true_frames.insert(number);
            found_frames.insert(id);
        }
        if let Some(before) = before.insert(tid, now.clone()) {
            for (old, new) in before.iter().zip(&now) {
                match (old.0 == new.0, old.1 == new.1) {
                    (true, true) => counts.joined += 1,
                    (true, false) => counts.split += 1,
                    (false, true) => counts.merged += 1,
                    (false, false) => {}
                }
            }
        }
    }
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    println!("{} stacks with {} frames, {} stacks not used", counts.stacks, counts.frames, counts.missing);
    println!(
        "functions: {} called, {} reached by a jump, {} wrong, {} without a name",
        counts.functions, counts.jumped, counts.wrong, counts.modules
    );
    println!(
        "frames in two successive stacks: {} regarded as one, {} of them rightly ({:.2} %); {} of the same frame regarded as two",
        counts.joined + counts.merged,
        counts.joined,
        share(counts.joined, counts.joined + counts.merged),
        counts.split
    );
    println!("{} frames were seen; the call tree has {}", true_frames.len(), found_frames.len());
    let mut wrong: Vec<_> = wrong.into_iter().collect();
    wrong.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (name, count) in wrong.into_iter().take(10) {
        println!("  {count} {name}");
    }
    Ok(())
}
