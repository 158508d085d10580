//! Alerts: the findings about one process within a time window.

use std::borrow::Borrow;

use hashbrown::HashMap;

use crate::analytic::Analytic;
use crate::report::{EventContext, Finding, ProcessReport};
use crate::totals::add_count;
use crate::verdict::Severity;

/// Identifies a process of a machine.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Entity {
    host: String,
    pid: Option<u32>,
    started: Option<u64>,
    path: String,
}

/// The findings about one process within a time window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alert {
    /// A key derived from host, process and first finding. It is the same in every trace of the
    /// same activity.
    pub key: String,
    /// The host name; empty if not known.
    pub host: String,
    /// The acting process.
    pub process: ProcessReport,
    /// Times of the first and last finding, in units of 100 ns since 1601.
    pub times: Option<(u64, u64)>,
    /// Each detection or rule with findings, its highest severity, and its number of raw events.
    pub detections: Vec<(Analytic, Severity, u64)>,
    /// The highest severity of its findings.
    pub severity: Severity,
    /// The number of raw events with findings, each counted once. A record of a log is counted once
    /// for its findings of detections and once for those of rules, which are evaluated separately.
    pub events: u64,
}

/// What a finding of each severity adds to the score of an alert.
fn weight(severity: Severity) -> u32 {
    match severity {
        Severity::Info => 1,
        Severity::Low => 5,
        Severity::Medium => 20,
        Severity::High => 50,
        Severity::Critical => 80,
    }
}

impl Alert {
    /// The score, from 1 to 100. Different detections add up. Repetitions of the same one add
    /// little, so that an unbacked caller with a sensitive handle outweighs any number of unbacked
    /// frames.
    pub fn score(&self) -> u32 {
        let one = |(_, severity, count): &(Analytic, Severity, u64)| {
            let again = count.max(&1).ilog2().min(4) * weight(*severity) / 20;
            weight(*severity) + again
        };
        self.detections.iter().map(one).sum::<u32>().clamp(1, 100)
    }

    /// The detections, the most severe first.
    pub fn by_severity(&self) -> Vec<(&Analytic, Severity, u64)> {
        let all = self.detections.iter();
        let mut detections: Vec<_> = all.map(|(of, severity, count)| (of, *severity, *count)).collect();
        detections.sort_by(|(one, most, _), (other, others, _)| (others, one).cmp(&(most, other)));
        detections
    }

    /// The number of raw events with findings. An event with findings of several detections is
    /// counted once per detection.
    pub fn count(&self) -> u64 {
        self.detections.iter().fold(0, |sum: u64, (_, _, count)| sum.saturating_add(*count))
    }
}

/// Groups findings into alerts.
#[derive(Debug)]
pub struct Alerts {
    window: u64,
    /// Alerts by process, the one that was extended last at the end. If findings arrive in the
    /// order of time, there is one per process.
    open: HashMap<Entity, Vec<Alert>, foldhash::fast::RandomState>,
    /// Alerts that were closed to limit the number of open ones.
    closed: Vec<Alert>,
}

/// Maximum number of processes with open alerts. If there are more, the process with the oldest
/// last finding is closed.
const OPEN_MAX: usize = 1 << 16;
/// Maximum number of open alerts of one process, for files that are not in the order of time. If
/// there are more, the alert that was extended least recently is closed.
const OPEN_OF_ONE_MAX: usize = 8;

impl Alerts {
    /// Findings about one process belong to one alert if each is within `window` (in units of 100
    /// ns) of another one. They may arrive in any order, but two separate alerts are not joined by
    /// a later finding between them.
    pub fn new(window: u64) -> Alerts {
        Alerts { window, open: HashMap::default(), closed: Vec::new() }
    }

    /// Adds the findings of an event and sets the alert of each. Only the verdict "yes" opens or
    /// extends an alert, and only if the finding is not suppressed.
    pub fn add(&mut self, event_context: &EventContext, findings: &mut [Finding]) {
        if !findings.iter().any(Finding::is_reported) {
            return;
        }
        let process = &event_context.process;
        let entity = Entity {
            host: event_context.host.clone(),
            pid: process.pid,
            started: process.started(),
            path: process.path().to_ascii_lowercase(),
        };
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&entity) {
            let oldest = self
                .open
                .iter()
                .min_by_key(|(entity, alerts)| (alerts.iter().map(|alert| alert.times).max(), *entity));
            let oldest = oldest.map(|(entity, _)| entity.clone());
            self.closed.extend(oldest.and_then(|entity| self.open.remove(&entity)).into_iter().flatten());
        }
        let open = self.open.entry(entity).or_default();
        let window = self.window;
        let is_near = |alert: &Alert| match (alert.times, event_context.time) {
            (Some((from, to)), Some(time)) => {
                time.saturating_sub(to) <= window && from.saturating_sub(time) <= window
            }
            _ => true,
        };
        let joined = open.iter().rposition(is_near).map(|joined| open.remove(joined));
        if open.len() >= OPEN_OF_ONE_MAX {
            self.closed.push(open.remove(0));
        }
        open.push(joined.unwrap_or_else(|| Alert {
            key: key(event_context),
            host: event_context.host.clone(),
            process: process.clone(),
            times: None,
            detections: Vec::new(),
            severity: Severity::Info,
            events: 0,
        }));
        let Some(alert) = open.last_mut() else { return };
        add_count(&mut alert.events, event_context.count);
        if let Some(time) = event_context.time {
            alert.times = Some(alert.times.map_or((time, time), |(from, to)| (from.min(time), to.max(time))));
        }
        for finding in findings {
            if finding.suppressed.is_none() {
                finding.alert.clone_from(&alert.key);
            }
            if !finding.is_reported() {
                continue;
            }
            let severity = finding.outcome.severity;
            alert.severity = alert.severity.max(severity);
            let known = alert.detections.iter_mut().find(|(known, ..)| *known == finding.analytic);
            match known {
                Some((_, most, count)) => {
                    *most = severity.max(*most);
                    add_count(count, event_context.count);
                }
                None => alert.detections.push((finding.analytic.clone(), severity, event_context.count)),
            }
        }
    }

    /// Returns all alerts, the highest score first.
    pub fn finish(mut self) -> Vec<Alert> {
        let mut alerts = self.closed;
        alerts.extend(self.open.drain().flat_map(|(_, alerts)| alerts));
        sort(&mut alerts);
        alerts
    }
}

/// Sorts alerts, the highest score first.
pub fn sort<A: Borrow<Alert>>(alerts: &mut [A]) {
    alerts.sort_by(|one, other| {
        let (one, other) = (one.borrow(), other.borrow());
        other.score().cmp(&one.score()).then_with(|| (one.times, &one.key).cmp(&(other.times, &other.key)))
    });
}

/// A 64-bit hash of the host, the process and the time of its first finding.
fn key(event_context: &EventContext) -> String {
    let process = &event_context.process;
    let parts = [
        event_context.host.clone(),
        process.path().to_ascii_lowercase(),
        format!("{:?} {:?} {:?}", process.pid, process.started(), event_context.time),
    ];
    // FNV-1a: the same value on all machines and in all versions.
    let hash =
        parts.iter().flat_map(|part| part.bytes().chain([0])).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3_u64)
        });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests;
