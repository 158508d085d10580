//! The builder: the called handlers, the end of a trace, and the counters. All tests use generated
//! traces, or blocks that are delivered as Windows does. Sessions themselves are tested under Wine.

mod blocks;
mod running;
mod trace_files;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A generated trace of about 20,000 events, created once.
fn etl_file() -> PathBuf {
    static FILE: std::sync::OnceLock<(tempfile::TempDir, PathBuf)> = std::sync::OnceLock::new();
    let (_, path) = FILE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenario.etl");
        stackhound_scenario::Scenario::default().write(std::fs::File::create(&path).unwrap()).unwrap();
        (folder, path)
    });
    path.clone()
}

/// Notes of handlers, in order.
#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn count(&self, note: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|noted| *noted == note).count()
    }
}
