//! One process or one set of files, as Debug Help sees it.

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

/// `MAX_SYM_NAME`: no symbol's name is longer.
const NAME_MAX: usize = 2000;
/// `SymTagPublicSymbol` (cvconst.h).
const TAG_PUBLIC: u32 = 10;
/// Functions inlined into one another; deeper ones are left out.
const INLINE_DEPTH_MAX: u32 = 256;
/// Longer paths of source files are cut.
const FILE_NAME_MAX: usize = 32768;

/// A symbol at or before an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// As the symbols have it.
    pub name: String,
    /// Whether it is a public symbol, which has the name that linkers use: decorated.
    pub public: bool,
    /// Bytes from its start to the address.
    pub displacement: u64,
}

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Path, as the compiler wrote it.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u32,
}

/// A function that was compiled into another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inline {
    /// Its name.
    pub function: String,
    /// Where in it the address is.
    pub line: Option<Line>,
}

/// Modules and their symbols, of a live process or of files. Ends with the value.
#[derive(Debug)]
pub struct Session {
    /// What Debug Help knows it by: of the process, or a number of our own.
    id: usize,
    process: Option<OwnedHandle>,
}

impl Session {
    /// For modules that [`Session::load`] takes from files.
    ///
    /// PDBs are looked for beside the image and along `search_path`, which has the syntax of `_NT_SYMBOL_PATH`: one with
    /// a server in it goes to the network.
    pub fn of_files(search_path: &OsStr) -> Result<Self, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Far from the handles of the system, which are small, and a multiple of four like them.
        let id = 0x5348_0000_0000 + 4 * NEXT.fetch_add(1, Ordering::Relaxed);
        Self::begin(id, None, search_path)
    }

    /// For all modules of a live process. Needs the right to read its memory.
    pub fn of_process(process_id: u32, search_path: &OsStr) -> Result<Self, Error> {
        // SAFETY: takes numbers only.
        let handle = unsafe { OpenProcess(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, 0, process_id) };
        if handle.is_null() {
            return Err(Error::last("OpenProcess"));
        }
        // SAFETY: just opened, and nobody else has it.
        let process = unsafe { OwnedHandle::from_raw_handle(handle) };
        // A handle of our own for each session: Debug Help tells sessions apart by it.
        Self::begin(process.as_raw_handle() as usize, Some(process), search_path)
    }

    fn begin(id: usize, process: Option<OwnedHandle>, search_path: &OsStr) -> Result<Self, Error> {
        let search_path = to_wide(search_path)?;
        let invade = BOOL::from(process.is_some());
        let locked = library::lock()?;
        // SAFETY: the lock is held, the path ends with a zero and outlives the call. The handle stays open as long as the
        // session, or is no handle at all, which is allowed if nothing is read from the process.
        let done = unsafe { (locked.functions().initialize)(id as HANDLE, search_path.as_ptr(), invade) };
        if done == 0 {
            return Err(Error::last("SymInitializeW"));
        }
        Ok(Session { id, process })
    }

    pub(super) fn handle(&self) -> HANDLE {
        self.id as HANDLE
    }

    /// Whether it stands for a live process.
    pub fn is_live(&self) -> bool {
        self.process.is_some()
    }

    /// Takes a module from its image file, as if it were loaded at `base`. A `size` of 0 is that of the image.
    pub fn load(&self, image: &Path, base: u64, size: u32) -> Result<Module, Error> {
        let path = to_wide(image.as_os_str())?;
        let locked = library::lock()?;
        // SAFETY: sets a number of this thread.
        unsafe { SetLastError(0) };
        // SAFETY: the lock is held, the path ends with a zero and outlives the call, and all else may be null.
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

    /// Gives up a module that begins at `base`.
    pub fn unload(&self, base: u64) -> Result<(), Error> {
        let locked = library::lock()?;
        // SAFETY: the lock is held; takes numbers only.
        if unsafe { (locked.functions().unload_module)(self.handle(), base) } == 0 {
            return Err(Error::last("SymUnloadModule64"));
        }
        Ok(())
    }

    /// Looks what a live process has loaded since.
    pub fn refresh(&self) -> Result<(), Error> {
        let locked = library::lock()?;
        // SAFETY: the lock is held; the handle is that of the process.
        if unsafe { (locked.functions().refresh_modules)(self.handle()) } == 0 {
            return Err(Error::last("SymRefreshModuleList"));
        }
        Ok(())
    }

    /// Where all its modules begin, in no order.
    pub fn bases(&self) -> Result<Vec<u64>, Error> {
        unsafe extern "system" fn add(_name: PCWSTR, base: u64, bases: *const c_void) -> BOOL {
            // SAFETY: `bases` is the vector below, which only this function uses while the enumeration runs.
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

    /// The module that an address lies in. Loads its symbols.
    pub fn module_at(&self, address: u64) -> Option<Module> {
        self.module(&library::lock().ok()?, address)
    }

    fn module(&self, locked: &Locked, address: u64) -> Option<Module> {
        let info = self.info(locked, address)?;
        if !is_deferred(&info) {
            return Some(Module::from(&*info));
        }
        // To ask for any symbol loads them; whether there is one does not matter.
        self.symbol(locked, address);
        Some(Module::from(&*self.info(locked, address)?))
    }

    fn info(&self, locked: &Locked, address: u64) -> Option<Box<IMAGEHLP_MODULEW64>> {
        let mut info = Box::new(IMAGEHLP_MODULEW64 {
            SizeOfStruct: size_of::<IMAGEHLP_MODULEW64>() as u32,
            ..Default::default()
        });
        // SAFETY: the lock is held; the structure says its size.
        let found = unsafe { (locked.functions().module_info)(self.handle(), address, &mut *info) };
        (found != 0).then_some(info)
    }

    /// The symbol that an address belongs to.
    pub fn symbol_at(&self, address: u64) -> Option<Symbol> {
        self.symbol(&library::lock().ok()?, address)
    }

    fn symbol(&self, locked: &Locked, address: u64) -> Option<Symbol> {
        let mut buffer = SymbolBuffer::new();
        let mut displacement = 0;
        // SAFETY: the lock is held; the buffer says its size, and the pointer is to all of it.
        let found = unsafe {
            (locked.functions().symbol)(self.handle(), address, &mut displacement, buffer.as_mut_ptr())
        };
        (found != 0).then(|| Symbol {
            name: buffer.name(),
            public: buffer.info.Tag == TAG_PUBLIC,
            displacement,
        })
    }

    /// Where the function begins that an address is in, by the module's table of functions. x64 and ARM64 only; for the
    /// parts that a compiler split off, where the part begins.
    pub fn function_at(&self, address: u64) -> Option<u64> {
        let locked = library::lock().ok()?;
        let info = self.info(&locked, address)?;
        if ![IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64].map(u32::from).contains(&info.MachineType) {
            return None;
        }
        // SAFETY: the lock is held; takes numbers only.
        let entry = unsafe { (locked.functions().function_table)(self.handle(), address) };
        if entry.is_null() {
            return None;
        }
        // SAFETY: on both processors an entry begins with the function's address in the module; it is good until the
        // next call, and the lock is still held.
        let begin = unsafe { entry.cast::<u32>().read_unaligned() };
        info.BaseOfImage.checked_add(u64::from(begin))
    }

    /// Where in the source code of the function an address is: with functions compiled into it, where it calls them.
    pub fn line_at(&self, address: u64) -> Option<Line> {
        let locked = library::lock().ok()?;
        let mut line = empty_line();
        let mut displacement = 0;
        // SAFETY: the lock is held; the structure says its size.
        let found =
            unsafe { (locked.functions().line)(self.handle(), address, &mut displacement, &mut line) };
        if found == 0 {
            return None;
        }
        // SAFETY: the library has just filled the line in, and the lock is still held.
        unsafe { read_line(&line) }
    }

    /// The functions compiled into the one at an address, innermost first. None where the library is too old to tell.
    pub fn inlines_at(&self, address: u64) -> Vec<Inline> {
        let Ok(locked) = library::lock() else { return Vec::new() };
        let Some(functions) = locked.inline() else { return Vec::new() };
        // SAFETY: the lock is held; takes numbers only.
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
            // SAFETY: the lock is held; the buffer says its size, and the pointer is to all of it.
            let found = unsafe {
                (functions.symbol)(self.handle(), address, context, &mut displacement, buffer.as_mut_ptr())
            };
            if found == 0 {
                break;
            }
            let mut line = empty_line();
            let mut displacement = 0;
            // SAFETY: the lock is held; the structure says its size.
            let found =
                unsafe { (functions.line)(self.handle(), address, context, 0, &mut displacement, &mut line) };
            let line = if found == 0 {
                None
            } else {
                // SAFETY: the library has just filled the line in, and the lock is still held.
                unsafe { read_line(&line) }
            };
            inlines.push(Inline { function: buffer.name(), line });
        }
        inlines
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without the lock the session is left to the end of the program.
        if let Ok(locked) = library::lock() {
            // SAFETY: the lock is held, and nothing of the session is in use any more. The process is closed after this.
            unsafe { (locked.functions().cleanup)(self.handle()) };
        }
    }
}

/// A symbol and the room for its name behind it.
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
        // SAFETY: the name begins in `info` and has so many units behind it in this structure, aligned like its first;
        // all were zero to begin with.
        let units = unsafe { std::slice::from_raw_parts(start.cast::<u16>(), NAME_MAX) };
        from_wide(units)
    }
}

fn empty_line() -> IMAGEHLP_LINEW64 {
    IMAGEHLP_LINEW64 { SizeOfStruct: size_of::<IMAGEHLP_LINEW64>() as u32, ..Default::default() }
}

/// # Safety
///
/// The library filled the line in, and was not called since: the file's name is in its memory.
unsafe fn read_line(line: &IMAGEHLP_LINEW64) -> Option<Line> {
    if line.FileName.is_null() {
        return None;
    }
    let mut units = Vec::new();
    for at in 0..FILE_NAME_MAX {
        // SAFETY: the name ends with a zero, and no unit before was one.
        let unit = unsafe { line.FileName.wrapping_add(at).read_unaligned() };
        if unit == 0 {
            break;
        }
        units.push(unit);
    }
    Some(Line { file: String::from_utf16_lossy(&units), line: line.LineNumber })
}
