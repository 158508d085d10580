//! Lists of module names, folders and functions that classify frames. They are in `lists.toml` and
//! in custom files of the user, not in code.

use std::collections::BTreeMap;

use serde::Deserialize;
use stackhound_symbols::folder::{Folder, below_windows};
use stackhound_types::{HexBytes, file_name};

use crate::module::{ModuleFacts, Role, Roles};
use crate::runtime::{self, Runtime};

/// The built-in lists.
pub const BUILT_IN: &str = include_str!("lists.toml");

/// A custom list file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ListsError {
    /// Line number, starting at 1.
    pub line: usize,
    /// Description of the error, from the TOML parser.
    pub message: String,
}

/// An operation, in the categories that detections distinguish. [`Lists`] defines which of them are
/// sensitive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A handle to a process or thread was requested.
    ProcessOpen,
    /// A process was started.
    ProcessCreate,
    /// A thread was started.
    ThreadCreate,
    /// The context of a thread was changed, the thread was suspended or resumed, or an asynchronous
    /// procedure call was queued to it.
    ThreadControl,
    /// An image was mapped.
    ImageLoad,
    /// Memory was allocated.
    MemoryAllocate,
    /// The protection of memory was changed.
    MemoryProtect,
    /// Memory of a process was read or written.
    MemoryAccess,
    /// A section was mapped.
    MapView,
    /// The thread waited, slept or was switched out while waiting.
    Wait,
    /// A file was created, written, renamed or deleted.
    FileChange,
    /// The registry was changed.
    RegistryChange,
    /// A driver was loaded.
    DriverLoad,
    /// Anything else.
    Other,
}

/// A file name, path or other text with the wildcards `*` and `?`, in lower case.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(from = "String")]
pub struct Pattern(Box<str>);

impl From<String> for Pattern {
    fn from(text: String) -> Pattern {
        Pattern(text.to_ascii_lowercase().into())
    }
}

impl Pattern {
    /// Whether a text matches, ignoring ASCII case. The cost is at most the product of the lengths.
    pub fn fits(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut at, mut from) = (0, 0);
        // Position of the last star in the pattern, and the end of the text that it matches.
        let mut star: Option<(usize, usize)> = None;
        while from < text.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, from));
                    at += 1;
                }
                Some(&wanted) if wanted == b'?' || wanted == text[from].to_ascii_lowercase() => {
                    at += 1;
                    from += 1;
                }
                _ => {
                    let Some((position, until)) = star else { return false };
                    star = Some((position, until + 1));
                    at = position + 1;
                    from = until + 1;
                }
            }
        }
        pattern[at..].iter().all(|rest| *rest == b'*')
    }
}

pub(crate) fn fits(patterns: &[Pattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.fits(text))
}

/// `module!function`, both with wildcards.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
struct FunctionPattern {
    module: Pattern,
    function: Pattern,
}

impl TryFrom<String> for FunctionPattern {
    type Error = String;

    fn try_from(text: String) -> Result<FunctionPattern, String> {
        let (module, function) =
            text.split_once('!').ok_or_else(|| format!("`{text}` is not of the form module!function"))?;
        Ok(FunctionPattern { module: module.to_owned().into(), function: function.to_owned().into() })
    }
}

/// A list of functions of [`Lists`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Functions {
    /// Outermost functions of threads.
    ThreadRoots,
    /// Dispatchers of timers and asynchronous procedure calls.
    WaitDispatchers,
    /// Dispatchers of thread pools.
    PoolDispatchers,
    /// Functions that load a library.
    LoadLibrary,
    /// Functions in which Windows starts threads of other processes.
    RemoteStart,
    /// Dispatchers of exceptions.
    ExceptionDispatchers,
    /// Functions that the kernel calls in user mode.
    CallbackDispatchers,
    /// Exports that attacks patch to hide from security products.
    PatchTargets,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModulesText {
    system_call: Vec<Pattern>,
    legacy_system_call: Vec<Pattern>,
    wow64: Vec<Pattern>,
    native_layer: Vec<Pattern>,
    forwarder: Vec<Pattern>,
    hook: Vec<Pattern>,
    dump: Vec<Pattern>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FoldersText {
    installed: Vec<Pattern>,
    writable: Vec<Pattern>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownImagesText {
    images: Vec<Pattern>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectCaller {
    file: Pattern,
    signer: Pattern,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootsText {
    functions: Vec<FunctionPattern>,
    modules: Vec<Pattern>,
    own_roots: Vec<Pattern>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionsText {
    wait_dispatchers: Vec<FunctionPattern>,
    pool_dispatchers: Vec<FunctionPattern>,
    load_library: Vec<FunctionPattern>,
    remote_start: Vec<FunctionPattern>,
    exception_dispatchers: Vec<FunctionPattern>,
    callback_dispatchers: Vec<FunctionPattern>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SensitiveText {
    operations: Vec<Operation>,
    targets: Vec<Pattern>,
    access: u32,
    all_access: u32,
    crash_reporters: Vec<Pattern>,
    exports: Vec<FunctionPattern>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertsText {
    window_seconds: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BaselineText {
    script_hosts: Vec<Pattern>,
}

/// Sections of a custom file that tune findings. The crate of the detections reads them.
const TUNING: [&str; 2] = ["severity", "exceptions"];

/// All lists: the built-in ones, with the changes of custom files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lists {
    modules: ModulesText,
    runtime: Vec<Runtime>,
    folders: FoldersText,
    known_system: KnownImagesText,
    direct_caller: Vec<DirectCaller>,
    thread_roots: RootsText,
    functions: FunctionsText,
    sensitive: SensitiveText,
    services: BTreeMap<Box<str>, Operation>,
    causes: BTreeMap<Operation, Vec<Box<str>>>,
    aliases: BTreeMap<Box<str>, Vec<Box<str>>>,
    alerts: AlertsText,
    baseline: BaselineText,
}

impl Default for Lists {
    fn default() -> Lists {
        toml::from_str(BUILT_IN).expect("the built-in lists")
    }
}

impl Lists {
    /// The built-in lists, in which the keys of a custom TOML text replace those of the same name.
    ///
    /// # Errors
    /// If the text is not valid TOML, or has an unknown key or a value of the wrong type.
    pub fn with(text: &str) -> Result<Lists, ListsError> {
        let at = |error: &toml::de::Error| {
            error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count())
        };
        let wrong =
            |error: toml::de::Error| ListsError { line: at(&error), message: error.message().to_owned() };
        let mut custom: toml::Table = toml::from_str(text).map_err(wrong)?;
        custom.retain(|section, _| !TUNING.contains(&section));
        let mut all: toml::Table = toml::from_str(BUILT_IN).expect("the built-in lists");
        for (section, value) in custom {
            // Tables are merged key by key; arrays of tables are replaced as a whole.
            match (all.get_mut(&section), value) {
                (Some(toml::Value::Table(known)), toml::Value::Table(table)) => known.extend(table),
                (_, value) => drop(all.insert(section, value)),
            }
        }
        // The merged table has no line numbers, so the name in the error is searched in the custom
        // text.
        all.try_into().map_err(|error: toml::de::Error| {
            let name = error.message().split('`').nth(1).unwrap_or_default().to_owned();
            let line = text.lines().position(|line| !name.is_empty() && line.contains(&name));
            ListsError { line: line.map_or(1, |line| line + 1), message: error.message().to_owned() }
        })
    }

    /// Adds known images of Windows: one path, file name or SHA-256 sum per line. Empty lines and
    /// lines that begin with `#` are ignored.
    pub fn with_known_images(mut self, text: &str) -> Lists {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        self.known_system.images.extend(lines.map(|line| Pattern::from(line.to_owned())));
        self
    }

    /// The roles of a module. `windows` is the path of the Windows folder, if it is known.
    pub(crate) fn roles(&self, facts: &ModuleFacts, windows: Option<&str>) -> Roles {
        let path = &*facts.path;
        let name = file_name(path);
        let folder = self.folder(path, windows);
        let mut roles = Roles::default();
        let mut set = |role, is: bool| {
            if is {
                roles |= role;
            }
        };
        let is_ntdll = name.eq_ignore_ascii_case("ntdll.dll");
        // The oldest traces have no folders.
        let in_system = matches!(folder, Folder::System | Folder::Unstated);
        let listed = |patterns: &[Pattern]| in_system && fits(patterns, name);
        let lists = &self.modules;
        let (system_call, wow64) = (listed(&lists.system_call), listed(&lists.wow64));
        set(Role::SystemCall, system_call);
        set(Role::LegacySystemCall, listed(&lists.legacy_system_call));
        set(Role::Wow64, wow64);
        set(Role::NativeLayer, system_call || wow64 || listed(&lists.native_layer));
        set(Role::Forwarder, listed(&lists.forwarder));
        set(Role::Ntdll, in_system && is_ntdll);
        set(Role::NamedNtdll, is_ntdll);
        set(Role::Kernel32, in_system && name.eq_ignore_ascii_case("kernel32.dll"));
        set(Role::Hook, fits(&lists.hook, name));
        set(Role::Dump, fits(&lists.dump, name));
        let is_installed = self.is_installed(path);
        let below_windows = below_windows(path, windows).filter(|_| folder != Folder::Elsewhere);
        let runtime = runtime::role(&self.runtime, facts, (name, below_windows, is_installed));
        runtime.into_iter().for_each(|role| set(role, true));
        let is_known = self.is_known(path, name, facts.sha256.as_ref());
        let is_below_windows = matches!(folder, Folder::System | Folder::Windows);
        let is_foreign = facts.image.is_unsigned() && !is_known && runtime != Some(Role::Runtime);
        set(Role::Windows, is_below_windows && !is_foreign);
        set(Role::Unsigned, is_below_windows && is_foreign);
        set(Role::Installed, is_installed);
        set(Role::KnownSystem, is_known);
        let callers = self.direct_caller.iter().filter(|caller| caller.file.fits(path));
        for caller in callers {
            match &facts.signer {
                Some(signer) => set(Role::DirectCaller, caller.signer.fits(signer)),
                None => set(Role::LikeDirectCaller, true),
            }
        }
        roles
    }

    /// The folder of a path. Folders below the Windows folder that users can write to are
    /// [`Folder::Elsewhere`].
    fn folder(&self, path: &str, windows: Option<&str>) -> Folder {
        let folder = Folder::of(path, windows);
        if folder != Folder::Windows {
            return folder;
        }
        let rest = below_windows(path, windows).unwrap_or_default().trim_start_matches('\\');
        let is_below = |writable: &Pattern| {
            rest.split_at_checked(writable.0.len()).is_some_and(|(start, rest)| {
                start.eq_ignore_ascii_case(&writable.0) && rest.starts_with('\\')
            })
        };
        if self.folders.writable.iter().any(is_below) { Folder::Elsewhere } else { folder }
    }

    /// Whether a path is in a folder for installed programs in the root of a volume.
    fn is_installed(&self, path: &str) -> bool {
        let path = path.strip_prefix(r"\??\").unwrap_or(path);
        let mut parts = path.split('\\');
        let folder = match (parts.next(), parts.next()) {
            (Some(volume), folder) if volume.len() == 2 && volume.ends_with(':') => folder,
            (Some(""), Some(device)) if device.eq_ignore_ascii_case("Device") => parts.nth(1),
            (Some(""), folder) => folder,
            _ => None,
        };
        folder.is_some_and(|folder| fits(&self.folders.installed, folder)) && parts.next().is_some()
    }

    fn is_known(&self, path: &str, name: &str, sha256: Option<&[u8; 32]>) -> bool {
        let images = &self.known_system.images;
        if images.is_empty() {
            return false;
        }
        let sum = sha256.map(|sum| HexBytes(sum).to_string());
        fits(images, path) || fits(images, name) || sum.is_some_and(|sum| fits(images, &sum))
    }

    /// Whether the path is that of a program that is known to make direct system calls. The signer
    /// is not checked.
    pub fn is_like_direct_caller(&self, image: &str) -> bool {
        self.direct_caller.iter().any(|caller| caller.file.fits(image))
    }

    /// Whether the list of known images of Windows has entries.
    pub fn knows_system_images(&self) -> bool {
        !self.known_system.images.is_empty()
    }

    /// Whether a function is on a list. `module` is a file name.
    pub fn has_function(&self, list: Functions, module: &str, function: &str) -> bool {
        let list = match list {
            Functions::ThreadRoots => &self.thread_roots.functions,
            Functions::WaitDispatchers => &self.functions.wait_dispatchers,
            Functions::PoolDispatchers => &self.functions.pool_dispatchers,
            Functions::LoadLibrary => &self.functions.load_library,
            Functions::RemoteStart => &self.functions.remote_start,
            Functions::ExceptionDispatchers => &self.functions.exception_dispatchers,
            Functions::CallbackDispatchers => &self.functions.callback_dispatchers,
            Functions::PatchTargets => &self.sensitive.exports,
        };
        list.iter().any(|pattern| pattern.module.fits(module) && pattern.function.fits(function))
    }

    /// Whether a module of this name, called by the outermost frame in `ntdll.dll`, identifies the
    /// root of a thread.
    pub fn is_above_root(&self, module: &str) -> bool {
        fits(&self.thread_roots.modules, module)
    }

    /// Whether the threads of this program start in a library of their own.
    pub fn has_own_roots(&self, image: &str) -> bool {
        fits(&self.thread_roots.own_roots, file_name(image))
    }

    /// Whether an operation raises the severity of a finding.
    pub fn is_sensitive(&self, operation: Operation) -> bool {
        self.sensitive.operations.contains(&operation)
    }

    /// Whether a program holds credentials.
    pub fn is_sensitive_target(&self, image: &str) -> bool {
        fits(&self.sensitive.targets, file_name(image))
    }

    /// Whether these access rights allow reading the memory of a process.
    pub fn is_sensitive_access(&self, access: u32) -> bool {
        access & self.sensitive.access != 0
    }

    /// Whether these access rights are all rights to a process.
    pub fn is_all_access(&self, access: u32) -> bool {
        access & self.sensitive.all_access == self.sensitive.all_access
    }

    /// Whether a program is one that reports crashes for Windows, in a folder of Windows.
    pub fn is_crash_reporter(&self, image: &str) -> bool {
        let name = file_name(image);
        Folder::of(image, None) == Folder::System && fits(&self.sensitive.crash_reporters, name)
    }

    /// The operation of a service, by its name; [`Operation::Other`] if it is not listed.
    pub fn operation(&self, service: &str) -> Operation {
        self.services.get(service).copied().unwrap_or(Operation::Other)
    }

    /// The services that cause an operation; empty if they are not all known.
    pub fn causes(&self, operation: Operation) -> &[Box<str>] {
        self.causes.get(&operation).map_or(&[], |services| services)
    }

    /// Whether two names refer to the same service: the prefixes `Nt` and `Zw` are equivalent, and
    /// the lists define other aliases.
    pub fn is_same_service(&self, one: &str, other: &str) -> bool {
        let (one, other) = (bare(one), bare(other));
        let lists = |name: &str, alias: &str| {
            self.aliases.iter().any(|(known, aliases)| {
                bare(known) == name && aliases.iter().any(|known| bare(known) == alias)
            })
        };
        one == other || lists(one, other) || lists(other, one)
    }

    /// Whether a program runs scripts or code of others, so that its name and the modules of its
    /// stacks do not identify an activity.
    pub fn is_script_host(&self, image: &str) -> bool {
        fits(&self.baseline.script_hosts, file_name(image))
    }

    /// Maximum time between findings of one alert, in units of 100 ns.
    pub fn alert_window(&self) -> u64 {
        u64::from(self.alerts.window_seconds) * 10_000_000
    }
}

/// The name of a service without `Nt` or `Zw`.
fn bare(name: &str) -> &str {
    name.strip_prefix("Nt").or_else(|| name.strip_prefix("Zw")).unwrap_or(name)
}

#[cfg(test)]
mod tests;
