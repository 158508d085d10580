//! A literal oracle of what a loss hides: machines whose statements are lost for an interval, with many
//! possible contents of the interval. What the state says for certain is true of each of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stackhound_system::{Completeness, ModuleFacts, Phase, ProcessFacts, System};
use stackhound_trace::{LossMap, TraceTime};
use stackhound_types::{Address, Pid, PointerSize};

const PIDS: u32 = 3;
const SLOTS: u64 = 5;
const NAMES: [&str; 3] = ["a.dll", "b.dll", "c.dll"];
/// Statements between two operations, so that the end of a process has time for its unloads.
const STEP: i64 = 20;
const CONTENTS: usize = 50;

/// The images of a process, by address.
type Images = BTreeMap<u64, usize>;

/// The existing processes with their images.
type Machine = BTreeMap<u32, Images>;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Start(u32),
    End(u32),
    Load(u32, u64, usize),
    Unload(u32, u64),
}

#[derive(Clone, Copy, Debug)]
enum Statement {
    Process(Phase, u32),
    Module(Phase, u32, u64, usize),
}

/// What is said, and when.
type Said = (i64, Statement);

/// Applies an operation, if the machine allows it. Returns the statements about it.
fn apply(machine: &mut Machine, time: i64, operation: Operation) -> Vec<Said> {
    match operation {
        Operation::Start(pid) if !machine.contains_key(&pid) => {
            machine.insert(pid, Images::from([(0, 0)]));
            let load = Statement::Module(Phase::Start, pid, 0, 0);
            vec![(time, Statement::Process(Phase::Start, pid)), (time + 1, load)]
        }
        Operation::End(pid) => {
            let Some(images) = machine.remove(&pid) else { return Vec::new() };
            let unload = |(slot, name)| Statement::Module(Phase::End, pid, slot, name);
            let mut said = vec![(time, Statement::Process(Phase::End, pid))];
            said.extend((time + 1..).zip(images.into_iter().map(unload)));
            said
        }
        Operation::Load(pid, slot, name) => match machine.get_mut(&pid) {
            Some(images) if !images.contains_key(&slot) => {
                images.insert(slot, name);
                vec![(time, Statement::Module(Phase::Start, pid, slot, name))]
            }
            _ => Vec::new(),
        },
        Operation::Unload(pid, slot) => {
            let name = machine.get_mut(&pid).and_then(|images| images.remove(&slot));
            name.map(|name| (time, Statement::Module(Phase::End, pid, slot, name))).into_iter().collect()
        }
        Operation::Start(_) => Vec::new(),
    }
}

/// What a rundown says.
fn rundown(machine: &Machine, phase: Phase, time: i64) -> Vec<Said> {
    let of_process = |(pid, images): (&u32, &Images)| {
        let pid = *pid;
        let images: Vec<(u64, usize)> = images.iter().map(|(slot, name)| (*slot, *name)).collect();
        let modules = images.into_iter().map(move |(slot, name)| Statement::Module(phase, pid, slot, name));
        [Statement::Process(phase, pid)].into_iter().chain(modules)
    };
    machine.iter().flat_map(of_process).map(|statement| (time, statement)).collect()
}

/// What is stated about a process after the loss: all of its images, or those in some slots.
#[derive(Clone, Debug, Default)]
struct StatedLater {
    all: bool,
    slots: BTreeSet<u64>,
}

/// The operations that turn one state of a process into another one, as far as that one is stated.
fn repairs(machine: &Machine, wanted: &Machine, pid: u32, stated: &StatedLater) -> Vec<Operation> {
    let Some(images) = wanted.get(&pid) else { return vec![Operation::End(pid)] };
    let present = machine.get(&pid).cloned().unwrap_or_else(|| Images::from([(0, 0)]));
    let mut operations = vec![Operation::Start(pid)];
    let is_wrong =
        |slot: &u64| (stated.all || stated.slots.contains(slot)) && images.get(slot) != present.get(slot);
    operations.extend(present.keys().filter(|slot| is_wrong(slot)).map(|slot| Operation::Unload(pid, *slot)));
    let missing = images.iter().filter(|(slot, _)| is_wrong(slot));
    operations.extend(missing.map(|(slot, name)| Operation::Load(pid, *slot, *name)));
    operations
}

fn system(said: &[Said], losses: Option<(i64, i64)>) -> System {
    let mut system = System::new(PointerSize::Eight);
    for (time, statement) in said {
        let time = TraceTime(*time);
        match *statement {
            Statement::Process(phase, pid) => {
                system.take_process(phase, time, &ProcessFacts::of(Pid(pid)));
            }
            Statement::Module(phase, pid, slot, name) => {
                let facts = ModuleFacts {
                    pid: Pid(pid),
                    base: Address((slot + 1) << 16),
                    size: 0x1000,
                    time_date_stamp: Some(name as u32),
                    checksum: None,
                    path: NAMES[name],
                };
                system.take_module(phase, time, &facts);
            }
        }
    }
    if let Some((from, until)) = losses {
        let mut lost = LossMap::live();
        lost.enter_interval(from, until);
        system.set_losses(lost);
    }
    system
}

fn operation() -> impl Strategy<Value = Operation> {
    let pid = || 8..8 + PIDS;
    prop_oneof![
        1 => pid().prop_map(Operation::Start),
        1 => pid().prop_map(Operation::End),
        6 => (pid(), 1..SLOTS, 0..NAMES.len()).prop_map(|(pid, slot, name)| Operation::Load(pid, slot, name)),
        3 => (pid(), 1..SLOTS).prop_map(|(pid, slot)| Operation::Unload(pid, slot)),
    ]
}

/// The module at a slot as the truth of a machine has it.
fn module(system: &System, pid: u32, slot: u64, time: i64) -> Option<String> {
    let (module, _) = system.module_at(Pid(pid), Address(((slot + 1) << 16) + 8), TraceTime(time))?;
    Some(module.file_name().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn certain_answers_agree_with_each_content_of_a_loss(
        operations in prop::collection::vec(operation(), 8..40),
        (first, length) in (0..30_usize, 1..10_usize),
        (has_start, has_end) in any::<(bool, bool)>(),
        contents in prop::collection::vec(prop::collection::vec(operation(), 0..6), CONTENTS),
    ) {
        let at = |index: usize| (index as i64 + 1) * STEP;
        let last = operations.len().min(first + length);
        let first = first.min(last);
        let lost = (at(first) - 2, at(last) - 2);
        let mut machine: Machine = (8..8 + PIDS).map(|pid| (pid, Images::from([(0, 0), (1, 1)]))).collect();
        let beginning = if has_start { rundown(&machine, Phase::RundownAtStart, 1) } else { Vec::new() };
        let (mut before, mut after) = (beginning, Vec::new());
        let (mut at_loss, mut after_loss) = (machine.clone(), machine.clone());
        let mut stated: BTreeMap<u32, StatedLater> = BTreeMap::new();
        for (index, operation) in operations.iter().enumerate() {
            if index == first {
                at_loss = machine.clone();
            }
            if index == last {
                after_loss = machine.clone();
            }
            let said = apply(&mut machine, at(index), *operation);
            match index {
                _ if index < first => before.extend(said),
                _ if index >= last => {
                    for (_, statement) in &said {
                        match *statement {
                            // With its end, all images of a process are unloaded.
                            Statement::Process(phase, pid) => {
                                stated.entry(pid).or_default().all |= phase == Phase::End;
                            }
                            Statement::Module(_, pid, slot, _) => {
                                stated.entry(pid).or_default().slots.insert(slot);
                            }
                        }
                    }
                    after.extend(said);
                }
                _ => {}
            }
        }
        if first == operations.len() {
            at_loss = machine.clone();
        }
        if last == operations.len() {
            after_loss = machine.clone();
        }
        let end = at(operations.len()) + STEP;
        if has_end {
            after.extend(rundown(&machine, Phase::RundownAtEnd, end));
            let all = StatedLater { all: true, ..StatedLater::default() };
            stated.extend((8..8 + PIDS).map(|pid| (pid, all.clone())));
        }
        let part: Vec<Said> = before.iter().chain(&after).copied().collect();
        let part = system(&part, Some(lost));
        for content in contents {
            let mut machine = at_loss.clone();
            let mut said = Vec::new();
            let mut time = lost.0;
            let mut all = content.clone();
            for pid in 8..8 + PIDS {
                let mut changed = machine.clone();
                all.iter().for_each(|operation| drop(apply(&mut changed, 0, *operation)));
                // What nothing states later can be different after the loss.
                if let Some(stated) = stated.get(&pid) {
                    all.extend(repairs(&changed, &after_loss, pid, stated));
                }
            }
            // All statements of an operation fit between two times of the loss.
            for operation in all {
                let of_operation = apply(&mut machine, 0, operation);
                said.extend(of_operation.into_iter().map(|(_, statement)| (time, statement)));
                time = (time + 1).min(lost.1);
            }
            let whole: Vec<Said> = before.iter().chain(&said).chain(&after).copied().collect();
            let whole = system(&whole, None);
            for time in (0..=end).step_by(3) {
                for (pid, slot) in (8..8 + PIDS).flat_map(|pid| (0..SLOTS).map(move |slot| (pid, slot))) {
                    if part.map_complete(Pid(pid), TraceTime(time)) != Completeness::Complete {
                        continue;
                    }
                    let found = part.module_at(Pid(pid), Address(((slot + 1) << 16) + 8), TraceTime(time));
                    if found.is_none_or(|(module, _)| part.is_module_certain(module.id(), TraceTime(time))) {
                        let found = module(&part, pid, slot, time);
                        let truth = module(&whole, pid, slot, time);
                        prop_assert_eq!(found, truth, "pid {} slot {} at {}, lost {:?}: {:?}", pid, slot, time, lost, said);
                    }
                }
            }
        }
    }
}
