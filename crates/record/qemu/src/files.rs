//! The files of the initial file system of Linux: one or more cpio archives (`newc`) in one file, each
//! of which can be compressed with gzip or zstd.

use std::io::{self, Read};

use rustc_hash::FxHashMap;

/// The first bytes of an entry.
const MAGIC: &[u8] = b"070701";
/// The same with checksums, which are not compared.
const MAGIC_CHECKSUMS: &[u8] = b"070702";
/// Length of the header of an entry: the magic, and 13 numbers of 8 hexadecimal digits.
const HEADER: usize = 110;
/// The name of the last entry of an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// Maximum length of all archives after decompression.
const LENGTH_MAX: u64 = 2 << 30;
/// The first bytes of ELF files. Other files have no functions.
const ELF: &[u8] = b"\x7fELF";

/// The programs and libraries, by their paths.
pub(crate) type Files = FxHashMap<String, Vec<u8>>;

/// Reads the programs and libraries. The error says what is wrong; the files before it are lost.
pub(crate) fn programs(bytes: &[u8]) -> Result<Files, String> {
    let mut files = Files::default();
    let mut rest = bytes;
    let mut left = LENGTH_MAX;
    while let Some(start) = rest.iter().position(|&byte| byte != 0) {
        rest = &rest[start..];
        if rest.starts_with(MAGIC) || rest.starts_with(MAGIC_CHECKSUMS) {
            rest = archive(rest, &mut files)?;
            continue;
        }
        let before = rest.len();
        let mut archives = Vec::new();
        let read = decompress(&mut rest, left, &mut archives);
        read.map_err(|error| format!("at byte {}: {error}", bytes.len() - before))?;
        left = left.saturating_sub(archives.len() as u64);
        let mut inner = archives.as_slice();
        while let Some(start) = inner.iter().position(|&byte| byte != 0) {
            inner = archive(&inner[start..], &mut files)?;
        }
    }
    Ok(files)
}

fn decompress(bytes: &mut &[u8], most: u64, to: &mut Vec<u8>) -> io::Result<()> {
    match bytes {
        [0x1f, 0x8b, ..] => {
            let mut decoder = flate2::bufread::GzDecoder::new(*bytes);
            decoder.by_ref().take(most).read_to_end(to)?;
            *bytes = decoder.into_inner();
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(&mut *bytes).map_err(io::Error::other)?;
            decoder.take(most).read_to_end(to)?;
        }
        _ => return Err(io::Error::other("expected a cpio archive, also compressed with gzip or zstd")),
    }
    Ok(())
}

/// Reads one archive. Returns the bytes after it.
fn archive<'b>(bytes: &'b [u8], files: &mut Files) -> Result<&'b [u8], String> {
    let mut at = 0;
    loop {
        let expected = |what: &str| format!("expected {what} at byte {at} of an archive");
        let header = bytes.get(at..at + HEADER).ok_or_else(|| expected("an entry"))?;
        if !header.starts_with(MAGIC) && !header.starts_with(MAGIC_CHECKSUMS) {
            return Err(expected("an entry"));
        }
        let number = |index: usize| {
            let digits = str::from_utf8(&header[6 + 8 * index..14 + 8 * index]).ok()?;
            usize::from_str_radix(digits, 16).ok()
        };
        let (length, name_length) = number(6).zip(number(11)).ok_or_else(|| expected("numbers"))?;
        let name_end = at + HEADER + name_length;
        let start = name_end.next_multiple_of(4);
        let name = bytes.get(at + HEADER..name_end).ok_or_else(|| expected("a name"))?;
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        let content = bytes.get(start..start + length).ok_or_else(|| expected("the content of a file"))?;
        if name == TRAILER {
            return Ok(&bytes[start..]);
        }
        if content.starts_with(ELF) {
            let name = String::from_utf8_lossy(name);
            let path = format!("/{}", name.trim_start_matches("./").trim_start_matches('/'));
            files.insert(path, content.to_vec());
        }
        at = (start + length).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn entry(name: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for index in 0..13 {
            let number = match index {
                6 => content.len(),
                11 => name.len() + 1,
                _ => 0,
            };
            bytes.extend(format!("{number:08X}").bytes());
        }
        bytes.extend(name.bytes().chain([0]));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn archive_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        files
            .iter()
            .flat_map(|(name, content)| entry(name, content))
            .chain(entry("TRAILER!!!", b""))
            .collect()
    }

    #[test]
    fn archives_are_read_one_after_another() {
        let first = archive_of(&[("microcode", b"\x7fELF1"), ("text", b"text")]);
        let second = archive_of(&[("./bin/a", b"\x7fELF22"), ("/lib/b", b"\x7fELF333")]);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&second).unwrap();
        let gzip = gzip.finish().unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(second.as_slice(), level);
        for second in [&second, &gzip, &zstd] {
            let whole = [&first[..], &[0; 512], second, &[0; 3]].concat();
            let files = programs(&whole).unwrap();
            let mut found: Vec<_> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.len())).collect();
            found.sort_unstable();
            assert_eq!(found, [("/bin/a", 6), ("/lib/b", 7), ("/microcode", 5)]);
            for cut in (0..whole.len()).step_by(7) {
                let _ = programs(&whole[..cut]);
            }
        }
    }

    #[test]
    fn errors_name_the_position() {
        let error = programs(&[&archive_of(&[])[..], b"other"].concat()).unwrap_err();
        let expected = "at byte 124: expected a cpio archive, also compressed with gzip or zstd";
        assert_eq!(error, expected);
        assert_eq!(programs(b"070701").unwrap_err(), "expected an entry at byte 0 of an archive");
    }
}
