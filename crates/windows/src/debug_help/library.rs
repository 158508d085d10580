//! The lock around Debug Help, its options, and the lookup of its functions at run time.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use windows_sys::Win32::Foundation::{HANDLE, HMODULE, WAIT_ABANDONED, WAIT_OBJECT_0};
use windows_sys::Win32::System::Diagnostics::Debug::{
    IMAGEHLP_LINEW64, IMAGEHLP_MODULEW64, MODLOAD_DATA, PFUNCTION_TABLE_ACCESS_ROUTINE64,
    PGET_MODULE_BASE_ROUTINE64, PREAD_PROCESS_MEMORY_ROUTINE64, PSYM_ENUMMODULES_CALLBACKW64,
    PTRANSLATE_ADDRESS_ROUTINE64, STACKFRAME64, SYM_LOAD_FLAGS, SYMBOL_INFOW, SYMOPT_DEFERRED_LOADS,
    SYMOPT_FAIL_CRITICAL_ERRORS, SYMOPT_IGNORE_CVREC, SYMOPT_IGNORE_NT_SYMPATH, SYMOPT_INCLUDE_32BIT_MODULES,
    SYMOPT_LOAD_LINES, SYMOPT_NO_PROMPTS, SYMOPT_OMAP_FIND_NEAREST,
};
use windows_sys::Win32::System::LibraryLoader::{
    GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW,
};
use windows_sys::Win32::System::Threading::{CreateMutexW, INFINITE, ReleaseMutex, WaitForSingleObject};
use windows_sys::core::{BOOL, PCSTR, PCWSTR, s, w};

use crate::Error;
use crate::text::to_wide;

/// The options for the whole program. Symbols are loaded when they are first needed, without
/// dialogs, and only from the search path of the session, not from paths in the image or the
/// environment. An image may come from anywhere, and its path to a PDB can lead to a network. Names
/// are not undecorated: private symbols are not decorated, and public symbols should be the same as
/// those of our own reader.
const OPTIONS: u32 = SYMOPT_DEFERRED_LOADS
    | SYMOPT_LOAD_LINES
    | SYMOPT_OMAP_FIND_NEAREST
    | SYMOPT_FAIL_CRITICAL_ERRORS
    | SYMOPT_NO_PROMPTS
    | SYMOPT_IGNORE_CVREC
    | SYMOPT_IGNORE_NT_SYMPATH
    | SYMOPT_INCLUDE_32BIT_MODULES;

type SetOptions = unsafe extern "system" fn(u32) -> u32;
type Initialize = unsafe extern "system" fn(HANDLE, PCWSTR, BOOL) -> BOOL;
type Cleanup = unsafe extern "system" fn(HANDLE) -> BOOL;
type LoadModule = unsafe extern "system" fn(
    HANDLE,
    HANDLE,
    PCWSTR,
    PCWSTR,
    u64,
    u32,
    *const MODLOAD_DATA,
    SYM_LOAD_FLAGS,
) -> u64;
type OfModule = unsafe extern "system" fn(HANDLE, u64) -> BOOL;
type EnumerateModules =
    unsafe extern "system" fn(HANDLE, PSYM_ENUMMODULES_CALLBACKW64, *const c_void) -> BOOL;
type ModuleInfo = unsafe extern "system" fn(HANDLE, u64, *mut IMAGEHLP_MODULEW64) -> BOOL;
type FromAddr = unsafe extern "system" fn(HANDLE, u64, *mut u64, *mut SYMBOL_INFOW) -> BOOL;
type FunctionTableAccess = unsafe extern "system" fn(HANDLE, u64) -> *mut c_void;
type LineFromAddr = unsafe extern "system" fn(HANDLE, u64, *mut u32, *mut IMAGEHLP_LINEW64) -> BOOL;
type StackWalk = unsafe extern "system" fn(
    u32,
    HANDLE,
    HANDLE,
    *mut STACKFRAME64,
    *mut c_void,
    PREAD_PROCESS_MEMORY_ROUTINE64,
    PFUNCTION_TABLE_ACCESS_ROUTINE64,
    PGET_MODULE_BASE_ROUTINE64,
    PTRANSLATE_ADDRESS_ROUTINE64,
) -> BOOL;
type AddrIncludeInlineTrace = unsafe extern "system" fn(HANDLE, u64) -> u32;
type QueryInlineTrace = unsafe extern "system" fn(HANDLE, u64, u32, u64, u64, *mut u32, *mut u32) -> BOOL;
type FromInlineContext = unsafe extern "system" fn(HANDLE, u64, u32, *mut u64, *mut SYMBOL_INFOW) -> BOOL;
type LineFromInlineContext =
    unsafe extern "system" fn(HANDLE, u64, u32, u64, *mut u32, *mut IMAGEHLP_LINEW64) -> BOOL;

/// Functions of Debug Help that every Windows has (dbghelp.h).
#[derive(Clone, Copy)]
pub(super) struct Functions {
    set_options: SetOptions,
    pub initialize: Initialize,
    pub cleanup: Cleanup,
    pub load_module: LoadModule,
    pub unload_module: OfModule,
    pub refresh_modules: unsafe extern "system" fn(HANDLE) -> BOOL,
    pub enumerate_modules: EnumerateModules,
    pub module_info: ModuleInfo,
    pub symbol: FromAddr,
    pub function_table: FunctionTableAccess,
    pub line: LineFromAddr,
    pub module_base: unsafe extern "system" fn(HANDLE, u64) -> u64,
    pub walk: StackWalk,
}

/// Functions for inlined functions, which Debug Help has since Windows 8.
#[derive(Clone, Copy)]
pub(super) struct InlineFunctions {
    pub count: AddrIncludeInlineTrace,
    pub query: QueryInlineTrace,
    pub symbol: FromInlineContext,
    pub line: LineFromInlineContext,
}

/// State that is initialized once.
struct Library {
    /// The mutex that all users of Debug Help in this process hold. Rust's standard library uses it
    /// for its backtraces.
    shared: OwnedHandle,
    functions: Functions,
    inline: Option<InlineFunctions>,
}

/// Held while a function of Debug Help runs. This is the only way to call one.
pub(super) struct Locked {
    library: &'static Library,
    // Released after the shared mutex. Not `Send`: Windows requires that the thread that acquired a
    // mutex releases it.
    _threads: MutexGuard<'static, ()>,
    _not_send: PhantomData<*const ()>,
}

impl Locked {
    pub fn functions(&self) -> Functions {
        self.library.functions
    }

    /// `None` if Debug Help is too old.
    pub fn inline(&self) -> Option<InlineFunctions> {
        self.library.inline
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the handle exists as long as the program, and this thread acquired the mutex when
        // `self` was created.
        unsafe { ReleaseMutex(self.library.shared.as_raw_handle()) };
    }
}

/// Waits until no other thread uses Debug Help.
pub(super) fn lock() -> Result<Locked, Error> {
    static THREADS: Mutex<()> = Mutex::new(());
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // The lock protects no data of ours, so a panic while it was held left no inconsistent state.
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let library = match LIBRARY.get() {
        Some(library) => library,
        None => {
            let loaded = load()?;
            let functions = functions(loaded).ok_or_else(|| Error::last("GetProcAddress"))?;
            let found = Library { shared: shared_mutex()?, functions, inline: inline_functions(loaded) };
            LIBRARY.get_or_init(|| found)
        }
    };
    // SAFETY: the handle exists as long as the program.
    let waited = unsafe { WaitForSingleObject(library.shared.as_raw_handle(), INFINITE) };
    // A thread that ended while it held the mutex leaves it to the next one.
    if waited != WAIT_OBJECT_0 && waited != WAIT_ABANDONED {
        return Err(Error::last("WaitForSingleObject"));
    }
    let locked = Locked { library, _threads: threads, _not_send: PhantomData };
    // SAFETY: sets a number; the lock is held.
    unsafe { (locked.library.functions.set_options)(OPTIONS) };
    Ok(locked)
}

/// The mutex that copies of Rust's library in one process share (`backtrace` crate, module
/// `dbghelp`).
fn shared_mutex() -> Result<OwnedHandle, Error> {
    let name = to_wide(format!("Local\\RustBacktraceMutex{:08X}", std::process::id()).as_ref())?;
    // SAFETY: the name is zero-terminated and outlives the call.
    let handle = unsafe { CreateMutexW(ptr::null(), 0, name.as_ptr()) };
    if handle.is_null() {
        return Err(Error::last("CreateMutexW"));
    }
    // SAFETY: the handle was just created and has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Loads the copy in the system folder. A program that imports Debug Help would load a copy from
/// its own folder instead: Debug Help is not among the libraries that Windows always loads from the
/// system folder.
fn load() -> Result<HMODULE, Error> {
    // SAFETY: the name is zero-terminated, and no file handle is passed. The library stays loaded.
    let library = unsafe { LoadLibraryExW(w!("dbghelp.dll"), ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32) };
    if library.is_null() { Err(Error::last("LoadLibraryExW")) } else { Ok(library) }
}

/// # Safety
/// `T` must be a function pointer with the type of the function of this name. The library must stay
/// loaded.
unsafe fn find<T: Copy>(library: HMODULE, name: PCSTR) -> Option<T> {
    const { assert!(size_of::<T>() == size_of::<usize>()) };
    // SAFETY: guaranteed by the caller; names are zero-terminated.
    let found = unsafe { GetProcAddress(library, name) }?;
    // SAFETY: guaranteed by the caller.
    Some(unsafe { mem::transmute_copy(&found) })
}

fn functions(library: HMODULE) -> Option<Functions> {
    Some(Functions {
        // SAFETY: the function of this name has this signature (dbghelp.h).
        set_options: unsafe { find(library, s!("SymSetOptions")) }?,
        // SAFETY: as above.
        initialize: unsafe { find(library, s!("SymInitializeW")) }?,
        // SAFETY: as above.
        cleanup: unsafe { find(library, s!("SymCleanup")) }?,
        // SAFETY: as above.
        load_module: unsafe { find(library, s!("SymLoadModuleExW")) }?,
        // SAFETY: as above.
        unload_module: unsafe { find(library, s!("SymUnloadModule64")) }?,
        // SAFETY: as above.
        refresh_modules: unsafe { find(library, s!("SymRefreshModuleList")) }?,
        // SAFETY: as above.
        enumerate_modules: unsafe { find(library, s!("SymEnumerateModulesW64")) }?,
        // SAFETY: as above.
        module_info: unsafe { find(library, s!("SymGetModuleInfoW64")) }?,
        // SAFETY: as above.
        symbol: unsafe { find(library, s!("SymFromAddrW")) }?,
        // SAFETY: as above.
        function_table: unsafe { find(library, s!("SymFunctionTableAccess64")) }?,
        // SAFETY: as above.
        line: unsafe { find(library, s!("SymGetLineFromAddrW64")) }?,
        // SAFETY: as above.
        module_base: unsafe { find(library, s!("SymGetModuleBase64")) }?,
        // SAFETY: as above.
        walk: unsafe { find(library, s!("StackWalk64")) }?,
    })
}

fn inline_functions(library: HMODULE) -> Option<InlineFunctions> {
    Some(InlineFunctions {
        // SAFETY: the function of this name has this signature (dbghelp.h).
        count: unsafe { find(library, s!("SymAddrIncludeInlineTrace")) }?,
        // SAFETY: as above.
        query: unsafe { find(library, s!("SymQueryInlineTrace")) }?,
        // SAFETY: as above.
        symbol: unsafe { find(library, s!("SymFromInlineContextW")) }?,
        // SAFETY: as above.
        line: unsafe { find(library, s!("SymGetLineFromInlineContextW")) }?,
    })
}
