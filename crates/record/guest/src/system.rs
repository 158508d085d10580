//! What a recorder asks a system for.

use std::rc::Rc;

use stackhound_types::Address;

use crate::memory::Memory;

/// A running operating system.
pub trait System: std::fmt::Debug {
    /// The number of known symbols of the kernel.
    fn symbols(&self) -> usize;

    /// The functions whose calls must be passed to [`called`](System::called). Their number in this list is
    /// that of the hook.
    fn hooks(&self) -> &[Hook];

    /// A hook begins to execute, with its first two arguments. `memory` is read only for hooks that do that.
    fn called(
        &mut self,
        hook: usize,
        arguments: [u64; 2],
        memory: &mut dyn Memory,
        report: &mut dyn FnMut(Event),
    );

    /// The code of the kernel at an address.
    fn kernel_code_at(&self, address: Address) -> Option<Code<'_>>;

    /// The addresses of the kernel's thunks: short functions that only jump to the function for which they
    /// are called.
    fn thunks(&self) -> Vec<Address>;

    /// The addresses of the kernel's functions, in rising order, without thunks.
    fn functions(&self) -> Vec<Address>;

    /// The thread that executes.
    fn current(&self) -> Option<&Task>;

    /// A thread, by its number.
    fn thread(&self, thread: u32) -> Option<&Task>;

    /// The program of the current process: a number that changes when it executes another one, or replaces
    /// a part of its code by that of another file.
    fn program(&self) -> Option<u32>;

    /// The file at an address of the current process.
    fn mapping_at(&self, address: Address) -> Option<&Mapping>;
}

/// Code of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'s> {
    /// The name of the module.
    pub module: &'s str,
    /// The path of its file, if known.
    pub path: Option<&'s str>,
    /// The address at which the module begins.
    pub base: Address,
    /// The function, if known.
    pub function: Option<Function<'s>>,
}

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'s> {
    /// Its name.
    pub name: &'s str,
    /// The distance of the address from its start.
    pub offset: u64,
}

/// A function of the kernel whose calls the recorder reports to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its address.
    pub address: Address,
    /// Whether memory is read at its calls. If not, the system may continue before a call is reported.
    pub reads_memory: bool,
}

/// Something that the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The processor will load the stack pointer of a thread, and continue with it.
    Switched {
        /// The thread.
        to: u32,
    },
    /// A thread was created, but does not run yet.
    Created {
        /// The thread.
        thread: u32,
        /// Its stack in the kernel.
        stack: Option<(Address, Address)>,
    },
    /// A thread has a new name.
    Named {
        /// The thread.
        thread: u32,
    },
    /// The current process executes another program, in another address space.
    Executed {
        /// The process.
        process: u32,
    },
    /// A thread has ended, and does not run any more.
    Ended {
        /// The thread.
        thread: u32,
        /// Its process.
        process: u32,
        /// It was the last thread of its process.
        is_last: bool,
    },
    /// The current thread will continue with the handler of a signal when it returns to user mode.
    Signal {
        /// The address to which the handler will return.
        restorer: Option<Address>,
    },
    /// Memory is a stack of the processor, for interrupts or for entries into the kernel.
    Stack {
        /// Its memory.
        memory: (Address, Address),
        /// Its purpose.
        name: &'static str,
    },
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub thread: u32,
    /// The number of its process.
    pub process: u32,
    /// The name that the system shows for it.
    pub name: String,
}

/// A part of a file in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address of its first byte.
    pub start: Address,
    /// The address after its last byte.
    pub end: Address,
    /// The offset in the file.
    pub offset: u64,
    /// The path of the file in its file system.
    pub path: Rc<str>,
}
