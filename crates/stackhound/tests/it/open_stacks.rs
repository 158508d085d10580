//! Opening files with call trees: files that are read directly, indexes that are rebuilt, and files
//! that are rejected.

use std::fs;
use std::path::{Path, PathBuf};

use stackhound::calltree::journal::Writer;
use stackhound::calltree::{
    Change, ContextId, Cpu, EndType, Frame, Pattern, StackInfo, StackKind, StartType,
};
use stackhound::schema::provider_guid::{DOT_NET_RUNTIME, DOT_NET_RUNTIME_RUNDOWN};
use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, write_etl};
use stackhound::trace::Grouping;
use stackhound::types::Guid;
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
        error.ends_with(&format!("version 3; run `stackhound stack {path} --at '#0'` to rebuild it")),
        "{error}"
    );
    let alone = file(folder.path(), "alone.index", &older);
    let error = open(&alone).unwrap_err().to_string();
    assert!(error.ends_with("version 3; open the file from which it was made to rebuild it"), "{error}");
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

/// A trace of the corpus with the methods and modules of a .NET program.
#[test]
fn methods_of_a_program_belong_to_its_modules() {
    let Some(bytes) = stackhound_corpus::etl_file("perfview-diaghub.user_paged.1.etl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "a.etl", &bytes);
    let (trace, _) = open_stacks(&path, Enrichment::default(), Grouping::default()).unwrap();
    // The program's modules are named after the namespaces in them.
    for module in ["Microsoft.EntityFrameworkCore.Relational", "System.Linq"] {
        let calls = trace.calls(&Pattern::new(&format!("{module}!*")).unwrap());
        let namespace = module.trim_end_matches(".Relational");
        let is_of = |frame: &Frame<'_>| {
            let location = frame.function_location().unwrap();
            let path = location.module().unwrap().path.unwrap();
            location.symbol().unwrap().starts_with(namespace) && path.ends_with(&format!("\\{module}.dll"))
        };
        assert!(!calls.is_empty() && calls.iter().all(is_of), "{module}");
    }
    assert!(!trace.has_module_of(&Pattern::new("jit:clr!*").unwrap()));
}

/// Method events: id, IL module, start, name. Each method has 0x100 bytes.
fn method(event: (Guid, u16), ids: (u64, u64), start: u64, name: &str) -> RecordBuilder {
    RecordBuilder::new(event.0, event.1, 1)
        .with("MethodID", ids.0)
        .with("ModuleID", ids.1)
        .with("MethodStartAddress", start)
        .with("MethodSize", 0x100_u32)
        .with("MethodNamespace", "App.Shop")
        .with("MethodName", name)
}

/// A loader event: id of the module, path of its intermediate language.
fn module(event: (Guid, u16), id: u64, path: &str) -> RecordBuilder {
    RecordBuilder::new(event.0, event.1, 1).with("ModuleID", id).with("ModuleILPath", path)
}

#[test]
fn managed_frames_belong_to_the_module_of_their_intermediate_language() {
    const NATIVE: u64 = 0x7ff6_5000_0000;
    const OTHER_NATIVE: u64 = 0x7ff6_6000_0000;
    let (load, rundown) = (DOT_NET_RUNTIME, DOT_NET_RUNTIME_RUNDOWN);
    let (emitted, known, late, precompiled) = (0x10_0000, 0x20_0000, 0x30_0000, NATIVE + 0x1000);
    // Code of native images without a known module is named after the image.
    let stray = OTHER_NATIVE + 0x1000;
    let stack = [emitted, known, late, precompiled, stray, NATIVE + 0x5000].map(|start| start + 0x10);
    let dir = r"C:\App\";
    let wait = RecordBuilder::new(load, 250, 0);
    let mut builder = TraceBuilder::new()
        .process(0, "Idle", &[(0xffff_f801_2000_0000, 0x100_0000, r"\SystemRoot\ntoskrnl.exe")])
        .process(
            7,
            "app.exe",
            &[
                (NATIVE, 0x1_0000, r"\Device\HarddiskVolume1\App\Lib.Core.ni.dll"),
                (OTHER_NATIVE, 0x1_0000, r"\Device\HarddiskVolume1\App\Stray.ni.dll"),
            ],
        );
    for event in [
        module((load, 152), 0x71, &format!("{dir}Shop.App.exe")),
        method((load, 143), (1, 0x70), emitted, "Emitted"),
        method((load, 143), (2, 0x71), known, "Known"),
        method((load, 143), (3, 0x72), late, "Late"),
    ] {
        builder = builder.event(event.pid(7).tid(8));
    }
    builder = builder.event_with_stack(wait.pid(7).tid(8), StackForm::Walk, &[], &stack);
    for event in [
        method((rundown, 144), (4, 0x73), precompiled, "Native"),
        method((rundown, 144), (5, 0x74), stray, "Stray"),
        module((rundown, 152), 0x72, &format!("{dir}Late.dll")),
        module((rundown, 154), 0x73, &format!("{dir}Lib.Core.dll")),
    ] {
        builder = builder.event(event.pid(7).tid(8));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.etl");
    write_etl(fs::File::create(&path).unwrap(), builder.build().unwrap()).unwrap();
    let (trace, _) = open_stacks(&path, Enrichment::default(), Grouping::default()).unwrap();
    let mut names: Vec<String> = trace.calls(&Pattern::new("*").unwrap()).iter().map(shown).collect();
    names.sort();
    assert_eq!(
        names,
        [
            r"Late!App.Shop.Late C:\App\Late.dll",
            r"Lib.Core!App.Shop.Native C:\App\Lib.Core.dll",
            r"Lib.Core.ni+0x5010 \Device\HarddiskVolume1\App\Lib.Core.ni.dll",
            r"Shop.App!App.Shop.Known C:\App\Shop.App.exe",
            r"Stray.ni!App.Shop.Stray \Device\HarddiskVolume1\App\Stray.ni.dll",
            "jit:clr!App.Shop.Emitted -",
        ]
    );
    // Patterns match with and without the extension.
    for pattern in ["shop.app!*", "Shop.App.exe!App.Shop.Known", "App.Shop.Known"] {
        assert_eq!(trace.calls(&Pattern::new(pattern).unwrap()).len(), 1, "{pattern}");
    }
}

/// The name of a frame and the path of its module.
fn shown(frame: &Frame<'_>) -> String {
    let module = frame.function_location().and_then(|location| location.module());
    format!("{} {}", frame.name(), module.and_then(|module| module.path).unwrap_or("-"))
}
