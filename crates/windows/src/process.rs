//! The running processes and their modules.
//!
//! Sources: Microsoft's pages of `PROCESSENTRY32W`, `EnumProcessModulesEx`, `GetModuleInformation`
//! and `GetModuleFileNameExW`.

use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::ProcessStatus::{
    K32EnumProcessModulesEx, K32GetModuleFileNameExW, K32GetModuleInformation, LIST_MODULES_ALL, MODULEINFO,
};

use crate::Error;
use crate::memory::Process;
use crate::snapshot;
use crate::text::from_wide;

/// The maximum number of modules of a process. The list is in the memory of the process, which can
/// modify it.
const MODULES_MAX: usize = 1 << 16;
/// The maximum length of a path in UTF-16 units.
const PATH_MAX: usize = 1 << 15;

/// A process that existed when the list was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The process id.
    pub id: u32,
    /// The file name of its image, without folders.
    pub name: String,
}

/// All processes, in the order of Windows. Takes about a millisecond.
pub fn list() -> Result<Vec<Listed>, Error> {
    let entries = snapshot::processes()?;
    let listed =
        entries.iter().map(|entry| Listed { id: entry.th32ProcessID, name: from_wide(&entry.szExeFile) });
    Ok(listed.collect())
}

/// A module that a process has loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// The base address.
    pub base: u64,
    /// The size in bytes.
    pub size: u32,
    /// The file, as recorded by the loader of the process.
    pub path: String,
}

impl Process {
    /// The loaded modules, including 32-bit ones, ordered by address. The list is in the memory of
    /// the process, which can hide and invent modules. Modules that are unloaded during the call
    /// are omitted. Takes a few microseconds for each module.
    ///
    /// # Errors
    /// The process has ended, or is not yet initialized far enough to have modules.
    pub fn modules(&self) -> Result<Vec<Module>, Error> {
        let mut modules: Vec<Module> =
            self.module_handles()?.into_iter().filter_map(|handle| self.module(handle)).collect();
        modules.sort_unstable_by_key(|module| module.base);
        modules.dedup_by_key(|module| module.base);
        Ok(modules)
    }

    fn module_handles(&self) -> Result<Vec<HMODULE>, Error> {
        let mut handles: Vec<HMODULE> = vec![ptr::null_mut(); 256];
        loop {
            let size = size_of_val(handles.as_slice()) as u32;
            let mut needed = 0;
            // SAFETY: the process is open; at most the given number of bytes is written.
            let done = unsafe {
                K32EnumProcessModulesEx(
                    self.handle.as_raw_handle(),
                    handles.as_mut_ptr(),
                    size,
                    &mut needed,
                    LIST_MODULES_ALL,
                )
            };
            if done == 0 {
                return Err(Error::last("EnumProcessModulesEx"));
            }
            let number = needed as usize / size_of::<HMODULE>();
            if number <= handles.len() || handles.len() >= MODULES_MAX {
                handles.truncate(number);
                return Ok(handles);
            }
            // There may be more modules at the next call.
            handles.resize((number + number / 4).min(MODULES_MAX), ptr::null_mut());
        }
    }

    /// `None` if the module was unloaded.
    fn module(&self, handle: HMODULE) -> Option<Module> {
        let process = self.handle.as_raw_handle();
        let mut found = MODULEINFO::default();
        // SAFETY: the process is open, and the module is only a number for the function; one
        // structure of this size is written.
        let done =
            unsafe { K32GetModuleInformation(process, handle, &mut found, size_of::<MODULEINFO>() as u32) };
        if done == 0 {
            return None;
        }
        let mut path = vec![0; PATH_MAX];
        // SAFETY: as above; at most the given number of units is written.
        let length =
            unsafe { K32GetModuleFileNameExW(process, handle, path.as_mut_ptr(), path.len() as u32) };
        let path = from_wide(path.get(..length as usize)?);
        Some(Module { base: found.lpBaseOfDll as u64, size: found.SizeOfImage, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windows_sys::Win32::System::LibraryLoader::GetModuleHandleW;
    use windows_sys::core::w;

    #[test]
    fn this_process_is_listed_by_its_name() {
        let own = std::env::current_exe().expect("a path");
        let name = own.file_name().expect("a name").to_str().expect("text");
        let listed = list().expect("the processes");
        let found: Vec<&Listed> = listed.iter().filter(|process| process.id == std::process::id()).collect();
        assert_eq!(found.len(), 1, "{listed:?}");
        assert_eq!(found[0].name, name);
    }

    #[test]
    fn own_modules_are_where_they_were_loaded() {
        let process = Process::open(std::process::id()).expect("this process");
        let modules = process.modules().expect("its modules");
        assert!(modules.is_sorted_by(|one, next| one.base + u64::from(one.size) <= next.base), "{modules:?}");
        let named = |name: &str| {
            let is_it = |module: &&Module| {
                module.path.rsplit('\\').next().is_some_and(|file| file.eq_ignore_ascii_case(name))
            };
            modules.iter().find(is_it).unwrap_or_else(|| panic!("{name} is not in {modules:?}"))
        };
        for (name, wide) in [("ntdll.dll", w!("ntdll.dll")), ("kernel32.dll", w!("kernel32.dll"))] {
            // SAFETY: the name is zero-terminated.
            let handle = unsafe { GetModuleHandleW(wide) };
            assert_eq!(named(name).base, handle as u64, "{name}");
        }
        let own = std::env::current_exe().expect("a path");
        let own = named(own.file_name().expect("a name").to_str().expect("text"));
        let here = own_modules_are_where_they_were_loaded as fn() as usize as u64;
        assert!((own.base..own.base + u64::from(own.size)).contains(&here), "{here:#x} {own:?}");
    }
}
