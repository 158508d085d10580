//! Signs images with made certificates: a small writer of certificates, signatures and time stamps.
//! It shares no code with the reader.

#![allow(dead_code, reason = "each test file uses a part of it")]

use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use sha2::{Digest, Sha256};

pub const CODE_SIGNING: &str = "1.3.6.1.5.5.7.3.3";
pub const TIME_STAMPING: &str = "1.3.6.1.5.5.7.3.8";
pub const SERVER: &str = "1.3.6.1.5.5.7.3.1";

const SHA256: &str = "2.16.840.1.101.3.4.2.1";
const ECDSA_SHA256: &str = "1.2.840.10045.4.3.2";
const EC_KEY: &str = "1.2.840.10045.2.1";
const P256: &str = "1.2.840.10045.3.1.7";
const SIGNED_DATA: &str = "1.2.840.113549.1.7.2";
pub const INDIRECT_DATA: &str = "1.3.6.1.4.1.311.2.1.4";
const PE_IMAGE: &str = "1.3.6.1.4.1.311.2.1.15";
const CONTENT_TYPE: &str = "1.2.840.113549.1.9.3";
const MESSAGE_DIGEST: &str = "1.2.840.113549.1.9.4";
const SIGNING_TIME: &str = "1.2.840.113549.1.9.5";
const COUNTERSIGNATURE: &str = "1.2.840.113549.1.9.6";
const TST_INFO: &str = "1.2.840.113549.1.9.16.1.4";
const TOKEN: &str = "1.3.6.1.4.1.311.3.3.1";
const NESTED: &str = "1.3.6.1.4.1.311.2.4.1";

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTETS: u8 = 0x04;

/// An element with these contents.
pub fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let contents = parts.concat();
    let length = contents.len();
    let head = match length {
        0..=0x7f => vec![tag, length as u8],
        0x80..=0xff => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [head, contents].concat()
}

pub fn oid(text: &str) -> Vec<u8> {
    let numbers: Vec<u32> = text.split('.').map(|number| number.parse().unwrap()).collect();
    let mut bytes = vec![(40 * numbers[0] + numbers[1]) as u8];
    for number in &numbers[2..] {
        let mut groups = vec![(number & 0x7f) as u8];
        let mut rest = number >> 7;
        while rest > 0 {
            groups.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.extend(groups.iter().rev());
    }
    element(6, &[&bytes])
}

fn algorithm(name: &str) -> Vec<u8> {
    element(SEQUENCE, &[&oid(name)])
}

fn set(mut elements: Vec<Vec<u8>>, tag: u8) -> Vec<u8> {
    elements.sort();
    element(tag, &[&elements.concat()])
}

fn attribute(name: &str, value: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&oid(name), &element(SET, &[value])])
}

fn name(common: &str) -> Vec<u8> {
    let attribute = element(SEQUENCE, &[&oid("2.5.4.3"), &element(0x0c, &[common.as_bytes()])]);
    element(SEQUENCE, &[&element(SET, &[&attribute])])
}

/// A time such as `20240131000000Z`.
fn time(text: &str) -> Vec<u8> {
    // Certificates use two digits of the year until 2049.
    if text < "2050" { element(0x17, &[&text.as_bytes()[2..]]) } else { element(0x18, &[text.as_bytes()]) }
}

/// A certificate with its key, which is derived from its name.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub name: &'static str,
    pub issuer: &'static str,
    pub validity: (&'static str, &'static str),
    pub is_issuer: bool,
    pub usages: &'static [&'static str],
    /// The key that signs it; that of its issuer unless it is forged.
    pub signed_by: &'static str,
}

pub fn certificate(name: &'static str, issuer: &'static str) -> Certificate {
    let validity = ("20200101000000Z", "20300101000000Z");
    Certificate { name, issuer, validity, is_issuer: false, usages: &[CODE_SIGNING], signed_by: issuer }
}

/// A self-signed root.
pub fn root(name: &'static str) -> Certificate {
    Certificate { is_issuer: true, usages: &[], ..certificate(name, name) }
}

fn key(name: &str) -> SigningKey {
    SigningKey::from_slice(&Sha256::digest(name.as_bytes())).unwrap()
}

fn sign(key_name: &str, message: &[u8]) -> Vec<u8> {
    let signature: Signature = key(key_name).sign(message);
    signature.to_der().as_bytes().to_vec()
}

impl Certificate {
    pub fn der(&self) -> Vec<u8> {
        let point = key(self.name).verifying_key().to_sec1_point(false);
        let algorithm_of_key = element(SEQUENCE, &[&oid(EC_KEY), &oid(P256)]);
        let public = element(SEQUENCE, &[&algorithm_of_key, &element(3, &[&[0], point.as_bytes()])]);
        let (start, end) = (time(self.validity.0), time(self.validity.1));
        let mut extensions = Vec::new();
        if self.is_issuer {
            let constraints = element(SEQUENCE, &[&element(1, &[&[0xff]])]);
            let value = element(OCTETS, &[&constraints]);
            extensions.push(element(SEQUENCE, &[&oid("2.5.29.19"), &element(1, &[&[0xff]]), &value]));
        }
        if !self.usages.is_empty() {
            let usages: Vec<Vec<u8>> = self.usages.iter().map(|usage| oid(usage)).collect();
            let value = element(OCTETS, &[&element(SEQUENCE, &[&usages.concat()])]);
            extensions.push(element(SEQUENCE, &[&oid("2.5.29.37"), &value]));
        }
        let mut parts = vec![
            element(0xa0, &[&element(2, &[&[2]])]),
            self.serial(),
            algorithm(ECDSA_SHA256),
            name(self.issuer),
            element(SEQUENCE, &[&start, &end]),
            name(self.name),
            public,
        ];
        if !extensions.is_empty() {
            parts.push(element(0xa3, &[&element(SEQUENCE, &[&extensions.concat()])]));
        }
        let signed = element(SEQUENCE, &[&parts.concat()]);
        let signature = element(3, &[&[0], &sign(self.signed_by, &signed)]);
        element(SEQUENCE, &[&signed, &algorithm(ECDSA_SHA256), &signature])
    }

    fn serial(&self) -> Vec<u8> {
        element(2, &[&[1 + self.name.len() as u8]])
    }
}

/// A signer of some content.
#[derive(Clone, Debug)]
pub struct Signer {
    pub certificate: Certificate,
    /// The key that signs; another one for a forged signature.
    pub key: &'static str,
    /// Further signed attributes.
    pub attributes: Vec<Vec<u8>>,
    pub unsigned: Vec<Vec<u8>>,
    /// Changes the digest in the attributes.
    pub digests_other_content: bool,
}

pub fn signer(certificate: &Certificate) -> Signer {
    let (key, certificate) = (certificate.name, certificate.clone());
    let (attributes, unsigned) = (Vec::new(), Vec::new());
    Signer { certificate, key, attributes, unsigned, digests_other_content: false }
}

impl Signer {
    /// The signature of content of a type, and the structure that contains it.
    fn sign(&self, content_type: Option<&str>, content: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut digest = Sha256::digest(content).to_vec();
        digest[0] ^= u8::from(self.digests_other_content);
        let mut attributes = self.attributes.clone();
        attributes.push(attribute(MESSAGE_DIGEST, &element(OCTETS, &[&digest])));
        attributes.extend(content_type.map(|kind| attribute(CONTENT_TYPE, &oid(kind))));
        let signature = sign(self.key, &set(attributes.clone(), SET));
        let id = element(SEQUENCE, &[&name(self.certificate.issuer), &self.certificate.serial()]);
        let mut parts = vec![
            element(2, &[&[1]]),
            id,
            algorithm(SHA256),
            set(attributes, 0xa0),
            algorithm(ECDSA_SHA256),
            element(OCTETS, &[&signature]),
        ];
        if !self.unsigned.is_empty() {
            parts.push(set(self.unsigned.clone(), 0xa1));
        }
        (signature, element(SEQUENCE, &[&parts.concat()]))
    }

    pub fn signature(&self, content_type: &str, content: &[u8]) -> Vec<u8> {
        self.sign(Some(content_type), content).0
    }
}

/// A container with one signer and its certificate. `content` is an element, whose contents are
/// signed.
pub fn signed_data(content_type: &str, content: &[u8], signer: &Signer, others: &[Certificate]) -> Vec<u8> {
    let certificates: Vec<Vec<u8>> =
        std::iter::once(&signer.certificate).chain(others).map(Certificate::der).collect();
    signed_data_with(content_type, content, signer, &certificates)
}

/// A container with these encoded certificates.
pub fn signed_data_with(
    content_type: &str,
    content: &[u8],
    signer: &Signer,
    certificates: &[Vec<u8>],
) -> Vec<u8> {
    let header = if content[1] < 0x80 { 2 } else { 2 + usize::from(content[1] & 0x7f) };
    let (_, info) = signer.sign(Some(content_type), &content[header..]);
    let data = element(
        SEQUENCE,
        &[
            &element(2, &[&[1]]),
            &element(SET, &[&algorithm(SHA256)]),
            &element(SEQUENCE, &[&oid(content_type), &element(0xa0, &[content])]),
            &element(0xa0, &[&certificates.concat()]),
            &element(SET, &[&info]),
        ],
    );
    element(SEQUENCE, &[&oid(SIGNED_DATA), &element(0xa0, &[&data])])
}

/// The content of a signature of a file with this digest.
pub fn indirect_data(digest: &[u8]) -> Vec<u8> {
    let kind = element(SEQUENCE, &[&oid(PE_IMAGE), &element(SEQUENCE, &[&element(3, &[&[0]])])]);
    let digest = element(SEQUENCE, &[&algorithm(SHA256), &element(OCTETS, &[digest])]);
    element(SEQUENCE, &[&kind, &digest])
}

/// An unsigned attribute with a nested signature.
pub fn nested(signature: &[u8]) -> Vec<u8> {
    attribute(NESTED, signature)
}

/// An unsigned attribute with a token of RFC 3161 about a signature.
pub fn token(signature: &[u8], at: &str, authority: &Signer, others: &[Certificate]) -> Vec<u8> {
    let digest = Sha256::digest(signature);
    let imprint = element(SEQUENCE, &[&algorithm(SHA256), &element(OCTETS, &[&digest])]);
    let one = element(2, &[&[1]]);
    let info = element(SEQUENCE, &[&one, &oid("1.2.3"), &imprint, &one, &element(0x18, &[at.as_bytes()])]);
    attribute(TOKEN, &signed_data(TST_INFO, &element(OCTETS, &[&info]), authority, others))
}

/// An unsigned attribute with a countersignature of PKCS #9.
pub fn countersignature(signature: &[u8], at: &str, authority: &Signer) -> Vec<u8> {
    let attributes = vec![attribute(SIGNING_TIME, &time(at))];
    let authority = Signer { attributes, ..authority.clone() };
    attribute(COUNTERSIGNATURE, &authority.sign(None, signature).1)
}

/// Offsets in the headers of generated 64-bit images.
const CHECKSUM: usize = 0x40 + 24 + 64;
const CERTIFICATES: usize = 0x40 + 24 + 112 + 8 * 4;

/// The digest of an image without signatures, for signing.
pub fn digest(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    image.resize(image.len().next_multiple_of(8), 0);
    image.drain(CERTIFICATES..CERTIFICATES + 8);
    image.drain(CHECKSUM..CHECKSUM + 4);
    Sha256::digest(&image).to_vec()
}

/// Adds signatures to an image.
pub fn with_signatures(image: &[u8], signatures: &[Vec<u8>]) -> Vec<u8> {
    let mut image = image.to_vec();
    image.resize(image.len().next_multiple_of(8), 0);
    let start = image.len() as u32;
    for signature in signatures {
        let length = 8 + signature.len() as u32;
        image.extend(length.to_le_bytes());
        image.extend([0x00, 0x02, 0x02, 0x00]);
        image.extend(signature);
        image.resize(image.len().next_multiple_of(8), 0);
    }
    let size = image.len() as u32 - start;
    image[CERTIFICATES..CERTIFICATES + 4].copy_from_slice(&start.to_le_bytes());
    image[CERTIFICATES + 4..CERTIFICATES + 8].copy_from_slice(&size.to_le_bytes());
    image
}

/// A version resource with these texts, at an address.
pub fn version_resource(rva: u32, texts: &[(&str, &str)]) -> Vec<u8> {
    fn block(key: &str, value: &[u8], value_length: u16, kind: u16, children: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; 6];
        bytes.extend(key.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(value);
        for child in children {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(child);
        }
        let length = bytes.len() as u16;
        bytes[..2].copy_from_slice(&length.to_le_bytes());
        bytes[2..4].copy_from_slice(&value_length.to_le_bytes());
        bytes[4..6].copy_from_slice(&kind.to_le_bytes());
        bytes
    }
    let text = |(key, value): &(&str, &str)| {
        let units: Vec<u16> = value.encode_utf16().chain([0]).collect();
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        block(key, &bytes, units.len() as u16, 1, &[])
    };
    let table = block("040904b0", &[], 0, 1, &texts.iter().map(text).collect::<Vec<_>>());
    let strings = block("StringFileInfo", &[], 0, 1, &[table]);
    let translation = block("Translation", &[0x09, 0x04, 0xb0, 0x04], 4, 0, &[]);
    let languages = block("VarFileInfo", &[], 0, 1, &[translation]);
    let mut fixed = vec![0; 52];
    fixed[..8].copy_from_slice(&[0xbd, 0x04, 0xef, 0xfe, 0, 0, 1, 0]);
    let info = block("VS_VERSION_INFO", &fixed, 52, 0, &[strings, languages]);
    // Three directories of one entry each, then the location of the data.
    let mut bytes = Vec::new();
    for (id, next) in [(16_u32, 0x8000_0018_u32), (1, 0x8000_0030), (0x409, 0x48)] {
        bytes.extend([0; 12]);
        bytes.extend([0, 0, 1, 0]);
        bytes.extend(id.to_le_bytes());
        bytes.extend(next.to_le_bytes());
    }
    for word in [rva + 0x58, info.len() as u32, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    [bytes, info].concat()
}
