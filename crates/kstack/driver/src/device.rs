//! The device: made, closed to all but those who may open it, and only then given a name that programs can reach.

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

/// Makes the device of the driver. There is none after an error.
///
/// The system refuses to open a device before the driver's entry has returned (`DO_DEVICE_INITIALIZING`), so nobody gets in before
/// the access list is set.
pub fn create(driver: *mut DriverObject) -> Result<(), Status> {
    let (name, link) = (UnicodeString::new(&DEVICE), UnicodeString::new(&LINK));
    let mut device = null_mut();
    // With FILE_DEVICE_SECURE_OPEN the access list holds for names behind the device's name, too.
    //
    // SAFETY: the driver object is that of the driver's entry, the other pointers are of variables.
    let created = unsafe {
        IoCreateDevice(driver, 0, &name, FILE_DEVICE_UNKNOWN, FILE_DEVICE_SECURE_OPEN, 0, &mut device)
    };
    created.check()?;
    let made = secure(device).and_then(|()| {
        // SAFETY: both names live as long as the call.
        unsafe { IoCreateSymbolicLink(&link, &name) }.check()
    });
    if made.is_err() {
        // SAFETY: the device was made above, and could not be opened yet.
        unsafe { IoDeleteDevice(device) };
    }
    made
}

/// Sets the access list of the device.
fn secure(device: *mut DeviceObject) -> Result<(), Status> {
    let mut handle = null_mut();
    // From kernel mode, no object type need be given.
    //
    // SAFETY: the device was made by the caller; `handle` is a variable.
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
    // SAFETY: the handle is open for this, and the descriptor is whole, see its tests.
    let set = unsafe { ZwSetSecurityObject(handle, DACL_SECURITY_INFORMATION, descriptor) };
    // SAFETY: the handle was opened above, and is not used any more.
    let closed = unsafe { ZwClose(handle) };
    set.check().and(closed.check())
}
