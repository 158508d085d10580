//! Parses arbitrary bytes as PE images.

use stackhound_symbols::image::{Image, Machine};
use stackhound_symbols::stubs;
use stackhound_types::Rva;

use self::pe::{ARM64, DEBUG, EXCEPTION, Pe, Target, X64, X86, hex, words};

/// The writer of images from the tests of the reader.
#[path = "../../symbols/tests/support/mod.rs"]
pub(crate) mod pe;

/// Reads bytes as an image file and as a loaded image.
pub fn image(bytes: &[u8]) {
    for image in [Image::parse(bytes), Image::parse_loaded(bytes)].into_iter().flatten() {
        check(&image, bytes.len());
    }
}

fn check(image: &Image<'_>, size: usize) {
    let exports = image.exports().unwrap_or_default();
    let names: usize = exports.entries.iter().flat_map(|export| &export.name).map(|name| name.len()).sum();
    assert!(names <= 3 * size);
    let code = exports.code(image);
    assert!(code.is_sorted_by_key(|code| code.rva));
    assert!(code.iter().all(|code| !code.names.is_empty() && image.is_code(code.rva)));

    let functions = image.functions();
    assert!(functions.entries.len() + functions.unreadable <= size / 8);
    assert!(functions.entries.is_sorted_by_key(|function| function.start));
    for function in &functions.entries {
        assert!(function.start < function.end && function.end.0 <= image.size());
        assert!(functions.at(function.start).is_some_and(|found| found.start == function.start));
        if let Some(site) = image.call_site(function.end, 16, 16) {
            assert!(site.before.len() <= 16 && site.after.len() <= 16);
            assert_eq!(site.ends_call.is_none(), matches!(image.machine(), Machine::Other(_)));
        }
    }
    assert!(image.imports().entries.is_sorted_by_key(|import| import.slot));
    assert!(image.relocations().len() <= size / 2);
    for entry in image.debug_entries() {
        drop(format!("{entry:?}"));
    }
    for stub in stubs::read(image).unwrap_or_default() {
        assert!(image.is_code(stub.start));
        if let Some(path) = stub.path() {
            let inside = |rva: Rva| stub.start <= rva && rva <= path.end;
            let all = [path.syscall, Some(path.return_address), path.int2e_return];
            assert!(all.into_iter().flatten().all(inside));
        }
    }
}

/// One image for each machine, with stubs of all kinds, small enough for mutation.
pub(crate) fn images() -> Vec<Vec<u8>> {
    let x64 = "4c8bd1 b842000000 f604250803fe7f01 7503 0f05 c3 cd2e c3 cccccccccccccccc
        4c8bd1 b843000000 0f05 c3 0f1f440000 e9fb0f0000 cccccccccccccccccccccc 48b88877665544332211 50c3";
    let x86 = "b842000000 ba00037efe ff12 c21800 90 b843000000 ba4072304b ffd2 c3 cccc e9fb0f0000 cccccccccccccccccccccc";
    let arm64 = "a10a00d4 c0035fd6 0000000000000000 00040014 00000000 0000000000000000 50000058 00021fd6";
    let chained = words(&[0x1000, 0x1010, 0x3018, 0x1010, 0x1020, 0x301c]);
    let unwind = [hex("01000000 21000000"), words(&[0x1000, 0x1010, 0x3018])].concat();
    let packed = words(&[0x1000, 0x11, 0x1010, 0x3010, 0x0800_0004, 0xe4e4_e4e5]);
    let code_view = b"RSDS0123456789abcdef\x07\0\0\0a\\b.pdb\0";
    let debug = [words(&[0, 0, 0, 2, code_view.len() as u32, 0x401c, 0]), code_view.to_vec()].concat();
    [(X64, x64, chained), (X86, x86, Vec::new()), (ARM64, arm64, packed)]
        .into_iter()
        .flat_map(|(machine, code, functions)| {
            let size = functions.len() as u32;
            let pe = Pe::new(machine)
                .code(0x1000, hex(code))
                .data(0x2000, vec![0; 16])
                .table(EXCEPTION, 0x3000, [functions, unwind.clone()].concat())
                .directory_size(EXCEPTION, size.min(24))
                .table(DEBUG, 0x4000, debug.clone())
                .directory_size(DEBUG, 28)
                .exports(&[
                    (Some("NtOne"), Target::Rva(0x1000)),
                    (Some("ZwOne"), Target::Rva(0x1000)),
                    (Some("NtTwo"), Target::Rva(0x1010)),
                    (Some("NtThree"), Target::Rva(0x1020)),
                    (None, Target::Rva(0x1030)),
                    (Some("data"), Target::Rva(0x2000)),
                    (Some("sleep"), Target::Forwarder("kernel32.Sleep".to_owned())),
                ]);
            [pe.file(), pe.loaded()]
        })
        .collect()
}
