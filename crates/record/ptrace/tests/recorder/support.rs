//! Shared functions of the tests: programs to record, and their recordings.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use stackhound_calltree::journal::{self, Reader, Record, Writer};
use stackhound_calltree::{Frame, FrameId, Trace};
use stackhound_record_ptrace::{Ending, Recorder, Totals, wait_for_end};

/// A recording in memory.
#[derive(Debug)]
pub struct Recording {
    pub records: Vec<Record>,
    pub totals: Totals,
    pub ending: Ending,
    pub trace: Trace,
}

/// Records a program until it ends or `limit` transitions are reached, and then waits for its end.
pub fn record(arguments: &[impl AsRef<OsStr>], limit: u64) -> Recording {
    let recorder = Recorder::start(arguments).unwrap_or_else(|error| panic!("{error}"));
    let process = recorder.process();
    let journal = Writer::new(Vec::new()).expect("a journal");
    let recorded = recorder.record(limit, &AtomicBool::new(false), journal).expect("a recording");
    let ending = match recorded.ending {
        Ending::Running => wait_for_end(process).expect("the program ends"),
        ended => ended,
    };
    let mut reader = Reader::new(&recorded.journal).expect("a journal");
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().expect("a record") {
        records.push(record);
    }
    let (trace, replayed) = journal::trace(&recorded.journal).expect("a trace");
    assert_eq!((replayed.finished, replayed.transitions), (true, recorded.totals.transitions));
    Recording { records, totals: recorded.totals, ending, trace }
}

impl Recording {
    /// All frames, in order.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        (0..self.trace.frame_count()).map(|number| self.trace.frame(FrameId(number)).expect("a frame"))
    }
}

/// Prints that a test is skipped. Fails in CI, where all tests must run.
pub fn skip(why: &str) {
    let in_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!in_ci, "{why}");
    eprintln!("skipped: {why}");
}

/// Compiles a program of `tests/programs` into a folder; `None`, with a printed reason, without a
/// compiler.
pub fn compile(source: &str, folder: &Path, options: &[&str]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    let program = folder.join(path.file_stem()?);
    // Functions are not inlined or merged, so that the program counts the actual calls.
    let fixed = ["-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-pthread", "-o"];
    let result = Command::new(compiler).args(fixed).arg(&program).arg(&path).args(options).output();
    let Ok(result) = result else {
        skip(&format!("there is no {compiler}"));
        return None;
    };
    assert!(result.status.success(), "{source}: {}", String::from_utf8_lossy(&result.stderr));
    Some(program)
}

/// The file of a tool; `None`, with a printed reason, if it is not installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        skip(&format!("there is no {name}"));
    }
    found
}

/// A command line.
pub fn words(program: &Path, arguments: &[&str]) -> Vec<OsString> {
    let program = program.as_os_str().to_owned();
    std::iter::once(program).chain(arguments.iter().map(OsString::from)).collect()
}
