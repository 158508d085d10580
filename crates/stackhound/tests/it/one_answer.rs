//! Events, evaluated events, filters and kernel stacks of threads give the same answers about the
//! same stack.

use std::collections::HashMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use stackhound::detect::Binaries;
use stackhound::detect::report::{FrameReport, SourceLocation};
use stackhound::frames::{Backing, Frame, Summary};
use stackhound::hunt::HuntSession;
use stackhound::stacks::StackState;
use stackhound::threads::{Evidence, KernelStackSource, Selection, SwitchStacks};
use stackhound::trace::{OpenTrace, TraceFiles};
use stackhound::{Depth, EventView, FileTime, Mode, Passes, Pipeline, Predicate, Tid};
use stackhound_scenario::{Mix, Scenario};

/// A frame as each source states it.
type Stated = (u64, &'static str, Backing);

fn of_event(frame: &Frame) -> Stated {
    (frame.address.expect("an address").0, frame.mode.name(), frame.backing())
}

fn of_finding(frame: &FrameReport) -> Stated {
    (frame.address.expect("an address"), frame.mode.name(), frame.backing)
}

/// Checks that filters select an event by each of its own answers, and by none of the others.
fn check_filters(
    view: &EventView<'_>,
    texts: (&Summary, Option<&str>),
    predicates: &mut HashMap<String, Predicate>,
) {
    let (summary, module) = texts;
    let unbacked = summary.contains_unbacked().name();
    let mut check = |text: String, expected: bool| {
        let predicate = predicates.entry(text).or_insert_with_key(|text| {
            Predicate::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
        });
        assert_eq!(predicate.matches(view), expected, "{} {:?}", view.name(), view.time());
    };
    for answer in ["yes", "no", "undetermined"] {
        check(format!("stack.contains_unbacked = '{answer}'"), answer == unbacked);
    }
    check(format!("stack.state = '{}'", view.state().name()), true);
    for (answer, field) in [(summary.user(), "summary"), (summary.kernel(), "kernel_summary")] {
        check(format!("stack.{field} = '{answer}'"), true);
    }
    for backing in [Backing::Backed, Backing::Unbacked] {
        let has = view.frames().any(|frame| frame.backing() == backing);
        check(format!("stack.frame.backing = '{}'", backing.name()), has);
    }
    let regions =
        view.frames().filter(|frame| frame.mode == Mode::User).filter_map(|frame| frame.region.extent);
    for (base, size) in regions {
        check(format!("stack.frame.region.base = {base} and stack.frame.region.size = {size}"), true);
    }
    check("stack.frame.region.size = 3".to_owned(), false);
    if let Some(module) = module.filter(|module| !module.contains(['\'', '\\'])) {
        check(format!("stack.final_user_module = '{module}'"), true);
        check(format!("stack.final_user_module = 'no {module}'"), false);
    }
}

/// Compares all answers about all events of a trace with stacks, and returns their number.
fn compare(trace: &OpenTrace) -> u64 {
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    let (mut summary, mut predicates) = (Summary::default(), HashMap::new());
    let mut switches: HashMap<(FileTime, Tid), Vec<Stated>> = HashMap::new();
    let mut compared = 0;
    pipeline.run(|view| {
        if view.stack().is_none() {
            return ControlFlow::Continue(());
        }
        compared += 1;
        let resolved = view.resolved();
        let frames: Vec<Stated> = resolved.iter().map(of_event).collect();
        let shown: Vec<Stated> = view.frames().map(|frame| of_event(frame.facts())).collect();
        assert_eq!(shown, frames);
        view.summarize(&mut summary);
        let module = summary.final_user_module(&view.modules()).map(str::to_owned);
        assert_eq!(view.final_user_module(), module);
        // Filters cost far more than the other checks.
        if compared % 16 == 0 {
            check_filters(view, (&summary, module.as_deref()), &mut predicates);
        }
        let event_context = hunt_session.event_context(view, SourceLocation::default());
        assert_eq!(event_context.stack.iter().map(of_finding).collect::<Vec<_>>(), frames);
        assert_eq!(
            event_context.states,
            view.stack_states().iter().map(StackState::name).collect::<Vec<_>>()
        );
        assert_eq!(
            (&*event_context.summary, &*event_context.kernel_summary),
            (summary.user(), summary.kernel())
        );
        assert_eq!(event_context.contains_unbacked, summary.contains_unbacked());
        assert_eq!(event_context.final_user_module, module);
        for (stated, frame) in event_context.stack.iter().zip(&*resolved) {
            assert_eq!((stated.region, stated.is_wow64), (frame.region, frame.is_wow64));
        }
        if view.event().hook_id() == Some(0x0524) && view.state() == StackState::Complete {
            switches.extend(view.stack_owner().tid.map(|tid| ((view.utc(), tid), frames)));
        }
        ControlFlow::Continue(())
    });
    check_threads(trace, &switches);
    compared
}

/// Checks that kernel stacks of threads are those of the events at which the threads were switched.
fn check_threads(trace: &OpenTrace, switches: &HashMap<(FileTime, Tid), Vec<Stated>>) {
    let pipeline = Pipeline::new(trace, Passes::Two);
    let of = Selection { pid: None, tid: None, user: true };
    let mut stacks = SwitchStacks::recorded(pipeline, trace, Passes::Two, None).depth(Depth::Module);
    stacks.read(|| {}, |_| ControlFlow::Continue(()));
    for thread in stacks.stacks(&of).unwrap_or_default() {
        let Some(Evidence::Switch(evidence)) = thread.evidence else { continue };
        let Some(frames) = switches.get(&(evidence.time, thread.tid)) else { continue };
        let parts = [thread.kernel, thread.user.unwrap_or_else(|| Ok(Vec::new()))];
        let mut stated: Vec<Stated> = parts
            .into_iter()
            .flat_map(Result::unwrap_or_default)
            .map(|frame| (frame.address.expect("an address").0, frame.mode.name(), frame.backing))
            .collect();
        let mut frames = frames.clone();
        stated.sort_by_key(|frame| frame.0);
        frames.sort_by_key(|frame| frame.0);
        assert_eq!(stated, frames, "{:?}", thread.tid);
    }
}

fn open(path: &Path) -> OpenTrace {
    TraceFiles::file(path).open().expect("a trace")
}

#[test]
fn generated_traces() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, mix) in [("default.etl", Mix::default()), ("profile.etl", Mix::Profile)] {
        let path = folder.path().join(name);
        let scenario = Scenario { mix, events: 20_000, ..Scenario::default() };
        scenario.write(File::create(&path).expect("a file")).expect("written");
        let compared = compare(&open(&path));
        assert!(compared > 500, "{name}: {compared}");
    }
}

#[test]
fn traces_of_the_corpus() {
    for (name, path) in stackhound_corpus::trace_files() {
        let Ok(trace) = TraceFiles::file(&path).open() else { continue };
        println!("{name}: {} events with stacks", compare(&trace));
    }
}
