//! Writes unsigned images for `scripts/check-images.py`: for both sizes of addresses, with a PDB, a
//! version resource and a CLI header, and with none of them.
//!
//! usage: `write_images FOLDER`

#[path = "../../symbols/tests/support/mod.rs"]
mod pe;
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;

const RESOURCES: usize = 2;
const CLI_HEADER: usize = 14;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder"));
    let texts = [
        ("CompanyName", "Example"),
        ("FileDescription", "An example"),
        ("FileVersion", "1.2.3.4"),
        ("OriginalFilename", "example.exe"),
        ("ProductName", "Example product"),
    ];
    // The entry is followed by its data.
    let code_view = b"RSDS0123456789abcdef\x07\0\0\0d:\\build\\example.pdb\0";
    for (name, machine) in [("x86", pe::X86), ("x64", pe::X64)] {
        let plain = pe::Pe::new(machine).code(0x1000, vec![0xc3; 72]);
        let offset = 0x400 + 0x200;
        let entry = pe::words(&[0, 0, 0, 2, code_view.len() as u32, 0x2000 + 28, offset + 28]);
        let full = plain
            .clone()
            .table(pe::DEBUG, 0x2000, [entry, code_view.to_vec()].concat())
            .directory_size(pe::DEBUG, 28)
            .table(RESOURCES, 0x3000, support::version_resource(0x3000, &texts))
            .directory_at(CLI_HEADER, 0x1000, 72);
        std::fs::write(folder.join(format!("{name}-plain.exe")), plain.file())?;
        std::fs::write(folder.join(format!("{name}-full.exe")), full.file())?;
        // Its size is not a multiple of eight.
        let overlay = [full.file(), b"overlay".to_vec()].concat();
        std::fs::write(folder.join(format!("{name}-overlay.exe")), overlay)?;
    }
    Ok(())
}
