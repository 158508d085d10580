//! Headers, sections and directories.

use object::LittleEndian as LE;
use object::pe::*;

use crate::image;

/// The functions that the driver imports. A function that is added here must exist in every Windows
/// 10 and be allowed where it is called. If it gives the driver a new capability, `docs/driver.md`
/// must describe it.
///
/// `KeBugCheckEx` is not among them. It is only used by the panic handler, so the image has no code
/// that could panic.
const IMPORTS: &[&str] = &[
    // The device.
    "IoCreateDevice",
    "IoCreateSymbolicLink",
    "IoDeleteDevice",
    "IofCompleteRequest",
    "ObOpenObjectByPointer",
    "ZwClose",
    "ZwSetSecurityObject",
    // The caller.
    "PsGetCurrentProcessId",
    "PsGetCurrentThreadId",
    "SeSinglePrivilegeCheck",
    // The requested thread.
    "IoThreadToProcess",
    "ObfDereferenceObject",
    "PsGetThreadId",
    "PsGetThreadProcessId",
    "PsIsProtectedProcess",
    "PsIsProtectedProcessLight",
    "PsIsSystemThread",
    "PsLookupThreadByThreadId",
    // The capture.
    "IoGetStackLimits",
    "KeAreApcsDisabled",
    "KeEnterCriticalRegion",
    "KeInitializeApc",
    "KeInitializeEvent",
    "KeInsertQueueApc",
    "KeIsAttachedProcess",
    "KeLeaveCriticalRegion",
    "KeQueryUnbiasedInterruptTime",
    "KeSetEvent",
    "KeWaitForSingleObject",
    "MmGetSystemRoutineAddress",
    "RtlWalkFrameChain",
    "__C_specific_handler",
];

/// Functions that compiler-generated code may call.
const OF_COMPILER: &[&str] = &["memcmp", "memcpy", "memmove", "memset"];

#[test]
fn only_listed_functions_of_the_kernel_are_imported() {
    let Some(image) = image() else { return };
    let imports = image.imports();
    assert!(imports.iter().all(|(library, ..)| library == "ntoskrnl.exe"), "{imports:?}");
    let mut names: Vec<&str> = imports.iter().map(|(_, name, _)| name.as_str()).collect();
    names.retain(|name| !OF_COMPILER.contains(name));
    names.sort_unstable();
    let mut listed = IMPORTS.to_vec();
    listed.sort_unstable();
    assert_eq!(names, listed);
}

#[test]
fn it_is_a_driver_for_windows_10_on_x64() {
    let Some(image) = image() else { return };
    let pe = image.pe();
    let (file, optional) = (&pe.nt_headers().file_header, &pe.nt_headers().optional_header);
    assert_eq!(file.machine.get(LE), IMAGE_FILE_MACHINE_AMD64);
    let characteristics = file.characteristics.get(LE);
    assert!(characteristics.contains(IMAGE_FILE_EXECUTABLE_IMAGE));
    assert!(!characteristics.contains(IMAGE_FILE_RELOCS_STRIPPED));
    assert_eq!(optional.subsystem.get(LE), IMAGE_SUBSYSTEM_NATIVE);
    let version = (optional.major_subsystem_version.get(LE), optional.minor_subsystem_version.get(LE));
    assert_eq!(version, (10, 0));
    let entry = image.section(image.entry());
    assert!(entry.characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE), "the entry point is not in code");
}

#[test]
fn every_protection_of_the_header_is_requested() {
    let Some(image) = image() else { return };
    let pe = image.pe();
    let characteristics = pe.nt_headers().optional_header.dll_characteristics.get(LE);
    let expected = IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA
        | IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE
        | IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY
        | IMAGE_DLLCHARACTERISTICS_NX_COMPAT
        | IMAGE_DLLCHARACTERISTICS_GUARD_CF;
    assert_eq!(characteristics, expected, "{characteristics:#x}");
}

/// `CheckSumMappedFile`: the 16-bit words added with their carries, without the checksum itself,
/// and the length.
#[test]
fn the_checksum_is_that_of_the_file() {
    let Some(image) = image() else { return };
    let pe = image.pe();
    let written = pe.nt_headers().optional_header.check_sum.get(LE);
    let header = u32::from_le_bytes(image.bytes[0x3c..0x40].try_into().unwrap()) as usize;
    let at = header + 4 + 20 + 64;
    assert_eq!(image.bytes[at..at + 4], written.to_le_bytes(), "where the checksum is");
    let words = image.bytes.chunks(2).enumerate().filter(|(index, _)| !(at..at + 4).contains(&(2 * index)));
    let sum = words.fold(0_u32, |sum, (_, word)| {
        let sum = sum + u32::from(word[0]) + (u32::from(*word.get(1).unwrap_or(&0)) << 8);
        (sum & 0xffff) + (sum >> 16)
    });
    assert_eq!(written, sum + u32::try_from(image.bytes.len()).unwrap());
}

#[test]
fn sections_are_protected_and_resident() {
    let Some(image) = image() else { return };
    let pe = image.pe();
    assert_eq!(pe.nt_headers().optional_header.section_alignment.get(LE), 0x1000);
    let mut writable = Vec::new();
    for section in image.sections() {
        let name = String::from_utf8_lossy(section.raw_name()).into_owned();
        let flags = section.characteristics.get(LE);
        let both = IMAGE_SCN_MEM_WRITE | IMAGE_SCN_MEM_EXECUTE;
        assert!(!flags.contains(both), "{name} is writable and executable");
        // The loader decides by the name of a section whether it can be paged out. INIT sections
        // and discardable ones are freed after the driver has started.
        assert!(!name.starts_with("PAGE") && !name.starts_with("INIT"), "{name}");
        assert!(!flags.contains(IMAGE_SCN_MEM_DISCARDABLE) || name == ".reloc", "{name} is discardable");
        if flags.contains(IMAGE_SCN_MEM_WRITE) {
            writable.push(name);
        }
    }
    assert_eq!(writable, [".data"]);
    for table in [IMAGE_DIRECTORY_ENTRY_IAT, IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG] {
        let section = image.section(image.directory(table).0);
        let writable = section.characteristics.get(LE).contains(IMAGE_SCN_MEM_WRITE);
        assert!(!writable, "directory {table}");
    }
}

#[test]
fn it_has_no_exports_no_thread_storage_and_no_resources() {
    let Some(image) = image() else { return };
    let present: Vec<usize> = (0..16).filter(|&index| image.directory(index) != (0, 0)).collect();
    let expected = [
        IMAGE_DIRECTORY_ENTRY_IMPORT,
        IMAGE_DIRECTORY_ENTRY_EXCEPTION,
        IMAGE_DIRECTORY_ENTRY_BASERELOC,
        IMAGE_DIRECTORY_ENTRY_DEBUG,
        IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG,
        IMAGE_DIRECTORY_ENTRY_IAT,
    ];
    assert_eq!(present, expected);
}

#[test]
fn only_constants_are_relocated() {
    let Some(image) = image() else { return };
    let directories = image.directories();
    let pe = image.pe();
    let blocks = directories.relocation_blocks(&*image.bytes, &pe.section_table()).unwrap();
    let mut blocks = blocks.expect("relocations");
    let mut count = 0;
    while let Some(block) = blocks.next().expect("a block") {
        for relocation in block {
            let section = image.section(relocation.virtual_address);
            let flags = section.characteristics.get(LE);
            let other = flags.contains(IMAGE_SCN_MEM_WRITE) || flags.contains(IMAGE_SCN_MEM_EXECUTE);
            assert!(!other, "{:#x}", relocation.virtual_address);
            assert_eq!(relocation.typ, IMAGE_REL_BASED_DIR64);
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn nothing_reveals_the_build_folder() {
    let Some(image) = image() else { return };
    let debug = image.pe();
    let info = object::Object::pdb_info(&debug).expect("a debug directory").expect("a PDB");
    assert_eq!(info.path(), b"stackhound_kstack.pdb");
    for text in [".rs", "/src", "\\src", "home", "Users", "cargo", env!("CARGO_MANIFEST_DIR")] {
        let found = image.bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert!(!found, "{text:?} is in the image");
    }
}
