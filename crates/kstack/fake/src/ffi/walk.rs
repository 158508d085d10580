//! Walks of the calling thread's stack.
//!
//! The kernel stack is the real stack of the thread, walked with the same unwind data as on
//! Windows. Its addresses are mapped to kernel addresses, see [`crate::HIGH`]. The driver's own
//! frames are not mapped, because the driver compares them with its load address, which is an
//! address of the process here. If a test maps them, they appear in the answer, and none is
//! omitted.
//!
//! The user stack is synthetic. As on Windows, during a callback from the kernel to user mode it
//! continues through the kernel frames of the callback to the outer user frames.

use std::ffi::c_void;
use std::hint::black_box;

use windows_sys::Win32::System::Diagnostics::Debug::{
    CONTEXT, RtlCaptureContext, RtlLookupFunctionEntry, RtlVirtualUnwind,
};
use windows_sys::Win32::System::Threading::GetCurrentThreadStackLimits;

use super::log::log;
use super::{Object, own, targets};
use crate::HIGH;
use crate::settings::{Settings, UserWalk};

/// The first frame of the synthetic user stack, and the distance between its frames.
const USER: usize = 0x7ff6_1234_0000;
const DISTANCE: usize = 0x10;
/// The first kernel frame of a synthetic callback.
const CALLBACK: usize = HIGH as usize + 0x1_0000;

/// # Safety
/// As RtlWalkFrameChain: `callers` has space for `count` addresses.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_RtlWalkFrameChain(callers: *mut usize, count: u32, flags: u32) -> u32 {
    let settings = Settings::current();
    // SAFETY: the contract of the caller.
    let callers = unsafe { std::slice::from_raw_parts_mut(callers, count as usize) };
    const USER_MODE: u32 = 1;
    let walked =
        if flags & USER_MODE != 0 { user(callers, &settings) } else { kernel(callers, settings.own_mapped) };
    log(format_args!("RtlWalkFrameChain {count} flags {flags:#x} = {walked}"));
    walked as u32
}

fn user(callers: &mut [usize], settings: &Settings) -> usize {
    let frames = match settings.user {
        UserWalk::Frames(frames) => frames,
        UserWalk::Faults => {
            log(format_args!("RtlWalkFrameChain faults"));
            let nowhere = black_box(0x10 as *const usize);
            // SAFETY: not sound: the access violation is intended, and the caller must handle it.
            callers[0] = unsafe { nowhere.read_volatile() };
            return 1;
        }
        UserWalk::Hangs => {
            log(format_args!("RtlWalkFrameChain hangs"));
            targets::await_wake();
            3
        }
    };
    let mut user = (0..usize::from(frames)).map(|index| USER + index * DISTANCE);
    let innermost = user.by_ref().take(1);
    let callback = (0..usize::from(settings.callback)).map(|index| CALLBACK + index * DISTANCE);
    let chain: Vec<usize> = innermost.chain(callback).collect();
    let mut walked = 0;
    for (caller, address) in callers.iter_mut().zip(chain.into_iter().chain(user)) {
        *caller = address;
        walked += 1;
    }
    walked
}

fn kernel(callers: &mut [usize], own_mapped: bool) -> usize {
    let fake = image(kernel as *const c_void);
    let mut driver = std::ptr::null_mut();
    let mut walked = 0;
    let mut inside = true;
    unwind(|address| {
        let here = image(address as *const c_void);
        // The frames from this function to the one that the driver called.
        inside &= here == fake;
        if inside {
            return true;
        }
        let Some(caller) = callers.get_mut(walked) else { return false };
        if walked == 0 {
            driver = here;
        }
        let keeps = here == driver && !own_mapped;
        *caller = if keeps { address } else { address | HIGH as usize };
        walked += 1;
        true
    });
    walked
}

/// The base of the image that contains an address; null if there is none.
fn image(address: *const c_void) -> Object {
    let mut base = std::ptr::null_mut();
    // SAFETY: any address is valid; `base` is a variable.
    unsafe { own::RtlPcToFileHeader(address, &mut base) }
}

/// The range of the function at an address.
pub(super) fn function(address: u64) -> Option<std::ops::Range<u64>> {
    let mut base = 0;
    // SAFETY: any address is valid; `base` is a variable.
    let entry = unsafe { RtlLookupFunctionEntry(address, &mut base, std::ptr::null_mut()) };
    if entry.is_null() {
        return None;
    }
    // SAFETY: an entry of the image's function table.
    let entry = unsafe { *entry };
    let at = |offset: u32| base + u64::from(offset);
    Some(at(entry.BeginAddress)..at(entry.EndAddress))
}

/// Calls `visit` with each return address of the calling thread, innermost first, until it returns
/// false or the stack ends.
#[inline(never)]
fn unwind(mut visit: impl FnMut(usize) -> bool) {
    let (mut low, mut high) = (0, 0);
    // SAFETY: both are variables.
    unsafe { GetCurrentThreadStackLimits(&mut low, &mut high) };
    let mut context = Box::new(CONTEXT::default());
    // SAFETY: the context is a variable with the alignment of its type.
    unsafe { RtlCaptureContext(&mut *context) };
    loop {
        let address = context.Rip;
        let (mut base, mut data, mut frame) = (0, std::ptr::null_mut(), 0);
        // SAFETY: any address is valid; `base` is a variable.
        let entry = unsafe { RtlLookupFunctionEntry(address, &mut base, std::ptr::null_mut()) };
        // Every function with a call has an entry.
        if entry.is_null() {
            return;
        }
        // SAFETY: the entry of the address, and the context of its function; the outer frames are
        // valid, because they belong to this thread.
        unsafe {
            RtlVirtualUnwind(
                0,
                base,
                address,
                entry,
                &mut *context,
                &mut data,
                &mut frame,
                std::ptr::null_mut(),
            )
        };
        let outside = !(low..high).contains(&(context.Rsp as usize));
        if context.Rip == 0 || outside || !visit(context.Rip as usize) {
            return;
        }
    }
}
