//! The detections' numbers of the system's modules.

use stackhound_detect::{Judge, ModuleFacts, ModuleIndex, Role};
use stackhound_system::{ModuleId, ModuleRef, System};

use crate::naming::identity;
use crate::{slots, wow64};

/// What is known of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    /// The detections' number of its file.
    pub index: ModuleIndex,
    /// Whether a 32-bit process on 64-bit Windows has it in its 64-bit part.
    pub is_wide: bool,
    /// Whether it is a runtime that compiles code, or holds what one compiled before.
    pub is_runtime: bool,
    /// Whether it is called `ntdll.dll`.
    pub is_ntdll: bool,
    /// Whether it is Windows' own `win32u.dll`.
    pub is_win32u: bool,
}

/// Numbers of modules, by the system's index of each: names are looked at once for a module, not once for a frame. A module
/// that was forgotten has left its index to another one.
#[derive(Debug, Default)]
pub(super) struct ModuleNumbers(Vec<Option<(ModuleId, Known)>>);

impl ModuleNumbers {
    /// What is known of a module.
    pub fn of(&mut self, system: &System, judge: &mut Judge, id: ModuleId) -> Known {
        let index = id.index();
        if let Some(&Some((known, number))) = self.0.get(index)
            && known == id
        {
            return number;
        }
        let known = look_up(system, judge, system.module(id));
        *slots::at(&mut self.0, index) = Some((id, known));
        known
    }
}

fn look_up(system: &System, judge: &mut Judge, module: ModuleRef<'_>) -> Known {
    let path = system.dos_path(module.path());
    let windows = system.volumes().windows_directory();
    let facts =
        ModuleFacts { path: path.as_ref().into(), identity: identity(module), sha256: None, signer: None };
    let index = judge.module(&facts, windows);
    let roles = judge.modules().get(index).roles;
    Known {
        index,
        is_wide: wow64::is_wide(&path, windows, module.base().0),
        is_runtime: roles.has(Role::Runtime),
        is_ntdll: roles.has(Role::NamedNtdll),
        is_win32u: roles.has(Role::SystemCall) && module.file_name().eq_ignore_ascii_case("win32u.dll"),
    }
}
