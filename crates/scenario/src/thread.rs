//! Threads: what they are about to do, and the stacks that they have while they do it.

use std::collections::VecDeque;

use stackhound_types::{Address, Tid};

use crate::calls::{Code, Way};
use crate::frames::Frames;
use crate::image::{ImageIndex, SystemImage};
use crate::machine::{Machine, ProcessIndex, Role};
use crate::payload::{Create, OpenFile, Transfer};
use crate::provider::ProviderEvent;
use crate::site::{self, Call, Site};
use crate::stacks::Pending;
use crate::truth::{AttackKind, Region};

/// Number of a thread of the machine.
pub(crate) type ThreadIndex = usize;

/// One step of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Runs in user mode for so many ticks.
    Compute(u32),
    /// Enters the kernel by a system call.
    Enter(&'static Call),
    /// A window procedure, which the kernel called back, enters the kernel once more.
    EnterFromCallback(&'static Call),
    /// Returns to the window procedure.
    ReturnToCallback,
    /// Enters the kernel by a page fault.
    Fault,
    /// Leaves the kernel.
    Leave,
    /// Something that the kernel logs.
    Log(Occurrence),
    /// Leaves the processor for so many ticks, unless it is woken before.
    Wait(Wake, u32),
    /// Wakes a thread that waits for it.
    Signal,
    /// Creates a process.
    Spawn(Role),
    /// Creates a thread in a process.
    StartThread(ProcessIndex, Start),
    /// Allocates private memory for code in a process.
    AllocateCode(ProcessIndex, Region),
    /// From here on system calls are made so.
    CallAs(Caller),
    /// From here on all events show an attack.
    Attack(AttackKind),
    /// All of the attack was seen at least once.
    AttackEnds,
    /// Ends.
    ExitThread,
    /// Ends with its process, whose only thread it is.
    ExitProcess,
}

/// What the kernel logs on the way through a system call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Occurrence {
    FileCreate(u64, OpenFile, Create),
    FileRead(u64, OpenFile, u32),
    FileWrite(u64, OpenFile, u32),
    FileCleanup(u64, OpenFile),
    FileClose(u64, OpenFile),
    FileOperationEnd(u64, u32),
    FileName(u32),
    FileNameDelete(u32),
    DiskReadInit(u64),
    DiskWriteInit(u64),
    HardFault(Transfer),
    RegistryCreate(u32),
    RegistryOpen(u32),
    RegistryQueryValue(u32),
    RegistrySetValue(u32),
    RegistryClose(u32),
    /// A key was opened; logged if it had no control block.
    KeyControlBlock(u32),
    /// A key's control block is not needed by this thread; logged if it is by no other.
    KeyControlBlockDelete(u32),
    VirtualAlloc(u64),
    VirtualFree,
    ImageLoad(ImageIndex),
    ImageUnload(ImageIndex),
    TcpSend(u32),
    Provider(ProviderEvent),
}

/// What ends a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Wake {
    Timer,
    Disk(Transfer),
    /// A packet of so many bytes.
    Network(u32),
    /// Another thread, or a timer if none does.
    Signal,
}

impl Wake {
    /// Why the thread waits, as Windows numbers it.
    pub fn wait_reason(self) -> u8 {
        const EXECUTIVE: u8 = 0;
        const PAGE_IN: u8 = 2;
        const DELAY: u8 = 4;
        const USER_REQUEST: u8 = 6;
        const QUEUE: u8 = 15;
        match self {
            Wake::Timer => DELAY,
            Wake::Disk(transfer) if transfer.is_write => EXECUTIVE,
            Wake::Disk(_) => PAGE_IN,
            Wake::Network(_) => USER_REQUEST,
            Wake::Signal => QUEUE,
        }
    }
}

/// Where a thread started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// In one of the program's functions.
    Program(u64),
    /// In a function of a program without the Windows subsystem.
    Native,
    /// In the pool of threads.
    Pool,
    /// In a function of a 32-bit program.
    Wow64(u64),
    /// In one of the kernel's routines.
    System(usize),
    /// In private memory.
    Private(Region),
}

/// How system calls are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// Through the stub in the system library.
    Stub,
    /// The same, by the loader of a new process.
    Loader,
    /// By an instruction in the program itself.
    Direct,
    /// From private memory, through the end of another system call's stub.
    Indirect(Region),
    /// By a stub of the program's own that jumps to the end of the right one.
    OwnStub,
    /// By the same that jumps to a `syscall` in no stub.
    Stray,
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    User,
    Call(&'static Call),
    /// In a page fault, since that time.
    Fault(i64),
    /// In the kernel, before its first instruction in user mode.
    Startup,
    /// In the kernel for ever.
    Kernel,
}

/// Whether a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Running {
    /// On a processor.
    On(u16),
    /// Wants to.
    Ready,
    /// Waits, since that time.
    Waiting(i64),
    /// Has ended.
    Ended,
}

/// A thread while the scenario runs.
#[derive(Debug)]
pub(crate) struct LiveThread {
    pub tid: Tid,
    pub process: ProcessIndex,
    /// Its place among the process's threads.
    pub location: usize,
    pub start: Start,
    pub priority: u8,
    pub ideal_processor: u16,
    pub running: Running,
    pub mode: Mode,
    /// What it will do.
    pub script: VecDeque<Action>,
    /// The way through the program's call graph that it is on.
    pub route: u64,
    /// Its frames in the kernel below what it does there.
    pub kernel: Frames,
    /// The frames of the kernel further out and those of user mode, if a window procedure was called from the kernel.
    pub outer: Option<(Frames, Frames)>,
    /// Its frames in user mode while it is in the kernel.
    pub user: Frames,
    /// Events since it entered the kernel.
    pub pending: Vec<Pending>,
    /// The number that the user half of an earlier event will have, if one is awaited.
    pub match_id: Option<u64>,
    pub caller: Caller,
    /// What all its events show.
    pub attack: Option<AttackKind>,
    /// The switch away from it is yet to show its stack when it comes back in user mode.
    pub was_preempted: bool,
}

impl LiveThread {
    /// What its events show now.
    pub fn shown_attack(&self) -> Option<AttackKind> {
        match (self.mode, self.caller) {
            (Mode::Call(_), Caller::Direct) => Some(AttackKind::DirectSyscall),
            (Mode::Call(_), Caller::Indirect(_)) => Some(AttackKind::IndirectSyscall),
            (Mode::Call(_), Caller::OwnStub) => Some(AttackKind::OwnStub),
            (Mode::Call(_), Caller::Stray) => Some(AttackKind::StraySyscall),
            _ => self.attack,
        }
    }

    /// Its way through the call graph.
    fn way(&self, machine: &Machine) -> Way {
        let (program, library) = machine.processes[self.process].role.code();
        let program = match self.start {
            Start::Private(region) => Code::of_region(region),
            _ => machine.code(program.unwrap_or(SystemImage::Ntoskrnl)),
        };
        let library = match (self.start, library) {
            (Start::Private(_), _) | (_, None) => program,
            (_, Some(library)) => machine.code(library),
        };
        let root = match self.start {
            Start::Program(root) | Start::Wow64(root) => root,
            _ => 0,
        };
        Way { program, library, root, route: self.route, depth: Way::depth_of(self.route) }
    }

    /// Adds the frames between the thread's start and the program's own.
    fn push_root(&self, frames: &mut Frames, machine: &Machine) {
        let mut push = |sites: &[Site]| sites.iter().for_each(|&site| frames.push(machine.address(site)));
        match self.start {
            Start::Program(_) | Start::Private(_) => push(&site::THREAD_ROOT),
            Start::Native => push(&[site::NATIVE_THREAD_ROOT]),
            Start::Pool => {
                push(&site::POOL);
                push(&site::THREAD_ROOT);
            }
            Start::Wow64(_) => push(&site::WOW64_THREAD_ROOT),
            Start::System(_) => {}
        }
    }

    /// The user frames of a system call.
    pub fn call_frames(&self, machine: &Machine, call: &Call) -> Frames {
        let mut frames = Frames::EMPTY;
        let way = self.way(machine);
        let push = |frames: &mut Frames, sites: &[Site]| {
            sites.iter().for_each(|&site| frames.push(machine.address(site)));
        };
        // Different system calls are made from different places of a function.
        let n = u64::from(call.routine.1 >> 4);
        match self.caller {
            Caller::Direct => {
                // The program has a stub of its own, with the instruction in its middle.
                frames.push(way.program.call_site(u32::MAX, n, 0));
            }
            Caller::Indirect(region) => {
                push(&mut frames, &[site::NT_QUERY_INFORMATION_FILE.stub_return()]);
                frames.push(Code::of_region(region).call_site(1, n, 0));
                frames.push(Code::of_region(region).call_site(0, 0, 1));
            }
            Caller::OwnStub => push(&mut frames, &[call.stub_return(), site::OWN_CALL]),
            Caller::Stray => push(&mut frames, &[site::STRAY_RETURN, site::OWN_CALL]),
            Caller::Stub | Caller::Loader => {
                push(&mut frames, &[call.stub_return()]);
                if let Start::Wow64(_) = self.start {
                    push(&mut frames, &site::WOW64_CALL);
                    push(&mut frames, &site::WOW64_ROOT);
                    push(&mut frames, &site::WOW64_STUB);
                } else {
                    let loaded = machine.processes[self.process].role.libraries();
                    let wrappers = call.wrappers.iter().filter(|wrapper| loaded.contains(&wrapper.0));
                    wrappers.for_each(|&wrapper| frames.push(machine.address(wrapper)));
                }
            }
        }
        if call == &site::NT_WAIT_FOR_WORK {
            push(&mut frames, &[site::POOL_IDLE]);
            push(&mut frames, &site::THREAD_ROOT);
            return frames;
        }
        way.push_calls(&mut frames, n);
        self.push_root(&mut frames, machine);
        frames
    }

    /// The user frames of a call from a window procedure, which the kernel called back.
    pub fn callback_frames(&self, machine: &Machine, call: &Call) -> Frames {
        let mut frames = Frames::EMPTY;
        frames.push(machine.address(call.stub_return()));
        let loaded = machine.processes[self.process].role.libraries();
        let wrappers = call.wrappers.iter().filter(|wrapper| loaded.contains(&wrapper.0));
        wrappers.for_each(|&wrapper| frames.push(machine.address(wrapper)));
        frames.push(self.way(machine).program.call_site(1, u64::from(call.routine.1 >> 4), 0));
        site::CALLED_BACK.iter().for_each(|&site| frames.push(machine.address(site)));
        frames.extend(self.user.as_slice());
        frames
    }

    /// The user frames of the call with which a new process loads an image.
    pub fn loader_frames(&self, machine: &Machine, call: &Call) -> Frames {
        let mut frames = Frames::EMPTY;
        frames.push(machine.address(call.stub_return()));
        for &site in call.wrappers.iter().filter(|site| site.0 == SystemImage::Ntdll).chain(&site::LOADER) {
            frames.push(machine.address(site));
        }
        frames
    }

    /// The frames of a thread that is at some place in its innermost own function, such as 1 of 12.
    pub fn running_frames(&self, machine: &Machine, location: u64) -> Frames {
        let mut frames = Frames::EMPTY;
        if self.caller == Caller::Loader {
            let Site(image, rva) = site::LOADER[0];
            frames.push(machine.address(Site(image, rva + 7 * location as u32)));
            site::LOADER[1..].iter().for_each(|&site| frames.push(machine.address(site)));
            return frames;
        }
        self.way(machine).push_running(&mut frames, location);
        self.push_root(&mut frames, machine);
        frames
    }

    /// Where the thread started.
    pub fn start_address(machine: &Machine, role: Role, start: Start) -> Address {
        match start {
            Start::System(routine) => machine.address(site::SYSTEM_ROUTINES[routine]),
            Start::Pool => machine.address(site::POOL_START),
            Start::Private(region) => Code::of_region(region).function(0, 0),
            Start::Program(root) | Start::Wow64(root) => {
                let program = role.code().0.unwrap_or(SystemImage::Ntdll);
                machine.code(program).function(0, root << 32)
            }
            Start::Native => machine.code(role.code().0.unwrap_or(SystemImage::Ntdll)).function(0, 0),
        }
    }
}
