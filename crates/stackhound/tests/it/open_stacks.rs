//! Opening files with call trees: files that are read directly, indexes that are rebuilt, and files
//! that are rejected.

use std::fs;
use std::path::{Path, PathBuf};

use stackhound::calltree::journal::Writer;
use stackhound::calltree::{
    Change, ContextId, Cpu, EndType, Frame, Pattern, StackInfo, StackKind, StartType,
};
use stackhound::trace::Grouping;
use stackhound::{Enrichment, OpenStacksError, StacksFrom, open_stacks};

/// A journal with one call and the given number of transitions, with or without its end mark.
fn journal(transitions: u64, finished: bool) -> Vec<u8> {
    let stack = StackInfo {
        kind: StackKind::User,
        process: Some(1),
        thread: Some(1),
        cpu: None,
        name: None,
        region: None,
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes).unwrap();
    let stack = writer.stack(&stack).unwrap();
    for change in [
        Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) },
        Change::Open { stack, first: ContextId(0), start: StartType::Unknown, location: None },
        Change::Open { stack, first: ContextId(3), start: StartType::Call, location: None },
        Change::Close { stack, last: ContextId(7), end: EndType::Return },
    ] {
        writer.change(change).unwrap();
    }
    match finished {
        true => _ = writer.finish(transitions).unwrap(),
        false => writer.flush().unwrap(),
    }
    bytes
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn open(path: &Path) -> Result<(u64, StacksFrom), OpenStacksError> {
    open_stacks(path, Enrichment::default(), Grouping::default())
        .map(|(trace, from)| (trace.transition_count(), from))
}

#[test]
fn the_index_of_a_journal_is_kept_while_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "a.calls", &journal(10, true));
    let index = folder.path().join("a.calls.index");

    assert!(matches!(open(&path).unwrap(), (10, StacksFrom::Journal(replayed, None)) if replayed.finished));
    assert!(matches!(open(&path).unwrap(), (10, StacksFrom::IndexOfJournal)));
    assert!(matches!(open(&index).unwrap(), (10, StacksFrom::Index)));
    // Nothing else is left in the folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);

    // The journal of another recording with the same name.
    file(folder.path(), "a.calls", &journal(11, true));
    assert!(matches!(open(&path).unwrap(), (11, StacksFrom::Journal(..))));
    assert!(matches!(open(&path).unwrap(), (11, StacksFrom::IndexOfJournal)));
}

#[test]
fn an_unusable_index_is_rebuilt_from_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "a.calls", &journal(10, true));
    open(&path).unwrap();
    let index = folder.path().join("a.calls.index");
    let whole = fs::read(&index).unwrap();
    let mut older = whole.clone();
    older[8] = 0;
    let mut damaged = whole.clone();
    damaged[70] ^= 1;
    for unusable in [&older[..], &damaged, b"something else", b""] {
        fs::write(&index, unusable).unwrap();
        assert!(matches!(open(&path).unwrap(), (10, StacksFrom::Journal(..))));
        assert_eq!(fs::read(&index).unwrap(), whole);
    }

    // If the index itself is opened, it is rejected, and the error describes how to rebuild it.
    fs::write(&index, &older).unwrap();
    let error = open(&index).unwrap_err().to_string();
    let path = path.display();
    assert!(
        error.ends_with(&format!("version 1; run `stackhound stack {path} --at '#0'` to rebuild it")),
        "{error}"
    );
    let alone = file(folder.path(), "alone.index", &older);
    let error = open(&alone).unwrap_err().to_string();
    assert!(error.ends_with("version 1; open the file from which it was made to rebuild it"), "{error}");
    let alone = file(folder.path(), "alone.index", &damaged);
    let error = open(&alone).unwrap_err().to_string();
    assert!(
        error.ends_with("the index is damaged at byte 56: expected the checksum of the header"),
        "{error}"
    );
}

#[test]
fn a_truncated_journal_is_read_without_writing_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = journal(0, false);
    bytes.extend(b"cut off");
    let path = file(folder.path(), "a.calls", &bytes);
    match open(&path).unwrap() {
        (8, StacksFrom::Journal(replayed, None)) => {
            assert!(!replayed.finished);
            assert_eq!(replayed.lost_bytes, 7);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn files_without_call_trees_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    assert!(
        open(&missing).unwrap_err().to_string().starts_with(&format!("{}: No such file", missing.display()))
    );
    let text = file(folder.path(), "text.etl", b"no trace");
    let error = open(&text).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: not an event trace log (", text.display())), "{error}");
    assert!(error.ends_with("; also not an index of stacks or a journal of calls"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error = open(empty.path()).unwrap_err().to_string();
    assert!(error.ends_with("no .etl, .etl.zst or .etl.zip file in this directory"), "{error}");
}

/// A trace of the corpus with the methods of a .NET program.
#[test]
fn compiled_methods_are_called_as_in_stacks_of_events() {
    let Some(bytes) = stackhound_corpus::etl_file("perfview-diaghub.user_paged.1.etl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "a.etl", &bytes);
    let (trace, _) = open_stacks(&path, Enrichment::default(), Grouping::default()).unwrap();
    let (by_runtime, by_name) = (Pattern::new("jit:clr!*").unwrap(), Pattern::new("*").unwrap());
    assert!(trace.has_module_of(&by_runtime));
    let calls = trace.calls(&by_runtime);
    assert!(!calls.is_empty());
    assert!(calls.iter().all(|frame| frame.name().to_string().starts_with("jit:clr!")));
    let is_method = |frame: &&Frame<'_>| frame.name().to_string().starts_with("jit:");
    assert_eq!(trace.calls(&by_name).iter().filter(is_method).count(), calls.len());
}
