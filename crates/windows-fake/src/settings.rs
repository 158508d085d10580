//! What a test wants of the fake: a small text file that the environment variable `STACKHOUND_FAKE` names.
//!
//! ```text
//! log = /tmp/calls.txt          # every call with its arguments is appended here
//! raw = off                     # the functions for raw buffers do not exist
//! exists = Other, Third         # sessions that run already
//! files = Fourth                # others that write a file only
//! name_held_ms = 300            # how long the name of a stopped session cannot be had again
//! console = close 300           # the console is closed, or its Ctrl-C is pressed, so many milliseconds after StartTraceW
//! console = interrupt 300
//! error StartTraceW = 5         # what a function answers instead of doing anything
//! error EnableTraceEx2 {f4e1897c-bb5d-5668-f1d8-040f4d8dd344} = 5
//!
//! [*]                           # all sessions that no other section names
//! trace = /tmp/demo.etl
//! seed = 3
//! disorder_ms = 500             # of trace time
//! rate = 1000000                # events a second; 0 is as fast as they are taken
//! rounds = forever              # or how many times the recording is handed out
//! stop_after = 60000000         # events, then the session is stopped
//! own_pid = 4321                # the recorded process whose number becomes that of the consumer
//! buffers = 128                 # that the session has; 0 for what StartTraceW asks for
//! lose_every = 100              # one buffer in so many is lost
//! delay_ms = 5                  # before each buffer ...
//! delay_every = 10              # ... or one in so many
//! at_end = wait                 # or stop: what happens behind the last buffer; stop never before the session is set up
//! ```
//!
//! Read again whenever a session is started, opened or listed, so that one process can change it.

use std::path::PathBuf;

/// Names the file.
pub const VARIABLE: &str = "STACKHOUND_FAKE";

/// Everything that can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where calls are written.
    pub log: Option<PathBuf>,
    /// Whether the functions for raw buffers are missing.
    pub no_raw: bool,
    /// Names of sessions that run already.
    pub exists: Vec<String>,
    /// Names of others that write a file only.
    pub files: Vec<String>,
    /// Milliseconds for which the name of a stopped session cannot be had again.
    pub name_held_ms: u64,
    /// What the console tells the program, and after how many milliseconds.
    pub console: Vec<(ConsoleEvent, u64)>,
    /// Functions and what they answer; a function can be followed by a GUID in braces.
    pub errors: Vec<(String, u32)>,
    /// Sessions by name, in the order of the file; `*` is any.
    pub sessions: Vec<(String, SessionSettings)>,
}

/// What a console tells the programs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleEvent {
    /// Ctrl-C was pressed.
    Interrupt,
    /// The window was closed. The program ends when its handlers have returned.
    Close,
}

/// What one session hands out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// The recording; without one the session has no events.
    pub etl_file: Option<PathBuf>,
    /// Chooses the order of buffers.
    pub seed: u64,
    /// How far processors may be apart, in milliseconds of trace time.
    pub disorder_ms: Option<u64>,
    /// Events a second.
    pub rate: u64,
    /// How many times the recording is handed out; `None` is once, 0 for ever.
    pub rounds: Option<u64>,
    /// Events behind which the session is stopped; 0 for never.
    pub stop_after: u64,
    /// The recorded process whose number becomes that of the consumer's own process; 0 for none.
    pub own_pid: u32,
    /// Buffers of the session; 0 for what it asks for.
    pub buffers: usize,
    /// One buffer in so many is lost.
    pub lose_every: u64,
    /// Milliseconds before a buffer.
    pub delay_ms: u64,
    /// Before one buffer in so many; 0 is each.
    pub delay_every: u64,
    /// Whether the session goes on without events when the recording is at its end. Otherwise it is stopped.
    pub waits_at_end: bool,
}

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
    /// Reads the file that the environment names; there are no settings without one.
    ///
    /// # Panics
    /// If the file cannot be read or says something unknown: a test is wrong then.
    pub fn of_environment() -> Settings {
        let Some(path) = std::env::var_os(VARIABLE) else { return Settings::default() };
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", PathBuf::from(&path).display()));
        Settings::parse(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reads the text of such a file.
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

    /// What a function answers instead of doing anything; `detail` is the GUID it is about, if any.
    pub fn error(&self, function: &str, detail: &str) -> Option<u32> {
        let (alone, detailed) = (function.to_lowercase(), format!("{function} {detail}").to_lowercase());
        let found = self.errors.iter().find(|(named, _)| *named == alone || *named == detailed);
        found.map(|(_, code)| *code)
    }

    /// What a session hands out.
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
    fn an_unknown_setting_is_named() {
        for line in
            ["sed = 3", "[x", "[x]\nlog = 1", "raw = maybe", "console = off 3", "error = 5", "[x]\nseed = no"]
        {
            let error = Settings::parse(line).unwrap_err();
            assert_eq!(error.0, line.lines().last().unwrap());
        }
    }
}
