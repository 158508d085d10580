//! The destination of an overwritten stub.

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use stackhound_types::Rva;

use crate::image::{Image, Machine};

/// The effect of the first instructions of a stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct StubStart {
    /// The service number that they load.
    pub number: Option<u32>,
    /// The destination, if they lead elsewhere, which can be unknown.
    pub leads_to: Option<Option<u64>>,
}

/// Maximum number of instructions of a hook. Hooks are short: a jump, possibly through a register
/// or the stack.
const MAX_INSTRUCTIONS: usize = 6;

pub(super) fn read(image: &Image<'_>, start: Rva, bytes: &[u8]) -> StubStart {
    match image.machine() {
        Machine::X64 => x86(image, 64, start, bytes),
        Machine::X86 => x86(image, 32, start, bytes),
        Machine::Arm64 => StubStart { number: None, leads_to: arm64(image, start, bytes) },
        Machine::Other(_) => StubStart::default(),
    }
}

fn x86(image: &Image<'_>, bits: u32, start: Rva, bytes: &[u8]) -> StubStart {
    let mut seen = StubStart::default();
    // Values from previous instructions.
    let mut registers: HashMap<Register, u64> = HashMap::new();
    let mut pushed: Option<u64> = None;
    let ip = image.base().wrapping_add(start.0.into());
    let mut decoder = Decoder::with_ip(bits, bytes, ip, DecoderOptions::NONE);
    for instruction in decoder.iter().take(MAX_INSTRUCTIONS) {
        let value =
            || immediate(&instruction).or_else(|| registers.get(&instruction.op0_register()).copied());
        match (instruction.flow_control(), instruction.code()) {
            (FlowControl::UnconditionalBranch, _) => {
                seen.leads_to = Some(Some(instruction.near_branch_target()));
                return seen;
            }
            (FlowControl::Call, code) if code == Code::Call_rel32_64 || code == Code::Call_rel32_32 => {
                seen.leads_to = Some(Some(instruction.near_branch_target()));
                return seen;
            }
            (FlowControl::IndirectBranch, _) => {
                let register = (instruction.op0_kind() == OpKind::Register)
                    .then(|| registers.get(&instruction.op0_register()).copied());
                seen.leads_to = Some(register.unwrap_or_else(|| pointer(image, bits, &instruction)));
                return seen;
            }
            (FlowControl::Return, _) if pushed.is_some() => {
                seen.leads_to = Some(pushed);
                return seen;
            }
            (FlowControl::Interrupt, Code::Int3) => {
                seen.leads_to = Some(None);
                return seen;
            }
            (FlowControl::Next, code) => match code {
                Code::Mov_r32_imm32 if instruction.op0_register() == Register::EAX => {
                    seen.number = Some(instruction.immediate32());
                    registers.insert(Register::EAX, instruction.immediate32().into());
                    registers.insert(Register::RAX, instruction.immediate32().into());
                }
                Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 => {
                    registers
                        .extend(immediate(&instruction).map(|value| (instruction.op0_register(), value)));
                }
                Code::Pushq_imm32 | Code::Pushd_imm32 | Code::Push_r64 | Code::Push_r32 => pushed = value(),
                // The upper 32 bits of the pushed value, because 64-bit immediates cannot be
                // pushed.
                Code::Mov_rm32_imm32 if is_upper_half(&instruction) => {
                    let upper = u64::from(instruction.immediate32()) << 32;
                    pushed = pushed.map(|lower| upper | lower & 0xffff_ffff);
                }
                // The first instructions of stubs themselves, and padding.
                Code::Mov_r64_rm64 | Code::Mov_rm64_r64 | Code::Nopd | Code::Nopq | Code::Nopw => {}
                _ => return seen,
            },
            _ => return seen,
        }
    }
    seen
}

fn immediate(instruction: &Instruction) -> Option<u64> {
    let last = instruction.op_count().checked_sub(1)?;
    instruction.try_immediate(last).ok()
}

/// `mov dword [rsp + 4]`
fn is_upper_half(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 4
}

/// Reads the target of a jump through memory from the image, before relocation.
fn pointer(image: &Image<'_>, bits: u32, jump: &Instruction) -> Option<u64> {
    let fixed = jump.is_ip_rel_memory_operand()
        || jump.memory_base() == Register::None && jump.memory_index() == Register::None;
    let fixed = fixed && jump.segment_prefix() == Register::None;
    let rva = fixed.then(|| jump.memory_displacement64().checked_sub(image.base()))??;
    let bytes = image.bytes_at(Rva(u32::try_from(rva).ok()?), bits as usize / 8)?;
    let mut buffer = [0; 8];
    buffer[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(buffer)).filter(|pointer| *pointer != 0)
}

/// `b`; `ldr` of a register from memory near the code and `br` to it; `brk`.
fn arm64(image: &Image<'_>, start: Rva, bytes: &[u8]) -> Option<Option<u64>> {
    let words: Vec<u32> = bytes.as_chunks().0.iter().take(2).map(|word| u32::from_le_bytes(*word)).collect();
    let first = *words.first()?;
    if first & 0xfc00_0000 == 0x1400_0000 {
        // A signed number of words in 26 bits.
        let offset = ((first << 6) as i32) >> 4;
        let from = image.base().wrapping_add(start.0.into());
        return Some(Some(from.wrapping_add_signed(offset.into())));
    }
    if first & 0xffe0_001f == 0xd420_0000 {
        return Some(None);
    }
    let register = first & 0x1f;
    let is_load = first & 0xff00_0000 == 0x5800_0000;
    if is_load && *words.get(1)? == 0xd61f_0000 | register << 5 {
        let offset = ((first << 8) as i32) >> 13 << 2;
        let location = start.0.checked_add_signed(offset);
        let pointer = location.and_then(|location| image.bytes_at(Rva(location), 8)?.first_chunk().copied());
        return Some(pointer.map(u64::from_le_bytes));
    }
    None
}
