//! Tests the steps of transitions with hand-written traces.
//!
//! A script is an execution as text. A line is `CPU EVENT [STACK] | OVER BACK OUT OUT-BACK`: a
//! transition, and the transitions to which the four steps lead from it. `-` stands for none.
//!
//! - `run`: no change.
//! - `call`, `ret`: a function starts or ends.
//! - `enter`, `exit`: a system call starts or ends; the given stack becomes active.
//! - `int`, `iret`: an interrupt routine starts or ends; the given stack, if any, becomes active.
//! - `switch`: the given stack becomes active.
//!
//! Lines without `|` are not transitions. They have effect before the next transition:
//!
//! - `on`: the given stack becomes active.
//! - `begin`: a routine starts on the given stack; `begin-between`: the start is inferred.
//! - `lose`: no stack is known to be active.
//!
//! `u1` and `k1` are the user stack and the kernel stack of thread 1. `i0`, `s0` and `d0` are the
//! stacks of processor 0 for its idle thread, interrupts and deferred calls.

use std::collections::HashMap;

use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, Evidence, StackId, StackInfo, StackKind, StartType, Transition,
    TransitionId,
};

#[derive(Default)]
struct Script {
    builder: Builder,
    stacks: HashMap<String, StackId>,
    active: [Option<StackId>; 2],
    next: u64,
}

impl Script {
    /// The stack with this name. Stacks of threads have an outermost frame, whose start is unknown.
    fn enter(&mut self, cpu: usize, name: &str, lo: u64, hi: u64) {
        let number = name[1..].parse().unwrap();
        let (kind, thread) = match &name[..1] {
            "u" => (StackKind::User, Some(number)),
            "k" => (StackKind::Kernel, Some(number)),
            "i" => (StackKind::Kernel, None),
            "s" => (StackKind::Interrupt, None),
            _ => (StackKind::Deferred, None),
        };
        let cpu_of = thread.is_none().then_some(Cpu(number as u16));
        let info = StackInfo { kind, process: Some(4), thread, cpu: cpu_of, name: None, region: None };
        let known = self.stacks.get(name).copied();
        let stack = known.unwrap_or_else(|| self.builder.stack(info));
        self.stacks.insert(name.to_owned(), stack);
        self.builder.enter_between(Cpu(cpu as u16), stack, ContextId(lo), ContextId(hi)).unwrap();
        self.active[cpu] = Some(stack);
        if known.is_none() && matches!(kind, StackKind::User | StackKind::Kernel) {
            self.open(cpu, (hi, hi), StartType::Unknown);
        }
    }

    fn open(&mut self, cpu: usize, (lo, hi): (u64, u64), start: StartType) {
        let (stack, between) = (self.active[cpu].unwrap(), (ContextId(lo), ContextId(hi)));
        match start {
            StartType::Unknown => {
                self.builder.apply(Change::Open { stack, first: between.1, start, location: None })
            }
            _ => self.builder.open_between(stack, between, start, None, Evidence::Boundary),
        }
        .unwrap();
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let cpu: usize = words[0].parse().unwrap();
        let (now, next) = (self.next, self.next + 1);
        let routine = match words.get(2) {
            Some(name) if name.starts_with('d') => StartType::Call,
            _ => StartType::Interrupt,
        };
        // When the stack of the line becomes active, which frame ends, and which one starts.
        let (at, end, start) = match words[1] {
            "on" => ((now, now), None, None),
            "begin" => ((now, now), None, Some(routine)),
            "begin-between" => ((now - 1, now), None, Some(routine)),
            "lose" => {
                self.builder.apply(Change::Leave { cpu: Cpu(cpu as u16), last: ContextId(now - 1) }).unwrap();
                self.active[cpu] = None;
                return;
            }
            "run" | "switch" => ((next, next), None, None),
            "call" | "enter" => ((next, next), None, Some(StartType::Call)),
            "int" => ((next, next), None, Some(routine)),
            "ret" | "exit" => ((next, next), Some(EndType::Return), None),
            "iret" => ((next, next), Some(EndType::InterruptReturn), None),
            other => panic!("no event {other}"),
        };
        if let Some(end) = end {
            let stack = self.active[cpu].unwrap();
            self.builder.apply(Change::Close { stack, last: ContextId(now), end }).unwrap();
        }
        if let Some(stack) = words.get(2) {
            self.enter(cpu, stack, at.0, at.1);
        }
        if let Some(start) = start {
            self.open(cpu, at, start);
        }
        if !matches!(words[1], "on" | "begin" | "begin-between") {
            let label = self.builder.label("event");
            self.builder.transition(now, Cpu(cpu as u16), label);
            self.next = next;
        }
    }

    #[track_caller]
    fn check(mut self, text: &str) {
        let mut expected = Vec::new();
        for line in text.lines() {
            let (event, steps) = line.split_once('|').unwrap_or((line, ""));
            self.line(event);
            if !steps.is_empty() {
                let steps = steps.split_whitespace().map(|step| step.parse::<u64>().ok());
                expected.push((event.trim(), steps.collect::<Vec<_>>()));
            }
        }
        let trace = self.builder.finish(self.next).unwrap();
        assert_eq!(trace.transition_count(), expected.len() as u64);
        for (number, (event, expected)) in (0..).zip(expected) {
            let from = trace.transition(TransitionId(number)).unwrap();
            let steps =
                [from.step_over(), from.step_over_backward(), from.step_out(), from.step_out_backward()];
            let number_of = |step: Option<Transition<'_>>| step.map(|step| step.id().0);
            assert_eq!(steps.map(number_of).to_vec(), expected, "#{number} {event}");
        }
    }
}

#[track_caller]
fn check(text: &str) {
    Script::default().check(text);
}

#[test]
fn calls() {
    check(
        "0 on u1
         0 run  | 1 - - -
         0 call | 4 0 - -
         0 run  | 3 1 4 1
         0 ret  | 4 2 4 1
         0 run  | 5 1 - -
         0 call | - 4 - -
         0 run  | - 5 - 5",
    );
}

#[test]
fn a_system_call() {
    check(
        "0 on u1
         0 run      | 1 - - -
         0 enter k1 | 5 0 - -
         0 run      | 3 1 5 1
         0 run      | 4 2 5 1
         0 exit u1  | 5 3 5 1
         0 run      | 6 1 - -
         0 run      | - 5 - -",
    );
}

#[test]
fn a_system_call_that_continues_on_another_processor() {
    check(
        "0 on u1
         1 on i1
         0 enter k1  | 10 - - -
         0 run       | 2 0 10 0
         0 switch k2 | 7 1 10 0
         1 run       | 5 - - -
         0 run       | 6 - - -
         1 switch k1 | - 3 - -
         0 run       | 9 4 - -
         1 run       | 8 2 10 0
         1 exit u1   | 10 7 10 0
         0 run       | - 6 - -
         1 run       | - 0 - -",
    );
}

#[test]
fn an_interrupt_in_user_mode() {
    check(
        "0 on u1
         0 run     | 1 - - -
         0 int s0  | 5 0 - -
         0 run     | 3 1 5 1
         0 run     | 4 2 5 1
         0 iret u1 | 5 3 5 1
         0 run     | 6 1 - -
         0 run     | - 5 - -",
    );
}

#[test]
fn an_interrupt_on_the_kernel_stack() {
    check(
        "0 on u1
         0 enter k1 | 6 - - -
         0 run      | 2 0 6 0
         0 int      | 5 1 6 0
         0 run      | 4 2 5 2
         0 iret     | 5 3 5 2
         0 exit u1  | 6 2 6 0
         0 run      | - 0 - -",
    );
}

#[test]
fn an_interrupt_of_a_deferred_call() {
    check(
        "0 on u1
         0 run     | 1 - - -
         0 int d0  | 8 0 - -
         0 run     | 3 1 8 1
         0 int s0  | 6 2 8 1
         0 run     | 5 3 6 3
         0 iret d0 | 6 4 6 3
         0 run     | 7 3 8 1
         0 iret u1 | 8 6 8 1
         0 run     | - 1 - -",
    );
}

#[test]
fn an_interrupt_that_begins_without_a_transition() {
    for begin in ["begin", "begin-between"] {
        // The transition before its start is that of another processor.
        check(&format!(
            "0 on u1
             1 on u2
             0 run     | 5 - - -
             1 run     | 2 - - -
             0 {begin} s0
             1 run     | 4 1 - -
             0 iret u1 | 5 0 5 0
             1 run     | - 2 - -
             0 run     | - 0 - -"
        ));
        check(&format!(
            "0 on u1
             0 run     | 6 - - -
             0 {begin} s0
             0 run     | 4 0 6 0
             0 {begin} s0
             0 run     | 3 1 4 1
             0 iret    | 4 2 4 1
             0 run     | 5 1 6 0
             0 iret u1 | 6 4 6 0
             0 run     | - 0 - -"
        ));
    }
}

#[test]
fn an_interrupt_just_after_a_system_call_begins() {
    // The kernel stack is active at no context before the interrupt.
    check(
        "0 on u1
         0 enter k1 | 4 - - -
         0 begin s0
         0 run      | 2 0 3 0
         0 iret k1  | 3 1 3 0
         0 exit u1  | 4 0 4 0
         0 run      | - 0 - -",
    );
}

#[test]
fn a_callback_just_after_a_system_call_begins() {
    check(
        "0 on u1
         0 enter k1 | 3 - - -
         0 on u1
         0 run      | 2 0 - -
         0 on k1
         0 exit u1  | 3 1 3 0
         0 run      | - 0 - -",
    );
}

#[test]
fn a_deferred_call_just_after_an_interrupt() {
    check(
        "0 on u1
         0 run     | 3 - - -
         0 begin s0
         0 iret u1 | 3 0 3 0
         0 begin d0
         0 exit u1 | 3 0 3 0
         0 run     | - 0 - -",
    );
}

#[test]
fn system_calls_that_are_not_recorded() {
    check(
        "0 on u1
         0 run       | 1 - - -
         0 switch k1 | 2 0 - -
         0 run       | 3 1 4 1
         0 switch u1 | 4 2 4 1
         0 run       | 5 3 - -
         0 switch k1 | 6 4 - -
         0 run       | 7 5 8 5
         0 switch u1 | 8 6 8 5
         0 run       | - 7 - -",
    );
}

#[test]
fn without_a_known_stack_steps_follow_the_processor() {
    check(
        "0 on u1
         1 on u2
         0 run | 4 - - -
         0 lose
         0 run | 3 0 - -
         1 run | - - - -
         0 run | 4 1 - -
         0 on u1
         0 run | - 0 - -",
    );
}

#[test]
fn idle_threads_of_two_processors() {
    check(
        "0 on i0
         1 on i1
         0 run | 2 - - -
         1 run | 3 - - -
         0 run | - 0 - -
         1 run | - 1 - -",
    );
}
