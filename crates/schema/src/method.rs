//! Methods that runtimes compiled while their programs ran: typed readers for the events that tell where their code is.
//!
//! Layouts are those of the providers' manifests, of which the first fields are the same in all versions.

use stackhound_types::{Address, Guid, PointerSize};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Error, Expected};
use crate::kernel::view::Utf16;

/// Microsoft-JScript, by which also V8 tells of its code.
pub const SCRIPT: Guid =
    Guid::new(0x5727_7741, 0x3638, 0x4a4b, [0xbd, 0xba, 0x0a, 0xc6, 0xe4, 0x5d, 0xa5, 0x6c]);

/// Where the code of a method is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodCode<'a> {
    /// The runtime's number of the method.
    pub id: u64,
    /// The first byte.
    pub start: Address,
    /// Bytes.
    pub size: u64,
    /// What it is called; `None` in events without texts.
    pub name: Option<MethodName<'a>>,
}

/// What a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MethodName<'a> {
    /// The type that it belongs to, with the namespace in front. Empty in scripts.
    pub namespace: Utf16<'a>,
    /// Its name.
    pub name: Utf16<'a>,
    /// Types of its result and parameters. Empty in scripts.
    pub signature: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedDotNet {
    method_id: U64,
    module_id: U64,
    start: U64,
    size: U32,
    token: U32,
    flags: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedScript<P> {
    context: P,
    start: P,
    size: U64,
    method_id: U32,
    flags: U16,
    address_range: U16,
    source: U64,
    line: U32,
    column: U32,
}

impl<'a> MethodCode<'a> {
    /// Reads a load, unload or rundown of a .NET method; the verbose ones have names.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn dot_net(payload: &'a [u8], is_verbose: bool) -> Result<MethodCode<'a>, Error> {
        let (fixed, rest) = fixed::<FixedDotNet>(payload)?;
        let name = is_verbose.then(|| {
            let (namespace, rest) = text(rest);
            let (name, rest) = text(rest);
            MethodName { namespace, name, signature: text(rest).0 }
        });
        Ok(MethodCode {
            id: fixed.method_id.get(),
            start: Address(fixed.start.get()),
            size: fixed.size.get().into(),
            name,
        })
    }

    /// Reads a load of a script's function.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn script(payload: &'a [u8], pointer: PointerSize) -> Result<MethodCode<'a>, Error> {
        let (start, size, id, rest) = match pointer {
            PointerSize::Four => {
                let (fixed, rest) = fixed::<FixedScript<U32>>(payload)?;
                (fixed.start.get().into(), fixed.size.get(), fixed.method_id.get(), rest)
            }
            PointerSize::Eight => {
                let (fixed, rest) = fixed::<FixedScript<U64>>(payload)?;
                (fixed.start.get(), fixed.size.get(), fixed.method_id.get(), rest)
            }
        };
        let name = MethodName { name: text(rest).0, ..MethodName::default() };
        Ok(MethodCode { id: id.into(), start: Address(start), size, name: Some(name) })
    }
}

fn fixed<T>(payload: &[u8]) -> Result<(&T, &[u8]), Error>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let expected = Expected::Bytes(size_of::<T>());
    T::ref_from_prefix(payload).map_err(|_| Error::Class { class: "Method", offset: 0, expected })
}

/// A text with its zero, and what follows; without the zero, all that is left.
fn text(bytes: &[u8]) -> (Utf16<'_>, &[u8]) {
    let (units, _) = bytes.as_chunks::<2>();
    match units.iter().position(|unit| *unit == [0, 0]) {
        Some(n) => (Utf16(&bytes[..2 * n]), &bytes[2 * n + 2..]),
        None => (Utf16(&bytes[..2 * units.len()]), &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn dot_net_methods_are_read() {
        let fixed: Vec<u8> = [1u64, 2, 0x7000].iter().flat_map(|n| n.to_le_bytes()).collect();
        let fixed = [fixed, [0x40u32, 5, 6].iter().flat_map(|n| n.to_le_bytes()).collect()].concat();
        let texts = [wide("A.B"), wide("Main"), wide("void ()"), vec![9, 0]].concat();
        let verbose = [fixed.clone(), texts].concat();
        let code = MethodCode::dot_net(&verbose, true).unwrap();
        assert_eq!((code.id, code.start, code.size), (1, Address(0x7000), 0x40));
        let name = code.name.unwrap();
        assert!(name.namespace == "A.B" && name.name == "Main" && name.signature == "void ()");
        assert_eq!(MethodCode::dot_net(&fixed, false).unwrap(), MethodCode { name: None, ..code });
        // Texts that are cut.
        let cut = MethodCode::dot_net(&verbose[..44], true).unwrap().name.unwrap();
        assert!(cut.namespace == "A.B" && cut.name.is_empty());
        assert!(MethodCode::dot_net(&fixed[..35], false).is_err());
    }

    #[test]
    fn functions_of_scripts_are_read() {
        for pointer in [PointerSize::Four, PointerSize::Eight] {
            let mut payload = Vec::new();
            for number in [1u64, 0x7000] {
                payload.extend(&number.to_le_bytes()[..pointer.bytes()]);
            }
            payload.extend(0x40u64.to_le_bytes());
            payload.extend(3u32.to_le_bytes());
            payload.extend([0; 4 + 8 + 8]);
            payload.extend(wide("render"));
            let code = MethodCode::script(&payload, pointer).unwrap();
            assert_eq!((code.id, code.start, code.size), (3, Address(0x7000), 0x40));
            assert!(code.name.unwrap().name == "render");
            assert!(MethodCode::script(&payload[..30], pointer).is_err());
        }
    }
}
