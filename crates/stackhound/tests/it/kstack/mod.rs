//! Kernel stacks of threads from generated traces: at any time, each equals the ground truth of the
//! scenario.

mod truth;

use std::collections::HashMap;
use std::io::Cursor;

use stackhound::etl::EtlFile;
use stackhound::threads::{
    Absent, Evidence, KernelStackSource, Selection, SwitchEvidence, SwitchRelation, SwitchStacks,
    ThreadStack, ThreadState,
};
use stackhound::trace::{OpenTrace, Source, TraceTime};
use stackhound::{Address, Passes, Pid, Pipeline, RawTime, Tid};
use stackhound_scenario::{Scenario, State, SwitchTruth, Truth};

use truth::{ExpectedStack, Of};

struct Written {
    truth: Truth,
    switches: Vec<SwitchTruth>,
    bytes: Vec<u8>,
}

fn written(seed: u64) -> Written {
    let mut file = Cursor::new(Vec::new());
    let scenario = Scenario { seed, ..Scenario::default() };
    let (truth, switches) = scenario.write_switches(&mut file).unwrap();
    Written { truth, switches, bytes: file.into_inner() }
}

fn open(bytes: &[u8], threads: usize) -> OpenTrace {
    let etl_file = EtlFile::open(bytes.to_vec().into()).unwrap();
    OpenTrace::new(vec![Source::new("", etl_file)], threads).unwrap()
}

fn stacks_at(trace: &OpenTrace, at: Option<RawTime>, of: Selection) -> Vec<ThreadStack> {
    let pipeline = Pipeline::new(trace, Passes::Two);
    let at = at.map(|at| TraceTime(at.0));
    SwitchStacks::recorded(pipeline, trace, Passes::Two, at).stacks(&of).unwrap()
}

fn addresses(stack: &ThreadStack) -> Vec<Address> {
    stack.kernel.iter().flatten().map(|frame| frame.address.unwrap()).collect()
}

/// Times distributed over the trace, and times at and directly before or after switches.
fn times(written: &Written, count: u64) -> Vec<RawTime> {
    let (first, last) = (written.switches[0].time.0, written.switches.last().unwrap().time.0);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut times = vec![RawTime(first - 1), RawTime(last), RawTime(last + 1)];
    for _ in 0..count {
        times.push(RawTime(first + random((last - first) as u64) as i64));
        let switch = written.switches[random(written.switches.len() as u64) as usize].time.0;
        times.push(RawTime(switch + random(3) as i64 - 1));
    }
    times
}

/// Number of answers of each kind.
#[derive(Debug, Default)]
struct Tally {
    last: u64,
    resumed: u64,
    earlier: u64,
    absent: u64,
    /// Of `last` and `resumed`: parts of the stack are not in the file.
    in_part: u64,
    /// Lost events could include other switches.
    unsure: u64,
    /// Of these: the stack is right nevertheless.
    right_anyway: u64,
}

impl std::ops::Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        Tally {
            last: self.last + other.last,
            resumed: self.resumed + other.resumed,
            earlier: self.earlier + other.earlier,
            absent: self.absent + other.absent,
            in_part: self.in_part + other.in_part,
            unsure: self.unsure + other.unsure,
            right_anyway: self.right_anyway + other.right_anyway,
        }
    }
}

fn check(written: &Written, times: &[RawTime], tally: &mut Tally) {
    let trace = open(&written.bytes, 2);
    let clock = trace.clock();
    let of_thread: HashMap<Tid, Of<'_>> = truth::by_thread(&written.switches);
    let nothing = Of::default();
    for &at in times {
        let stacks = stacks_at(&trace, Some(at), Selection::default());
        let found: HashMap<Tid, &ThreadStack> = stacks.iter().map(|stack| (stack.tid, stack)).collect();
        assert_eq!(found.len(), stacks.len(), "threads are listed once");
        for (pid, thread) in truth::living(&written.truth, at) {
            let tid = thread.tid;
            let stack = found.get(&tid).unwrap_or_else(|| panic!("thread {tid} lives at {}", at.0));
            assert_eq!(stack.pid, Some(pid), "of thread {tid}");
            let switches = of_thread.get(&tid).unwrap_or(&nothing);
            let context = format!("thread {tid} at {}", at.0);
            let known = switches.known(at);
            state(stack, switches, at, &context);
            let Some(Evidence::Switch(evidence)) = stack.evidence else {
                assert_eq!(stack.evidence, None, "{context}");
                assert_eq!(known, ExpectedStack::Absent, "{context}");
                assert!(stack.kernel.is_err(), "{context}");
                tally.absent += 1;
                continue;
            };
            let got = ExpectedStack::of(&evidence, switches, &clock);
            assert_eq!(got, known, "{context}");
            let switch = got.switch().expect("a switch with a stack");
            assert_eq!(addresses(stack), switch.recorded, "{context}");
            let since = clock.to_file_time(at.min(written.switches.last().unwrap().time)).0 - evidence.time.0;
            assert!((evidence.age - since).abs() <= 1 || at > written.switches.last().unwrap().time);
            let is_whole = switch.recorded == switch.new_kernel;
            match evidence.relation {
                SwitchRelation::Last => tally.last += 1,
                SwitchRelation::Resumed => tally.resumed += 1,
                SwitchRelation::Earlier { .. } => {
                    tally.earlier += 1;
                    continue;
                }
            }
            tally.in_part += u64::from(!is_whole);
            // Regardless of the missing parts of the file, this is the stack that the thread had.
            let is_right = Some(&*addresses(stack)) == switches.stack_at(at);
            if evidence.lost_between {
                tally.unsure += 1;
                tally.right_anyway += u64::from(is_right);
            } else if is_whole {
                assert!(is_right, "{context}: {evidence:?}");
            }
        }
    }
}

/// Checks that the state of the thread is that after its last switch in the file. It may have
/// become ready since.
fn state(stack: &ThreadStack, switches: &Of<'_>, at: RawTime, context: &str) {
    let last = switches.kept_until(at);
    match (last, &stack.state) {
        (None, ThreadState::Unknown) => {}
        (Some((switch, true)), ThreadState::Running { since }) => assert!(since.is_some(), "{switch:?}"),
        (Some((SwitchTruth { old_waits: Some(_), .. }, false)), ThreadState::Ready { .. }) => {}
        (Some((SwitchTruth { old_waits: Some(number), .. }, false)), ThreadState::Waiting { reason, .. }) => {
            // The numbers that scenarios use, with their names in Windows.
            let names =
                [(0, "Executive"), (2, "PageIn"), (4, "DelayExecution"), (6, "UserRequest"), (15, "WrQueue")];
            let name = names.iter().find(|(known, _)| known == number).unwrap().1;
            assert_eq!(reason.as_deref(), Some(name), "{context}");
        }
        (
            Some((SwitchTruth { old_waits: None, .. }, false)),
            ThreadState::Ready { .. } | ThreadState::Ended,
        ) => {}
        (last, state) => panic!("{context}: {state:?} after {last:?}"),
    }
}

#[test]
fn every_thread_has_the_stack_of_its_last_switch_at_any_time() {
    let tally = std::thread::scope(|scope| {
        let of_seed = |seed| {
            let (written, mut tally) = (written(seed), Tally::default());
            check(&written, &times(&written, 60), &mut tally);
            tally
        };
        let threads = [1, 2, 3].map(|seed| scope.spawn(move || of_seed(seed)));
        threads.into_iter().fold(Tally::default(), |sum, thread| sum + thread.join().expect("no panic"))
    });
    println!("{tally:?}");
    let sure = tally.last + tally.resumed;
    let all = sure + tally.earlier + tally.absent;
    assert!(tally.last > 1_000 && tally.resumed > 10_000, "{tally:?}");
    assert!(sure * 10 > all * 9, "nearly all stacks are from the requested time: {tally:?}");
    assert!(tally.earlier > 0 && tally.unsure > 0, "buffers are also lost: {tally:?}");
    assert!(tally.in_part * 50 < sure && tally.unsure * 2 < all, "{tally:?}");
}

#[test]
fn user_stacks_belong_to_the_same_switch() {
    let written = written(1);
    let mut whole = HashMap::new();
    let scenario = Scenario { seed: 1, ..Scenario::default() };
    let same = scenario.write_with(Cursor::new(Vec::new()), &mut |stack| {
        if stack.state == State::Complete && stack.event.name() == "Thread/CSwitch" {
            whole.insert((stack.time, stack.tid), stack.frames.to_vec());
        }
    });
    assert_eq!(same.unwrap(), written.truth);
    let trace = open(&written.bytes, 2);
    let of_thread = truth::by_thread(&written.switches);
    let (mut compared, mut of_the_system) = (0, 0);
    for at in times(&written, 5) {
        for stack in stacks_at(&trace, Some(at), Selection { user: true, ..Selection::default() }) {
            let Some(Evidence::Switch(evidence)) = stack.evidence else { continue };
            let user = stack.user.as_ref().expect("it was requested");
            let known = ExpectedStack::of(&evidence, &of_thread[&stack.tid], &trace.clock());
            let Some(frames) = known.switch().and_then(|switch| whole.get(&(switch.time, stack.tid))) else {
                continue;
            };
            let got: Vec<Address> = stack
                .kernel
                .iter()
                .flatten()
                .chain(user.iter().flatten())
                .map(|f| f.address.unwrap())
                .collect();
            assert_eq!(&got, frames);
            if stack.pid.is_some_and(Pid::is_kernel_only) {
                assert_eq!(*user, Err(Absent::SystemThread));
                of_the_system += 1;
            }
            compared += 1;
        }
    }
    assert!(compared > 200 && of_the_system > 10, "{compared} {of_the_system}");
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let written = written(2);
    let at = times(&written, 1)[3];
    let of = Selection { user: true, ..Selection::default() };
    let expected = stacks_at(&open(&written.bytes, 1), Some(at), of);
    assert!(!expected.is_empty());
    for threads in [2, 5] {
        assert_eq!(stacks_at(&open(&written.bytes, threads), Some(at), of), expected);
    }
}

#[test]
fn selections_filter_and_unknown_ids_are_errors() {
    let written = written(1);
    let trace = open(&written.bytes, 2);
    let all = stacks_at(&trace, None, Selection::default());
    let some = all.iter().find(|stack| stack.kernel.is_ok()).unwrap();
    let (pid, tid) = (some.pid, some.tid);
    let of_process: Vec<_> = all.iter().filter(|stack| stack.pid == pid).cloned().collect();
    assert_eq!(stacks_at(&trace, None, Selection { pid, ..Selection::default() }), of_process);
    assert_eq!(
        &stacks_at(&trace, None, Selection { pid, tid: Some(tid), user: false })[..],
        std::slice::from_ref(some)
    );
    let frames = some.kernel.as_ref().unwrap();
    assert!(
        frames.iter().all(|frame| frame.location.is_some()),
        "the kernel's modules are known: {frames:?}"
    );
    let error = |pid, tid| {
        let pipeline = Pipeline::new(&trace, Passes::Two);
        let mut source = SwitchStacks::recorded(pipeline, &trace, Passes::Two, None);
        source.stacks(&Selection { pid, tid, user: false }).unwrap_err().to_string()
    };
    assert_eq!(error(Some(Pid(77_777)), None), "there is no process 77777");
    assert_eq!(error(None, Some(Tid(77_777))), "there is no thread 77777");
}

/// Traces without stacks of switches, or without switches, report this.
#[test]
fn missing_switches_and_stacks_are_reported() {
    for (with_switches, expected) in [(false, Absent::NoSwitches), (true, Absent::WithoutStacks)] {
        let bytes = truth::without_stacks(with_switches);
        let trace = open(&bytes, 1);
        let stacks = stacks_at(&trace, None, Selection::default());
        // Of the other thread, only the header of the session is known.
        let found: Vec<_> = stacks.iter().filter(|stack| stack.tid == Tid(41)).collect();
        assert_eq!(found.iter().map(|stack| stack.kernel.clone()).collect::<Vec<_>>(), [Err(expected)]);
        assert!(stacks.iter().all(|stack| stack.evidence.is_none()));
    }
}

#[test]
fn relations_have_names_and_certainties() {
    let named = |relation| {
        let evidence =
            SwitchEvidence { time: stackhound::FileTime(0), age: 0, relation, lost_between: false };
        (relation.name(), Evidence::Switch(evidence).certainty().name())
    };
    assert_eq!(named(SwitchRelation::Last), ("last", "observed"));
    assert_eq!(named(SwitchRelation::Resumed), ("resumed", "inferred"));
    assert_eq!(named(SwitchRelation::Earlier { later: 1, lost: false }), ("earlier", "observed"));
}
