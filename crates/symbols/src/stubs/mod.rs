//! System-call stubs: which service each exported `Nt` function of `ntdll.dll` or `win32u.dll` asks for, and where the
//! call returns to.
//!
//! All of a stub is read from its own bytes. Numbers are never computed from the order or the distance of stubs, since
//! stubs differ in size and services moved inside one build of Windows.
//!
//! Knows one image; must not know events or stacks.

mod inline_hook;
mod shapes;

use stackhound_types::Rva;

use crate::image::{ExportedCode, Image, ImageError};

/// A function that is exported as a system service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The service's name, beginning with `Nt` if it has such a name.
    pub name: String,
    /// Its other names that begin with `Nt` or `Zw`.
    pub aliases: Vec<String>,
    /// Where it starts.
    pub start: Rva,
    /// What its bytes load as the number of the service, if they do. In a 32-bit image for 64-bit Windows the upper half
    /// chooses how parameters are widened.
    pub number: Option<u32>,
    /// What its bytes are.
    pub state: StubState,
}

/// What the bytes of a stub are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StubState {
    /// One of the shapes that stubs have.
    Intact(Path),
    /// They lead elsewhere before they reach the kernel, as inline hooks do.
    Hooked {
        /// Where they lead to, in an image loaded at its [base](Image::base). `None` if that is not decided by the image, or
        /// if they stop for a debugger.
        leads_to: Option<u64>,
    },
    /// They are something else.
    Foreign,
}

/// The ways through a stub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Behind the stub's last byte.
    pub end: Rva,
    /// The instruction that enters the kernel: `syscall`, `sysenter` or `svc`. `None` where the stub calls code elsewhere
    /// that does (x86), or has only an `int 2e`.
    pub syscall: Option<Rva>,
    /// Where that returns to in this stub. With an `int 2e` only, where this returns to.
    pub return_address: Rva,
    /// Where the stub's `int 2e` returns to, which is taken on machines that want it.
    pub int2e_return: Option<Rva>,
}

impl Stub {
    /// Its ways, if it is intact.
    pub fn path(&self) -> Option<&Path> {
        match &self.state {
            StubState::Intact(path) => Some(path),
            StubState::Hooked { .. } | StubState::Foreign => None,
        }
    }
}

/// Named like services, but code of their own.
const NO_SERVICES: [&str; 2] = ["NtGetTickCount", "NtQuerySystemTime"];

/// The system-call stubs of an image, by address.
///
/// An exported function counts as a stub if its name is that of a service and it has the shape of one, leads elsewhere as
/// a hooked one does, or has both an `Nt` and a `Zw` name, which only services have. So code under an `Nt` name alone is
/// left out: `win32u.dll` of Wine has a thousand of these.
///
/// # Errors
/// If the image's exports cannot be read.
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

/// `Nt` or `Zw`, and a word: not `NtdllDefWindowProc_A`.
fn is_service(name: &str) -> bool {
    let word = name.strip_prefix("Nt").or_else(|| name.strip_prefix("Zw"));
    word.is_some_and(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
}
