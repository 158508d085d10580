//! Modules and their roles: one entry for each file, whatever process has it mapped and where.

use std::ops::{BitOr, BitOrAssign};

use hashbrown::HashMap;
use stackhound_system::{ModuleId, ModuleRef, System};
use stackhound_types::{ImageIdentity, ModuleIdentity, PdbIdentity};

use crate::lists::Lists;
use crate::wow64;

/// Number of a module in [`Modules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleIndex(u32);

impl ModuleIndex {
    /// As an index, below the number of modules.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What part a module has in stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Role {
    /// Has system calls of its own: `ntdll.dll` and its like, in a folder of Windows' own libraries.
    SystemCall = 1 << 0,
    /// `ntdll.dll` in such a folder.
    Ntdll = 1 << 1,
    /// The layer that runs 32-bit programs.
    Wow64 = 1 << 2,
    /// The native API or the Win32 base on top of it, which tell nothing of who asked.
    NativeLayer = 1 << 3,
    /// Known to put code of its own between others, as security products do.
    Hook = 1 << 4,
    /// A runtime that compiles code, or code that it compiled before.
    Runtime = 1 << 5,
    /// In the Windows folder, or below it, but not where users can write.
    Windows = 1 << 6,
    /// On the list of known images of Windows.
    KnownSystem = 1 << 7,
    /// Known to enter the kernel by itself.
    DirectCaller = 1 << 8,
    /// Called like one that is known to enter the kernel by itself; who signed it is not known.
    LikeDirectCaller = 1 << 14,
    /// Called like `ntdll.dll`, wherever it lies.
    NamedNtdll = 1 << 9,
    /// `kernel32.dll` in a folder of Windows' own libraries.
    Kernel32 = 1 << 10,
    /// In a folder where programs are installed.
    Installed = 1 << 11,
    /// Known to run code from the kernel's callbacks or the pool for others: forwards calls.
    Forwarder = 1 << 12,
    /// Had system calls of its own before Windows 10, version 1607: `user32.dll` and `gdi32.dll`.
    LegacySystemCall = 1 << 13,
}

/// A set of [`Role`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Roles(u16);

impl Roles {
    /// Of modules that only pass the calls of others on, so that they are not responsible for a call: the native API and the
    /// Win32 base, forwarders, known hooks.
    pub const PASS_ON: Roles = Roles(Role::NativeLayer as u16 | Role::Forwarder as u16 | Role::Hook as u16);

    /// Whether a role is among them.
    pub fn has(self, role: Role) -> bool {
        self.0 & role as u16 != 0
    }

    /// Whether one of these roles is among them.
    pub fn has_any(self, roles: Roles) -> bool {
        self.0 & roles.0 != 0
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Roles {
        Roles(role as u16)
    }
}

impl BitOr<Role> for Role {
    type Output = Roles;

    fn bitor(self, other: Role) -> Roles {
        Roles(self as u16 | other as u16)
    }
}

impl BitOrAssign<Role> for Roles {
    fn bitor_assign(&mut self, role: Role) {
        self.0 |= role as u16;
    }
}

/// A module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its path, as the source gives it.
    pub path: Box<str>,
    /// What names its files; as much as the source tells.
    pub identity: ModuleIdentity,
    /// SHA-256 of its file, if the source tells.
    pub sha256: Option<[u8; 32]>,
    /// Who signed it, if the source tells and found the signature to be valid.
    pub signer: Option<Box<str>>,
    /// What part it has in stacks.
    pub roles: Roles,
}

impl Module {
    /// Its file name.
    pub fn name(&self) -> &str {
        &self.identity.name
    }
}

/// What a source tells of a module. Two that differ in it are two.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ModuleFacts {
    /// Its path, as the source gives it.
    pub path: Box<str>,
    /// What names its files; as much as the source tells.
    pub identity: ModuleIdentity,
    /// SHA-256 of its file.
    pub sha256: Option<[u8; 32]>,
    /// Who signed it, if the source found the signature to be valid.
    pub signer: Option<Box<str>>,
}

/// All modules that were met, with the lists that give them their roles.
#[derive(Debug, Default)]
pub struct Modules {
    lists: Lists,
    modules: Vec<Module>,
    /// Of each, once more: what is asked for every frame stands close together.
    roles: Vec<Roles>,
    numbers: HashMap<ModuleFacts, ModuleIndex, foldhash::fast::RandomState>,
}

impl Modules {
    /// None yet; roles are given by these lists.
    pub fn new(lists: Lists) -> Modules {
        Modules { lists, ..Modules::default() }
    }

    /// The lists that give modules their roles.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// The number of a module; a new one if it was not met before. `windows` is where Windows is, if that is known.
    ///
    /// Costs a search for its texts, so sources keep numbers.
    pub fn add(&mut self, facts: &ModuleFacts, windows: Option<&str>) -> ModuleIndex {
        if let Some(&index) = self.numbers.get(facts) {
            return index;
        }
        let index = ModuleIndex(u32::try_from(self.modules.len()).expect("fewer modules than addresses"));
        let roles = self.lists.roles(facts, windows);
        let ModuleFacts { path, identity, sha256, signer } = facts.clone();
        self.roles.push(roles);
        self.modules.push(Module { path, identity, sha256, signer, roles });
        self.numbers.insert(facts.clone(), index);
        index
    }

    /// A module.
    pub fn get(&self, index: ModuleIndex) -> &Module {
        &self.modules[index.index()]
    }

    /// What part a module has in stacks.
    pub fn roles(&self, index: ModuleIndex) -> Roles {
        self.roles[index.index()]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }
}

/// What the trace's state knows of the identity of a module's files.
pub fn identity(module: ModuleRef<'_>) -> ModuleIdentity {
    let size = u32::try_from(module.size()).ok();
    let image = module.time_date_stamp().zip(size);
    ModuleIdentity {
        name: module.file_name().to_owned(),
        image: image.map(|(time_date_stamp, size)| ImageIdentity { time_date_stamp, size }),
        pdb: module.pdb().map(|pdb| PdbIdentity { name: pdb.name.to_owned(), guid: pdb.guid, age: pdb.age }),
    }
}

/// A module that the trace's state knows, as far as frames depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadedModule {
    /// The number of its file.
    pub index: ModuleIndex,
    /// Whether a 32-bit process on 64-bit Windows has it in its 64-bit part.
    pub is_64_bit_part: bool,
    /// Whether it is Windows' own `win32u.dll`.
    pub is_win32u: bool,
    /// What part it has in stacks.
    pub roles: Roles,
}

/// By the index of each module in the trace's state: names are compared once for a module, not once for a frame. A module that
/// was forgotten has left its index to another one.
#[derive(Debug, Default)]
pub(crate) struct LoadedModules(Vec<Option<(ModuleId, LoadedModule)>>);

impl LoadedModules {
    #[inline]
    pub fn get(&mut self, system: &System, modules: &mut Modules, id: ModuleId) -> LoadedModule {
        match self.0.get(id.index()) {
            Some(&Some((known, module))) if known == id => module,
            _ => self.add(system, modules, id),
        }
    }

    #[cold]
    fn add(&mut self, system: &System, modules: &mut Modules, id: ModuleId) -> LoadedModule {
        let module = system.module(id);
        let path = system.dos_path(module.path());
        let windows = system.volumes().windows_directory();
        let (path_text, identity) = (path.as_ref().into(), identity(module));
        let facts = ModuleFacts { path: path_text, identity, sha256: None, signer: None };
        let index = modules.add(&facts, windows);
        let roles = modules.roles(index);
        let is_win32u = roles.has(Role::SystemCall) && module.file_name().eq_ignore_ascii_case("win32u.dll");
        let is_64_bit_part = wow64::is_64_bit_part(&path, windows, module.base().0);
        let known = LoadedModule { index, is_64_bit_part, is_win32u, roles };
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, None);
        }
        self.0[id.index()] = Some((id, known));
        known
    }
}
