//! The shapes of system-call stubs, as data.
//!
//! Verified with bytes of real images: x64 of Windows 7 to 10 and of Wine 8, WoW64 of Windows 10,
//! and the return address in x86 of Windows 7. The others are from published disassemblies.

use stackhound_types::Rva;

use super::Path;
use crate::image::Machine;

/// A part of a stub.
#[derive(Clone, Copy)]
enum Part {
    /// These bytes.
    Is(&'static [u8]),
    /// This number of arbitrary bytes.
    Any(usize),
    /// The service number in four bytes.
    Number,
    /// The instruction that enters the kernel.
    Syscall(&'static [u8]),
    /// A call of code that enters the kernel.
    Call(&'static [u8]),
    /// `int 2e`.
    Int2e,
    /// `ret` with or without a number of parameter bytes, as on x86.
    Ret,
}

use Part::{Any, Call, Int2e, Is, Number, Ret, Syscall};

/// `mov r10, rcx` and the opcode of `mov eax`.
const X64_HEAD: Part = Is(&[0x4c, 0x8b, 0xd1, 0xb8]);
const SYSCALL: Part = Syscall(&[0x0f, 0x05]);
/// `test byte [0x7ffe0308], 1` and `jne` over `syscall` and `ret`, for machines that require `int
/// 2e`.
const X64_TEST: Part = Is(&[0xf6, 0x04, 0x25, 0x08, 0x03, 0xfe, 0x7f, 0x01, 0x75, 0x03]);
/// In Wine: `jmp` over a `ret`, and `call [0x7ffe1000]`.
const WINE_TAIL: Part = Is(&[0xeb, 0x01, 0xc3, 0xff, 0x14, 0x25, 0x00, 0x10, 0xfe, 0x7f]);

/// The caller removes the parameters.
const RET: Part = Is(&[0xc3]);

const X64: &[&[Part]] = &[
    // Windows 7 to 8.1
    &[X64_HEAD, Number, SYSCALL, RET],
    // Since Windows 10 1511
    &[X64_HEAD, Number, X64_TEST, SYSCALL, RET, Int2e, RET],
    // Wine
    &[X64_HEAD, Number, X64_TEST, SYSCALL, RET, WINE_TAIL, RET],
];

/// The opcode of `mov eax`.
const X86_HEAD: Part = Is(&[0xb8]);
/// The opcode of `mov edx`.
const MOV_EDX: Part = Is(&[0xba]);
/// `lea edx, [esp + 4]`
const PARAMETERS: Part = Is(&[0x8d, 0x54, 0x24, 0x04]);
/// `call fs:[c0]`
const CALL_WOW64: Part = Call(&[0x64, 0xff, 0x15, 0xc0, 0x00, 0x00, 0x00]);
/// `mov edx, esp`
const STACK_IN_EDX: Part = Is(&[0x8b, 0xd4]);
const SYSENTER: Part = Syscall(&[0x0f, 0x34]);

const X86: &[&[Part]] = &[
    // Windows 2000
    &[X86_HEAD, Number, PARAMETERS, Int2e, Ret],
    // `call edx`: Windows XP; since Windows 10 in 64-bit Windows
    &[X86_HEAD, Number, MOV_EDX, Any(4), Call(&[0xff, 0xd2]), Ret],
    // `call [edx]`: Windows XP SP2 to 7
    &[X86_HEAD, Number, MOV_EDX, Any(4), Call(&[0xff, 0x12]), Ret],
    // Windows 8: `call` of the end of the stub
    &[X86_HEAD, Number, Call(&[0xe8, 0x03, 0, 0, 0]), Is(&[0xc2]), Any(2), STACK_IN_EDX, SYSENTER, Ret],
    &[X86_HEAD, Number, Call(&[0xe8, 0x01, 0, 0, 0]), Is(&[0xc3]), STACK_IN_EDX, SYSENTER, Ret],
    // 64-bit Windows up to 7, with `xor ecx, ecx` or `mov ecx`
    &[X86_HEAD, Number, Is(&[0x33, 0xc9]), PARAMETERS, CALL_WOW64, Is(&[0x83, 0xc4, 0x04]), Ret],
    &[X86_HEAD, Number, Is(&[0xb9]), Any(4), PARAMETERS, CALL_WOW64, Is(&[0x83, 0xc4, 0x04]), Ret],
    // 64-bit Windows 8
    &[X86_HEAD, Number, CALL_WOW64, Ret],
];

/// Returns the number and the paths of the stub at the start of these bytes, if it has a known
/// shape.
pub(super) fn find(machine: Machine, start: Rva, bytes: &[u8]) -> Option<(u32, Path)> {
    match machine {
        Machine::X64 => X64.iter().find_map(|shape| fit(shape, start, bytes)),
        Machine::X86 => X86.iter().find_map(|shape| fit(shape, start, bytes)),
        Machine::Arm64 => arm64(start, bytes),
        Machine::Other(_) => None,
    }
}

fn fit(shape: &[Part], start: Rva, bytes: &[u8]) -> Option<(u32, Path)> {
    let (mut rest, mut number) = (bytes, None);
    let (mut syscall, mut after, mut after_int2e) = (None, None, None);
    let rva = |rest: &[u8]| start.0.checked_add((bytes.len() - rest.len()) as u32).map(Rva);
    for part in shape {
        let part_start = rva(rest)?;
        rest = match part {
            Is(expected) | Syscall(expected) | Call(expected) => rest.strip_prefix(*expected)?,
            Any(len) => rest.get(*len..)?,
            Number => {
                let (value, rest) = rest.split_first_chunk()?;
                number = Some(u32::from_le_bytes(*value));
                rest
            }
            Int2e => rest.strip_prefix(&[0xcd, 0x2e])?,
            Ret => match rest {
                [0xc3, rest @ ..] | [0xc2, _, _, rest @ ..] => rest,
                _ => return None,
            },
        };
        match part {
            // After a call in the same stub, this returns to the address after the call.
            Syscall(_) => {
                syscall = Some(part_start);
                after = after.or(Some(rva(rest)?));
            }
            Call(_) => after = Some(rva(rest)?),
            Int2e => after_int2e = Some(rva(rest)?),
            Is(_) | Any(_) | Number | Ret => {}
        }
    }
    let path =
        Path { end: rva(rest)?, syscall, return_address: after.or(after_int2e)?, int2e_return: after_int2e };
    Some((number?, path))
}

/// `svc` with the number in it, and `ret`.
fn arm64(start: Rva, bytes: &[u8]) -> Option<(u32, Path)> {
    let (svc, rest) = bytes.split_first_chunk()?;
    let svc = u32::from_le_bytes(*svc);
    let is_stub = svc & 0xffe0_001f == 0xd400_0001 && rest.starts_with(&[0xc0, 0x03, 0x5f, 0xd6]);
    let location = |offset| start.0.checked_add(offset).map(Rva);
    let path =
        Path { end: location(8)?, syscall: Some(start), return_address: location(4)?, int2e_return: None };
    is_stub.then_some(((svc >> 5) & 0xffff, path))
}
