//! Turns the calls of the emulator of one program into records. It does not know the emulator's interface.
//!
//! The records of all threads have one order, that of the calls. Each instruction is a transition, also
//! if a system call is repeated after a signal. An instruction that faults is none if the program handles
//! the fault.
//!
//! The system delivers signals without an instruction. Their handlers are those that system calls
//! register; the registers and the memory at the first instruction of a handler show whether the system
//! called it, and what was interrupted.

use std::collections::{HashMap, HashSet};

use crate::channel::Channel;
use crate::decode::{Effect, Target};
use crate::observer::Processor;
use crate::protocol::{Kind, Record};

/// The numbers of general registers in instructions.
const RAX: u8 = 0;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RSI: u8 = 6;
const RDI: u8 = 7;
/// The system call that returns from a signal.
const SIGRETURN: u64 = 15;
/// The offset of the saved stack pointer in the context of a signal. The saved address follows.
const SAVED: u64 = 160;
/// The signals of faults, as bits.
const FAULTS: u64 = 1 << 4 | 1 << 7 | 1 << 8 | 1 << 11;
/// The bit of an action whose handler receives a description of the signal.
const DESCRIBED: u64 = 4;
/// The bit of a stack for signals that is not used.
const DISABLED: u64 = 2;

/// An instruction that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    pub address: u64,
    pub length: u8,
    pub effect: Effect,
}

/// What a system call registers for a signal.
#[derive(Clone, Copy, Debug)]
struct Handler {
    restorer: u64,
    described: bool,
}

/// The state of one thread.
#[derive(Debug, Default)]
struct Thread {
    number: u32,
    /// It has executed instructions.
    is_known: bool,
    /// An instruction that loads the stack pointer and may still fault.
    begun: Option<Record>,
    /// The target that the current call has read.
    target: u64,
    /// The address of the repeated instruction that has begun last, and the number of instructions then.
    last_repeated: (u64, u64),
}

/// The state of the observation.
#[derive(Debug)]
pub struct Program {
    channel: Channel,
    /// Reads the map of memory.
    maps: fn() -> Vec<u8>,
    /// All recorded instructions. Translated code refers to them by position.
    instructions: Vec<Instruction>,
    positions: HashMap<Instruction, u32>,
    /// The addresses of translated blocks.
    blocks: HashSet<u64>,
    /// By address.
    handlers: HashMap<u64, Handler>,
    /// By the number of the virtual processor.
    threads: Vec<Thread>,
    current: Option<u32>,
    is_started: bool,
    /// Transitions without an instruction: signals and switches.
    added: u64,
    /// Instructions that are no transitions: iterations of repeated instructions, and faults.
    removed: u64,
}

impl Program {
    /// Creates an observation that sends records. After an error, it records nothing.
    pub fn new(channel: Channel, maps: fn() -> Vec<u8>) -> Program {
        Program {
            channel,
            maps,
            instructions: Vec::new(),
            positions: HashMap::new(),
            blocks: HashSet::new(),
            handlers: HashMap::new(),
            threads: Vec::new(),
            current: None,
            is_started: false,
            added: 0,
            removed: 0,
        }
    }

    /// Keeps an instruction and returns its position.
    pub fn keep(&mut self, instruction: Instruction) -> u32 {
        *self.positions.entry(instruction).or_insert_with(|| {
            self.instructions.push(instruction);
            self.instructions.len() as u32 - 1
        })
    }

    /// A block was translated. Returns whether a handler of signals begins with it.
    pub fn block(&mut self, address: u64) -> bool {
        self.blocks.insert(address);
        self.handlers.contains_key(&address)
    }

    /// A thread begins to use a virtual processor.
    pub fn start(&mut self, cpu: u32, number: u32) {
        if self.threads.len() <= cpu as usize {
            self.threads.resize_with(cpu as usize + 1, Thread::default);
        }
        self.threads[cpu as usize] = Thread { number, ..Thread::default() };
        if self.current == Some(cpu) {
            self.current = None;
        }
    }

    /// A thread executes, from these registers on. `counted` is 1 if its instruction was counted already.
    fn turn(&mut self, cpu: u32, (pc_after, sp_after): (u64, u64), counted: u64, processor: &impl Processor) {
        if self.current == Some(cpu) {
            return;
        }
        let last = self.current.replace(cpu).and_then(|last| self.threads.get_mut(last as usize));
        // Its stack pointer is not known.
        if let Some(thread) = last {
            thread.begun = None;
        }
        let Some(thread) = self.threads.get_mut(cpu as usize) else { return };
        let number = thread.number;
        // The stack of a new thread is a mapping, and so is the code of the first one.
        if !std::mem::replace(&mut thread.is_known, true) {
            self.send_maps(counted, processor);
        }
        let transition = self.transition(counted, processor);
        self.send(Record {
            sp_before: u64::from(number),
            pc_after,
            sp_after,
            ..Record::new(Kind::Thread, transition)
        });
        self.added += u64::from(std::mem::replace(&mut self.is_started, true));
    }

    /// Sends the map of memory. `counted` is as for [`turn`](Program::turn).
    pub fn send_maps(&mut self, counted: u64, processor: &impl Processor) {
        let text = (self.maps)();
        let transition = self.transition(counted, processor);
        self.send(Record { sp_before: text.len() as u64, ..Record::new(Kind::Maps, transition) });
        self.channel.send_bytes(&text);
    }

    /// An instruction with an effect is about to execute.
    pub fn begins(&mut self, cpu: u32, position: u32, processor: &mut impl Processor) {
        let Some(&Instruction { address, length, effect }) = self.instructions.get(position as usize) else {
            return;
        };
        let sp = processor.register(RSP);
        self.turn(cpu, (address, sp), 1, processor);
        self.send_begun(cpu, sp);
        let mut record = Record {
            length,
            pc_before: address,
            sp_before: sp,
            ..Record::new(Kind::Load, self.transition(1, processor))
        };
        match effect {
            Effect::LoadsStackPointer => {
                record.pc_after = address.wrapping_add(u64::from(length));
                if let Some(thread) = self.threads.get_mut(cpu as usize) {
                    thread.begun = Some(record);
                }
                return;
            }
            Effect::FarReturn => {
                record.kind = Kind::FarReturn;
                record.pc_after = word(processor, sp);
                record.sp_after = sp.wrapping_add(16);
            }
            Effect::SystemCall if processor.register(RAX) == SIGRETURN => {
                record.kind = Kind::InterruptReturn;
                record.sp_after = word(processor, sp.wrapping_add(SAVED));
                record.pc_after = word(processor, sp.wrapping_add(SAVED + 8));
            }
            Effect::Jump(Target::Register(number)) => {
                record.kind = Kind::Jump;
                record.pc_after = processor.register(number);
                record.sp_after = sp;
            }
            _ => return,
        }
        self.send(record);
    }

    /// The instruction after one that loads the stack pointer is about to execute.
    pub fn completed(&mut self, cpu: u32, processor: &mut impl Processor) {
        if self.threads.get(cpu as usize).is_some_and(|thread| thread.begun.is_some()) {
            let sp = processor.register(RSP);
            self.send_begun(cpu, sp);
        }
    }

    /// The instruction that has begun is complete. `sp` is the stack pointer before the next one.
    fn send_begun(&mut self, cpu: u32, sp: u64) {
        if let Some(mut begun) = self.threads.get_mut(cpu as usize).and_then(|thread| thread.begun.take()) {
            begun.sp_after = sp;
            self.send(begun);
        }
    }

    /// A call, a return or a jump has accessed memory: the return address on the stack, or the target.
    pub fn accessed(
        &mut self,
        cpu: u32,
        position: u32,
        (is_store, address, value): (bool, u64, u64),
        processor: &mut impl Processor,
    ) {
        let Some(&Instruction { address: pc_before, length, effect }) =
            self.instructions.get(position as usize)
        else {
            return;
        };
        self.turn(cpu, (pc_before, address), 1, processor);
        let mut record = Record {
            length,
            pc_before,
            sp_before: address,
            pc_after: value,
            sp_after: address,
            ..Record::new(Kind::Return, self.transition(1, processor))
        };
        match effect {
            Effect::Return { freed } => {
                record.sp_after = address.wrapping_add(8 + u64::from(freed));
            }
            Effect::Call(_) if !is_store => {
                if let Some(thread) = self.threads.get_mut(cpu as usize) {
                    thread.target = value;
                }
                return;
            }
            Effect::Call(target) => {
                record.kind = Kind::Call;
                record.sp_before = address.wrapping_add(8);
                record.pc_after = match target {
                    Target::Relative(distance) => value.wrapping_add_signed(i64::from(distance)),
                    Target::Register(number) => processor.register(number),
                    Target::Memory => self.threads.get(cpu as usize).map_or(0, |thread| thread.target),
                };
            }
            Effect::Jump(_) => {
                let sp = processor.register(RSP);
                (record.kind, record.sp_before, record.sp_after) = (Kind::Jump, sp, sp);
            }
            _ => return,
        }
        self.send_begun(cpu, record.sp_before);
        self.send(record);
    }

    /// The first instruction of a block, possibly of a handler, is about to execute, and was not counted.
    pub fn handler_begins(&mut self, cpu: u32, address: u64, processor: &mut impl Processor) {
        let sp = processor.register(RSP);
        let context = sp.wrapping_add(8);
        // A function of the program that calls the handler has another return address.
        let handler =
            self.handlers.get(&address).copied().filter(|handler| {
                processor.register(RDX) == context && word(processor, sp) == handler.restorer
            });
        let Some(Handler { restorer, described }) = handler else {
            return self.turn(cpu, (address, sp), 0, processor);
        };
        let sp_before = word(processor, context.wrapping_add(SAVED));
        let pc_before = word(processor, context.wrapping_add(SAVED + 8));
        self.turn(cpu, (pc_before, sp_before), 0, processor);
        if let Some(thread) = self.threads.get_mut(cpu as usize) {
            let fault = |begun: &mut Record| begun.pc_before == pc_before && begun.sp_before == sp_before;
            // Otherwise, the instruction has faulted, and is repeated later.
            let _ = thread.begun.take_if(fault);
            thread.last_repeated = (0, 0);
        }
        self.send_begun(cpu, sp_before);
        let signal = processor.register(RDI);
        // The code of a signal from the system is positive. It follows the number and the error.
        let code = processor.register(RSI).wrapping_add(8);
        let sent = described && word(processor, code) as i32 <= 0;
        if signal < 64 && FAULTS >> signal & 1 != 0 && !sent {
            self.removed += 1;
        }
        let transition = self.transition(0, processor);
        self.added += 1;
        self.send(Record { sp_before: restorer, ..Record::new(Kind::Restorer, transition) });
        self.send(Record {
            pc_before,
            sp_before,
            pc_after: address,
            sp_after: sp,
            ..Record::new(Kind::Signal, transition)
        });
    }

    /// A repeated instruction is about to execute, for the first time or again.
    pub fn repeated(&mut self, cpu: u32, position: u32, processor: &mut impl Processor) {
        let Some(instruction) = self.instructions.get(position as usize) else { return };
        let Some(thread) = self.threads.get_mut(cpu as usize) else { return };
        let executed = processor.executed();
        if thread.last_repeated == (instruction.address, executed.wrapping_sub(1)) {
            self.removed += 1;
        }
        thread.last_repeated = (instruction.address, executed);
    }

    /// A program registers a handler. Returns whether its code was translated before.
    pub fn register(&mut self, action: u64, processor: &mut impl Processor) -> bool {
        let [address, flags, restorer] =
            [0, 8, 16].map(|offset| word(processor, action.wrapping_add(offset)));
        // 0 and 1 are no addresses: the default, and to ignore the signal.
        if action == 0 || address < 2 {
            return false;
        }
        self.handlers.insert(address, Handler { restorer, described: flags & DESCRIBED != 0 });
        self.blocks.contains(&address)
    }

    /// Sends a change of memory by the last instruction, a system call.
    pub fn memory(&mut self, kind: Kind, low: u64, high: u64, processor: &impl Processor) {
        let transition = self.transition(1, processor);
        self.send(Record { sp_before: low, sp_after: high, ..Record::new(kind, transition) });
    }

    /// Sends the stack of signal handlers that a program has registered.
    pub fn signal_stack(&mut self, description: u64, processor: &mut impl Processor) {
        let [low, flags, length] = [0, 8, 16].map(|offset| word(processor, description.wrapping_add(offset)));
        if flags & DISABLED == 0 {
            self.memory(Kind::Alternate, low, low.saturating_add(length), processor);
        }
    }

    /// A thread executes its last system call.
    pub fn thread_ends(&mut self, processor: &impl Processor) {
        let transition = self.transition(1, processor);
        self.send(Record::new(Kind::ThreadEnd, transition));
    }

    /// The execution has ended, or the recording. The `reason` is 0 for the end of the program.
    pub fn end(&mut self, reason: u8, processor: &impl Processor) {
        let executed = processor.executed();
        self.send(Record {
            detail: reason,
            sp_before: executed,
            pc_after: self.removed,
            sp_after: self.added,
            ..Record::new(Kind::End, self.transition(0, processor))
        });
        self.channel.flush();
        self.channel.close();
    }

    /// Ends the recording in a copy of the process.
    pub fn abandon(&mut self) {
        self.channel.close();
    }

    /// The number of transitions before the instruction that is about to execute. `counted` is 1 if it was
    /// counted already.
    fn transition(&self, counted: u64, processor: &impl Processor) -> u64 {
        (processor.executed() + self.added).saturating_sub(counted + self.removed)
    }

    fn send(&mut self, record: Record) {
        self.channel.send(record);
    }

    /// Announces all records so far.
    pub fn flush(&mut self) {
        self.channel.flush();
    }
}

/// Reads a word. One that cannot be read is 0.
fn word(processor: &mut impl Processor, address: u64) -> u64 {
    processor
        .memory(address, 8)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |&bytes| u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::{channel, read};
    use crate::protocol::Ring;

    const CODE: u64 = 0x40_1000;
    const STACK: u64 = 0x7fff_7000;

    /// A processor whose registers and memory a test sets.
    #[derive(Default)]
    struct Machine {
        registers: [u64; 16],
        executed: u64,
        words: HashMap<u64, [u8; 8]>,
    }

    impl Processor for Machine {
        fn register(&mut self, number: u8) -> u64 {
            self.registers[usize::from(number)]
        }
        fn instruction_pointer(&mut self) -> u64 {
            0
        }
        fn memory(&mut self, address: u64, _: usize) -> Option<&[u8]> {
            self.words.get(&address).map(|word| &word[..])
        }
        fn executed(&self) -> u64 {
            self.executed
        }
    }

    struct Run {
        program: Program,
        machine: Machine,
        ring: &'static Ring,
        _announced: std::io::PipeReader,
    }

    impl Run {
        fn new() -> Run {
            let (channel, ring, announced) = channel();
            let program = Program::new(channel, || b"a map".to_vec());
            let mut run = Run { program, machine: Machine::default(), ring, _announced: announced };
            run.program.start(0, 70);
            run.machine.registers[4] = STACK;
            run
        }

        fn word(&mut self, address: u64, value: u64) {
            self.machine.words.insert(address, value.to_le_bytes());
        }

        /// An instruction begins.
        fn begins(&mut self, cpu: u32, address: u64, sp: u64, effect: Effect) {
            let position = self.program.keep(Instruction { address, length: 3, effect });
            self.machine.executed += 1;
            self.machine.registers[4] = sp;
            self.program.begins(cpu, position, &mut self.machine);
        }

        /// A call accesses the stack.
        fn calls(&mut self, cpu: u32, address: u64, slot: u64) {
            let effect = Effect::Call(Target::Relative(0x100));
            let position = self.program.keep(Instruction { address, length: 5, effect });
            self.machine.executed += 1;
            self.program.accessed(cpu, position, (true, slot, address + 5), &mut self.machine);
        }

        /// Ends the run. Returns the records as text: type, transition, and the registers.
        fn end(mut self) -> Vec<String> {
            self.program.end(0, &self.machine);
            let mut records = read(self.ring, 0).into_iter();
            let mut found = Vec::new();
            while let Some(words) = records.next() {
                let record = Record::from_words(words).unwrap();
                assert_eq!(record.to_words(), words);
                let Record { kind, transition, pc_before, sp_before, pc_after, sp_after, .. } = record;
                if kind == Kind::Maps {
                    let text = records.next().unwrap()[0].to_ne_bytes();
                    assert_eq!((sp_before, &text), (5, b"a map\0\0\0"));
                }
                found.push(format!(
                    "{kind:?} {transition} {pc_before:x}/{sp_before:x} {pc_after:x}/{sp_after:x}"
                ));
            }
            found
        }
    }

    const LOAD: Effect = Effect::LoadsStackPointer;
    const SYSTEM: Effect = Effect::SystemCall;

    #[test]
    fn a_switch_is_a_transition_and_new_threads_send_the_map() {
        let mut run = Run::new();
        run.calls(0, CODE, STACK - 8);
        run.program.start(1, 71);
        run.calls(1, CODE + 0x20, 0x5ff8);
        run.machine.executed += 1;
        run.program.thread_ends(&run.machine);
        run.calls(0, CODE + 0x40, STACK - 16);
        assert_eq!(
            run.end(),
            [
                "Maps 0 0/5 0/0",
                "Thread 0 0/46 401000/7fff6ff8",
                "Call 0 401000/7fff7000 401105/7fff6ff8",
                "Maps 1 0/5 0/0",
                "Thread 1 0/47 401020/5ff8",
                "Call 2 401020/6000 401125/5ff8",
                "ThreadEnd 3 0/0 0/0",
                "Thread 4 0/46 401040/7fff6ff0",
                "Call 5 401040/7fff6ff8 401145/7fff6ff0",
                "End 6 0/4 0/2",
            ]
        );
    }

    /// A signal between two instructions, one that a fault caused, and a call of the handler.
    #[test]
    fn signals_are_recognized_by_what_the_system_stores() {
        let (handler, restorer, frame) = (CODE + 0x200, CODE + 0x300, STACK - 0x1000);
        let mut run = Run::new();
        for (offset, word) in [handler, 4, restorer].into_iter().enumerate() {
            run.word(0x9000 + 8 * offset as u64, word);
        }
        assert!(!run.program.block(handler), "not known yet");
        assert!(run.program.register(0x9000, &mut run.machine), "translated before");
        assert!(run.program.block(handler));
        run.begins(0, CODE, STACK, LOAD);
        // The load is complete: the stack pointer is that of the interrupted program.
        run.word(frame, restorer);
        run.word(frame + 8 + 160, STACK - 0x20);
        run.word(frame + 8 + 168, CODE + 3);
        run.word(frame + 0x138, 0);
        run.machine.registers[4] = frame;
        (run.machine.registers[2], run.machine.registers[6], run.machine.registers[7]) =
            (frame + 8, frame + 0x130, 10);
        run.program.handler_begins(0, handler, &mut run.machine);
        // The handler returns, and the system continues the program.
        run.machine.registers[0] = SIGRETURN;
        run.begins(0, restorer, frame + 8, SYSTEM);
        // The same load faults in the next instruction.
        run.begins(0, CODE + 6, STACK - 0x20, LOAD);
        run.word(frame + 8 + SAVED + 8, CODE + 6);
        run.word(frame + 0x138, 1);
        (run.machine.registers[4], run.machine.registers[7]) = (frame, 11);
        run.program.handler_begins(0, handler, &mut run.machine);
        // A call of the handler with other registers.
        run.word(frame - 0x100, CODE + 0x210);
        run.machine.registers[4] = frame - 0x100;
        run.program.handler_begins(0, handler, &mut run.machine);
        assert_eq!(
            run.end()[2..],
            [
                "Load 0 401000/7fff7000 401003/7fff6fe0",
                "Restorer 1 0/401300 0/0",
                "Signal 1 401003/7fff6fe0 401200/7fff6000",
                "InterruptReturn 2 401300/7fff6008 401003/7fff6fe0",
                "Restorer 3 0/401300 0/0",
                "Signal 3 401006/7fff6fe0 401200/7fff6000",
                "End 4 0/3 1/2",
            ]
        );
    }

    #[test]
    fn iterations_are_no_transitions_and_other_system_calls_have_no_records() {
        let mut run = Run::new();
        let effect = Effect::Repeated;
        let copy = run.program.keep(Instruction { address: CODE, length: 2, effect });
        for _ in 0..3 {
            run.machine.executed += 1;
            run.program.repeated(0, copy, &mut run.machine);
        }
        run.begins(0, CODE + 2, STACK, SYSTEM);
        run.program.memory(Kind::Released, 0x1000, 0x3000, &run.machine);
        run.begins(0, CODE + 4, STACK, Effect::Jump(Target::Register(3)));
        assert_eq!(
            run.end()[2..],
            ["Released 1 0/1000 0/3000", "Jump 2 401004/7fff7000 0/7fff7000", "End 3 0/5 2/0"]
        );
    }
}
