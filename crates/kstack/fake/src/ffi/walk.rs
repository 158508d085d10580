//! Walks of the calling thread's stack.
//!
//! The kernel's part is the real stack of the thread, by the same unwind data as in Windows; its addresses
//! are made ones of the kernel, see [`crate::HIGH`]. The driver's own frames keep theirs, because the driver
//! compares them with the place where it was loaded, which is a process's address here; a test can wish
//! otherwise, and then sees them, and none left out. The user's part is made up. As in Windows, in a thread that the
//! kernel has called back into user mode it goes on through the kernel frames of the callback to the user frames
//! outside of them.

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

/// The first frame of the made-up user part; the others follow at this distance.
const USER: usize = 0x7ff6_1234_0000;
const DISTANCE: usize = 0x10;
/// The first kernel frame of a made-up callback.
const CALLBACK: usize = HIGH as usize + 0x1_0000;

/// # Safety
/// As RtlWalkFrameChain: `callers` has room for so many addresses.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_RtlWalkFrameChain(callers: *mut usize, count: u32, flags: u32) -> u32 {
    let settings = Settings::current();
    // SAFETY: the caller's promise.
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
            // SAFETY: it is not sound: the access violation is what is wanted, and the caller must be ready for
            // it.
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
        // From this function to the one that was called by the driver.
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

/// The start of the image in which an address lies; null for none.
fn image(address: *const c_void) -> Object {
    let mut base = std::ptr::null_mut();
    // SAFETY: any address may be asked for; there is room for the result.
    unsafe { own::RtlPcToFileHeader(address, &mut base) }
}

/// The range of the function at an address.
pub(super) fn function(address: u64) -> Option<std::ops::Range<u64>> {
    let mut base = 0;
    // SAFETY: any address may be asked for; there is room for the base.
    let entry = unsafe { RtlLookupFunctionEntry(address, &mut base, std::ptr::null_mut()) };
    if entry.is_null() {
        return None;
    }
    // SAFETY: an entry of the image's table.
    let entry = unsafe { *entry };
    let at = |offset: u32| base + u64::from(offset);
    Some(at(entry.BeginAddress)..at(entry.EndAddress))
}

/// Tells the return addresses of the calling thread, the innermost first, until one is refused or the stack
/// ends.
#[inline(never)]
fn unwind(mut tell: impl FnMut(usize) -> bool) {
    let (mut low, mut high) = (0, 0);
    // SAFETY: there is room for both.
    unsafe { GetCurrentThreadStackLimits(&mut low, &mut high) };
    let mut context = Box::new(CONTEXT::default());
    // SAFETY: there is room for a context, aligned as its type says.
    unsafe { RtlCaptureContext(&mut *context) };
    loop {
        let address = context.Rip;
        let (mut base, mut data, mut frame) = (0, std::ptr::null_mut(), 0);
        // SAFETY: any address may be asked for; there is room for the base.
        let entry = unsafe { RtlLookupFunctionEntry(address, &mut base, std::ptr::null_mut()) };
        // Every function that calls has an entry.
        if entry.is_null() {
            return;
        }
        // SAFETY: the entry of the address, in the context of the function that it is of; the frames below
        // are alive, as they are those of this thread.
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
        if context.Rip == 0 || outside || !tell(context.Rip as usize) {
            return;
        }
    }
}
