//! Converts the events of a trace to a profile with a time axis: samples, context switches and
//! markers. Samples in deferred procedure calls and interrupt service routines count for the
//! processes `DPC` and `ISR`, as in [`cpu`](crate::cpu).
//!
//! This module uses events, stacks and names. It does not implement profile formats.

use std::fmt::{self, Display, Write as _};

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_pipeline::{EventNumbers, EventView, Naming, Predicate, TraceState};
use stackhound_profile::{
    FrameId, Full, Marker, MarkerKind, MarkerKindId, Nanos, Profile, Sample, Switch, SwitchReason, TextId,
    Timing,
};
use stackhound_schema::kernel::{hook_id, view as payload};
use stackhound_schema::{self as schema, ItemText, Value};
use stackhound_trace::OpenTrace;

use crate::fields::tid;
use crate::parts::{Interrupt, Parts};
use crate::stacks::StackUse;

/// Maximum numbers of events in addition to samples.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of events that become markers.
    pub markers: usize,
    /// Maximum number of context switches.
    pub switches: usize,
}

impl Default for Limits {
    /// 100,000 markers and 1,000,000 context switches.
    fn default() -> Limits {
        Limits { markers: 100_000, switches: 1_000_000 }
    }
}

/// Counters of a collected profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Whether there were no profile samples, so that all events with a stack are samples.
    pub stand_ins: bool,
    /// Number of events that did not become markers because the limit was reached.
    pub markers_dropped: u64,
    /// Number of context switches that were dropped because the limit was reached.
    pub switches_dropped: u64,
}

/// The events that are samples.
#[derive(Debug)]
enum Samples {
    /// Events that match the predicate.
    Chosen(Box<Predicate>),
    /// Profile samples. All events with a stack until the first profile sample.
    NoneYet,
    /// Profile samples.
    Profile,
}

/// Longer field values are cut off.
const VALUE_MAX: usize = 512;

const SAMPLED_PROFILE: u16 = hook_id::PERF_INFO_SAMPLED_PROFILE;
const SAMPLED_PROFILE_NMI: u16 = hook_id::PERF_INFO_SAMPLED_PROFILE_NMI;
const SET_INTERVAL: u16 = hook_id::PERF_INFO_SET_INTERVAL;
const INTERVAL_AT_START: u16 = hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START;
const CONTEXT_SWITCH: u16 = hook_id::THREAD_C_SWITCH;

/// Collects a profile from events in time order.
///
/// Keeps each stack, frame, process and thread once. Costs one look-up for an event with a known
/// stack.
#[derive(Debug)]
pub struct Collector {
    parts: Parts,
    samples: Samples,
    /// The number of samples by whether they are profile samples.
    kept: [u64; 2],
    limits: Limits,
    counted: Counted,
    /// The names of the events of the capture.
    names: EventNumbers,
    /// By the number of the name.
    name_frames: Vec<Option<FrameId>>,
    kinds: FxHashMap<String, Vec<(Vec<String>, MarkerKindId)>>,
    reasons: FxHashMap<String, TextId>,
    markers: usize,
    switches: usize,
    /// The values of the current marker, whose memory is used again.
    values: Vec<String>,
}

impl Collector {
    /// Starts with the first capture. `product` names the recorded system or program. Samples are
    /// the events that match `chosen`. Without it, they are the profile samples of the trace, or
    /// all events with a stack if there are none.
    pub fn new(product: String, trace: &OpenTrace, chosen: Option<Predicate>, limits: Limits) -> Collector {
        Collector {
            parts: Parts::new(product, trace),
            samples: chosen.map_or(Samples::NoneYet, |chosen| Samples::Chosen(Box::new(chosen))),
            kept: [0; 2],
            limits,
            counted: Counted::default(),
            names: EventNumbers::default(),
            name_frames: Vec::new(),
            kinds: FxHashMap::default(),
            reasons: FxHashMap::default(),
            markers: 0,
            switches: 0,
            values: Vec::new(),
        }
    }

    /// Adds the next event, if `wanted` returns true. Every event of the trace must be passed,
    /// because other events state the sampling interval.
    ///
    /// # Errors
    /// If the profile is full: it cannot contain another stack, frame, process or thread; or the
    /// trace is too long.
    pub fn observe(&mut self, view: &EventView<'_>, wanted: impl FnOnce() -> bool) -> Result<(), Full> {
        self.parts.observe(view)?;
        let hook_id = view.kernel_id();
        if matches!(hook_id, Some(SET_INTERVAL | INTERVAL_AT_START)) {
            self.set_interval(view);
        }
        if !wanted() {
            return Ok(());
        }
        let profiles = matches!(hook_id, Some(SAMPLED_PROFILE | SAMPLED_PROFILE_NMI));
        if profiles && matches!(self.samples, Samples::NoneYet) {
            self.parts.builder.forget_samples();
            self.samples = Samples::Profile;
            self.kept = [0; 2];
        }
        let is_sample = match &self.samples {
            Samples::Chosen(predicate) => predicate.decide(view).is_ok_and(|chosen| chosen),
            Samples::NoneYet => view.stack().is_some(),
            Samples::Profile => profiles,
        };
        if is_sample {
            self.sample(view, profiles)?;
        }
        if hook_id == Some(CONTEXT_SWITCH) {
            self.switch(view)
        } else if !profiles {
            self.marker(view)
        } else {
            Ok(())
        }
    }

    /// Continues with another capture, which does not start earlier than the previous ones. Its
    /// processes, threads and modules are different.
    pub fn begin_capture(&mut self, clock: Clock) {
        self.parts.begin_capture(clock);
        (self.names, self.name_frames) = (EventNumbers::default(), Vec::new());
    }

    /// Names the frames of the capture. Waits for pending look-ups of names.
    pub fn end_capture(&mut self, known: &TraceState, naming: Option<&mut Naming>) {
        self.parts.end_capture(known, naming);
    }

    /// The profile, and its counters.
    pub fn finish(mut self) -> (Profile, Counted) {
        self.counted.stand_ins = matches!(self.samples, Samples::NoneYet);
        self.parts.builder.set_timed(self.kept[0] == 0 && self.kept[1] > 0);
        (self.parts.builder.finish(), self.counted)
    }

    /// Sets the interval of the timer, which is in units of 100 ns.
    fn set_interval(&mut self, view: &EventView<'_>) {
        let pointer_size = view.event().record().pointer_size();
        let interval = payload::ProfileInterval::parse(view.payload(), view.version(), pointer_size);
        if let Some(interval) = interval.ok().filter(|interval| interval.source == 0) {
            self.parts.builder.set_interval(Nanos(u64::from(interval.new_interval) * 100));
        }
    }

    fn sample(&mut self, view: &EventView<'_>, profiles: bool) -> Result<(), Full> {
        self.kept[usize::from(profiles)] += 1;
        let interrupt = if profiles { interrupt(view) } else { None };
        let (used, thread) = match interrupt {
            Some(interrupt) => (StackUse::Interrupt, self.parts.interrupt(interrupt)?),
            None if profiles => (StackUse::Sample, self.parts.thread_of(view)?),
            None => (StackUse::Event, self.parts.thread_of(view)?),
        };
        let mut stack = self.parts.stacks.of(view, thread.0, used, &mut self.parts.builder)?;
        if !profiles {
            // The innermost frame distinguishes samples of several kinds.
            let kind = self.name_frame(view)?;
            stack = self.parts.builder.stack(Some(stack), kind)?;
        }
        let time = self.parts.nanos(view.time());
        self.parts.builder.sample(Sample { time, thread: thread.1, stack, weight: 1, cpu: view.processor() });
        Ok(())
    }

    /// The frame with the name of an event.
    fn name_frame(&mut self, view: &EventView<'_>) -> Result<FrameId, Full> {
        let name = self.names.of(view);
        if let Some(&Some(known)) = self.name_frames.get(name.index()) {
            return Ok(known);
        }
        let frame = self.parts.stacks.remark(self.names.name(name), &mut self.parts.builder)?;
        if self.name_frames.len() <= name.index() {
            self.name_frames.resize(name.index() + 1, None);
        }
        self.name_frames[name.index()] = Some(frame);
        Ok(frame)
    }

    fn switch(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        if self.switches == self.limits.switches {
            self.counted.switches_dropped += 1;
            return Ok(());
        }
        let (Some(cpu), Some(old)) = (view.processor(), tid(view, "OldThreadId")) else {
            return Ok(());
        };
        self.switches += 1;
        let (process, to) = self.parts.thread_of(view)?;
        let (_, from) = self.parts.thread(view, old)?;
        let reason = match view.field("OldThreadState").and_then(|(_, value)| value.as_u64()) {
            // KTHREAD_STATE: Ready, Running, Standby, Terminated, Waiting, Transition,
            // DeferredReady.
            Some(1 | 2 | 3 | 7) => SwitchReason::Ready,
            Some(4) => SwitchReason::Ended,
            Some(5 | 6) => SwitchReason::Waits,
            _ => SwitchReason::Unknown,
        };
        let why = match view.field("OldThreadWaitReason") {
            Some((field, value)) if reason == SwitchReason::Waits => Some(self.why(field, value)?),
            _ => None,
        };
        let stack = self.parts.stack_of(view, process)?;
        let time = self.parts.nanos(view.time());
        self.parts.builder.switch(Switch { time, cpu, from, to, reason, why, stack });
        Ok(())
    }

    fn why(&mut self, field: &schema::Field, value: Value<'_>) -> Result<TextId, Full> {
        let text = field.render(value).to_string();
        if let Some(&id) = self.reasons.get(&text) {
            return Ok(id);
        }
        let id = self.parts.builder.text(text.clone())?;
        self.reasons.insert(text, id);
        Ok(id)
    }

    fn marker(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        if self.markers == self.limits.markers {
            self.counted.markers_dropped += 1;
            return Ok(());
        }
        self.markers += 1;
        let mut keys: Vec<&str> = Vec::new();
        let mut values = std::mem::take(&mut self.values);
        for (index, decoded) in view.fields().into_iter().flatten().filter_map(Result::ok).enumerate() {
            keys.push(&decoded.field.name);
            if values.len() == index {
                values.push(String::new());
            }
            shorten(&mut values[index], ItemText(decoded.field, &decoded.item));
        }
        let kind = self.kind(&view.name(), &keys)?;
        let (process, thread) = self.parts.thread_of(view)?;
        let stack = self.parts.stack_of(view, process)?;
        let timing = Timing::Instant(self.parts.nanos(view.time()));
        self.parts.builder.marker(Marker { timing, thread, kind, stack }, &values[..keys.len()]);
        self.values = values;
        Ok(())
    }

    fn kind(&mut self, name: &str, keys: &[&str]) -> Result<MarkerKindId, Full> {
        let known = self.kinds.get(name).into_iter().flatten();
        if let Some((_, id)) = known.into_iter().find(|(known, _)| *known == keys) {
            return Ok(*id);
        }
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let id = self.parts.builder.marker_kind(MarkerKind { name: name.to_owned(), keys: keys.clone() })?;
        self.kinds.entry(name.to_owned()).or_default().push((keys, id));
        Ok(id)
    }
}

fn interrupt(view: &EventView<'_>) -> Option<Interrupt> {
    let pointer_size = view.event().record().pointer_size();
    let sample = payload::SampledProfile::parse(view.payload(), view.version(), pointer_size);
    Interrupt::of(&sample.ok()?)
}

/// Replaces a text by a value, and cuts it off after [`VALUE_MAX`] bytes. The rest of long values is
/// not rendered.
fn shorten(text: &mut String, value: impl Display) {
    text.clear();
    let mut short = Shortened(text);
    // The only error is that of a value that was cut off.
    let _ = write!(short, "{value}");
}

/// A text that ends with an ellipsis where it would become longer than [`VALUE_MAX`] bytes.
struct Shortened<'t>(&'t mut String);

impl fmt::Write for Shortened<'_> {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let left = VALUE_MAX.saturating_sub(self.0.len());
        if more.len() <= left {
            self.0.push_str(more);
            return Ok(());
        }
        self.0.push_str(&more[..more.floor_char_boundary(left)]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_off() {
        let mut text = "before".to_owned();
        for (value, expected) in [
            ("a".repeat(VALUE_MAX), "a".repeat(VALUE_MAX)),
            ("a".repeat(VALUE_MAX + 1), "a".repeat(VALUE_MAX) + "…"),
            ("a".to_owned() + &"ä".repeat(VALUE_MAX), "a".to_owned() + &"ä".repeat(VALUE_MAX / 2 - 1) + "…"),
            (String::new(), String::new()),
        ] {
            shorten(&mut text, &value);
            assert_eq!(text, expected);
            // The value in several parts.
            let (start, end) = value.split_at(value.len().min(3));
            shorten(&mut text, format_args!("{start}{end}{}", ""));
            assert_eq!(text, expected);
        }
    }
}
