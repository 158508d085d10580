//! Modules, as far as judging needs them: one entry for each file, whatever process has it mapped and where.

use std::ops::{BitOr, BitOrAssign};

use hashbrown::HashMap;
use stackhound_symbols::ModuleIdentity;

use crate::lists::Lists;

/// Number of a module in [`Modules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleIndex(u32);

impl ModuleIndex {
    /// As an index, below the number of modules.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a module is to the detections.
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
    /// What it is to the detections.
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

/// All modules that were met.
#[derive(Debug, Default)]
pub struct Modules {
    modules: Vec<Module>,
    /// Of each, once more: what is asked for every frame stands close together.
    roles: Vec<Roles>,
    numbers: HashMap<ModuleFacts, ModuleIndex, foldhash::fast::RandomState>,
}

impl Modules {
    /// The number of a module; a new one if it was not met before. `windows` is where Windows is, if that is known.
    ///
    /// Costs a search for its texts, so sources keep numbers.
    pub fn add(&mut self, facts: &ModuleFacts, windows: Option<&str>, lists: &Lists) -> ModuleIndex {
        if let Some(&index) = self.numbers.get(facts) {
            return index;
        }
        let index = ModuleIndex(u32::try_from(self.modules.len()).expect("fewer modules than addresses"));
        let roles = lists.roles(facts, windows);
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

    /// What a module is to the detections.
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
