//! Facts about processes (events 1, 5 and 25) and the files that they create (events 11 and 29).
//! The memory is bounded. Below the limits, the answers do not depend on the order of events.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use crate::known::{Host, Hosts, Key, KeyRef};
use crate::row::Actor;

/// The limit of bytes for processes. The oldest ones are removed first.
const PROCESS_BYTES_MAX: usize = 32 << 20;
/// The limit of bytes for created files. Further ones are ignored.
const FILE_BYTES_MAX: usize = 16 << 20;
/// The limit of remembered processes with evaluated events and without a known start.
const MENTIONED_MAX: usize = 1 << 16;
/// The limit of remembered tampering of one process.
const TAMPERING_MAX: usize = 8;
/// The limit of bytes of a GUID. Those of Sysmon have 38.
const GUID_MAX: usize = 128;

/// The start of a process.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Started {
    pub time: Option<u64>,
    pub command_line: Box<str>,
    pub parent_pid: Option<u32>,
    pub user: Box<str>,
    pub integrity: Box<str>,
}

/// The known facts about a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct KnownProcess {
    /// The key by which it is found without its GUID.
    pid: Option<HostAndPid>,
    image: Box<str>,
    pub started: Option<Started>,
    ended: Option<u64>,
    /// The times and kinds of tampering with its image, in order.
    pub tampering: Vec<(Option<u64>, Box<str>)>,
}

impl KnownProcess {
    fn size(&self) -> usize {
        let started = self.started.as_ref();
        let texts = started
            .map_or(0, |started| started.command_line.len() + started.user.len() + started.integrity.len());
        let tampering = self.tampering.iter().map(|(_, kind)| 64 + kind.len()).sum::<usize>();
        texts + self.image.len() + tampering + 320
    }
}

/// A fact about a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProcessStatement {
    Started(Started),
    Ended(Option<u64>),
    Tampered(Option<u64>, Box<str>),
}

/// Whether a GUID identifies a process. Sysmon writes zeros if it does not know it.
fn is_guid(guid: &str) -> bool {
    guid.len() <= GUID_MAX && guid.bytes().any(|byte| !matches!(byte, b'0' | b'-' | b'{' | b'}'))
}

/// A machine and the id of a process on it.
type HostAndPid = (Host, u32);

/// Processes by their Sysmon GUIDs.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    known: HashMap<Box<str>, KnownProcess, RandomState>,
    /// The GUIDs in the order of their events.
    order: VecDeque<Box<str>>,
    hosts: Hosts,
    /// GUIDs by machine and process id, for events without a GUID.
    by_pid: HashMap<HostAndPid, Vec<Box<str>>, RandomState>,
    bytes: usize,
    /// GUIDs of evaluated events whose process was not known.
    mentioned: HashSet<Box<str>, RandomState>,
    late: u64,
}

impl ProcessTable {
    /// The number of starts that came after an evaluated event of their process.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Notes that an event of a process is evaluated with the facts that are known now.
    pub(crate) fn mention(&mut self, guid: &str) {
        if is_guid(guid)
            && self.known.get(guid).is_none_or(|known| known.started.is_none())
            && self.mentioned.len() < MENTIONED_MAX
            && !self.mentioned.contains(guid)
        {
            self.mentioned.insert(guid.into());
        }
    }

    /// Adds a fact about the process of an event.
    pub(crate) fn learn(&mut self, host: &str, actor: &Actor<'_>, fact: ProcessStatement) {
        let guid = actor.guid;
        if !is_guid(guid) {
            return;
        }
        if !self.known.contains_key(guid) {
            self.order.push_back(guid.into());
            self.bytes += KnownProcess::default().size();
            let pid = actor.pid.and_then(|pid| Some((self.hosts.add(host)?, pid)));
            self.known.insert(guid.into(), KnownProcess { pid, ..KnownProcess::default() });
            if let Some(pid) = pid {
                self.by_pid.entry(pid).or_default().push(guid.into());
            }
        }
        let Some(known) = self.known.get_mut(guid) else { return };
        let size = known.size();
        if known.image.is_empty() {
            known.image = actor.image.into();
        }
        match fact {
            // Of contradictory events, the choice does not depend on their order.
            ProcessStatement::Started(started) => {
                self.late += u64::from(self.mentioned.remove(guid));
                known.started = Some(match known.started.take() {
                    Some(other) => started.min(other),
                    None => started,
                });
            }
            ProcessStatement::Ended(time) => known.ended = known.ended.max(time),
            ProcessStatement::Tampered(time, kind) => {
                let fact = (time, kind);
                if let Err(at) = known.tampering.binary_search(&fact) {
                    known.tampering.insert(at, fact);
                    known.tampering.truncate(TAMPERING_MAX);
                }
            }
        }
        // Facts can also become smaller.
        self.bytes = self.bytes + known.size() - size;
        while self.bytes > PROCESS_BYTES_MAX
            && let Some(guid) = self.order.pop_front()
        {
            let Some(removed) = self.known.remove(&guid) else { continue };
            self.bytes = self.bytes.saturating_sub(removed.size());
            let Some(pid) = removed.pid else { continue };
            if let Some(processes) = self.by_pid.get_mut(&pid) {
                processes.retain(|other| *other != guid);
                if processes.is_empty() {
                    self.by_pid.remove(&pid);
                }
            }
        }
    }

    /// The facts about the process of an event at a time, if they are known. Without a GUID, the id
    /// of the process identifies it while it runs.
    pub(crate) fn find(&self, host: &str, actor: &Actor<'_>, time: Option<u64>) -> Option<&KnownProcess> {
        if is_guid(actor.guid) {
            return self.known.get(actor.guid);
        }
        let time = time?;
        let processes = self.by_pid.get(&(self.hosts.find(host), actor.pid?))?;
        let started_before = processes.iter().filter_map(|guid| {
            let facts = self.known.get(guid)?;
            let started = facts.started.as_ref()?.time?;
            (started <= time).then_some((started, facts))
        });
        let (_, last) = started_before.max_by_key(|(started, _)| *started)?;
        let is_running = last.ended.is_none_or(|ended| ended >= time);
        (is_running && last.image.eq_ignore_ascii_case(actor.image)).then_some(last)
    }
}

/// The creation of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Creation {
    pub time: u64,
    pub pid: Option<u32>,
    pub image: Box<str>,
    pub sha256: Option<[u8; 32]>,
}

/// Extensions of executable files.
const EXTENSIONS: [&str; 12] =
    ["exe", "dll", "sys", "scr", "ocx", "cpl", "com", "drv", "ax", "pyd", "node", "xll"];

/// Whether a path has the extension of an executable file.
pub(crate) fn is_executable(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

/// The creations of executable files, by path and machine.
#[derive(Debug, Default)]
pub(crate) struct CreatedFiles {
    hosts: Hosts,
    files: HashMap<Key, Vec<Creation>, RandomState>,
    bytes: usize,
}

impl CreatedFiles {
    /// Adds the creation of a file.
    pub(crate) fn learn(&mut self, host: &str, path: &str, creation: Creation) {
        let size = path.len() + creation.image.len() + 160;
        if self.bytes + size > FILE_BYTES_MAX {
            return;
        }
        let Some(host) = self.hosts.add(host) else { return };
        let key = KeyRef { host, path };
        let creations = match self.files.get_mut(&key) {
            Some(creations) => creations,
            None => self.files.entry(key.into()).or_default(),
        };
        if let Err(at) = creations.binary_search(&creation) {
            creations.insert(at, creation);
            self.bytes += size;
        }
    }

    /// The last creation of a file before a time. Its SHA-256 is known if no later creation can
    /// have changed the file.
    pub(crate) fn find(&self, host: &str, path: &str, time: u64) -> Option<Creation> {
        let creations = self.files.get(&KeyRef { host: self.hosts.find(host), path })?;
        let before = &creations[..creations.partition_point(|creation| creation.time <= time)];
        before.last().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor<'a>(guid: &'a str, pid: u32) -> Actor<'a> {
        Actor { pid: Some(pid), tid: None, guid, image: r"C:\a.exe" }
    }

    fn started(length: usize, time: Option<u64>) -> Started {
        let (user, integrity) = ("".into(), "".into());
        Started { time, command_line: "x".repeat(length).into(), parent_pid: None, user, integrity }
    }

    #[test]
    fn the_oldest_processes_are_removed_first() {
        let mut processes = ProcessTable::default();
        let mut learn = |guid: &str, length| {
            processes.learn("PC", &actor(guid, 5), ProcessStatement::Started(started(length, None)));
            let known = |guid| processes.find("PC", &actor(guid, 5), None).is_some();
            (known("{a}"), known("{b}"), known("{c}"))
        };
        assert_eq!(learn("{0000-0000}", 1), (false, false, false));
        assert_eq!(learn("{a}", 1), (true, false, false));
        assert_eq!(learn("{b}", PROCESS_BYTES_MAX / 2), (true, true, false));
        assert_eq!(learn("{c}", PROCESS_BYTES_MAX / 2), (false, false, true));
        assert_eq!(processes.order.len(), 1);
        assert_eq!(processes.by_pid.values().map(Vec::len).sum::<usize>(), 1);
    }

    /// Texts of tampering and of identifiers count.
    #[test]
    fn the_facts_about_processes_are_bounded() {
        let mut processes = ProcessTable::default();
        let kind = "x".repeat(PROCESS_BYTES_MAX / 4);
        for guid in ["{a}", "{b}", "{c}"] {
            for time in 0..2 {
                let tampered = ProcessStatement::Tampered(Some(time), kind.as_str().into());
                processes.learn("PC", &actor(guid, 5), tampered);
            }
        }
        assert_eq!(processes.order.iter().map(|guid| &**guid).collect::<Vec<_>>(), ["{c}"]);
        // A smaller fact in place of a larger one frees bytes.
        for length in [PROCESS_BYTES_MAX / 4, 1] {
            processes.learn("PC", &actor("{c}", 5), ProcessStatement::Started(started(length, Some(0))));
        }
        assert_eq!(processes.bytes, processes.known["{c}"].size());
        let long = format!("{{{}}}", "a".repeat(GUID_MAX));
        processes.learn("PC", &actor(&long, 5), ProcessStatement::Started(started(1, None)));
        processes.mention(&long);
        assert_eq!((processes.known.len(), processes.mentioned.len()), (1, 0));
    }

    #[test]
    fn created_files_beyond_the_limit_are_ignored() {
        let mut files = CreatedFiles::default();
        let image = "x".repeat(FILE_BYTES_MAX - 1000);
        let creation = |image: &str| Creation { time: 1, pid: None, image: image.into(), sha256: None };
        files.learn("PC", "a", creation(&image));
        for file in 0..100 {
            files.learn(&format!("PC{file}"), &format!("{file}"), creation("a"));
        }
        let is_known = |file: u32| files.find(&format!("PC{file}"), &format!("{file}"), 1).is_some();
        assert!(is_known(0) && !is_known(99));
        let (hosts, paths) = (files.hosts.len(), files.files.len());
        assert!(paths < 10 && hosts == paths, "{hosts} {paths}");
    }

    #[test]
    fn reused_ids_identify_the_process_that_runs() {
        let mut processes = ProcessTable::default();
        for (guid, start, end) in [("{b}", 300, None), ("{a}", 100, Some(200))] {
            processes.learn("PC", &actor(guid, 5), ProcessStatement::Ended(end));
            processes.learn(
                "PC",
                &actor(guid, 5),
                ProcessStatement::Started(started(start, Some(start as u64))),
            );
        }
        let length = |host: &str, actor: &Actor<'_>, time| {
            let facts = processes.find(host, actor, time)?;
            Some(facts.started.as_ref()?.command_line.len())
        };
        for (time, expected) in [
            (Some(99), None),
            (Some(100), Some(100)),
            (Some(200), Some(100)),
            (Some(201), None),
            (Some(300), Some(300)),
            (Some(9999), Some(300)),
            (None, None),
        ] {
            assert_eq!(length("PC", &actor("", 5), time), expected, "{time:?}");
        }
        assert_eq!(length("other", &actor("", 5), Some(100)), None);
        assert_eq!(length("PC", &actor("", 6), Some(100)), None);
        assert_eq!(length("PC", &Actor { image: "b.exe", ..actor("", 5) }, Some(100)), None);
        assert_eq!(length("other", &actor("{a}", 7), None), Some(100));
    }

    #[test]
    fn the_last_creation_before_a_time_is_found() {
        let mut files = CreatedFiles::default();
        let creation = |time, sum: Option<u8>| Creation {
            time,
            pid: Some(5),
            image: "a".into(),
            sha256: sum.map(|sum| [sum; 32]),
        };
        for one in [creation(30, None), creation(10, None), creation(11, Some(1)), creation(10, None)] {
            files.learn("PC", r"C:\a.DLL", one);
        }
        let find = |time| files.find("PC", r"c:\A.dll", time);
        assert_eq!(find(9), None);
        assert_eq!(find(10), Some(creation(10, None)));
        assert_eq!(find(29), Some(creation(11, Some(1))));
        assert_eq!(find(30), Some(creation(30, None)));
        assert_eq!(files.find("other", r"C:\a.dll", 30), None);
    }

    #[test]
    fn executables_are_recognized_by_extension() {
        for (path, expected) in
            [(r"C:\a.DLL", true), (r"C:\a.exe", true), (r"C:\a.txt", false), ("exe", false)]
        {
            assert_eq!(is_executable(path), expected, "{path}");
        }
    }
}
