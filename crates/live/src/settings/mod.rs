//! Sessions and providers as plain data: what a live session shall record, and how, in numbers that ETW takes.
//!
//! All of it is the same on every system, and so are its tests. [`crate::LiveSession`] starts what is described here, on
//! Windows. Knows ETW's settings and limits; does not know how sessions are started, nor what becomes of events.

mod buffers;
mod etw_filter;
mod kernel;
mod provider;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stackhound_types::Guid;

use crate::Error;

pub use buffers::{Buffers, FlushTimer};
pub use etw_filter::{EtwFilter, FilterBytes};
pub use kernel::{ClassicEvent, GROUP_MASKS, GroupMask, KernelGroups, KernelProvider};
pub use provider::{EnableParameters, EnableProperties, ProviderSettings};

/// The name of the one kernel session that every Windows has (`KERNEL_LOGGER_NAME`).
pub const NT_KERNEL_LOGGER: &str = "NT Kernel Logger";

/// `SystemTraceControlGuid`, by which the NT Kernel Logger is started.
const SYSTEM_TRACE_CONTROL: Guid =
    Guid::new(0x9e81_4aad, 0x3204, 0x11d2, [0x9a, 0x82, 0x00, 0x60, 0x08, 0xa8, 0x69, 0x39]);

/// Names are at most 1,024 characters long, with the zero at their end.
const NAME_MAX: usize = 1023;
/// `TraceStackTracingInfo` takes no more.
const STACKS_MAX: usize = 256;
/// In 100 ns, as `xperf` documents it below and kernels accept it above.
const SAMPLE_INTERVAL: std::ops::RangeInclusive<u128> = 1_221..=10_000_000;

// Logging modes: Microsoft's page "Logging Mode Constants".
const FILE_SEQUENTIAL: u32 = 0x0000_0001;
pub(crate) const REAL_TIME: u32 = 0x0000_0100;
const SYSTEM_LOGGER: u32 = 0x0200_0000;
/// Without it, an event for which one session has no room is not given to any other session either.
const INDEPENDENT_SESSION: u32 = 0x0800_0000;
const NO_PER_PROCESSOR: u32 = 0x1000_0000;

/// Which clock stamps events (`Wnode.ClientContext`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SessionClock {
    /// The performance counter: fine, and the only one by which stacks and events of several sessions can be joined.
    #[default]
    Qpc,
    /// System time: as coarse as the clock interrupt.
    SystemTime,
    /// The processor's cycle counter, whatever that is worth between processors.
    CpuCycle,
}

/// What to do if a session of this name is running.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum IfExists {
    /// Give up.
    #[default]
    Fail,
    /// Stop it, whosever it is, and start ours.
    Replace,
    /// Take its events, enable our providers in it, and leave it running in the end.
    Attach,
}

/// How Windows hands events over.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Delivery {
    /// Event by event, as every Windows can.
    #[default]
    Events,
    /// Whole buffers, as they are in recordings, where the system can (Windows 11, 2022); else event by event. Has never met
    /// a real Windows.
    WholeBuffers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    User,
    Kernel,
    NtKernelLogger,
}

/// A live session to be: plain data.
///
/// ```
/// use stackhound_live::{Buffers, ClassicEvent, KernelGroups, Session};
///
/// let session = Session::kernel("sensor", KernelGroups::PROCESS | KernelGroups::SYSTEM_CALL)
///     .buffers(Buffers::throughput())
///     .kernel_stacks([ClassicEvent::SYSTEM_CALL_ENTER]);
/// assert_eq!(session.numbers().unwrap().group_masks, [[0x81, 0, 0x40, 0, 0, 0, 0, 0]]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    name: String,
    kind: Kind,
    buffers: Buffers,
    clock: SessionClock,
    if_exists: IfExists,
    groups: KernelGroups,
    stacks: Vec<ClassicEvent>,
    sample_every: Option<Duration>,
    names_at_start: bool,
    file: Option<PathBuf>,
    delivery: Delivery,
}

/// What `StartTraceW` and `TraceSetInformation` are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionNumbers {
    /// `Wnode.Guid`; zero stands for one of its own.
    pub guid: Guid,
    /// `Wnode.ClientContext`.
    pub clock: u32,
    /// `LogFileMode`.
    pub mode: u32,
    /// `BufferSize` in KiB.
    pub buffer_size: u32,
    /// `MinimumBuffers`.
    pub minimum_buffers: u32,
    /// `MaximumBuffers`.
    pub maximum_buffers: u32,
    /// `FlushTimer`: seconds, or milliseconds if the mode says so.
    pub flush_timer: u32,
    /// `EnableFlags`.
    pub enable_flags: u32,
    /// Group masks to be set one after the other once the session runs, the last one after the stacks.
    pub group_masks: Vec<[u32; 8]>,
    /// `CLASSIC_EVENT_ID`s of events with stacks.
    pub stacks: Vec<[u8; 24]>,
    /// Time between two samples in 100 ns, for the whole machine.
    pub sample_interval: Option<u32>,
    /// Whether `SeSystemProfilePrivilege` is needed.
    pub profile_privilege: bool,
}

impl Session {
    fn new(name: String, kind: Kind, groups: KernelGroups) -> Session {
        Session {
            name,
            kind,
            buffers: Buffers::default(),
            clock: SessionClock::default(),
            if_exists: IfExists::default(),
            groups,
            stacks: Vec::new(),
            sample_every: None,
            names_at_start: false,
            file: None,
            delivery: Delivery::default(),
        }
    }

    /// A session of providers of user mode and of manifests. An empty name is replaced by one that no other session has, and
    /// that says which process it belongs to.
    pub fn user(name: impl Into<String>) -> Session {
        Session::new(named(name.into()), Kind::User, KernelGroups::NONE)
    }

    /// A session of kernel events, besides others. An empty name is replaced by one that no other session has. Needs
    /// Windows 8; a system has at most eight of them.
    pub fn kernel(name: impl Into<String>, groups: KernelGroups) -> Session {
        Session::new(named(name.into()), Kind::Kernel, groups)
    }

    /// The one kernel session that every Windows has. Whoever starts it takes it away from others.
    pub fn nt_kernel_logger(groups: KernelGroups) -> Session {
        Session::new(NT_KERNEL_LOGGER.into(), Kind::NtKernelLogger, groups)
    }

    /// For a sensor of system calls: each with its stack where it begins, and processes, threads and images to know
    /// whose it is.
    pub fn syscalls(name: impl Into<String>) -> Session {
        let groups = KernelGroups::SYSTEM_CALL
            | KernelGroups::PROCESS
            | KernelGroups::THREAD
            | KernelGroups::IMAGE_LOAD;
        Session::kernel(name, groups)
            .buffers(Buffers::syscalls())
            .kernel_stacks([ClassicEvent::SYSTEM_CALL_ENTER])
    }

    /// For the stacks with which threads wait: context switches with theirs, what makes threads ready, and processes, threads
    /// and images to know whose they are.
    pub fn switches(name: impl Into<String>) -> Session {
        let groups = KernelGroups::CONTEXT_SWITCH
            | KernelGroups::DISPATCHER
            | KernelGroups::PROCESS
            | KernelGroups::THREAD
            | KernelGroups::IMAGE_LOAD;
        Session::kernel(name, groups)
            .buffers(Buffers::syscalls())
            .kernel_stacks([ClassicEvent::named("Thread/CSwitch").expect("an event of the kernel's tables")])
    }

    /// For what is named by default (`docs/enrichment.md`): processes, threads, images, registry, files and memory, with
    /// stacks of those events that are enriched. Names of open files and keys come at the start.
    pub fn enrichment(name: impl Into<String>) -> Session {
        const STACKS: [&str; 15] = [
            "Process/Start",
            "Thread/Start",
            "Thread/End",
            "Image/Load",
            "Registry/Create",
            "Registry/Delete",
            "Registry/SetValue",
            "Registry/DeleteValue",
            "FileIo/Create",
            "FileIo/CreateNew",
            "FileIo/Delete",
            "FileIo/DeletePath",
            "FileIo/Rename",
            "FileIo/RenamePath",
            "PageFault/VirtualAlloc",
        ];
        let groups = KernelGroups::PROCESS
            | KernelGroups::THREAD
            | KernelGroups::IMAGE_LOAD
            | KernelGroups::REGISTRY
            | KernelGroups::FILE_IO
            | KernelGroups::FILE_IO_INIT
            | KernelGroups::VIRTUAL_ALLOC;
        let stacks = STACKS.map(|name| ClassicEvent::named(name).expect("an event of the kernel's tables"));
        Session::kernel(name, groups).kernel_stacks(stacks).names_at_start()
    }

    /// How many buffers, how large, how often they are handed over.
    pub fn buffers(self, buffers: Buffers) -> Session {
        Session { buffers, ..self }
    }

    /// Its buffers.
    pub fn buffered(&self) -> Buffers {
        self.buffers
    }

    /// Which clock stamps events.
    pub fn clock(self, clock: SessionClock) -> Session {
        Session { clock, ..self }
    }

    /// What to do if a session of this name is running.
    pub fn if_exists(self, if_exists: IfExists) -> Session {
        Session { if_exists, ..self }
    }

    /// These groups of kernel events too.
    pub fn kernel_groups(self, groups: KernelGroups) -> Session {
        Session { groups: self.groups | groups, ..self }
    }

    /// These kernel events come with stacks; further calls add events. The groups that the events belong to must be on,
    /// and the caller is given `SeSystemProfilePrivilege`.
    pub fn kernel_stacks(mut self, events: impl IntoIterator<Item = ClassicEvent>) -> Session {
        for event in events {
            if !self.stacks.contains(&event) {
                self.stacks.push(event);
            }
        }
        self
    }

    /// The time between two samples of a processor, for [`KernelGroups::PROFILE`]. It holds for the whole machine.
    pub fn sample_every(self, interval: Duration) -> Session {
        Session { sample_every: Some(interval), ..self }
    }

    /// Names of open files and registry keys come at the start, not only at the end. Undocumented: the groups are
    /// switched off and on again once the session runs, which makes the kernel log them.
    pub fn names_at_start(self) -> Session {
        Session { names_at_start: true, ..self }
    }

    /// Writes the events into this file and hands none over: see [`crate::LiveSession::record`]. Windows can do both at once,
    /// but then writes all buffers once a second, however little is in them.
    pub fn to_file(self, etl: impl AsRef<Path>) -> Session {
        Session { file: Some(etl.as_ref().to_path_buf()), ..self }
    }

    /// How Windows hands events over.
    pub fn delivery(self, delivery: Delivery) -> Session {
        Session { delivery, ..self }
    }

    /// The name, also a generated one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What to do if a session of this name is running.
    pub fn existing(&self) -> IfExists {
        self.if_exists
    }

    /// The file it writes instead of handing events over.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// How Windows hands events over.
    pub fn delivered(&self) -> Delivery {
        self.delivery
    }

    /// Whether it has kernel events.
    pub fn is_kernel(&self) -> bool {
        self.kind != Kind::User
    }

    /// As Windows takes it.
    ///
    /// # Errors
    /// Names, stacks or sample intervals that Windows would refuse, and what belongs to kernel sessions in others.
    pub fn numbers(&self) -> Result<SessionNumbers, Error> {
        let length = self.name.encode_utf16().count();
        if length == 0 || length > NAME_MAX || self.name.contains('\0') {
            return Err(Error::Name(self.name.clone()));
        }
        if self.stacks.len() > STACKS_MAX {
            return Err(Error::TooManyStacks(self.stacks.len()));
        }
        if self.kind == Kind::User {
            let asked = [
                (self.groups != KernelGroups::NONE, "kernel groups"),
                (!self.stacks.is_empty(), "stacks of kernel events"),
                (self.sample_every.is_some(), "samples"),
                (self.names_at_start, "names of files and keys"),
            ];
            if let Some((_, what)) = asked.iter().find(|(asked, _)| *asked) {
                return Err(Error::NoKernelSession(what));
            }
        }
        let sample_interval = self.sample_every.map(|interval| {
            let ticks = interval.as_nanos() / 100;
            let refused = || Error::SampleInterval(ticks.try_into().unwrap_or(u64::MAX));
            SAMPLE_INTERVAL.contains(&ticks).then_some(ticks as u32).ok_or_else(refused)
        });
        let (flush_timer, timer_mode) = self.buffers.flush_timer().to_numbers();
        let mode = INDEPENDENT_SESSION
            | timer_mode
            | if self.file.is_some() { FILE_SEQUENTIAL } else { REAL_TIME }
            | if self.kind == Kind::Kernel { SYSTEM_LOGGER } else { 0 }
            | if self.buffers.per_processor() { 0 } else { NO_PER_PROCESSOR };
        let all = self.groups.all_words();
        // A session that is started with flags has events before their stacks are asked for.
        let (enable_flags, group_masks) = match self.kind {
            Kind::User => (0, vec![]),
            _ if self.names_at_start => (self.groups.enable_flags(), vec![[0; 8], all]),
            Kind::Kernel => (0, vec![all]),
            // Also there before Windows 8, where groups cannot be set later.
            Kind::NtKernelLogger => {
                (self.groups.enable_flags(), self.groups.group_words().into_iter().collect())
            }
        };
        Ok(SessionNumbers {
            guid: if self.kind == Kind::NtKernelLogger { SYSTEM_TRACE_CONTROL } else { Guid::ZERO },
            clock: match self.clock {
                SessionClock::Qpc => 1,
                SessionClock::SystemTime => 2,
                SessionClock::CpuCycle => 3,
            },
            mode,
            buffer_size: self.buffers.size_kib(),
            minimum_buffers: self.buffers.minimum(),
            maximum_buffers: self.buffers.maximum(),
            flush_timer,
            enable_flags,
            group_masks,
            stacks: self.stacks.iter().map(|event| event.to_bytes()).collect(),
            sample_interval: sample_interval.transpose()?,
            profile_privilege: !self.stacks.is_empty()
                || self.sample_every.is_some()
                || self.groups.contains(KernelGroups::PROFILE),
        })
    }
}

/// How generated names begin. The number of the process follows, by which sessions are found whose process has ended.
const NAME_PREFIX: &str = "Stackhound-";

/// A name as it was given, or a generated one.
fn named(name: String) -> String {
    if !name.is_empty() {
        return name;
    }
    format!("{NAME_PREFIX}{}-{:08x}", std::process::id(), chance() as u32)
}

/// The process that generated the name of a session; `None` if the name was given.
#[cfg_attr(
    not(any(all(windows, feature = "windows"), test)),
    expect(dead_code, reason = "only Windows has sessions")
)]
pub(crate) fn process_of(name: &str) -> Option<u32> {
    name.strip_prefix(NAME_PREFIX)?.split_once('-')?.0.parse().ok()
}

/// A GUID that nobody has, by which a session is known again. Of the kind that is made by chance (RFC 9562, version 4).
#[cfg_attr(
    not(any(all(windows, feature = "windows"), test)),
    expect(dead_code, reason = "only Windows starts sessions")
)]
pub(crate) fn fresh_guid() -> Guid {
    let [mut bytes, more] = [chance().to_le_bytes(), chance().to_le_bytes()];
    bytes[7] = bytes[7] & 0x0F | 0x40;
    let mut guid = [0; 16];
    guid[..8].copy_from_slice(&bytes);
    guid[8..].copy_from_slice(&more);
    guid[8] = guid[8] & 0x3F | 0x80;
    Guid(guid)
}

/// The standard library seeds each `RandomState` differently, from the system's source of chance.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
