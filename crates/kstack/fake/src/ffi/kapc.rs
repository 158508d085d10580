//! The layout of a KAPC on 64-bit Windows, and its routines.

use std::ffi::c_void;

use super::Object;

/// The routine that runs in the thread, before the normal routine if there is one. It may change
/// the values behind its pointers.
pub type KernelRoutine = unsafe extern "system" fn(
    *mut Kapc,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
);

/// The routine that is called if the thread ends first.
pub type RundownRoutine = unsafe extern "system" fn(*mut Kapc);

/// KAPC, 88 bytes. The layout is that of Microsoft's public symbols and of the headers of the
/// driver kit.
#[repr(C)]
#[derive(Debug)]
pub struct Kapc {
    kind: u8,
    flags: u8,
    size: u8,
    spare: u8,
    spare_long: u32,
    pub thread: Object,
    links: [usize; 2],
    pub kernel_routine: Option<KernelRoutine>,
    pub rundown_routine: Option<RundownRoutine>,
    pub normal_routine: *mut c_void,
    pub normal_context: *mut c_void,
    pub arguments: [*mut c_void; 2],
    environment: i8,
    mode: i8,
    /// Whether the APC is in the queue of a thread.
    pub inserted: u8,
}

const _: () = assert!(size_of::<Kapc>() == 0x58);
const _: () = assert!(std::mem::offset_of!(Kapc, inserted) == 0x52);

impl Kapc {
    /// The type number of APCs among kernel objects.
    const KIND: u8 = 18;

    /// An APC that is in no queue.
    pub fn new(
        thread: Object,
        environment: i8,
        kernel_routine: Option<KernelRoutine>,
        rundown_routine: Option<RundownRoutine>,
        normal_routine: *mut c_void,
        mode: i8,
        normal_context: *mut c_void,
    ) -> Self {
        // Without a normal routine it is a special APC, regardless of the mode.
        let special = normal_routine.is_null();
        Self {
            kind: Self::KIND,
            flags: 0,
            size: size_of::<Kapc>() as u8,
            spare: 0,
            spare_long: 0,
            thread,
            links: [0; 2],
            kernel_routine,
            rundown_routine,
            normal_routine,
            normal_context: if special { std::ptr::null_mut() } else { normal_context },
            arguments: [std::ptr::null_mut(); 2],
            environment,
            mode: if special { 0 } else { mode },
            inserted: 0,
        }
    }
}
