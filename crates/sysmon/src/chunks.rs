//! Detects damaged chunks of an event log, some of which readers skip without an error.
//!
//! An event log is a header of 4,096 bytes and chunks of 65,536. The header counts the used chunks.
//! Windows reserves further ones, which contain zeros until they are used. Each chunk has checksums
//! of its header and of its records.

use std::io::{self, Read, Seek, SeekFrom};

const HEADER: u64 = 4096;
const CHUNK: u64 = 65_536;

/// Offsets in the header of the log: the number of used chunks, and flags.
const CHUNK_COUNT: usize = 42;
const FLAGS: usize = 120;
/// Flags: the log was not closed, so that count and checksums are outdated; or it has no checksums.
const IS_UNCLOSED: u8 = 1;
const HAS_NO_CHECKSUMS: u8 = 4;

/// Offsets in a chunk: the end of its records, their checksum, flags, the checksum of the header
/// without the eight bytes before its tables, the tables, and the records.
const RECORDS_END: usize = 48;
const RECORDS_CHECKSUM: usize = 52;
const CHUNK_FLAGS: usize = 120;
const HEADER_CHECKSUM: usize = 124;
const TABLES: usize = 128;
const RECORDS: usize = 512;

/// Describes missing and changed chunks, one sentence for each kind. Reads the whole input, and
/// seeks back to its start.
pub(crate) fn damage(input: &mut (impl Read + Seek)) -> io::Result<Vec<String>> {
    let size = input.seek(SeekFrom::End(0))?;
    input.seek(SeekFrom::Start(0))?;
    let mut header = Vec::new();
    input.take(HEADER).read_to_end(&mut header)?;
    let stated =
        header.get(CHUNK_COUNT..).and_then(<[u8]>::first_chunk).map_or(0, |two| u16::from_le_bytes(*two));
    let has_checksums = header.get(FLAGS).is_some_and(|flags| flags & (IS_UNCLOSED | HAS_NO_CHECKSUMS) == 0);
    let (whole, rest) = (size.saturating_sub(HEADER) / CHUNK, size.saturating_sub(HEADER) % CHUNK);
    let (mut empty, mut changed) = (0_u64, 0_u64);
    let mut chunk = vec![0; CHUNK as usize];
    for number in 0..whole {
        input.read_exact(&mut chunk)?;
        let is_used = chunk.iter().any(|&byte| byte != 0);
        empty += u64::from(!is_used && number < u64::from(stated));
        changed += u64::from(is_used && has_checksums && !is_as_written(&chunk));
    }
    input.seek(SeekFrom::Start(0))?;
    let mut found = Vec::new();
    if rest > 0 {
        found.push(format!("the event log ends inside a chunk; its last {rest} bytes are ignored"));
    }
    if u64::from(stated) > whole {
        found.push(format!("the event log is incomplete: {whole} of its {stated} chunks are in the file"));
    }
    if empty > 0 {
        found.push(format!("{empty} of the {stated} chunks of the event log contain only zeros"));
    }
    if changed > 0 {
        found.push(format!("the checksums of {changed} of the {whole} chunks of the event log do not match"));
    }
    Ok(found)
}

/// Whether both checksums of a chunk match.
fn is_as_written(chunk: &[u8]) -> bool {
    let number = |at: usize| chunk[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
    let records = chunk.get(RECORDS..number(RECORDS_END) as usize);
    let mut head = crc32fast::Hasher::new();
    head.update(&chunk[..CHUNK_FLAGS]);
    head.update(&chunk[TABLES..RECORDS]);
    records.is_some_and(|records| crc32fast::hash(records) == number(RECORDS_CHECKSUM))
        && head.finalize() == number(HEADER_CHECKSUM)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn log(stated: u16, chunks: &[bool], rest: usize) -> Vec<u8> {
        let mut log = vec![0; HEADER as usize];
        log[CHUNK_COUNT..CHUNK_COUNT + 2].copy_from_slice(&stated.to_le_bytes());
        log[FLAGS] = HAS_NO_CHECKSUMS;
        for &is_used in chunks {
            let start = log.len();
            log.resize(start + CHUNK as usize, 0);
            if is_used {
                log[start..start + 8].copy_from_slice(b"ElfChnk\0");
            }
        }
        log.resize(log.len() + rest, 1);
        log
    }

    #[test]
    fn missing_chunks_are_reported() {
        for (log, expected) in [
            (log(2, &[true, true], 0), &[][..]),
            // Reserved but unused.
            (log(1, &[true, false, false], 0), &[]),
            (log(0, &[], 0), &[]),
            (log(2, &[true, true], 7), &["the event log ends inside a chunk; its last 7 bytes are ignored"]),
            (log(3, &[true], 0), &["the event log is incomplete: 1 of its 3 chunks are in the file"]),
            (log(3, &[false, true, false], 0), &["2 of the 3 chunks of the event log contain only zeros"]),
            (
                log(9, &[], 0)[..100].to_vec(),
                &["the event log is incomplete: 0 of its 9 chunks are in the file"],
            ),
        ] {
            assert_eq!(damage(&mut Cursor::new(log)).unwrap(), expected);
        }
    }
}
