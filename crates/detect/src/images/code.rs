//! Classification of single instructions.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The target of a direct call or jump, as an address of the decoder.
pub(super) fn direct_target(instruction: &Instruction) -> Option<u64> {
    let is_near =
        matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
    is_near.then(|| instruction.near_branch_target())
}

/// The address of the pointer that a call or jump reads, if the instruction alone determines it: an
/// address of the decoder or an absolute one.
pub(super) fn pointer(instruction: &Instruction) -> Option<Pointer> {
    if instruction.op0_kind() != OpKind::Memory || instruction.segment_prefix() != Register::None {
        return None;
    }
    let address = instruction.memory_displacement64();
    if instruction.is_ip_rel_memory_operand() {
        return Some(Pointer::Relative(address));
    }
    let is_fixed =
        instruction.memory_base() == Register::None && instruction.memory_index() == Register::None;
    is_fixed.then_some(Pointer::Absolute(address))
}

pub(super) enum Pointer {
    Relative(u64),
    Absolute(u64),
}

/// Whether bytes end with an instruction that enters the kernel: `syscall`, `sysenter` or `int 2e`.
pub(crate) fn ends_system_call(bytes: &[u8]) -> bool {
    matches!(bytes, [.., 0x0f, 0x05 | 0x34] | [.., 0xcd, 0x2e])
}

/// Code that spoofed stacks use as a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gadget {
    /// A jump to the target of a non-volatile register: `jmp [rbx]`. Compilers do not put it after
    /// a call.
    Jump,
    /// Code that moves the stack pointer or continues through a register: `add rsp, 0x38; ret`,
    /// `jmp rax`. It is common after a call and unusual elsewhere.
    Pivot,
}

/// Maximum number of instructions before the `ret` of a pivot.
const MAX_PIVOT: usize = 10;

pub(super) fn gadget(bits: u32, bytes: &[u8]) -> Option<Gadget> {
    let mut has_pushed = false;
    let mut decoder = Decoder::new(bits, bytes, DecoderOptions::NONE);
    for (index, instruction) in decoder.iter().take(MAX_PIVOT + 1).enumerate() {
        match instruction.flow_control() {
            FlowControl::Return => return Some(Gadget::Pivot),
            FlowControl::IndirectBranch if index == 0 => return jump(&instruction),
            FlowControl::Next => {}
            _ => return None,
        }
        let register = instruction.op0_register();
        let is_stack = matches!(register, Register::RSP | Register::ESP);
        match instruction.mnemonic() {
            Mnemonic::Pop | Mnemonic::Leave if !has_pushed => {}
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Lea | Mnemonic::Mov | Mnemonic::Xchg
                if is_stack && !has_pushed => {}
            Mnemonic::Push if index == 0 && instruction.op0_kind() == OpKind::Register => has_pushed = true,
            _ => return None,
        }
    }
    None
}

fn jump(instruction: &Instruction) -> Option<Gadget> {
    use Register::{EBP, EBX, EDI, ESI, R12, R13, R14, R15, RBP, RBX, RDI, RSI};
    let is_far = !matches!(instruction.code(), Code::Jmp_rm64 | Code::Jmp_rm32);
    if is_far {
        return None;
    }
    if instruction.op0_kind() == OpKind::Register {
        return Some(Gadget::Pivot);
    }
    let is_kept = matches!(
        instruction.memory_base(),
        RBX | RBP | RSI | RDI | R12 | R13 | R14 | R15 | EBX | EBP | ESI | EDI
    );
    let is_plain = instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
        && !instruction.has_segment_prefix();
    (is_kept && is_plain).then_some(Gadget::Jump)
}
