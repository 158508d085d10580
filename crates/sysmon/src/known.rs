//! The files of modules: what events 6 and 7 state about them. The memory is bounded.
//!
//! The answers do not depend on the order of events. A frame has the facts of the load of its
//! module by the same process. If that load is not known, it has the facts of the loads by all
//! other processes of the machine, provided that they agree. Otherwise the facts are unknown.

use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap, HashSet};
use stackhound_detect::Detector;
use stackhound_frames::{ModuleFacts, ModuleIndex};
use stackhound_images::ImageEvidence;
use stackhound_types::{ModuleIdentity, file_name};

use crate::row::StatedImage;

/// The limit of distinct paths. Frames in further ones are in unknown modules.
const FILES_MAX: usize = 1 << 20;
/// The limit of machines with separate modules.
const HOSTS_MAX: usize = 1 << 16;
/// The limit of bytes of their names.
const HOST_BYTES_MAX: usize = 16 << 20;
/// The limit of different files at one path. If there are more, the facts about it are unknown.
const VERSIONS_MAX: usize = 16;
/// The limit of different statements about one file. If there are as many, they are unknown.
const STATEMENTS_MAX: usize = 8;
/// The limit of loads that are remembered by process. Further ones count only for the machine.
const LOADS_MAX: usize = 1 << 20;

/// A machine. 0 is the number of all machines without facts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Host(u32);

/// A path on a machine, compared without case.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Key {
    host: Host,
    path: Box<str>,
}

#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub host: Host,
    pub path: &'a str,
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.host.hash(hasher);
        let mut small = [0; 64];
        for part in self.path.as_bytes().chunks(small.len()) {
            let small = &mut small[..part.len()];
            small.copy_from_slice(part);
            small.make_ascii_lowercase();
            hasher.write(small);
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        KeyRef { host: self.host, path: &self.path }.hash(hasher);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.host == key.host && self.path.eq_ignore_ascii_case(&key.path)
    }
}

impl From<KeyRef<'_>> for Key {
    fn from(key: KeyRef<'_>) -> Key {
        Key { host: key.host, path: key.path.into() }
    }
}

/// The numbers of machines.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    numbers: HashMap<Box<str>, Host, RandomState>,
    bytes: usize,
}

impl Hosts {
    /// The number of a machine, 0 if it has none.
    pub(crate) fn find(&self, name: &str) -> Host {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// Adds a machine. `None` beyond the limits.
    pub(crate) fn add(&mut self, name: &str) -> Option<Host> {
        if let Some(host) = self.numbers.get(name) {
            return Some(*host);
        }
        if self.numbers.len() >= HOSTS_MAX || self.bytes + name.len() > HOST_BYTES_MAX {
            return None;
        }
        let number = Host(1 + self.numbers.len() as u32);
        self.bytes += name.len();
        self.numbers.insert(name.into(), number);
        Some(number)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

/// A file that was at a path.
#[derive(Debug)]
struct Version {
    sha256: Option<[u8; 32]>,
    /// The different statements of all events, sorted so that their order does not matter.
    image: ImageEvidence,
    /// The index of the module, if a frame needed it.
    index: Option<ModuleIndex>,
}

/// The facts about a path on a machine.
#[derive(Debug, Default)]
struct File {
    versions: Vec<Version>,
    /// The index of the module without facts, if a frame needed it.
    plain: Option<ModuleIndex>,
    is_driver: bool,
    is_loaded: bool,
}

impl File {
    /// Whether it is a driver that no process has loaded as an image.
    fn is_only_driver(&self) -> bool {
        self.is_driver && !self.is_loaded
    }

    fn is_used(&self) -> bool {
        self.plain.is_some() || self.versions.iter().any(|version| version.index.is_some())
    }

    /// The number of the version with these facts, and whether that is new. Allocates only for new
    /// facts.
    fn version(&mut self, sha256: Option<[u8; 32]>, stated: &StatedImage<'_>) -> (usize, bool) {
        let states = |version: &Version| version.image.facts().iter().any(|facts| stated.has_facts(facts));
        let is_same = |version: &Version| match sha256 {
            Some(_) => version.sha256 == sha256,
            None if stated.is_empty() => version.sha256.is_none() && version.image.is_empty(),
            // Without a hash, other facts are about another file.
            None => version.sha256.is_none() && states(version),
        };
        let Some(number) = self.versions.iter().position(is_same) else {
            if self.versions.len() < VERSIONS_MAX {
                self.versions.push(Version { sha256, image: stated.facts().into(), index: None });
            }
            return (self.versions.len() - 1, true);
        };
        let version = &mut self.versions[number];
        let known = version.image.facts();
        let is_new = !stated.is_empty() && known.len() < STATEMENTS_MAX && !states(version);
        if is_new {
            let mut all = known.to_vec();
            all.push(stated.facts());
            all.sort_unstable();
            let image = all.into_iter().fold(ImageEvidence::default(), |image, facts| image.with(facts));
            (version.image, version.index) = (image, None);
        }
        (number, is_new)
    }
}

/// A module of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundModule {
    pub index: ModuleIndex,
    /// Whether the facts about it can differ between the processes of the machine.
    pub is_by_process: bool,
    /// Whether it is a driver that no process has loaded as an image.
    pub is_driver: bool,
}

/// Facts about the file of a module, from one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loaded<'a> {
    pub host: &'a str,
    /// The GUID of the process; empty for drivers, or if unknown.
    pub process: &'a str,
    pub path: &'a str,
    pub sha256: Option<[u8; 32]>,
    pub stated: StatedImage<'a>,
    pub is_driver: bool,
}

/// The number of contradictory versions for one process.
const CONTRADICTORY: u16 = u16::MAX;

/// The modules of the detector, by path and machine.
#[derive(Debug, Default)]
pub(crate) struct ModuleNumbers {
    numbers: HashMap<Key, u32, RandomState>,
    files: Vec<File>,
    hosts: Hosts,
    /// Machines without facts that had frames.
    used_hosts: HashSet<Box<str>, RandomState>,
    processes: HashMap<Box<str>, u32, RandomState>,
    /// The version by process and file.
    loads: HashMap<(u32, u32), u16, RandomState>,
    generation: u32,
    late: u64,
}

impl ModuleNumbers {
    /// A number that changes if the facts of an earlier answer change.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The number of events with facts that earlier answers lacked.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// The module with this path in a process of a machine. `None` beyond the limit of paths.
    pub(crate) fn find(
        &mut self,
        detector: &mut Detector,
        (name, process): (&str, &str),
        path: &str,
    ) -> Option<FoundModule> {
        let host = self.hosts.find(name);
        let key = KeyRef { host, path };
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.add(key)?,
        };
        if host == Host::default() && self.used_hosts.len() < HOSTS_MAX && !self.used_hosts.contains(name) {
            self.used_hosts.insert(name.into());
        }
        let (version, is_by_process) = self.version(number, process);
        let file = &mut self.files[number as usize];
        let index = *match version.and_then(|version| file.versions.get_mut(version)) {
            None => file
                .plain
                .get_or_insert_with(|| detector.module(&facts(path, None, &ImageEvidence::default()), None)),
            Some(Version { sha256, image, index }) => {
                index.get_or_insert_with(|| detector.module(&facts(path, *sha256, image), None))
            }
        };
        Some(FoundModule { index, is_by_process, is_driver: file.is_only_driver() })
    }

    /// The same for a module that was found before.
    pub(crate) fn get(&self, (host, process): (&str, &str), path: &str) -> Option<FoundModule> {
        let number = *self.numbers.get(&KeyRef { host: self.hosts.find(host), path })?;
        let (version, is_by_process) = self.version(number, process);
        let file = &self.files[number as usize];
        let index = version.map_or(file.plain, |version| file.versions[version].index)?;
        Some(FoundModule { index, is_by_process, is_driver: file.is_only_driver() })
    }

    /// The version of a file that a process has loaded, if it is known, and whether that depends on
    /// the process.
    fn version(&self, number: u32, process: &str) -> (Option<usize>, bool) {
        let versions = self.files[number as usize].versions.len();
        if versions < 2 {
            return (versions.checked_sub(1), false);
        }
        let load = self.processes.get(process).and_then(|process| self.loads.get(&(*process, number)));
        let known = load.filter(|version| **version != CONTRADICTORY && versions < VERSIONS_MAX);
        (known.map(|version| usize::from(*version)), true)
    }

    fn add(&mut self, key: KeyRef<'_>) -> Option<u32> {
        let number = self.files.len() as u32;
        if self.files.len() >= FILES_MAX {
            return None;
        }
        self.numbers.insert(key.into(), number);
        self.files.push(File::default());
        Some(number)
    }

    /// Adds facts about the file of a module. Adding the same facts again changes nothing.
    pub(crate) fn learn(&mut self, loaded: Loaded<'_>) {
        let Loaded { host: name, process, path, sha256, stated, is_driver } = loaded;
        let is_used_host = self.used_hosts.contains(name);
        if is_used_host && self.hosts.find(name) == Host::default() {
            // Earlier answers had the modules of machines without facts.
            self.generation += 1;
        }
        let Some(host) = self.hosts.add(name) else { return };
        let known = self.numbers.get(&KeyRef { host, path }).copied();
        let mut is_late = is_used_host
            && known.is_none()
            && self.numbers.contains_key(&KeyRef { host: Host::default(), path });
        let Some(number) = known.or_else(|| self.add(KeyRef { host, path })) else { return };
        let file = &mut self.files[number as usize];
        let was_used = file.is_used();
        let was_driver = file.is_only_driver();
        let (version, mut is_new) = file.version(sha256, &stated);
        file.is_driver |= is_driver;
        file.is_loaded |= !is_driver;
        is_new |= was_driver != file.is_only_driver();
        if !process.is_empty() && (self.loads.len() < LOADS_MAX) {
            let next = self.processes.len() as u32;
            let process = match self.processes.get(process) {
                Some(process) => *process,
                None => *self.processes.entry(process.into()).or_insert(next),
            };
            let load = self.loads.entry((process, number)).or_insert(version as u16);
            if *load != version as u16 && *load != CONTRADICTORY {
                (*load, is_new) = (CONTRADICTORY, true);
            }
        }
        if is_new && was_used {
            self.generation += 1;
            is_late = true;
        }
        self.late += u64::from(is_late);
    }
}

fn facts(path: &str, sha256: Option<[u8; 32]>, image: &ImageEvidence) -> ModuleFacts {
    let name = file_name(path).to_owned();
    let too_many = image.facts().len() >= STATEMENTS_MAX;
    let image = if too_many { ImageEvidence::default() } else { image.clone() };
    ModuleFacts {
        path: path.into(),
        identity: ModuleIdentity { name, image: None, pdb: None },
        sha256,
        signer: image.valid_signer().map(Into::into),
        image,
    }
}

#[cfg(test)]
mod tests {
    use stackhound_detect::Binaries;
    use stackhound_frames::Lists;

    use super::*;

    const FILE: &str = r"C:\a.dll";

    fn new_detector() -> Detector {
        Detector::new(Lists::default(), Binaries::none())
    }

    fn loaded<'a>(host: &'a str, process: &'a str, sum: u8, signer: &'a str) -> Loaded<'a> {
        let stated = StatedImage::signed_by(signer);
        Loaded { host, process, path: r"c:\A.dll", sha256: Some([sum; 32]), stated, is_driver: false }
    }

    /// The facts about the file in a process of a machine.
    fn known(
        detector: &mut Detector,
        modules: &mut ModuleNumbers,
        host: &str,
        process: &str,
    ) -> (Option<u8>, String) {
        let found = modules.find(detector, (host, process), FILE).expect("a module");
        let module = detector.modules.get(found.index);
        (module.sha256.map(|sum| sum[0]), module.signer.as_deref().unwrap_or_default().to_owned())
    }

    #[test]
    fn facts_apply_to_their_machine_and_process_in_any_order() {
        let none = || (None, String::new());
        let first = || (Some(1), "S".to_owned());
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let events = [
                loaded("one", "{a}", 1, "S"),
                loaded("two", "{b}", 1, ""),
                loaded("two", "{c}", 2, "T"),
                loaded("two", "{b}", 1, "S"),
            ];
            let (detector, mut modules) = (&mut new_detector(), ModuleNumbers::default());
            order.into_iter().for_each(|event| modules.learn(events[event]));
            for (host, process, expected) in [
                ("one", "{a}", first()),
                // The loads by other processes agree.
                ("one", "", first()),
                ("two", "{b}", first()),
                ("two", "{c}", (Some(2), "T".to_owned())),
                ("two", "{a}", none()),
                ("two", "", none()),
                ("three", "{a}", none()),
            ] {
                assert_eq!(
                    known(detector, &mut modules, host, process),
                    expected,
                    "{order:?} {host} {process}"
                );
            }
        }
    }

    #[test]
    fn contradictions_are_unknown() {
        let detector = &mut new_detector();
        let mut modules = ModuleNumbers::default();
        modules.learn(loaded("one", "{a}", 1, "S"));
        modules.learn(loaded("one", "{b}", 1, "T"));
        assert_eq!(known(detector, &mut modules, "one", "{a}"), (Some(1), String::new()));
        modules.learn(loaded("one", "{a}", 2, ""));
        assert_eq!(known(detector, &mut modules, "one", "{a}"), (None, String::new()));
        let mut modules = ModuleNumbers::default();
        for sum in 0..VERSIONS_MAX as u8 + 3 {
            modules.learn(loaded("one", &format!("{{{sum}}}"), sum, ""));
        }
        assert_eq!(known(detector, &mut modules, "one", "{0}"), (None, String::new()));
    }

    #[test]
    fn statements_about_a_file_are_kept_in_any_order() {
        let detector = &mut new_detector();
        let stated = |name| StatedImage { original_file_name: name, ..StatedImage::signed_by("S") };
        let load = |name| Loaded { stated: stated(name), ..loaded("one", "{a}", 1, "") };
        let images = [["a", "b"], ["b", "a"]].map(|names| {
            let mut modules = ModuleNumbers::default();
            names.into_iter().chain(names).for_each(|name| modules.learn(load(name)));
            let found = modules.find(detector, ("one", "{a}"), FILE).expect("a module");
            let module = detector.modules.get(found.index);
            assert_eq!(module.signer.as_deref(), Some("S"));
            module.image.clone()
        });
        assert_eq!(images[0], images[1]);
        assert_eq!(images[0].facts(), ["a", "b"].map(|name| stated(name).facts()));
        // Too many statements are unknown.
        let mut modules = ModuleNumbers::default();
        let names: Vec<String> = (0..=STATEMENTS_MAX).map(|name| name.to_string()).collect();
        names.iter().for_each(|name| modules.learn(load(name)));
        let found = modules.find(detector, ("one", "{a}"), FILE).expect("a module");
        assert!(detector.modules.get(found.index).image.is_empty());
    }

    #[test]
    fn the_names_of_machines_are_bounded() {
        let mut hosts = Hosts::default();
        let name = |letter: &str| letter.repeat(HOST_BYTES_MAX / 2);
        assert!(hosts.add(&name("a")).is_some() && hosts.add(&name("b")).is_some());
        assert_eq!((hosts.add("c"), hosts.find("c")), (None, Host::default()));
        assert_eq!(hosts.add(&name("a")), Some(hosts.find(&name("a"))));
    }

    #[test]
    fn late_facts_are_counted() {
        let (detector, mut modules) = (&mut new_detector(), ModuleNumbers::default());
        modules.find(detector, ("one", ""), FILE);
        modules.learn(Loaded { path: "other", ..loaded("one", "{a}", 1, "S") });
        // The machine has facts now, but not about this file.
        assert_eq!((modules.generation(), modules.late()), (1, 0));
        modules.find(detector, ("one", ""), FILE);
        modules.learn(loaded("one", "{a}", 1, "S"));
        assert_eq!((modules.generation(), modules.late()), (2, 1));
        modules.learn(loaded("one", "{b}", 1, "S"));
        assert_eq!((modules.generation(), modules.late()), (2, 1));
        modules.find(detector, ("two", ""), FILE);
        modules.learn(loaded("two", "{a}", 1, "S"));
        assert_eq!((modules.generation(), modules.late()), (3, 2));
    }
}
