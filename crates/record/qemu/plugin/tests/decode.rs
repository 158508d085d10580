//! Compares the classification of instructions with a complete decoder, for encodings from the processor
//! manuals and for random bytes.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use proptest::prelude::*;
use stackhound_qemu_plugin::decode::{Effect, Target, completes, direct_jump, effect, indirect_jump};

#[test]
fn instructions_have_effects() {
    use Effect::*;
    let rows: &[(&str, &[u8], Option<Effect>)] = &[
        ("call rel32", &[0xe8, 4, 0, 0, 0], Some(Call(Target::Relative(4)))),
        ("call rax", &[0xff, 0xd0], Some(Call(Target::Register(0)))),
        ("call r10", &[0x41, 0xff, 0xd2], Some(Call(Target::Register(10)))),
        ("bnd call [rip+0]", &[0xf2, 0xff, 0x15, 0, 0, 0, 0], Some(Call(Target::Memory))),
        ("notrack call rdx", &[0x3e, 0xff, 0xd2], Some(Call(Target::Register(2)))),
        ("call far [rax]", &[0xff, 0x18], None),
        ("ret", &[0xc3], Some(Return { freed: 0 })),
        ("rep ret", &[0xf3, 0xc3], Some(Return { freed: 0 })),
        ("ret 16", &[0xc2, 16, 0], Some(Return { freed: 16 })),
        ("retfq", &[0x48, 0xcb], Some(FarReturn)),
        ("iretq", &[0x48, 0xcf], Some(InterruptReturn)),
        ("syscall", &[0x0f, 0x05], Some(SystemCall)),
        ("sysretq", &[0x48, 0x0f, 0x07], Some(SystemReturn)),
        ("mov cr3, rax", &[0x0f, 0x22, 0xd8], Some(SetsAddressSpace { register: 0 })),
        ("mov cr3, r12", &[0x41, 0x0f, 0x22, 0xdc], Some(SetsAddressSpace { register: 12 })),
        ("mov cr4, rax", &[0x0f, 0x22, 0xe0], None),
        ("lidt [rsp]", &[0x0f, 0x01, 0x1c, 0x24], Some(SetsInterruptTable)),
        ("wrmsr", &[0x0f, 0x30], Some(SetsModelRegister)),
        ("clac", &[0x0f, 0x01, 0xca], None),
        ("mov rsp, rbp", &[0x48, 0x89, 0xec], Some(LoadsStackPointer)),
        ("mov rsp, cr3", &[0x0f, 0x20, 0xdc], Some(LoadsStackPointer)),
        ("mov rsp, gs:[0x6014]", &[0x65, 0x48, 0x8b, 0x24, 0x25, 0x14, 0x60, 0, 0], Some(LoadsStackPointer)),
        ("leave", &[0xc9], Some(LoadsStackPointer)),
        ("pop rsp", &[0x5c], Some(LoadsStackPointer)),
        ("pop r12", &[0x41, 0x5c], None),
        ("xchg rsp, rax", &[0x48, 0x94], Some(LoadsStackPointer)),
        ("lea rsp, [rbp-0x28]", &[0x48, 0x8d, 0x65, 0xd8], Some(LoadsStackPointer)),
        ("lea rsp, [rsp+rax]", &[0x48, 0x8d, 0x24, 0x04], None),
        ("cmovne rsp, rax", &[0x48, 0x0f, 0x45, 0xe0], Some(LoadsStackPointer)),
        ("rep movsb", &[0xf3, 0xa4], Some(Repeated)),
        ("movsb", &[0xa4], None),
        ("sub rsp, rax", &[0x48, 0x29, 0xc4], None),
        ("and rsp, -16", &[0x48, 0x83, 0xe4, 0xf0], None),
        ("cut off", &[0xe8, 0, 0], None),
        ("nothing", &[], None),
    ];
    for (name, bytes, expected) in rows {
        assert_eq!(effect(bytes), *expected, "{name}");
    }
}

/// The effect that follows from a complete decoding.
fn expected(decoded: &Instruction) -> Option<Effect> {
    let register = |number: Register| number.full_register().number() as u8;
    match decoded.code() {
        Code::Syscall => return Some(Effect::SystemCall),
        Code::Sysretd | Code::Sysretq => return Some(Effect::SystemReturn),
        Code::Iretw | Code::Iretd | Code::Iretq => return Some(Effect::InterruptReturn),
        _ => {}
    }
    match decoded.mnemonic() {
        Mnemonic::Lidt => return Some(Effect::SetsInterruptTable),
        Mnemonic::Mov if decoded.op0_register() == Register::CR3 => {
            return Some(Effect::SetsAddressSpace { register: register(decoded.op1_register()) });
        }
        Mnemonic::Retf => return Some(Effect::FarReturn),
        Mnemonic::Wrmsr => return Some(Effect::SetsModelRegister),
        Mnemonic::Ret => {
            let freed = if decoded.op_count() == 1 { decoded.immediate16() } else { 0 };
            return Some(Effect::Return { freed });
        }
        Mnemonic::Leave => return Some(Effect::LoadsStackPointer),
        Mnemonic::Call if decoded.is_call_far_indirect() => return None,
        Mnemonic::Call if decoded.op0_kind() == OpKind::NearBranch64 => {
            let distance = decoded.near_branch64().wrapping_sub(decoded.next_ip());
            return Some(Effect::Call(Target::Relative(distance as i32)));
        }
        Mnemonic::Call if decoded.op0_kind() == OpKind::Register => {
            return Some(Effect::Call(Target::Register(register(decoded.op0_register()))));
        }
        Mnemonic::Call => return Some(Effect::Call(Target::Memory)),
        _ => {}
    }
    if decoded.is_string_instruction() {
        return (decoded.has_rep_prefix() || decoded.has_repne_prefix()).then_some(Effect::Repeated);
    }
    let relative = matches!(
        decoded.mnemonic(),
        Mnemonic::Push
            | Mnemonic::Pushfq
            | Mnemonic::Pushf
            | Mnemonic::Popfq
            | Mnemonic::Popf
            | Mnemonic::Enter
    );
    let to_rsp =
        decoded.op0_kind() == OpKind::Register && decoded.op0_register().full_register() == Register::RSP;
    let loads = match decoded.mnemonic() {
        _ if relative => false,
        Mnemonic::Pop => to_rsp,
        Mnemonic::Lea => to_rsp && decoded.memory_base() != Register::RSP,
        _ => sets_rsp(decoded),
    };
    loads.then_some(Effect::LoadsStackPointer)
}

/// Whether a move or an exchange writes the stack pointer. Arithmetic on it stays on the stack.
fn sets_rsp(decoded: &Instruction) -> bool {
    use Mnemonic::{Mov, Movsxd, Xchg};
    let is_conditional = decoded.mnemonic() as usize >= Mnemonic::Cmova as usize
        && decoded.mnemonic() as usize <= Mnemonic::Cmovs as usize;
    if !is_conditional && !matches!(decoded.mnemonic(), Mov | Movsxd | Xchg) {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    factory.info(decoded).used_registers().iter().any(|used| {
        let writes = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        writes && used.register() != Register::SPL && used.register().full_register() == Register::RSP
    })
}

fn decode(bytes: &[u8]) -> Option<Instruction> {
    let decoded = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
    (!decoded.is_invalid()).then_some(decoded)
}

/// Prefixes, one or two bytes of opcode, and operands.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let prefix =
        prop::sample::select(vec![0x66, 0xf2, 0xf3, 0x65, 0x3e, 0x40, 0x41, 0x44, 0x48, 0x49, 0x4c, 0x4d]);
    let opcode = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        any::<u8>().prop_map(|byte| vec![0x0f, byte]),
        prop::sample::select(vec![0x89_u8, 0x8b, 0x8d, 0xff, 0x87, 0xc7, 0x5c, 0x94, 0xbc])
            .prop_map(|byte| vec![byte]),
    ];
    let operands = (prop_oneof![any::<u8>(), Just(0xe4), Just(0xec), Just(0x24)], any::<[u8; 10]>());
    (prop::collection::vec(prefix, 0..3), opcode, operands).prop_map(|(prefixes, opcode, (modrm, rest))| {
        prefixes.into_iter().chain(opcode).chain([modrm]).chain(rest).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(50_000) })]

    #[test]
    fn effects_are_those_of_a_complete_decoder(bytes in bytes()) {
        if let Some(decoded) = decode(&bytes) {
            let bytes = &bytes[..decoded.len()];
            // 16-bit and 32-bit operands would leave no stack pointer of 64-bit code.
            let is_narrow = matches!(decoded.mnemonic(), Mnemonic::Call | Mnemonic::Ret) && decoded.stack_pointer_increment().abs() < 8;
            if !is_narrow {
                prop_assert_eq!(effect(bytes), expected(&decoded), "{:02x?} {}", bytes, decoded);
            }
        }
    }

    #[test]
    fn indirect_jumps_are_those_of_a_complete_decoder(bytes in bytes()) {
        if let Some(decoded) = decode(&bytes) {
            let is_jump = decoded.mnemonic() == Mnemonic::Jmp && decoded.is_jmp_near_indirect();
            let expected = is_jump.then(|| match decoded.op0_kind() {
                OpKind::Register => Target::Register(decoded.op0_register().full_register().number() as u8),
                _ => Target::Memory,
            });
            prop_assert_eq!(indirect_jump(&bytes[..decoded.len()]), expected, "{:02x?} {}", bytes, decoded);
        }
    }

    #[test]
    fn direct_jumps_are_those_of_a_complete_decoder(bytes in bytes()) {
        if let Some(decoded) = decode(&bytes) {
            let is_jump = decoded.mnemonic() == Mnemonic::Jmp && decoded.op0_kind() == OpKind::NearBranch64;
            let expected = is_jump.then(|| decoded.near_branch64().wrapping_sub(decoded.next_ip()) as i32);
            prop_assert_eq!(direct_jump(&bytes[..decoded.len()]), expected, "{:02x?} {}", bytes, decoded);
        }
    }

    #[test]
    fn instructions_that_certainly_complete_access_registers_only(bytes in bytes()) {
        if let Some(decoded) = decode(&bytes) && completes(&bytes[..decoded.len()]) {
            let mut factory = InstructionInfoFactory::new();
            let accesses =
                factory.info(&decoded).used_memory().iter().any(|memory| memory.access() != OpAccess::NoMemAccess);
            let special = decoded.is_stack_instruction() || decoded.is_privileged() || decoded.is_string_instruction()
                || decoded.has_lock_prefix();
            let to_special = (0..decoded.op_count()).any(|operand| {
                let register = decoded.op_register(operand);
                decoded.op_kind(operand) == OpKind::Register
                    && (register.is_segment_register() || register.is_cr() || register.is_dr())
            });
            prop_assert!(decoded.flow_control() == FlowControl::Next, "{:02x?} {}", bytes, decoded);
            prop_assert!(!accesses && !special && !to_special, "{:02x?} {}", bytes, decoded);
            prop_assert!(!matches!(decoded.mnemonic(), Mnemonic::Div | Mnemonic::Idiv), "{:02x?} {}", bytes, decoded);
        }
    }
}
