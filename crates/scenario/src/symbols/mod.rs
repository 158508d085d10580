//! Builds the image files of a trace, which supply names for its stacks.
//!
//! The files contain only the parts that symbol readers need: headers with the identity, the export
//! directory, the ranges of exported functions, and the code of system-call stubs. They cannot be
//! executed. The identities of `ntdll.dll`, `win32u.dll` and `kernel32.dll` are genuine, so keep
//! the files separate from real symbols.

pub mod file;
mod names;

use self::file::{Export, File};
use self::names::STUBS;
use crate::image::{FILES, Image, SystemImage};
use crate::random::hash;
use crate::site;
use crate::truth::Truth;

/// An image file and its path in a symbol store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageFile {
    /// `name/TIMESTAMPsize/name`, relative to the root of the store.
    pub store_path: String,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

/// Distance between exports in invented libraries, in bytes.
const EXPORT_IN: u32 = 0x400;
const EXPORTS_MAX: u32 = 2000;

impl Truth {
    /// The files of all images of the trace.
    pub fn image_files(&self) -> impl Iterator<Item = ImageFile> + '_ {
        self.images.iter().enumerate().map(|(index, image)| {
            let known = FILES.get(index).map(|file| file.0);
            let (name, stamp) = (image.name(), image.time_date_stamp);
            ImageFile {
                store_path: format!("{name}/{stamp:08X}{:x}/{name}", image.size),
                bytes: image_file(image, known).write(),
            }
        })
    }
}

fn image_file(image: &Image, known: Option<SystemImage>) -> File {
    let is_32_bit = image.base.0 < 1 << 32 && known != Some(SystemImage::Wow64Cpu);
    let export = |rva, size, name: &str| Export { rva, size, name: name.to_owned() };
    let functions = known.map_or(&[][..], names::functions);
    let mut exports: Vec<Export> =
        functions.iter().map(|&(rva, size, name)| export(rva, size, name)).collect();
    let mut code = Vec::new();
    for stub in STUBS.iter().filter(|stub| known == Some(stub.image)) {
        let bytes = stub_code(stub.number);
        let zw = stub.name.replacen("Nt", "Zw", 1);
        exports.extend([stub.name, &zw].map(|name| export(stub.rva, bytes.len() as u32, name)));
        code.push((stub.rva, bytes.to_vec()));
    }
    if known == Some(site::STRAY_SYSCALL.0) {
        // `syscall` and `ret`.
        code.push((site::STRAY_SYSCALL.1, b"\x0f\x05\xc3".to_vec()));
    }
    let mut ranges = Vec::new();
    if known == Some(site::OWN_STUB.0) {
        let [stub, caller] = own_code();
        for (at, bytes) in [(site::OWN_STUB.1, stub), (site::OWN_CALLER.1, caller)] {
            ranges.push((at, bytes.len() as u32));
            code.push((at, bytes));
        }
    }
    // Programs have no exports. Libraries of Windows have only the exports in the table.
    if image.name().ends_with(".dll") && image.path.contains("Contoso") {
        let count = (image.size / 2 / EXPORT_IN).min(EXPORTS_MAX);
        for index in 0..count {
            let rva = 0x1000 + index * ((image.size / 2 / count) & !15);
            exports.push(export(rva, 0x80, &invented_name(image, index)));
        }
    }
    if known == Some(site::LAYOUT.0) {
        exports.push(export(site::LAYOUT.1, 0x40, "LayoutParagraphs"));
    }
    File {
        is_32_bit,
        is_library: !image.name().ends_with(".exe"),
        time_date_stamp: image.time_date_stamp,
        size: image.size,
        checksum: image.checksum,
        exports,
        functions: ranges,
        code,
        ..File::default()
    }
}

/// The code of a system-call stub since build 10586: `mov r10, rcx`, `mov eax, number`, the test
/// for `int 2e`, `syscall`, `ret`, `int 2e`, `ret`.
pub fn stub_code(number: u32) -> [u8; 24] {
    let mut code =
        *b"\x4c\x8b\xd1\xb8\0\0\0\0\xf6\x04\x25\x08\x03\xfe\x7f\x01\x75\x03\x0f\x05\xc3\xcd\x2e\xc3";
    code[4..8].copy_from_slice(&number.to_le_bytes());
    code
}

/// The attacker's stub, which jumps to an address in memory, and the function that calls it.
fn own_code() -> [Vec<u8>; 2] {
    // `mov r10, rcx`, `mov eax, 26h`, `mov r11, [rip+100h]`, `jmp r11`.
    let stub = b"\x4c\x8b\xd1\xb8\x26\0\0\0\x4c\x8b\x1d\0\x01\0\0\x41\xff\xe3";
    // `sub rsp, 28h`, `mov rcx, rbx`, `call`, `add rsp, 28h`, `ret`.
    let mut caller = b"\x48\x83\xec\x28\x48\x8b\xcb\xe8".to_vec();
    caller.extend(site::OWN_STUB.1.wrapping_sub(site::OWN_CALL.1).to_le_bytes());
    caller.extend(b"\x48\x83\xc4\x28\xc3");
    [stub.to_vec(), caller]
}

fn invented_name(image: &Image, index: u32) -> String {
    const VERBS: [&str; 12] = [
        "Open", "Close", "Read", "Write", "Draw", "Layout", "Parse", "Format", "Find", "Update", "Begin",
        "End",
    ];
    const NOUNS: [&str; 14] = [
        "Document", "Page", "Table", "Style", "Script", "Image", "Font", "Cache", "Request", "Stream",
        "View", "Index", "Message", "Session",
    ];
    let draw = hash(u64::from(image.time_date_stamp) << 32 | u64::from(index));
    let (verb, noun) = (VERBS[(draw % 12) as usize], NOUNS[(draw >> 8) as usize % 14]);
    format!("{verb}{noun}{index}")
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::{Mix, Scenario};

    #[test]
    fn files_have_the_store_paths_and_identities_of_the_images() {
        let scenario = Scenario { events: 8_000, seed: 3, mix: Mix::Default };
        let truth = scenario.write(Cursor::new(Vec::new())).unwrap();
        let files: Vec<ImageFile> = truth.image_files().collect();
        assert_eq!(files.len(), truth.images.len());
        let ntdll =
            files.iter().find(|file| file.store_path == "ntdll.dll/70E69BAD1f5000/ntdll.dll").unwrap();
        let field = |at: usize| u32::from_le_bytes(ntdll.bytes[at..at + 4].try_into().unwrap());
        let header = field(0x3c) as usize;
        assert_eq!(&ntdll.bytes[header..header + 4], b"PE\0\0");
        assert_eq!(field(header + 8), 0x70e6_9bad);
        assert_eq!(field(header + 24 + 56), 0x1f_5000);
        assert!(ntdll.bytes.windows(13).any(|bytes| bytes == b"\0NtCreateFile"));
    }
}
