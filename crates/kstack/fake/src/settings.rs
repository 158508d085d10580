//! The settings of the fake for a test: a small text file that is read again at every call that
//! depends on it.
//!
//! ```text
//! privilege = missing           # the caller does not hold the privilege, regardless of its token
//! missing = KeRemoveQueueApc, PsGetThreadCreateTime    # functions that the system does not have
//! fail = ZwSetSecurityObject, IoCreateSymbolicLink     # functions that fail
//! own = mapped                  # the driver's own frames are kernel addresses, too; see `walk.rs`
//! callback = 2                  # number of kernel frames of a callback to user mode, after the first user frame
//! user = 4                      # number of user frames of every thread ...
//! user = fault                  # ... or reading them raises an exception, ...
//! user = hang                   # ... or a page is not read before `wakes` changes
//! region = yes                  # every thread is in a critical region
//! protected = yes               # every process is protected
//! attached = yes                # every thread is attached to another process
//! exits = woken                 # threads that exit do so only when `wakes` changes
//! wakes = 2                     # deaf threads take their APCs when this number changes
//! end
//! ```

use std::path::PathBuf;
use std::time::Duration;

/// All settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// No caller holds the requested privilege.
    pub no_privilege: bool,
    /// Functions that are not found by name.
    pub missing: Vec<String>,
    /// Functions that fail.
    pub fail: Vec<String>,
    /// The driver's own frames are mapped to kernel addresses.
    pub own_mapped: bool,
    /// The result of walking a user stack.
    pub user: UserWalk,
    /// Every thread is in a critical region when it takes an APC.
    pub region: bool,
    /// The number of kernel frames after the first user frame, which made a callback to user mode.
    pub callback: u16,
    /// Every process is protected.
    pub protected: bool,
    /// Every thread is attached to another process.
    pub attached: bool,
    /// Threads that exit wait for a change of `wakes`, instead of a short time.
    pub exits_when_woken: bool,
    /// A number; deaf threads take their APCs when it changes.
    pub wakes: u32,
}

/// The result of walking a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserWalk {
    /// This number of user frames. The walk of Windows returns the frames up to the first page that
    /// cannot be read.
    Frames(u16),
    /// An exception, which the walk of Windows is not known to raise.
    Faults,
    /// Three frames, but only after [`Settings::wakes`] has changed: reading in a page takes long.
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

/// The number of retries while the file is incomplete, every two milliseconds for a minute, for busy
/// machines.
const TRIES: u32 = 30_000;

/// The last line, without which the file is incomplete.
const END: &str = "end";

/// A line that is not a known setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub String);

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unknown setting: {}", self.0)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// The path of the file.
    pub fn path() -> PathBuf {
        PathBuf::from(crate::FOLDER).join("settings.txt")
    }

    /// Reads the file. Without a file, returns the defaults.
    ///
    /// # Panics
    /// If the file stays incomplete or has an unknown line, which are errors of the test.
    pub fn current() -> Settings {
        for _ in 0..TRIES {
            match std::fs::read_to_string(Self::path()) {
                Ok(text) if is_complete(&text) => {
                    return Settings::parse(&text).unwrap_or_else(|error| panic!("{error}"));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Settings::default(),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        panic!("the settings stay incomplete");
    }

    /// Writes the file, so that these settings become the current ones.
    ///
    /// It is not replaced by another file: Wine refuses that while any thread has it open, and threads
    /// that wait for a change read it all the time.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn store(&self) -> std::io::Result<()> {
        std::fs::write(Self::path(), self.to_string())
    }

    /// Whether a function fails.
    pub fn fails(&self, function: &str) -> bool {
        self.fail.iter().any(|name| name == function)
    }

    /// Parses the text of a settings file.
    ///
    /// # Errors
    /// The first line that is not a known setting.
    pub fn parse(text: &str) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for line in text.lines().filter(|&line| line != END) {
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
        writeln!(f, "wakes = {}", self.wakes)?;
        writeln!(f, "{END}")
    }
}

/// Whether a text is that of one file: its last line is there, and only once. A file that is written
/// while it is read can be empty, cut, or one text followed by the end of a longer one.
fn is_complete(text: &str) -> bool {
    let mut lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n'));
    lines.any(|line| line == Some(END)) && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_as_written() {
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
    fn what_is_read_while_the_file_is_written_is_incomplete() {
        let short = Settings::default().to_string();
        let long = Settings { wakes: 10, fail: vec!["end".into()], ..Settings::default() }.to_string();
        assert!(is_complete(&short) && is_complete(&long));
        for cut in 0..long.len() {
            assert!(!is_complete(&long[..cut]));
        }
        for second in short.len()..long.len() {
            assert!(!is_complete(&format!("{short}{}", &long[second..])));
        }
    }

    #[test]
    fn unknown_lines_are_rejected() {
        for line in ["privilege = held", "user = many", "colour = red", "wakes"] {
            assert_eq!(Settings::parse(line), Err(SettingsError(line.to_owned())));
        }
    }
}
