//! Files, directories and compressed files as sources, and errors of invalid ones.

use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use stackhound_etl::{Damage, DamageReason};
use stackhound_trace::TraceFiles;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::trace_files::{Logged, events, small};

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

/// Opens paths in the directory (`.` is the directory itself) and returns the sources' names
/// without that of the directory.
fn names(directory: &Path, paths: &[&str]) -> Vec<String> {
    let trace = TraceFiles::files(paths.iter().map(|path| directory.join(path))).open().unwrap();
    let prefix = format!("{}/", directory.display());
    let names = trace.sources().iter().map(|source| source.name.strip_prefix(&prefix).unwrap().to_owned());
    assert!(trace.sources().iter().zip(0..).all(|(source, number)| source.etl_file.number() == number));
    names.collect()
}

#[test]
fn trace_files_may_be_compressed() {
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
            archive(&[("readme.txt", b"not a trace"), ("logs/", b""), ("logs/Capture.ETL", &file)]),
        ),
    ]);
    for name in ["plain.etl", "plain.bin", "packed.etl.zst", "packed.etl", "archive.zip", "archive.etl"] {
        for threads in [1, 2] {
            let trace = TraceFiles::file(directory.path().join(name)).threads(threads).open().unwrap();
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
        ("notes.txt", b"not a trace".to_vec()),
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
    let trace = TraceFiles::file(directory.path()).open().unwrap();
    assert_eq!(events(trace.ordered()).0, expected);
    let blocks: u64 = trace.blocks().map(|(_, block)| block.unwrap().0.entries().len() as u64).sum();
    assert_eq!(blocks, expected.len() as u64);
}

#[test]
fn a_run_ends_when_the_callback_breaks() {
    let directory = directory(&[("a.etl", small(0).0)]);
    let trace = TraceFiles::file(directory.path().join("a.etl"));
    let mut seen = 0;
    let stats = trace
        .run(|_| {
            seen += 1;
            if seen == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!((seen, stats.events), (7, 7));
}

/// Checks the error for a file with these bytes, with the path replaced by FILE.
#[track_caller]
fn check_refusal(bytes: &[u8], expected: &str) {
    let directory = directory(&[("file.etl", bytes.to_vec())]);
    let path = directory.path().join("file.etl");
    let error = TraceFiles::file(&path).open().unwrap_err().to_string();
    assert_eq!(error.replace(&path.display().to_string(), "FILE"), expected);
}

#[test]
fn invalid_trace_files_are_reported() {
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
    check_refusal(&archive(&[("readme.txt", b"not a trace")]), "FILE: no .etl file in the archive");
    check_refusal(&archive(&[("a.etl", &file), ("b.etl", b"")]), "FILE:b.etl: the file is empty");
}

/// A skippable frame of this size in bytes.
fn skippable(size: u32) -> Vec<u8> {
    let head = [[0x5a, 0x2a, 0x4d, 0x18], size.to_le_bytes()].concat();
    [head, vec![7; size as usize]].concat()
}

#[test]
fn all_frames_are_read_and_skippable_ones_are_skipped() {
    let (file, _) = small(0);
    let (first, rest) = file.split_at(file.len() / 3);
    for packed in [
        [zst(first), zst(rest)].concat(),
        [skippable(5), zst(first), skippable(0), skippable(1000), zst(rest), skippable(3)].concat(),
        [zst(first), zst(b""), zst(rest)].concat(),
    ] {
        let directory = directory(&[("file.etl.zst", packed)]);
        let trace = TraceFiles::file(directory.path()).open().unwrap();
        let source = &trace.sources()[0];
        assert_eq!((&source.etl_file.bytes()[..], &source.packed_damage[..]), (&file[..], &[][..]));
    }
}

/// Reads a compressed trace that was changed: `Ok` if it has all of the original bytes and no
/// damage is reported; otherwise the bytes that were read, or none if it is refused.
fn changed(file: &[u8], packed: &[u8]) -> Result<(), Vec<u8>> {
    let directory = directory(&[("file.etl", packed.to_vec())]);
    let Ok(trace) = TraceFiles::file(directory.path().join("file.etl")).open() else {
        return Err(Vec::new());
    };
    let [source] = trace.sources() else { panic!("{:?}", trace.sources()) };
    let bytes = source.etl_file.bytes();
    if trace.run(|_| ControlFlow::Continue(())).damage.is_empty() {
        assert_eq!(bytes, file, "a change that nothing reports");
        return Ok(());
    }
    let skipped: u64 = source.packed_damage.iter().map(|damage| damage.skipped).sum();
    assert!(skipped <= packed.len() as u64, "{:?}", source.packed_damage);
    assert!(source.packed_damage.iter().all(|damage| damage.offset <= packed.len() as u64));
    Err(bytes.to_vec())
}

fn packed(file: &[u8]) -> [(&'static str, Vec<u8>); 2] {
    let frames: Vec<u8> = file.chunks(2000).flat_map(zst).collect();
    [("frames", frames), ("archive", archive(&[("a.etl", file)]))]
}

#[test]
fn truncated_compressed_traces_are_read_up_to_the_end() {
    let (file, _) = small(0);
    for (what, packed) in packed(&file) {
        let mut longest = 0;
        for length in (0..packed.len()).step_by(7) {
            let found = changed(&file, &packed[..length]).expect_err("it breaks off");
            assert!(file.starts_with(&found) && found.len() >= longest, "{what}, {length} bytes");
            longest = found.len();
        }
        assert!(longest > file.len() / 2, "{what}: {longest} of {} bytes", file.len());
    }
}

#[test]
fn flipped_bits_of_compressed_traces_are_reported() {
    let (file, _) = small(0);
    for (what, packed) in packed(&file) {
        let mut reported = 0;
        for bit in (0..packed.len() * 8).step_by(41) {
            let mut flipped = packed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            reported += u32::from(changed(&file, &flipped).is_err());
        }
        assert!(reported > 100, "{what}: {reported}");
    }
}

#[test]
fn an_archive_whose_members_overlap_is_refused() {
    let (file, _) = small(0);
    let packed = archive(&[("a.etl", &file), ("b.etl", &file)]);
    // The list of members, whose entries say where each one begins.
    let entries: Vec<usize> =
        (0..packed.len() - 4).filter(|&at| packed[at..at + 4] == *b"PK\x01\x02").collect();
    let [first, second] = entries[..] else { panic!("{entries:?}") };
    let mut overlapping = packed.clone();
    overlapping.copy_within(first + 42..first + 46, second + 42);
    check_refusal(&overlapping, "FILE: members of the archive overlap");
}

#[test]
fn a_trace_without_some_buffers_is_incomplete() {
    let (file, _) = small(0);
    let whole = TraceFiles::file(directory(&[("a.etl", file.clone())]).path()).open().unwrap();
    let index = &whole.indexes()[0];
    assert!(index.damage.is_empty() && index.buffers.len() > 3, "{index:?}");
    let written = whole.sources()[0].etl_file.session().buffers_written;
    for kept in 1..index.buffers.len() {
        let end = index.buffers[kept].offset as usize;
        let cut = TraceFiles::file(directory(&[("a.etl", file[..end].to_vec())]).path()).open().unwrap();
        let stats = events(cut.ordered()).1;
        let missing = index.buffers.len() as u64 - kept as u64;
        let reason = DamageReason::Incomplete { written, missing };
        assert_eq!(stats.damage, [(0, Damage { offset: end as u64, skipped: 0, reason })]);
    }
}

#[test]
fn invalid_files_of_a_directory_are_skipped() {
    let (file, _) = small(0);
    let directory = directory(&[
        ("a.etl", file.clone()),
        ("b.etl", Vec::new()),
        ("c.etl", b"text".to_vec()),
        ("d.etl.zip", archive(&[("a.etl", &file), ("b.etl", b"")])),
    ]);
    let opened = TraceFiles::file(directory.path()).captures().unwrap();
    let sources: Vec<_> = opened.captures.iter().flat_map(|capture| capture.trace.sources()).collect();
    assert_eq!(sources.len(), 1);
    let skipped: Vec<String> = opened.skipped.iter().map(ToString::to_string).collect();
    assert_eq!(skipped.len(), 3);
    assert!(skipped[0].ends_with("b.etl: the file is empty"), "{skipped:?}");
    // Opening all of them as one trace fails.
    assert_eq!(TraceFiles::file(directory.path()).open().unwrap_err().to_string(), skipped[0]);
}

#[cfg(unix)]
#[test]
fn devices_are_refused() {
    let error = TraceFiles::file("/dev/zero").open().unwrap_err().to_string();
    assert_eq!(error, "/dev/zero: neither a file nor a folder");
}

#[test]
fn missing_paths_are_reported() {
    let directory = directory(&[("notes.txt", b"not a trace".to_vec())]);
    let path = directory.path();
    let refusal = |paths: Vec<PathBuf>| TraceFiles::files(paths).open().unwrap_err().to_string();
    let empty = format!("{}: no .etl, .etl.zst or .etl.zip file in this directory", path.display());
    assert_eq!(refusal(vec![path.to_owned()]), empty);
    assert_eq!(refusal(vec![]), "no .etl file was given");
    let missing = path.join("missing.etl");
    assert!(refusal(vec![missing.clone()]).starts_with(&format!("{}: ", missing.display())));
}
