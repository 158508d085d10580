//! The device: it is created, gets its access list, and only then a name that programs can reach.

use core::ffi::c_void;
use core::ptr::{from_ref, null_mut};

use stackhound_kstack_proto::{DEVICE_NAME, LINK_NAME};

use crate::nt::{
    DACL_SECURITY_INFORMATION, DeviceObject, DriverObject, FILE_DEVICE_SECURE_OPEN, FILE_DEVICE_UNKNOWN,
    IoCreateDevice, IoCreateSymbolicLink, IoDeleteDevice, KERNEL_MODE, OBJ_KERNEL_HANDLE,
    ObOpenObjectByPointer, Status, UnicodeString, WRITE_DAC, ZwClose, ZwSetSecurityObject,
};
use crate::security;
use crate::wide::wide;

static DEVICE: [u16; DEVICE_NAME.len()] = wide(DEVICE_NAME);
static LINK: [u16; LINK_NAME.len()] = wide(LINK_NAME);

/// Creates the device of the driver. After an error, no device exists.
///
/// The system refuses to open a device before the driver's entry point has returned
/// (`DO_DEVICE_INITIALIZING`), so the device cannot be opened before the access list is set.
pub fn create(driver: *mut DriverObject) -> Result<(), Status> {
    let (name, link) = (UnicodeString::new(&DEVICE), UnicodeString::new(&LINK));
    let mut device = null_mut();
    // With FILE_DEVICE_SECURE_OPEN, the access list also applies to names below the device's name.
    //
    // SAFETY: the driver object is that of the entry point; the other pointers point to variables.
    let created = unsafe {
        IoCreateDevice(driver, 0, &name, FILE_DEVICE_UNKNOWN, FILE_DEVICE_SECURE_OPEN, 0, &mut device)
    };
    created.check()?;
    let linked = secure(device).and_then(|()| {
        // SAFETY: both names are valid for the duration of the call.
        unsafe { IoCreateSymbolicLink(&link, &name) }.check()
    });
    if linked.is_err() {
        // SAFETY: the device was created above, and could not be opened yet.
        unsafe { IoDeleteDevice(device) };
    }
    linked
}

/// Sets the access list of the device.
fn secure(device: *mut DeviceObject) -> Result<(), Status> {
    let mut handle = null_mut();
    // In kernel mode, the object type is optional.
    //
    // SAFETY: the device was created by the caller; `handle` is a variable.
    let opened = unsafe {
        ObOpenObjectByPointer(
            device.cast(),
            OBJ_KERNEL_HANDLE,
            null_mut(),
            WRITE_DAC,
            null_mut(),
            KERNEL_MODE,
            &mut handle,
        )
    };
    opened.check()?;
    let descriptor = from_ref(&security::DEVICE).cast::<c_void>();
    // SAFETY: the handle was opened with this right, and the descriptor is complete, see its tests.
    let set = unsafe { ZwSetSecurityObject(handle, DACL_SECURITY_INFORMATION, descriptor) };
    // SAFETY: the handle was opened above, and is no longer used.
    let closed = unsafe { ZwClose(handle) };
    set.check().and(closed.check())
}
