//! The corpus: traces written by Windows, payloads with expected values, images and PDBs, and facts
//! about them.
//!
//! The corpus is not part of the repository. Tests look for it in `../shared/corpus`, next to the
//! repository, or in the directory that `STACKHOUND_CORPUS` names. If it is missing, tests are
//! skipped and print the reason; with `CI=true` they fail.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// The directory of the corpus; `None` if it is missing, which is printed as the reason to skip a
/// test.
///
/// # Panics
/// If the directory is missing and the environment variable `CI` is `true`.
pub fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("STACKHOUND_CORPUS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    };
    if folder.is_dir() {
        return Some(folder);
    }
    let in_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!in_ci, "corpus directory not found: {}; set STACKHOUND_CORPUS", folder.display());
    eprintln!("skipped: corpus directory not found: {}; set STACKHOUND_CORPUS", folder.display());
    None
}

/// The text of a file in the corpus, such as `etl/facts.json`.
pub fn text(name: &str) -> Option<String> {
    let path = folder()?.join(name);
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The names of all traces, without `.zst`, and their paths, sorted by name.
pub fn trace_files() -> Vec<(String, PathBuf)> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut found: Vec<_> = std::fs::read_dir(folder.join("etl"))
        .expect("a readable directory of traces")
        .filter_map(|entry| {
            let path = entry.expect("a readable directory entry").path();
            let name = path.file_name()?.to_str()?;
            let name = name.strip_suffix(".zst").unwrap_or(name).to_owned();
            name.ends_with(".etl").then_some((name, path))
        })
        .collect();
    found.sort();
    found
}

/// The path of a trace, compressed or not.
pub fn path(name: &str) -> Option<PathBuf> {
    let folder = folder()?.join("etl");
    let plain = folder.join(name);
    Some(if plain.exists() { plain } else { folder.join(format!("{name}.zst")) })
}

/// The decompressed bytes of a trace, such as `tx-Process.etl`.
pub fn etl_file(name: &str) -> Option<Vec<u8>> {
    let path = path(name)?;
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(if path.extension().is_some_and(|end| end == "zst") { unpack(&bytes) } else { bytes })
}

/// The decompressed bytes of any file in the corpus, such as `symbols/wine/ntdll.dll`, compressed
/// or not.
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
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&mut packed).expect("a valid zstd frame");
    std::io::Read::read_to_end(&mut decoder, &mut bytes).expect("a complete zstd frame");
    bytes
}
