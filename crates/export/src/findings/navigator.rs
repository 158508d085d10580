//! A layer for the ATT&CK Navigator: each technique with its number of events, colored by severity.
//!
//! Format 4.5, as defined by `layers/LAYERFORMATv4_5.md` of the Navigator. Undetermined answers
//! count for no technique.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::tuning::Suppression;
use stackhound_detect::{Analytic, Severity, Totals, add_count};

use super::form::{End, Form, Options, line};
use super::{attack, shown};

/// The findings of one technique.
#[derive(Debug)]
struct Shown {
    severity: Severity,
    /// Raw events with findings of the technique.
    events: u64,
    /// Raw events by detection or rule.
    detections: BTreeMap<Analytic, u64>,
}

/// A layer under construction. Its size is limited by the number of techniques that detections and
/// rules name.
#[derive(Debug, Default)]
struct Layer {
    techniques: BTreeMap<String, Shown>,
    /// Raw events with suppressed findings, by cause. They count for no technique.
    suppressed: BTreeMap<Arc<Suppression>, u64>,
    /// The techniques of one event, kept to reuse its memory.
    seen: Vec<String>,
}

fn color(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "#c6dbef",
        Severity::Low => "#9ecae1",
        Severity::Medium => "#fed976",
        Severity::High => "#fd8d3c",
        Severity::Critical => "#e31a1c",
    }
}

pub(super) fn layer(_: Options) -> Box<dyn Form> {
    Box::new(Layer::default())
}

impl Form for Layer {
    fn add(&mut self, _: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        self.count(event, findings);
        Ok(())
    }

    fn finish(self: Box<Self>, out: &mut dyn Write, end: &End<'_>) -> io::Result<()> {
        line(out, &self.document(end.totals))
    }
}

impl Layer {
    fn count(&mut self, event_context: &EventContext, findings: &[&Finding]) {
        self.seen.clear();
        for cause in findings.iter().filter_map(|finding| finding.suppressed.as_ref()) {
            add_count(self.suppressed.entry(Arc::clone(cause)).or_default(), event_context.count);
        }
        for finding in findings.iter().filter(|finding| finding.is_reported()) {
            for technique in finding.analytic.techniques() {
                let severity = finding.outcome.severity;
                let shown = self.techniques.entry(technique.to_owned()).or_insert_with(|| Shown {
                    severity,
                    events: 0,
                    detections: BTreeMap::new(),
                });
                shown.severity = shown.severity.max(severity);
                add_count(shown.detections.entry(finding.analytic.clone()).or_default(), event_context.count);
                // An event with two findings of one technique counts once.
                if !self.seen.iter().any(|known| known == technique) {
                    self.seen.push(technique.to_owned());
                    add_count(&mut shown.events, event_context.count);
                }
            }
        }
    }

    fn document(self, totals: &Totals) -> Value {
        let most = self.techniques.values().map(|shown| shown.events).max().unwrap_or(0);
        let techniques: Vec<Value> = self.techniques.iter().map(|(id, shown)| technique(id, shown)).collect();
        let suppressed: Vec<Value> = self
            .suppressed
            .iter()
            .map(|(cause, count)| json!({ "name": format!("suppressed by {}", shown::suppression(cause)), "value": count.to_string() }))
            .collect();
        let legend: Vec<Value> = Severity::ALL
            .iter()
            .map(|severity| json!({ "label": severity.name(), "color": color(*severity) }))
            .collect();
        json!({
            "name": "Stackhound findings",
            "versions": { "attack": attack::VERSION, "navigator": "4.9.0", "layer": "4.5" },
            "domain": "enterprise-attack",
            "description": format!(
                "Call stacks of {} events. Scores are numbers of events with findings of a technique, colors are \
                 severities. Undetermined answers are not included.",
                totals.events
            ),
            "filters": { "platforms": ["Windows"] },
            "sorting": 3,
            "layout": { "layout": "side", "showID": true, "expandedSubtechniques": "annotated" },
            "hideDisabled": false,
            "techniques": techniques,
            // Only for readers that use scores: explicit colors have precedence.
            "gradient": {
                "colors": [color(Severity::Info), color(Severity::Critical)],
                "minValue": 0,
                "maxValue": most.max(1),
            },
            "legendItems": legend,
            "metadata": suppressed,
            "selectTechniquesAcrossTactics": true,
        })
    }
}

fn technique(id: &str, shown: &Shown) -> Value {
    let each = |(of, count): (&Analytic, &u64)| format!("{} {} ({count})", of.label(), of.title());
    let comment = shown.detections.iter().map(each).collect::<Vec<_>>().join(", ");
    let metadata: Vec<Value> = shown
        .detections
        .iter()
        .map(|(of, count)| json!({ "name": of.name(), "value": count.to_string() }))
        .collect();
    let url = attack::url(id);
    json!({
        "techniqueID": id,
        "score": shown.events,
        "color": color(shown.severity),
        "comment": format!("{}: {comment}", shown.severity.name()),
        "enabled": true,
        "metadata": metadata,
        "links": [json!({ "label": "ATT&CK", "url": url })],
        "showSubtechniques": !id.contains('.'),
    })
}
