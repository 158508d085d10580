//! Files, directories and packed files as sources, and what is said of those that are none.

use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use stackhound_trace::Recordings;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::recordings::{Logged, events, small};

fn zst(file: &[u8]) -> Vec<u8> {
    compress_to_vec(file, CompressionLevel::Fastest)
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        if let Some(directory) = name.strip_suffix('/') {
            writer.add_directory(directory, SimpleFileOptions::default()).unwrap();
        } else {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
    }
    writer.finish().unwrap().into_inner()
}

/// A directory with these files; a name that ends in `/` is a directory in it.
fn directory(files: &[(&str, Vec<u8>)]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = directory.path().join(name);
        if name.ends_with('/') {
            std::fs::create_dir(path).unwrap();
        } else {
            std::fs::write(path, bytes).unwrap();
        }
    }
    directory
}

/// Opens paths in the directory (`.` is itself) and gives the sources' names, without the directory's.
fn names(directory: &Path, paths: &[&str]) -> Vec<String> {
    let trace = Recordings::files(paths.iter().map(|path| directory.join(path))).open().unwrap();
    let prefix = format!("{}/", directory.display());
    let names = trace.sources().iter().map(|source| source.name.strip_prefix(&prefix).unwrap().to_owned());
    assert!(trace.sources().iter().zip(0..).all(|(source, number)| source.recording.number() == number));
    names.collect()
}

#[test]
fn a_recording_may_be_packed() {
    let (file, mut logged) = small(0);
    logged.sort_by_key(|event| (event.time, event.processor, event.number));
    let directory = directory(&[
        ("plain.etl", file.clone()),
        // Content decides, not the name.
        ("plain.bin", file.clone()),
        ("packed.etl.zst", zst(&file)),
        ("packed.etl", zst(&file)),
        ("archive.zip", archive(&[("capture.etl", &file)])),
        (
            "archive.etl",
            archive(&[("readme.txt", b"no recording"), ("logs/", b""), ("logs/Capture.ETL", &file)]),
        ),
    ]);
    for name in ["plain.etl", "plain.bin", "packed.etl.zst", "packed.etl", "archive.zip", "archive.etl"] {
        for threads in [1, 2] {
            let trace = Recordings::file(directory.path().join(name)).threads(threads).open().unwrap();
            let (found, stats) = events(trace.ordered());
            assert_eq!(found, logged, "{name}");
            assert_eq!(stats.bytes, file.len() as u64, "{name}");
        }
    }
}

#[test]
fn sources_are_in_the_order_of_their_names() {
    let [a, b, c] = [0, 1, 2].map(|source| small(source).0);
    let directory = directory(&[
        ("c.etl.zip", archive(&[("z.etl", &a), ("y.etl", &b)])),
        ("B.ETL", b.clone()),
        ("a.etl.zst", zst(&c)),
        ("notes.txt", b"no recording".to_vec()),
        ("unrelated.zip", archive(&[("x.etl", &a)])),
        ("folder.etl/", Vec::new()),
    ]);
    let of_directory = ["B.ETL", "a.etl.zst", "c.etl.zip:z.etl", "c.etl.zip:y.etl"];
    for (paths, expected) in [
        (&["."][..], &of_directory.map(|name| format!("./{name}"))[..]),
        (&["unrelated.zip", "B.ETL"], &["unrelated.zip:x.etl".to_owned(), "B.ETL".to_owned()]),
    ] {
        assert_eq!(names(directory.path(), paths), expected);
    }
}

#[test]
fn several_files_are_merged() {
    let (files, logged): (Vec<_>, Vec<_>) = (0..3).map(small).unzip();
    let mut expected: Vec<Logged> = logged.concat();
    expected.sort_by_key(|event| (event.time, event.source, event.processor, event.number));
    let directory = directory(&[
        ("0.etl", files[0].clone()),
        ("1.etl.zst", zst(&files[1])),
        ("2.etl.zip", archive(&[("2.etl", &files[2])])),
    ]);
    let trace = Recordings::file(directory.path()).open().unwrap();
    assert_eq!(events(trace.ordered()).0, expected);
    let blocks: u64 = trace.blocks().map(|(_, block)| block.unwrap().0.entries().len() as u64).sum();
    assert_eq!(blocks, expected.len() as u64);
}

#[test]
fn a_run_ends_when_it_is_told_to() {
    let directory = directory(&[("a.etl", small(0).0)]);
    let trace = Recordings::file(directory.path().join("a.etl"));
    let mut seen = 0;
    let stats = trace
        .run(|_| {
            seen += 1;
            if seen == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!((seen, stats.events), (7, 7));
}

/// What is said of a file with these bytes, the path replaced by FILE.
#[track_caller]
fn check_refusal(bytes: &[u8], expected: &str) {
    let directory = directory(&[("file.etl", bytes.to_vec())]);
    let path = directory.path().join("file.etl");
    let error = Recordings::file(&path).open().unwrap_err().to_string();
    assert_eq!(error.replace(&path.display().to_string(), "FILE"), expected);
}

#[test]
fn what_is_no_recording_is_told_in_a_sentence() {
    let (file, _) = small(0);
    check_refusal(b"", "FILE: the file is empty");
    check_refusal(&[0; 10_000], "FILE: the file starts with zeros; nothing was recorded");
    check_refusal(b"MZ", "FILE: not an event trace log (shorter than a buffer header)");
    check_refusal(&[b'x'; 100], "FILE: not an event trace log (the first buffer is not a header buffer)");
    check_refusal(&file[..1000], "FILE: the first buffer is cut off: 1000 of 1024 bytes");
    let mut other_record = file.clone();
    other_record[0x48 + 6] = 1;
    check_refusal(&other_record, "FILE: not an event trace log (the first record is not a logfile header)");
    check_refusal(&zst(b""), "FILE: the file is empty");
    check_refusal(
        &zst(b"text, and not a short one, but one that is longer than the header of any buffer"),
        "FILE: not an event trace log (the first buffer is not a header buffer)",
    );
    check_refusal(&archive(&[("readme.txt", b"no recording")]), "FILE: no .etl file in the archive");
    check_refusal(&archive(&[("a.etl", &file), ("b.etl", b"")]), "FILE:b.etl: the file is empty");
}

#[test]
fn damaged_packed_files_are_refused() {
    let (file, _) = small(0);
    let cut = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let zip = archive(&[("a.etl", &file)]);
    for (what, bytes) in [
        ("half an archive", cut(zip)),
        ("half a frame", cut(zst(&file))),
        ("a frame's magic number alone", zst(&file)[..4].to_vec()),
        ("an archive's magic number alone", b"PK\x03\x04".to_vec()),
    ] {
        let directory = directory(&[("file.etl", bytes)]);
        let path = directory.path().join("file.etl");
        let error = Recordings::file(&path).open().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", path.display())), "{what}: {error}");
    }
}

#[test]
fn paths_that_lead_nowhere_are_told() {
    let directory = directory(&[("notes.txt", b"no recording".to_vec())]);
    let path = directory.path();
    let refusal = |paths: Vec<PathBuf>| Recordings::files(paths).open().unwrap_err().to_string();
    let empty = format!("{}: no .etl, .etl.zst or .etl.zip file in this directory", path.display());
    assert_eq!(refusal(vec![path.to_owned()]), empty);
    assert_eq!(refusal(vec![]), "no recording was given");
    let missing = path.join("missing.etl");
    assert!(refusal(vec![missing.clone()]).starts_with(&format!("{}: ", missing.display())));
}
