//! Where the driver begins, and where it would end.

use core::panic::PanicInfo;

use crate::nt::{
    DriverObject, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, KeBugCheckEx, Status,
    UnicodeString,
};
use crate::{device, irp, kernel};

// A library would export whatever has a name for the linker. This name is for the linker's `/ENTRY` only.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl DriverEntry",
    ".def DriverEntry; .scl 2; .type 32; .endef",
    "DriverEntry: jmp {entry}",
    entry = sym entry,
);

/// Called once by the system, when the driver is loaded. Whatever it made is gone if it fails.
///
/// `DriverUnload` stays empty, so the system never takes the image away: an APC that was abandoned may still come, and must
/// find its code.
unsafe extern "system" fn entry(driver: *mut DriverObject, _registry_path: *const UnicodeString) -> Status {
    kernel::look_up();
    // SAFETY: the system gives a driver object that is ours; nobody else uses it before this returns.
    let functions = unsafe { &mut (*driver).major_function };
    functions[IRP_MJ_CREATE] = Some(irp::create);
    functions[IRP_MJ_CLEANUP] = Some(irp::close);
    functions[IRP_MJ_CLOSE] = Some(irp::close);
    functions[IRP_MJ_DEVICE_CONTROL] = Some(irp::control);
    match device::create(driver) {
        Ok(()) => Status::SUCCESS,
        Err(status) => status,
    }
}

/// The code of the bug check by which a panic would end the system: `SHKS`.
const PANIC: u32 = u32::from_be_bytes(*b"SHKS");

/// Nothing in the image calls this: `tests/image.rs` sees to it that `KeBugCheckEx` is not imported. It is here because the
/// language wants it, and in case that changes.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    KeBugCheckEx(PANIC, 0, 0, 0, 0)
}
