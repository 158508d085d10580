//! The facts about an address of an image: its function and section, the call before it with its
//! target, and the code after it.

use iced_x86::Instruction;
use stackhound_symbols::image::{Image, calls_at_end, is_call, last_before};
use stackhound_types::Rva;

use super::ImageFile;
use super::code::{self, Pointer};
pub(crate) use super::code::{Gadget, ends_system_call};
use super::stubs::StubLocation;

/// The facts about an address of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    /// Whether the image is a 32-bit image.
    pub is_32_bit: bool,
    /// The part of the image that contains the address.
    pub region: Region,
    /// The start of the function that contains the address, as an instruction.
    pub function: Option<Rva>,
    /// The start of the function that contains the instruction before the address.
    pub function_before: Option<Rva>,
    /// The call before the address; `None` if the file has no bytes there.
    pub call: Option<Call>,
    /// Whether the instruction before the address enters the kernel; `None` if the file has no
    /// bytes there.
    pub enters_kernel: Option<bool>,
    /// The gadget that starts at the address.
    pub gadget: Option<Gadget>,
    /// The meaning of the address for system calls.
    pub stub: StubLocation,
    /// Whether the function is entered with the machine frame of an interrupt on the stack: see
    /// [`Image::has_machine_frame`].
    pub has_machine_frame: bool,
}

/// A part of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Region {
    /// In a function.
    Function,
    /// The first byte of a function, where no call returns to.
    FunctionStart,
    /// In code, but in no function of the unwind data.
    NoFunction,
    /// In code, and the image has no unwind data.
    NoTable,
    /// In code for which the file has no bytes, as in packed programs.
    NoBytes,
    /// In no code.
    NotCode,
    /// Not in the image.
    Outside,
}

/// The call before an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// No call.
    None,
    /// A call of this address in the image.
    Direct(Rva),
    /// A call through a pointer that the loader sets, with the index of the service among those
    /// that the image imports; `None` for other functions.
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
        // A call of a function that never returns can be the last instruction of the previous
        // function.
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
        has_machine_frame: image.has_machine_frame(before).unwrap_or(false),
    }
}

/// Whether bytes of memory end with a call.
pub(crate) fn ends_call(is_32_bit: bool, before: &[u8]) -> bool {
    let bits = if is_32_bit { 32 } else { 64 };
    calls_at_end(bits, 0, before).next().is_some()
}

/// The gadget at the start of bytes of memory.
pub(crate) fn gadget(is_32_bit: bool, after: &[u8]) -> Option<Gadget> {
    code::gadget(if is_32_bit { 32 } else { 64 }, after)
}

fn call(file: &ImageFile, image: &Image<'_>, rva: Rva, before: &[u8]) -> Call {
    let mut calls = calls_at_end(file.bits, rva.0, before).map(|call| meaning(file, image, &call));
    let Some(call) = calls.next() else { return Call::None };
    if calls.all(|other| other == call) {
        return call;
    }
    // The same bytes can be the end of a longer or a shorter call. The code before them decides.
    call_before(file, image, rva).map_or(Call::Indirect, |call| meaning(file, image, &call))
}

/// The call that ends at an address, found by decoding its function from the start.
fn call_before(file: &ImageFile, image: &Image<'_>, rva: Rva) -> Option<Instruction> {
    let function =
        file.functions.at(Rva(rva.0.checked_sub(1)?)).filter(|found| image.is_code(found.start))?;
    last_before(image, function.start, file.bits, rva).filter(is_call)
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

/// The offset of a pointer in the image.
pub(super) fn slot(image: &Image<'_>, pointer: Pointer) -> Option<Rva> {
    let rva = match pointer {
        Pointer::Relative(rva) => rva,
        Pointer::Absolute(address) => address.checked_sub(image.base())?,
    };
    u32::try_from(rva).ok().map(Rva)
}
