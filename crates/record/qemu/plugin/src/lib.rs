//! A plugin of QEMU that records the calls, returns, interrupts and changes of the stack pointer of an
//! x86-64 system with one processor, from the first instruction of its kernel on.
//!
//! It writes [records](protocol) to memory that it shares with the recorder, announces them in one pipe, and
//! reads requests from another one, all of which it inherits:
//! `-plugin file=…,memory=3,output=4,input=5`. It decides nothing about frames, and knows no operating system:
//! names and threads are the recorder's, which asks for memory when the kernel begins and when functions
//! of its choice are called. The system waits meanwhile.
//!
//! Calls and returns are observed when they access the stack. Before other instructions, the emulator
//! calls the plugin, which predicts their effect from registers and memory; a fault in the instruction
//! withdraws the record. Interrupts are recognized by their handlers, which the table of interrupts
//! lists; the saved registers on the stack state what was interrupted.
//!
//! In the emulator of programs, `qemu-x86_64`, it records the threads of one Linux program instead. There,
//! it knows the system calls that start and end threads, change memory for code and stacks, and register
//! handlers of signals.
//!
//! The plugin is loaded by QEMU and contains none of its code.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod decode;
pub mod protocol;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod api;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod channel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod emulator;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod observer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod user;
