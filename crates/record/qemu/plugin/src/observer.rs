//! Turns the calls of the emulator into records. It does not know the emulator's interface.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use crate::channel::Channel;
use crate::decode::{Effect, Target};
use crate::protocol::{FUNCTIONS_MAX, Kind, MEMORY_MAX, REQUEST_LENGTH, Record, Request};

/// The number of vectors of the processor.
const VECTORS: usize = 256;
/// The length of a gate in the table of interrupts.
const GATE: usize = 16;
/// The exceptions that push an error code, as bits.
const WITH_ERROR: u64 = 1 << 8 | 0b1_1111 << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;
/// The lowest address of the kernel's half of an address space.
pub const KERNEL: u64 = 1 << 63;
/// The model-specific register with the entry point of system calls.
const ENTRY: u64 = 0xc000_0082;
/// The numbers of general registers in instructions.
const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// Access to the processor.
pub trait Processor {
    /// Reads a general register, by its number in instructions.
    fn register(&mut self, number: u8) -> u64;
    /// Reads the instruction pointer. Within a block, it may be that of an earlier instruction of it.
    fn instruction_pointer(&mut self) -> u64;
    /// Reads memory of the current address space.
    fn memory(&mut self, address: u64, length: usize) -> Option<&[u8]>;
    /// The number of instructions that have begun, including the current one.
    fn executed(&self) -> u64;
}

/// An instruction with an effect, or one at which an effect is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Its address when it was translated.
    pub address: u64,
    /// The address of the first instruction of its block when it was translated.
    pub block: u64,
    pub length: u8,
    pub effect: Option<Effect>,
    /// For the first instruction of a handler: its vector. For that of a function with a hook: the
    /// number of the hook.
    pub number: u8,
}

impl Instruction {
    /// Returns its current address. The emulator uses a translated block for all mappings of its memory.
    fn current(&self, processor: &mut impl Processor) -> u64 {
        // Blocks are shorter than a page.
        let moved = processor.instruction_pointer().wrapping_sub(self.block) & !0xfff;
        self.address.wrapping_add(moved)
    }
}

/// A call at a fixed distance in the text of the kernel, as a word: what occurs most often is not looked up.
/// The text has one address, while the memory of programs can be mapped at several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectCall(pub u64);

impl DirectCall {
    /// The lowest address of the text and of modules: the last 2 GiB.
    const TEXT: u64 = 0xffff_ffff_8000_0000;
    const LENGTH: u64 = 5;

    pub fn new(address: u64, length: u8, distance: i32) -> Option<DirectCall> {
        let fits = address >= DirectCall::TEXT && u64::from(length) == DirectCall::LENGTH;
        fits.then_some(DirectCall(address << 32 | u64::from(distance as u32)))
    }

    fn address(self) -> u64 {
        self.0 >> 32 | !0 << 32
    }

    fn distance(self) -> i64 {
        i64::from(self.0 as i32)
    }
}

/// A return that frees only its return address, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainReturn(pub u64);

impl PlainReturn {
    pub fn new(address: u64, length: u8) -> PlainReturn {
        // Instructions have at most 15 bytes. The highest 16 bits of an address equal the next one.
        PlainReturn(address << 4 | u64::from(length))
    }

    fn address(self) -> u64 {
        ((self.0 as i64) >> 4) as u64
    }

    fn length(self) -> u8 {
        self.0 as u8 & 15
    }
}

/// The state of the observation.
#[derive(Debug)]
pub struct Observer {
    channel: Channel,
    /// The requests of the recorder.
    input: File,
    /// The number of requests so far.
    requests: u64,
    /// The functions whose calls are recorded, by address: the number, and whether the system waits.
    hooks: Vec<(u64, u8, bool)>,
    /// The addresses of the kernel's functions, in rising order.
    functions: Vec<u64>,
    /// All instructions with effects. Translated code refers to them by position.
    instructions: Vec<Instruction>,
    positions: HashMap<Instruction, u32>,
    /// The address of the table of interrupts.
    table: u64,
    /// The vectors of the handlers, by their addresses.
    handlers: HashMap<u64, u8>,
    gates: Vec<u8>,
    /// The effect of an instruction that may still fault. The stack pointer after it is 0 if it is not
    /// known: that of the next record is used.
    begun: Option<Record>,
    /// The entry point of system calls.
    entry: u64,
    /// The target that the current call has read.
    target: u64,
    /// The kernel has begun.
    is_recording: bool,
    /// Interrupts, which are transitions without an instruction.
    interrupts: u64,
    /// Iterations of repeated instructions, which are no transitions of their own.
    iterations: u64,
    /// The repeated instruction that has begun last, and the number of instructions then.
    last_repeated: (u64, u64),
}

impl Observer {
    /// Creates an observer that sends records, and reads requests from a file. After an error, it records
    /// nothing.
    pub fn new(channel: Channel, input: File) -> Observer {
        Observer {
            channel,
            input,
            requests: 0,
            hooks: Vec::new(),
            functions: Vec::new(),
            instructions: Vec::new(),
            positions: HashMap::new(),
            table: 0,
            handlers: HashMap::new(),
            gates: Vec::new(),
            begun: None,
            entry: 0,
            target: 0,
            is_recording: false,
            interrupts: 0,
            iterations: 0,
            last_repeated: (0, 0),
        }
    }

    /// Keeps an instruction and returns its position.
    pub fn keep(&mut self, instruction: Instruction) -> u32 {
        *self.positions.entry(instruction).or_insert_with(|| {
            self.instructions.push(instruction);
            self.instructions.len() as u32 - 1
        })
    }

    /// Returns the vector whose handler is at an address.
    pub fn handler_at(&mut self, address: u64, processor: &mut impl Processor) -> Option<u8> {
        if address < KERNEL || self.table == 0 {
            return None;
        }
        self.read_gates(processor);
        self.handlers.get(&address).copied()
    }

    /// Returns the number of the hook at an address.
    pub fn hook_at(&self, address: u64) -> Option<u8> {
        // A few hooks are compared in less time than one address is hashed.
        self.hooks.iter().find(|hook| hook.0 == address).map(|hook| hook.1)
    }

    /// Whether a direct jump of the kernel leads to the start of another function.
    pub fn leaves_function(&self, address: u64, target: u64) -> bool {
        let own = self.functions.partition_point(|&function| function <= address);
        own.checked_sub(1).is_none_or(|own| self.functions[own] != target)
            && self.functions.binary_search(&target).is_ok()
    }

    /// An instruction that sets the table of interrupts has read a limit or an address.
    pub fn interrupt_table_read(&mut self, value: u64) {
        // A limit has 16 bits.
        if value >= KERNEL && value.is_multiple_of(16) {
            self.table = value;
        }
    }

    /// Reads the table again if it has changed: systems register handlers at any time.
    fn read_gates(&mut self, processor: &mut impl Processor) {
        let Some(bytes) = processor.memory(self.table, VECTORS * GATE) else { return };
        if bytes == self.gates {
            return;
        }
        self.gates.clear();
        self.gates.extend_from_slice(bytes);
        self.handlers.clear();
        for (vector, gate) in self.gates.chunks_exact(GATE).enumerate() {
            let [a, b, _, _, _, kind, c, d, e, f, g, h, ..] = *gate else { continue };
            let is_present = kind & 0x80 != 0;
            let address = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            if is_present && address >= KERNEL {
                self.handlers.entry(address).or_insert(vector as u8);
            }
        }
    }

    /// An instruction with an effect is about to execute.
    pub fn begins(&mut self, position: u32, processor: &mut impl Processor) {
        let Some(&instruction) = self.instructions.get(position as usize) else { return };
        let Instruction { length, effect: Some(effect), .. } = instruction else { return };
        if !self.is_recording && instruction.address >= KERNEL {
            self.record_from(instruction.current(processor), processor);
        }
        if !self.is_recording || !self.channel.is_open() {
            return;
        }
        let address = instruction.current(processor);
        let sp = processor.register(RSP);
        let mut record = Record {
            length,
            pc_before: address,
            sp_before: sp,
            ..Record::new(Kind::Load, self.transition(processor))
        };
        record.kind = match effect {
            Effect::FarReturn => {
                record.pc_after = words(processor, sp)[0];
                record.sp_after = sp.wrapping_add(16);
                Kind::FarReturn
            }
            Effect::LoadsStackPointer => {
                record.pc_after = address.wrapping_add(u64::from(length));
                Kind::Load
            }
            Effect::SystemCall => {
                record.pc_after = self.entry;
                record.sp_after = sp;
                Kind::SystemCall
            }
            Effect::SystemReturn => {
                record.pc_after = processor.register(RCX);
                record.sp_after = sp;
                Kind::SystemReturn
            }
            Effect::InterruptReturn => {
                let [pc, selector, _, sp_after, _] = words(processor, sp);
                (record.pc_after, record.sp_after) = (pc, sp_after);
                record.ring_after = selector as u8 & 3;
                Kind::InterruptReturn
            }
            Effect::SetsAddressSpace { register } => {
                record.sp_after = processor.register(register);
                Kind::Space
            }
            Effect::SetsModelRegister => {
                if processor.register(RCX) & 0xffff_ffff == ENTRY {
                    self.entry = processor.register(RDX) << 32 | processor.register(RAX) & 0xffff_ffff;
                }
                return;
            }
            Effect::Call(_)
            | Effect::Jump(_)
            | Effect::Return { .. }
            | Effect::SetsInterruptTable
            | Effect::Repeated => return,
        };
        self.send_begun(sp);
        self.begun = Some(record);
    }

    /// The instruction that has begun is complete. `sp` is the stack pointer before the next one.
    fn send_begun(&mut self, sp: u64) {
        if let Some(mut begun) = self.begun.take() {
            if begun.sp_after == 0 {
                begun.sp_after = sp;
            }
            self.send(begun);
        }
    }

    /// A direct call in the text of the kernel has stored its return address in a slot.
    pub fn called(&mut self, call: DirectCall, slot: u64, processor: &mut impl Processor) {
        let address = call.address();
        if self.records(address, processor) {
            let target = address.wrapping_add(DirectCall::LENGTH).wrapping_add_signed(call.distance());
            self.send_call((address, DirectCall::LENGTH as u8), slot, target, processor);
        }
    }

    /// A return that frees nothing else has read its return address from a slot. `value` reads it, which takes
    /// as long as all else.
    pub fn returned<P: Processor>(
        &mut self,
        plain: PlainReturn,
        slot: u64,
        value: impl FnOnce(&mut P) -> u64,
        processor: &mut P,
    ) {
        let address = plain.address();
        if self.records(address, processor) {
            let target = value(processor);
            self.send_return((address, plain.length()), (slot, 0), target, processor);
        }
    }

    /// Another call or return, or a jump, has accessed memory: the return address on the stack, or before that
    /// the target.
    pub fn accessed(
        &mut self,
        position: u32,
        is_store: bool,
        address: u64,
        value: u64,
        processor: &mut impl Processor,
    ) {
        let Some(&instruction) = self.instructions.get(position as usize) else { return };
        if !self.records(instruction.address, processor) {
            return;
        }
        let length = instruction.length;
        match instruction.effect {
            Some(Effect::Return { freed }) => {
                self.send_return((instruction.address, length), (address, freed), value, processor);
            }
            Some(Effect::Jump(_)) => self.send_jump(&instruction, value, processor),
            Some(Effect::Call(_)) if !is_store => self.target = value,
            Some(Effect::Call(target)) => {
                let target = match target {
                    Target::Relative(distance) => value.wrapping_add_signed(i64::from(distance)),
                    Target::Register(number) => processor.register(number),
                    Target::Memory => self.target,
                };
                let start = value.wrapping_sub(u64::from(length));
                self.send_call((start, length), address, target, processor);
            }
            _ => {}
        }
    }

    /// A jump of the kernel is about to execute. Its target is not in memory.
    pub fn jumps(&mut self, position: u32, processor: &mut impl Processor) {
        let Some(&instruction) = self.instructions.get(position as usize) else { return };
        let target = match instruction.effect {
            Some(Effect::Jump(Target::Relative(distance))) => {
                let next = instruction.address.wrapping_add(u64::from(instruction.length));
                next.wrapping_add_signed(i64::from(distance))
            }
            Some(Effect::Jump(Target::Register(number))) => processor.register(number),
            _ => return,
        };
        if self.records(instruction.address, processor) {
            self.send_jump(&instruction, target, processor);
        }
    }

    /// Whether the instruction at an address is recorded.
    fn records(&mut self, address: u64, processor: &mut impl Processor) -> bool {
        if !self.is_recording && address >= KERNEL {
            self.record_from(address, processor);
        }
        self.is_recording && self.channel.is_open()
    }

    fn send_call(
        &mut self,
        (address, length): (u64, u8),
        slot: u64,
        target: u64,
        processor: &mut impl Processor,
    ) {
        let sp_before = slot.wrapping_add(8);
        self.send_begun(sp_before);
        self.send(Record {
            length,
            pc_before: address,
            sp_before,
            pc_after: target,
            sp_after: slot,
            ..Record::new(Kind::Call, self.transition(processor))
        });
    }

    fn send_jump(&mut self, instruction: &Instruction, target: u64, processor: &mut impl Processor) {
        let sp = processor.register(RSP);
        self.send_begun(sp);
        self.send(Record {
            length: instruction.length,
            pc_before: instruction.address,
            sp_before: sp,
            pc_after: target,
            sp_after: sp,
            ..Record::new(Kind::Jump, self.transition(processor))
        });
    }

    fn send_return(
        &mut self,
        (address, length): (u64, u8),
        (slot, freed): (u64, u16),
        target: u64,
        processor: &mut impl Processor,
    ) {
        self.send_begun(slot);
        self.send(Record {
            length,
            pc_before: address,
            sp_before: slot,
            pc_after: target,
            sp_after: slot.wrapping_add(8 + u64::from(freed)),
            ..Record::new(Kind::Return, self.transition(processor))
        });
    }

    /// The instruction after one that loads the stack pointer is about to execute.
    pub fn completed(&mut self, processor: &mut impl Processor) {
        if self.begun.is_some() {
            let sp = processor.register(RSP);
            self.send_begun(sp);
        }
    }

    /// The first instruction of a handler is about to execute.
    pub fn handler_begins(&mut self, position: u32, processor: &mut impl Processor) {
        let Some(&Instruction { address, number: vector, .. }) = self.instructions.get(position as usize)
        else {
            return;
        };
        let sp = processor.register(RSP);
        let slot = if vector < 64 && WITH_ERROR >> vector & 1 != 0 { 8 } else { 0 };
        let [pc, selector, flags, sp_before, _] = words(processor, sp.wrapping_add(slot));
        // A jump to the handler, such as that from one handler to another one, has another stack.
        if selector & !3 >= 0x100 || flags & 2 == 0 || flags >> 22 != 0 {
            return;
        }
        if !self.is_recording {
            self.record_from(address, processor);
        }
        if self.begun.is_some_and(|begun| begun.pc_before == pc && begun.sp_before == sp_before) {
            self.begun = None;
        }
        self.send_begun(sp_before);
        // The first instruction of the handler is counted later.
        let transition = processor.executed() + self.interrupts - self.iterations;
        self.interrupts += 1;
        self.last_repeated = (0, 0);
        self.send(Record {
            ring_before: selector as u8 & 3,
            detail: vector,
            extra: slot as u8,
            pc_before: pc,
            sp_before,
            pc_after: address,
            sp_after: sp,
            ..Record::new(Kind::Interrupt, transition)
        });
    }

    /// The first instruction of a function with a hook is about to execute.
    pub fn hook_begins(&mut self, position: u32, processor: &mut impl Processor) {
        let Some(&Instruction { address, number, .. }) = self.instructions.get(position as usize) else {
            return;
        };
        if !self.is_recording || !self.channel.is_open() {
            return;
        }
        let sp = processor.register(RSP);
        self.send_begun(sp);
        self.send(Record {
            extra: number,
            pc_before: address,
            sp_before: processor.register(RDI),
            sp_after: processor.register(RSI),
            ..Record::new(Kind::Hooked, self.transition(processor))
        });
        if self.hooks.iter().any(|&(at, _, waits)| at == address && waits) {
            self.serve(processor);
        }
    }

    /// Begins to record at an instruction of the kernel.
    fn record_from(&mut self, address: u64, processor: &mut impl Processor) {
        self.is_recording = true;
        self.send(Record { pc_before: address, ..Record::new(Kind::Begun, self.transition(processor)) });
        self.serve(processor);
    }

    /// Serves requests of the recorder until the system shall continue.
    fn serve(&mut self, processor: &mut impl Processor) {
        self.channel.flush();
        while self.channel.is_open() {
            self.channel.await_request(self.requests);
            self.requests += 1;
            let mut bytes = [0; REQUEST_LENGTH];
            let request = self.input.read_exact(&mut bytes).ok().and_then(|()| Request::from_bytes(&bytes));
            match request {
                Some(Request::Read { address, length }) => {
                    let length = length.min(MEMORY_MAX) as usize;
                    let read = processor.memory(address, length).unwrap_or_default();
                    let header = Record { sp_before: read.len() as u64, ..Record::new(Kind::Memory, 0) };
                    self.channel.send(header);
                    self.channel.send_bytes(read);
                    self.channel.flush();
                }
                Some(Request::Hook { address, number, waits }) => {
                    self.hooks.push((address, number, waits));
                }
                Some(Request::Functions { count }) => {
                    let mut bytes = vec![0; 8 * count.min(FUNCTIONS_MAX) as usize];
                    match self.input.read_exact(&mut bytes) {
                        Ok(()) => {
                            let (words, _) = bytes.as_chunks::<8>();
                            self.functions = words.iter().map(|&word| u64::from_ne_bytes(word)).collect();
                        }
                        Err(_) => self.channel.close(),
                    }
                }
                Some(Request::Continue) => return,
                // The recorder has ended. The system continues.
                None => self.channel.close(),
            }
        }
    }

    /// A repeated instruction is about to execute, for the first time or again.
    pub fn repeated(&mut self, position: u32, processor: &mut impl Processor) {
        let Some(instruction) = self.instructions.get(position as usize) else { return };
        let executed = processor.executed();
        if self.last_repeated == (instruction.address, executed.wrapping_sub(1)) {
            self.iterations += 1;
        }
        self.last_repeated = (instruction.address, executed);
    }

    /// The execution has ended.
    pub fn exited(&mut self, processor: &mut impl Processor) {
        let executed = processor.executed();
        self.send_begun(0);
        self.send(Record {
            sp_before: executed,
            pc_after: self.iterations,
            sp_after: self.interrupts,
            ..Record::new(Kind::End, executed + self.interrupts - self.iterations)
        });
        self.channel.flush();
    }

    /// The number of transitions before the instruction that is about to execute, which has been
    /// counted.
    fn transition(&self, processor: &impl Processor) -> u64 {
        (processor.executed() + self.interrupts).saturating_sub(1 + self.iterations)
    }

    fn send(&mut self, record: Record) {
        self.channel.send(record);
    }
}

/// Reads the five words that an interrupt stores. Words that cannot be read are 0.
fn words(processor: &mut impl Processor, address: u64) -> [u64; 5] {
    let bytes = processor.memory(address, 40).unwrap_or(&[0; 40]);
    std::array::from_fn(|index| {
        bytes[8 * index..].first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::tests::{channel, read};
    use crate::protocol::Ring;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const STACK: u64 = 0xffff_c900_0000_4000;
    const TABLE: u64 = 0xffff_fe00_0000_0000;
    const HANDLER: u64 = TEXT + 0x4000;

    /// A processor whose registers and memory a test sets.
    #[derive(Default)]
    struct Machine {
        registers: [u64; 16],
        pc: u64,
        executed: u64,
        memory: HashMap<u64, Vec<u8>>,
    }

    impl Machine {
        fn words(&mut self, address: u64, words: &[u64]) {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.memory.insert(address, bytes);
        }
    }

    impl Processor for Machine {
        fn register(&mut self, number: u8) -> u64 {
            self.registers[usize::from(number)]
        }
        fn instruction_pointer(&mut self) -> u64 {
            self.pc
        }
        fn memory(&mut self, address: u64, length: usize) -> Option<&[u8]> {
            self.memory.get(&address)?.get(..length)
        }
        fn executed(&self) -> u64 {
            self.executed
        }
    }

    struct Run {
        observer: Observer,
        machine: Machine,
        ring: &'static Ring,
        _announced: std::io::PipeReader,
        requests: std::io::PipeWriter,
    }

    impl Run {
        fn new() -> Run {
            let (channel, ring, announced) = channel();
            let (input, mut requests) = std::io::pipe().unwrap();
            let observer = Observer::new(channel, File::from(OwnedFd::from(input)));
            // The kernel has begun.
            requests.write_all(&Request::Continue.to_bytes()).unwrap();
            Run { observer, machine: Machine::default(), ring, _announced: announced, requests }
        }

        fn keep(&mut self, address: u64, length: u8, effect: Option<Effect>) -> u32 {
            self.observer.keep(Instruction { address, block: address, length, effect, number: 14 })
        }

        /// An instruction begins.
        fn begins(&mut self, pc: u64, sp: u64, effect: Effect) {
            let position = self.keep(pc, 3, Some(effect));
            self.machine.executed += 1;
            (self.machine.pc, self.machine.registers[4]) = (pc, sp);
            self.observer.begins(position, &mut self.machine);
        }

        /// The instruction after a load is in the same block.
        fn completes(&mut self, sp: u64) {
            self.machine.registers[4] = sp;
            self.observer.completed(&mut self.machine);
        }

        /// The processor has stored a frame and continues at the handler.
        fn interrupt(&mut self, frame: [u64; 5], sp: u64) {
            self.machine.words(sp + 8, &frame);
            let position = self.keep(HANDLER, 0, None);
            (self.machine.pc, self.machine.registers[4]) = (HANDLER, sp);
            self.observer.handler_begins(position, &mut self.machine);
        }

        /// Ends the run. Returns the records as text, without that of the begin: type, transition, and the
        /// registers before and after.
        fn end(mut self) -> Vec<String> {
            self.observer.exited(&mut self.machine);
            let records = read(self.ring, 0).into_iter();
            let records = records.map(|words| Record::from_words(words).unwrap());
            records
                .filter(|record| record.kind != Kind::Begun)
                .map(|record| {
                    assert_eq!(Record::from_words(record.to_words()), Some(record));
                    let Record { kind, transition, pc_before, sp_before, pc_after, sp_after, .. } = record;
                    format!("{kind:?} {transition} {pc_before:x}/{sp_before:x} {pc_after:x}/{sp_after:x}")
                })
                .collect()
        }
    }

    #[test]
    fn calls_and_returns_are_complete_when_they_access_the_stack() {
        let mut run = Run::new();
        let direct = run.keep(TEXT, 5, Some(Effect::Call(Target::Relative(0x100))));
        let indirect = run.keep(TEXT + 0x10, 6, Some(Effect::Call(Target::Memory)));
        let register = run.keep(TEXT + 0x20, 2, Some(Effect::Call(Target::Register(3))));
        let back = run.keep(TEXT + 0x30, 3, Some(Effect::Return { freed: 16 }));
        let machine = &mut run.machine;
        machine.registers[3] = TEXT + 0x700;
        for (position, is_store, value) in [
            (direct, true, TEXT + 5),
            (indirect, false, TEXT + 0x600),
            (indirect, true, TEXT + 0x16),
            // The same memory at another address.
            (register, true, TEXT + 0x20_0022),
            (back, false, TEXT + 5),
        ] {
            machine.executed += u64::from(is_store || position == back);
            run.observer.accessed(position, is_store, STACK, value, machine);
        }
        assert_eq!(
            run.end(),
            [
                "Call 0 ffffffff81000000/ffffc90000004008 ffffffff81000105/ffffc90000004000",
                "Call 1 ffffffff81000010/ffffc90000004008 ffffffff81000600/ffffc90000004000",
                "Call 2 ffffffff81200020/ffffc90000004008 ffffffff81000700/ffffc90000004000",
                "Return 3 ffffffff81000030/ffffc90000004000 ffffffff81000005/ffffc90000004018",
                "End 4 0/4 0/0",
            ]
        );
    }

    #[test]
    fn frequent_calls_and_returns_are_words() {
        let mut run = Run::new();
        let call = DirectCall::new(TEXT, 5, -0x100).unwrap();
        run.machine.executed = 1;
        run.observer.called(call, STACK, &mut run.machine);
        run.machine.executed = 2;
        run.observer.returned(PlainReturn::new(TEXT - 0xf0, 1), STACK, |_| TEXT + 5, &mut run.machine);
        run.machine.executed = 3;
        run.observer.returned(PlainReturn::new(0x7fff_ffff_f000, 15), 0x1000, |_| 7, &mut run.machine);
        // Other addresses and lengths.
        assert_eq!(DirectCall::new(0xffff_c900_0000_0000, 5, 1), None);
        assert_eq!(DirectCall::new(0x40_1000, 5, 1), None);
        assert_eq!(DirectCall::new(TEXT, 6, 1), None);
        assert_eq!(
            run.end(),
            [
                "Call 0 ffffffff81000000/ffffc90000004008 ffffffff80ffff05/ffffc90000004000",
                "Return 1 ffffffff80ffff10/ffffc90000004000 ffffffff81000005/ffffc90000004008",
                "Return 2 7ffffffff000/1000 7/1008",
                "End 3 0/3 0/0",
            ]
        );
    }

    #[test]
    fn jumps_of_the_kernel_to_other_functions_are_recorded() {
        let mut run = Run::new();
        run.observer.record_from(TEXT, &mut run.machine);
        let functions = [TEXT + 0x100, TEXT + 0x200, TEXT + 0x300];
        let request = Request::Functions { count: 3 };
        assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        run.requests.write_all(&request.to_bytes()).unwrap();
        run.requests.write_all(&functions.map(u64::to_ne_bytes).concat()).unwrap();
        run.requests.write_all(&Request::Continue.to_bytes()).unwrap();
        run.observer.serve(&mut run.machine);
        let leaves = |at, to| run.observer.leaves_function(TEXT + at, TEXT + to);
        assert_eq!(
            [(0x150, 0x200), (0x90, 0x100), (0x310, 0x100)].map(|(at, to)| leaves(at, to)),
            [true, true, true]
        );
        // To the start of the own function, and into functions.
        assert_eq!([(0x250, 0x200), (0x100, 0x201)].map(|(at, to)| leaves(at, to)), [false, false]);
        let [direct, register, memory] = [Target::Relative(-0x85), Target::Register(3), Target::Memory]
            .map(|target| run.keep(TEXT + 0x280, 5, Some(Effect::Jump(target))));
        let machine = &mut run.machine;
        (machine.registers[3], machine.registers[4]) = (TEXT + 0x100, STACK);
        machine.executed = 1;
        run.observer.jumps(direct, machine);
        machine.executed = 2;
        run.observer.jumps(register, machine);
        machine.executed = 3;
        run.observer.accessed(memory, false, TEXT + 0x900, TEXT + 0x300, machine);
        assert_eq!(
            run.end(),
            [
                "Jump 0 ffffffff81000280/ffffc90000004000 ffffffff81000200/ffffc90000004000",
                "Jump 1 ffffffff81000280/ffffc90000004000 ffffffff81000100/ffffc90000004000",
                "Jump 2 ffffffff81000280/ffffc90000004000 ffffffff81000300/ffffc90000004000",
                "End 3 0/3 0/0",
            ]
        );
    }

    #[test]
    fn effects_are_predicted_from_registers_and_memory() {
        let mut run = Run::new();
        run.begins(TEXT, 0x1000, Effect::LoadsStackPointer);
        run.completes(STACK);
        // At the end of a block, the next record shows the stack pointer.
        run.begins(TEXT + 3, STACK, Effect::LoadsStackPointer);
        run.machine.words(STACK - 64, &[0x40_1000, 0x33, 0x202, 0x7ffe_0000, 0x2b]);
        run.begins(TEXT + 9, STACK - 64, Effect::InterruptReturn);
        for (register, value) in [(0, 0x8100_1000), (1, ENTRY), (2, 0xffff_ffff)] {
            run.machine.registers[register] = value;
        }
        run.begins(TEXT + 12, STACK, Effect::SetsModelRegister);
        run.begins(0x40_1000, 0x7ffe_0000, Effect::SystemCall);
        run.machine.registers[0] = 0x1234_5001;
        run.begins(TEXT + 15, STACK, Effect::SetsAddressSpace { register: 0 });
        run.machine.registers[1] = 0x40_1002;
        run.begins(TEXT + 18, 0x7ffe_0000, Effect::SystemReturn);
        run.machine.words(STACK, &[TEXT + 0x800, 0x10, 0, 0, 0]);
        run.begins(TEXT + 21, STACK, Effect::FarReturn);
        assert_eq!(
            run.end(),
            [
                "Load 0 ffffffff81000000/1000 ffffffff81000003/ffffc90000004000",
                "Load 1 ffffffff81000003/ffffc90000004000 ffffffff81000006/ffffc90000003fc0",
                "InterruptReturn 2 ffffffff81000009/ffffc90000003fc0 401000/7ffe0000",
                "SystemCall 4 401000/7ffe0000 ffffffff81001000/7ffe0000",
                "Space 5 ffffffff8100000f/ffffc90000004000 0/12345001",
                "SystemReturn 6 ffffffff81000012/7ffe0000 401002/7ffe0000",
                "FarReturn 7 ffffffff81000015/ffffc90000004000 ffffffff81000800/ffffc90000004010",
                "End 8 0/8 0/0",
            ]
        );
    }

    /// A page fault, whose handler has an error code above the saved registers.
    #[test]
    fn an_interrupt_states_what_it_interrupted() {
        let frame = |pc, sp| [pc, 0x10, 0x246, sp, 0x18];
        let mut run = Run::new();
        // The load faults and is repeated later.
        run.begins(TEXT, STACK, Effect::LoadsStackPointer);
        run.interrupt(frame(TEXT, STACK), STACK - 0x30);
        // The load is complete, and an interrupt follows.
        run.begins(TEXT, STACK, Effect::LoadsStackPointer);
        run.interrupt(frame(TEXT + 3, STACK - 0x800), STACK - 0x830);
        // No saved registers: a jump to the handler.
        run.begins(TEXT, STACK, Effect::LoadsStackPointer);
        run.interrupt([0; 5], STACK - 0x100);
        run.completes(STACK - 0x100);
        assert_eq!(
            run.end(),
            [
                "Interrupt 1 ffffffff81000000/ffffc90000004000 ffffffff81004000/ffffc90000003fd0",
                "Load 2 ffffffff81000000/ffffc90000004000 ffffffff81000003/ffffc90000003800",
                "Interrupt 3 ffffffff81000003/ffffc90000003800 ffffffff81004000/ffffc900000037d0",
                "Load 4 ffffffff81000000/ffffc90000004000 ffffffff81000003/ffffc90000003f00",
                "End 5 0/3 0/2",
            ]
        );
    }

    #[test]
    fn requests_are_served_while_the_system_waits() {
        let mut run = Run::new();
        run.begins(TEXT, STACK, Effect::LoadsStackPointer);
        run.machine.words(STACK, &[7, 0x7777]);
        for request in [
            Request::Hook { address: TEXT + 0x40, number: 200, waits: true },
            Request::Hook { address: TEXT + 0x80, number: 3, waits: false },
            Request::Read { address: STACK, length: 16 },
            Request::Read { address: STACK + 1, length: 1 },
            Request::Continue,
        ] {
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
            run.requests.write_all(&request.to_bytes()).unwrap();
        }
        run.observer.serve(&mut run.machine);
        let [waiting, plain] = [(TEXT + 0x40, 200), (TEXT + 0x80, 3)].map(|(address, number)| {
            assert_eq!(run.observer.hook_at(address), Some(number));
            run.observer.keep(Instruction { address, block: address, length: 0, effect: None, number })
        });
        assert_eq!(run.observer.hook_at(TEXT), None);
        (run.machine.registers[7], run.machine.registers[6]) = (0x77, 0x66);
        run.machine.executed += 1;
        run.requests.write_all(&Request::Continue.to_bytes()).unwrap();
        run.observer.hook_begins(waiting, &mut run.machine);
        run.observer.hook_begins(plain, &mut run.machine);
        assert_eq!(
            run.end(),
            [
                // 16 bytes follow, which this test reads as a record.
                "Memory 0 0/10 0/0",
                "Interrupt 30583 0/0 0/0",
                "Memory 0 0/0 0/0",
                "Load 0 ffffffff81000000/ffffc90000004000 ffffffff81000003/ffffc90000004000",
                "Hooked 1 ffffffff81000040/77 0/66",
                "Hooked 1 ffffffff81000080/77 0/66",
                "End 2 0/2 0/0",
            ]
        );
    }

    #[test]
    fn iterations_are_no_transitions() {
        let mut run = Run::new();
        let copy = run.keep(TEXT, 2, Some(Effect::Repeated));
        for (others, times) in [(0, 3), (1, 1), (0, 1)] {
            run.machine.executed += others;
            for _ in 0..times {
                run.machine.executed += 1;
                run.observer.repeated(copy, &mut run.machine);
            }
        }
        // Three iterations, another instruction, and two more.
        assert_eq!(run.end(), ["End 3 0/6 3/0"]);
    }

    #[test]
    fn handlers_are_those_of_the_table() {
        let mut run = Run::new();
        assert_eq!(run.observer.handler_at(HANDLER, &mut run.machine), None);
        // The operand of `lidt`: the limit and the address.
        run.observer.interrupt_table_read(0xfff);
        run.observer.interrupt_table_read(TABLE);
        let mut gates = vec![0; VECTORS * GATE];
        let [a, b, c, d, e, f, g, h] = HANDLER.to_le_bytes();
        gates[14 * GATE..15 * GATE].copy_from_slice(&[a, b, 0x10, 0, 0, 0x8e, c, d, e, f, g, h, 0, 0, 0, 0]);
        // Not present.
        gates[15 * GATE..16 * GATE].copy_from_slice(&[0, 0, 0x10, 0, 0, 0x0e, c, d, e, f, g, h, 0, 0, 0, 0]);
        run.machine.memory.insert(TABLE, gates);
        assert_eq!(run.observer.handler_at(HANDLER, &mut run.machine), Some(14));
        assert_eq!(run.observer.handler_at(TEXT, &mut run.machine), None);
        assert_eq!(run.observer.handler_at(0x1000, &mut run.machine), None);
    }

    #[test]
    fn nothing_is_recorded_before_the_kernel() {
        let mut run = Run::new();
        run.begins(0x10_0000, 0x7000, Effect::LoadsStackPointer);
        run.completes(0x8000);
        let call = run.keep(0x10_0003, 5, Some(Effect::Call(Target::Relative(0))));
        run.observer.accessed(call, true, 0x7ff8, 0x10_0008, &mut run.machine);
        assert_eq!(run.end(), ["End 1 0/1 0/0"]);
    }
}
