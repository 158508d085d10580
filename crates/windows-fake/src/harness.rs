//! For tests of consumers: each runs in a process of its own, with its own settings, and reads the fake's log.
//!
//! The test program starts itself again for each test, since the settings are one environment variable of a process, and
//! sessions of one test must not meet those of another.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::settings::VARIABLE;

/// Where the process that runs a test finds its folder.
const FOLDER: &str = "STACKHOUND_TEST_FOLDER";

/// How the line of the fake's log begins that says: a session has handed out its whole recording, and goes on.
pub const ALL_OUT: &str = "all is handed out of";

/// How long something may take that must come. Long, for busy machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// Set by `scripts/with-fake`.
const BUILT: &str = "STACKHOUND_FAKE_BUILT";

/// One such process at a time: many at once would disturb each other's times.
static ONE: Mutex<()> = Mutex::new(());

/// What a test has while it runs in its process.
#[derive(Debug)]
pub struct Harness {
    folder: PathBuf,
}

impl Harness {
    /// In the first process: starts the test of this name again in a process of its own, and gives nothing. In that
    /// process: what the test goes on with.
    ///
    /// `TRACE` in the settings stands for a file with the bytes that `etl_file` makes. What the second process writes
    /// is printed. Without the fake the test is skipped and says so; with `CI=true` it fails.
    ///
    /// # Panics
    /// If the second process fails: with what it wrote and the fake's log.
    pub fn run(test: &str, settings: &str, etl_file: impl FnOnce() -> Vec<u8>) -> Option<Harness> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return Some(Harness { folder: folder.into() });
        }
        if std::env::var_os(BUILT).is_none() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "these tests are for scripts/with-fake");
            eprintln!("skipped: not started by scripts/with-fake");
            return None;
        }
        let _one = ONE.lock();
        let name = format!("stackhound-{}-{}", std::process::id(), test.replace(':', "_"));
        let folder = std::env::temp_dir().join(name);
        // Wine gives the same numbers to processes again, and whoever was killed has left his folder.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = |name: &str| folder.join(name);
        let recorded = path("trace.etl");
        if settings.contains("TRACE") {
            std::fs::write(&recorded, etl_file()).expect("written");
        }
        let settings = settings.replace("TRACE", &recorded.display().to_string());
        let settings = format!("log = {}\n{settings}", path("log.txt").display());
        std::fs::write(path("settings.txt"), settings).expect("written");
        let output = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", test, "--nocapture"])
            .env(VARIABLE, path("settings.txt"))
            .env(FOLDER, &folder)
            .output()
            .expect("started");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let log = std::fs::read_to_string(path("log.txt")).unwrap_or_default();
        std::fs::remove_dir_all(&folder).expect("removed");
        assert!(output.status.success(), "{text}\nthe log of the fake:\n{log}");
        assert!(text.contains("1 passed"), "no test is called {test}");
        print!("{text}");
        None
    }

    /// The lines that the fake has logged and that begin so.
    pub fn log(&self, start: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }

    /// Waits until a session has handed out its whole recording, with `at_end = wait` in the settings. What a session has
    /// handed out is read by whoever stops it then.
    ///
    /// # Panics
    /// If that does not come.
    pub fn wait_until_all_is_out(&self) {
        wait_for("the end of the recording", || !self.log(ALL_OUT).is_empty());
    }

    /// The number behind `key=` in the last line that has one.
    ///
    /// # Panics
    /// If no line has.
    pub fn number(&self, key: &str) -> u64 {
        let lines = self.log("");
        let found = lines.iter().rev().find_map(|line| number(line, key));
        found.unwrap_or_else(|| panic!("no {key} in {lines:#?}"))
    }

    /// A file of the test's own.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }
}

/// Waits for something that must come: for the state itself, since nobody knows how long it takes.
///
/// # Panics
/// If it does not come.
#[track_caller]
pub fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !there() {
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The number behind `key=` in a line of the log.
pub fn number(line: &str, key: &str) -> Option<u64> {
    let (_, value) = line.split_once(&format!(" {key}="))?;
    value.split(' ').next()?.parse().ok()
}
