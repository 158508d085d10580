//! The events that sums over selected events need, although they are not selected themselves: the
//! other end of an operation, the previous sample of a processor, the bounds of the trace.
//!
//! A trace that contains them gives the same times and numbers as the whole one, for the
//! measurements of [`cpu`](crate::cpu) and [`costs`](crate::costs) except those of interrupts,
//! system calls and disks. Each rule below is the counterpart of what a measurement joins.
//!
//! This module does not write traces.

use rustc_hash::{FxHashMap, FxHashSet};
use stackhound_pipeline::EventView;
use stackhound_schema::kernel::hook_id;
use stackhound_trace::TraceTime;
use stackhound_types::RawTime;

use crate::costs::{is_file_operation, is_of_runtime};
use crate::fields::number;
use crate::window::Window;

/// Whether an event is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// It is selected.
    Selected,
    /// It is not in the selected time, but meets all other conditions.
    AtOtherTime,
    /// It is not selected.
    No,
}

/// An event that is needed, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The number of the event, as given.
    pub number: u64,
    /// Whether its stack is needed too.
    pub with_stack: bool,
}

/// A processor of a session.
type Processor = (u32, Option<u16>);

/// An event, by its number, and whether it is selected.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    number: u64,
    time: TraceTime,
    choice: Choice,
}

/// The operation that used an I/O request packet last.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Begun(Numbered),
    /// By the event with this number.
    Ended(u64),
}

/// Maximum number of I/O request packets. Beyond that, all are forgotten.
const PACKETS_MAX: usize = 1 << 18;

/// Finds the events that are needed, from all events of a trace in time order.
#[derive(Debug, Default)]
pub struct Needed {
    window: Window,
    /// The first event of each kind of kernel events shows that they were recorded.
    kinds: FxHashSet<u16>,
    packets: FxHashMap<u64, Operation>,
    /// The previous sample of each processor.
    samples: FxHashMap<Processor, Numbered>,
    /// The last context switch of each processor before the selected time; `None` after the first one
    /// that follows that time.
    switches: FxHashMap<Processor, Option<Numbered>>,
    /// The last event, and the last kernel event.
    last: Option<u64>,
    last_of_kernel: Option<u64>,
}

impl Needed {
    /// For a selection of events within a time.
    pub fn new(window: Window) -> Needed {
        Needed { window, ..Needed::default() }
    }

    /// Whether it matters if an event meets the conditions of the selection at another time than the
    /// selected one.
    pub fn reads(view: &EventView<'_>) -> bool {
        match view.kernel_id() {
            Some(hook_id) => {
                hook_id >> 8 == FILE_IO
                    || matches!(
                        hook_id,
                        hook_id::PAGE_FAULT_VIRTUAL_ALLOC
                            | hook_id::PAGE_FAULT_VIRTUAL_FREE
                            | hook_id::PAGE_FAULT_HARD_FAULT
                    )
            }
            None => is_of_runtime(view),
        }
    }

    /// Observes the next event. `need` receives events that are needed: this one, or earlier ones, some
    /// of them more than once.
    pub fn observe(&mut self, view: &EventView<'_>, number: u64, choice: Choice, mut need: impl FnMut(Need)) {
        let event = Numbered { number, time: view.time(), choice };
        let this = |with_stack| Need { number, with_stack };
        if self.last.replace(number).is_none() {
            need(this(false));
        }
        let Some(hook_id) = view.kernel_id() else {
            // These join over any time, and are few.
            if is_of_runtime(view) {
                need(this(choice != Choice::No));
            }
            return;
        };
        self.last_of_kernel = Some(number);
        if self.kinds.insert(hook_id) {
            need(this(false));
        }
        let is_after = self.window.to.is_some_and(|to| event.time >= to);
        match hook_id {
            hook_id::PERF_INFO_SAMPLED_PROFILE | hook_id::PERF_INFO_SAMPLED_PROFILE_NMI => {
                self.sample(view, event, need);
            }
            hook_id::THREAD_C_SWITCH => self.switch(view, event, need),
            hook_id::FILE_IO_OPERATION_END => self.file_ends(view, event, need),
            id if id >> 8 == FILE_IO && is_file_operation(id) => {
                self.file_begins(view, event, need);
            }
            // What is committed at the end of the time depends on everything before it.
            hook_id::PAGE_FAULT_VIRTUAL_ALLOC | hook_id::PAGE_FAULT_VIRTUAL_FREE if !is_after => {
                need(this(choice == Choice::AtOtherTime));
            }
            // It states when it began.
            hook_id::PAGE_FAULT_HARD_FAULT if is_after && choice == Choice::AtOtherTime => {
                let began = number_of(view, "InitialTime");
                if began.is_some_and(|began| self.window.to.is_some_and(|to| began < to)) {
                    need(this(true));
                }
            }
            _ => {}
        }
    }

    /// Ends the trace.
    pub fn finish(self, mut need: impl FnMut(Need)) {
        let samples = self.samples.values().map(|sample| sample.number);
        samples
            .chain(self.last)
            .chain(self.last_of_kernel)
            .for_each(|number| need(Need { number, with_stack: false }));
    }

    /// A sample stands for the time since the previous one of its processor. The first and the last one
    /// of a processor bound the time in which samples were taken.
    fn sample(&mut self, view: &EventView<'_>, event: Numbered, mut need: impl FnMut(Need)) {
        let processor = (view.event().session_number(), view.processor());
        let needed = match self.samples.insert(processor, event) {
            None => Some(event),
            Some(previous) => Some(previous).filter(|_| event.choice == Choice::Selected),
        };
        needed.into_iter().for_each(|of| need(Need { number: of.number, with_stack: false }));
    }

    /// The thread that runs when the selected time begins is that of the switch before it, and the one
    /// that runs when it ends leaves with the switch after it.
    fn switch(&mut self, view: &EventView<'_>, event: Numbered, mut need: impl FnMut(Need)) {
        let Window { from, to } = self.window;
        let processor = (view.event().session_number(), view.processor());
        let before = self.switches.entry(processor).or_insert(Some(event));
        let mut switch = |of: Numbered| need(Need { number: of.number, with_stack: false });
        if from.is_some_and(|from| event.time < from) {
            *before = before.map(|_| event);
        } else if to.is_some_and(|to| event.time >= to) {
            if let Some(before) = before.take() {
                switch(before);
                switch(event);
            }
        } else if let Some(before) = before {
            switch(*before);
        }
    }

    fn file_begins(&mut self, view: &EventView<'_>, event: Numbered, mut need: impl FnMut(Need)) {
        let Some(packet) = number(view, "IrpPtr") else { return };
        if self.packets.len() >= PACKETS_MAX {
            self.packets.clear();
        }
        let replaced = self.packets.insert(packet, Operation::Begun(event));
        // A selected operation without an end must not get the end of this one.
        if let Some(Operation::Begun(Numbered { choice: Choice::Selected, .. })) = replaced {
            need(Need { number: event.number, with_stack: false });
        }
    }

    fn file_ends(&mut self, view: &EventView<'_>, event: Numbered, mut need: impl FnMut(Need)) {
        let Some(packet) = number(view, "IrpPtr") else { return };
        let mut both = |other: u64, with_stack| {
            need(Need { number: other, with_stack });
            need(Need { number: event.number, with_stack: false });
        };
        match self.packets.insert(packet, Operation::Ended(event.number)) {
            Some(Operation::Begun(begun)) => match begun.choice {
                Choice::Selected => both(begun.number, true),
                Choice::AtOtherTime if self.window.overlap(begun.time, event.time) > 0 => {
                    both(begun.number, true);
                }
                _ if event.choice == Choice::Selected => both(begun.number, false),
                _ => {}
            },
            // An end without a beginning must not get an earlier one.
            Some(Operation::Ended(earlier)) if event.choice == Choice::Selected => both(earlier, false),
            _ => {}
        }
    }
}

/// The group of events about files.
const FILE_IO: u16 = 0x04;

/// A raw time in the payload. Those of other sessions have other clocks, and are not needed exactly.
fn number_of(view: &EventView<'_>, name: &str) -> Option<TraceTime> {
    let (_, value) = view.field(name)?;
    match value {
        stackhound_schema::Value::RawTime(RawTime(time)) => Some(TraceTime(time)),
        value => value.as_i64().map(TraceTime),
    }
}
