//! Reassembles manifests from their chunks.
//!
//! Every process that loads a provider writes the provider's manifest on the thread that loads it,
//! and again whenever a session requests it. Chunks of different threads are interleaved. Chunks of
//! one thread may arrive in any order, because buffers of several processors are not read in time
//! order. A chunk that contradicts the earlier ones starts a new manifest.

use stackhound_types::{Guid, Pid, Tid};

use crate::error::Error;

/// The maximum size of all unfinished manifests together, and therefore of a single one.
const MAX_BYTES: usize = 16 << 20;
/// The maximum number of chunks in a manifest. The largest known manifests have three.
const MAX_CHUNKS: u16 = 1024;
/// The maximum number of unfinished manifests.
const MAX_UNFINISHED: usize = 256;
/// The size of the header in each chunk.
const HEADER: usize = 8;

/// The event id of chunks of manifests.
pub(crate) const MANIFEST_CHUNK: u16 = 0xfffe;

/// Whether an event with this descriptor is a chunk of its provider's manifest.
pub fn is_manifest_chunk(id: u16, task: u16, opcode: u8) -> bool {
    id == MANIFEST_CHUNK && task == 0xfffe && opcode == 0xfe
}

/// Collects chunks of manifests until the manifests are complete.
#[derive(Clone, Debug, Default)]
pub struct ManifestChunks {
    /// Oldest first.
    unfinished: Vec<Unfinished>,
    bytes: usize,
    dropped: u64,
}

#[derive(Clone, Debug)]
struct Unfinished {
    sender: (Guid, Pid, Tid),
    /// By chunk number; empty for a missing chunk.
    chunks: Vec<Box<[u8]>>,
    missing: usize,
    bytes: usize,
}

impl ManifestChunks {
    /// Adds the payload of a manifest event. Returns the whole text if this was the last missing
    /// chunk.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the payload is not a chunk of a known format.
    pub fn push(
        &mut self,
        provider: Guid,
        pid: Pid,
        tid: Tid,
        payload: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let chunk = Chunk::parse(payload)?;
        let sender = (provider, pid, tid);
        let found = self.unfinished.iter().position(|unfinished| unfinished.sender == sender);
        let mut unfinished = match found.map(|index| self.remove(index)) {
            Some(unfinished) if unfinished.accepts(&chunk) => unfinished,
            found => {
                self.dropped += u64::from(found.is_some());
                Unfinished {
                    sender,
                    chunks: vec![Box::default(); chunk.total.into()],
                    missing: chunk.total.into(),
                    bytes: 0,
                }
            }
        };
        unfinished.bytes += chunk.text.len();
        unfinished.missing -= 1;
        unfinished.chunks[usize::from(chunk.number)] = chunk.text.into();
        if unfinished.missing == 0 {
            return Ok(Some(unfinished.chunks.concat()));
        }
        self.bytes += unfinished.bytes;
        self.unfinished.push(unfinished);
        while self.bytes > MAX_BYTES || self.unfinished.len() > MAX_UNFINISHED {
            self.remove(0);
            self.dropped += 1;
        }
        Ok(None)
    }

    /// The number of manifests that were discarded because their chunks contradicted each other, or
    /// because the limits were exceeded.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn remove(&mut self, index: usize) -> Unfinished {
        let unfinished = self.unfinished.remove(index);
        self.bytes -= unfinished.bytes;
        unfinished
    }
}

impl Unfinished {
    fn accepts(&self, chunk: &Chunk<'_>) -> bool {
        let slot = self.chunks.get(usize::from(chunk.number));
        self.chunks.len() == usize::from(chunk.total) && slot.is_some_and(|text| text.is_empty())
    }
}

/// A chunk with its parsed header.
struct Chunk<'a> {
    total: u16,
    /// Below `total`.
    number: u16,
    /// Not empty.
    text: &'a [u8],
}

impl<'a> Chunk<'a> {
    fn parse(payload: &'a [u8]) -> Result<Chunk<'a>, Error> {
        const FORMAT: u8 = 1;
        const MAGIC: u8 = 0x5b;
        let error = |offset, expected| Err(Error::Metadata { offset, expected });
        let Some(([format, _, _, magic, t0, t1, n0, n1], text)) = payload.split_first_chunk::<HEADER>()
        else {
            return error(0, "the header of a manifest chunk");
        };
        if *format != FORMAT || *magic != MAGIC {
            return error(0, "a manifest chunk of format 1");
        }
        let (total, number) = (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*n0, *n1]));
        if number >= total || total > MAX_CHUNKS {
            return error(4, "a chunk number below the number of chunks");
        }
        if text.is_empty() {
            return error(HEADER, "text in the chunk");
        }
        Ok(Chunk { total, number, text })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROVIDER: Guid = Guid([1; 16]);

    fn chunk(number: u16, total: u16, text: &str) -> Vec<u8> {
        [&[1, 1, 0, 0x5b], &total.to_le_bytes()[..], &number.to_le_bytes(), text.as_bytes()].concat()
    }

    /// Each row is a thread and a chunk. Manifests are complete in the order of their last chunks.
    #[track_caller]
    fn check(rows: &[(u32, u16, u16, &str)], expected: &[&str], dropped: u64) {
        let mut chunks = ManifestChunks::default();
        let mut whole = Vec::new();
        for &(tid, number, total, text) in rows {
            let pushed = chunks.push(PROVIDER, Pid(4), Tid(tid), &chunk(number, total, text)).unwrap();
            whole.extend(pushed.map(|bytes| String::from_utf8(bytes).unwrap()));
        }
        assert_eq!(whole, expected);
        assert_eq!(chunks.dropped(), dropped);
    }

    #[test]
    fn chunks_are_reassembled() {
        check(&[(1, 0, 1, "ab")], &["ab"], 0);
        check(&[(1, 0, 2, "a"), (1, 1, 2, "b")], &["ab"], 0);
        check(&[(1, 1, 2, "b"), (1, 0, 2, "a")], &["ab"], 0);
        check(&[(1, 2, 3, "c"), (1, 0, 3, "a"), (1, 1, 3, "b")], &["abc"], 0);
        // Threads are kept apart.
        check(&[(1, 0, 2, "a"), (2, 0, 2, "x"), (1, 1, 2, "b"), (2, 1, 2, "y")], &["ab", "xy"], 0);
        // The same manifest is written repeatedly.
        check(&[(1, 0, 2, "a"), (1, 1, 2, "b"), (1, 1, 2, "b"), (1, 0, 2, "a")], &["ab", "ab"], 0);
        // After a lost chunk, the next manifest starts a new one.
        check(&[(1, 0, 2, "a"), (1, 0, 2, "c"), (1, 1, 2, "d")], &["cd"], 1);
        check(&[(1, 0, 3, "a"), (1, 0, 2, "c"), (1, 1, 2, "d")], &["cd"], 1);
        check(&[(1, 0, 3, "a"), (1, 0, 1, "c")], &["c"], 1);
    }

    #[test]
    fn invalid_chunks_are_rejected() {
        let mut chunks = ManifestChunks::default();
        for payload in [
            vec![],
            vec![1, 1, 0, 0x5b, 1, 0, 0],
            [&[2], &chunk(0, 1, "a")[1..]].concat(),
            [&[1, 1, 0, 0x5c], &chunk(0, 1, "a")[4..]].concat(),
            chunk(0, 0, "a"),
            chunk(2, 2, "a"),
            chunk(0, 1025, "a"),
            chunk(0, 1, ""),
        ] {
            assert!(chunks.push(PROVIDER, Pid(4), Tid(4), &payload).is_err(), "{payload:?}");
        }
    }

    #[test]
    fn unfinished_manifests_are_limited() {
        let mut chunks = ManifestChunks::default();
        for tid in 0..1000 {
            assert_eq!(chunks.push(PROVIDER, Pid(4), Tid(tid), &chunk(0, 2, "a")), Ok(None));
        }
        assert_eq!((chunks.unfinished.len(), chunks.dropped()), (256, 744));
        // The newest ones are kept, the oldest are discarded.
        assert!(chunks.push(PROVIDER, Pid(4), Tid(999), &chunk(1, 2, "b")).unwrap().is_some());
        assert!(chunks.push(PROVIDER, Pid(4), Tid(0), &chunk(1, 2, "b")).unwrap().is_none());

        let mut chunks = ManifestChunks::default();
        let large = "x".repeat(60_000);
        for number in 0..1000 {
            assert_eq!(chunks.push(PROVIDER, Pid(4), Tid(1), &chunk(number, 1024, &large)), Ok(None));
            assert!(chunks.bytes <= MAX_BYTES);
        }
        assert!(chunks.dropped() > 0);
    }

    proptest! {
        #[test]
        fn any_order_of_chunks_gives_the_text(
            text in "[a-z]{1,40}",
            size in 1_usize..10,
            order in any::<prop::sample::Index>().prop_flat_map(|_| Just((0..40_usize).collect::<Vec<_>>()).prop_shuffle()),
        ) {
            let parts: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let total = parts.len() as u16;
            let mut chunks = ManifestChunks::default();
            let mut whole = None;
            for &number in order.iter().filter(|number| **number < parts.len()) {
                prop_assert!(whole.is_none());
                let payload = chunk(number as u16, total, std::str::from_utf8(parts[number]).unwrap());
                whole = chunks.push(PROVIDER, Pid(4), Tid(4), &payload).unwrap();
            }
            prop_assert_eq!(whole, Some(text.into_bytes()));
            prop_assert_eq!(chunks.bytes, 0);
        }
    }
}
