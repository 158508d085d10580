//! The one driver of hunts: evaluates the events of traces and live sessions by a policy.

use std::ops::ControlFlow;

use stackhound_detect::report::SourceLocation;
use stackhound_detect::{Binaries, Detector, Evaluation};
use stackhound_frames::Lists;
use stackhound_pipeline::{EventView, Outcome, Pipeline};
use stackhound_rules::evaluate::RuleAnswer;

use crate::collector::{EventFindings, FindingCollector, HuntReport};
use crate::memory::{LiveMemory, MemoryStats};
use crate::policy::{FindingSelection, Policy};
use crate::rules::{RuleSession, Rules};
use crate::tuner::Tuner;
use crate::{HuntSession, HuntStats};

/// A hunt in any number of traces, live sessions and other sources of evaluations, between which it
/// keeps modules, image files and counts.
#[derive(Debug)]
pub struct Hunt {
    detector: Detector,
    rules: Rules,
    collector: FindingCollector,
}

impl Hunt {
    /// A hunt by a policy, with these image and symbol files of the recorded machine.
    pub fn new(policy: Policy, binaries: Binaries, selection: FindingSelection) -> Hunt {
        let Policy { lists, images, tuning, baseline, rules } = policy;
        let collector = FindingCollector::new(selection, Tuner::new(lists.clone(), tuning, baseline));
        Hunt { detector: Detector::new(lists, binaries).with_images(images), rules, collector }
    }

    /// The same hunt, which also collects the usual findings for a baseline:
    /// [`FindingCollector::take_baseline`] returns it.
    #[must_use]
    pub fn learning(mut self) -> Hunt {
        self.collector.learn();
        self
    }

    /// The lists of the policy.
    pub fn lists(&self) -> &Lists {
        self.detector.lists()
    }

    /// The rules of the policy.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The findings so far.
    pub fn collector(&mut self) -> &mut FindingCollector {
        &mut self.collector
    }

    /// The detector, and where findings are collected, for evaluations of other events than those of
    /// traces.
    pub fn parts(&mut self) -> (&mut Detector, &mut FindingCollector) {
        (&mut self.detector, &mut self.collector)
    }

    /// The report about everything since the last one.
    pub fn take_report(&mut self) -> HuntReport {
        self.collector.take_report()
    }

    /// Evaluates the events of a trace that `choose` selects, in time order, until it or `each`
    /// breaks. `sources` are the names of the files. `each` is called for events with findings.
    pub fn run(
        self,
        pipeline: Pipeline<'_>,
        sources: Vec<String>,
        mut choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
        mut each: impl FnMut(EventFindings) -> ControlFlow<()>,
    ) -> (Hunt, Outcome) {
        let (mut pipeline, mut trace_hunt) = self.start(pipeline, sources);
        let outcome = pipeline.run(|view| {
            let is_selected = choose(view)?;
            trace_hunt.event(view, is_selected).map_or(ControlFlow::Continue(()), &mut each)
        });
        (trace_hunt.finish(pipeline), outcome)
    }

    /// Begins with the events of a trace or live session, for readers that use them for more than
    /// this hunt. Its alerts contain no findings of others.
    pub fn start<'t>(self, pipeline: Pipeline<'t>, sources: Vec<String>) -> (Pipeline<'t>, TraceHunt) {
        let Hunt { detector: Detector { modules, binaries }, rules, mut collector } = self;
        collector.end_capture();
        let pipeline = pipeline.with_modules(modules);
        let trace_hunt = TraceHunt {
            session: HuntSession::new(binaries, pipeline.clock()),
            rule_session: RuleSession::new(rules.library(), rules.mode()),
            rules,
            collector,
            answers: Vec::new(),
            records: vec![0; sources.len()],
            sources,
            number: 0,
        };
        (pipeline, trace_hunt)
    }
}

/// The hunt in one trace or live session.
#[derive(Debug)]
pub struct TraceHunt {
    session: HuntSession,
    rule_session: RuleSession,
    rules: Rules,
    collector: FindingCollector,
    answers: Vec<RuleAnswer>,
    /// The names of the files.
    sources: Vec<String>,
    /// The number of events of each, so that a number identifies the same event whatever other files
    /// are read.
    records: Vec<u64>,
    /// The number of all events.
    number: u64,
}

impl TraceHunt {
    /// Also reads the memory of processes: see [`HuntSession::with_memory`].
    #[must_use]
    pub fn with_memory(self, memory: LiveMemory) -> TraceHunt {
        TraceHunt { session: self.session.with_memory(memory), ..self }
    }

    /// Statistics of memory look-ups; `None` without live memory.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        self.session.memory_stats()
    }

    /// Statistics of the evaluations.
    pub fn stats(&self) -> HuntStats {
        self.session.stats()
    }

    /// Evaluates the detections about the next event, without the rest of the policy; `None` if it
    /// has nothing to evaluate.
    pub fn evaluate(&mut self, view: &EventView<'_>) -> Option<&Evaluation> {
        evaluate(&mut self.session, view)
    }

    /// Takes the next event. If it is selected, it is evaluated; its findings are returned if there
    /// are any. All events must be passed in order, because changes of memory matter for later ones.
    pub fn event(&mut self, view: &EventView<'_>, is_selected: bool) -> Option<EventFindings> {
        let source = usize::from(view.event().source());
        self.number += 1;
        if let Some(record) = self.records.get_mut(source) {
            *record += 1;
        }
        if !is_selected {
            self.session.observe(view);
            return None;
        }
        let evaluation = evaluate(&mut self.session, view);
        let is_wanted = evaluation.is_some_and(|evaluation| self.collector.wants(evaluation));
        let mut rule_findings = Vec::new();
        if self.rule_session.is_about(view) {
            self.rule_session.evaluate(view, self.number, evaluation, &mut self.answers);
            let findings = self.answers.drain(..).map(|answer| self.rules.finding(answer));
            rule_findings = self.collector.rule_findings(findings, 1);
        }
        if !is_wanted && rule_findings.is_empty() {
            return None;
        }
        let evaluation = evaluation.copied();
        let location = SourceLocation {
            file: self.sources.get(source).cloned().unwrap_or_default(),
            record: self.records.get(source).copied().unwrap_or_default(),
        };
        let context = self.session.event_context(view, location);
        self.collector.add(context, evaluation.as_ref(), rule_findings)
    }

    /// The findings so far.
    pub fn collector(&mut self) -> &mut FindingCollector {
        &mut self.collector
    }

    /// Ends the hunt in this trace or session. The next one keeps the files that were read.
    pub fn finish(self, pipeline: Pipeline<'_>) -> Hunt {
        let TraceHunt { session, rules, mut collector, .. } = self;
        collector.count_all(&session.totals(), session.stats().with_stack);
        collector.end_capture();
        let detector = Detector { modules: pipeline.into_modules(), binaries: session.into_binaries() };
        Hunt { detector, rules, collector }
    }
}

/// The only evaluation of events of traces and live sessions.
fn evaluate<'s>(session: &'s mut HuntSession, view: &EventView<'_>) -> Option<&'s Evaluation> {
    session.observe(view);
    HuntSession::can_evaluate(view).then(|| session.evaluate(view))
}
