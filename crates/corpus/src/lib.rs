//! The corpus: recordings written by Windows, payloads with expected values, images and PDBs, and facts about them.
//!
//! They are no part of the repository. Tests look for them in `../shared/corpus` beside the repository, or where
//! `STACKHOUND_CORPUS` says. Where they are missing, tests are skipped with a printed reason; with `CI=true` they fail.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// The folder with all of it; `None`, with a printed reason, where it is missing.
///
/// # Panics
/// If it is missing and the environment says `CI=true`.
pub fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("STACKHOUND_CORPUS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    };
    if folder.is_dir() {
        return Some(folder);
    }
    let in_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!in_ci, "the corpus is missing: {}", folder.display());
    eprintln!("skipped, as the corpus is missing: {}", folder.display());
    None
}

/// One file of the corpus, such as `etl/facts.json`.
pub fn text(name: &str) -> Option<String> {
    let path = folder()?.join(name);
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The recordings' names, unpacked ones, with their paths, in the order of their names.
pub fn trace_files() -> Vec<(String, PathBuf)> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut found: Vec<_> = std::fs::read_dir(folder.join("etl"))
        .expect("a folder of recordings")
        .filter_map(|entry| {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name()?.to_str()?;
            let name = name.strip_suffix(".zst").unwrap_or(name).to_owned();
            name.ends_with(".etl").then_some((name, path))
        })
        .collect();
    found.sort();
    found
}

/// Where a recording is, packed or not.
pub fn path(name: &str) -> Option<PathBuf> {
    let folder = folder()?.join("etl");
    let plain = folder.join(name);
    Some(if plain.exists() { plain } else { folder.join(format!("{name}.zst")) })
}

/// The unpacked bytes of a recording, such as `tx-Process.etl`.
pub fn etl_file(name: &str) -> Option<Vec<u8>> {
    let path = path(name)?;
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(if path.extension().is_some_and(|end| end == "zst") { unpack(&bytes) } else { bytes })
}

/// The unpacked bytes of any file of the corpus, such as `symbols/wine/ntdll.dll`, packed or not.
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    let plain = folder()?.join(name);
    if plain.exists() {
        return Some(std::fs::read(&plain).unwrap_or_else(|error| panic!("{name}: {error}")));
    }
    let packed = folder()?.join(format!("{name}.zst"));
    Some(unpack(&std::fs::read(&packed).unwrap_or_else(|error| panic!("{name}: {error}"))))
}

fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&mut packed).expect("a zstd frame");
    std::io::Read::read_to_end(&mut decoder, &mut bytes).expect("a whole zstd frame");
    bytes
}
