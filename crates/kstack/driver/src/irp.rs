//! Translation of the system's request packets to calls of `stackhound-kstack-core`, which decides
//! all answers.
//!
//! The system calls these functions in the requesting thread, at `PASSIVE_LEVEL`.

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

/// `IRP_MJ_CREATE`: checks whether the caller may open the device, and stores its process id with
/// the open file.
pub unsafe extern "system" fn create(_: *mut DeviceObject, irp: *mut Irp) -> Status {
    // SAFETY: the system passes a packet that belongs to the driver until it is completed.
    unsafe {
        // With user mode as the mode, the privilege must be held and enabled.
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

/// `IRP_MJ_DEVICE_CONTROL`: a request. May wait until the timeout of the request.
pub unsafe extern "system" fn control(_: *mut DeviceObject, irp: *mut Irp) -> Status {
    // SAFETY: as for `create`.
    unsafe {
        let result = answer(irp);
        complete(irp, result)
    }
}

/// Passes the request to the device, and returns the length of the answer in bytes.
///
/// # Safety
/// The packet is an `IRP_MJ_DEVICE_CONTROL` packet that belongs to the driver.
unsafe fn answer(irp: *mut Irp) -> Result<usize, Refusal> {
    // SAFETY: such a packet has a current location with a file and these parameters.
    let (code, input, output, file) = unsafe {
        let location = location(irp);
        let (input, output) = ((*location).input_buffer_length, (*location).output_buffer_length);
        ((*location).io_control_code, input as usize, output as usize, (*location).file)
    };
    // The lowest bits of the code are the transfer method. The driver has no codes with other
    // methods than buffered.
    if code & 3 != METHOD_BUFFERED {
        return Err(Refusal::UnknownRequest);
    }
    // Programs send requests with an open file; other drivers can do so without one.
    if file.is_null() {
        return Err(Refusal::AccessDenied);
    }
    // SAFETY: the file belongs to this device, and only `create` writes this field.
    let opener = unsafe { (*file).context2 }.addr();
    let opener = u32::try_from(opener).ok().and_then(NonZeroU32::new).ok_or(Refusal::AccessDenied)?;
    // SAFETY: the packet belongs to the driver.
    let (caller, start) = unsafe { (caller(irp), (*irp).system_buffer) };
    let length = input.max(output);
    let buffer = if length == 0 || start.is_null() {
        &mut []
    } else {
        // The system has copied the input. After it, the buffer may contain old data.
        //
        // SAFETY: the system buffer is as long as the longer of the two lengths, and is used only
        // by the driver. It is fully initialized once it is zeroed after the input.
        unsafe {
            start.add(input).write_bytes(0, length - input);
            core::slice::from_raw_parts_mut(start, length)
        }
    };
    stackhound_kstack_core::control(&SYSTEM, Opener::kept(opener), caller, code, buffer, input, output)
}

const METHOD_BUFFERED: u32 = 0;

/// The sender of a packet.
///
/// # Safety
/// The packet belongs to the driver.
unsafe fn caller(irp: *mut Irp) -> Caller {
    // SAFETY: the packet belongs to the driver.
    let mode = unsafe { (*irp).requestor_mode };
    Caller { from_user_mode: mode == USER_MODE, pid: PsGetCurrentProcessId() as u32 }
}

/// `IoGetCurrentIrpStackLocation`.
///
/// # Safety
/// The packet belongs to the driver.
unsafe fn location(irp: *mut Irp) -> *mut IoStackLocation {
    // SAFETY: the packet belongs to the driver.
    unsafe { (*irp).current_stack_location }
}

/// Completes a packet with a status, and the number of bytes for the caller.
///
/// # Safety
/// The packet belongs to the driver, and is not used afterwards.
unsafe fn complete(irp: *mut Irp, result: Result<usize, Refusal>) -> Status {
    let (status, information) = match result {
        Ok(written) => (Status::SUCCESS, written),
        Err(refusal) => (status_of(refusal), 0),
    };
    // SAFETY: the packet belongs to the driver until the call.
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
