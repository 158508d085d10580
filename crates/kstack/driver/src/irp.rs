//! From a request packet of the system to what it asks for, and back. What is answered is decided in `stackhound-kstack-core`.
//!
//! The system calls these in the thread that asks, at `PASSIVE_LEVEL`.

use core::num::NonZeroU32;
use core::ptr::without_provenance_mut;

use stackhound_kstack_core::{Caller, Opener, Refusal};

use crate::kernel::SYSTEM;
use crate::nt::{
    DeviceObject, IoStackLocation, IofCompleteRequest, Irp, Luid, PsGetCurrentProcessId,
    SeSinglePrivilegeCheck, Status, USER_MODE,
};

/// `SE_DEBUG_PRIVILEGE`.
const DEBUG_PRIVILEGE: Luid = Luid { low: 20, high: 0 };

/// `IRP_MJ_CREATE`: whether the caller may open the device. Who it is stays with the open file.
pub unsafe extern "system" fn create(_: *mut DeviceObject, irp: *mut Irp) -> Status {
    // SAFETY: the system gives a packet that is ours until it is completed.
    unsafe {
        // With user mode as the mode, the privilege must be held and switched on.
        let privileged = SeSinglePrivilegeCheck(DEBUG_PRIVILEGE, USER_MODE) != 0;
        let file = (*location(irp)).file;
        let opened = match stackhound_kstack_core::open(caller(irp), privileged) {
            Ok(opener) if !file.is_null() => {
                (*file).context2 = without_provenance_mut(opener.number().get() as usize);
                Ok(0)
            }
            Ok(_) => Err(Refusal::AccessDenied),
            Err(refusal) => Err(refusal),
        };
        complete(irp, opened)
    }
}

/// `IRP_MJ_CLEANUP` and `IRP_MJ_CLOSE`: there is nothing to clean up.
pub unsafe extern "system" fn close(_: *mut DeviceObject, irp: *mut Irp) -> Status {
    // SAFETY: as for `create`.
    unsafe { complete(irp, Ok(0)) }
}

/// `IRP_MJ_DEVICE_CONTROL`: a request. May wait, for as long as the request allows.
pub unsafe extern "system" fn control(_: *mut DeviceObject, irp: *mut Irp) -> Status {
    // SAFETY: as for `create`.
    unsafe {
        let answered = answer(irp);
        complete(irp, answered)
    }
}

/// Hands the request to the device, and gives how many bytes were answered.
///
/// # Safety
/// The packet is one of `IRP_MJ_DEVICE_CONTROL` that is ours.
unsafe fn answer(irp: *mut Irp) -> Result<usize, Refusal> {
    // SAFETY: of such a packet, these are the current location, its file and the parameters.
    let (code, input, output, file) = unsafe {
        let location = location(irp);
        let (input, output) = ((*location).input_buffer_length, (*location).output_buffer_length);
        ((*location).io_control_code, input as usize, output as usize, (*location).file)
    };
    // The system tells of how a buffer is given by the code's lowest bits. Other ways than buffered are none of ours.
    if code & 3 != METHOD_BUFFERED {
        return Err(Refusal::UnknownRequest);
    }
    // Programs send requests by an open file; other drivers can without one.
    if file.is_null() {
        return Err(Refusal::AccessDenied);
    }
    // SAFETY: the file is one of this device, and only `create` has written there.
    let opener = unsafe { (*file).context2 }.addr();
    let opener = u32::try_from(opener).ok().and_then(NonZeroU32::new).ok_or(Refusal::AccessDenied)?;
    // SAFETY: the packet is ours.
    let (caller, start) = unsafe { (caller(irp), (*irp).system_buffer) };
    let length = input.max(output);
    let buffer = if length == 0 || start.is_null() {
        &mut []
    } else {
        // The system has copied the input, and left what was in its memory behind it.
        //
        // SAFETY: the system's buffer is as long as the longer of the two, and ours alone. All of it has values after it was zeroed
        // behind the input.
        unsafe {
            start.add(input).write_bytes(0, length - input);
            core::slice::from_raw_parts_mut(start, length)
        }
    };
    stackhound_kstack_core::control(&SYSTEM, Opener::kept(opener), caller, code, buffer, input, output)
}

const METHOD_BUFFERED: u32 = 0;

/// Who sends a packet.
///
/// # Safety
/// The packet is ours.
unsafe fn caller(irp: *mut Irp) -> Caller {
    // SAFETY: the packet is ours.
    let mode = unsafe { (*irp).requestor_mode };
    Caller { from_user_mode: mode == USER_MODE, pid: PsGetCurrentProcessId() as u32 }
}

/// `IoGetCurrentIrpStackLocation`.
///
/// # Safety
/// The packet is ours.
unsafe fn location(irp: *mut Irp) -> *mut IoStackLocation {
    // SAFETY: the packet is ours.
    unsafe { (*irp).current_stack_location }
}

/// Completes a packet, with so many bytes for the caller.
///
/// # Safety
/// The packet is ours, and is not used any more.
unsafe fn complete(irp: *mut Irp, result: Result<usize, Refusal>) -> Status {
    let (status, information) = match result {
        Ok(written) => (Status::SUCCESS, written),
        Err(refusal) => (status_of(refusal), 0),
    };
    // SAFETY: the packet is ours until the call.
    unsafe {
        (*irp).status.status = status;
        (*irp).status.information = information;
        IofCompleteRequest(irp, 0);
    }
    status
}

fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::AccessDenied => Status::ACCESS_DENIED,
        Refusal::UnknownRequest => Status::INVALID_DEVICE_REQUEST,
        Refusal::InvalidParameter => Status::INVALID_PARAMETER,
        Refusal::BufferTooSmall => Status::BUFFER_TOO_SMALL,
        Refusal::Busy => Status::DEVICE_BUSY,
        Refusal::Internal => Status::INTERNAL_ERROR,
    }
}
