//! Modules and their roles: one entry for each file, regardless of the processes and addresses at
//! which it is mapped.

use std::ops::{BitOr, BitOrAssign};

use hashbrown::HashMap;
use stackhound_images::{
    FactSource, ImageEvidence, ImageFacts, ImageTable, Signature, SignatureState, VersionInfo,
};
use stackhound_system::{ModuleId, ModuleRef, System};
use stackhound_types::{ImageIdentity, ModuleIdentity, PdbIdentity};

use crate::lists::Lists;
use crate::wow64;

/// Index of a module in [`Modules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleIndex(u32);

impl ModuleIndex {
    /// The index as a `usize`, less than [`Modules::len`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The role of a module in call stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Role {
    /// Contains system calls: `ntdll.dll` or `win32u.dll` in a system folder, such as `System32`.
    SystemCall = 1 << 0,
    /// `ntdll.dll` in a system folder.
    Ntdll = 1 << 1,
    /// The WoW64 layer, which runs 32-bit programs.
    Wow64 = 1 << 2,
    /// The native API, the WoW64 layer or the Win32 base, whose frames do not identify the caller.
    NativeLayer = 1 << 3,
    /// Known to insert its own code between a library and its caller, as security products do.
    Hook = 1 << 4,
    /// A runtime with a JIT compiler, or a library that it compiled in advance; its folder or its
    /// signer confirms this.
    Runtime = 1 << 5,
    /// Has the name of a runtime, but neither its folder nor its signer confirms this.
    LikeRuntime = 1 << 16,
    /// In the Windows folder or below it, except for folders that users can write to and files that
    /// are [unsigned](Role::Unsigned).
    Windows = 1 << 6,
    /// In the Windows folder or below it, but not signed, so that it does not belong to Windows.
    /// Images that a runtime compiled in advance are not signed either and do not have this role.
    Unsigned = 1 << 15,
    /// On the list of known images of Windows.
    KnownSystem = 1 << 7,
    /// Known to make direct system calls; the signer matches.
    DirectCaller = 1 << 8,
    /// Has the path of a module that is known to make direct system calls; its signer is not known.
    LikeDirectCaller = 1 << 14,
    /// Named `ntdll.dll`, in any folder.
    NamedNtdll = 1 << 9,
    /// `kernel32.dll` in a system folder.
    Kernel32 = 1 << 10,
    /// In a folder for installed programs.
    Installed = 1 << 11,
    /// Forwards calls, so that the final user module is that of its caller.
    Forwarder = 1 << 12,
    /// Contained system calls before Windows 10, version 1607: `user32.dll` or `gdi32.dll`.
    LegacySystemCall = 1 << 13,
    /// Contains functions that write the memory of other processes to a file.
    Dump = 1 << 17,
}

/// A set of [`Role`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Roles(u32);

impl Roles {
    /// The roles of modules that only pass calls on, so that they are not responsible for a call:
    /// the native layer, forwarders, and known hooks.
    pub const PASS_ON: Roles = Roles(Role::NativeLayer as u32 | Role::Forwarder as u32 | Role::Hook as u32);

    /// Whether the set contains a role.
    pub fn has(self, role: Role) -> bool {
        self.0 & role as u32 != 0
    }

    /// Whether the set contains any of these roles.
    pub fn has_any(self, roles: Roles) -> bool {
        self.0 & roles.0 != 0
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Roles {
        Roles(role as u32)
    }
}

impl BitOr<Role> for Role {
    type Output = Roles;

    fn bitor(self, other: Role) -> Roles {
        Roles(self as u32 | other as u32)
    }
}

impl BitOr for Roles {
    type Output = Roles;

    fn bitor(self, other: Roles) -> Roles {
        Roles(self.0 | other.0)
    }
}

impl BitOrAssign<Role> for Roles {
    fn bitor_assign(&mut self, role: Role) {
        self.0 |= role as u32;
    }
}

/// A module with its roles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Path in the spelling of the source.
    pub path: Box<str>,
    /// Identity of its image and PDB files, as far as the source provides it.
    pub identity: ModuleIdentity,
    /// SHA-256 of its file, if the source provides it.
    pub sha256: Option<[u8; 32]>,
    /// Signer, if a source found the signature valid and none contradicts it.
    pub signer: Option<Box<str>>,
    /// What each source states about its image file.
    pub image: ImageEvidence,
    /// Its roles in call stacks.
    pub roles: Roles,
}

impl Module {
    /// Its file name.
    pub fn name(&self) -> &str {
        &self.identity.name
    }
}

/// The data that a source provides about a module. Modules that differ in any of it are different.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ModuleFacts {
    /// Path in the spelling of the source.
    pub path: Box<str>,
    /// Identity of its image and PDB files, as far as the source provides it.
    pub identity: ModuleIdentity,
    /// SHA-256 of its file.
    pub sha256: Option<[u8; 32]>,
    /// Signer, if the source found the signature valid.
    pub signer: Option<Box<str>>,
    /// What the source states about the image file.
    pub image: ImageEvidence,
}

/// All modules found so far, with the lists that assign their roles.
#[derive(Debug, Default)]
pub struct Modules {
    lists: Lists,
    /// Facts about image files, which apply to modules that are added.
    images: ImageTable,
    modules: Vec<Module>,
    /// Copy of the roles of each module. They are read for every frame, so they are stored
    /// compactly.
    roles: Vec<Roles>,
    numbers: HashMap<ModuleFacts, ModuleIndex, foldhash::fast::RandomState>,
}

impl Modules {
    /// Without modules. The lists assign the roles of modules that are added.
    pub fn new(lists: Lists) -> Modules {
        Modules { lists, ..Modules::default() }
    }

    /// Sets the facts about image files. They apply to modules that are added later.
    #[must_use]
    pub fn with_images(self, images: ImageTable) -> Modules {
        Modules { images, ..self }
    }

    /// The lists that assign the roles.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// The index of a module, which is added if it is new. `windows` is the path of the Windows
    /// folder, if it is known.
    ///
    /// Hashes and compares all texts of the module, so sources should cache the index.
    pub fn add(&mut self, facts: &ModuleFacts, windows: Option<&str>) -> ModuleIndex {
        if let Some(&index) = self.numbers.get(facts) {
            return index;
        }
        let index = ModuleIndex(u32::try_from(self.modules.len()).expect("fewer modules than addresses"));
        let known = self.with_image_facts(facts);
        let roles = self.lists.roles(&known, windows);
        let ModuleFacts { path, identity, sha256, signer, image } = known;
        self.roles.push(roles);
        self.modules.push(Module { path, identity, sha256, signer, image, roles });
        self.numbers.insert(facts.clone(), index);
        index
    }

    /// Adds the facts about the image file. A signer counts only if no source contradicts it.
    fn with_image_facts(&self, facts: &ModuleFacts) -> ModuleFacts {
        let mut facts = facts.clone();
        if let Some(found) = self.images.find(&facts.identity, facts.sha256.as_ref()) {
            facts.image = facts.image.with(found.clone());
        }
        if facts.image.signature().is_some() {
            facts.signer = facts.image.valid_signer().map(Into::into);
        }
        facts
    }

    /// The module with an index.
    pub fn get(&self, index: ModuleIndex) -> &Module {
        &self.modules[index.index()]
    }

    /// The roles of the module with an index.
    pub fn roles(&self, index: ModuleIndex) -> Roles {
        self.roles[index.index()]
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }
}

/// The identity of a module's image and PDB files, as far as the state of the trace contains it.
pub fn identity(module: ModuleRef<'_>) -> ModuleIdentity {
    let size = u32::try_from(module.size()).ok();
    let image = module.time_date_stamp().zip(size);
    ModuleIdentity {
        name: module.file_name().to_owned(),
        image: image.map(|(time_date_stamp, size)| ImageIdentity { time_date_stamp, size }),
        pdb: module.pdb().map(|pdb| PdbIdentity { name: pdb.name.to_owned(), guid: pdb.guid, age: pdb.age }),
    }
}

/// The facts about the image file of a module that events state.
fn recorded(module: ModuleRef<'_>) -> ImageEvidence {
    let signature = module.signing_level().and_then(|level| {
        let state = match level & SIGNING_LEVEL {
            0 => return None,
            1 => SignatureState::Unsigned,
            _ => SignatureState::Valid,
        };
        Some(Signature { state, ..Signature::default() })
    });
    let load = ImageFacts { signature, ..ImageFacts::new(FactSource::ImageLoad) };
    let known = |text: &str| (!text.is_empty()).then(|| text.into());
    let version = module.version().map_or_else(VersionInfo::default, |version| VersionInfo {
        original_file_name: known(version.original_file_name),
        company: known(version.company),
        product: known(version.product),
        description: known(version.description),
        file_version: known(version.file_version),
    });
    let merged = ImageFacts { version, ..ImageFacts::new(FactSource::ImageId) };
    ImageEvidence::from(load).with(merged)
}

/// Mask of the signing level in the byte of the event.
const SIGNING_LEVEL: u8 = 0x0f;

/// Properties of a module in the state of the trace that frames depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadedModule {
    /// Index of its file in [`Modules`].
    pub index: ModuleIndex,
    /// Whether it is a 64-bit module if its process is a 32-bit process on 64-bit Windows.
    pub is_64_bit_part: bool,
    /// Whether it is `win32u.dll` in a system folder.
    pub is_win32u: bool,
    /// Its roles in call stacks.
    pub roles: Roles,
}

/// Cache by the index of each module in the state of the trace, so that names are compared once per
/// module and not once per frame. The state reuses the index of a module that it removed, so the id
/// is compared.
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
        let facts =
            ModuleFacts { path: path_text, identity, image: recorded(module), ..ModuleFacts::default() };
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

#[cfg(test)]
mod tests {
    use stackhound_system::{ImageVersion, ModuleFacts as Stated, Phase};
    use stackhound_trace::TraceTime;
    use stackhound_types::{Address, Pid, PointerSize};

    use super::*;

    /// What the events of a trace and a side-car file state about an image, by source.
    #[test]
    fn modules_of_traces_have_facts_from_events_and_files() {
        const SIDE_CAR: &str = concat!(
            r#"{"type":"image","schema_version":1,"time_date_stamp":"0x5","image_size":4096,"dotnet":true,"#,
            r#""version":{"original_file_name":"c.exe"},"signature":{"state":"STATE","signer":"S"}}"#
        );
        for (level, state, signer) in [
            (Some(0x24), "valid", Some("S")),
            (None, "valid", Some("S")),
            // The kernel found no signature, so the file of the same header is another one.
            (Some(1), "valid", None),
            (Some(0x24), "invalid", None),
            (Some(0x24), "root-not-checked", None),
        ] {
            let mut system = System::new(PointerSize::Eight);
            let (pid, base, time) = (Pid(7), Address(0x10_0000), TraceTime(1));
            let path = r"\Device\HarddiskVolume1\a.exe";
            let stated = Stated { pid, base, size: 4096, time_date_stamp: Some(5), checksum: None, path };
            let id = system.take_module(Phase::Start, time, &stated).expect("a module");
            if let Some(level) = level {
                system.take_signing_level(id, level);
            }
            let version = ImageVersion { original_file_name: "b.exe", ..ImageVersion::default() };
            system.take_image_version(5, 4096, &version);
            let mut images = ImageTable::default();
            images.add_side_car(&SIDE_CAR.replace("STATE", state)).expect("a side-car file");
            let mut modules = Modules::default().with_images(images);
            let loaded = LoadedModules::default().get(&system, &mut modules, id);
            let module = modules.get(loaded.index);
            assert_eq!(module.signer.as_deref(), signer, "{level:?} {state}");
            assert_eq!(module.image.original_file_name(), Some(("b.exe", FactSource::ImageId)));
            assert_eq!(module.image.is_dotnet(), Some(true));
            let sources: Vec<FactSource> = module.image.facts().iter().map(|facts| facts.source).collect();
            let load = level.map(|_| FactSource::ImageLoad);
            assert!(sources.iter().eq(load.iter().chain(&[FactSource::ImageId, FactSource::SideCar])));
        }
    }
}
