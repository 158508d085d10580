//! The one lock around Debug Help, its options, and those of its functions that are found at run time.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use windows_sys::Win32::Foundation::{HANDLE, WAIT_ABANDONED, WAIT_OBJECT_0};
use windows_sys::Win32::System::Diagnostics::Debug::{
    IMAGEHLP_LINEW64, SYMBOL_INFOW, SYMOPT_DEFERRED_LOADS, SYMOPT_FAIL_CRITICAL_ERRORS, SYMOPT_IGNORE_CVREC,
    SYMOPT_IGNORE_NT_SYMPATH, SYMOPT_INCLUDE_32BIT_MODULES, SYMOPT_LOAD_LINES, SYMOPT_NO_PROMPTS,
    SYMOPT_OMAP_FIND_NEAREST, SymSetOptions,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::{CreateMutexW, INFINITE, ReleaseMutex, WaitForSingleObject};
use windows_sys::core::{BOOL, s, w};

use crate::Error;
use crate::text::to_wide;

/// For the whole program. Symbols are loaded when they are first asked for, without any dialogue; only from the search
/// path that a session was given, not from where the image or the environment say. An image may come from anywhere, and
/// its path to a PDB can lead into a network. Not undecorated: private symbols are not decorated anyway, and public ones
/// shall read like ours.
const OPTIONS: u32 = SYMOPT_DEFERRED_LOADS
    | SYMOPT_LOAD_LINES
    | SYMOPT_OMAP_FIND_NEAREST
    | SYMOPT_FAIL_CRITICAL_ERRORS
    | SYMOPT_NO_PROMPTS
    | SYMOPT_IGNORE_CVREC
    | SYMOPT_IGNORE_NT_SYMPATH
    | SYMOPT_INCLUDE_32BIT_MODULES;

type AddrIncludeInlineTrace = unsafe extern "system" fn(HANDLE, u64) -> u32;
type QueryInlineTrace = unsafe extern "system" fn(HANDLE, u64, u32, u64, u64, *mut u32, *mut u32) -> BOOL;
type FromInlineContext = unsafe extern "system" fn(HANDLE, u64, u32, *mut u64, *mut SYMBOL_INFOW) -> BOOL;
type LineFromInlineContext =
    unsafe extern "system" fn(HANDLE, u64, u32, u64, *mut u32, *mut IMAGEHLP_LINEW64) -> BOOL;

/// What answers questions about inlined functions: in Debug Help since Windows 8.
#[derive(Clone, Copy)]
pub(super) struct InlineFunctions {
    pub count: AddrIncludeInlineTrace,
    pub query: QueryInlineTrace,
    pub symbol: FromInlineContext,
    pub line: LineFromInlineContext,
}

/// What is found out once.
struct Library {
    /// Held by all who use Debug Help in this process. Rust's own library takes it for its backtraces.
    shared: OwnedHandle,
    inline: Option<InlineFunctions>,
}

/// Held while a function of Debug Help runs. The only way to call one.
pub(super) struct Locked {
    library: &'static Library,
    // Let go after the shared one. Not `Send`: Windows wants a mutex back from the thread that took it.
    _threads: MutexGuard<'static, ()>,
    _not_send: PhantomData<*const ()>,
}

impl Locked {
    /// Nothing where Debug Help is too old.
    pub fn inline(&self) -> Option<InlineFunctions> {
        self.library.inline
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the handle lives as long as the program, and this thread took the mutex when `self` was made.
        unsafe { ReleaseMutex(self.library.shared.as_raw_handle()) };
    }
}

/// Waits until nobody else uses Debug Help.
pub(super) fn lock() -> Result<Locked, Error> {
    static THREADS: Mutex<()> = Mutex::new(());
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // Nothing that the lock protects is ours, so a panic elsewhere left nothing half done.
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let library = match LIBRARY.get() {
        Some(library) => library,
        None => {
            let found = Library { shared: shared_mutex()?, inline: inline_functions() };
            LIBRARY.get_or_init(|| found)
        }
    };
    // SAFETY: the handle lives as long as the program.
    let waited = unsafe { WaitForSingleObject(library.shared.as_raw_handle(), INFINITE) };
    // A thread that ended inside leaves the mutex to the next one.
    if waited != WAIT_OBJECT_0 && waited != WAIT_ABANDONED {
        return Err(Error::last("WaitForSingleObject"));
    }
    let locked = Locked { library, _threads: threads, _not_send: PhantomData };
    // SAFETY: sets a number; the lock is held.
    unsafe { SymSetOptions(OPTIONS) };
    Ok(locked)
}

/// The mutex by which copies of Rust's library in one process agree (`backtrace` crate, module `dbghelp`).
fn shared_mutex() -> Result<OwnedHandle, Error> {
    let name = to_wide(format!("Local\\RustBacktraceMutex{:08X}", std::process::id()).as_ref())?;
    // SAFETY: the name ends with a zero and outlives the call.
    let handle = unsafe { CreateMutexW(ptr::null(), 0, name.as_ptr()) };
    if handle.is_null() {
        return Err(Error::last("CreateMutexW"));
    }
    // SAFETY: just made, and nobody else has it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn inline_functions() -> Option<InlineFunctions> {
    // SAFETY: the name ends with a zero. The library stays loaded, because this program imports from it.
    let library = unsafe { GetModuleHandleW(w!("dbghelp.dll")) };
    if library.is_null() {
        return None;
    }
    let find = |name| {
        // SAFETY: the name ends with a zero, the library is loaded.
        let found = unsafe { GetProcAddress(library, name) };
        found.map(|function| function as *const c_void)
    };
    let count = find(s!("SymAddrIncludeInlineTrace"))?;
    let query = find(s!("SymQueryInlineTrace"))?;
    let symbol = find(s!("SymFromInlineContextW"))?;
    let line = find(s!("SymGetLineFromInlineContextW"))?;
    Some(InlineFunctions {
        // SAFETY: the function of this name has this signature (dbghelp.h).
        count: unsafe { mem::transmute::<*const c_void, AddrIncludeInlineTrace>(count) },
        // SAFETY: as above.
        query: unsafe { mem::transmute::<*const c_void, QueryInlineTrace>(query) },
        // SAFETY: as above.
        symbol: unsafe { mem::transmute::<*const c_void, FromInlineContext>(symbol) },
        // SAFETY: as above.
        line: unsafe { mem::transmute::<*const c_void, LineFromInlineContext>(line) },
    })
}
