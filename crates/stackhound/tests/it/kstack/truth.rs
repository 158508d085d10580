//! The scenario's ground truth about switches, as a reader can query it.

use std::collections::HashMap;
use std::io::Cursor;

use stackhound::etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::threads::{SwitchEvidence, SwitchRelation};
use stackhound::{Address, Clock, Pid, PointerSize, RawTime, Tid};
use stackhound_scenario::{SwitchTruth, Thread, Truth};

/// The switches of one thread in time order; `true` for switches to the thread.
#[derive(Default)]
pub struct Of<'t> {
    switches: Vec<(&'t SwitchTruth, bool)>,
}

/// The facts that can be known from the file, and the switch that they come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpectedStack<'t> {
    Last(&'t SwitchTruth),
    Resumed(&'t SwitchTruth),
    Earlier(&'t SwitchTruth, u64),
    Absent,
}

impl<'t> ExpectedStack<'t> {
    /// The claim of a reader.
    pub fn of(evidence: &SwitchEvidence, of: &Of<'t>, clock: &Clock) -> ExpectedStack<'t> {
        let is_it = |switch: &SwitchTruth| clock.to_file_time(switch.time) == evidence.time;
        let found = of.switches.iter().find(|(switch, is_in)| *is_in && switch.kept && is_it(switch));
        let (switch, _) = found.expect("a switch to the thread at the claimed time");
        match evidence.relation {
            SwitchRelation::Last => ExpectedStack::Last(switch),
            SwitchRelation::Resumed => ExpectedStack::Resumed(switch),
            SwitchRelation::Earlier { later, .. } => ExpectedStack::Earlier(switch, later),
        }
    }

    pub fn switch(self) -> Option<&'t SwitchTruth> {
        match self {
            ExpectedStack::Last(switch)
            | ExpectedStack::Resumed(switch)
            | ExpectedStack::Earlier(switch, _) => Some(switch),
            ExpectedStack::Absent => None,
        }
    }
}

pub fn by_thread(switches: &[SwitchTruth]) -> HashMap<Tid, Of<'_>> {
    let mut threads: HashMap<Tid, Of<'_>> = HashMap::new();
    for switch in switches {
        for (tid, is_in) in [(switch.old, false), (switch.new, true)] {
            threads.entry(tid).or_default().switches.push((switch, is_in));
        }
    }
    threads
}

/// The threads that exist at a time, with their processes.
pub fn living(truth: &Truth, at: RawTime) -> impl Iterator<Item = (Pid, &Thread)> {
    let threads = truth.processes.iter().flat_map(|process| {
        let pid = process.pid;
        process.threads.iter().map(move |thread| (pid, thread))
    });
    threads.filter(move |(_, thread)| {
        thread.tid != Tid(0)
            && thread.started.is_none_or(|started| started <= at)
            && thread.ended.is_none_or(|ended| at <= ended)
    })
}

impl<'t> Of<'t> {
    fn kept(&self) -> impl DoubleEndedIterator<Item = (&'t SwitchTruth, bool)> + '_ {
        self.switches.iter().copied().filter(|(switch, _)| switch.kept)
    }

    /// The last switch in the file up to a time.
    pub fn kept_until(&self, at: RawTime) -> Option<(&'t SwitchTruth, bool)> {
        self.kept().take_while(|(switch, _)| switch.time <= at).last()
    }

    /// The kernel stack with which the thread was last switched, whether it is in the file or not.
    /// Before its first switch, a thread has its initial stack.
    pub fn stack_at(&self, at: RawTime) -> Option<&'t [Address]> {
        let last = self.switches.iter().take_while(|(switch, _)| switch.time <= at).last();
        let (switch, is_in) = last.or(self.switches.first())?;
        Some(if *is_in { &switch.new_kernel } else { &switch.old_kernel })
    }

    /// The facts that can be known at a time.
    pub fn known(&self, at: RawTime) -> ExpectedStack<'t> {
        match self.kept_until(at) {
            Some((switch, true)) if !switch.recorded.is_empty() => return ExpectedStack::Last(switch),
            Some((_, true)) => {}
            Some((_, false)) | None => {
                let next = self.kept().find(|(switch, _)| switch.time > at);
                if let Some((switch, true)) = next
                    && !switch.recorded.is_empty()
                {
                    return ExpectedStack::Resumed(switch);
                }
            }
        }
        self.fallback(at)
    }

    /// The latest stack up to a time.
    fn fallback(&self, at: RawTime) -> ExpectedStack<'t> {
        let until: Vec<_> = self.kept().take_while(|(switch, _)| switch.time <= at).collect();
        let has_stack = |(switch, is_in): &(&SwitchTruth, bool)| *is_in && !switch.recorded.is_empty();
        match until.iter().rposition(has_stack) {
            Some(index) if index + 1 == until.len() => ExpectedStack::Last(until[index].0),
            Some(index) => ExpectedStack::Earlier(until[index].0, (until.len() - index - 1) as u64),
            None => ExpectedStack::Absent,
        }
    }
}

/// A trace with one thread, which is switched to without a stack, or not at all.
pub fn without_stacks(with_switches: bool) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let session = Session::default();
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, &mut file).unwrap();
    let mut payload = Vec::new();
    for number in [40_u32, 41] {
        payload.extend(number.to_le_bytes());
    }
    payload.extend([0; 6 * 8 + 8 + 4 + 4]);
    payload.extend([0; 2]);
    let issuer = Issuer::new(Pid(40), Tid(41));
    let header = HeaderSpec::System { hook_id: 0x0503, version: 3, issuer };
    let mut write = |after: i64, header: HeaderSpec<'_>, payload: &[u8]| {
        let time = RawTime(start + after);
        let record =
            RecordSpec { time, pointer_size: PointerSize::Eight, header, payload: Payload::Bytes(payload) };
        writer.write(0, &record).unwrap();
    };
    write(10, header, &payload);
    if with_switches {
        let mut payload = Vec::new();
        payload.extend(41_u32.to_le_bytes());
        payload.extend([0; 20]);
        let header = HeaderSpec::PerfInfo { hook_id: 0x0524, version: 4, pebs_index: None, counters: &[] };
        write(20, header, &payload);
    }
    writer.finish().unwrap();
    file.into_inner()
}
