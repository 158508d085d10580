//! The bytes around a return address, and the call before it.

use iced_x86::{Code, Decoder, DecoderOptions, FastFormatter, Instruction};
use stackhound_types::Rva;

use super::{Functions, Image, Machine, u32_at};

/// The bytes around a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSite<'d> {
    /// The bytes before it, in the order of addresses.
    pub before: &'d [u8],
    /// The bytes from it on.
    pub after: &'d [u8],
    /// Whether the bytes before it can be decoded as a call instruction that ends there. `None` for
    /// machines whose instructions are not decoded. The code before the call is not checked, so
    /// bytes of data or of another instruction can be mistaken for a call.
    pub ends_call: Option<bool>,
}

/// Why the call before a return address is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoCall {
    /// The image was not found.
    NoImage,
    /// The image has no bytes there.
    NoBytes,
    /// The bytes before the address are no call.
    NotACall,
    /// They can be decoded as several calls.
    Ambiguous,
    /// Instructions of this processor are not decoded.
    OtherProcessor,
}

impl NoCall {
    /// A description, such as `the image was not found`.
    pub fn description(self) -> &'static str {
        match self {
            NoCall::NoImage => "the image was not found",
            NoCall::NoBytes => "the image has no bytes there",
            NoCall::NotACall => "no call precedes the address",
            NoCall::Ambiguous => "the bytes can be decoded as several calls",
            NoCall::OtherProcessor => "instructions of this processor are not decoded",
        }
    }
}

/// Maximum length of an x86 instruction.
const MAX_INSTRUCTION: usize = 15;

pub(super) fn read<'d>(
    image: &Image<'d>,
    return_address: Rva,
    before: usize,
    after: usize,
) -> Option<CallSite<'d>> {
    let section = image.section_at(return_address)?;
    let bytes = image.bytes_from(section.rva)?;
    let at = usize::try_from(return_address.0 - section.rva.0).ok()?;
    let (head, tail) = bytes.split_at_checked(at)?;
    Some(CallSite {
        before: &head[head.len().saturating_sub(before)..],
        after: &tail[..tail.len().min(after)],
        ends_call: ends_call(image.machine(), head),
    })
}

/// Whether the bytes can be decoded so that they end with a call instruction.
fn ends_call(machine: Machine, bytes: &[u8]) -> Option<bool> {
    match machine {
        Machine::X64 => Some(ends_x86_call(64, bytes)),
        Machine::X86 => Some(ends_x86_call(32, bytes)),
        Machine::Arm64 => Some(ends_arm64_call(bytes)),
        Machine::Other(_) => None,
    }
}

fn ends_x86_call(bits: u32, bytes: &[u8]) -> bool {
    calls_at_end(bits, 0, bytes).next().is_some()
}

/// All calls that the last bytes before an address can be decoded as and that end at the address.
/// Earlier bytes are not considered. `bits` are those of the code: 32 or 64.
pub fn calls_at_end(bits: u32, end: u32, bytes: &[u8]) -> impl Iterator<Item = Instruction> {
    instructions_at_end(bits, end, bytes).filter(is_call)
}

/// All instructions of at least two bytes that the last bytes before an address can be decoded as.
fn instructions_at_end(bits: u32, end: u32, bytes: &[u8]) -> impl Iterator<Item = Instruction> {
    (2..=MAX_INSTRUCTION.min(bytes.len())).filter_map(move |length| {
        let bytes = &bytes[bytes.len() - length..];
        let ip = u64::from(end).wrapping_sub(length as u64);
        let instruction = Decoder::with_ip(bits, bytes, ip, DecoderOptions::NONE).decode();
        (instruction.len() == length).then_some(instruction)
    })
}

/// Whether an instruction is a call.
pub fn is_call(instruction: &Instruction) -> bool {
    let code = instruction.code();
    code.is_call_near() || code.is_call_near_indirect() || code.is_call_far() || code.is_call_far_indirect()
}

/// `syscall`, `sysenter`, and `int 2e`.
fn enters_kernel(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Syscall | Code::Sysenter => true,
        Code::Int_imm8 => instruction.immediate8() == 0x2e,
        _ => false,
    }
}

/// Maximum number of bytes that are decoded from the start of a function.
const MAX_READ: u32 = 1 << 14;

/// The call, or the instruction that enters the kernel, before a return address, as text such as
/// `call qword ptr [rip+0x1a2b]`. Targets of direct calls are offsets in the image.
///
/// The function that contains it is decoded from its start, if it is one of `functions`. Otherwise
/// the bytes must have only one meaning as a call.
pub(super) fn instruction(
    image: &Image<'_>,
    functions: &Functions,
    return_address: Rva,
) -> Result<String, NoCall> {
    let bits = match image.machine() {
        Machine::X64 => 64,
        Machine::X86 => 32,
        Machine::Arm64 | Machine::Other(_) => return Err(NoCall::OtherProcessor),
    };
    let site = read(image, return_address, MAX_INSTRUCTION, 0).filter(|site| !site.before.is_empty());
    let before = site.ok_or(NoCall::NoBytes)?.before;
    let is_wanted = |instruction: &Instruction| is_call(instruction) || enters_kernel(instruction);
    let mut calls = instructions_at_end(bits, return_address.0, before).filter(is_wanted);
    let call = calls.next().ok_or(NoCall::NotACall)?;
    let is_unique = calls.next().is_none();
    let function = functions.at(Rva(return_address.0.saturating_sub(1)));
    let call = match function.map(|function| last_before(image, function.start, bits, return_address)) {
        Some(Some(last)) if is_wanted(&last) => last,
        None if is_unique => call,
        // Code can contain data, which was decoded as instructions.
        _ => return Err(NoCall::Ambiguous),
    };
    let mut formatter = FastFormatter::new();
    let options = formatter.options_mut();
    options.set_rip_relative_addresses(true);
    options.set_use_hex_prefix(true);
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_always_show_memory_size(true);
    let mut text = String::new();
    formatter.format(&call, &mut text);
    Ok(text)
}

/// The instruction that ends at an address, found by decoding its function from the start. `None`
/// if the start is more than 16 KB before the address, or if no instruction ends there.
pub fn last_before(image: &Image<'_>, start: Rva, bits: u32, end: Rva) -> Option<Instruction> {
    let length = end.0.checked_sub(start.0).filter(|length| *length <= MAX_READ)?;
    let bytes = image.bytes_at(start, length as usize)?;
    let mut decoder = Decoder::with_ip(bits, bytes, start.0.into(), DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
    }
    (decoder.ip() == u64::from(end.0)).then_some(instruction)
}

/// `bl`, `blr`, and `blr` with pointer authentication.
fn ends_arm64_call(bytes: &[u8]) -> bool {
    let word = bytes.len().checked_sub(4).and_then(|at| u32_at(bytes, at));
    word.is_some_and(|word| {
        word & 0xfc00_0000 == 0x9400_0000
            || word & 0xffff_fc1f == 0xd63f_0000
            || word & 0xfeff_f800 == 0xd63f_0800
    })
}
