//! The event of a case, independent of its format: the actor, the action and the stack.

use stackhound_scenario::symbols::file::File;

use super::code::{self, Built, ImageRegion, SIZE, Spec};
use super::images::IMAGES;

/// A frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameSpec {
    /// In an image: its index in [`World::units`], and the offset.
    In(usize, u32),
    /// At an address outside of all images.
    At(u64),
    /// At an address of 32-bit code outside of all images.
    At32(u32),
}

/// An image with its base address.
#[derive(Debug)]
pub(super) struct Unit {
    pub spec: &'static Spec,
    pub base: u64,
    pub file: File,
    pub functions: Vec<Built>,
}

impl Unit {
    pub fn function(&self, name: &str) -> &Built {
        let found = self.functions.iter().find(|function| function.name == name);
        found.unwrap_or_else(|| panic!("{} has no {name}", self.spec.key))
    }
}

/// All images, and stacks through them.
#[derive(Debug)]
pub(super) struct World {
    pub units: Vec<Unit>,
}

impl World {
    pub fn new() -> World {
        let mut next = [
            (ImageRegion::Kernel, 0xffff_f801_2000_0000),
            (ImageRegion::Library, 0x7ff8_1000_0000),
            (ImageRegion::Program, 0x7ff6_4000_0000),
            (ImageRegion::Bits32, 0x7700_0000),
        ];
        let units = IMAGES.iter().enumerate().map(|(number, spec)| {
            let (file, functions) = code::build(spec, 0xca5e_0000 + number as u32);
            let location = next
                .iter_mut()
                .find(|(location, _)| *location == spec.location)
                .expect("every region has an address");
            let base = location.1;
            location.1 += u64::from(SIZE) * 8;
            Unit { spec, base, file, functions }
        });
        World { units: units.collect() }
    }

    pub fn index(&self, key: &str) -> usize {
        let found = self.units.iter().position(|unit| unit.spec.key == key);
        found.unwrap_or_else(|| panic!("no image has the key {key}"))
    }

    /// At `offset` bytes from the start of `library!function`.
    pub fn at(&self, name: &str, offset: u32) -> FrameSpec {
        let (key, function) = name.split_once('!').expect("library!function");
        let index = self.index(key);
        FrameSpec::In(index, self.units[index].function(function).at + offset)
    }

    /// The return address of the call to `callee` in `library!function`, or of its call through a
    /// register if it does not call `callee` by name.
    fn after_call(&self, name: &str, callee: &str) -> FrameSpec {
        let (key, function) = name.split_once('!').expect("library!function");
        let index = self.index(key);
        let own = callee.strip_prefix(key).and_then(|rest| rest.strip_prefix('!')).unwrap_or(callee);
        let calls = &self.units[index].function(function).calls;
        let to = |wanted: &str| calls.iter().find(|(known, _)| *known == wanted);
        let call = to(own).or_else(|| to("*")).unwrap_or_else(|| panic!("{name} does not call {callee}"));
        FrameSpec::In(index, call.1)
    }

    /// The stack of functions that call each other, innermost first. Each is written as
    /// `library!function`, or `library!function>other` if it calls the preceding one through
    /// `other`. The innermost function is a system call stub.
    pub fn stack(&self, functions: &[&str]) -> Vec<FrameSpec> {
        let (stub, callers) = functions.split_first().expect("a stack has frames");
        let mut stack = vec![self.stub_return(stub)];
        stack.extend(self.callers(stub, callers));
        stack
    }

    /// The return addresses of functions that call each other, innermost first. The innermost
    /// function calls `callee`.
    pub fn callers(&self, callee: &str, functions: &[&str]) -> Vec<FrameSpec> {
        let mut stack = Vec::new();
        let mut callee = callee;
        for function in functions {
            let (name, through) = function.split_once('>').unwrap_or((function, callee));
            stack.push(self.after_call(name, through));
            callee = name;
        }
        stack
    }

    /// The return address of the system call in a stub.
    pub fn stub_return(&self, name: &str) -> FrameSpec {
        let (key, function) = name.split_once('!').expect("library!function");
        match self.units[self.index(key)].spec.location {
            ImageRegion::Bits32 => self.after_call(name, "*"),
            _ if function == "own_syscall" => self.at(name, super::images::OWN_SYSCALL_RETURN),
            _ => self.at(name, 0x14),
        }
    }

    pub fn address(&self, frame: FrameSpec) -> u64 {
        match frame {
            FrameSpec::In(unit, offset) => self.units[unit].base + u64::from(offset),
            FrameSpec::At(address) => address,
            FrameSpec::At32(address) => address.into(),
        }
    }
}

/// The outermost frames of threads.
pub(super) const ROOT: [&str; 2] = ["kernel32!BaseThreadInitThunk", "ntdll!RtlUserThreadStart"];

/// The process that acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Actor {
    /// A 64-bit program, with libraries in addition to those that all programs load.
    Program(&'static str, &'static [&'static str]),
    /// The 32-bit program.
    Bits32,
    /// A program without the Windows subsystem, with `ntdll.dll` and these libraries.
    Native(&'static str, &'static [&'static str]),
}

impl Actor {
    pub fn program(self) -> &'static str {
        match self {
            Actor::Program(program, _) | Actor::Native(program, _) => program,
            Actor::Bits32 => "host32",
        }
    }

    /// The keys of the loaded images, the program first.
    pub fn images(self) -> Vec<&'static str> {
        let (program, base, more): (_, &[&str], &[&str]) = match self {
            Actor::Program(program, more) => {
                (program, &["ntdll", "kernel32", "kernelbase", "win32u", "user32"], more)
            }
            Actor::Bits32 => {
                let layer = &["ntdll", "ntdll32", "wow64", "wow64cpu", "kernel32x32", "kernelbase32"];
                ("host32", layer, &[])
            }
            Actor::Native(program, more) => (program, &["ntdll"], more),
        };
        [&[program], base, more].concat()
    }
}

/// The most frames that Windows records of a stack, kernel frames included.
pub(super) const FRAMES_MAX: usize = 192;

/// The action of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// A system call of this service.
    Call(&'static str),
    /// Opens a process of this program, with these access rights if they are reported.
    Open(&'static str, Option<u32>),
    /// A thread starts at this address, in a process of this program, or in the actor's own process
    /// for `None`. The last field is the name of the function there, if known.
    Start(FrameSpec, Option<&'static str>, Option<&'static str>),
    /// An image is mapped.
    Load(&'static str),
    /// The thread waits.
    Wait,
    /// The profiler samples the instruction pointer.
    Sample,
    /// Memory is changed.
    Change(Change),
    /// The image of the process is tampered with, in the words of Sysmon.
    Tamper(&'static str),
}

/// A change of memory, and the process that makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub kind: ChangeKind,
    pub by: ChangedBy,
    /// The program of the process that owns the memory; `None` for the process of the case.
    pub target: Option<&'static str>,
    /// The first address.
    pub at: FrameSpec,
    /// Bytes.
    pub size: u64,
}

/// The kind of a change. Protections are constants `PAGE_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChangeKind {
    /// Private memory is reserved and committed, as the kernel logger reports it.
    Reserve,
    /// Executable memory is allocated with this protection.
    Allocate(u32),
    /// The protection changes from the first to the second.
    Protect(u32, u32),
    Write,
    /// The image that starts at the address is unmapped.
    Unload,
    /// The image that starts at the address is mapped.
    Load,
}

/// The process that changes memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChangedBy {
    /// The process of the case.
    Actor,
    /// A process of this program.
    Other(&'static str),
    /// The same, protected as antimalware.
    Protected(&'static str),
    /// A driver, in the process of the case.
    Driver,
}

/// A change before the event of a case.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub change: Change,
    /// User frames, innermost first.
    pub stack: Vec<FrameSpec>,
    /// Milliseconds since the previous event.
    pub wait: i64,
}

pub(super) const PAGE_READONLY: u32 = 0x02;
pub(super) const PAGE_READWRITE: u32 = 0x04;
pub(super) const PAGE_EXECUTE_READ: u32 = 0x20;
pub(super) const PAGE_EXECUTE_READWRITE: u32 = 0x40;

/// Memory outside of images, with the event that reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// An allocation of 64 KiB at this address.
    Allocated(u64),
    /// JIT-compiled code at this address.
    Jit(u64),
}

/// The event of a case.
#[derive(Clone, Debug)]
pub(super) struct EventSpec {
    pub actor: Actor,
    pub action: Action,
    /// User frames and kernel frames between them, innermost first.
    pub stack: Vec<FrameSpec>,
    /// The kernel frames before `stack`, if they are not the usual ones.
    pub kernel: Option<Vec<FrameSpec>>,
    pub memory: Option<Memory>,
    /// The changes of memory before the event.
    pub steps: Vec<Step>,
    /// The start address of the thread; `None` for the entry point of the program.
    pub start: Option<FrameSpec>,
    /// The recorded parts of the stack.
    pub parts: Parts,
    /// Whether the trace contains the start address of the thread.
    pub has_start: bool,
}

/// The recorded parts of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parts {
    All,
    /// The kernel stack only.
    Kernel,
    /// The user stack only.
    User,
}

/// All rights to a process.
pub(super) const ALL_ACCESS: u32 = 0x001f_ffff;
/// The right to query limited information about a process.
pub(super) const QUERY: u32 = 0x1000;

impl EventSpec {
    pub fn new(actor: Actor, action: Action, stack: Vec<FrameSpec>) -> EventSpec {
        EventSpec {
            actor,
            action,
            stack,
            kernel: None,
            memory: None,
            steps: Vec::new(),
            start: None,
            parts: Parts::All,
            has_start: true,
        }
    }

    /// Opens an ordinary process.
    pub fn open(actor: Actor, stack: Vec<FrameSpec>) -> EventSpec {
        EventSpec::new(actor, Action::Open("tool", Some(QUERY)), stack)
    }

    pub fn action(mut self, action: Action) -> EventSpec {
        self.action = action;
        self
    }

    pub fn memory(mut self, memory: Memory) -> EventSpec {
        self.memory = Some(memory);
        self
    }

    pub fn after(mut self, steps: impl IntoIterator<Item = Step>) -> EventSpec {
        self.steps.extend(steps);
        self
    }

    pub fn start(mut self, start: FrameSpec) -> EventSpec {
        self.start = Some(start);
        self
    }

    pub fn without_user(mut self) -> EventSpec {
        self.parts = Parts::Kernel;
        self
    }

    pub fn without_kernel(mut self) -> EventSpec {
        self.parts = Parts::User;
        self
    }

    pub fn without_start(mut self) -> EventSpec {
        self.has_start = false;
        self
    }

    pub fn kernel(mut self, kernel: Vec<FrameSpec>) -> EventSpec {
        self.kernel = Some(kernel);
        self
    }

    /// Inserts a frame before the frame at index `location`.
    pub fn insert(mut self, location: usize, frame: FrameSpec) -> EventSpec {
        self.stack.insert(location, frame);
        self
    }

    /// Replaces the frame at index `location`.
    pub fn replace(mut self, location: usize, frame: FrameSpec) -> EventSpec {
        self.stack[location] = frame;
        self
    }

    /// Removes the outermost frames.
    pub fn cut(mut self, frames: usize) -> EventSpec {
        self.stack.truncate(self.stack.len() - frames);
        self
    }

    /// Repeats the frame at index `location`, so that the stack exceeds the limit of every capture
    /// and is truncated.
    pub fn grow(mut self, location: usize) -> EventSpec {
        let frame = self.stack[location];
        self.stack.splice(location..location, std::iter::repeat_n(frame, FRAMES_MAX));
        self
    }
}
