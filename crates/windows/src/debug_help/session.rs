//! Debug Help sessions for a process or a set of files.

use std::ffi::{OsStr, c_void};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use windows_sys::Win32::Foundation::{GetLastError, HANDLE, SetLastError};
use windows_sys::Win32::System::Diagnostics::Debug::{
    IMAGEHLP_LINEW64, IMAGEHLP_MODULEW64, INLINE_FRAME_CONTEXT_INIT, SYMBOL_INFOW,
};
use windows_sys::Win32::System::SystemInformation::{IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64};
use windows_sys::Win32::System::Threading::{OpenProcess, PROCESS_QUERY_INFORMATION, PROCESS_VM_READ};
use windows_sys::core::{BOOL, PCWSTR};

use super::library::{self, Locked};
use super::module::{Module, is_deferred};
use crate::Error;
use crate::text::{from_wide, to_wide};

/// `MAX_SYM_NAME`, the maximum length of a symbol name.
const NAME_MAX: usize = 2000;
/// `SymTagPublicSymbol` (cvconst.h).
const TAG_PUBLIC: u32 = 10;
/// The maximum depth of inlined functions. Deeper ones are omitted.
const INLINE_DEPTH_MAX: u32 = 256;
/// Longer paths of source files are cut.
const FILE_NAME_MAX: usize = 32768;

/// A symbol at or before an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// The name as the symbols contain it.
    pub name: String,
    /// Whether it is a public symbol, which has the decorated name that linkers use.
    pub public: bool,
    /// The offset of the address in the symbol, in bytes.
    pub displacement: u64,
}

/// A location in source code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The path, as written by the compiler.
    pub file: String,
    /// The line number, starting at 1.
    pub line: u32,
}

/// A function that was inlined into another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inline {
    /// The name of the function.
    pub function: String,
    /// The location of the address in the function.
    pub line: Option<Line>,
}

/// Modules and their symbols, of a live process or of files. Dropping the value ends the session.
#[derive(Debug)]
pub struct Session {
    /// The identifier for Debug Help: the process handle, or a generated number.
    id: usize,
    process: Option<OwnedHandle>,
}

impl Session {
    /// A session for modules that [`Session::load`] loads from files.
    ///
    /// PDBs are searched for next to the image and along `search_path`, which has the syntax of
    /// `_NT_SYMBOL_PATH`. A path with a server accesses the network.
    pub fn of_files(search_path: &OsStr) -> Result<Self, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // The number is far from the handles of the system, which are small, and a multiple of four
        // like them.
        let id = 0x5348_0000_0000 + 4 * NEXT.fetch_add(1, Ordering::Relaxed);
        Self::begin(id, None, search_path)
    }

    /// A session for all modules of a live process. Needs the right to read its memory.
    pub fn of_process(process_id: u32, search_path: &OsStr) -> Result<Self, Error> {
        // SAFETY: only numbers are passed.
        let handle = unsafe { OpenProcess(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, 0, process_id) };
        if handle.is_null() {
            return Err(Error::last("OpenProcess"));
        }
        // SAFETY: the handle was just opened and has no other owner.
        let process = unsafe { OwnedHandle::from_raw_handle(handle) };
        // Each session has its own handle, because Debug Help distinguishes sessions by it.
        Self::begin(process.as_raw_handle() as usize, Some(process), search_path)
    }

    fn begin(id: usize, process: Option<OwnedHandle>, search_path: &OsStr) -> Result<Self, Error> {
        let search_path = to_wide(search_path)?;
        let invade = BOOL::from(process.is_some());
        let locked = library::lock()?;
        // SAFETY: the lock is held, the path is zero-terminated and outlives the call. The handle
        // stays open as long as the session, or is not a handle, which is allowed if nothing is
        // read from the process.
        let done = unsafe { (locked.functions().initialize)(id as HANDLE, search_path.as_ptr(), invade) };
        if done == 0 {
            return Err(Error::last("SymInitializeW"));
        }
        Ok(Session { id, process })
    }

    pub(super) fn handle(&self) -> HANDLE {
        self.id as HANDLE
    }

    /// Whether the session is for a live process.
    pub fn is_live(&self) -> bool {
        self.process.is_some()
    }

    /// Loads a module from its image file, as if it were loaded at `base`. A `size` of 0 means the
    /// size of the image.
    pub fn load(&self, image: &Path, base: u64, size: u32) -> Result<Module, Error> {
        let path = to_wide(image.as_os_str())?;
        let locked = library::lock()?;
        // SAFETY: sets a number of this thread.
        unsafe { SetLastError(0) };
        // SAFETY: the lock is held, the path is zero-terminated and outlives the call, and all
        // other pointers may be null.
        let loaded = unsafe {
            (locked.functions().load_module)(
                self.handle(),
                ptr::null_mut(),
                path.as_ptr(),
                ptr::null(),
                base,
                size,
                ptr::null(),
                0,
            )
        };
        if loaded == 0 {
            // SAFETY: reads a number of this thread.
            let already = unsafe { GetLastError() } == 0;
            return Err(if already { Error::AlreadyLoaded(base) } else { Error::last("SymLoadModuleExW") });
        }
        self.module(&locked, loaded).ok_or(Error::NoModule(loaded))
    }

    /// Unloads the module at `base`.
    pub fn unload(&self, base: u64) -> Result<(), Error> {
        let locked = library::lock()?;
        // SAFETY: the lock is held; only numbers are passed.
        if unsafe { (locked.functions().unload_module)(self.handle(), base) } == 0 {
            return Err(Error::last("SymUnloadModule64"));
        }
        Ok(())
    }

    /// Adds the modules that a live process has loaded since.
    pub fn refresh(&self) -> Result<(), Error> {
        let locked = library::lock()?;
        // SAFETY: the lock is held; the handle is that of the process.
        if unsafe { (locked.functions().refresh_modules)(self.handle()) } == 0 {
            return Err(Error::last("SymRefreshModuleList"));
        }
        Ok(())
    }

    /// The base addresses of all modules, in no order.
    pub fn bases(&self) -> Result<Vec<u64>, Error> {
        unsafe extern "system" fn add(_name: PCWSTR, base: u64, bases: *const c_void) -> BOOL {
            // SAFETY: `bases` is the vector below, which only this function uses while the
            // enumeration runs.
            let bases = unsafe { &mut *bases.cast_mut().cast::<Vec<u64>>() };
            bases.push(base);
            1
        }
        let mut bases: Vec<u64> = Vec::new();
        let locked = library::lock()?;
        // SAFETY: the lock is held; the vector outlives the call.
        let done = unsafe {
            (locked.functions().enumerate_modules)(
                self.handle(),
                Some(add),
                ptr::from_mut(&mut bases).cast::<c_void>(),
            )
        };
        if done == 0 {
            return Err(Error::last("SymEnumerateModulesW64"));
        }
        Ok(bases)
    }

    /// The module that contains an address. Loads its symbols.
    pub fn module_at(&self, address: u64) -> Option<Module> {
        self.module(&library::lock().ok()?, address)
    }

    fn module(&self, locked: &Locked, address: u64) -> Option<Module> {
        let info = self.info(locked, address)?;
        if !is_deferred(&info) {
            return Some(Module::from(&*info));
        }
        // Requesting any symbol loads them; the result does not matter.
        self.symbol(locked, address);
        Some(Module::from(&*self.info(locked, address)?))
    }

    fn info(&self, locked: &Locked, address: u64) -> Option<Box<IMAGEHLP_MODULEW64>> {
        let mut info = Box::new(IMAGEHLP_MODULEW64 {
            SizeOfStruct: size_of::<IMAGEHLP_MODULEW64>() as u32,
            ..Default::default()
        });
        // SAFETY: the lock is held; the structure contains its size.
        let found = unsafe { (locked.functions().module_info)(self.handle(), address, &mut *info) };
        (found != 0).then_some(info)
    }

    /// The symbol at or before an address.
    pub fn symbol_at(&self, address: u64) -> Option<Symbol> {
        self.symbol(&library::lock().ok()?, address)
    }

    fn symbol(&self, locked: &Locked, address: u64) -> Option<Symbol> {
        let mut buffer = SymbolBuffer::new();
        let mut displacement = 0;
        // SAFETY: the lock is held; the buffer contains its size, and the pointer is to all of it.
        let found = unsafe {
            (locked.functions().symbol)(self.handle(), address, &mut displacement, buffer.as_mut_ptr())
        };
        (found != 0).then(|| Symbol {
            name: buffer.name(),
            public: buffer.info.Tag == TAG_PUBLIC,
            displacement,
        })
    }

    /// The start of the function that contains an address, from the function table of the module.
    /// x64 and ARM64 only; for the parts that a compiler split off, the start of the part.
    pub fn function_at(&self, address: u64) -> Option<u64> {
        let locked = library::lock().ok()?;
        let info = self.info(&locked, address)?;
        if ![IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64].map(u32::from).contains(&info.MachineType) {
            return None;
        }
        // SAFETY: the lock is held; only numbers are passed.
        let entry = unsafe { (locked.functions().function_table)(self.handle(), address) };
        if entry.is_null() {
            return None;
        }
        // SAFETY: on both processors an entry begins with the offset of the function in the module;
        // it is valid until the next call, and the lock is still held.
        let begin = unsafe { entry.cast::<u32>().read_unaligned() };
        info.BaseOfImage.checked_add(u64::from(begin))
    }

    /// The source location of an address in its function. For an address in an inlined function,
    /// this is the location of the call.
    pub fn line_at(&self, address: u64) -> Option<Line> {
        let locked = library::lock().ok()?;
        let mut line = empty_line();
        let mut displacement = 0;
        // SAFETY: the lock is held; the structure contains its size.
        let found =
            unsafe { (locked.functions().line)(self.handle(), address, &mut displacement, &mut line) };
        if found == 0 {
            return None;
        }
        // SAFETY: the library has just filled the structure, and the lock is still held.
        unsafe { read_line(&line) }
    }

    /// The functions that are inlined at an address, innermost first. Empty if the library is too
    /// old to report them.
    pub fn inlines_at(&self, address: u64) -> Vec<Inline> {
        let Ok(locked) = library::lock() else { return Vec::new() };
        let Some(functions) = locked.inline() else { return Vec::new() };
        // SAFETY: the lock is held; only numbers are passed.
        let count = unsafe { (functions.count)(self.handle(), address) };
        if count == 0 {
            return Vec::new();
        }
        let (mut context, mut index) = (0, 0);
        // SAFETY: the lock is held; the results outlive the call.
        let found = unsafe {
            (functions.query)(
                self.handle(),
                address,
                INLINE_FRAME_CONTEXT_INIT,
                address,
                address,
                &mut context,
                &mut index,
            )
        };
        if found == 0 {
            return Vec::new();
        }
        let mut inlines = Vec::new();
        for depth in 0..count.min(INLINE_DEPTH_MAX) {
            let Some(context) = context.checked_add(depth) else { break };
            let mut buffer = SymbolBuffer::new();
            let mut displacement = 0;
            // SAFETY: the lock is held; the buffer contains its size, and the pointer is to all of
            // it.
            let found = unsafe {
                (functions.symbol)(self.handle(), address, context, &mut displacement, buffer.as_mut_ptr())
            };
            if found == 0 {
                break;
            }
            let mut line = empty_line();
            let mut displacement = 0;
            // SAFETY: the lock is held; the structure contains its size.
            let found =
                unsafe { (functions.line)(self.handle(), address, context, 0, &mut displacement, &mut line) };
            let line = if found == 0 {
                None
            } else {
                // SAFETY: the library has just filled the structure, and the lock is still held.
                unsafe { read_line(&line) }
            };
            inlines.push(Inline { function: buffer.name(), line });
        }
        inlines
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without the lock, the session remains until the program ends.
        if let Ok(locked) = library::lock() {
            // SAFETY: the lock is held, and nothing of the session is in use any more. The process
            // is closed afterwards.
            unsafe { (locked.functions().cleanup)(self.handle()) };
        }
    }
}

/// A symbol, followed by the space for its name.
#[repr(C)]
struct SymbolBuffer {
    info: SYMBOL_INFOW,
    _rest: [u16; NAME_MAX],
}

impl SymbolBuffer {
    fn new() -> Box<Self> {
        let info = SYMBOL_INFOW {
            SizeOfStruct: size_of::<SYMBOL_INFOW>() as u32,
            MaxNameLen: NAME_MAX as u32,
            ..Default::default()
        };
        Box::new(SymbolBuffer { info, _rest: [0; NAME_MAX] })
    }

    fn as_mut_ptr(&mut self) -> *mut SYMBOL_INFOW {
        ptr::from_mut(self).cast()
    }

    fn name(&self) -> String {
        let start = ptr::from_ref(self).cast::<u8>().wrapping_add(std::mem::offset_of!(SYMBOL_INFOW, Name));
        // SAFETY: the name begins in `info` and has this number of units in this structure, with
        // correct alignment; all were initialized with zero.
        let units = unsafe { std::slice::from_raw_parts(start.cast::<u16>(), NAME_MAX) };
        from_wide(units)
    }
}

fn empty_line() -> IMAGEHLP_LINEW64 {
    IMAGEHLP_LINEW64 { SizeOfStruct: size_of::<IMAGEHLP_LINEW64>() as u32, ..Default::default() }
}

/// # Safety
///
/// The library must have filled the structure, and must not have been called since: the file name
/// is in its memory.
unsafe fn read_line(line: &IMAGEHLP_LINEW64) -> Option<Line> {
    if line.FileName.is_null() {
        return None;
    }
    let mut units = Vec::new();
    for at in 0..FILE_NAME_MAX {
        // SAFETY: the name is zero-terminated, and no earlier unit was zero.
        let unit = unsafe { line.FileName.wrapping_add(at).read_unaligned() };
        if unit == 0 {
            break;
        }
        units.push(unit);
    }
    Some(Line { file: String::from_utf16_lossy(&units), line: line.LineNumber })
}
