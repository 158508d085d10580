//! The answers for each event of a trace.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use stackhound::detect::{Binaries, DetectionId, Verdict};
use stackhound::frames::{CallEnd, CallOutcome};
use stackhound::hunt::HuntSession;
use stackhound::stacks::StackState;
use stackhound::trace::{OpenTrace, Source};
use stackhound::{Passes, Pipeline};
use stackhound_etl::EtlFile;

/// The answers that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Stacks and their states.
    Stacks,
    /// Also the verdicts of all detections.
    WithVerdicts,
}

/// Identifies an event: the offset of its buffer in the file, and the index of its record in the
/// buffer.
pub type EventKey = (u64, u32);

/// The answers for one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub state: StackState,
    pub is_certain: bool,
    /// Hash of the addresses; `None` without a stack.
    pub stack: Option<u64>,
    /// One bit for each detection.
    pub yes: u32,
    pub no: u32,
    /// For system calls: thread, service and end.
    pub call: Option<CallOutcome>,
}

impl Answer {
    /// Whether what is stated about a system call differs from the complete trace.
    pub fn has_wrong_call(&self, whole: &Answer) -> bool {
        let Some((part, whole)) = self.call.zip(whole.call) else { return false };
        let differs = |(part, whole): (CallEnd, CallEnd)| match (part, whole) {
            (CallEnd::Completed { .. }, CallEnd::Completed { .. }) => part != whole,
            (CallEnd::Completed { .. }, end) => end != CallEnd::Unconfirmed && end != CallEnd::Late,
            (CallEnd::ThreadEnded | CallEnd::NotReturned | CallEnd::Unfinished, end) => {
                matches!(end, CallEnd::Completed { .. })
            }
            _ => false,
        };
        part.tid.zip(whole.tid).is_some_and(|(part, whole)| part != whole) || differs((part.end, whole.end))
    }
}

/// All answers of a trace.
pub fn read(bytes: Vec<u8>, reading: Reading, passes: Passes) -> HashMap<EventKey, Answer> {
    let etl_file = EtlFile::open(bytes.into()).expect("a trace");
    let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).expect("a trace");
    let mut pipeline = Pipeline::new(&trace, passes);
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    let mut answers = HashMap::new();
    pipeline.run(|view| {
        let mut hasher = DefaultHasher::new();
        view.addresses().for_each(|address| address.0.hash(&mut hasher));
        let (mut yes, mut no) = (0, 0);
        hunt_session.observe(view);
        if reading == Reading::WithVerdicts && HuntSession::can_evaluate(view) {
            for (id, outcome) in hunt_session.evaluate(view).iter() {
                yes |= u32::from(outcome.verdict == Verdict::Yes) << id.index();
                no |= u32::from(outcome.verdict == Verdict::No) << id.index();
            }
        }
        let answer = Answer {
            state: view.state(),
            is_certain: view.stack_states().is_certain(),
            stack: view.stack().map(|_| hasher.finish()),
            yes,
            no,
            call: view.call(),
        };
        let key = (view.event().block().origin().file_offset, view.event().index());
        assert!(answers.insert(key, answer).is_none(), "an event comes once: {key:?}");
        ControlFlow::Continue(())
    });
    answers
}

/// The names of the detections whose bits are set.
pub fn names(bits: u32) -> Vec<&'static str> {
    DetectionId::all().filter(|id| bits & 1 << id.index() != 0).map(DetectionId::name).collect()
}
