//! The entry point and the panic handler of the driver.

use core::panic::PanicInfo;

use crate::nt::{
    DriverObject, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, KeBugCheckEx, Status,
    UnicodeString,
};
use crate::{device, irp, kernel};

// A `#[no_mangle]` function would be exported by the library. This symbol exists only for the
// linker's `/ENTRY`.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl DriverEntry",
    ".def DriverEntry; .scl 2; .type 32; .endef",
    "DriverEntry: jmp {entry}",
    entry = sym entry,
);

/// Called once by the system when the driver is loaded. If it fails, it leaves no object in the
/// system.
///
/// `DriverUnload` stays empty, so the system never unloads the image: the APC of an abandoned
/// request may still run, and must find its code.
unsafe extern "system" fn entry(driver: *mut DriverObject, _registry_path: *const UnicodeString) -> Status {
    kernel::look_up();
    // SAFETY: the system passes the driver object of this driver, and does not use it before this
    // returns.
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

/// The bug check code with which a panic would stop the system: `SHKS`.
const PANIC: u32 = u32::from_be_bytes(*b"SHKS");

/// Nothing in the image calls this function: `tests/image` checks that `KeBugCheckEx` is not
/// imported. The language requires a panic handler.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    KeBugCheckEx(PANIC, 0, 0, 0, 0)
}
