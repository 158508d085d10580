//! A Perfetto trace: samples in the form of Linux `perf`, context switches in the form of the Linux
//! scheduler, and markers as events on the tracks of threads. Perfetto has views and tables for
//! these forms.
//!
//! Times count from the start of the profile; a clock snapshot gives the absolute time. The format
//! has no weights, so a sample is repeated according to its weight. Intervals of one thread should
//! be nested or disjoint.

mod interned;
mod messages;
mod numbers;

use std::io::{self, Write};

use prost::Message;

use stackhound_types::Mode;

use interned::Keys;
use messages::{
    Clock, ClockSnapshot, DebugAnnotation, FtraceEvent, FtraceEventBundle, PerfSample, PerfSampleDefaults,
    ProcessDescriptor, SchedSwitch, ThreadDescriptor, Timebase, TracePacket, TracePacketDefaults,
    TrackDescriptor, TrackEvent,
};
use numbers::Numbers;
use stackhound_profile::Profile;
use stackhound_profile::{Nanos, SwitchReason, ThreadId, Timing};

/// The only sequence of packets.
const SEQUENCE: u32 = 1;

/// `SequenceFlags`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;

/// `BuiltinClock`.
const CLOCK_REALTIME: u32 = 1;
const CLOCK_BOOTTIME: u32 = 6;

/// `TrackEvent.Type`.
const SLICE_BEGIN: u32 = 1;
const SLICE_END: u32 = 2;
const INSTANT: u32 = 3;

/// `PerfEvents.Counter`: time on the processor.
const SW_CPU_CLOCK: u32 = 1;

/// Maximum number of context switches per packet.
const SWITCHES_MAX: usize = 1 << 10;

/// Writes the trace.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut packets = Packets { out, buffer: Vec::new() };
    let numbers = Numbers::of(profile);
    let keys = interned::keys(profile);
    start(profile, &mut packets)?;
    tracks(profile, &numbers, &mut packets)?;
    interned::write(profile, &keys, &mut packets)?;
    switches(profile, &numbers, &mut packets)?;
    for (thread, _) in profile.thread_ids() {
        samples(profile, &numbers, thread, &mut packets)?;
        markers(profile, &keys, thread, &mut packets)?;
    }
    Ok(())
}

/// Writes packets one by one.
struct Packets<'w> {
    out: &'w mut dyn Write,
    buffer: Vec<u8>,
}

impl Packets<'_> {
    fn send(&mut self, mut packet: TracePacket) -> io::Result<()> {
        /// Field 1 of `Trace`, a message.
        const PACKET: u8 = 0x0a;
        packet.trusted_packet_sequence_id = SEQUENCE;
        self.buffer.clear();
        self.buffer.push(PACKET);
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }
}

fn start(profile: &Profile, packets: &mut Packets<'_>) -> io::Result<()> {
    let clock = |clock_id, timestamp| Clock { clock_id, timestamp: Some(timestamp) };
    let started = u64::try_from(profile.unix_start()).unwrap_or(0);
    let timebase =
        Timebase { period: profile.interval().0, counter: SW_CPU_CLOCK, name: "samples".to_owned() };
    packets.send(TracePacket {
        first_packet_on_sequence: true,
        sequence_flags: STATE_CLEARED,
        clock_snapshot: Some(ClockSnapshot {
            clocks: vec![clock(CLOCK_BOOTTIME, 0), clock(CLOCK_REALTIME, started)],
            primary_trace_clock: CLOCK_BOOTTIME,
        }),
        trace_packet_defaults: Some(TracePacketDefaults {
            perf_sample_defaults: Some(PerfSampleDefaults { timebase: Some(timebase) }),
            timestamp_clock_id: CLOCK_BOOTTIME,
        }),
        ..TracePacket::default()
    })
}

/// Tracks have their own numbers.
fn thread_track(thread: ThreadId) -> u64 {
    1 << 32 | thread.index() as u64
}

fn tracks(profile: &Profile, numbers: &Numbers, packets: &mut Packets<'_>) -> io::Result<()> {
    let mut send = |descriptor| {
        packets.send(TracePacket {
            track_descriptor: Some(descriptor),
            sequence_flags: NEEDS_STATE,
            ..TracePacket::default()
        })
    };
    for (id, process) in profile.process_ids() {
        let pid = numbers.pid(id);
        // Processes and threads with a substitute number have their real id in the name.
        let own = process.pid == Some(pid);
        send(TrackDescriptor {
            uuid: 1 + id.index() as u64,
            process: Some(ProcessDescriptor {
                pid: Some(pid as i32),
                process_name: if own { process.name.clone() } else { profile.process_label(id) },
            }),
            ..TrackDescriptor::default()
        })?;
    }
    for (id, thread) in profile.thread_ids() {
        let tid = numbers.tid(id);
        let own = thread.tid == Some(tid);
        send(TrackDescriptor {
            uuid: thread_track(id),
            parent_uuid: Some(1 + thread.process.index() as u64),
            thread: Some(ThreadDescriptor {
                pid: Some(numbers.pid(thread.process) as i32),
                tid: Some(tid.into()),
                thread_name: if own { thread.name.clone() } else { profile.thread_label(id) },
            }),
            ..TrackDescriptor::default()
        })?;
    }
    Ok(())
}

/// Switches of one processor are grouped, as Linux writes them.
fn switches(profile: &Profile, numbers: &Numbers, packets: &mut Packets<'_>) -> io::Result<()> {
    let mut open: std::collections::BTreeMap<u16, Vec<FtraceEvent>> = std::collections::BTreeMap::new();
    let mut send = |cpu: u16, event: Vec<FtraceEvent>| {
        packets.send(TracePacket {
            ftrace_events: Some(FtraceEventBundle { cpu: Some(cpu.into()), event }),
            ..TracePacket::default()
        })
    };
    let process_name =
        |thread: ThreadId| profile.process(profile.threads()[thread.index()].process).name.clone();
    for switch in profile.switches() {
        let (from, to) = (numbers.tid(switch.from), numbers.tid(switch.to));
        let events = open.entry(switch.cpu).or_default();
        events.push(FtraceEvent {
            timestamp: Some(switch.time.0),
            pid: Some(from),
            sched_switch: Some(SchedSwitch {
                prev_comm: process_name(switch.from),
                prev_pid: Some(from as i32),
                prev_state: Some(linux_state(switch.reason)),
                next_comm: process_name(switch.to),
                next_pid: Some(to as i32),
            }),
        });
        if events.len() == SWITCHES_MAX {
            send(switch.cpu, std::mem::take(events))?;
        }
    }
    open.into_iter().filter(|(_, events)| !events.is_empty()).try_for_each(|(cpu, events)| send(cpu, events))
}

/// The Linux state bits for the reason why a thread left its processor.
fn linux_state(reason: SwitchReason) -> i64 {
    match reason {
        SwitchReason::Ready => 0,
        // Sleeping; also if the reason is not known.
        SwitchReason::Waits | SwitchReason::Unknown => 1,
        SwitchReason::Ended => 16,
    }
}

fn samples(
    profile: &Profile,
    numbers: &Numbers,
    thread: ThreadId,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let pid = numbers.pid(profile.threads()[thread.index()].process);
    for sample in profile.samples_of(thread) {
        let packet = TracePacket {
            timestamp: Some(sample.time.0),
            sequence_flags: NEEDS_STATE,
            perf_sample: Some(PerfSample {
                cpu: sample.cpu.map(u32::from),
                pid: Some(pid),
                tid: Some(numbers.tid(thread)),
                callstack_iid: interned::stack_number(sample.stack),
                cpu_mode: match profile.frame(profile.node(sample.stack).frame).mode {
                    None => 0,
                    Some(Mode::Kernel) => 1,
                    Some(Mode::User) => 2,
                },
            }),
            ..TracePacket::default()
        };
        for _ in 0..sample.weight {
            packets.send(packet.clone())?;
        }
    }
    Ok(())
}

fn markers(
    profile: &Profile,
    keys: &Keys<'_>,
    thread: ThreadId,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let mut send = |time: Nanos, event: TrackEvent| {
        packets.send(TracePacket {
            timestamp: Some(time.0),
            sequence_flags: NEEDS_STATE,
            track_event: Some(event),
            ..TracePacket::default()
        })
    };
    let track_uuid = thread_track(thread);
    for record in profile.markers_of(thread) {
        let names = &profile.kind_of(record).keys;
        let annotations = names.iter().zip(profile.values_of(record));
        let annotations = annotations.map(|(name, value)| DebugAnnotation {
            name_iid: keys.get(&**name).copied().unwrap_or_default(),
            string_value: Some(value.to_owned()),
        });
        let mut event = TrackEvent {
            category_iids: vec![1],
            debug_annotations: annotations.collect(),
            r#type: INSTANT,
            name_iid: Some(record.marker.kind.index() as u64 + 1),
            track_uuid,
            callstack_iid: record.marker.stack.map(interned::stack_number),
        };
        match record.marker.timing {
            Timing::Instant(time) => send(time, event)?,
            Timing::Interval(start, end) => {
                event.r#type = SLICE_BEGIN;
                send(start, event)?;
                send(end, TrackEvent { r#type: SLICE_END, track_uuid, ..TrackEvent::default() })?;
            }
        }
    }
    Ok(())
}
