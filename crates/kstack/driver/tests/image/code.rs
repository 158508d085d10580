//! The machine code, instruction by instruction.

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    OpKind, Register,
};
use object::LittleEndian as LE;
use object::pe::IMAGE_SCN_MEM_EXECUTE;

use crate::{Function, Image, image};

impl Image {
    /// The code between two addresses.
    fn decode(&self, begin: u32, end: u32) -> Vec<Instruction> {
        let bytes = &self.at(begin)[..(end - begin) as usize];
        let base = u64::from(begin);
        let decoded: Vec<Instruction> =
            Decoder::with_ip(64, bytes, base, DecoderOptions::NONE).into_iter().collect();
        assert!(decoded.iter().all(|instruction| !instruction.is_invalid()), "{begin:#x} to {end:#x}");
        decoded
    }

    /// Code that no entry of the function table covers.
    fn between_functions(&self) -> Vec<Function> {
        let mut gaps = Vec::new();
        for section in self.sections() {
            if !section.characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE) {
                continue;
            }
            let start = section.virtual_address.get(LE);
            let end = start + section.virtual_size.get(LE);
            let mut at = start;
            for function in self.functions().iter().filter(|function| (start..end).contains(&function.begin))
            {
                gaps.push(Function { begin: at, end: function.begin, unwind: 0 });
                at = function.end;
            }
            gaps.push(Function { begin: at, end, unwind: 0 });
        }
        gaps.retain(|gap| gap.begin < gap.end);
        gaps
    }

    fn all_code(&self) -> Vec<Instruction> {
        let mut ranges = self.functions();
        ranges.extend(self.between_functions());
        ranges.iter().flat_map(|range| self.decode(range.begin, range.end)).collect()
    }
}

/// Code without unwind data must not change the stack pointer.
#[test]
fn every_function_that_uses_the_stack_has_unwind_data() {
    let Some(image) = image() else { return };
    assert!(!image.functions().is_empty());
    let mut factory = InstructionInfoFactory::new();
    for gap in image.between_functions() {
        for instruction in image.decode(gap.begin, gap.end) {
            let returns = instruction.flow_control() == FlowControl::Return;
            let info = factory.info(&instruction);
            let moves = info.used_registers().iter().any(|used| {
                used.register().full_register() == Register::RSP
                    && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
            });
            assert!(returns || !moves, "{:#x} moves the stack pointer", instruction.ip());
        }
    }
}

/// A function may call an import through a register, which must then have been loaded from the
/// import table.
#[test]
fn indirect_calls_are_checked_or_go_to_imports() {
    let Some(image) = image() else { return };
    let slots: Vec<u32> = image.imports().iter().map(|(.., slot)| *slot).collect();
    let mut factory = InstructionInfoFactory::new();
    let mut checked = 0;
    for function in image.functions().into_iter().chain(image.between_functions()) {
        let code = image.decode(function.begin, function.end);
        for (index, call) in code.iter().enumerate() {
            if call.flow_control() != FlowControl::IndirectCall {
                continue;
            }
            let loaded = match call.op0_kind() {
                OpKind::Register => last_write(&mut factory, &code[..index], call.op0_register()),
                _ => *call,
            };
            assert!(loaded.is_ip_rel_memory_operand(), "{:#x}: {call:?}", call.ip());
            let target = u32::try_from(loaded.ip_rel_memory_address()).unwrap();
            let dispatched = target == image.guard_dispatch() && call.op0_kind() == OpKind::Memory;
            checked += u32::from(dispatched);
            assert!(dispatched || slots.contains(&target), "{:#x}: {call:?}", call.ip());
        }
    }
    // The functions that are looked up: KeRemoveQueueApc and PsGetThreadCreateTime.
    assert!(checked >= 2, "{checked} checked calls");
}

/// The last instruction that writes to a register.
fn last_write(factory: &mut InstructionInfoFactory, code: &[Instruction], register: Register) -> Instruction {
    let writes = |instruction: &&Instruction| {
        factory.info(instruction).used_registers().iter().any(|used| {
            used.register().full_register() == register.full_register()
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
        })
    };
    *code.iter().rev().find(writes).expect("a register that is called was written")
}

/// The instructions use no processor state that the kernel does not save, and none of them is
/// privileged.
#[test]
fn all_instructions_are_allowed_in_the_kernel() {
    let Some(image) = image() else { return };
    let code = image.all_code();
    assert!(code.len() > 500);
    for instruction in code {
        let usual = |feature: &CpuidFeature| {
            use CpuidFeature::*;
            matches!(
                feature,
                INTEL8086 | INTEL186 | INTEL386 | INTEL486 | X64 | CMOV | SSE | SSE2 | MULTIBYTENOP
            )
        };
        assert!(instruction.cpuid_features().iter().all(usual), "{:#x}: {instruction:?}", instruction.ip());
        assert!(!instruction.is_privileged(), "{:#x}", instruction.ip());
        let floating = format!("{:?}", instruction.mnemonic()).to_lowercase();
        let calculates = ["addsd", "subsd", "mulsd", "divsd", "addss", "subss", "mulss", "divss", "cvtsi2sd"];
        assert!(!calculates.contains(&floating.as_str()), "{:#x}: {floating}", instruction.ip());
    }
}

#[test]
fn no_function_needs_a_large_stack_frame() {
    let Some(image) = image() else { return };
    for instruction in image.all_code() {
        let frame =
            instruction.op0_register() == Register::RSP && instruction.op1_kind() == OpKind::Immediate32to64;
        let size = if frame { instruction.immediate(1) } else { 0 };
        // A frame of a page would need __chkstk. Kernel stacks have 24 KiB.
        assert!(size < 1024, "{:#x} takes {size} bytes", instruction.ip());
    }
}
