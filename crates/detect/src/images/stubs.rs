//! The stubs of an image, found by the return addresses of their system calls.

use stackhound_symbols::image::{Image, Machine};
use stackhound_symbols::stubs::{self, Stub};
use stackhound_types::Rva;

/// The stubs of an image.
#[derive(Debug, Default)]
pub(crate) struct StubTable {
    stubs: Vec<Stub>,
    /// The return addresses of system calls, with the index of the stub.
    returns: Vec<(Rva, u32)>,
    /// Starts of exported services that do not have the form of a stub.
    changed: Vec<Rva>,
    /// Addresses that the kernel returns to before control returns to a stub (x86).
    landings: Vec<Rva>,
}

/// The meaning of an address for system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StubLocation {
    /// The return address of a stub's system call.
    Return {
        /// Index of the stub in the [`StubTable`].
        stub: u32,
        /// Start of the stub.
        start: Rva,
    },
    /// In the function of a service that does not have the form of a stub.
    Changed,
    /// An address that the kernel returns to; the stub is the next frame.
    Landing,
    /// None of these.
    Elsewhere,
}

/// Maximum length of a stub, in bytes.
const STUB_LENGTH: u32 = 0x20;

impl StubTable {
    pub fn read(image: &Image<'_>) -> StubTable {
        let stubs = stubs::read(image).unwrap_or_default();
        let mut table = StubTable::default();
        for (stub, index) in stubs.iter().zip(0..) {
            match stub.path() {
                Some(path) => table.returns.extend(
                    [Some(path.return_address), path.int2e_return]
                        .into_iter()
                        .flatten()
                        .map(|rva| (rva, index)),
                ),
                None => table.changed.push(stub.start),
            }
        }
        table.returns.sort_unstable();
        table.returns.dedup();
        table.changed.sort_unstable();
        if image.machine() == Machine::X86 {
            table.landings = landings(image);
        }
        table.stubs = stubs;
        table
    }

    pub fn is_empty(&self) -> bool {
        self.stubs.is_empty()
    }

    pub fn location(&self, rva: Rva) -> StubLocation {
        if let Ok(at) = self.returns.binary_search_by_key(&rva, |entry| entry.0) {
            let stub = self.returns[at].1;
            return StubLocation::Return { stub, start: self.stubs[stub as usize].start };
        }
        let before = self.changed.partition_point(|start| *start < rva).checked_sub(1);
        if before.is_some_and(|at| rva.0 - self.changed[at].0 <= STUB_LENGTH) {
            return StubLocation::Changed;
        }
        if self.landings.contains(&rva) { StubLocation::Landing } else { StubLocation::Elsewhere }
    }

    /// All names of a stub.
    pub fn names(&self, stub: u32) -> impl Iterator<Item = &str> {
        let stub = &self.stubs[stub as usize];
        std::iter::once(&*stub.name).chain(stub.aliases.iter().map(|alias| &**alias))
    }

    /// The service number of a stub, and the offset of its four bytes from the start of the stub.
    pub fn number(&self, image_is_64_bit: bool, stub: u32) -> Option<(u32, u32)> {
        Some((self.stubs[stub as usize].number?, if image_is_64_bit { 4 } else { 1 }))
    }
}

/// The addresses of `KiFastSystemCallRet` and after the `int 2e` of `KiIntSystemCall`. Stubs call
/// these functions, and the kernel returns there.
fn landings(image: &Image<'_>) -> Vec<Rva> {
    /// `lea edx, [esp + 8]`, `int 2e`
    const INT2E: [u8; 6] = [0x8d, 0x54, 0x24, 0x08, 0xcd, 0x2e];
    let exports = image.exports().map(|exports| exports.code(image)).unwrap_or_default();
    let find = |name: &str| {
        exports.iter().find(|code| code.names.iter().any(|known| known == name)).map(|code| code.rva)
    };
    let after_int2e = find("KiIntSystemCall")
        .filter(|start| image.bytes_at(*start, INT2E.len()) == Some(&INT2E))
        .map(|start| Rva(start.0 + INT2E.len() as u32));
    find("KiFastSystemCallRet").into_iter().chain(after_int2e).collect()
}
