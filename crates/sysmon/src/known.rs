//! Facts from earlier events: the identity of modules and the start of processes. The memory is
//! bounded.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap};
use stackhound_detect::Detector;
use stackhound_frames::{ModuleFacts, ModuleIndex};
use stackhound_types::ModuleIdentity;

use crate::row::StatedImage;

/// The limit of distinct paths. Frames in further ones are in unknown modules.
const MODULES_MAX: usize = 1 << 20;
/// The limit of machines with separate modules.
const HOSTS_MAX: usize = 1 << 16;
/// The limit of bytes for processes. The oldest ones are removed first.
const PROCESS_BYTES_MAX: usize = 64 << 20;

/// A machine with facts about files. 0 is the number of all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Host(u32);

/// A path on a machine, compared without case.
#[derive(PartialEq, Eq, Debug)]
struct Key {
    host: Host,
    path: Box<str>,
}

#[derive(Clone, Copy)]
struct KeyRef<'a> {
    host: Host,
    path: &'a str,
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

/// The module indexes of the detector, by path and machine.
#[derive(Debug, Default)]
pub(crate) struct ModuleNumbers {
    numbers: HashMap<Key, ModuleIndex, RandomState>,
    hosts: HashMap<Box<str>, Host, RandomState>,
}

impl ModuleNumbers {
    /// The machine with this name.
    pub(crate) fn host(&self, name: &str) -> Host {
        self.hosts.get(name).copied().unwrap_or_default()
    }

    /// The module with this path on a machine. `None` beyond the limit of paths.
    pub(crate) fn find(&mut self, detector: &mut Detector, host: Host, path: &str) -> Option<ModuleIndex> {
        if host != Host::default()
            && let Some(&index) = self.numbers.get(&KeyRef { host, path })
        {
            return Some(index);
        }
        let key = KeyRef { host: Host::default(), path };
        if let Some(&index) = self.numbers.get(&key) {
            return Some(index);
        }
        self.insert(key, |_| detector.module(&facts(path, None, "", &StatedImage::default()), None))
    }

    /// Adds facts about the file of a module on a machine.
    pub(crate) fn learn(
        &mut self,
        detector: &mut Detector,
        (host, path): (&str, &str),
        sha256: Option<[u8; 32]>,
        signer: &str,
        stated: &StatedImage<'_>,
    ) {
        if sha256.is_none() && signer.is_empty() && *stated == StatedImage::default() {
            return;
        }
        let host = match self.hosts.get(host) {
            Some(&host) => host,
            None if self.hosts.len() >= HOSTS_MAX => return,
            None => {
                let number = Host(1 + self.hosts.len() as u32);
                *self.hosts.entry(host.into()).or_insert(number)
            }
        };
        let key = KeyRef { host, path };
        if let Some(number) = self.numbers.get_mut(&key) {
            let known = detector.modules.get(*number);
            let is_same = known.sha256 == sha256 && known.signer.as_deref().unwrap_or_default() == signer;
            // The same file has the same facts. Without its hash, they are compared by the detector.
            if !is_same || sha256.is_none() {
                *number = detector.module(&facts(path, sha256, signer, stated), None);
            }
            return;
        }
        self.insert(key, |_| detector.module(&facts(path, sha256, signer, stated), None));
    }

    fn insert(&mut self, key: KeyRef<'_>, number: impl FnOnce(&Key) -> ModuleIndex) -> Option<ModuleIndex> {
        if self.numbers.len() >= MODULES_MAX {
            return None;
        }
        let key = Key { host: key.host, path: key.path.into() };
        let number = number(&key);
        self.numbers.insert(key, number);
        Some(number)
    }
}

fn facts(path: &str, sha256: Option<[u8; 32]>, signer: &str, stated: &StatedImage<'_>) -> ModuleFacts {
    let name = path.rsplit('\\').next().unwrap_or(path).to_owned();
    ModuleFacts {
        path: path.into(),
        identity: ModuleIdentity { name, image: None, pdb: None },
        sha256,
        signer: (!signer.is_empty()).then(|| signer.into()),
        image: stated.facts().into(),
    }
}

/// The start of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    pub command_line: Box<str>,
    pub parent_pid: Option<u32>,
    pub time: Option<u64>,
}

/// Processes by their Sysmon GUIDs.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    started: HashMap<Box<str>, Started, RandomState>,
    /// The GUIDs in the order of their events.
    order: VecDeque<Box<str>>,
    bytes: usize,
}

impl ProcessTable {
    /// Adds the start of a process.
    pub(crate) fn learn(&mut self, guid: &str, started: Started) {
        if guid.is_empty() || self.started.contains_key(guid) {
            return;
        }
        self.bytes += size(guid, &started);
        self.order.push_back(guid.into());
        self.started.insert(guid.into(), started);
        while self.bytes > PROCESS_BYTES_MAX
            && let Some(guid) = self.order.pop_front()
        {
            let removed = self.started.remove(&guid);
            self.bytes -= removed.map_or(0, |started| size(&guid, &started));
        }
    }

    /// The start of a process, if it is known.
    pub(crate) fn find(&self, guid: &str) -> Option<&Started> {
        self.started.get(guid)
    }
}

fn size(guid: &str, started: &Started) -> usize {
    2 * guid.len() + started.command_line.len() + 128
}

#[cfg(test)]
mod tests {
    use stackhound_detect::Binaries;
    use stackhound_frames::Lists;

    use super::*;

    #[test]
    fn facts_about_files_apply_to_their_machine() {
        let detector = &mut Detector::new(Lists::default(), Binaries::none());
        let modules = &mut ModuleNumbers::default();
        let plain = modules.find(detector, Host::default(), r"C:\a.dll").unwrap();
        let stated = &StatedImage::default();
        modules.learn(detector, ("one", r"c:\A.dll"), Some([1; 32]), "S", stated);
        modules.learn(detector, ("two", r"c:\a.dll"), None, "", stated);
        let (one, two) = (modules.host("one"), modules.host("two"));
        assert_eq!(two, Host::default());
        let known = modules.find(detector, one, r"C:\A.DLL").unwrap();
        assert_ne!(known, plain);
        assert_eq!(detector.modules.get(known).sha256, Some([1; 32]));
        assert_eq!(detector.modules.get(known).signer.as_deref(), Some("S"));
        assert_eq!(modules.find(detector, two, r"c:\a.dll"), Some(plain));
        // A replaced file is another module from then on.
        modules.learn(detector, ("one", r"c:\a.dll"), Some([2; 32]), "S", stated);
        let replaced = modules.find(detector, one, r"c:\a.dll").unwrap();
        assert_eq!(detector.modules.get(replaced).sha256, Some([2; 32]));
        assert_eq!(detector.modules.len(), 3);
    }

    #[test]
    fn the_oldest_processes_are_removed_first() {
        let started =
            |length: usize| Started { command_line: "x".repeat(length).into(), parent_pid: None, time: None };
        let mut processes = ProcessTable::default();
        processes.learn("", started(1));
        assert_eq!(processes.find(""), None);
        processes.learn("a", started(1));
        processes.learn("b", started(PROCESS_BYTES_MAX / 2));
        assert_eq!(processes.find("a"), Some(&started(1)));
        processes.learn("c", started(PROCESS_BYTES_MAX / 2));
        assert_eq!(processes.find("a"), None);
        assert_eq!(processes.find("b"), None);
        assert!(processes.find("c").is_some());
        assert_eq!(processes.order.len(), 1);
        processes.learn("d", started(PROCESS_BYTES_MAX));
        assert_eq!((processes.bytes, processes.order.len()), (0, 0));
    }
}
