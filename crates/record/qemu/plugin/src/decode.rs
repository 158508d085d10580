//! Classifies 64-bit instructions by their bytes.
//!
//! Recognizes only the instructions that the plugin records. Knows neither lengths nor operands beyond
//! that: the emulator states where an instruction ends. Tests compare it with a complete decoder.

/// The effect of an instruction that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// A near call.
    Call(Target),
    /// A jump. [`effect`] does not return it, because only some jumps are recorded.
    Jump(Target),
    /// A near return that also frees this number of bytes.
    Return {
        /// The bytes after the return address.
        freed: u16,
    },
    /// A far return.
    FarReturn,
    /// Sets the stack pointer to a value that is not relative to the old one.
    LoadsStackPointer,
    /// `syscall`.
    SystemCall,
    /// `sysret`.
    SystemReturn,
    /// `iret`.
    InterruptReturn,
    /// `mov cr3, …`.
    SetsAddressSpace {
        /// The number of the general register with the new value.
        register: u8,
    },
    /// `lidt`.
    SetsInterruptTable,
    /// `wrmsr`.
    SetsModelRegister,
    /// A string instruction that is repeated.
    Repeated,
}

/// The target of a call or a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The distance from the next instruction.
    Relative(i32),
    /// The number of the general register with the address.
    Register(u8),
    /// The address is in memory.
    Memory,
}

/// The prefixes and the opcode of an instruction.
struct Parsed<'a> {
    rex: u8,
    repeats: bool,
    locks: bool,
    /// 0 for one-byte opcodes, 0x0f for two-byte opcodes.
    map: u8,
    opcode: u8,
    /// The bytes from the ModR/M byte or the immediate on.
    rest: &'a [u8],
}

impl Parsed<'_> {
    fn modrm(&self) -> Option<(u8, u8, u8)> {
        let byte = *self.rest.first()?;
        Some((byte >> 6, byte >> 3 & 7, byte & 7))
    }

    /// The general register in the `reg` field.
    fn register(&self) -> Option<u8> {
        Some(self.modrm()?.1 | (self.rex & 4) << 1)
    }

    /// The general register in the `rm` field, if it is a register.
    fn direct(&self) -> Option<u8> {
        let (mode, _, rm) = self.modrm()?;
        (mode == 3).then_some(rm | (self.rex & 1) << 3)
    }

    /// The base register of a memory operand, if it has one.
    fn base(&self) -> Option<u8> {
        let (mode, _, rm) = self.modrm()?;
        let extension = (self.rex & 1) << 3;
        match (mode, rm) {
            (3, _) => None,
            (_, 4) => {
                let base = self.rest.get(1)? & 7;
                (base != 5 || mode != 0).then_some(base | extension)
            }
            (0, 5) => None,
            _ => Some(rm | extension),
        }
    }
}

const RSP: u8 = 4;

/// Returns the effect of the instruction that consists of these bytes.
pub fn effect(bytes: &[u8]) -> Option<Effect> {
    let parsed = parse(bytes)?;
    let is_rsp = |register: Option<u8>| register == Some(RSP);
    let loads = |condition: bool| condition.then_some(Effect::LoadsStackPointer);
    match (parsed.map, parsed.opcode) {
        (0, 0xe8) => {
            let distance = i32::from_le_bytes(*parsed.rest.first_chunk()?);
            Some(Effect::Call(Target::Relative(distance)))
        }
        (0, 0xff) => match parsed.modrm()?.1 {
            2 => Some(Effect::Call(parsed.direct().map_or(Target::Memory, Target::Register))),
            _ => None,
        },
        (0, 0xc3) => Some(Effect::Return { freed: 0 }),
        (0, 0xc2) => Some(Effect::Return { freed: u16::from_le_bytes(*parsed.rest.first_chunk()?) }),
        (0, 0xca | 0xcb) => Some(Effect::FarReturn),
        (0, 0xcf) => Some(Effect::InterruptReturn),
        (0, 0xc9) => Some(Effect::LoadsStackPointer),
        // pop rsp
        (0, 0x5c) => loads(parsed.rex & 1 == 0),
        (0, 0x8f) => loads(parsed.modrm()?.1 == 0 && is_rsp(parsed.direct())),
        // mov
        (0, 0x89 | 0x8c) => loads(is_rsp(parsed.direct())),
        (0, 0x8b | 0x63) => loads(is_rsp(parsed.register())),
        (0, 0xbc) => loads(parsed.rex & 1 == 0),
        (0, 0xc7) => loads(parsed.modrm()?.1 == 0 && is_rsp(parsed.direct())),
        (0, 0x8d) => loads(is_rsp(parsed.register()) && parsed.base() != Some(RSP)),
        // xchg
        (0, 0x87) => loads(is_rsp(parsed.register()) || is_rsp(parsed.direct())),
        (0, 0x94) => loads(parsed.rex & 1 == 0),
        // mov from a control or debug register. The mode is ignored.
        (0x0f, 0x20 | 0x21) => loads(is_rsp(Some(parsed.modrm()?.2 | (parsed.rex & 1) << 3))),
        // cmovcc
        (0x0f, 0x40..=0x4f) => loads(is_rsp(parsed.register())),
        (0x0f, 0x05) => Some(Effect::SystemCall),
        (0x0f, 0x07) => Some(Effect::SystemReturn),
        (0x0f, 0x30) => Some(Effect::SetsModelRegister),
        (0x0f, 0x22) => {
            let number = parsed.register()?;
            let register = parsed.modrm()?.2 | (parsed.rex & 1) << 3;
            (number == 3).then_some(Effect::SetsAddressSpace { register })
        }
        (0x0f, 0x01) => {
            let (mode, operation, _) = parsed.modrm()?;
            (mode != 3 && operation == 3).then_some(Effect::SetsInterruptTable)
        }
        (0, 0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf) => parsed.repeats.then_some(Effect::Repeated),
        _ => None,
    }
}

/// Returns the target of an indirect jump. Programs jump to functions of libraries, kernels to other functions.
pub fn indirect_jump(bytes: &[u8]) -> Option<Target> {
    let parsed = parse(bytes).filter(|parsed| (parsed.map, parsed.opcode) == (0, 0xff))?;
    (parsed.modrm()?.1 == 4).then(|| parsed.direct().map_or(Target::Memory, Target::Register))
}

/// Returns the distance of a direct jump from the next instruction.
pub fn direct_jump(bytes: &[u8]) -> Option<i32> {
    let parsed = parse(bytes).filter(|parsed| parsed.map == 0)?;
    match parsed.opcode {
        0xe9 => Some(i32::from_le_bytes(*parsed.rest.first_chunk()?)),
        0xeb => Some(i32::from(*parsed.rest.first()? as i8)),
        _ => None,
    }
}

/// Whether an instruction certainly completes and continues with the next one: it accesses registers
/// only. Many such instructions are not recognized.
pub fn completes(bytes: &[u8]) -> bool {
    let Some(parsed) = parse(bytes).filter(|parsed| !parsed.locks) else { return false };
    let Some((mode, operation, _)) = parsed.modrm() else {
        return parsed.map == 0 && parsed.opcode == 0x90 && !parsed.repeats;
    };
    let of_registers = mode == 3;
    match (parsed.map, parsed.opcode) {
        // Arithmetic: with a ModR/M byte, or with an immediate.
        (0, 0x00..=0x3f) => match parsed.opcode & 7 {
            0..=3 => of_registers,
            4 | 5 => true,
            _ => false,
        },
        (0, 0x63 | 0x80 | 0x81 | 0x83..=0x85 | 0x88..=0x8b | 0xc0 | 0xc1 | 0xd0..=0xd3) => of_registers,
        (0, 0xc6 | 0xc7) => of_registers && operation == 0,
        (0, 0x8d) => !of_registers,
        (0, 0xb0..=0xbf) => true,
        // Not division.
        (0, 0xf6 | 0xf7) => of_registers && operation < 6,
        (0, 0xfe | 0xff) => of_registers && operation < 2,
        (0x0f, 0x1f) => true,
        (0x0f, 0x40..=0x4f | 0x90..=0x9f | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf) => of_registers,
        _ => false,
    }
}

fn parse(bytes: &[u8]) -> Option<Parsed<'_>> {
    let (mut rex, mut repeats, mut locks) = (0, false, false);
    let mut rest = bytes;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            0x66 | 0x67 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 => rex = 0,
            0xf0 => (rex, locks) = (0, true),
            0xf2 | 0xf3 => (rex, repeats) = (0, true),
            0x40..=0x4f => rex = byte,
            0x0f => {
                let (&opcode, rest) = rest.split_first()?;
                return Some(Parsed { rex, repeats, locks, map: 0x0f, opcode, rest });
            }
            opcode => return Some(Parsed { rex, repeats, locks, map: 0, opcode, rest }),
        }
    }
}
