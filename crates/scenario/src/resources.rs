//! Files, registry keys and memory that are used by threads.

use crate::machine::ProcessIndex;
use crate::payload::OpenFile;
use crate::truth::Region;

/// A registry key. Its index in [`KEYS`] is the number of its control block.
#[derive(Debug)]
pub(crate) struct Key {
    pub path: &'static str,
    /// Name of a value in it.
    pub value: &'static str,
    parent: Option<u32>,
}

impl Key {
    /// The key that it is opened from, and its path relative to that key.
    pub fn relative(&self) -> (Option<u64>, &'static str) {
        match self.parent {
            Some(parent) => {
                let above = KEYS[parent as usize].path.len() + 1;
                (Some(parent.into()), &self.path[above..])
            }
            None => (None, self.path),
        }
    }
}

const fn key(path: &'static str, parent: Option<u32>, value: &'static str) -> Key {
    Key { path, value, parent }
}

pub(crate) const KEYS: [Key; 14] = [
    key(r"\REGISTRY\MACHINE", None, ""),
    key(r"\REGISTRY\USER", None, ""),
    key(r"\REGISTRY\MACHINE\SOFTWARE", Some(0), ""),
    key(r"\REGISTRY\MACHINE\SYSTEM\ControlSet001", Some(0), ""),
    key(r"\REGISTRY\USER\S-1-5-21-1004336348-1177238915-682003330-1001", Some(1), ""),
    key(r"\REGISTRY\MACHINE\SOFTWARE\Microsoft\Windows NT\CurrentVersion", Some(2), "CurrentBuildNumber"),
    key(r"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Services\Tcpip\Parameters", Some(3), "Hostname"),
    key(r"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Control\Session Manager", Some(3), "SafeDllSearchMode"),
    key(
        r"\REGISTRY\USER\S-1-5-21-1004336348-1177238915-682003330-1001\SOFTWARE\Contoso\Office",
        Some(4),
        "Recent",
    ),
    key(
        r"\REGISTRY\USER\S-1-5-21-1004336348-1177238915-682003330-1001\SOFTWARE\Contoso\Browser",
        Some(4),
        "Tabs",
    ),
    key(r"\REGISTRY\MACHINE\SOFTWARE\Classes\CLSID", Some(2), "InprocServer32"),
    key(r"\REGISTRY\MACHINE\SYSTEM\ControlSet001\Services\W32Time", Some(3), "Start"),
    key(
        r"\REGISTRY\USER\S-1-5-21-1004336348-1177238915-682003330-1001\Control Panel\International",
        Some(4),
        "LocaleName",
    ),
    key(
        r"\REGISTRY\USER\S-1-5-21-1004336348-1177238915-682003330-1001\SOFTWARE\Microsoft\Windows\CurrentVersion\Run",
        Some(4),
        "ContosoUpdate",
    ),
];
/// Number of keys that have control blocks at the start of the trace.
pub(crate) const OPEN_KEYS: u32 = 8;
/// The `Run` key, with the programs that start with the user's session.
pub(crate) const RUN_KEY: u32 = 13;

/// Files that exist at the start of the trace. Only the final rundown contains their names.
pub(crate) const FILES: [&str; 16] = [
    r"\Device\HarddiskVolume3\Users\ada\Documents\Quarter.docx",
    r"\Device\HarddiskVolume3\Users\ada\Documents\Budget.xlsx",
    r"\Device\HarddiskVolume3\Users\ada\AppData\Local\Contoso\Browser\Cache\data_1",
    r"\Device\HarddiskVolume3\Users\ada\AppData\Local\Contoso\Browser\Cache\index",
    r"\Device\HarddiskVolume3\Users\ada\AppData\Roaming\Contoso\Sync\state.db",
    r"\Device\HarddiskVolume3\Windows\System32\config\SOFTWARE",
    r"\Device\HarddiskVolume3\Windows\System32\config\SYSTEM",
    r"\Device\HarddiskVolume3\Windows\System32\en-US\KernelBase.dll.mui",
    r"\Device\HarddiskVolume3\Windows\Fonts\segoeui.ttf",
    r"\Device\HarddiskVolume3\Windows\System32\drivers\etc\hosts",
    r"\Device\HarddiskVolume3\Windows\Prefetch\WRITER.EXE-5A1C3F20.pf",
    r"\Device\HarddiskVolume3\Windows\System32\winevt\Logs\System.evtx",
    r"\Device\HarddiskVolume3\ProgramData\Contoso\updater.exe",
    r"\Device\HarddiskVolume3\pagefile.sys",
    r"\Device\HarddiskVolume3\$Mft",
    r"\Device\HarddiskVolume3\$LogFile",
];
/// Number of temporary files, which are created and deleted during the trace.
const TEMPORARY_FILES: usize = 48;

/// The state of files, keys and memory.
#[derive(Debug)]
pub(crate) struct Resources {
    /// Path, and whether the file exists.
    files: Vec<(String, bool)>,
    /// Whether each key has a control block.
    live_keys: [bool; KEYS.len()],
    /// Number of open handles of each key.
    open_keys: [u32; KEYS.len()],
    irps: u64,
    opens: u64,
    temporary: usize,
    /// Whether each temporary file has a new name. The control block of a deleted file then belongs to
    /// a file with another name.
    pub has_new_names: bool,
    /// Memory that was allocated and not yet freed.
    pub allocated: Vec<(ProcessIndex, Region)>,
}

impl Resources {
    pub fn new() -> Resources {
        let mut live_keys = [false; KEYS.len()];
        live_keys[..OPEN_KEYS as usize].fill(true);
        let temporary =
            |at| (format!(r"\Device\HarddiskVolume3\Users\ada\AppData\Local\Temp\~wr{at:04x}.tmp"), false);
        Resources {
            files: FILES
                .iter()
                .map(|&path| (path.to_owned(), true))
                .chain((0..TEMPORARY_FILES).map(temporary))
                .collect(),
            live_keys,
            open_keys: [0; KEYS.len()],
            irps: 0,
            opens: 0,
            temporary: 0,
            has_new_names: false,
            allocated: Vec::new(),
        }
    }

    pub fn path(&self, file: u32) -> &str {
        &self.files[file as usize].0
    }

    /// Numbers and paths of the files that exist.
    pub fn files(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(&self.files).filter(|(_, file)| file.1).map(|(number, file)| (number, &*file.0))
    }

    /// Numbers of the keys that have control blocks.
    pub fn keys(&self) -> impl Iterator<Item = u32> + use<> {
        let live_keys = self.live_keys;
        (0..).zip(live_keys).filter(|(_, live)| *live).map(|(number, _)| number)
    }

    /// Adds a file that exists at the start of the trace. Returns its number.
    pub fn add_file(&mut self, path: &str) -> u32 {
        self.files.push((path.to_owned(), true));
        self.files.len() as u32 - 1
    }

    pub fn delete_file(&mut self, file: u32) {
        self.files[file as usize].1 = false;
    }

    /// Opens a key. Returns whether its control block was created.
    pub fn open_key(&mut self, key: u32) -> bool {
        self.open_keys[key as usize] += 1;
        !std::mem::replace(&mut self.live_keys[key as usize], true)
    }

    pub fn close_key(&mut self, key: u32) {
        self.open_keys[key as usize] -= 1;
    }

    /// Deletes the control block of a key if the key is not open. Returns whether it was deleted.
    pub fn drop_key(&mut self, key: u32) -> bool {
        let is_unused = self.open_keys[key as usize] == 0;
        is_unused && std::mem::replace(&mut self.live_keys[key as usize], false)
    }

    /// Removes and returns a range of a process that can be freed.
    pub fn take_allocated(&mut self, process: ProcessIndex) -> Option<Region> {
        let at = self.allocated.iter().position(|(owner, _)| *owner == process)?;
        Some(self.allocated.swap_remove(at).1)
    }

    pub fn irp(&mut self) -> u64 {
        self.irps += 1;
        self.irps
    }

    pub fn open(&mut self, file: u32) -> OpenFile {
        self.opens += 1;
        OpenFile { file, open: self.opens }
    }

    /// Creates a temporary file, unless the next one already exists.
    pub fn new_file(&mut self) -> Option<u32> {
        self.temporary = (self.temporary + 1) % TEMPORARY_FILES;
        let at = FILES.len() + self.temporary;
        if self.files[at].1 {
            return None;
        }
        self.files[at].1 = true;
        if self.has_new_names {
            let number = self.opens;
            self.files[at].0 =
                format!(r"\Device\HarddiskVolume3\Users\ada\AppData\Local\Temp\~n{number}.tmp");
        }
        Some(at as u32)
    }
}
