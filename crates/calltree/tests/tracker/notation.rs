//! Scripts: executions as text, with the expected items of each transition.
//!
//! A line is `CLASS [ARGUMENT] PC SP | ITEMS`: the transition's class and the registers after it.
//! All numbers are hexadecimal. The first line, `start PC SP`, is a transition without an effect.
//! `call` stores the caller's pc plus 5 as return address at SP. The following lines are not
//! transitions: `poke ADDRESS WORD`, `declare LOW HIGH KIND`, `release LOW HIGH`, `exit THREAD`,
//! `skip TRANSITIONS`, `unseen PC SP` for the registers after skipped transitions, `space NUMBER`
//! for the address space of all further stack pointers, and `blind`, after which memory cannot be
//! read. Code at 80000000 and above runs in kernel mode; its stack pointers there, and declared memory
//! there, are in the kernel's space.
//!
//! Items are written without their contexts if these are the usual ones: the context after the
//! line's transition for a start, the context before it for an end. Other contexts are written as
//! `@5`.

use std::collections::HashMap;
use std::fmt::Write;

use crate::execution::Event;
use stackhound_calltree::StackKind;
use stackhound_calltree::tracker::{Class, Counts, Point, Ring, Space, Step, Thread, Tracked, Tracker};
use stackhound_calltree::{ContextId, TransitionId};
use stackhound_types::Address;

use super::found::{Found, feed};

/// Runs a script and compares the items.
#[track_caller]
pub fn check(script: &str) -> Counts {
    let mut tracker = Tracker::new(Thread(1));
    let mut found = Found::default();
    let mut actual = String::new();
    let mut expected = String::new();
    let mut machine = Machine::default();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (input, items) = line.split_once('|').unwrap_or((line, ""));
        let mut rendered = Vec::new();
        let transition = tracker.transition();
        if let Some(event) = machine.event(input) {
            let memory = |address: Address| machine.memory.get(&address.0).map(|&word| Address(word));
            feed(&mut tracker, event, &memory, |item| {
                found.take(item);
                rendered.push(render(transition, item));
            });
        }
        writeln!(expected, "{} | {}", input.trim(), items.trim()).expect("text");
        writeln!(actual, "{} | {}", input.trim(), rendered.join(", ")).expect("text");
    }
    assert!(actual == expected, "found:\n{actual}\nexpected:\n{expected}");
    let end = ContextId(tracker.transition().0);
    let counts = tracker.finish(|item| found.take(item));
    found.end(end);
    counts
}

#[derive(Default)]
struct Machine {
    point: Option<Point>,
    memory: HashMap<u64, u64>,
    blind: bool,
    space: u64,
}

impl Machine {
    fn event(&mut self, line: &str) -> Option<Event> {
        let (name, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number =
            |location: usize| u64::from_str_radix(words[location], 16).expect("a hexadecimal number");
        let address = |location: usize| Address(number(location));
        let space = Space(self.space);
        match name {
            "poke" => {
                self.memory.insert(number(0), number(1));
                return None;
            }
            "unseen" => {
                self.point = Some(point(number(0), number(1)));
                return None;
            }
            "space" => {
                self.space = number(0);
                return None;
            }
            "blind" => {
                self.blind = true;
                self.memory.clear();
                return None;
            }
            "declare" => {
                let kind = match words[2] {
                    "User" => StackKind::User,
                    "Alternate" => StackKind::Alternate,
                    "Interrupt" => StackKind::Interrupt,
                    "Kernel" => StackKind::Kernel,
                    other => panic!("no kind {other}"),
                };
                let space = if number(0) >= KERNEL { Space::KERNEL } else { space };
                return Some(Event::Declare { space, low: address(0), high: address(1), kind });
            }
            "release" => return Some(Event::Release { space, low: address(0), high: address(1) }),
            "exit" => return Some(Event::Exit(Thread(number(0) as u32))),
            "skip" => return Some(Event::Skip(number(0) as u32)),
            _ => {}
        }
        let after = point(number(words.len() - 2), number(words.len() - 1));
        let space = match after.ring {
            Ring::Kernel if after.sp.0 >= KERNEL => Space::KERNEL,
            _ => space,
        };
        let before = self.point.unwrap_or(after);
        self.point = Some(after);
        let class = match name {
            "start" | "other" => Class::Other,
            "call" => {
                let return_address = Address(before.pc.0 + 5);
                if !self.blind {
                    self.memory.insert(after.sp.0, return_address.0);
                }
                Class::Call { return_address }
            }
            "ret" => Class::Return,
            "jmp" => Class::Jump,
            "static" => Class::Static,
            "dynamic" => Class::Dynamic,
            "system" => Class::System,
            "int" => Class::Interrupt { slot: address(0) },
            "signal" => Class::Signal { slot: address(0) },
            "iret" => Class::InterruptReturn,
            "switch" => Class::Switch { to: Thread(number(0) as u32) },
            other => panic!("no class {other}"),
        };
        Some(Event::Step(Step { class, before, after, space }))
    }
}

/// Code at or above this address runs in kernel mode, and its stack pointers at or above it are in the
/// kernel's space.
const KERNEL: u64 = 0x8000_0000;

fn point(pc: u64, sp: u64) -> Point {
    let ring = if pc >= KERNEL { Ring::Kernel } else { Ring::User };
    Point { pc: Address(pc), sp: Address(sp), ring }
}

fn render(transition: TransitionId, item: Tracked) -> String {
    let at = |context: ContextId, usual: ContextId| {
        if context == usual { String::new() } else { format!(" @{:x}", context.0) }
    };
    let (last, first) = (transition.context_before(), transition.context_after());
    let function =
        |address: Option<Address>| address.map_or("?".into(), |address| format!("{:x}", address.0));
    match item {
        Tracked::Stack { stack, kind, region, thread, .. } => {
            let region = region.map_or(String::new(), |(low, high)| format!(" {:x}-{:x}", low.0, high.0));
            let owner = if thread.is_none() { " of the processor" } else { "" };
            format!("new {} {kind:?}{region}{owner}", stack.0)
        }
        Tracked::Enter { stack, first: at_first } => format!("enter {}{}", stack.0, at(at_first, first)),
        Tracked::Leave { last: at_last } => format!("leave{}", at(at_last, last)),
        Tracked::Open { stack, first: at_first, start, function: address } => {
            format!("open {} {start:?} {}{}", stack.0, function(address), at(at_first, first))
        }
        Tracked::Close { stack, last: at_last, end } => {
            format!("close {} {end:?}{}", stack.0, at(at_last, last))
        }
        Tracked::Jump { stack, first: at_first, from, function: address } => {
            let (from, to) = (function(from), function(Some(address)));
            format!("jump {} {from} {to}{}", stack.0, at(at_first, first))
        }
        Tracked::Below { stack, function: address } => format!("below {} {:x}", stack.0, address.0),
    }
}
