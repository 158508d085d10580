//! Certificates: names, validity, permitted use, and signatures by their keys.

use der::asn1::ObjectIdentifier;
use der::{Any, Decode, Tag, Tagged};
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use rsa::{BoxedUint, Pkcs1v15Sign};
use stackhound_types::FileTime;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, SubjectKeyIdentifier};
use x509_cert::name::Name;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use super::asn1::{self, Element, INTEGER, SEQUENCE};
use super::digest::Hash;
use crate::version::utf16;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const ORGANIZATIONAL_UNIT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.11");
/// Usage: signing code.
pub(super) const CODE_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.3");
/// Usage: time stamps.
pub(super) const TIME_STAMPING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.8");
/// A time stamp does not extend the validity of signatures with this certificate.
const LIFETIME_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.10.3.13");
const ANY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");

const RSA_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// Signature algorithms that include the hash.
const WITH_HASH: [(ObjectIdentifier, ObjectIdentifier, Hash); 8] = [
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"), RSA_KEY, Hash::Sha1),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"), RSA_KEY, Hash::Sha256),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"), RSA_KEY, Hash::Sha384),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"), RSA_KEY, Hash::Sha512),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"), EC_KEY, Hash::Sha1),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"), EC_KEY, Hash::Sha256),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"), EC_KEY, Hash::Sha384),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"), EC_KEY, Hash::Sha512),
];

/// Maximum size of a certificate in bytes.
const SIZE_MAX: usize = 1 << 16;
/// Maximum number of UTF-8 bytes of a name.
const NAME_MAX: usize = 256;
/// Sizes of RSA keys in bits. Shorter ones prove nothing, longer ones take too long.
const RSA_BITS: std::ops::RangeInclusive<usize> = 1024..=8192;

/// A key or algorithm is not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unsupported;

/// A certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Certificate {
    /// The bytes, whose signed part must be hashed as it is.
    der: Box<[u8]>,
    parsed: x509_cert::Certificate,
    usages: Option<Vec<ObjectIdentifier>>,
    /// Maximum number of issuers below it. `None` if it is not the certificate of an issuer.
    issuers_below: Option<usize>,
}

impl Certificate {
    /// Reads a certificate. `None` if it is not valid, or if a limit is exceeded.
    pub fn read(der: &[u8]) -> Option<Certificate> {
        let whole = asn1::limited(der).filter(|element| element.whole.len() <= SIZE_MAX)?.whole;
        let parsed = x509_cert::Certificate::from_der(whole).ok()?;
        let tbs = parsed.tbs_certificate();
        let usages = tbs.get_extension::<ExtendedKeyUsage>().ok()?.map(|(_, usage)| usage.0);
        let issuers_below = match tbs.get_extension::<BasicConstraints>().ok()? {
            Some((_, limits)) => {
                limits.ca.then(|| limits.path_len_constraint.map_or(usize::MAX, usize::from))
            }
            // Old roots do not state that they are roots.
            None => (tbs.issuer() == tbs.subject()).then_some(usize::MAX),
        };
        Some(Certificate { der: whole.into(), usages, issuers_below, parsed })
    }

    pub fn subject(&self) -> &Name {
        self.parsed.tbs_certificate().subject()
    }

    pub fn issuer(&self) -> &Name {
        self.parsed.tbs_certificate().issuer()
    }

    pub fn serial(&self) -> &[u8] {
        self.parsed.tbs_certificate().serial_number().as_bytes()
    }

    pub fn thumbprint(&self) -> [u8; 32] {
        Hash::Sha256.digest(&[&self.der]).try_into().expect("the size of SHA-256")
    }

    /// The identifier of its key, if it states one.
    pub fn key_id(&self) -> Option<Vec<u8>> {
        let extension = self.parsed.tbs_certificate().get_extension::<SubjectKeyIdentifier>();
        Some(extension.ok()??.1.0.as_bytes().to_vec())
    }

    pub fn is_self_issued(&self) -> bool {
        self.subject() == self.issuer()
    }

    /// Start and end of the validity, in seconds since 1970.
    pub fn validity(&self) -> (i64, i64) {
        let validity = self.parsed.tbs_certificate().validity();
        let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs() as i64;
        (seconds(validity.not_before), seconds(validity.not_after))
    }

    pub fn validity_times(&self) -> (FileTime, FileTime) {
        let (start, end) = self.validity();
        (FileTime::from_unix(start), FileTime::from_unix(end))
    }

    /// Whether it may be used for a purpose. A certificate that states no usage may be used for
    /// any.
    pub fn permits(&self, usage: ObjectIdentifier) -> bool {
        self.usages.as_ref().is_none_or(|usages| usages.iter().any(|one| *one == usage || *one == ANY_USAGE))
    }

    /// Whether it states a usage explicitly.
    pub fn states(&self, usage: ObjectIdentifier) -> bool {
        self.usages.as_ref().is_some_and(|usages| usages.contains(&usage))
    }

    /// Whether signatures are valid only while the certificate is, whatever their time stamp.
    pub fn is_for_its_lifetime(&self) -> bool {
        self.states(LIFETIME_SIGNING)
    }

    /// Whether it may issue certificates, with this number of other issuers below it.
    pub fn may_issue(&self, issuers_below: usize) -> bool {
        self.issuers_below.is_some_and(|max| issuers_below <= max)
    }

    /// Whether its key signed another certificate.
    pub fn has_signed(&self, other: &Certificate) -> Result<bool, Unsupported> {
        let mut whole = &*other.der;
        let contents = Element::expect(&mut whole, SEQUENCE).ok_or(Unsupported)?.contents;
        let signed = Element::expect(&mut &*contents, SEQUENCE).ok_or(Unsupported)?.whole;
        let algorithm = other.parsed.signature_algorithm();
        let signature = other.parsed.signature().as_bytes().ok_or(Unsupported)?;
        self.verifies(algorithm, None, signed, signature)
    }

    /// Whether its key made a signature. `hash` is used if the algorithm does not include one.
    pub fn verifies(
        &self,
        algorithm: &AlgorithmIdentifierOwned,
        hash: Option<Hash>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<bool, Unsupported> {
        let key = self.parsed.tbs_certificate().subject_public_key_info();
        let with_hash = WITH_HASH.iter().find(|(oid, ..)| *oid == algorithm.oid);
        let (kind, hash) = match (with_hash, hash) {
            (Some((_, kind, hash)), _) => (*kind, *hash),
            (None, Some(hash)) => (algorithm.oid, hash),
            (None, None) => return Err(Unsupported),
        };
        if kind != key.algorithm.oid {
            return Err(Unsupported);
        }
        let digest = hash.digest(&[message]);
        match kind {
            RSA_KEY => rsa_verifies(key, hash, &digest, signature),
            EC_KEY => ec_verifies(key, &digest, signature),
            _ => Err(Unsupported),
        }
    }
}

fn rsa_verifies(
    key: &SubjectPublicKeyInfoOwned,
    hash: Hash,
    digest: &[u8],
    signature: &[u8],
) -> Result<bool, Unsupported> {
    let mut bytes = key.subject_public_key.as_bytes().ok_or(Unsupported)?;
    let mut numbers = Element::expect(&mut bytes, SEQUENCE).ok_or(Unsupported)?.contents;
    let mut number = || {
        let digits = Element::expect(&mut numbers, INTEGER).ok_or(Unsupported)?.contents;
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        let digits = &digits[zeros..];
        let bits = u32::try_from(8 * digits.len()).ok().filter(|bits| *bits as usize <= *RSA_BITS.end());
        BoxedUint::from_be_slice(digits, bits.ok_or(Unsupported)?.max(8)).map_err(|_| Unsupported)
    };
    let (modulus, exponent) = (number()?, number()?);
    let key = rsa::PublicKey::new_with_size_limits(modulus, exponent, RSA_BITS).map_err(|_| Unsupported)?;
    let scheme = match hash {
        Hash::Sha1 => Pkcs1v15Sign::new::<sha1::Sha1>(),
        Hash::Sha256 => Pkcs1v15Sign::new::<sha2::Sha256>(),
        Hash::Sha384 => Pkcs1v15Sign::new::<sha2::Sha384>(),
        Hash::Sha512 => Pkcs1v15Sign::new::<sha2::Sha512>(),
    };
    Ok(key.verify(scheme, digest, signature).is_ok())
}

fn ec_verifies(
    key: &SubjectPublicKeyInfoOwned,
    digest: &[u8],
    signature: &[u8],
) -> Result<bool, Unsupported> {
    let point = key.subject_public_key.as_bytes().ok_or(Unsupported)?;
    let curve = key.algorithm.parameters.as_ref().ok_or(Unsupported)?;
    match curve.decode_as::<ObjectIdentifier>().map_err(|_| Unsupported)? {
        P256 => {
            let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(point).map_err(|_| Unsupported)?;
            let signature = p256::ecdsa::Signature::from_der(signature);
            Ok(signature.is_ok_and(|signature| key.verify_prehash(digest, &signature).is_ok()))
        }
        // The library requires a hash of at least half the size of the key.
        P384 if digest.len() >= 24 => {
            let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(point).map_err(|_| Unsupported)?;
            let signature = p384::ecdsa::Signature::from_der(signature);
            Ok(signature.is_ok_and(|signature| key.verify_prehash(digest, &signature).is_ok()))
        }
        _ => Err(Unsupported),
    }
}

/// The name that Windows shows for a subject or issuer: the common name, otherwise the
/// organizational unit or the organization.
pub(super) fn display_name(name: &Name) -> Option<Box<str>> {
    [COMMON_NAME, ORGANIZATIONAL_UNIT, ORGANIZATION].iter().find_map(|wanted| {
        let attribute = name.iter().filter(|attribute| attribute.oid == *wanted).last()?;
        text(&attribute.value).map(Into::into)
    })
}

/// The text of a name, without control characters.
fn text(value: &Any) -> Option<String> {
    let bytes = value.value();
    let mut text = match value.tag() {
        Tag::BmpString => utf16(bytes.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]))),
        Tag::TeletexString => bytes.iter().map(|byte| char::from(*byte)).collect(),
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        _ => return None,
    };
    text.retain(|c| !c.is_control());
    let end = text.floor_char_boundary(NAME_MAX);
    text.truncate(end);
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
