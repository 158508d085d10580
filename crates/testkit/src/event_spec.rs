//! What happens in a case, before it is written in any form: who does what, with which stack.

use stackhound_scenario::symbols::file::File;

use super::code::{self, Built, ImageRegion, SIZE, Spec};
use super::images::IMAGES;

/// A place in a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameSpec {
    /// In an image: its number among [`World::units`], and the offset.
    In(usize, u32),
    /// Anywhere else.
    At(u64),
    /// Anywhere else, in 32-bit code.
    At32(u32),
}

/// An image with its place in memory.
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
                .expect("all places are there");
            let base = location.1;
            location.1 += u64::from(SIZE) * 8;
            Unit { spec, base, file, functions }
        });
        World { units: units.collect() }
    }

    pub fn index(&self, key: &str) -> usize {
        let found = self.units.iter().position(|unit| unit.spec.key == key);
        found.unwrap_or_else(|| panic!("no image is called {key}"))
    }

    /// So many bytes behind the start of `library!function`.
    pub fn at(&self, name: &str, offset: u32) -> FrameSpec {
        let (key, function) = name.split_once('!').expect("library!function");
        let index = self.index(key);
        FrameSpec::In(index, self.units[index].function(function).at + offset)
    }

    /// Where the call in `library!function` returns to that calls `callee`; that through a register, if it has no call of
    /// just this.
    fn after_call(&self, name: &str, callee: &str) -> FrameSpec {
        let (key, function) = name.split_once('!').expect("library!function");
        let index = self.index(key);
        let own = callee.strip_prefix(key).and_then(|rest| rest.strip_prefix('!')).unwrap_or(callee);
        let calls = &self.units[index].function(function).calls;
        let to = |wanted: &str| calls.iter().find(|(known, _)| *known == wanted);
        let call = to(own).or_else(|| to("*")).unwrap_or_else(|| panic!("{name} does not call {callee}"));
        FrameSpec::In(index, call.1)
    }

    /// The stack of functions that call each other, innermost first: `library!function`, and `library!function>other` for
    /// one that calls the one above it through another. The innermost is a system call's stub.
    pub fn stack(&self, functions: &[&str]) -> Vec<FrameSpec> {
        let (stub, callers) = functions.split_first().expect("a stack has frames");
        let mut stack = vec![self.stub_return(stub)];
        stack.extend(self.callers(stub, callers));
        stack
    }

    /// The return addresses of functions that call each other, the innermost of which calls `callee`.
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

    /// Where the system call of a stub returns to.
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

/// Who acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Actor {
    /// A program of 64 bits, with libraries of its own beside those that all have.
    Program(&'static str, &'static [&'static str]),
    /// The 32-bit program.
    Bits32,
    /// A program without the Windows subsystem: `ntdll.dll` and these.
    Native(&'static str, &'static [&'static str]),
}

impl Actor {
    pub fn program(self) -> &'static str {
        match self {
            Actor::Program(program, _) | Actor::Native(program, _) => program,
            Actor::Bits32 => "host32",
        }
    }

    /// The images that it has loaded, the program first.
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

/// Frames that Windows records of a stack, the kernel's included.
pub(super) const FRAMES_MAX: usize = 192;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// A system call of this service.
    Call(&'static str),
    /// A handle to a process of this program, with these rights if they are told.
    Open(&'static str, Option<u32>),
    /// A thread starts here, in a process of this program if not in the own one. With the function there, if known.
    Start(FrameSpec, Option<&'static str>, Option<&'static str>),
    /// An image is mapped.
    Load(&'static str),
    /// The thread waits.
    Wait,
    /// Where a processor is, is looked at.
    Sample,
}

/// Memory that is no image, and what tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Allocated: the first byte of 64 KiB.
    Allocated(u64),
    /// Compiled by the runtime of managed code.
    Compiled(u64),
}

/// What happens in a case.
#[derive(Clone, Debug)]
pub(super) struct EventSpec {
    pub actor: Actor,
    pub what: Action,
    /// User frames and kernel frames between them, innermost first.
    pub stack: Vec<FrameSpec>,
    /// The kernel frames before them, where they are not the usual ones.
    pub kernel: Option<Vec<FrameSpec>>,
    pub memory: Option<Memory>,
    /// Where the thread started; the program's entry if not stated.
    pub start: Option<FrameSpec>,
    /// What there is of the stack.
    pub parts: Parts,
    /// Whether the recording tells where the thread started.
    pub tells_start: bool,
}

/// What there is of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parts {
    All,
    /// The user part did not come.
    Kernel,
    /// The kernel part did not come.
    User,
}

/// All rights to a process.
pub(super) const ALL_ACCESS: u32 = 0x001f_ffff;
/// To ask for a process's state, and nothing else.
pub(super) const QUERY: u32 = 0x1000;

impl EventSpec {
    pub fn new(actor: Actor, what: Action, stack: Vec<FrameSpec>) -> EventSpec {
        EventSpec {
            actor,
            what,
            stack,
            kernel: None,
            memory: None,
            start: None,
            parts: Parts::All,
            tells_start: true,
        }
    }

    /// A handle to an ordinary process.
    pub fn open(actor: Actor, stack: Vec<FrameSpec>) -> EventSpec {
        EventSpec::new(actor, Action::Open("tool", Some(QUERY)), stack)
    }

    pub fn what(mut self, what: Action) -> EventSpec {
        self.what = what;
        self
    }

    pub fn memory(mut self, memory: Memory) -> EventSpec {
        self.memory = Some(memory);
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
        self.tells_start = false;
        self
    }

    pub fn kernel(mut self, kernel: Vec<FrameSpec>) -> EventSpec {
        self.kernel = Some(kernel);
        self
    }

    /// With a frame more, before the frame at `location`.
    pub fn insert(mut self, location: usize, frame: FrameSpec) -> EventSpec {
        self.stack.insert(location, frame);
        self
    }

    /// With another frame at `location`.
    pub fn replace(mut self, location: usize, frame: FrameSpec) -> EventSpec {
        self.stack[location] = frame;
        self
    }

    /// Without the outermost frames.
    pub fn cut(mut self, frames: usize) -> EventSpec {
        self.stack.truncate(self.stack.len() - frames);
        self
    }

    /// With a frame that calls itself so often that the stack is longer than any capture, and is cut by it.
    pub fn grow(mut self, location: usize) -> EventSpec {
        let frame = self.stack[location];
        self.stack.splice(location..location, std::iter::repeat_n(frame, FRAMES_MAX));
        self
    }
}
