//! What a correct reader must find in a recording.

use std::collections::BTreeMap;

use stackhound_types::{Address, Pid, RawTime, Tid};

use crate::event::EventKind;
use crate::image::Image;

/// What a correct reader must find in a recording, and what was lost from it on purpose.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Truth {
    /// Records of each kind: the logfile header, stack records and all others.
    pub events: BTreeMap<EventKind, u64>,
    /// Bytes of the file.
    pub bytes: u64,
    /// How stacks are written.
    pub stacks: StackRecords,
    /// How much of their stacks events get.
    pub states: States,
    /// What is missing.
    pub lost: Lost,
    /// All images; processes name theirs by index.
    pub images: Vec<Image>,
    /// Indexes of the kernel's images.
    pub kernel_images: Vec<usize>,
    /// All processes, in the order in which they were started. The first is Idle, with one thread for each processor, all of
    /// which have the id 0.
    pub processes: Vec<Process>,
    /// The events of the attacks, in the order of time.
    pub attacks: Vec<Attack>,
}

/// How many stacks a recording has, by the way in which they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackRecords {
    /// Parts with their frames.
    pub inline: u64,
    /// Parts by key.
    pub keyed: u64,
    /// What keys stand for.
    pub definitions: u64,
    /// Stacks inside events, user halves left out.
    pub extended: u64,
    /// Events that are nothing but the user half of an earlier one's stack.
    pub extended_parts: u64,
    /// Parts whose event is not in the file.
    pub orphaned: u64,
}

/// How many of the events with stacks have how much of them. All other events have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct States {
    /// The whole stack.
    pub complete: u64,
    /// The kernel part; there never was a user part.
    pub kernel_only: u64,
    /// Parts were lost. A reader finds what is left of the stack, but cannot know that it is not all.
    pub damaged: u64,
    /// All parts were lost.
    pub lost: u64,
}

/// What is missing from the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Buffers.
    pub buffers: u64,
    /// Records in them.
    pub records: u64,
}

/// A process and all that belongs to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// The process that started it.
    pub parent: Pid,
    /// The terminal session; `None` for Idle and System.
    pub session: Option<u32>,
    /// The name of its program, without the path.
    pub name: String,
    /// How it was started.
    pub command_line: String,
    /// Whether it is a 32-bit process.
    pub is_wow64: bool,
    /// When it was started; `None` if before the recording.
    pub started: Option<RawTime>,
    /// When it ended; `None` if not in the recording.
    pub ended: Option<RawTime>,
    /// Indexes of its images, the program first.
    pub images: Vec<usize>,
    /// Its threads, in the order in which they were started.
    pub threads: Vec<Thread>,
    /// Private memory with code in it.
    pub code_regions: Vec<Region>,
}

impl Process {
    /// What is known of the processes that have no program: Idle, with process 0, and System.
    pub fn of_kernel(pid: Pid, name: &str) -> Process {
        Process {
            pid,
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
    /// Its id.
    pub tid: Tid,
    /// Where it started.
    pub start_address: Address,
    /// When it was started; `None` if before the recording.
    pub started: Option<RawTime>,
    /// When it ended; `None` if not in the recording.
    pub ended: Option<RawTime>,
}

/// A range of private memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first byte.
    pub base: Address,
    /// Bytes.
    pub size: u64,
}

impl Region {
    /// Whether an address lies inside.
    pub fn contains(&self, address: Address) -> bool {
        address.0.checked_sub(self.base.0).is_some_and(|offset| offset < self.size)
    }
}

/// An event that shows an attack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attack {
    /// What it shows.
    pub kind: AttackKind,
    /// The kind of event.
    pub event: EventKind,
    /// The event's time.
    pub time: RawTime,
    /// The process that acts.
    pub pid: Pid,
    /// The thread that acts.
    pub tid: Tid,
    /// The whole stack of the event, innermost first.
    pub frames: Vec<Address>,
}

/// What an attack is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttackKind {
    /// A system call from the program's own code: the innermost user frame is not in `ntdll.dll`.
    DirectSyscall,
    /// A system call through the end of another system call's stub: the innermost user frame is in `ntdll.dll`, its
    /// caller in private memory, and the routine that runs is not the stub's.
    IndirectSyscall,
    /// The start of a thread whose start address lies in private memory. The thread that acts is the creator.
    UnbackedThreadStart,
    /// A thread that was started so acts: its outermost own frames lie in private memory.
    UnbackedThread,
    /// A system call through the end of the right stub, to which a stub of the program's own has jumped: the call before the
    /// program's innermost frame leads to that, and not to `ntdll.dll`.
    OwnStub,
    /// A system call by an instruction of `ntdll.dll` that belongs to no stub, to which the program has jumped.
    StraySyscall,
}

/// An event with a stack, and what a correct reader makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventStack<'a> {
    /// The kind of event.
    pub event: EventKind,
    /// The event's time. No processor has two events at one time.
    pub time: RawTime,
    /// The processor that logged it.
    pub processor: u16,
    /// The process that the stack is of.
    pub pid: Pid,
    /// The thread that the stack is of.
    pub tid: Tid,
    /// How much of the stack is in the file.
    pub state: State,
    /// What of the stack is in the file, innermost first.
    pub frames: &'a [Address],
}

/// Something that a processor or a thread did, and the event that was logged of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// The event's time. No processor has two events at one time.
    pub time: RawTime,
    /// The processor that logged it.
    pub processor: u16,
    /// Whether the event is in the file.
    pub kept: bool,
    /// What was done.
    pub what: GroundTruth,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroundTruth {
    /// The processor goes from one thread to another; the idle threads are 0.
    Switch {
        /// Who ran up to here.
        old: Tid,
        /// Whether it will never run again.
        old_ends: bool,
        /// Who runs from here on.
        new: Tid,
    },
    /// A thread enters the kernel by a system call.
    Enter {
        /// The thread.
        tid: Tid,
        /// The kernel's routine.
        routine: Address,
    },
    /// A thread returns from the system call that it entered last and has not returned from.
    Exit {
        /// The thread.
        tid: Tid,
    },
    /// An interrupt service routine or a deferred call has run.
    Interrupt {
        /// Since when.
        since: RawTime,
        /// The routine.
        routine: Address,
        /// Whether it was a deferred call.
        is_deferred: bool,
    },
}

/// A context switch, with the kernel parts of the stacks that both threads have at that moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchTruth {
    /// The event's time. No processor has two events at one time.
    pub time: RawTime,
    /// The processor that switches.
    pub processor: u16,
    /// Whether the event is in the file.
    pub kept: bool,
    /// Who ran up to here; the idle threads are 0.
    pub old: Tid,
    /// Why it waits from here on, as Windows numbers reasons; `None` if it does not wait.
    pub old_waits: Option<u8>,
    /// The kernel part of its stack, innermost first. Empty for idle threads.
    pub old_kernel: Vec<Address>,
    /// Who runs from here on.
    pub new: Tid,
    /// The kernel part of its stack, innermost first. Empty for idle threads.
    pub new_kernel: Vec<Address>,
    /// As much of that as is in the file.
    pub recorded: Vec<Address>,
}

/// How much of an event's stack is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All.
    Complete,
    /// The kernel part; there never was a user part.
    KernelOnly,
    /// A part; another was lost.
    Damaged,
    /// Nothing; what there was is lost.
    Lost,
}

impl Truth {
    /// Records in the file, logfile header included.
    pub fn records(&self) -> u64 {
        self.events.values().sum()
    }

    /// Records with this name.
    pub fn count(&self, name: &str) -> u64 {
        self.events.iter().filter(|(kind, _)| kind.name() == name).map(|(_, count)| count).sum()
    }

    /// The processes of a program, by the program's name.
    pub fn processes_named<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t Process> {
        self.processes.iter().filter(move |process| process.name == name)
    }

    /// The image that holds an address in a process, loaded or not at the time.
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
