//! Configures the fake by a text file whose path is in the environment variable `STACKHOUND_FAKE`.
//!
//! ```text
//! log = /tmp/calls.txt          # every call with its arguments is appended here
//! raw = off                     # the functions for raw buffers do not exist
//! exists = Other, Third         # real-time sessions that are already running
//! files = Fourth                # running sessions that only write a file
//! name_held_ms = 300            # time until the name of a stopped session can be reused
//! console = close 300           # the console is closed 300 ms after StartTraceW
//! console = interrupt 300       # Ctrl-C is pressed 300 ms after StartTraceW
//! error StartTraceW = 5         # the function fails with this code
//! error EnableTraceEx2 {f4e1897c-bb5d-5668-f1d8-040f4d8dd344} = 5
//!
//! [*]                           # all sessions without their own section
//! trace = /tmp/demo.etl
//! seed = 3                      # selects the order of buffers
//! disorder_ms = 500             # maximum time between processors, in trace time
//! rate = 1000000                # events per second; 0: as fast as the consumer reads
//! rounds = forever              # or the number of times that the trace is delivered
//! stop_after = 60000000         # number of events after which the session is stopped
//! own_pid = 4321                # process id in the trace that becomes that of the consumer
//! buffers = 128                 # of the session; 0: as requested in StartTraceW
//! lose_every = 100              # one in this many buffers is lost
//! delay_ms = 5                  # delay before each buffer ...
//! delay_every = 10              # ... or before one in this many
//! at_end = wait                 # or stop: after the last buffer, and after the configuration
//! ```
//!
//! The file is read whenever a session is started, opened or listed, so that a process can change
//! it.

use std::path::PathBuf;

/// Environment variable with the path of the file.
pub const VARIABLE: &str = "STACKHOUND_FAKE";

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Path of the log.
    pub log: Option<PathBuf>,
    /// Whether the functions for raw buffers are missing.
    pub no_raw: bool,
    /// Names of real-time sessions that are already running.
    pub exists: Vec<String>,
    /// Names of running sessions that only write a file.
    pub files: Vec<String>,
    /// Milliseconds until the name of a stopped session can be reused.
    pub name_held_ms: u64,
    /// Console events, with their delays in milliseconds.
    pub console: Vec<(ConsoleEvent, u64)>,
    /// Functions that fail, with their error codes. The name can be followed by a GUID in braces.
    pub errors: Vec<(String, u32)>,
    /// Settings of sessions by name, in the order of the file. `*` matches any session.
    pub sessions: Vec<(String, SessionSettings)>,
}

/// A console control event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleEvent {
    /// Ctrl-C was pressed.
    Interrupt,
    /// The console window was closed. The program ends when its handlers have returned.
    Close,
}

/// Settings of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// Path of the trace. Without it, the session has no events.
    pub etl_file: Option<PathBuf>,
    /// Seed that selects the order of buffers.
    pub seed: u64,
    /// Maximum time between processors, in milliseconds of trace time.
    pub disorder_ms: Option<u64>,
    /// Events per second; 0 for as fast as the consumer reads.
    pub rate: u64,
    /// Number of times that the trace is delivered; `None` for once, 0 for no limit.
    pub rounds: Option<u64>,
    /// Number of events after which the session is stopped; 0 for never.
    pub stop_after: u64,
    /// Process id in the trace that is replaced by that of the consumer; 0 for none.
    pub own_pid: u32,
    /// Number of buffers of the session; 0 for the requested number.
    pub buffers: usize,
    /// One in this many buffers is lost; 0 for none.
    pub lose_every: u64,
    /// Delay before a buffer, in milliseconds.
    pub delay_ms: u64,
    /// One in this many buffers is delayed; 0 for each.
    pub delay_every: u64,
    /// Whether the session continues without events at the end of the trace. Otherwise it is
    /// stopped.
    pub waits_at_end: bool,
}

/// An invalid line of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub String);

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid setting: {}", self.0)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Reads the file in [`VARIABLE`]. Returns the default settings if the variable is not set.
    ///
    /// # Panics
    /// If the file cannot be read or contains an invalid line, which is an error in a test.
    pub fn of_environment() -> Settings {
        let Some(path) = std::env::var_os(VARIABLE) else { return Settings::default() };
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", PathBuf::from(&path).display()));
        Settings::parse(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Parses the text of a settings file.
    pub fn parse(text: &str) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for line in text.lines() {
            let line = line.split_once(" #").map_or(line, |(line, _)| line).trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || SettingsError(line.to_owned());
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or_else(wrong)?;
                settings.sessions.push((name.to_owned(), SessionSettings::default()));
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(wrong)?;
            let (key, value) = (key.trim(), value.trim());
            let known = match settings.sessions.last_mut() {
                Some((_, session)) => session.set(key, value),
                None => settings.set(key, value),
            };
            known.ok_or_else(wrong)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "log" => self.log = Some(value.into()),
            "raw" => self.no_raw = switch(value, "off", "on")?,
            "exists" => self.exists = value.split(',').map(|name| name.trim().to_owned()).collect(),
            "console" => {
                let (event, ms) = value.split_once(' ')?;
                let event = match event {
                    "interrupt" => ConsoleEvent::Interrupt,
                    "close" => ConsoleEvent::Close,
                    _ => return None,
                };
                self.console.push((event, ms.parse().ok()?));
            }
            "name_held_ms" => self.name_held_ms = value.parse().ok()?,
            "files" => self.files = value.split(',').map(|name| name.trim().to_owned()).collect(),
            _ => {
                let function = key.strip_prefix("error ")?;
                self.errors.push((function.trim().to_lowercase(), value.parse().ok()?));
            }
        }
        Some(())
    }

    /// The error code with which a function fails, if any. `detail` is the GUID, session or command
    /// that the call refers to.
    pub fn error(&self, function: &str, detail: &str) -> Option<u32> {
        let (alone, detailed) = (function.to_lowercase(), format!("{function} {detail}").to_lowercase());
        let found = self.errors.iter().find(|(named, _)| *named == alone || *named == detailed);
        found.map(|(_, code)| *code)
    }

    /// The settings of a session.
    pub fn session(&self, name: &str) -> SessionSettings {
        let of = |wanted: &str| self.sessions.iter().find(|(named, _)| named.eq_ignore_ascii_case(wanted));
        of(name).or_else(|| of("*")).map(|(_, session)| session.clone()).unwrap_or_default()
    }
}

impl SessionSettings {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let number = || value.parse::<u64>().ok();
        match key {
            "trace" => self.etl_file = Some(value.into()),
            "seed" => self.seed = number()?,
            "disorder_ms" => self.disorder_ms = Some(number()?),
            "rate" => self.rate = number()?,
            "rounds" => self.rounds = Some(if value == "forever" { 0 } else { number()? }),
            "stop_after" => self.stop_after = number()?,
            "own_pid" => self.own_pid = value.parse().ok()?,
            "buffers" => self.buffers = number()? as usize,
            "lose_every" => self.lose_every = number()?,
            "delay_ms" => self.delay_ms = number()?,
            "delay_every" => self.delay_every = number()?,
            "at_end" => self.waits_at_end = switch(value, "wait", "stop")?,
            _ => return None,
        }
        Some(())
    }
}

fn switch(value: &str, yes: &str, no: &str) -> Option<bool> {
    if value == yes { Some(true) } else { (value == no).then_some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_read() {
        let settings = Settings::parse(
            "# a comment\nlog = /tmp/x.txt\nraw = off # here too\nexists = A B, C\nfiles = D\nname_held_ms = 40\nconsole = interrupt 5\nconsole = close 9\nerror StartTraceW = 5\n\
             error EnableTraceEx2 {F4E1897C-BB5D-5668-F1D8-040F4D8DD344} = 5\n\n[Mine]\ntrace = a.etl\n\
             seed = 3\ndisorder_ms = 20\nrate = 9\nrounds = forever\nstop_after = 8\nown_pid = 12\nbuffers = 4\nlose_every = 7\n\
             delay_ms = 2\ndelay_every = 6\nat_end = wait\n[*]\nseed = 4\n",
        )
        .unwrap();
        assert_eq!(settings.log, Some("/tmp/x.txt".into()));
        assert!(settings.no_raw);
        assert_eq!(settings.exists, ["A B", "C"]);
        assert_eq!((settings.files.as_slice(), settings.name_held_ms), (["D".to_owned()].as_slice(), 40));
        assert_eq!(settings.console, [(ConsoleEvent::Interrupt, 5), (ConsoleEvent::Close, 9)]);
        assert_eq!(settings.error("StartTraceW", "mine"), Some(5));
        let guid = "{f4e1897c-bb5d-5668-f1d8-040f4d8dd344}";
        assert_eq!(settings.error("EnableTraceEx2", guid), Some(5));
        assert_eq!(settings.error("EnableTraceEx2", "{00000000-bb5d-5668-f1d8-040f4d8dd344}"), None);
        let expected = SessionSettings {
            etl_file: Some("a.etl".into()),
            seed: 3,
            disorder_ms: Some(20),
            rate: 9,
            rounds: Some(0),
            stop_after: 8,
            own_pid: 12,
            buffers: 4,
            lose_every: 7,
            delay_ms: 2,
            delay_every: 6,
            waits_at_end: true,
        };
        assert_eq!(settings.session("mine"), expected);
        assert_eq!(settings.session("other").seed, 4);
    }

    #[test]
    fn invalid_settings_are_reported() {
        for line in
            ["sed = 3", "[x", "[x]\nlog = 1", "raw = maybe", "console = off 3", "error = 5", "[x]\nseed = no"]
        {
            let error = Settings::parse(line).unwrap_err();
            assert_eq!(error.0, line.lines().last().unwrap());
        }
    }
}
