//! Findings put together: what a process did within some time is one alert, however many findings tell of it.

use std::borrow::Borrow;

use hashbrown::HashMap;

use crate::catalogue::DetectionId;
use crate::report::{EventContext, Finding, ProcessReport};
use crate::verdict::{Severity, Verdict};

/// What tells the processes of a machine apart.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Entity {
    host: String,
    pid: Option<u32>,
    started: Option<u64>,
    path: String,
}

/// Findings about one process within some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alert {
    /// Equal for the same process doing the same again, in another recording of it too: host, process and first finding.
    pub key: String,
    /// The machine; empty if not known.
    pub host: String,
    /// Who acted.
    pub process: ProcessReport,
    /// When it began and ended, in units of 100 ns since 1601.
    pub times: Option<(u64, u64)>,
    /// Each detection that found something, how severe at most, and how many raw events.
    pub detections: Vec<(DetectionId, Severity, u64)>,
    /// How severe at most.
    pub severity: Severity,
}

/// What findings of each severity add to the score of an alert.
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
    /// From 1 to 100. Different detections add up; the same one again adds little, so that one unbacked caller with a
    /// sensitive handle outweighs any number of unbacked frames.
    pub fn score(&self) -> u32 {
        let one = |(_, severity, count): &(DetectionId, Severity, u64)| {
            let again = count.max(&1).ilog2().min(4) * weight(*severity) / 20;
            weight(*severity) + again
        };
        self.detections.iter().map(one).sum::<u32>().clamp(1, 100)
    }

    /// The detections, the most severe first.
    pub fn by_severity(&self) -> Vec<(DetectionId, Severity, u64)> {
        let mut detections = self.detections.clone();
        detections.sort_by(|(one, most, _), (other, others, _)| (others, one).cmp(&(most, other)));
        detections
    }

    /// Raw events that it was found in; one that several detections found is counted by each.
    pub fn count(&self) -> u64 {
        self.detections.iter().map(|(_, _, count)| count).sum()
    }
}

/// Puts findings together as they come.
#[derive(Debug)]
pub struct Alerts {
    window: u64,
    /// By process; those that take in more, the one that did so last at the end. Where findings come in the order of time
    /// it is one.
    open: HashMap<Entity, Vec<Alert>, foldhash::fast::RandomState>,
    /// That made room.
    closed: Vec<Alert>,
}

/// Processes with open alerts; the one that is longest quiet is closed if there are more.
const OPEN_MAX: usize = 1 << 16;
/// Open alerts of one process, for files that are not in the order of time; the one that took in something longest ago is
/// closed if there are more.
const OPEN_OF_ONE_MAX: usize = 8;

impl Alerts {
    /// Findings about one process, each within `window` (100 ns) of another one, are one alert. They may come in any order;
    /// alerts that were begun apart stay two, though something between them comes later.
    pub fn new(window: u64) -> Alerts {
        Alerts { window, open: HashMap::default(), closed: Vec::new() }
    }

    /// Takes in what was found in an event, and says which alert it belongs to. Nothing but findings counts.
    pub fn add(&mut self, event_context: &EventContext, findings: &mut [Finding]) {
        if findings.iter().all(|finding| finding.outcome.verdict != Verdict::Yes) {
            return;
        }
        let process = &event_context.process;
        let entity = Entity {
            host: event_context.host.clone(),
            pid: process.pid,
            started: process.started,
            path: process.path.to_ascii_lowercase(),
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
        }));
        let Some(alert) = open.last_mut() else { return };
        if let Some(time) = event_context.time {
            alert.times = Some(alert.times.map_or((time, time), |(from, to)| (from.min(time), to.max(time))));
        }
        for finding in findings {
            finding.alert.clone_from(&alert.key);
            if finding.outcome.verdict != Verdict::Yes {
                continue;
            }
            let severity = finding.outcome.severity;
            alert.severity = alert.severity.max(severity);
            let known = alert.detections.iter_mut().find(|(id, ..)| *id == finding.id);
            match known {
                Some((_, most, count)) => {
                    *most = severity.max(*most);
                    *count += event_context.count;
                }
                None => alert.detections.push((finding.id, severity, event_context.count)),
            }
        }
    }

    /// All alerts, the highest score first.
    pub fn finish(mut self) -> Vec<Alert> {
        let mut alerts = self.closed;
        alerts.extend(self.open.drain().flat_map(|(_, alerts)| alerts));
        sort(&mut alerts);
        alerts
    }
}

/// Puts alerts in order, the highest score first.
pub fn sort<A: Borrow<Alert>>(alerts: &mut [A]) {
    alerts.sort_by(|one, other| {
        let (one, other) = (one.borrow(), other.borrow());
        other.score().cmp(&one.score()).then_with(|| (one.times, &one.key).cmp(&(other.times, &other.key)))
    });
}

/// Host, process and time of the first finding, as a number of 64 bits.
fn key(event_context: &EventContext) -> String {
    let process = &event_context.process;
    let parts = [
        event_context.host.clone(),
        process.path.to_ascii_lowercase(),
        format!("{:?} {:?} {:?}", process.pid, process.started, event_context.time),
    ];
    // FNV-1a: equal on all machines and in all versions.
    let hash =
        parts.iter().flat_map(|part| part.bytes().chain([0])).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3_u64)
        });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests;
