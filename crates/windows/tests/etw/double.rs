//! Tests with the double of the event-tracing functions: each runs in a process of its own, with its own settings.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, Session};
use stackhound_etl::{Guid, Pid, PointerSize, RawTime, Tid};

/// Where the process that runs a test finds its folder.
const FOLDER: &str = "STACKHOUND_TEST_FOLDER";

/// Events of the recording.
pub const EVENTS: u64 = 3_000;
/// Processors of the recording.
pub const PROCESSORS: u16 = 3;
/// Whose events they are.
pub const PROVIDER: Guid = Guid([7; 16]);
/// Type and data of the extended item of each event.
pub const ITEM: (u16, [u8; 8]) = (10, [1, 2, 3, 4, 5, 6, 7, 8]);

/// What a test has while it runs in its process.
pub struct Double {
    folder: PathBuf,
}

impl Double {
    /// In the first process: starts the test again in one of its own, with these settings and a recording called
    /// `RECORDING` in them, and gives nothing. In that process: what the test goes on with.
    ///
    /// Without the double the test is skipped and says so; with `CI=true` it fails.
    pub fn run(test: &str, settings: &str) -> Option<Double> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return Some(Double { folder: folder.into() });
        }
        if std::env::var_os("STACKHOUND_DOUBLE_BUILT").is_none() {
            assert!(std::env::var_os("CI").is_none(), "these tests are for scripts/with-double");
            eprintln!("skipped: not started by scripts/with-double");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("recording.etl"), recording()).expect("written");
        let file = path("settings.txt");
        let settings = settings.replace("RECORDING", &path("recording.etl").display().to_string());
        let log = path("log.txt");
        std::fs::write(&file, format!("log = {}\n{settings}", log.display())).expect("written");
        let output = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", test, "--nocapture"])
            .env("STACKHOUND_DOUBLE", &file)
            .env(FOLDER, folder.path())
            .output()
            .expect("started");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert!(output.status.success(), "{text}\nthe log of the double:\n{log}");
        assert!(text.contains("1 passed"), "no test is called {test}");
        None
    }

    /// The lines that the double has logged and that begin so.
    pub fn log(&self, start: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("log.txt")).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }

    /// A file of the test's own.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }
}

/// Events one after the other on three processors, each with its number as id and payload.
fn recording() -> Vec<u8> {
    let session = Session { processors: PROCESSORS, buffer_size: 4 << 10, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a writer");
    for number in 0..EVENTS as u16 {
        let descriptor =
            Descriptor { id: number, version: 1, channel: 0, level: 4, opcode: 2, task: 3, keyword: 0x10 };
        let items = [ItemSpec::EventKey(u64::from_le_bytes(ITEM.1))];
        let header = HeaderSpec::Event {
            provider: PROVIDER,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(8), Tid(9)),
            activity: Guid::ZERO,
            items: &items,
        };
        let payload = number.to_le_bytes();
        let record = RecordSpec {
            time: RawTime(start + i64::from(number) * 5_000),
            pointer_size: PointerSize::Eight,
            header,
            payload: Payload::Bytes(&payload),
        };
        writer.write(number % PROCESSORS, &record).expect("written");
    }
    writer.finish().expect("finished").0.into_inner()
}
