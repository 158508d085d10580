//! The results of reading a file: its hashes and its signatures.

use stackhound_types::FileTime;

use crate::facts::{Signature, SignatureReason};

/// Hashes of an image file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hashes {
    /// SHA-256 of the file.
    pub sha256: [u8; 32],
    /// SHA-1 of the file.
    pub sha1: [u8; 20],
    /// The Authenticode digest with SHA-256: the file without its checksum and its signatures.
    pub authenticode_sha256: [u8; 32],
    /// The Authenticode digest with SHA-1.
    pub authenticode_sha1: [u8; 20],
}

/// A time stamp of a signature by a time-stamping authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timestamp {
    /// The time.
    pub time: FileTime,
    /// Whether its own signature verifies and, if roots were given, its certificates lead to one of
    /// them, so that the time counts.
    pub is_verified: bool,
    /// Why its certificates do not lead to a root, if this is all that is wrong;
    /// [`SignatureReason::Malformed`] if this is not known, since a certificate cannot be read or
    /// too many signatures would have to be verified.
    pub reason: Option<SignatureReason>,
    /// The authority: common name of the certificate's subject.
    pub signer: Option<Box<str>>,
}

/// One embedded signature. Unknown facts are `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SignatureReport {
    /// Its state and signer.
    pub signature: Signature,
    /// Whether it is nested in another signature.
    pub is_nested: bool,
    /// The algorithm of the signed digest, such as `sha256`.
    pub digest_algorithm: Option<&'static str>,
    /// The signed digest of the file.
    pub digest: Vec<u8>,
    /// The issuer of the signer's certificate.
    pub issuer: Option<Box<str>>,
    /// The serial number of the signer's certificate, as bytes.
    pub serial: Vec<u8>,
    /// SHA-256 of the signer's certificate.
    pub thumbprint: Option<[u8; 32]>,
    /// The validity period of the signer's certificate.
    pub validity: Option<(FileTime, FileTime)>,
    /// The time stamp, if there is one. If there are several, the first verified one.
    pub timestamp: Option<Timestamp>,
}

/// A signature of which nothing is known, for this reason.
pub(crate) fn unknown(reason: SignatureReason) -> SignatureReport {
    let signature = Signature { reason: Some(reason), ..Signature::default() };
    SignatureReport { signature, ..SignatureReport::default() }
}
