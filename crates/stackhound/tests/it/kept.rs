//! The index of a trace in the user's cache folder: when it is used, and when the trace is read again.

use std::fs::{self, File};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stackhound::frames::{EventPattern, KernelSymbols, Level, Origin, PolicyText};
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::StoreOptions;
use stackhound::symbols::{Symbolizer, SymbolizerOptions};
use stackhound::trace::Grouping;
use stackhound::{Depth, Enrichment, StacksFrom, open_stacks};
use stackhound_scenario::Scenario;

/// A user's folder with a trace, its symbol files, and a cache.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        let user = User { folder: tempfile::tempdir().unwrap() };
        let mut file = Cursor::new(Vec::new());
        let truth = Scenario::default().write(&mut file).unwrap();
        fs::write(user.trace(), file.into_inner()).unwrap();
        for file in truth.image_files() {
            let path = user.path("symbols").join(file.store_path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file.bytes).unwrap();
        }
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn trace(&self) -> PathBuf {
        self.path("a.etl")
    }

    fn indexes(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("cache/indexes")).into_iter().flatten();
        files.map(|file| file.unwrap().path()).collect()
    }

    fn enrichment(&self) -> Enrichment {
        let path = SymbolPath::store(self.path("symbols"));
        let store = StoreOptions { path, cache: Some(self.path("cache")), ..StoreOptions::default() };
        let options = SymbolizerOptions { store, ..SymbolizerOptions::default() };
        let symbolizer = Some(Symbolizer::new(options).unwrap());
        Enrichment { depth: Some(Depth::Function), symbolizer, ..Enrichment::default() }
    }

    /// The index of a trace, and whether it was kept.
    fn ask(&self, trace: &Path, enrichment: Enrichment) -> (Vec<u8>, bool) {
        match open_stacks(trace, enrichment, Grouping::default()).unwrap() {
            (trace, StacksFrom::IndexOfEtlFile { is_damaged: false }) => (trace.as_bytes().to_vec(), true),
            (trace, StacksFrom::EtlFile(_, None)) => (trace.as_bytes().to_vec(), false),
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// Changes a byte of a file, and nothing else of it.
fn flip(path: &Path, at: usize) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
    touch(path, time);
}

fn touch(path: &Path, time: SystemTime) {
    File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Each row: a change between two questions, and whether the second one uses the kept index.
#[test]
fn an_index_is_used_until_anything_changes_that_it_depends_on() {
    type Change = fn(&User);
    let rows: [(&str, Change, bool); 9] = [
        ("nothing", |_| {}, true),
        (
            "the time of the trace",
            |user| {
                touch(&user.trace(), SystemTime::now() + Duration::from_secs(1));
            },
            false,
        ),
        (
            "the end of the trace",
            |user| {
                let size = fs::metadata(user.trace()).unwrap().len();
                flip(&user.trace(), size as usize - 1);
            },
            false,
        ),
        (
            "a symbol file is gone",
            |user| {
                fs::remove_dir_all(user.path("symbols/ntoskrnl.exe")).unwrap();
            },
            false,
        ),
        (
            "a symbol file of no module",
            |user| {
                fs::create_dir_all(user.path("symbols/other.dll")).unwrap();
            },
            true,
        ),
        ("the length of the text", |user| flip(&user.indexes()[0], 0), false),
        ("the text", |user| flip(&user.indexes()[0], 4), false),
        (
            "the last byte of the index",
            |user| {
                let size = fs::metadata(&user.indexes()[0]).unwrap().len();
                flip(&user.indexes()[0], size as usize - 1);
            },
            false,
        ),
        (
            "half of the index",
            |user| {
                let size = fs::metadata(&user.indexes()[0]).unwrap().len();
                File::options().write(true).open(&user.indexes()[0]).unwrap().set_len(size / 2).unwrap();
            },
            false,
        ),
    ];
    for (name, change, expected) in rows {
        let user = User::new();
        let (first, kept) = user.ask(&user.trace(), user.enrichment());
        assert!(!kept && user.indexes().len() == 1, "{name}");
        change(&user);
        let (second, kept) = user.ask(&user.trace(), user.enrichment());
        assert_eq!(kept, expected, "{name}");
        assert_eq!(first == second, name != "a symbol file is gone", "{name}");
        let (third, kept) = user.ask(&user.trace(), user.enrichment());
        assert!(kept && third == second, "{name}");
    }
}

/// The stack model names all frames, whatever the policy for events is.
#[test]
fn another_policy_has_the_same_index() {
    let user = User::new();
    let none = || {
        let mut enrichment = user.enrichment();
        let events = [(EventPattern::new("*").unwrap(), Level::None)].into();
        let text = PolicyText { events, kernel_symbols: Some(KernelSymbols::Off) };
        enrichment.policy.put(text, Origin::Default);
        enrichment
    };
    let (bytes, _) = user.ask(&user.trace(), none());
    assert_eq!(user.ask(&user.trace(), user.enrichment()), (bytes.clone(), true));
    fs::remove_file(&user.indexes()[0]).unwrap();
    assert_eq!(user.ask(&user.trace(), user.enrichment()), (bytes, false));
}

/// The index of another trace, under the name that this trace's index would have.
#[test]
fn a_foreign_index_is_not_used() {
    let user = User::new();
    user.ask(&user.trace(), user.enrichment());
    let place = user.indexes().remove(0);
    let other = user.path("b.etl");
    let mut file = Cursor::new(Vec::new());
    Scenario { seed: 2, ..Scenario::default() }.write(&mut file).unwrap();
    fs::write(&other, file.into_inner()).unwrap();
    let (bytes, _) = user.ask(&other, user.enrichment());
    let foreign = user.indexes().into_iter().find(|index| *index != place).unwrap();
    fs::copy(&place, &foreign).unwrap();
    assert_eq!(user.ask(&other, user.enrichment()), (bytes, false));
}

/// A copy with the same name, size, time and content is the same trace.
#[test]
fn a_moved_trace_has_the_same_index() {
    let user = User::new();
    let (bytes, _) = user.ask(&user.trace(), user.enrichment());
    fs::create_dir(user.path("elsewhere")).unwrap();
    fs::rename(user.trace(), user.path("elsewhere/a.etl")).unwrap();
    assert_eq!(user.ask(&user.path("elsewhere/a.etl"), user.enrichment()), (bytes, true));
}

#[test]
fn damage_of_the_trace_is_known_from_its_index() {
    let user = User::new();
    let size = fs::metadata(user.trace()).unwrap().len();
    File::options().write(true).open(user.trace()).unwrap().set_len(size - 1000).unwrap();
    let ask = || open_stacks(&user.trace(), user.enrichment(), Grouping::default()).unwrap().1;
    assert!(matches!(ask(), StacksFrom::EtlFile(report, None) if !report.outcome.trace.damage.is_empty()));
    assert!(matches!(ask(), StacksFrom::IndexOfEtlFile { is_damaged: true }));
}

#[test]
fn an_index_that_cannot_be_written_is_reported_with_the_answer() {
    let user = User::new();
    fs::write(user.path("cache"), "a file, not a folder").unwrap();
    match open_stacks(&user.trace(), user.enrichment(), Grouping::default()).unwrap() {
        (_, StacksFrom::EtlFile(_, Some(reason))) => assert!(!reason.is_empty()),
        other => panic!("{other:?}"),
    }
}
