//! The ground truth about a generated trace.

use std::collections::BTreeMap;

use stackhound_types::{Address, Pid, RawTime, Tid};

use crate::event::EventKind;
use crate::image::Image;
use crate::payload::object;
use crate::problem::Cause;

/// The data that a correct reader must find in a trace, and the losses in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Truth {
    /// Number of records of each kind, including the logfile header and stack records.
    pub events: BTreeMap<EventKind, u64>,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of stack records by encoding.
    pub stacks: StackRecords,
    /// Number of events by the state of their stacks.
    pub states: States,
    /// Losses.
    pub lost: Lost,
    /// All images. Processes refer to them by index.
    pub images: Vec<Image>,
    /// Indexes of the kernel images.
    pub kernel_images: Vec<usize>,
    /// All processes, in the order of their start. The first is Idle, with one thread for each
    /// processor, all of which have the id 0.
    pub processes: Vec<Process>,
    /// The events of the attacks, in the order of time.
    pub attacks: Vec<Attack>,
    /// The cause of the problem, if the trace has one.
    pub cause: Option<Cause>,
}

/// Number of stacks in a trace, by encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackRecords {
    /// Kernel or user stacks with frames.
    pub inline: u64,
    /// Kernel or user stacks with a key.
    pub keyed: u64,
    /// Definitions of stack keys.
    pub definitions: u64,
    /// Stacks in extended data items, without separate user stacks.
    pub extended: u64,
    /// Events that contain only the user stack of an earlier event.
    pub extended_parts: u64,
    /// Kernel or user stacks whose event is not in the file.
    pub orphaned: u64,
}

/// Number of events with stacks, by the state of the stack. All other events have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// Events with complete stacks.
    pub complete: u64,
    /// Events with a kernel stack for which no user stack was logged.
    pub kernel_only: u64,
    /// Events with stacks of which a part was lost. A reader finds the remaining frames, but cannot
    /// know that others are missing.
    pub damaged: u64,
    /// Events whose whole stack was lost.
    pub lost: u64,
}

/// Losses in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Number of lost buffers.
    pub buffers: u64,
    /// Number of records in them.
    pub records: u64,
}

/// An event with the objects that it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventSubject {
    /// Time of the event. No two events of a processor have the same time.
    pub time: RawTime,
    /// Processor that logged it.
    pub processor: u16,
    /// Whether the event is in the file.
    pub kept: bool,
    /// Ids of the acting process and thread, if there is one. Not all events state them.
    pub actor: Option<(Pid, Tid)>,
    /// The object.
    pub about: About,
}

/// The object that an event is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum About {
    /// No object, or one that is not listed here.
    #[default]
    Nothing,
    /// The file with this NT path.
    File(String),
    /// A registry key by its path, and a value in it.
    Key(String, Option<String>),
    /// A process that is started, ended or opened.
    Process(Pid),
    /// A thread that is started, ended or made ready, with its process.
    Thread(Pid, Tid),
    /// The owner of memory.
    Memory(Pid),
}

/// A process with its images, threads and code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process id.
    pub pid: Pid,
    /// Address of its object in the kernel.
    pub object: u64,
    /// Id of the process that started it.
    pub parent: Pid,
    /// Terminal session; `None` for Idle and System.
    pub session: Option<u32>,
    /// File name of its program.
    pub name: String,
    /// Command line.
    pub command_line: String,
    /// Whether it is a 32-bit process.
    pub is_wow64: bool,
    /// Start time; `None` if it was started before the trace.
    pub started: Option<RawTime>,
    /// End time; `None` if it did not end during the trace.
    pub ended: Option<RawTime>,
    /// Indexes of its images, the program first.
    pub images: Vec<usize>,
    /// Its threads, in the order of their start.
    pub threads: Vec<Thread>,
    /// Private memory that contains code.
    pub code_regions: Vec<Region>,
}

impl Process {
    /// The integrity level: medium for processes of the user, otherwise system.
    pub fn integrity(&self) -> u32 {
        if self.session == Some(1) { 0x2000 } else { 0x4000 }
    }

    /// A process without a program: Idle, with process id 0, or System.
    pub fn of_kernel(pid: Pid, name: &str) -> Process {
        Process {
            pid,
            object: object::process(pid),
            parent: Pid::IDLE,
            session: None,
            name: name.to_owned(),
            command_line: String::new(),
            is_wow64: false,
            started: None,
            ended: None,
            images: Vec::new(),
            threads: Vec::new(),
            code_regions: Vec::new(),
        }
    }
}

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Thread id.
    pub tid: Tid,
    /// Start address.
    pub start_address: Address,
    /// Start time; `None` if it was started before the trace.
    pub started: Option<RawTime>,
    /// End time; `None` if it did not end during the trace.
    pub ended: Option<RawTime>,
}

/// A range of private memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Base address.
    pub base: Address,
    /// Size in bytes.
    pub size: u64,
}

impl Region {
    /// Whether the range contains an address.
    pub fn contains(&self, address: Address) -> bool {
        address.0.checked_sub(self.base.0).is_some_and(|offset| offset < self.size)
    }
}

/// An event that is part of an attack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attack {
    /// Kind of the attack.
    pub kind: AttackKind,
    /// Kind of the event.
    pub event: EventKind,
    /// Time of the event.
    pub time: RawTime,
    /// Id of the acting process.
    pub pid: Pid,
    /// Id of the acting thread.
    pub tid: Tid,
    /// The complete stack of the event, innermost frame first.
    pub frames: Vec<Address>,
}

/// The kind of an attack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttackKind {
    /// A direct system call from the program's own code: the innermost user frame is not in
    /// `ntdll.dll`.
    DirectSyscall,
    /// An indirect system call through the end of another service's stub: the innermost user frame
    /// is in `ntdll.dll`, its caller is in private memory, and the service that runs is not that of
    /// the stub.
    IndirectSyscall,
    /// The start of a thread whose start address is in private memory. The acting thread is the
    /// creator.
    UnbackedThreadStart,
    /// An event of such a thread: its outermost frames after the thread root are in private memory.
    UnbackedThread,
    /// An indirect system call through the end of the right stub, to which a private stub of the
    /// program jumps: the call at the program's innermost frame calls the private stub, not
    /// `ntdll.dll`.
    OwnStub,
    /// A system call by an instruction in `ntdll.dll` outside of the stubs, to which the program
    /// jumps.
    StraySyscall,
}

/// An event with a stack, as a correct reader must find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventStack<'a> {
    /// Kind of the event.
    pub event: EventKind,
    /// Time of the event. No two events of a processor have the same time.
    pub time: RawTime,
    /// Processor that logged it.
    pub processor: u16,
    /// Id of the process of the stack.
    pub pid: Pid,
    /// Id of the thread of the stack.
    pub tid: Tid,
    /// State of the stack in the file.
    pub state: State,
    /// The frames that are in the file, innermost first.
    pub frames: &'a [Address],
}

/// An action of a processor or a thread, and the event that was logged for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// Time of the event. No two events of a processor have the same time.
    pub time: RawTime,
    /// Processor that logged it.
    pub processor: u16,
    /// Whether the event is in the file.
    pub kept: bool,
    /// The action.
    pub action: GroundTruth,
}

/// An action of a processor or a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroundTruth {
    /// The processor switches from one thread to another. Idle threads have the id 0.
    Switch {
        /// Thread that ran before the switch.
        old: Tid,
        /// Whether it will never run again.
        old_ends: bool,
        /// Thread that runs after the switch.
        new: Tid,
    },
    /// A thread that waits is made ready to run.
    Ready {
        /// Thread id.
        tid: Tid,
        /// The thread that did it; `None` if an interrupt did.
        by: Option<Tid>,
    },
    /// A thread enters the kernel by a system call.
    Enter {
        /// Thread id.
        tid: Tid,
        /// Address of the kernel routine.
        routine: Address,
    },
    /// A thread returns from the innermost system call that it is in.
    Exit {
        /// Thread id.
        tid: Tid,
    },
    /// An interrupt service routine or a deferred procedure call has run.
    Interrupt {
        /// Start time.
        since: RawTime,
        /// Address of the routine.
        routine: Address,
        /// Whether it was a deferred procedure call.
        is_deferred: bool,
    },
    /// A transfer between disk and memory has ended.
    Disk {
        /// Start time.
        since: RawTime,
        /// Thread that requested it.
        tid: Tid,
        /// Size in bytes.
        bytes: u32,
        /// Whether memory was written to the disk.
        is_write: bool,
    },
    /// The pages of a page fault were read.
    HardFault {
        /// Time of the fault.
        since: RawTime,
        /// Thread that waited for them.
        tid: Tid,
        /// Size in bytes.
        bytes: u32,
    },
    /// An operation of a file system begins.
    FileBegin {
        /// Thread that requested it.
        tid: Tid,
        /// Number of the request.
        request: u64,
        /// Size of a transfer in bytes, otherwise 0.
        bytes: u32,
    },
    /// An operation of a file system ends.
    FileEnd {
        /// Number of the request.
        request: u64,
    },
    /// A process sends or receives.
    Network {
        /// Process id.
        pid: Pid,
        /// Size in bytes.
        bytes: u32,
        /// Whether it sends.
        is_send: bool,
    },
    /// Memory is allocated for a process.
    Allocate {
        /// Process id.
        pid: Pid,
        /// The memory.
        region: Region,
    },
    /// Memory of a process is freed.
    Free {
        /// Process id.
        pid: Pid,
        /// The memory.
        region: Region,
    },
}

/// A context switch, with the kernel stacks of both threads at that time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchTruth {
    /// Time of the event. No two events of a processor have the same time.
    pub time: RawTime,
    /// Processor that switches.
    pub processor: u16,
    /// Whether the event is in the file.
    pub kept: bool,
    /// Thread that ran before the switch; 0 for idle threads.
    pub old: Tid,
    /// Its wait reason (`KWAIT_REASON`); `None` if it does not wait.
    pub old_waits: Option<u8>,
    /// Its kernel stack, innermost frame first. Empty for idle threads.
    pub old_kernel: Vec<Address>,
    /// Thread that runs after the switch; 0 for idle threads.
    pub new: Tid,
    /// Its kernel stack, innermost frame first. Empty for idle threads.
    pub new_kernel: Vec<Address>,
    /// The frames of `new_kernel` that are in the file.
    pub recorded: Vec<Address>,
}

/// The state of an event's stack in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The stack is complete.
    Complete,
    /// The kernel stack is complete, and no user stack was logged.
    KernelOnly,
    /// A part of the stack was lost.
    Damaged,
    /// The whole stack was lost.
    Lost,
}

impl Truth {
    /// Number of records in the file, including the logfile header.
    pub fn records(&self) -> u64 {
        self.events.values().sum()
    }

    /// Number of records with this name.
    pub fn count(&self, name: &str) -> u64 {
        self.events.iter().filter(|(kind, _)| kind.name() == name).map(|(_, count)| count).sum()
    }

    /// The processes of a program, by its file name.
    pub fn processes_named<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t Process> {
        self.processes.iter().filter(move |process| process.name == name)
    }

    /// The process that has an id at a time, or had it last.
    pub fn process_at(&self, pid: Pid, time: RawTime) -> Option<&Process> {
        let holders = self.processes.iter().filter(|process| process.pid == pid);
        holders.filter(|process| process.started <= Some(time)).max_by_key(|process| process.started)
    }

    /// The thread that has an id at a time, or had it last, with its process.
    pub fn thread_at(&self, tid: Tid, time: RawTime) -> Option<(&Process, &Thread)> {
        let all =
            self.processes.iter().flat_map(|process| process.threads.iter().map(move |of| (process, of)));
        let holders = all.filter(|(_, thread)| thread.tid == tid && thread.started <= Some(time));
        holders.max_by_key(|(_, thread)| thread.started)
    }

    /// The image of a process that contains an address, regardless of the time at which it is
    /// loaded.
    pub fn image_at(&self, process: &Process, address: Address) -> Option<&Image> {
        let images = process.images.iter().chain(&self.kernel_images);
        images.map(|&index| &self.images[index]).find(|image| image.contains(address))
    }
}

impl States {
    pub(crate) fn note(&mut self, state: State) {
        match state {
            State::Complete => self.complete += 1,
            State::KernelOnly => self.kernel_only += 1,
            State::Damaged => self.damaged += 1,
            State::Lost => self.lost += 1,
        }
    }
}
