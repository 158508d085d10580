//! References, devices, and the look-up of functions by name.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::log::log;
use super::own::{self, UnicodeString, text};
use super::{Boolean, Object, status, targets};
use crate::settings::Settings;

/// The threads that drivers have referenced and not released.
static REFERENCED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The device whose creation starts the threads of the fake.
static DEVICE: AtomicUsize = AtomicUsize::new(0);

/// The end of the name of that device.
const NAME: &str = "StackhoundKstack";

/// Records that a driver has referenced a thread.
pub(super) fn referenced(thread: Object) {
    if let Ok(mut referenced) = REFERENCED.lock() {
        referenced.push(thread as usize);
    }
}

/// Whether an object is the driver's device.
pub(super) fn is_device(object: Object) -> bool {
    !object.is_null() && object as usize == DEVICE.load(Ordering::Relaxed)
}

/// # Safety
/// As ObfDereferenceObject: an object to which the caller has a reference.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_ObfDereferenceObject(object: Object) -> isize {
    if let Ok(mut referenced) = REFERENCED.lock()
        && let Some(index) = referenced.iter().position(|&thread| thread == object as usize)
    {
        referenced.swap_remove(index);
        log(format_args!("released, {} threads are referenced", referenced.len()));
    }
    // SAFETY: the contract of the caller.
    unsafe { own::ObfDereferenceObject(object) }
}

/// # Safety
/// As MmGetSystemRoutineAddress.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_MmGetSystemRoutineAddress(name: *const UnicodeString) -> *const c_void {
    // SAFETY: the contract of the caller.
    let wanted = unsafe { text(name) };
    let missing = Settings::current().missing.contains(&wanted);
    // SAFETY: the contract of the caller. Wine searches the module that is loaded as ntoskrnl.exe,
    // which is this library.
    let found = if missing { std::ptr::null() } else { unsafe { own::MmGetSystemRoutineAddress(name) } };
    log(format_args!("MmGetSystemRoutineAddress {wanted} = {}", u8::from(!found.is_null())));
    found
}

/// # Safety
/// As IoCreateDevice.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_IoCreateDevice(
    driver: Object,
    extension: u32,
    name: *const UnicodeString,
    kind: u32,
    characteristics: u32,
    exclusive: Boolean,
    device: *mut Object,
) -> i32 {
    let create = own::IoCreateDevice;
    // SAFETY: the contract of the caller.
    let status = unsafe { create(driver, extension, name, kind, characteristics, exclusive, device) };
    // SAFETY: the contract of the caller.
    let name = unsafe { text(name) };
    if status == status::SUCCESS && name.ends_with(NAME) {
        log(format_args!("IoCreateDevice {name} {kind:#x} {characteristics:#x} {exclusive}"));
        // SAFETY: the contract of the caller; just written by the call.
        let device = unsafe { *device };
        DEVICE.store(device as usize, Ordering::Relaxed);
        targets::make();
    }
    status
}

/// # Safety
/// As IoCreateSymbolicLink.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_IoCreateSymbolicLink(
    link: *const UnicodeString,
    target: *const UnicodeString,
) -> i32 {
    // SAFETY: the contract of the caller.
    let name = unsafe { text(link) };
    if name.ends_with(NAME) {
        log(format_args!("IoCreateSymbolicLink {name}"));
        if Settings::current().fails("IoCreateSymbolicLink") {
            return status::UNSUCCESSFUL;
        }
    }
    // SAFETY: the contract of the caller.
    unsafe { own::IoCreateSymbolicLink(link, target) }
}

/// The fields of a request packet (IRP) that are logged. The layout is that of the headers of the
/// driver kit.
#[repr(C)]
struct Packet {
    _before: [u64; 6],
    status: i32,
    _upper_half: u32,
    information: usize,
    _between: [u64; 15],
    location: *const Location,
}

/// The used fields of IO_STACK_LOCATION.
#[repr(C)]
struct Location {
    major: u8,
    _between: [u64; 4],
    device: Object,
}

/// Opening the device, and a request to it: IRP_MJ_CREATE and IRP_MJ_DEVICE_CONTROL.
const CREATE: u8 = 0;
const CONTROL: u8 = 0xe;

const _: () = assert!(std::mem::offset_of!(Packet, status) == 0x30);
const _: () = assert!(std::mem::offset_of!(Packet, location) == 0xb8);
const _: () = assert!(std::mem::offset_of!(Location, device) == 0x28);

/// # Safety
/// As IofCompleteRequest: a packet of the driver, which is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_IofCompleteRequest(packet: *mut Packet, boost: i8) {
    // SAFETY: the contract of the caller.
    let completed = unsafe { &*packet };
    if !completed.location.is_null() {
        // SAFETY: the stack location of a packet that is not completed yet.
        let location = unsafe { &*completed.location };
        // Other packets are not logged: the time at which Wine closes a file is not predictable.
        if is_device(location.device) && [CREATE, CONTROL].contains(&location.major) {
            let Packet { status, information, .. } = completed;
            log(format_args!("completed {:#x} status {status:#x} bytes {information}", location.major));
            if !super::apc::has_left_regions() {
                log(format_args!("completed in a critical region"));
            }
        }
    }
    // SAFETY: the contract of the caller.
    unsafe { own::IofCompleteRequest(packet.cast(), boost) }
}
