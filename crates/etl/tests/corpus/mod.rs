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

/// The compressed chunks of a recording, each with the length it expands to.
pub fn compressed_chunks(recording: &[u8]) -> Vec<(&[u8], usize)> {
    let u32_at = |at: usize| u32::from_le_bytes(recording[at..at + 4].try_into().unwrap()) as usize;
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < recording.len() {
        let (size, saved_offset) = (u32_at(start), u32_at(start + 4));
        if recording[start + 0x34] & 0x40 != 0 {
            chunks.push((&recording[start + 0x48..start + size], saved_offset - 0x48));
        }
        start += size;
    }
    chunks
}
