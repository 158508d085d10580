//! What stands at an address of an image: what function or section it is in, whether a call ends there and where that
//! leads, what is behind it.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use stackhound_symbols::image::Image;
use stackhound_types::Rva;

use super::code::{self, Pointer};
pub(crate) use super::code::{Gadget, ends_system_call};
use super::stubs::StubLocation;
use super::{ImageFile, code::MAX_INSTRUCTION};

/// All about an address of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    /// Whether the image is of 32 bits.
    pub is_32_bit: bool,
    /// What part of the image it is in.
    pub region: Region,
    /// The start of the function that it is in, taken for an instruction.
    pub function: Option<Rva>,
    /// The start of the function that the instruction before it is in.
    pub function_before: Option<Rva>,
    /// What the instruction before it calls. `None` where the file has no bytes before it.
    pub call: Option<Call>,
    /// Whether the instruction before it enters the kernel. `None` where the file has no bytes before it.
    pub enters_kernel: Option<bool>,
    /// What is from it on.
    pub gadget: Option<Gadget>,
    /// What it is to system calls.
    pub stub: StubLocation,
    /// Whether the function begins behind what an interrupt pushes: see [`Image::is_behind_interrupt`].
    pub is_behind_interrupt: bool,
}

/// A part of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Region {
    /// In a function.
    Function,
    /// The first byte of one, before which no call ends.
    FunctionStart,
    /// In code, but in no function that unwind data tells of.
    NoFunction,
    /// In code, and no unwind data tells of any function.
    NoTable,
    /// In code of which the file has no bytes, as that of packed programs.
    NoBytes,
    /// In no code.
    NotCode,
    /// Not in the image.
    Outside,
}

/// What stands before an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// No call.
    None,
    /// A call of this address of the image.
    Direct(Rva),
    /// A call through a pointer that the loader fills, and the number of the service that this is for among those that the
    /// image imports; `None` for other functions.
    Import(Option<u32>),
    /// A call that can lead anywhere.
    Indirect,
}

pub(super) fn read(file: &ImageFile, image: &Image<'_>, rva: Rva) -> Site {
    let before = Rva(rva.0.saturating_sub(1));
    let section = image.section_at(rva);
    let bytes = image.call_site(rva, usize::MAX, 64);
    let before_it = bytes.map(|bytes| bytes.before).filter(|before| !before.is_empty());
    let call = before_it.map(|before| call(file, image, rva, before));
    let function = file.function(rva);
    let region = match section {
        _ if rva.0 >= image.size() => Region::Outside,
        None => Region::NotCode,
        Some(section) if !section.executable => Region::NotCode,
        Some(_) if bytes.is_none_or(|bytes| bytes.after.is_empty()) => Region::NoBytes,
        Some(_) if file.functions.entries.is_empty() => Region::NoTable,
        // A call of a function that never returns can be the last instruction of the function before.
        Some(_) if function == Some(rva) && matches!(call, None | Some(Call::None)) => Region::FunctionStart,
        Some(_) if file.functions.at(before).or(file.functions.at(rva)).is_some() => Region::Function,
        Some(_) => Region::NoFunction,
    };
    Site {
        is_32_bit: file.bits == 32,
        region,
        function,
        function_before: file.function(before),
        call,
        enters_kernel: before_it.map(code::ends_system_call),
        gadget: bytes
            .filter(|_| section.is_some_and(|section| section.executable))
            .and_then(|bytes| code::gadget(file.bits, bytes.after)),
        stub: file.services.stubs.location(rva),
        is_behind_interrupt: image.is_behind_interrupt(before).unwrap_or(false),
    }
}

/// What memory alone tells of a call before an address.
pub(crate) fn ends_call(is_32_bit: bool, before: &[u8]) -> bool {
    let bits = if is_32_bit { 32 } else { 64 };
    calls_at_end(bits, 0, before).next().is_some()
}

/// What memory alone tells of a gadget.
pub(crate) fn gadget(is_32_bit: bool, after: &[u8]) -> Option<Gadget> {
    code::gadget(if is_32_bit { 32 } else { 64 }, after)
}

/// All calls that the bytes before an address can be read as, which end there. The bytes before them are not looked at.
fn calls_at_end(bits: u32, end: u32, before: &[u8]) -> impl Iterator<Item = Instruction> {
    (2..=MAX_INSTRUCTION.min(before.len())).filter_map(move |length| {
        let ip = u64::from(end).wrapping_sub(length as u64);
        let bytes = &before[before.len() - length..];
        let instruction = Decoder::with_ip(bits, bytes, ip, DecoderOptions::NONE).decode();
        (code::is_call(&instruction) && instruction.len() == length).then_some(instruction)
    })
}

fn call(file: &ImageFile, image: &Image<'_>, rva: Rva, before: &[u8]) -> Call {
    let mut calls = calls_at_end(file.bits, rva.0, before).map(|call| meaning(file, image, &call));
    let Some(call) = calls.next() else { return Call::None };
    if calls.all(|other| other == call) {
        return call;
    }
    // The same bytes can be the end of a longer call or a shorter one: the code before tells which.
    last_before(file, image, rva).map_or(Call::Indirect, |call| meaning(file, image, &call))
}

/// Of the functions that are read to an address, no more bytes.
const MAX_READ: u32 = 1 << 14;

/// The call that ends at an address, reading from the start of its function.
fn last_before(file: &ImageFile, image: &Image<'_>, rva: Rva) -> Option<Instruction> {
    let function = file.functions.at(Rva(rva.0.checked_sub(1)?))?;
    let mut decoder = file.decoder(image, function.start).filter(|_| rva.0 - function.start.0 <= MAX_READ)?;
    let mut instruction = Instruction::default();
    while decoder.can_decode() && decoder.ip() < u64::from(rva.0) {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
    }
    (decoder.ip() == u64::from(rva.0) && code::is_call(&instruction)).then_some(instruction)
}

fn meaning(file: &ImageFile, image: &Image<'_>, call: &Instruction) -> Call {
    if let Some(target) = code::direct_target(call) {
        let target = u32::try_from(target).ok().filter(|target| *target < image.size());
        return target.map_or(Call::Indirect, |target| Call::Direct(Rva(target)));
    }
    match code::pointer(call).and_then(|pointer| slot(image, pointer)) {
        Some(slot) => file.import(slot).map_or(Call::Indirect, |import| Call::Import(import.service)),
        None => Call::Indirect,
    }
}

/// The address in the image that a pointer is at.
pub(super) fn slot(image: &Image<'_>, pointer: Pointer) -> Option<Rva> {
    let rva = match pointer {
        Pointer::Relative(rva) => rva,
        Pointer::Absolute(address) => address.checked_sub(image.base())?,
    };
    u32::try_from(rva).ok().map(Rva)
}
