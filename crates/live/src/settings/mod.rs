//! Descriptions of sessions and providers: the events that a live session records, in numbers that
//! ETW accepts.
//!
//! These types and their tests are the same on every system. On Windows, [`crate::LiveSession`]
//! starts the sessions that are described here. This module handles the settings and limits of ETW.
//! It does not start sessions or use events.

mod buffers;
mod etw_filter;
mod kernel;
mod preset;
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
pub use preset::Preset;
pub use provider::{EnableParameters, EnableProperties, ProviderSettings};

/// The name of the kernel session that every Windows has (`KERNEL_LOGGER_NAME`).
pub const NT_KERNEL_LOGGER: &str = "NT Kernel Logger";

/// `SystemTraceControlGuid`, which is used to start the NT Kernel Logger.
const SYSTEM_TRACE_CONTROL: Guid =
    Guid::new(0x9e81_4aad, 0x3204, 0x11d2, [0x9a, 0x82, 0x00, 0x60, 0x08, 0xa8, 0x69, 0x39]);

/// Names have at most 1,024 characters, including the terminating zero.
const NAME_MAX: usize = 1023;
/// The limit of `TraceStackTracingInfo`.
const STACKS_MAX: usize = 256;
/// In 100 ns. `xperf` documents the lower limit; kernels accept the upper limit.
const SAMPLE_INTERVAL: std::ops::RangeInclusive<u128> = 1_221..=10_000_000;

// Logging modes: Microsoft's page "Logging Mode Constants".
const FILE_SEQUENTIAL: u32 = 0x0000_0001;
pub(crate) const REAL_TIME: u32 = 0x0000_0100;
const SYSTEM_LOGGER: u32 = 0x0200_0000;
/// Without this mode, an event that one session has no buffer for is not delivered to any other
/// session either.
const INDEPENDENT_SESSION: u32 = 0x0800_0000;
const NO_PER_PROCESSOR: u32 = 0x1000_0000;

/// The clock of time stamps (`Wnode.ClientContext`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SessionClock {
    /// The performance counter. It has a high resolution, and is the only clock by which stacks and
    /// events of several sessions can be joined.
    #[default]
    Qpc,
    /// The system time, which has the resolution of the clock interrupt.
    SystemTime,
    /// The cycle counter of the processor. It may differ between processors.
    CpuCycle,
}

/// The behavior if a session of this name is running.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum IfExists {
    /// Return an error.
    #[default]
    Fail,
    /// Stop it, even if another program started it, and start this session.
    Replace,
    /// Receive its events, enable the providers in it, and leave it running at the end.
    Attach,
}

/// How Windows delivers events.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Delivery {
    /// Event by event. Every Windows supports this.
    #[default]
    Events,
    /// Whole buffers, as in trace files, if the system supports it (Windows 11, Windows Server
    /// 2022); otherwise event by event. Never run on Windows.
    WholeBuffers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    User,
    Kernel,
    NtKernelLogger,
}

/// The description of a live session.
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

/// The arguments of `StartTraceW` and `TraceSetInformation`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionNumbers {
    /// `Wnode.Guid`. Zero means a new GUID.
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
    /// `FlushTimer`: seconds, or milliseconds if the mode specifies them.
    pub flush_timer: u32,
    /// `EnableFlags`.
    pub enable_flags: u32,
    /// Group masks to be set in this order when the session runs. The last one is set after the
    /// stacks.
    pub group_masks: Vec<[u32; 8]>,
    /// `CLASSIC_EVENT_ID`s of events with stacks.
    pub stacks: Vec<[u8; 24]>,
    /// The sampling interval in 100 ns, for the whole machine.
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

    /// A session for user-mode providers and providers with manifests. An empty name is replaced
    /// with a unique one that contains the process id.
    pub fn user(name: impl Into<String>) -> Session {
        Session::new(named(name.into()), Kind::User, KernelGroups::NONE)
    }

    /// A session for kernel events, and providers as well. An empty name is replaced with a unique
    /// one. Needs Windows 8; a system has at most eight such sessions.
    pub fn kernel(name: impl Into<String>, groups: KernelGroups) -> Session {
        Session::new(named(name.into()), Kind::Kernel, groups)
    }

    /// The kernel session that every Windows has. Starting it can take it from another program.
    pub fn nt_kernel_logger(groups: KernelGroups) -> Session {
        Session::new(NT_KERNEL_LOGGER.into(), Kind::NtKernelLogger, groups)
    }

    /// [`Preset::Syscalls`]: each system call with its stack at the entry, and processes, threads and
    /// images to identify the caller.
    pub fn syscalls(name: impl Into<String>) -> Session {
        Preset::Syscalls.session(name)
    }

    /// [`Preset::Switches`]: context switches with stacks, threads that become ready, and processes,
    /// threads and images to identify them.
    pub fn switches(name: impl Into<String>) -> Session {
        Preset::Switches.session(name)
    }

    /// [`Preset::Enrichment`]: processes, threads, images, registry, files and memory, with stacks of
    /// the enriched events. Names of open files and keys are logged at the start.
    pub fn enrichment(name: impl Into<String>) -> Session {
        Preset::Enrichment.session(name)
    }

    /// Sets the number, size and flush time of the buffers.
    pub fn buffers(self, buffers: Buffers) -> Session {
        Session { buffers, ..self }
    }

    /// The buffers.
    pub fn buffered(&self) -> Buffers {
        self.buffers
    }

    /// Sets the clock of time stamps.
    pub fn clock(self, clock: SessionClock) -> Session {
        Session { clock, ..self }
    }

    /// Sets the behavior if a session of this name is running.
    pub fn if_exists(self, if_exists: IfExists) -> Session {
        Session { if_exists, ..self }
    }

    /// Adds groups of kernel events.
    pub fn kernel_groups(self, groups: KernelGroups) -> Session {
        Session { groups: self.groups | groups, ..self }
    }

    /// Requests stacks for these kernel events. Further calls add events. The groups of the events
    /// must be enabled, and `SeSystemProfilePrivilege` is enabled for the process.
    pub fn kernel_stacks(mut self, events: impl IntoIterator<Item = ClassicEvent>) -> Session {
        for event in events {
            if !self.stacks.contains(&event) {
                self.stacks.push(event);
            }
        }
        self
    }

    /// Sets the sampling interval of a processor, for [`KernelGroups::PROFILE`]. It applies to the
    /// whole machine.
    pub fn sample_every(self, interval: Duration) -> Session {
        Session { sample_every: Some(interval), ..self }
    }

    /// Requests the names of open files and registry keys at the start, instead of only at the end.
    /// Undocumented: the groups are disabled and enabled again when the session runs, which makes
    /// the kernel log the names.
    pub fn names_at_start(self) -> Session {
        Session { names_at_start: true, ..self }
    }

    /// Writes the events to this file and delivers none: see [`crate::LiveSession::record`].
    /// Windows can do both, but then it writes all buffers once a second, however empty they are.
    pub fn to_file(self, etl: impl AsRef<Path>) -> Session {
        Session { file: Some(etl.as_ref().to_path_buf()), ..self }
    }

    /// Sets how Windows delivers events.
    pub fn delivery(self, delivery: Delivery) -> Session {
        Session { delivery, ..self }
    }

    /// The name, which may be a generated one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The behavior if a session of this name is running.
    pub fn existing(&self) -> IfExists {
        self.if_exists
    }

    /// The file that the session writes instead of delivering events.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// How Windows delivers events.
    pub fn delivered(&self) -> Delivery {
        self.delivery
    }

    /// Whether the session has kernel events.
    pub fn is_kernel(&self) -> bool {
        self.kind != Kind::User
    }

    /// The session as Windows accepts it.
    ///
    /// # Errors
    /// Names, stacks or sampling intervals that Windows would refuse, and settings of kernel
    /// sessions in other sessions.
    pub fn numbers(&self) -> Result<SessionNumbers, Error> {
        let length = self.name.encode_utf16().count();
        if length == 0 || length > NAME_MAX || self.name.contains('\0') {
            return Err(Error::Name(self.name.clone()));
        }
        if self.stacks.len() > STACKS_MAX {
            return Err(Error::TooManyStacks(self.stacks.len()));
        }
        if self.kind == Kind::User {
            let kernel_settings = [
                (self.groups != KernelGroups::NONE, "kernel groups"),
                (!self.stacks.is_empty(), "stacks of kernel events"),
                (self.sample_every.is_some(), "samples"),
                (self.names_at_start, "names of files and keys"),
            ];
            if let Some((_, name)) = kernel_settings.iter().find(|(is_set, _)| *is_set) {
                return Err(Error::NoKernelSession(name));
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
        // A session that is started with flags has events before their stacks can be requested.
        let (enable_flags, group_masks) = match self.kind {
            Kind::User => (0, vec![]),
            _ if self.names_at_start => (self.groups.enable_flags(), vec![[0; 8], all]),
            Kind::Kernel => (0, vec![all]),
            // Also works before Windows 8, where groups cannot be set later.
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

/// The prefix of generated names. The process id follows it. It is used to find sessions whose
/// process has ended.
const NAME_PREFIX: &str = "Stackhound-";

/// The given name, or a generated one if it is empty.
fn named(name: String) -> String {
    if !name.is_empty() {
        return name;
    }
    format!("{NAME_PREFIX}{}-{:08x}", std::process::id(), random() as u32)
}

/// The id of the process that generated the name of a session; `None` if the name was given.
#[cfg_attr(
    not(any(all(windows, feature = "windows"), test)),
    expect(dead_code, reason = "only Windows has sessions")
)]
pub(crate) fn process_of(name: &str) -> Option<u32> {
    name.strip_prefix(NAME_PREFIX)?.split_once('-')?.0.parse().ok()
}

/// A new random GUID (RFC 9562, version 4), by which a session is recognized.
#[cfg_attr(
    not(any(all(windows, feature = "windows"), test)),
    expect(dead_code, reason = "only Windows starts sessions")
)]
pub(crate) fn fresh_guid() -> Guid {
    let [mut bytes, more] = [random().to_le_bytes(), random().to_le_bytes()];
    bytes[7] = bytes[7] & 0x0F | 0x40;
    let mut guid = [0; 16];
    guid[..8].copy_from_slice(&bytes);
    guid[8..].copy_from_slice(&more);
    guid[8] = guid[8] & 0x3F | 0x80;
    Guid(guid)
}

/// The standard library seeds each `RandomState` differently, from the random source of the system.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
