//! Builds image files from functions and their callees, so that the return addresses of a stack are
//! preceded by calls that lead to its frames.

use stackhound_scenario::symbols::file::{Export, File};
use stackhound_scenario::symbols::stub_code;

/// The body of a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// The x64 stub of the system call with this service number.
    Stub(u32),
    /// The stub of a 32-bit library on 64-bit Windows.
    Stub32(u32),
    /// Calls these functions in order and returns. `library!function` is called through the import
    /// table, `*` through a register, and any other function directly.
    Calls(&'static [&'static str]),
    /// A thunk: a jump to this function.
    Jump(&'static str),
    /// A test, then a tail call of this function of the same image.
    Tail(&'static str),
    /// These bytes.
    Raw(&'static [u8]),
}

/// The address range that an image is mapped in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ImageRegion {
    Kernel,
    Library,
    Program,
    /// Below 4 GiB, for 32-bit images.
    Bits32,
}

/// An image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    /// The name that cases use.
    pub key: &'static str,
    /// A Win32 path, or a kernel path for drivers.
    pub path: &'static str,
    pub location: ImageRegion,
    /// In the order of their addresses.
    pub functions: &'static [(&'static str, Body)],
}

impl Spec {
    pub fn name(&self) -> &'static str {
        self.path.rsplit('\\').next().unwrap_or_default()
    }
}

/// A function in an image.
#[derive(Clone, Debug)]
pub(super) struct Built {
    pub name: &'static str,
    pub at: u32,
    /// Bytes.
    pub size: u32,
    /// The callees, with the return address of each call.
    pub calls: Vec<(&'static str, u32)>,
}

/// The size of every image. Code starts at [`CODE_AT`], data at [`DATA_AT`].
pub(super) const SIZE: u32 = 0x2_0000;
const CODE_AT: u32 = 0x1000;
pub(super) const DATA_AT: u32 = 0x1_0000;
/// Bytes between functions, at least, filled with `int 3`.
const GAP: u32 = 0x10;

/// `sub rsp, 28h`, and `add rsp, 28h` with `ret`.
const ENTER: &[u8] = &[0x48, 0x83, 0xec, 0x28];
const LEAVE: &[u8] = &[0x48, 0x83, 0xc4, 0x28, 0xc3];
/// `mov rcx, rbx` before each call and `mov rbx, rax` after it. The 32-bit forms have the same
/// size.
const BEFORE_CALL: &[u8] = &[0x48, 0x8b, 0xcb];
const AFTER_CALL: &[u8] = &[0x48, 0x8b, 0xd8];
/// `push ebp`, `mov ebp, esp`, `nop`, and the matching epilogue.
const ENTER_32_BIT: &[u8] = &[0x55, 0x8b, 0xec, 0x90];
const LEAVE_32_BIT: &[u8] = &[0x8b, 0xe5, 0x5d, 0xc3, 0x90];
const BEFORE_32_BIT: &[u8] = &[0x90, 0x8b, 0xcb];
const AFTER_32_BIT: &[u8] = &[0x90, 0x8b, 0xd8];

fn call_size(callee: &str, is_32_bit: bool) -> u32 {
    match callee {
        "*" => 2,
        _ if !callee.contains('!') => 5,
        _ if is_32_bit => 2,
        _ => 6,
    }
}

fn size(body: Body, is_32_bit: bool) -> u32 {
    match body {
        Body::Stub(number) => stub_code(number).len() as u32,
        Body::Stub32(_) => 15,
        Body::Calls(callees) => {
            9 + callees.iter().map(|callee| 6 + call_size(callee, is_32_bit)).sum::<u32>()
        }
        Body::Jump(callee) => {
            if callee.contains('!') {
                6
            } else {
                5
            }
        }
        Body::Tail(_) => 7,
        Body::Raw(bytes) => bytes.len() as u32,
    }
}

/// Lays out the functions of an image and writes their code. `time_date_stamp` identifies the
/// image, so it must be unique.
pub(super) fn build(spec: &Spec, time_date_stamp: u32) -> (File, Vec<Built>) {
    let is_32_bit = spec.location == ImageRegion::Bits32;
    let mut at = CODE_AT;
    let mut functions = Vec::new();
    for &(name, body) in spec.functions {
        let size = size(body, is_32_bit);
        functions.push(Built { name, at, size, calls: Vec::new() });
        at = (at + size + GAP).next_multiple_of(16);
    }
    assert!(at < DATA_AT, "the code of {} is too long", spec.path);
    let is_library = !spec.path.ends_with(".exe");
    let mut file = File {
        is_32_bit,
        is_library,
        time_date_stamp,
        size: SIZE,
        checksum: time_date_stamp >> 8,
        data_at: Some(DATA_AT),
        imports: if is_32_bit { Vec::new() } else { imports(spec) },
        ..File::default()
    };
    let starts: Vec<(&str, u32)> = functions.iter().map(|function| (function.name, function.at)).collect();
    for (function, (_, body)) in functions.iter_mut().zip(spec.functions) {
        let code = Assembler { file: &file, starts: &starts, is_32_bit, code: Vec::new() };
        let bytes = code.function(function, *body);
        debug_assert_eq!(bytes.len() as u32, function.size, "{}!{}", spec.key, function.name);
        file.code.push((function.at, bytes));
        if is_library || spec.location == ImageRegion::Kernel {
            let mut names = vec![function.name.to_owned()];
            if matches!(body, Body::Stub(_) | Body::Stub32(_)) {
                names.push(function.name.replacen("Nt", "Zw", 1));
            }
            let export = |name| Export { rva: function.at, size: function.size, name };
            file.exports.extend(names.into_iter().map(export));
        } else {
            file.functions.push((function.at, function.size));
        }
        let padding = function.at + function.size;
        file.code.push((padding, vec![0xcc; (padding.next_multiple_of(16) - padding + GAP) as usize]));
    }
    (file, functions)
}

/// The imports of an image: all functions of other images that it calls.
fn imports(spec: &Spec) -> Vec<(String, Vec<String>)> {
    let mut imports: Vec<(String, Vec<String>)> = Vec::new();
    for (_, body) in spec.functions {
        let callees = match body {
            Body::Calls(callees) => callees,
            Body::Jump(callee) => std::slice::from_ref(callee),
            _ => continue,
        };
        for (key, function) in callees.iter().filter_map(|callee| callee.split_once('!')) {
            let library = format!("{key}.dll");
            let location = imports.iter().position(|(known, _)| *known == library).unwrap_or_else(|| {
                imports.push((library, Vec::new()));
                imports.len() - 1
            });
            if !imports[location].1.iter().any(|known| known == function) {
                imports[location].1.push(function.to_owned());
            }
        }
    }
    imports
}

/// Writes the code of one function.
struct Assembler<'f> {
    file: &'f File,
    starts: &'f [(&'f str, u32)],
    is_32_bit: bool,
    code: Vec<u8>,
}

impl Assembler<'_> {
    fn function(mut self, function: &mut Built, body: Body) -> Vec<u8> {
        let at = function.at;
        match body {
            Body::Stub(number) => self.code.extend(stub_code(number)),
            Body::Stub32(number) => {
                // `mov eax`, `mov edx` with the entry of the WoW64 layer, `call edx`, `ret 10h`.
                self.code.push(0xb8);
                self.code.extend(number.to_le_bytes());
                self.code.extend([0xba, 0x00, 0x8f, 0x00, 0x77, 0xff, 0xd2]);
                function.calls.push(("*", at + self.code.len() as u32));
                self.code.extend([0xc2, 0x10, 0x00]);
            }
            Body::Calls(callees) => {
                self.code.extend(if self.is_32_bit { ENTER_32_BIT } else { ENTER });
                for callee in callees {
                    self.code.extend(if self.is_32_bit { BEFORE_32_BIT } else { BEFORE_CALL });
                    self.call(at, callee);
                    function.calls.push((callee, at + self.code.len() as u32));
                    self.code.extend(if self.is_32_bit { AFTER_32_BIT } else { AFTER_CALL });
                }
                self.code.extend(if self.is_32_bit { LEAVE_32_BIT } else { LEAVE });
            }
            Body::Jump(callee) => match callee.split_once('!') {
                Some(_) => self.through_slot(at, 0x25, callee),
                None => self.direct(at, 0xe9, callee),
            },
            Body::Tail(callee) => {
                self.code.extend([0x85, 0xc9]);
                self.direct(at, 0xe9, callee);
            }
            Body::Raw(bytes) => self.code.extend(bytes),
        }
        self.code
    }

    fn call(&mut self, at: u32, callee: &str) {
        match callee {
            "*" => self.code.extend([0xff, 0xd0]),
            _ if !callee.contains('!') => self.direct(at, 0xe8, callee),
            _ if self.is_32_bit => self.code.extend([0xff, 0xd0]),
            _ => self.through_slot(at, 0x15, callee),
        }
    }

    /// Writes a call of, or jump to, a function of the same image.
    fn direct(&mut self, at: u32, opcode: u8, callee: &str) {
        let target = self.starts.iter().find(|(name, _)| *name == callee);
        let target = target.unwrap_or_else(|| panic!("no function has the name {callee}")).1;
        let next = at + self.code.len() as u32 + 5;
        self.code.push(opcode);
        self.code.extend((target.wrapping_sub(next)).to_le_bytes());
    }

    /// Writes a call of, or jump to, an imported function.
    fn through_slot(&mut self, at: u32, form: u8, callee: &str) {
        let (key, function) = callee.split_once('!').expect("a function of a library");
        let slot = self.file.import_slot(DATA_AT, &format!("{key}.dll"), function);
        let slot = slot.unwrap_or_else(|| panic!("{callee} is not imported"));
        let next = at + self.code.len() as u32 + 6;
        self.code.extend([0xff, form]);
        self.code.extend(slot.wrapping_sub(next).to_le_bytes());
    }
}
