//! Unpacks `.zst` files: a sequence of frames and skippable frames (RFC 8878).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use stackhound_etl::{Damage, DamageReason};

/// An empty last block and a checksum. They make the decoder release the data that it retains for
/// later blocks.
const EMPTY_LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Bytes that are collected before they are written.
const CHUNK: usize = 1 << 20;

/// Whether a file begins with a skippable frame.
pub(super) fn is_skippable(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & !0xf == 0x184d_2a50
}

/// Unpacks all frames up to the first one that does not decompress, and returns the damage. The
/// offsets are those of the compressed file.
///
/// # Errors
/// Reading or writing fails. Invalid data is damage, not an error.
pub(super) fn unpack(packed: &File, out: &mut impl Write) -> io::Result<Vec<Damage>> {
    let size = packed.metadata()?.len();
    let mut source = Counted { inner: BufReader::new(packed), read: 0 };
    let mut decoder = FrameDecoder::new();
    let mut damage = Vec::new();
    loop {
        let start = source.read;
        match source.inner.fill_buf() {
            Ok([]) => return Ok(damage),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        let mut give_up = |from: u64, reason| {
            let skipped = size.saturating_sub(from);
            damage.push(Damage { offset: from, skipped, reason: DamageReason::Packed(reason) });
        };
        match decoder.init(&mut source) {
            Ok(()) => {}
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let length = u64::from(length);
                if io::copy(&mut source.by_ref().take(length), &mut io::sink())? < length {
                    give_up(start, "the file ends inside a skippable frame");
                    return Ok(damage);
                }
                continue;
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::BadMagicNumber(_))) => {
                give_up(start, "the following data is not a frame");
                return Ok(damage);
            }
            Err(_) if source.read == size => {
                give_up(start, "the file ends inside the header of a frame");
                return Ok(damage);
            }
            Err(_) => {
                give_up(start, "the header of a frame cannot be read");
                return Ok(damage);
            }
        }
        let stated = Some(decoder.content_size()).filter(|&size| size > 0);
        let mut written = 0;
        while !decoder.is_finished() {
            let block = source.read;
            let decoded = decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBlocks(1));
            if decoded.is_err() {
                let is_cut = source.read == size;
                let reason =
                    if is_cut { "the file ends inside a frame" } else { "a block does not decompress" };
                give_up(block, reason);
                // The data that was decompressed before is valid.
                let _ = decoder.decode_blocks(&mut &EMPTY_LAST_BLOCK[..], BlockDecodingStrategy::All);
                decoder.collect_to_writer(&mut *out)?;
                return Ok(damage);
            }
            if decoder.can_collect() >= CHUNK {
                written += decoder.collect_to_writer(&mut *out)? as u64;
            }
        }
        written += decoder.collect_to_writer(&mut *out)? as u64;
        let note = |reason| Damage { offset: start, skipped: 0, reason: DamageReason::Packed(reason) };
        let checksums = decoder.get_checksum_from_data().zip(decoder.get_calculated_checksum());
        if checksums.is_some_and(|(stated, calculated)| stated != calculated) {
            damage.push(note("the checksum of a frame does not match what it decompresses to"));
        } else if stated.is_some_and(|stated| stated != written) {
            damage.push(note("a frame decompresses to another size than it states"));
        }
    }
}

/// A reader that counts the bytes it reads.
struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}
