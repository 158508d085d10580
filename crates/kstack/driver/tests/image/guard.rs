//! Control flow guard.

use object::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG, IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_MEM_WRITE};

use crate::{Image, image};

/// Offsets of `IMAGE_LOAD_CONFIG_DIRECTORY64`.
const CHECK: u32 = 0x70;
const DISPATCH: u32 = 0x78;
const TABLE: u32 = 0x80;
const COUNT: u32 = 0x88;
const FLAGS: u32 = 0x90;
const IMAGE_GUARD_CF_INSTRUMENTED: u32 = 0x100;
const IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT: u32 = 0x400;
/// Bits of the flags: the number of bytes that follow each address of the table.
const STRIDE: u32 = 0xf000_0000;

impl Image {
    fn load_config(&self) -> u32 {
        self.directory(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG).0
    }

    /// The address of the pointer through which checked indirect calls are made.
    pub fn guard_dispatch(&self) -> u32 {
        self.pointer(self.load_config() + DISPATCH)
    }

    /// The functions that may be called indirectly.
    fn guarded_functions(&self) -> Vec<u32> {
        let table = self.pointer(self.load_config() + TABLE);
        (0..self.u32(self.load_config() + COUNT)).map(|index| self.u32(table + 4 * index)).collect()
    }
}

#[test]
fn the_load_configuration_is_complete() {
    let Some(image) = image() else { return };
    let (start, length) = image.directory(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG);
    assert_eq!(image.u32(start), length, "its size");
    let flags = image.u32(start + FLAGS);
    let expected = IMAGE_GUARD_CF_INSTRUMENTED | IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT;
    assert_eq!(flags & (expected | STRIDE), expected, "{flags:#x}");
    for pointer in [CHECK, DISPATCH] {
        let at = image.pointer(start + pointer);
        assert!(!image.section(at).characteristics.get(LE).contains(IMAGE_SCN_MEM_WRITE), "{pointer:#x}");
        let function = image.pointer(at);
        assert!(image.section(function).characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE));
    }
    // The functions that are called if the kernel does not check: `ret`, and `jmp rax`.
    assert_eq!(image.at(image.pointer(image.pointer(start + CHECK)))[..1], [0xc3]);
    assert_eq!(image.at(image.pointer(image.guard_dispatch()))[..2], [0xff, 0xe0]);
}

#[test]
fn only_functions_that_the_system_calls_are_valid_call_targets() {
    let Some(image) = image() else { return };
    let functions = image.guarded_functions();
    assert!(functions.is_sorted_by(|one, next| one < next), "{functions:#x?}");
    assert!(functions.contains(&image.entry()));
    // The entry point and its jump target, three functions for requests, two for APCs, the
    // exception handler, and the two default check functions.
    assert!((6..=10).contains(&functions.len()), "{functions:#x?}");
    for function in functions {
        // The kernel keeps one bit for each 16 bytes.
        assert_eq!(function % 16, 0, "{function:#x}");
        assert!(image.section(function).characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE));
    }
}
