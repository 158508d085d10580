//! The builder: who is called for what, how a trace ends, what is counted. All on generated recordings and on blocks that
//! are handed over as Windows does; sessions themselves are tested under Wine.

mod blocks;
mod running;
mod trace_files;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A generated recording of some 20,000 events, made once.
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

/// What handlers noted, in order.
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
