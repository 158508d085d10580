//! System calls: their numbers, durations and failures, by service.
//!
//! The pipeline joins the entry of a call with its exit, and says why it cannot. A call counts where
//! it is entered; a call without a known end has no duration.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::Full;
use stackhound_schema::kernel::hook_id;
use stackhound_system::ValidityId;
use stackhound_types::Address;

use super::{Column, Figures, Key, Label, MAX, Measure, Metric, Observations, count, ticks};

const CALLS: usize = 1;
const FAILED: usize = 2;
const COMPLETED: usize = 3;

pub(super) const METRIC: Metric = Metric {
    name: "syscall",
    columns: COLUMNS,
    dimensions: &["service"],
    start: || Box::new(SystemCalls::default()),
};

const COLUMNS: &[Column] = &[
    ticks("duration", 0),
    count("calls", CALLS),
    count("completed", COMPLETED),
    count("failed", FAILED),
    ticks("max", MAX),
];

/// Maximum number of services. Windows has about two thousand.
const SERVICES_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
struct SystemCalls {
    /// By routine, with the state of the kernel's modules.
    services: FxHashMap<(Option<Address>, ValidityId), Label>,
}

impl SystemCalls {
    fn service(&mut self, view: &EventView<'_>, routine: Option<Address>, out: &mut Observations) -> Label {
        let system = view.trace_state().system();
        let key = (routine, system.validity_id(None, view.time()));
        if let Some(&label) = self.services.get(&key) {
            return label;
        }
        let label = match (view.service(), routine) {
            (Some(name), _) => out.label(&name),
            (None, Some(routine)) => match system.kernel_module_at(routine, view.time()) {
                Some((module, rva)) => out.label(&format!("{}+{rva:#x}", module.file_name())),
                None => out.label(&format!("{:#x}", routine.0)),
            },
            (None, None) => out.label("unknown service"),
        };
        if self.services.len() >= SERVICES_MAX {
            self.services.clear();
        }
        self.services.insert(key, label);
        label
    }
}

impl Measure for SystemCalls {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        use stackhound_frames::CallEnd;
        let is_entry = match view.kernel_id() {
            Some(hook_id::PERF_INFO_SYS_CALL_ENTER) => true,
            Some(hook_id::PERF_INFO_SYS_CALL_EXIT) => false,
            _ => return Ok(()),
        };
        if out.is_repeated(view) {
            return Ok(());
        }
        out.events += 1;
        let Some(outcome) = view.call() else { return Ok(()) };
        let is_in_window = out.window.contains(view.time());
        if !is_entry {
            if matches!(outcome.end, CallEnd::NotEntered) && is_in_window && wanted() {
                out.remain("exits without a known entry", 0);
            }
            return Ok(());
        }
        let mut figures = Figures::default();
        match outcome.end {
            CallEnd::Completed { status, from, until, .. } => {
                figures = Figures::lasting(out.window.overlap(from, until));
                if is_in_window {
                    // NT_ERROR: severity 3.
                    figures = figures.with(COMPLETED, 1).with(FAILED, (status >> 30 == 3).into());
                }
            }
            _ if !is_in_window => return Ok(()),
            _ => {}
        }
        figures = figures.with(CALLS, is_in_window.into());
        if figures == Figures::default() || !wanted() {
            return Ok(());
        }
        match outcome.end {
            CallEnd::Completed { .. } | CallEnd::NotEntered => {}
            CallEnd::Late => out.remain("calls that took longer than events are held back", 0),
            CallEnd::ThreadEnded => out.remain("calls in which the thread ended", 0),
            CallEnd::NotReturned => out.remain("calls of services that do not return", 0),
            CallEnd::Unfinished => out.remain("calls that were not over at the end", 0),
            CallEnd::Lost => out.remain("calls with lost records", 0),
            CallEnd::UnknownThread => out.remain("calls whose exit no context switch shows", 0),
            CallEnd::Unconfirmed => out.remain("calls whose exit can belong to another one", 0),
        }
        let service = self.service(view, outcome.routine, out);
        let (thread, stack) = out.actor(view)?;
        out.add(Key { thread, stack, labels: [service, service] }, figures);
        Ok(())
    }
}
