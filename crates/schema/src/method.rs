//! JIT-compiled methods: typed readers of the events that report the addresses of their code, and of
//! those that report the modules of .NET methods.
//!
//! The layouts are those of the providers' manifests. Their first fields are the same in all
//! versions.

use stackhound_types::{Address, Guid, PointerSize};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Error, Expected};
use crate::text::{Utf16, terminator};

/// Microsoft-JScript, which V8 also uses to report its code.
pub const SCRIPT: Guid =
    Guid::new(0x5727_7741, 0x3638, 0x4a4b, [0xbd, 0xba, 0x0a, 0xc6, 0xe4, 0x5d, 0xa5, 0x6c]);
/// The id of its event that reports the code of a function.
pub const SCRIPT_METHOD_LOAD: u16 = 9;

/// The address range of a method's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodCode<'a> {
    /// The runtime's id of the method.
    pub id: u64,
    /// The runtime's id of the .NET module that contains the method. 0 for scripts.
    pub module_id: u64,
    /// The address of the first byte.
    pub start: Address,
    /// The size in bytes.
    pub size: u64,
    texts: Texts<'a>,
}

/// The texts of an event, which are read only on request: most events repeat an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Texts<'a> {
    None,
    /// The type, the name, and the signature.
    DotNet(&'a [u8]),
    /// The name.
    Script(&'a [u8]),
}

/// The name of a method, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MethodName<'a> {
    /// The type that contains the method, with its namespace. Empty for scripts.
    pub namespace: Utf16<'a>,
    /// The name without the type.
    pub name: Utf16<'a>,
    /// The types of the result and the parameters. Empty for scripts.
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
    /// Reads a load, unload or rundown event of a .NET method. Only verbose events have names.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn dot_net(payload: &'a [u8], is_verbose: bool) -> Result<MethodCode<'a>, Error> {
        let (fixed, rest) = fixed::<FixedDotNet>(payload)?;
        let texts = if is_verbose { Texts::DotNet(rest) } else { Texts::None };
        Ok(MethodCode {
            id: fixed.method_id.get(),
            module_id: fixed.module_id.get(),
            start: Address(fixed.start.get()),
            size: fixed.size.get().into(),
            texts,
        })
    }

    /// Reads the load event of a script function.
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
        let texts = Texts::Script(rest);
        Ok(MethodCode { id: id.into(), module_id: 0, start: Address(start), size, texts })
    }

    /// Reads the name; `None` in events without texts.
    pub fn name(&self) -> Option<MethodName<'a>> {
        match self.texts {
            Texts::None => None,
            Texts::DotNet(texts) => {
                let (namespace, rest) = text(texts);
                let (name, rest) = text(rest);
                Some(MethodName { namespace, name, signature: text(rest).0 })
            }
            Texts::Script(texts) => Some(MethodName { name: text(texts).0, ..MethodName::default() }),
        }
    }
}

/// A .NET module, as events of the loader report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedModule<'a> {
    /// The runtime's id of the module: an address, which is used again after the module is unloaded.
    pub id: u64,
    /// The path of the file with the intermediate language. Empty for modules without a file.
    pub il_path: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedModule {
    module_id: U64,
    assembly_id: U64,
    flags: U32,
    reserved: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedDomainModule {
    module_id: U64,
    assembly_id: U64,
    domain_id: U64,
    flags: U32,
    reserved: U32,
}

impl<'a> ManagedModule<'a> {
    /// Reads a load, unload or rundown event of a module. Events about a module in an application
    /// domain have one more field.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn dot_net(payload: &'a [u8], in_domain: bool) -> Result<ManagedModule<'a>, Error> {
        let (id, rest) = if in_domain {
            let (fixed, rest) = fixed::<FixedDomainModule>(payload)?;
            (fixed.module_id, rest)
        } else {
            let (fixed, rest) = fixed::<FixedModule>(payload)?;
            (fixed.module_id, rest)
        };
        Ok(ManagedModule { id: id.get(), il_path: text(rest).0 })
    }
}

#[inline]
fn fixed<T>(payload: &[u8]) -> Result<(&T, &[u8]), Error>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let expected = Expected::Bytes(size_of::<T>());
    T::ref_from_prefix(payload).map_err(|_| Error::Class { class: "Method", offset: 0, expected })
}

/// A text without its terminator, and the bytes after the terminator. Without a terminator, the
/// text is all of the bytes.
fn text(bytes: &[u8]) -> (Utf16<'_>, &[u8]) {
    match terminator(bytes) {
        Some(n) => (Utf16(&bytes[..2 * n]), &bytes[2 * n + 2..]),
        None => (Utf16(&bytes[..bytes.len() & !1]), &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16z(text: &str) -> Vec<u8> {
        text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn dot_net_methods_are_read() {
        let fixed: Vec<u8> = [1u64, 2, 0x7000].iter().flat_map(|n| n.to_le_bytes()).collect();
        let fixed = [fixed, [0x40u32, 5, 6].iter().flat_map(|n| n.to_le_bytes()).collect()].concat();
        let texts = [utf16z("A.B"), utf16z("Main"), utf16z("void ()"), vec![9, 0]].concat();
        let verbose = [fixed.clone(), texts].concat();
        let code = MethodCode::dot_net(&verbose, true).unwrap();
        assert_eq!((code.id, code.start, code.size), (1, Address(0x7000), 0x40));
        assert_eq!(code.module_id, 2);
        let name = code.name().unwrap();
        assert!(name.namespace == "A.B" && name.name == "Main" && name.signature == "void ()");
        let nameless = MethodCode::dot_net(&verbose, false).unwrap();
        assert_eq!(nameless, MethodCode::dot_net(&fixed, false).unwrap());
        assert_eq!((nameless.id, nameless.start, nameless.size), (code.id, code.start, code.size));
        assert_eq!(nameless.name(), None);
        // Truncated texts.
        let cut = MethodCode::dot_net(&verbose[..44], true).unwrap().name().unwrap();
        assert!(cut.namespace == "A.B" && cut.name.is_empty());
        assert!(MethodCode::dot_net(&fixed[..35], false).is_err());
    }

    #[test]
    fn dot_net_modules_are_read() {
        let texts = [utf16z("C:\\a\\App.dll"), utf16z("C:\\a\\App.ni.dll"), vec![1, 0]].concat();
        for (in_domain, ids) in [(false, &[7u64, 8][..]), (true, &[7, 8, 9])] {
            let ids: Vec<u8> = ids.iter().flat_map(|n| n.to_le_bytes()).collect();
            let payload = [&ids[..], &[3, 0, 0, 0, 0, 0, 0, 0], &texts].concat();
            let module = ManagedModule::dot_net(&payload, in_domain).unwrap();
            assert!(module.id == 7 && module.il_path == "C:\\a\\App.dll", "{in_domain}");
            let without_texts = ids.len() + 8;
            let module = ManagedModule::dot_net(&payload[..without_texts], in_domain).unwrap();
            assert!(module.il_path.is_empty());
            assert!(ManagedModule::dot_net(&payload[..without_texts - 1], in_domain).is_err());
        }
    }

    #[test]
    fn script_functions_are_read() {
        for pointer in [PointerSize::Four, PointerSize::Eight] {
            let mut payload = Vec::new();
            for number in [1u64, 0x7000] {
                payload.extend(&number.to_le_bytes()[..pointer.bytes()]);
            }
            payload.extend(0x40u64.to_le_bytes());
            payload.extend(3u32.to_le_bytes());
            payload.extend([0; 4 + 8 + 8]);
            payload.extend(utf16z("render"));
            let code = MethodCode::script(&payload, pointer).unwrap();
            assert_eq!((code.id, code.start, code.size), (3, Address(0x7000), 0x40));
            assert!(code.name().unwrap().name == "render");
            assert!(MethodCode::script(&payload[..30], pointer).is_err());
        }
    }
}
