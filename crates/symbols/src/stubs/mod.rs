//! System-call stubs: the service of each exported `Nt` function of `ntdll.dll` or `win32u.dll`,
//! and the return address of its system call.
//!
//! A stub is described by its own bytes only. Numbers are never computed from the order or the
//! distance of stubs, because stubs differ in size and services were moved within a build of
//! Windows.
//!
//! The module handles one image. It is independent of events and stacks.

mod inline_hook;
mod shapes;

use stackhound_types::Rva;

use crate::image::{ExportedCode, Image, ImageError};

/// A function that is exported as a system service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The service's name, starting with `Nt` if it has such a name.
    pub name: String,
    /// Its other names that start with `Nt` or `Zw`.
    pub aliases: Vec<String>,
    /// Its start.
    pub start: Rva,
    /// The service number that its bytes load, if any. In a 32-bit image for 64-bit Windows, the
    /// upper 16 bits select how parameters are extended.
    pub number: Option<u32>,
    /// The classification of its bytes.
    pub state: StubState,
}

/// The classification of a stub's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StubState {
    /// One of the known shapes of stubs.
    Intact(Path),
    /// The bytes lead elsewhere before they enter the kernel, as with inline hooks.
    Hooked {
        /// The destination, for an image loaded at its [base](Image::base). `None` if the image
        /// does not determine it, or if the bytes stop for a debugger.
        leads_to: Option<u64>,
    },
    /// Any other bytes.
    Foreign,
}

/// The paths through a stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The end of the stub's last byte.
    pub end: Rva,
    /// The instruction that enters the kernel: `syscall`, `sysenter` or `svc`. `None` if the stub
    /// calls code elsewhere that does so (x86), or has only an `int 2e`.
    pub syscall: Option<Rva>,
    /// The address in this stub to which that instruction returns. With an `int 2e` only, the
    /// address to which this returns.
    pub return_address: Rva,
    /// The address to which the stub's `int 2e` returns, which is used on machines that require it.
    pub int2e_return: Option<Rva>,
}

impl Stub {
    /// Returns its paths, if it is intact.
    pub fn path(&self) -> Option<&Path> {
        match &self.state {
            StubState::Intact(path) => Some(path),
            StubState::Hooked { .. } | StubState::Foreign => None,
        }
    }
}

/// Functions with names like services that are not services.
const NO_SERVICES: [&str; 2] = ["NtGetTickCount", "NtQuerySystemTime"];

/// Returns the system-call stubs of an image, by address.
///
/// An exported function is treated as a stub if it has the name of a service and one of the
/// following applies: it has a known shape, it leads elsewhere like a hooked stub, or it has both
/// an `Nt` and a `Zw` name, which only services have. Other code with only an `Nt` name is
/// excluded: `win32u.dll` of Wine has a thousand such functions.
///
/// # Errors
/// The exports of the image cannot be read.
pub fn read(image: &Image<'_>) -> Result<Vec<Stub>, ImageError> {
    let code = image.exports()?.code(image);
    Ok(code.iter().filter_map(|code| stub(image, code)).collect())
}

fn stub(image: &Image<'_>, code: &ExportedCode<'_>) -> Option<Stub> {
    let mut names = code.names.iter().filter(|name| is_service(name)).map(|name| name.to_string());
    let name = names.next()?;
    let aliases: Vec<String> = names.collect();
    let both = name.starts_with("Nt") && aliases.iter().any(|alias| alias.starts_with("Zw"));
    let other = NO_SERVICES.contains(&name.as_str());

    let start = code.rva;
    let bytes = image.bytes_from(start).unwrap_or_default();
    let (number, state) = match shapes::find(image.machine(), start, bytes) {
        Some((number, path)) => (Some(number), StubState::Intact(path)),
        None => {
            let seen = inline_hook::read(image, start, bytes);
            let inside =
                |address: u64| address.checked_sub(image.base()).is_some_and(|rva| rva < image.size().into());
            match seen.leads_to {
                Some(Some(address)) if other && inside(address) => return None,
                Some(leads_to) => (seen.number, StubState::Hooked { leads_to }),
                None if !other && (both || seen.number.is_some()) => (seen.number, StubState::Foreign),
                None => return None,
            }
        }
    };
    Some(Stub { name, aliases, start, number, state })
}

/// `Nt` or `Zw`, followed by a word; this excludes `NtdllDefWindowProc_A`.
fn is_service(name: &str) -> bool {
    let word = name.strip_prefix("Nt").or_else(|| name.strip_prefix("Zw"));
    word.is_some_and(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
}
