//! Declarations of the functions of ntoskrnl.exe that the driver uses, and of their structures, for
//! x64.
//!
//! They were written by hand from Microsoft's documentation ("Kernel" in the driver reference) and,
//! for undocumented functions (asynchronous procedure calls, stack walks), from the public headers
//! of other projects and from symbols of the system. Only the used fields are declared; their
//! offsets are checked below. Only functions that every Windows 10 has are imported; the others are
//! looked up, see `kernel.rs`. `tests/image/headers.rs` contains the list of the imports.

use core::ffi::c_void;
use core::mem::{offset_of, size_of};

/// `NTSTATUS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u32);

impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const DEVICE_BUSY: Status = Status(0x8000_0011);
    pub const INVALID_PARAMETER: Status = Status(0xc000_000d);
    pub const INVALID_DEVICE_REQUEST: Status = Status(0xc000_0010);
    pub const ACCESS_DENIED: Status = Status(0xc000_0022);
    pub const BUFFER_TOO_SMALL: Status = Status(0xc000_0023);
    pub const INTERNAL_ERROR: Status = Status(0xc000_00e5);

    /// An error unless the function succeeded. As for `NT_SUCCESS`, information is a success; a
    /// warning is not.
    pub const fn check(self) -> Result<(), Status> {
        if self.0 >> 31 == 0 { Ok(()) } else { Err(self) }
    }
}

/// `UNICODE_STRING`; lengths are in bytes.
#[derive(Debug)]
#[repr(C)]
pub struct UnicodeString {
    length: u16,
    maximum_length: u16,
    buffer: *const u16,
}

impl UnicodeString {
    /// The string for a text of less than 32 Ki units.
    pub const fn new(text: &'static [u16]) -> Self {
        let length = 2 * text.len() as u16;
        Self { length, maximum_length: length, buffer: text.as_ptr() }
    }
}

/// `LUID`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Luid {
    pub low: u32,
    pub high: i32,
}

/// `KPROCESSOR_MODE`.
pub type ProcessorMode = i8;
pub const KERNEL_MODE: ProcessorMode = 0;
pub const USER_MODE: ProcessorMode = 1;

/// `ETHREAD`, which is opaque.
#[derive(Debug)]
#[repr(C)]
pub struct Thread([u8; 0]);

/// `EPROCESS`, which is opaque.
#[derive(Debug)]
#[repr(C)]
pub struct Process([u8; 0]);

/// `PDRIVER_DISPATCH`.
pub type Dispatch = unsafe extern "system" fn(*mut DeviceObject, *mut Irp) -> Status;

/// `DRIVER_OBJECT`.
#[derive(Debug)]
#[repr(C)]
pub struct DriverObject {
    kind: i16,
    size: i16,
    _unused: [u64; 13],
    /// The handlers, by the major function of a request. Without a handler of the driver, the
    /// system's default handler refuses the request.
    pub major_function: [Option<Dispatch>; 28],
}
pub const IRP_MJ_CREATE: usize = 0x00;
pub const IRP_MJ_CLOSE: usize = 0x02;
pub const IRP_MJ_DEVICE_CONTROL: usize = 0x0e;
pub const IRP_MJ_CLEANUP: usize = 0x12;

/// `DEVICE_OBJECT`, none of whose fields is used.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceObject([u8; 0]);
pub const FILE_DEVICE_UNKNOWN: u32 = 0x22;
pub const FILE_DEVICE_SECURE_OPEN: u32 = 0x100;

/// `FILE_OBJECT`, up to the fields of the driver.
#[derive(Debug)]
#[repr(C)]
pub struct FileObject {
    kind: i16,
    size: i16,
    device: *mut DeviceObject,
    volume: *mut c_void,
    context: *mut c_void,
    /// For use by the driver; zero for a new file.
    pub context2: *mut c_void,
}

/// `IRP`.
#[derive(Debug)]
#[repr(C)]
pub struct Irp {
    kind: i16,
    size: u16,
    _unused: [u32; 5],
    /// Input and output of buffered requests.
    pub system_buffer: *mut u8,
    _thread_list: [*mut c_void; 2],
    pub status: IoStatusBlock,
    pub requestor_mode: ProcessorMode,
    _unused2: [u8; 0x77],
    pub current_stack_location: *mut IoStackLocation,
    _unused3: [u64; 2],
}

/// `IO_STATUS_BLOCK`.
#[derive(Debug)]
#[repr(C)]
pub struct IoStatusBlock {
    pub status: Status,
    _upper_half: u32,
    pub information: usize,
}

/// `IO_STACK_LOCATION`, with the parameters of `IRP_MJ_DEVICE_CONTROL`.
#[derive(Debug)]
#[repr(C)]
pub struct IoStackLocation {
    pub major_function: u8,
    minor_function: u8,
    flags: u8,
    control: u8,
    _padding: u32,
    pub output_buffer_length: u32,
    _padding2: u32,
    pub input_buffer_length: u32,
    _padding3: u32,
    pub io_control_code: u32,
    _padding4: u32,
    type3_input_buffer: *mut c_void,
    device: *mut DeviceObject,
    pub file: *mut FileObject,
    completion_routine: *mut c_void,
    context: *mut c_void,
}

/// `KAPC`.
#[derive(Debug)]
#[repr(C)]
pub struct Apc {
    _unused: [usize; 8],
    /// As passed to [`KeInsertQueueApc`].
    pub system_argument1: *mut c_void,
    /// As passed to [`KeInsertQueueApc`].
    pub system_argument2: *mut c_void,
    _unused2: u64,
}

impl Apc {
    /// Zeroed, not initialized.
    pub const fn new() -> Self {
        use core::ptr::null_mut;
        Self { _unused: [0; 8], system_argument1: null_mut(), system_argument2: null_mut(), _unused2: 0 }
    }
}

/// `PKKERNEL_ROUTINE`: runs in the thread, at `APC_LEVEL`.
pub type KernelRoutine = unsafe extern "system" fn(
    *mut Apc,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
);
/// `PKRUNDOWN_ROUTINE`: runs when the thread ends before the APC ran.
pub type RundownRoutine = unsafe extern "system" fn(*mut Apc);
/// `OriginalApcEnvironment`: the thread's own process, whatever process it is attached to.
pub const ORIGINAL_APC_ENVIRONMENT: i32 = 0;

/// `KEVENT`: a `DISPATCHER_HEADER`.
#[derive(Debug)]
#[repr(C)]
pub struct Event([usize; 3]);

impl Event {
    /// Zeroed, not initialized.
    pub const fn new() -> Self {
        Self([0; 3])
    }
}
/// `NotificationEvent`.
pub const NOTIFICATION_EVENT: i32 = 0;
/// The wait reason `Executive`.
pub const EXECUTIVE: i32 = 0;

pub const OBJ_KERNEL_HANDLE: u32 = 0x200;
pub const WRITE_DAC: u32 = 0x0004_0000;
pub const DACL_SECURITY_INFORMATION: u32 = 4;

const _: () = {
    assert!(size_of::<UnicodeString>() == 16 && offset_of!(UnicodeString, buffer) == 8);
    assert!(size_of::<DriverObject>() == 0x150 && offset_of!(DriverObject, major_function) == 0x70);
    assert!(offset_of!(FileObject, context) == 0x18 && offset_of!(FileObject, context2) == 0x20);
    assert!(size_of::<Irp>() == 0xd0 && offset_of!(Irp, system_buffer) == 0x18);
    assert!(offset_of!(Irp, status) == 0x30 && offset_of!(Irp, requestor_mode) == 0x40);
    assert!(offset_of!(Irp, current_stack_location) == 0xb8);
    assert!(size_of::<IoStatusBlock>() == 0x10 && offset_of!(IoStatusBlock, information) == 8);
    assert!(size_of::<IoStackLocation>() == 0x48 && offset_of!(IoStackLocation, file) == 0x30);
    assert!(offset_of!(IoStackLocation, output_buffer_length) == 0x08);
    assert!(offset_of!(IoStackLocation, input_buffer_length) == 0x10);
    assert!(offset_of!(IoStackLocation, io_control_code) == 0x18);
    assert!(size_of::<Apc>() == 0x58 && offset_of!(Apc, system_argument1) == 0x40);
    assert!(offset_of!(Apc, system_argument2) == 0x48);
    assert!(size_of::<Event>() == 0x18);
};

// Names and parameters are those of the system. Functions that may be called with any parameters,
// whenever the driver runs, are declared safe.
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub fn IoCreateDevice(
        driver: *mut DriverObject,
        extension_size: u32,
        name: *const UnicodeString,
        device_type: u32,
        characteristics: u32,
        exclusive: u8,
        device: *mut *mut DeviceObject,
    ) -> Status;
    pub fn IoDeleteDevice(device: *mut DeviceObject);
    pub fn IoCreateSymbolicLink(link: *const UnicodeString, device: *const UnicodeString) -> Status;
    pub fn IofCompleteRequest(irp: *mut Irp, priority_boost: i8);
    pub fn IoGetStackLimits(low: *mut usize, high: *mut usize);
    pub fn IoThreadToProcess(thread: *mut Thread) -> *mut Process;

    pub fn ObOpenObjectByPointer(
        object: *mut c_void,
        attributes: u32,
        access_state: *mut c_void,
        access: u32,
        object_type: *mut c_void,
        mode: ProcessorMode,
        handle: *mut *mut c_void,
    ) -> Status;
    pub fn ObfDereferenceObject(object: *mut c_void) -> isize;
    pub fn ZwSetSecurityObject(handle: *mut c_void, information: u32, descriptor: *const c_void) -> Status;
    pub fn ZwClose(handle: *mut c_void) -> Status;
    pub safe fn SeSinglePrivilegeCheck(privilege: Luid, mode: ProcessorMode) -> u8;

    pub fn PsLookupThreadByThreadId(tid: usize, thread: *mut *mut Thread) -> Status;
    pub fn PsGetThreadId(thread: *mut Thread) -> usize;
    pub fn PsGetThreadProcessId(thread: *mut Thread) -> usize;
    pub fn PsIsSystemThread(thread: *mut Thread) -> u8;
    pub fn PsIsProtectedProcess(process: *mut Process) -> u8;
    pub fn PsIsProtectedProcessLight(process: *mut Process) -> u8;
    pub safe fn PsGetCurrentProcessId() -> usize;
    pub safe fn PsGetCurrentThreadId() -> usize;

    pub fn KeInitializeApc(
        apc: *mut Apc,
        thread: *mut Thread,
        environment: i32,
        kernel_routine: KernelRoutine,
        rundown_routine: Option<RundownRoutine>,
        normal_routine: *mut c_void,
        mode: ProcessorMode,
        normal_context: *mut c_void,
    );
    pub fn KeInsertQueueApc(
        apc: *mut Apc,
        argument1: *mut c_void,
        argument2: *mut c_void,
        increment: i32,
    ) -> u8;
    pub fn KeInitializeEvent(event: *mut Event, kind: i32, state: u8);
    pub fn KeSetEvent(event: *mut Event, increment: i32, wait: u8) -> i32;
    pub fn KeWaitForSingleObject(
        object: *mut c_void,
        reason: i32,
        mode: ProcessorMode,
        alertable: u8,
        timeout: *const i64,
    ) -> Status;
    pub safe fn KeAreApcsDisabled() -> u8;
    pub safe fn KeEnterCriticalRegion();
    pub safe fn KeLeaveCriticalRegion();
    pub safe fn KeIsAttachedProcess() -> u8;
    pub safe fn KeQueryUnbiasedInterruptTime() -> u64;
    pub safe fn KeBugCheckEx(code: u32, one: usize, two: usize, three: usize, four: usize) -> !;

    pub fn MmGetSystemRoutineAddress(name: *const UnicodeString) -> *mut c_void;
    pub fn RtlWalkFrameChain(callers: *mut *mut c_void, count: u32, flags: u32) -> u32;
    /// The exception handler of functions with a scope table; only the system calls it.
    pub fn __C_specific_handler(
        record: *mut c_void,
        frame: *mut c_void,
        context: *mut c_void,
        dispatcher: *mut c_void,
    ) -> i32;
}
