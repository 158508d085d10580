//! Support for tests of consumers. Each test runs in a separate process with its own settings, and
//! reads the log of the fake.
//!
//! The test program starts itself again for each test, because the settings are an environment
//! variable of the process, and the sessions of different tests must not conflict.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::settings::VARIABLE;

/// Environment variable with the folder of the test.
const FOLDER: &str = "STACKHOUND_TEST_FOLDER";

/// Start of the log line for a session that has delivered its whole trace and is still running.
pub const ALL_DELIVERED: &str = "all events delivered by";

/// Timeout of [`wait_for`]. It is long because machines can be busy.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Environment variable that `scripts/with-fake` sets.
const BUILT: &str = "STACKHOUND_FAKE_BUILT";

/// Ensures that only one test process runs at a time, because several would affect each other's
/// timing.
static ONE: Mutex<()> = Mutex::new(());

/// Access to the folder and the log of a test, in the process of the test.
#[derive(Debug)]
pub struct Harness {
    folder: PathBuf,
}

impl Harness {
    /// In the first process: runs the test of this name in a second process, and returns `None`. In
    /// the second process: returns the harness with which the test continues.
    ///
    /// `TRACE` in the settings is replaced by the path of a file with the bytes from `etl_file`.
    /// The output of the second process is printed. Without the fake, the test is skipped with a
    /// message; with `CI=true` it fails.
    ///
    /// # Panics
    /// If the second process fails, with its output and the log of the fake.
    pub fn run(test: &str, settings: &str, etl_file: impl FnOnce() -> Vec<u8>) -> Option<Harness> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return Some(Harness { folder: folder.into() });
        }
        if std::env::var_os(BUILT).is_none() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "these tests require scripts/with-fake");
            eprintln!("skipped: not started by scripts/with-fake");
            return None;
        }
        let _one = ONE.lock();
        let name = format!("stackhound-{}-{}", std::process::id(), test.replace(':', "_"));
        let folder = std::env::temp_dir().join(name);
        // Wine reuses process ids, and a killed process leaves its folder.
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
        assert!(text.contains("1 passed"), "there is no test named {test}");
        print!("{text}");
        None
    }

    /// The lines in the log of the fake that begin with `start`.
    pub fn log(&self, start: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }

    /// Waits until a session has delivered its whole trace. Requires `at_end = wait` in the
    /// settings. The consumer reads all delivered events even if the session is then stopped.
    ///
    /// # Panics
    /// After a timeout of two minutes.
    pub fn wait_until_all_delivered(&self) {
        wait_for("the end of the trace", || !self.log(ALL_DELIVERED).is_empty());
    }

    /// The number after `key=` in the last line of the log that contains it.
    ///
    /// # Panics
    /// If no line contains it.
    pub fn number(&self, key: &str) -> u64 {
        let lines = self.log("");
        let found = lines.iter().rev().find_map(|line| number(line, key));
        found.unwrap_or_else(|| panic!("no {key} in {lines:#?}"))
    }

    /// The path of a file in the folder of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }
}

/// Waits until a condition is true. Tests wait for a condition and not for a time, because the
/// necessary time is not known.
///
/// # Panics
/// After a timeout of two minutes.
#[track_caller]
pub fn wait_for(description: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < TIMEOUT, "timeout: waited for {description}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The number after `key=` in a line of the log.
pub fn number(line: &str, key: &str) -> Option<u64> {
    let (_, value) = line.split_once(&format!(" {key}="))?;
    value.split(' ').next()?.parse().ok()
}
