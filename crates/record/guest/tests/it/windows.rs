//! A kernel that consists of an image with exported functions and a list of modules, which this test writes as
//! the format of images and the structures of Windows define them.

use proptest::prelude::*;
use stackhound_record_guest::{Event, System, Windows};
use stackhound_types::Address;

use crate::ranges::Ranges;

const KERNEL: u64 = 0xffff_f800_1234_0000;
const DRIVER: u64 = 0xffff_f800_2000_0000;
const OTHER: u64 = 0xffff_f800_3000_0000;
const POOL: u64 = 0xffff_ab00_0000_0000;
const SIZE: u32 = 0x4000;
const LIST: u32 = 0x3000;
const CREATE_DEVICE: u32 = 0x2100;

/// Writes an image with exported functions. The function at 0 is one of another module.
fn image(exports: &[(&str, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    let mut put =
        |at: u32, value: &[u8]| bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
    put(0, b"MZ");
    put(0x3c, &0x80_u32.to_le_bytes());
    put(0x80, b"PE\0\0");
    put(0x80 + 24, &0x20b_u16.to_le_bytes());
    put(0x80 + 24 + 56, &SIZE.to_le_bytes());
    let (directory, functions, names, ordinals, mut text) =
        (0x1000_u32, 0x1100_u32, 0x1200_u32, 0x1300_u32, 0x1400_u32);
    put(0x80 + 24 + 112, &directory.to_le_bytes());
    put(0x80 + 24 + 116, &0x800_u32.to_le_bytes());
    let count = exports.len() as u32;
    for (offset, value) in [(20, count + 1), (24, count), (28, functions), (32, names), (36, ordinals)] {
        put(directory + offset, &value.to_le_bytes());
    }
    for (number, (name, function)) in exports.iter().enumerate() {
        let number = number as u32;
        // The first function has no name.
        put(functions + 4 * (number + 1), &if *function == 0 { text } else { *function }.to_le_bytes());
        put(names + 4 * number, &text.to_le_bytes());
        put(ordinals + 2 * number, &(number as u16 + 1).to_le_bytes());
        put(text, format!("{name}\0").as_bytes());
        text += name.len() as u32 + 1;
    }
    bytes
}

/// Writes an entry of the list of modules.
fn entry(memory: &mut Ranges, at: u64, next: u64, base: u64, path: &str) {
    memory.word(at, next);
    memory.word(at + 0x30, base);
    memory.put(at + 0x40, &SIZE.to_le_bytes());
    let units: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
    memory.put(at + 0x48, &(units.len() as u16).to_le_bytes());
    memory.word(at + 0x50, at + 0x100);
    memory.put(at + 0x100, &units);
}

fn kernel() -> Ranges {
    let mut memory = Ranges::default();
    let exports = [
        ("IoCreateDevice", CREATE_DEVICE),
        ("NtClose", 0x2200),
        ("PsLoadedModuleList", LIST),
        ("Forwarded", 0),
    ];
    memory.0.insert(KERNEL, image(&exports));
    memory.0.insert(DRIVER, image(&[("DriverFunction", 0x2040)]));
    memory.0.insert(OTHER, vec![0; SIZE as usize]);
    memory.0.insert(POOL, vec![0; 0x1000]);
    let list = KERNEL + u64::from(LIST);
    memory.word(list, POOL);
    entry(&mut memory, POOL, list, KERNEL, r"\SystemRoot\system32\ntoskrnl.exe");
    memory
}

fn name_at(windows: &Windows, address: u64) -> Option<String> {
    let code = windows.kernel_code_at(Address(address))?;
    let function = code.function.map(|function| format!("{}+{:x}", function.name, function.offset));
    Some(format!("{}@{:x}!{}", code.module, code.base.0, function.unwrap_or_default()))
}

#[test]
fn the_kernel_and_its_drivers_are_found_by_their_images() {
    let mut memory = kernel();
    let mut windows = Windows::find(Address(KERNEL + 0x2345), &mut memory).expect("a kernel");
    let in_kernel = |function| Some(format!("ntoskrnl@{KERNEL:x}!{function}"));
    assert_eq!(name_at(&windows, KERNEL + 0x2200), in_kernel("NtClose+0"));
    // The middle of a function, or one that is not exported.
    assert_eq!(name_at(&windows, KERNEL + 0x2201), in_kernel(""));
    assert_eq!(name_at(&windows, KERNEL + 0x1400), in_kernel(""));
    assert_eq!(windows.symbols(), 3);
    for address in [0, KERNEL - 1, KERNEL + u64::from(SIZE), DRIVER + 0x2040, u64::MAX] {
        assert_eq!(name_at(&windows, address), None, "{address:x}");
    }
    let path = windows.kernel_code_at(Address(KERNEL)).and_then(|code| code.path);
    assert_eq!(path, Some(r"\SystemRoot\system32\ntoskrnl.exe"));

    // A driver is loaded, and creates a device.
    entry(&mut memory, POOL, POOL + 0x400, KERNEL, r"\SystemRoot\system32\ntoskrnl.exe");
    entry(&mut memory, POOL + 0x400, POOL + 0x800, DRIVER, r"\??\C:\drivers\some.driver.sys");
    entry(&mut memory, POOL + 0x800, KERNEL + u64::from(LIST), OTHER, "");
    let hooks: Vec<_> = windows.hooks().iter().map(|hook| (hook.address.0, hook.reads_memory)).collect();
    assert_eq!(hooks, [(KERNEL + u64::from(CREATE_DEVICE), true)]);
    windows.called(0, [0, 0], &mut memory, &mut |event: Event| panic!("{event:?}"));
    assert_eq!(name_at(&windows, DRIVER + 0x2040), Some(format!("some.driver@{DRIVER:x}!DriverFunction+0")));
    // Neither a name nor headers.
    assert_eq!(name_at(&windows, OTHER), Some(format!("@{OTHER:x}!")));

    // Another driver at an overlapping address.
    memory.word(POOL + 0x400 + 0x30, DRIVER + 0x1000);
    windows.called(0, [0, 0], &mut memory, &mut |_| {});
    assert_eq!(name_at(&windows, DRIVER), None);
    assert_eq!(name_at(&windows, DRIVER + 0x2040), Some(format!("some.driver@{:x}!", DRIVER + 0x1000)));
    assert!(windows.current().is_none() && windows.mapping_at(Address(0x1000)).is_none());
}

#[test]
fn other_images_are_no_kernels() {
    let mut memory = kernel();
    assert!(Windows::find(Address(DRIVER + 0x2345), &mut memory).is_none());
    assert!(Windows::find(Address(KERNEL + u64::from(SIZE)), &mut memory).is_none());
    assert!(Windows::find(Address(0x1000), &mut memory).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn damaged_kernels_do_not_panic(
        changes in prop::collection::vec((0..0x1500_u64, prop::sample::select(vec![0, 1, 0x7f, 0x80, 0xff])), 1..8),
        in_list in any::<bool>(),
    ) {
        let mut memory = kernel();
        for (at, byte) in changes {
            memory.put(if in_list { POOL + at % 0x200 } else { KERNEL + at }, &[byte]);
        }
        if let Some(mut windows) = Windows::find(Address(KERNEL + 0x2345), &mut memory) {
            windows.called(0, [0, 0], &mut memory, &mut |_| {});
            let _ = name_at(&windows, KERNEL + 0x2200);
        }
    }
}
