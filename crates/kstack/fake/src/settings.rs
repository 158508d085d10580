//! What a test wants of the fake: a small text file, read again at every call that depends on it.
//!
//! ```text
//! privilege = missing           # the caller has not the privilege asked for, whatever his token says
//! missing = KeRemoveQueueApc, PsGetThreadCreateTime    # functions that the system does not have
//! fail = ZwSetSecurityObject, IoCreateSymbolicLink     # functions that fail
//! own = mapped                  # the driver's own frames look like the kernel's, too; see `walk.rs`
//! callback = 2                  # behind the first frame of a user part, so many kernel frames of a callback to user mode
//! user = 4                      # user frames of the user part of every thread ...
//! user = fault                  # ... or reading them raises an exception, ...
//! user = hang                   # ... or reads a page that does not come before `wakes` changes
//! region = yes                  # every thread is in a critical region
//! protected = yes               # every process is a protected one
//! attached = yes                # every thread looks at another process's memory
//! exits = woken                 # threads that exit do so when this changes, too:
//! wakes = 2                     # deaf threads take their APCs when this changes
//! ```

use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// No caller has the privilege that is asked for.
    pub no_privilege: bool,
    /// Functions that are not found by name.
    pub missing: Vec<String>,
    /// Functions that fail.
    pub fail: Vec<String>,
    /// The driver's own frames are given addresses of the kernel.
    pub own_mapped: bool,
    /// What walking a user part comes to.
    pub user: UserWalk,
    /// Every thread is in a critical region when it takes an APC.
    pub region: bool,
    /// Kernel frames behind the first user frame of a user part: those that made a callback to user mode.
    pub callback: u16,
    /// Every process is protected.
    pub protected: bool,
    /// Every thread is attached to another process.
    pub attached: bool,
    /// Threads that exit wait for a change of `wakes`, and not for a moment only.
    pub exits_when_woken: bool,
    /// A number; deaf threads take their APCs when it changes.
    pub wakes: u32,
}

/// What walking a user part comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserWalk {
    /// So many user frames. Windows' walk gives those up to the first page that cannot be read.
    Frames(u16),
    /// An exception, which Windows' walk is not known to raise.
    Faults,
    /// Three frames, as soon as [`Settings::wakes`] changes: a page has to be read in, and takes long.
    Hangs,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            no_privilege: false,
            missing: Vec::new(),
            fail: Vec::new(),
            own_mapped: false,
            user: UserWalk::Frames(3),
            region: false,
            callback: 0,
            protected: false,
            attached: false,
            exits_when_woken: false,
            wakes: 0,
        }
    }
}

/// How often a file that is out of reach is tried again, every two milliseconds: for five seconds, since machines are busy.
const TRIES: u32 = 2_500;

/// A line that says nothing known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub String);

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a setting: {}", self.0)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Where the file is.
    pub fn path() -> PathBuf {
        PathBuf::from(crate::FOLDER).join("settings.txt")
    }

    /// Reads the file; without one, everything is as by default.
    ///
    /// # Panics
    /// If it says something unknown: a test is wrong then.
    pub fn current() -> Settings {
        // While it is being replaced, it may be out of reach for a moment.
        for _ in 0..TRIES {
            match std::fs::read_to_string(Self::path()) {
                Ok(text) => return Settings::parse(&text).unwrap_or_else(|error| panic!("{error}")),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        Settings::default()
    }

    /// Makes these the current ones.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn store(&self) -> std::io::Result<()> {
        let new = Self::path().with_extension("new");
        std::fs::write(&new, self.to_string())?;
        // Wine does not replace a file that is being read.
        for _ in 0..TRIES {
            if std::fs::rename(&new, Self::path()).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        std::fs::rename(new, Self::path())
    }

    /// Whether a function fails.
    pub fn fails(&self, function: &str) -> bool {
        self.fail.iter().any(|name| name == function)
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn parse(text: &str) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let known = line.split_once(" = ").and_then(|(key, value)| settings.set(key, value));
            known.ok_or_else(|| SettingsError(line.to_owned()))?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let names = || value.split(", ").map(str::to_owned).collect();
        match (key, value) {
            ("privilege", "missing") => self.no_privilege = true,
            ("missing", _) => self.missing = names(),
            ("fail", _) => self.fail = names(),
            ("own", "mapped") => self.own_mapped = true,
            ("user", "fault") => self.user = UserWalk::Faults,
            ("user", "hang") => self.user = UserWalk::Hangs,
            ("user", count) => self.user = UserWalk::Frames(count.parse().ok()?),
            ("region", "yes") => self.region = true,
            ("callback", count) => self.callback = count.parse().ok()?,
            ("protected", "yes") => self.protected = true,
            ("attached", "yes") => self.attached = true,
            ("exits", "woken") => self.exits_when_woken = true,
            ("wakes", number) => self.wakes = number.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

impl std::fmt::Display for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (wanted, line) in [
            (self.no_privilege, "privilege = missing"),
            (self.own_mapped, "own = mapped"),
            (self.protected, "protected = yes"),
            (self.attached, "attached = yes"),
            (self.region, "region = yes"),
            (self.exits_when_woken, "exits = woken"),
        ] {
            if wanted {
                writeln!(f, "{line}")?;
            }
        }
        for (key, names) in [("missing", &self.missing), ("fail", &self.fail)] {
            if !names.is_empty() {
                writeln!(f, "{key} = {}", names.join(", "))?;
            }
        }
        match self.user {
            UserWalk::Frames(count) => writeln!(f, "user = {count}")?,
            UserWalk::Faults => writeln!(f, "user = fault")?,
            UserWalk::Hangs => writeln!(f, "user = hang")?,
        }
        writeln!(f, "callback = {}", self.callback)?;
        writeln!(f, "wakes = {}", self.wakes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let all = Settings {
            no_privilege: true,
            missing: vec!["KeRemoveQueueApc".into(), "PsGetThreadCreateTime".into()],
            fail: vec!["ZwSetSecurityObject".into()],
            own_mapped: true,
            user: UserWalk::Faults,
            region: true,
            callback: 3,
            protected: true,
            attached: true,
            exits_when_woken: true,
            wakes: 7,
        };
        let user = |user| Settings { user, ..Settings::default() };
        for settings in [all, Settings::default(), user(UserWalk::Frames(300)), user(UserWalk::Hangs)] {
            assert_eq!(Settings::parse(&settings.to_string()), Ok(settings));
        }
    }

    #[test]
    fn an_unknown_line_is_no_setting() {
        for line in ["privilege = held", "user = many", "colour = red", "wakes"] {
            assert_eq!(Settings::parse(line), Err(SettingsError(line.to_owned())));
        }
    }
}
