//! Hash algorithms, and the digest of an image file that Authenticode signs.

use std::ops::Range;

use der::asn1::ObjectIdentifier;
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha256, Sha384, Sha512};
use strum::IntoStaticStr;

use crate::headers::Headers;
use crate::report::Hashes;

/// A supported hash algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Hash {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

const OIDS: [(ObjectIdentifier, Hash); 4] = [
    (ObjectIdentifier::new_unwrap("1.3.14.3.2.26"), Hash::Sha1),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1"), Hash::Sha256),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2"), Hash::Sha384),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3"), Hash::Sha512),
];

impl Hash {
    /// The algorithm with this identifier.
    pub fn of(oid: &ObjectIdentifier) -> Option<Hash> {
        OIDS.iter().find(|(known, _)| known == oid).map(|(_, hash)| *hash)
    }

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The hash of some parts, one after the other.
    pub fn digest(self, parts: &[&[u8]]) -> Vec<u8> {
        fn digest<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
            let mut hash = D::new();
            parts.iter().for_each(|part| hash.update(part));
            hash.finalize().to_vec()
        }
        match self {
            Hash::Sha1 => digest::<Sha1>(parts),
            Hash::Sha256 => digest::<Sha256>(parts),
            Hash::Sha384 => digest::<Sha384>(parts),
            Hash::Sha512 => digest::<Sha512>(parts),
        }
    }
}

/// Maximum number of bytes that are added at the end of a file without signatures: signing adds
/// them, so that the certificate table starts at a multiple of eight.
const PADDING: [u8; 7] = [0; 7];

/// The digests of an image file. Each algorithm runs at most once.
pub(super) struct Digests<'a> {
    file: &'a [u8],
    /// The parts that are signed.
    parts: Vec<&'a [u8]>,
    known: Vec<(Hash, Vec<u8>)>,
}

impl<'a> Digests<'a> {
    /// The signed parts are the whole file without its checksum, the location of its certificate
    /// table, and the table itself.
    pub fn new(file: &'a [u8], headers: &Headers, table: Option<Range<usize>>) -> Digests<'a> {
        let mut skipped: Vec<Range<usize>> = vec![headers.checksum.clone()];
        skipped.extend(headers.certificates_entry.clone());
        skipped.extend(table.clone());
        let (mut parts, mut start) = (Vec::new(), 0);
        for range in skipped {
            parts.extend(file.get(start..range.start));
            start = range.end;
        }
        parts.extend(file.get(start..));
        if table.is_none() {
            parts.push(&PADDING[..file.len().next_multiple_of(8) - file.len()]);
        }
        Digests { file, parts, known: Vec::new() }
    }

    /// The digest of the signed parts.
    pub fn of(&mut self, hash: Hash) -> &[u8] {
        let at = self.known.iter().position(|(known, _)| *known == hash).unwrap_or_else(|| {
            self.known.push((hash, hash.digest(&self.parts)));
            self.known.len() - 1
        });
        &self.known[at].1
    }

    /// The hashes of the file and the usual digests of the signed parts.
    pub fn hashes(&mut self) -> Hashes {
        fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.try_into().expect("the size of the algorithm")
        }
        Hashes {
            sha256: Sha256::digest(self.file).into(),
            sha1: Sha1::digest(self.file).into(),
            authenticode_sha256: array(self.of(Hash::Sha256)),
            authenticode_sha1: array(self.of(Hash::Sha1)),
        }
    }
}
