//! Which Windows service each thread worked for.
//!
//! A process such as `svchost.exe` can run several services. The events `SystemConfig/Services` list
//! them with their processes and tags; the events of threads state the tag of each thread. A thread
//! without a tag belongs to the service of its process, if that is the only one.
//!
//! Times are not divided: a thread whose tag changes belongs to several services.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::ProfileBuilder;
use stackhound_schema::kernel::hook_id;
use stackhound_system as system;
use stackhound_types::Tid;

use crate::fields::{number, pid, tid};

/// Maximum number of services. Windows has a few hundred.
const SERVICES_MAX: usize = 1 << 14;

/// The tag of a thread: its service, within the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    One(u64),
    Several,
}

/// The services of a capture so far.
#[derive(Debug, Default)]
pub struct Services {
    /// By process id: tags and names.
    listed: FxHashMap<u32, Vec<(u64, String)>>,
    count: usize,
    tags: FxHashMap<system::ThreadId, Tag>,
}

impl Services {
    /// Observes the next event.
    #[inline]
    pub fn observe(&mut self, view: &EventView<'_>) {
        match view.kernel_id() {
            Some(hook_id::SYSTEM_CONFIG_SERVICES) => self.list(view),
            Some(hook_id::THREAD_START | hook_id::THREAD_DC_START | hook_id::THREAD_DC_END) => {
                self.tag(view, tid(view, "TThreadId"), "SubProcessTag");
            }
            Some(hook_id::THREAD_SUB_PROCESS_TAG_CHANGED) => {
                self.tag(view, view.tid(), "OldTag");
                self.tag(view, view.tid(), "NewTag");
            }
            _ => {}
        }
    }

    /// A service that does not run has no process.
    fn list(&mut self, view: &EventView<'_>) {
        let Some(pid) = pid(view, "ProcessId").filter(|pid| pid.0 != 0) else { return };
        let Some((field, name)) = view.field("ServiceName") else { return };
        let name = field.render(name).to_string();
        let tag = number(view, "SubProcessTag").unwrap_or(0);
        let services = self.listed.entry(pid.0).or_default();
        // Several sessions list the same services, and one session at its start and at its end.
        let is_known = services.iter().any(|(known, other)| (*known, &**other) == (tag, &*name));
        if !is_known && self.count < SERVICES_MAX {
            self.count += 1;
            services.push((tag, name));
        }
    }

    fn tag(&mut self, view: &EventView<'_>, tid: Option<Tid>, field: &str) {
        let thread = tid.and_then(|tid| view.trace_state().system().thread_of_event(tid, view.time()));
        let (Some(thread), Some(tag)) = (thread, number(view, field).filter(|&tag| tag != 0)) else { return };
        let known = self.tags.entry(thread.id()).or_insert(Tag::One(tag));
        if *known != Tag::One(tag) {
            *known = Tag::Several;
        }
    }

    /// Names the services of threads, if services were listed.
    pub fn name<'t>(
        &self,
        threads: impl Iterator<Item = (Option<system::ThreadId>, &'t stackhound_profile::ThreadId)>,
        builder: &mut ProfileBuilder,
    ) {
        if self.listed.is_empty() {
            return;
        }
        builder.list_services();
        for (known, &thread) in threads {
            let process = builder.process_of(thread);
            let Some(services) = builder.pid(process).and_then(|pid| self.listed.get(&pid)) else { continue };
            let tag = known.and_then(|known| self.tags.get(&known));
            let tagged = match tag {
                Some(Tag::One(tag)) => services.iter().find(|(known, _)| known == tag),
                _ => None,
            };
            let name = match (tagged, tag, &**services) {
                (Some((_, name)), ..) => name,
                (None, Some(Tag::Several), _) => "several services",
                (None, _, [(_, name)]) => name,
                (None, ..) => "unknown service",
            };
            builder.set_service(thread, name);
        }
    }
}
