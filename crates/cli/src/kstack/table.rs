//! The table of kernel stacks: one block per thread.

use std::fmt::Write as _;
use std::io::{self, Write};

use stackhound::threads::{Evidence, Part, SwitchEvidence, SwitchRelation, ThreadStack, ThreadState};
use stackhound::{FileTime, Mode};
use stackhound_export::escape::{Plain, line};

use crate::palette;
use crate::render::{seconds, utc};

/// Width of the column of names before the addresses. Longer names move the address to the right.
const NAMES: usize = 60;

pub fn write(out: &mut impl Write, time: Option<FileTime>, stacks: &[ThreadStack]) -> io::Result<()> {
    if let Some(time) = time {
        line(out, format_args!("at {}", utc(time)))?;
    }
    if stacks.is_empty() {
        writeln!(out)?;
        line(
            out,
            format_args!("no thread is known at that time; record process and thread events to see threads"),
        )?;
    }
    for (index, stack) in stacks.iter().enumerate() {
        if index > 0 || time.is_some() {
            writeln!(out)?;
        }
        let process = stack.process.as_deref().unwrap_or("?");
        let pid = stack.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        let name = stack.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
        let evidence =
            stack.evidence.as_ref().map(|evidence| format!("; {}", describe(evidence))).unwrap_or_default();
        let state = state(&stack.state, time);
        let style = palette::of(palette::HEADING);
        write!(out, "{style}{} ({pid}), thread {}{style:#}", Plain(process), stack.tid)?;
        line(out, format_args!("{name}: {state}{evidence}"))?;
        let mut number = 0;
        part(out, &stack.kernel, Mode::Kernel, &mut number)?;
        if let Some(user) = &stack.user {
            part(out, user, Mode::User, &mut number)?;
        }
    }
    Ok(())
}

fn part(out: &mut impl Write, part: &Part, mode: Mode, number: &mut usize) -> io::Result<()> {
    let frames = match part {
        Ok(frames) => frames,
        Err(absent) => return line(out, format_args!("     {:<6} none: {}", mode.name(), absent.describe())),
    };
    for frame in frames {
        let name = frame.to_string();
        let address = frame.address.map(|address| address.to_string()).filter(|address| *address != name);
        let (style, mode) = (palette::of_mode(frame.mode), frame.mode.name());
        write!(out, "{number:>4} {style}{mode:<6}{style:#} ")?;
        let text = format!("{name:<NAMES$} {}", address.unwrap_or_default());
        line(out, format_args!("{}", text.trim_end()))?;
        *number += 1;
    }
    Ok(())
}

fn state(state: &ThreadState, time: Option<FileTime>) -> String {
    let mut text = state.name().to_owned();
    if let ThreadState::Waiting { reason: Some(reason), .. } = state {
        _ = write!(text, " ({reason})");
    }
    if let (Some(since), Some(time)) = (state.since(), time) {
        _ = write!(text, " for {} s", seconds(time.0.saturating_sub(since.0)));
    }
    text
}

/// Describes the evidence for a stack.
fn describe(evidence: &Evidence) -> String {
    let certainty = evidence.certainty().name();
    match evidence {
        Evidence::Captured { took, own, kernel_cut, user_cut, user_later } => {
            let mut text = format!("{certainty}: captured in {:.3} ms", took.as_secs_f64() * 1e3);
            for (applies, note) in [
                (*own, ", by the thread itself"),
                (*kernel_cut, ", kernel frames beyond the limit omitted"),
                (*user_cut, ", user frames beyond the limit omitted"),
                (*user_later, ", the user stack directly afterwards"),
            ] {
                text += if applies { note } else { "" };
            }
            text
        }
        Evidence::Switch(switch) => format!("{certainty}: {}", describe_switch(switch)),
        Evidence::Proc => format!("{certainty}: in /proc"),
        _ => certainty.to_owned(),
    }
}

fn describe_switch(switch: &SwitchEvidence) -> String {
    let age = seconds(switch.age.saturating_abs());
    let mut text = match switch.relation {
        SwitchRelation::Last => format!("switched in with this stack {age} s before"),
        SwitchRelation::Resumed => format!("switched in again with this stack {age} s later"),
        SwitchRelation::Earlier { later, lost } => {
            let switches = if later == 1 { "switch" } else { "switches" };
            let lost = if lost { ", some of which were lost" } else { "" };
            format!("an older stack, from {age} s before; {later} later {switches} without a stack{lost}")
        }
    };
    if switch.lost_between {
        text += ", and events are missing in between";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackhound::Address;
    use stackhound::frames::{Backing, Region};
    use stackhound::threads::StackFrame;

    fn frame(address: u64, mode: Mode) -> StackFrame {
        StackFrame {
            is_wow64: false,
            region: Region::UNKNOWN,
            address: Some(Address(address)),
            mode,
            location: None,
            backing: Backing::Unknown,
            name: None,
            names: None,
            stated: None,
        }
    }

    /// In a callback to user mode, the kernel frames that made the callback are between user
    /// frames.
    #[test]
    fn each_frame_of_a_part_has_its_own_mode() {
        let user = [
            frame(0x7ff6_0000_1000, Mode::User),
            frame(0xffff_f800_0000_1000, Mode::Kernel),
            frame(0x7ff6_0000_2000, Mode::User),
        ];
        let mut written = Vec::new();
        let mut number = 3;
        part(&mut written, &Ok(user.to_vec()), Mode::User, &mut number).expect("written to memory");
        let written = String::from_utf8(written).expect("text");
        let columns: Vec<Vec<&str>> =
            written.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
        assert_eq!(columns, [["3", "user"], ["4", "kernel"], ["5", "user"]], "{written}");
    }

    #[test]
    fn evidence_is_described() {
        let evidence = |relation, age, lost_between| {
            describe(&Evidence::Switch(SwitchEvidence { time: FileTime(0), age, relation, lost_between }))
        };
        for (described, expected) in [
            (
                evidence(SwitchRelation::Last, 15_000_000, false),
                "observed: switched in with this stack 1.5000000 s before",
            ),
            (
                evidence(SwitchRelation::Resumed, -20, true),
                "inferred: switched in again with this stack 0.0000020 s later, and events are missing in between",
            ),
            (
                evidence(SwitchRelation::Earlier { later: 1, lost: true }, 10, false),
                "observed: an older stack, from 0.0000010 s before; 1 later switch without a stack, some of which were lost",
            ),
        ] {
            assert_eq!(described, expected);
        }
        let took = std::time::Duration::from_micros(250);
        let captured =
            Evidence::Captured { took, own: false, kernel_cut: true, user_cut: false, user_later: false };
        assert_eq!(
            describe(&captured),
            "observed: captured in 0.250 ms, kernel frames beyond the limit omitted"
        );
    }
}
