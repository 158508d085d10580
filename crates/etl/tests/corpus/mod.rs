//! Recordings written by Windows, which are not part of the repository.

use std::path::{Path, PathBuf};

/// The unpacked recording `name`, such as `tx-Process.etl`.
///
/// `None`, with a printed reason, where the corpus is missing; panics instead if the environment says `CI=true`.
pub fn recording(name: &str) -> Option<Vec<u8>> {
    let folder = folder().join("etl");
    if let Ok(bytes) = std::fs::read(folder.join(name)) {
        return Some(bytes);
    }
    let packed = folder.join(format!("{name}.zst"));
    match std::fs::read(&packed) {
        Ok(bytes) => Some(unpack(&bytes)),
        Err(error) if std::env::var("CI").as_deref() == Ok("true") => panic!("{}: {error}", packed.display()),
        Err(error) => {
            eprintln!("skipped, as the recording is missing: {}: {error}", packed.display());
            None
        }
    }
}

fn folder() -> PathBuf {
    match std::env::var_os("STACKHOUND_CORPUS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    }
}

fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&mut packed).expect("a zstd frame");
    std::io::Read::read_to_end(&mut decoder, &mut bytes).expect("a whole zstd frame");
    bytes
}
