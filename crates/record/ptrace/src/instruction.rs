//! Decoding of instructions, and their effect on the stack.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

/// The effect of an instruction on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Calls a function.
    Call,
    /// Returns.
    Return,
    /// Jumps, conditionally or not.
    Jump,
    /// Calls the system.
    SystemCall,
    /// Sets the stack pointer to a value that is not relative to the old one: `mov rsp, …`,
    /// `leave`, `pop rsp`.
    LoadsStackPointer,
    /// Stops the program for a debugger.
    Breakpoint,
    /// Any other effect, including push and pop.
    Other,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub class: Class,
    /// The length in bytes; 0 if the instruction could not be decoded.
    pub length: u8,
    /// Whether the instruction is repeated, so that each step is one iteration.
    pub repeated: bool,
}

/// The longest instruction, in bytes.
pub(crate) const LENGTH_MAX: usize = 15;

impl Instruction {
    /// An instruction that could not be read or decoded.
    pub(crate) const UNKNOWN: Instruction = Instruction { class: Class::Other, length: 0, repeated: false };

    /// Decodes the instruction at the start of `bytes`.
    pub(crate) fn decode(bytes: &[u8], address: u64) -> Instruction {
        let decoded = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if decoded.is_invalid() {
            return Instruction::UNKNOWN;
        }
        let class = match decoded.flow_control() {
            // The decoder counts system calls as calls.
            _ if matches!(decoded.code(), Code::Syscall | Code::Sysenter) => Class::SystemCall,
            FlowControl::Interrupt if decoded.mnemonic() == Mnemonic::Int && decoded.immediate8() == 0x80 => {
                Class::SystemCall
            }
            FlowControl::Interrupt => Class::Breakpoint,
            FlowControl::Call | FlowControl::IndirectCall => Class::Call,
            FlowControl::Return => Class::Return,
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::ConditionalBranch => Class::Jump,
            _ if loads_stack_pointer(&decoded) => Class::LoadsStackPointer,
            _ => Class::Other,
        };
        let string = decoded.is_string_instruction();
        let repeated = string && (decoded.has_rep_prefix() || decoded.has_repne_prefix());
        Instruction { class, length: decoded.len() as u8, repeated }
    }
}

/// Whether the stack pointer is set to a value that is not relative to the old one. Addition,
/// subtraction and alignment stay on the same stack, whatever the distance.
fn loads_stack_pointer(decoded: &iced_x86::Instruction) -> bool {
    match decoded.mnemonic() {
        Mnemonic::Leave => true,
        Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Popfq | Mnemonic::Enter => false,
        Mnemonic::And | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => false,
        Mnemonic::Pop => decoded.op0_register() == Register::RSP,
        Mnemonic::Lea => {
            decoded.op0_register().full_register() == Register::RSP && decoded.memory_base() != Register::RSP
        }
        _ => {
            let mut factory = InstructionInfoFactory::new();
            let information = factory.info(decoded);
            information.used_registers().iter().any(|used| {
                used.register().full_register() == Register::RSP
                    && matches!(
                        used.access(),
                        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                    )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings from the processor manuals.
    #[test]
    fn instructions_have_classes() {
        use Class::*;
        let rows: &[(&str, &[u8], Class)] = &[
            ("call rel32", &[0xe8, 0, 0, 0, 0], Call),
            ("call rax", &[0xff, 0xd0], Call),
            ("bnd call [rip+0]", &[0xf2, 0xff, 0x15, 0, 0, 0, 0], Call),
            ("notrack call rdx", &[0x3e, 0xff, 0xd2], Call),
            ("ret", &[0xc3], Return),
            ("rep ret", &[0xf3, 0xc3], Return),
            ("bnd ret", &[0xf2, 0xc3], Return),
            ("ret 16", &[0xc2, 16, 0], Return),
            ("jmp rel8", &[0xeb, 0xfe], Jump),
            ("jmp [rip+0]", &[0xff, 0x25, 0, 0, 0, 0], Jump),
            ("je rel32", &[0x0f, 0x84, 0, 0, 0, 0], Jump),
            ("syscall", &[0x0f, 0x05], SystemCall),
            ("int 0x80", &[0xcd, 0x80], SystemCall),
            ("int3", &[0xcc], Breakpoint),
            ("mov rsp, rbp", &[0x48, 0x89, 0xec], LoadsStackPointer),
            ("mov rsp, [rdi+0x30]", &[0x48, 0x8b, 0x67, 0x30], LoadsStackPointer),
            ("leave", &[0xc9], LoadsStackPointer),
            ("pop rsp", &[0x5c], LoadsStackPointer),
            ("xchg rsp, rax", &[0x48, 0x94], LoadsStackPointer),
            ("lea rsp, [rbp-0x28]", &[0x48, 0x8d, 0x65, 0xd8], LoadsStackPointer),
            ("cmovne rsp, rax", &[0x48, 0x0f, 0x45, 0xe0], LoadsStackPointer),
            ("sub rsp, rax", &[0x48, 0x29, 0xc4], Other),
            ("lea rsp, [rsp+rax]", &[0x48, 0x8d, 0x24, 0x04], Other),
            ("lea rax, [rbp+8]", &[0x48, 0x8d, 0x45, 0x08], Other),
            ("lea rsp, [rsp+8]", &[0x48, 0x8d, 0x64, 0x24, 0x08], Other),
            ("sub rsp, 0x28", &[0x48, 0x83, 0xec, 0x28], Other),
            ("add rsp, 0x1000", &[0x48, 0x81, 0xc4, 0, 0x10, 0, 0], Other),
            ("and rsp, -16", &[0x48, 0x83, 0xe4, 0xf0], Other),
            ("push rsp", &[0x54], Other),
            ("push rbp", &[0x55], Other),
            ("pop rbp", &[0x5d], Other),
            ("mov rax, [rsp]", &[0x48, 0x8b, 0x04, 0x24], Other),
            ("mov [rsp], rax", &[0x48, 0x89, 0x04, 0x24], Other),
            ("cmp rsp, rax", &[0x48, 0x39, 0xc4], Other),
            ("endbr64", &[0xf3, 0x0f, 0x1e, 0xfa], Other),
            ("no instruction", &[0x06], Other),
            ("truncated instruction", &[0xe8, 0, 0], Other),
            ("nothing", &[], Other),
        ];
        for (name, bytes, class) in rows {
            let instruction = Instruction::decode(bytes, 0x1000);
            assert_eq!(instruction.class, *class, "{name}");
            let decodable = !matches!(*name, "no instruction" | "truncated instruction" | "nothing");
            assert_eq!(usize::from(instruction.length), if decodable { bytes.len() } else { 0 }, "{name}");
        }
    }

    #[test]
    fn repeated_instructions_are_recognized() {
        for (name, bytes, repeated) in [
            ("rep movsb", &[0xf3, 0xa4][..], true),
            ("repne scasb", &[0xf2, 0xae], true),
            ("rep stosq", &[0xf3, 0x48, 0xab], true),
            ("movsb", &[0xa4], false),
            ("rep ret", &[0xf3, 0xc3], false),
            ("pause", &[0xf3, 0x90], false),
            ("movss xmm0, xmm1", &[0xf3, 0x0f, 0x10, 0xc1], false),
            ("loop rel8", &[0xe2, 0xfe], false),
        ] {
            assert_eq!(Instruction::decode(bytes, 0).repeated, repeated, "{name}");
        }
    }
}
