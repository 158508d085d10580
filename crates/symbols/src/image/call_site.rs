//! The bytes around a return address, and whether it is preceded by a call.

use iced_x86::{Decoder, DecoderOptions};
use stackhound_types::Rva;

use super::{Image, Machine, u32_at};

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
    (2..=MAX_INSTRUCTION.min(bytes.len())).any(|len| {
        let bytes = &bytes[bytes.len() - len..];
        let instruction = Decoder::new(bits, bytes, DecoderOptions::NONE).decode();
        let code = instruction.code();
        let is_call = code.is_call_near()
            || code.is_call_near_indirect()
            || code.is_call_far()
            || code.is_call_far_indirect();
        is_call && instruction.len() == len
    })
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
