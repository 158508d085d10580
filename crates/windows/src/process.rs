//! Which processes there are, and which modules they have.
//!
//! Sources: Microsoft's pages of `PROCESSENTRY32W`, `EnumProcessModulesEx`, `GetModuleInformation` and `GetModuleFileNameExW`.

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

/// Modules of a process at most: what it says of itself stands in its own memory, where it may write.
const MODULES_MAX: usize = 1 << 16;
/// UTF-16 units of a path at most.
const PATH_MAX: usize = 1 << 15;

/// A process that was there when the list was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its number.
    pub id: u32,
    /// File name of its image, without folders.
    pub name: String,
}

/// All processes, in the order in which Windows lists them. Takes a millisecond.
pub fn list() -> Result<Vec<Listed>, Error> {
    let entries = snapshot::processes()?;
    let listed =
        entries.iter().map(|entry| Listed { id: entry.th32ProcessID, name: from_wide(&entry.szExeFile) });
    Ok(listed.collect())
}

/// A module that a process has loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Where it begins.
    pub base: u64,
    /// Bytes from there.
    pub size: u32,
    /// Its file, as the process's loader remembers it.
    pub path: String,
}

impl Process {
    /// The modules it has loaded, 32-bit ones too, by address. It says so itself: a process can hide modules and make them up. Those
    /// that are unloaded meanwhile are left out. Takes some microseconds a module.
    ///
    /// # Errors
    /// If it has ended, or has not got so far yet that it could have modules.
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
            // SAFETY: the process is open; writes no more bytes than is said.
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
            // There may be more the next time.
            handles.resize((number + number / 4).min(MODULES_MAX), ptr::null_mut());
        }
    }

    /// `None` if it is not there any more.
    fn module(&self, handle: HMODULE) -> Option<Module> {
        let process = self.handle.as_raw_handle();
        let mut found = MODULEINFO::default();
        // SAFETY: the process is open, and the module a number to the function; writes one structure of this size.
        let done =
            unsafe { K32GetModuleInformation(process, handle, &mut found, size_of::<MODULEINFO>() as u32) };
        if done == 0 {
            return None;
        }
        let mut path = vec![0; PATH_MAX];
        // SAFETY: as above; writes no more units than is said.
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
            // SAFETY: the name ends with a zero.
            let handle = unsafe { GetModuleHandleW(wide) };
            assert_eq!(named(name).base, handle as u64, "{name}");
        }
        let own = std::env::current_exe().expect("a path");
        let own = named(own.file_name().expect("a name").to_str().expect("text"));
        let here = own_modules_are_where_they_were_loaded as fn() as usize as u64;
        assert!((own.base..own.base + u64::from(own.size)).contains(&here), "{here:#x} {own:?}");
    }
}
