//! Threads, with their planned actions and their stacks.

use std::collections::VecDeque;

use stackhound_types::{Address, Tid};

use crate::calls::{CallPath, Code};
use crate::frames::Frames;
use crate::image::{ImageIndex, SystemImage};
use crate::machine::{Machine, ProcessIndex, Role};
use crate::payload::{Create, OpenFile, Transfer};
use crate::provider::ProviderEvent;
use crate::site::{self, Call, Site};
use crate::stacks::Pending;
use crate::truth::{AttackKind, Region};

/// Index of a thread in the simulation.
pub(crate) type ThreadIndex = usize;

/// One step of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Runs in user mode for a number of ticks.
    Compute(u32),
    /// Calls these functions, the innermost first, instead of those of its route.
    In(&'static [Site]),
    /// Enters the kernel by a system call.
    Enter(&'static Call),
    /// A window procedure that the kernel called enters the kernel.
    EnterFromCallback(&'static Call),
    /// Returns to the window procedure.
    ReturnToCallback,
    /// Enters the kernel by a page fault.
    Fault,
    /// Leaves the kernel.
    Leave,
    /// The kernel logs an event.
    Log(Occurrence),
    /// Waits for a number of ticks, unless it is woken earlier.
    Wait(Wake, u32),
    /// Wakes a thread that waits for a signal.
    Signal,
    /// Wakes the thread that waits for the lock that this thread holds.
    Unlock(ThreadIndex),
    /// Creates a process.
    Spawn(Role),
    /// Creates a thread in a process.
    StartThread(ProcessIndex, Start),
    /// Allocates private memory for code in a process.
    AllocateCode(ProcessIndex, Region),
    /// Calls [`site::LAYOUT`], or returns from it.
    LayOut(bool),
    /// Sets how the following system calls are made.
    CallAs(Caller),
    /// Marks all following events as part of an attack.
    Attack(AttackKind),
    /// Marks the end of the attack: each part of it occurred at least once.
    AttackEnds,
    /// Ends the thread.
    ExitThread,
    /// Ends the thread and its process. It is the only thread of the process.
    ExitProcess,
}

/// An event that the kernel logs during a system call, with its parameters.
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
    /// A key was opened. Logged if it had no control block.
    KeyControlBlock(u32),
    /// The thread no longer needs the control block of a key. Logged if no other thread needs it.
    KeyControlBlockDelete(u32),
    VirtualAlloc(u64),
    /// Memory that is never freed.
    VirtualKeep(u64),
    VirtualFree,
    ImageLoad(ImageIndex),
    ImageUnload(ImageIndex),
    TcpSend(u32),
    Provider(ProviderEvent),
}

/// The cause that ends a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Wake {
    Timer,
    Disk(Transfer),
    /// A packet, with its size in bytes.
    Network(u32),
    /// A signal from another thread, or a timeout.
    Signal,
    /// The owner of a lock, without a timeout.
    Lock,
}

impl Wake {
    /// The wait reason (`KWAIT_REASON`).
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
            Wake::Network(_) | Wake::Lock => USER_REQUEST,
            Wake::Signal => QUEUE,
        }
    }
}

/// The start function of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// A function of the program.
    Program(u64),
    /// A function of a program without the Windows subsystem.
    Native,
    /// The thread pool.
    Pool,
    /// A function of a 32-bit program.
    Wow64(u64),
    /// A routine of the kernel.
    System(usize),
    /// Code in private memory.
    Private(Region),
}

/// The way in which a thread makes system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// Through the stub in `ntdll.dll` or `win32u.dll`.
    Stub,
    /// Through the stub, by the loader of a new process.
    Loader,
    /// Directly, by an instruction in the program.
    Direct,
    /// Indirectly, from private memory through the end of another service's stub.
    Indirect(Region),
    /// By a private stub of the program that jumps to the end of the right stub.
    OwnStub,
    /// By a private stub that jumps to a `syscall` instruction outside of the stubs.
    Stray,
}

/// The mode of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    User,
    Call(&'static Call),
    /// In a page fault, since this time.
    Fault(i64),
    /// In the kernel, before its first instruction in user mode.
    Startup,
    /// In the kernel permanently.
    Kernel,
}

/// The scheduling state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Running {
    /// Running on a processor.
    On(u16),
    /// Waiting for a processor.
    Ready,
    /// Waiting, since this time.
    Waiting(i64),
    /// Ended.
    Ended,
}

/// A thread while the scenario runs.
#[derive(Debug)]
pub(crate) struct LiveThread {
    pub tid: Tid,
    pub process: ProcessIndex,
    /// Index in the list of the process's threads.
    pub index_in_process: usize,
    pub start: Start,
    pub priority: u8,
    pub ideal_processor: u16,
    pub running: Running,
    pub mode: Mode,
    /// The planned actions.
    pub script: VecDeque<Action>,
    /// Its current route through the program's call graph.
    pub route: u64,
    /// The functions that it is in instead of those of its route, the innermost first.
    pub functions: Option<&'static [Site]>,
    /// Its kernel frames, without the innermost ones of the current event.
    pub kernel: Frames,
    /// If the kernel called a window procedure: the outer kernel frames and the outer user frames.
    pub outer: Option<(Frames, Frames)>,
    /// Its user frames while it is in the kernel.
    pub user: Frames,
    /// Events since it entered the kernel.
    pub pending: Vec<Pending>,
    /// The match id of a pending user stack in an extended data item.
    pub match_id: Option<u64>,
    pub caller: Caller,
    /// Whether its innermost function calls [`site::LAYOUT`].
    pub lays_out: bool,
    /// The attack that all its events are part of.
    pub attack: Option<AttackKind>,
    /// Whether it was preempted, so that the next switch to it is logged with its user stack.
    pub was_preempted: bool,
}

impl LiveThread {
    /// The attack that its current events are part of.
    pub fn shown_attack(&self) -> Option<AttackKind> {
        match (self.mode, self.caller) {
            (Mode::Call(_), Caller::Direct) => Some(AttackKind::DirectSyscall),
            (Mode::Call(_), Caller::Indirect(_)) => Some(AttackKind::IndirectSyscall),
            (Mode::Call(_), Caller::OwnStub) => Some(AttackKind::OwnStub),
            (Mode::Call(_), Caller::Stray) => Some(AttackKind::StraySyscall),
            _ => self.attack,
        }
    }

    /// Its current path through the call graph.
    fn path(&self, machine: &Machine) -> CallPath {
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
        CallPath { program, library, root, route: self.route, depth: CallPath::depth_of(self.route) }
    }

    /// Adds the root frames of the thread, which call the start function.
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
        let path = self.path(machine);
        let push = |frames: &mut Frames, sites: &[Site]| {
            sites.iter().for_each(|&site| frames.push(machine.address(site)));
        };
        // Different system calls have different call sites in a function.
        let n = u64::from(call.routine.1 >> 4);
        match self.caller {
            Caller::Direct => {
                // The program has its own stub, which contains the instruction.
                frames.push(path.program.call_site(u32::MAX, n, 0));
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
        match self.functions {
            Some(functions) => self.push_functions(&mut frames, machine, functions, n),
            None => path.push_calls(&mut frames, n),
        }
        self.push_root(&mut frames, machine);
        frames
    }

    /// Adds return addresses in these functions and in the function of the program that calls them.
    /// The innermost function makes its `n`th call.
    fn push_functions(&self, frames: &mut Frames, machine: &Machine, functions: &[Site], n: u64) {
        for (at, &Site(image, start)) in functions.iter().enumerate() {
            let n = if at == 0 { n % 8 } else { 0 };
            frames.push(machine.address(Site(image, start + 0x15 + 0x1d * n as u32)));
        }
        let path = self.path(machine);
        frames.push(path.program.call_site(0, path.root << 32, 0));
    }

    /// The user frames of a system call from a window procedure that the kernel called.
    pub fn callback_frames(&self, machine: &Machine, call: &Call) -> Frames {
        let mut frames = Frames::EMPTY;
        frames.push(machine.address(call.stub_return()));
        let loaded = machine.processes[self.process].role.libraries();
        let wrappers = call.wrappers.iter().filter(|wrapper| loaded.contains(&wrapper.0));
        wrappers.for_each(|&wrapper| frames.push(machine.address(wrapper)));
        frames.push(self.path(machine).program.call_site(1, u64::from(call.routine.1 >> 4), 0));
        site::CALLED_BACK.iter().for_each(|&site| frames.push(machine.address(site)));
        frames.extend(self.user.as_slice());
        frames
    }

    /// The user frames of a system call with which a new process loads an image.
    pub fn loader_frames(&self, machine: &Machine, call: &Call) -> Frames {
        let mut frames = Frames::EMPTY;
        frames.push(machine.address(call.stub_return()));
        for &site in call.wrappers.iter().filter(|site| site.0 == SystemImage::Ntdll).chain(&site::LOADER) {
            frames.push(machine.address(site));
        }
        frames
    }

    /// The frames of a thread that runs in its innermost function. `position` selects the
    /// instruction.
    pub fn running_frames(&self, machine: &Machine, position: u64) -> Frames {
        let mut frames = Frames::EMPTY;
        if self.caller == Caller::Loader {
            let Site(image, rva) = site::LOADER[0];
            frames.push(machine.address(Site(image, rva + 7 * position as u32)));
            site::LOADER[1..].iter().for_each(|&site| frames.push(machine.address(site)));
            return frames;
        }
        match self.functions {
            Some([Site(image, start), callers @ ..]) => {
                frames.push(machine.address(Site(*image, start + 0x10 + 7 * position as u32)));
                self.push_functions(&mut frames, machine, callers, 0);
            }
            _ if self.lays_out => {
                let Site(image, start) = site::LAYOUT;
                frames.push(machine.address(Site(image, start + 0x10 + 7 * position as u32)));
                self.path(machine).push_innermost_call(&mut frames);
            }
            _ => self.path(machine).push_running(&mut frames, position),
        }
        self.push_root(&mut frames, machine);
        frames
    }

    /// The start address of a thread.
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
