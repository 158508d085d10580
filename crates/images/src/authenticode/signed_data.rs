//! The container of signatures, `SignedData` of the Cryptographic Message Syntax.

use cms::signed_data::{SignerIdentifier, SignerInfo};
use der::asn1::ObjectIdentifier;
use der::{Any, Decode, Encode, Tag, Tagged};
use x509_cert::attr::Attributes;

use super::asn1::{self, CONTEXT_0, CONTEXT_1, Element, INTEGER, SEQUENCE, SET};
use super::certificate::{Certificate, Unsupported};
use super::digest::Hash;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");

/// A container with its content, certificates and signers.
#[derive(Debug)]
pub(super) struct SignedData<'a> {
    pub content_type: ObjectIdentifier,
    /// The element with the content. Its contents are hashed.
    pub content: Element<'a>,
    /// The readable certificates.
    pub certificates: Vec<Certificate>,
    /// Whether there are further certificates, any of which may be the one that is looked for.
    pub has_unreadable: bool,
    pub signers: Vec<Signer>,
}

/// A signer with its attributes.
#[derive(Debug)]
pub(super) struct Signer {
    pub info: SignerInfo,
    /// The encoding of the signed attributes that is signed.
    signed_attributes: Vec<u8>,
}

/// The result of checking the signature of a signer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verified {
    Yes,
    /// The attributes are about other content.
    OtherContent,
    BadSignature,
    Unsupported,
}

impl<'a> SignedData<'a> {
    /// Reads a container. `None` if it is damaged or exceeds a limit.
    pub fn read(bytes: &'a [u8]) -> Option<SignedData<'a>> {
        let mut info = asn1::limited(bytes).filter(|element| element.tag == SEQUENCE)?.contents;
        let kind = Element::take(&mut info)?.oid().filter(|oid| *oid == SIGNED_DATA);
        kind?;
        let mut wrapped = Element::expect(&mut info, CONTEXT_0)?.contents;
        let mut data = Element::expect(&mut wrapped, SEQUENCE)?.contents;
        Element::expect(&mut data, INTEGER)?;
        Element::expect(&mut data, SET)?;
        let mut content = Element::expect(&mut data, SEQUENCE)?.contents;
        let content_type = Element::take(&mut content)?.oid()?;
        let mut wrapped = Element::expect(&mut content, CONTEXT_0)?.contents;
        let content = Element::take(&mut wrapped)?;
        let (mut certificates, mut has_unreadable) = (Vec::new(), false);
        let listed = Element::optional(&mut data, CONTEXT_0);
        // Attribute certificates have other tags.
        for element in listed.iter().flat_map(Element::children).filter(|element| element.tag == SEQUENCE) {
            match Certificate::read(element.whole) {
                Some(certificate) => certificates.push(certificate),
                None => has_unreadable = true,
            }
        }
        Element::optional(&mut data, CONTEXT_1);
        let signers = Element::expect(&mut data, SET)?.children();
        let signers = signers.map(|signer| Signer::read(signer.whole)).collect::<Option<Vec<_>>>()?;
        Some(SignedData { content_type, content, certificates, has_unreadable, signers })
    }
}

impl Signer {
    /// Reads a signer, whose size was limited before.
    pub fn read(bytes: &[u8]) -> Option<Signer> {
        let info = SignerInfo::from_der(bytes).ok()?;
        // After the version, the identifier and the hash algorithm.
        let element = Element::take(&mut &*bytes)?;
        let attributes = element.children().nth(3).filter(|element| element.tag == CONTEXT_0);
        let signed_attributes = attributes.map_or(Vec::new(), |attributes| {
            // They are signed as a set, not with the tag that they have here.
            let mut set = attributes.whole.to_vec();
            set[0] = SET;
            set
        });
        Some(Signer { info, signed_attributes })
    }

    /// The hash algorithm of the signer.
    pub fn hash(&self) -> Option<Hash> {
        Hash::of(&self.info.digest_alg.oid)
    }

    /// The certificate of the signer.
    pub fn certificate<'c>(
        &self,
        pool: impl IntoIterator<Item = &'c Certificate>,
    ) -> Option<&'c Certificate> {
        pool.into_iter().find(|certificate| match &self.info.sid {
            SignerIdentifier::IssuerAndSerialNumber(id) => {
                *certificate.issuer() == id.issuer && certificate.serial() == id.serial_number.as_bytes()
            }
            SignerIdentifier::SubjectKeyIdentifier(id) => {
                certificate.key_id().is_some_and(|key| key == id.0.as_bytes())
            }
        })
    }

    /// The only value of a signed attribute.
    pub fn signed(&self, oid: ObjectIdentifier) -> Option<&Any> {
        let mut values = values(self.info.signed_attrs.as_ref(), oid);
        values.next().filter(|_| values.next().is_none())
    }

    /// The values of an unsigned attribute, each as its encoding.
    pub fn unsigned(&self, oid: ObjectIdentifier) -> impl Iterator<Item = Vec<u8>> {
        values(self.info.unsigned_attrs.as_ref(), oid).filter_map(|value| value.to_der().ok())
    }

    /// Checks the signature of content of a type. `content_type` is `None` if the attributes need
    /// not state it.
    pub fn verify(
        &self,
        certificate: &Certificate,
        content: &[u8],
        content_type: Option<ObjectIdentifier>,
    ) -> Verified {
        let Some(hash) = self.hash() else { return Verified::Unsupported };
        let signed = if self.signed_attributes.is_empty() {
            content
        } else {
            let digest = self.signed(MESSAGE_DIGEST).filter(|value| value.tag() == Tag::OctetString);
            let stated_type =
                self.signed(CONTENT_TYPE).and_then(|any| any.decode_as::<ObjectIdentifier>().ok());
            let is_same = digest.is_some_and(|digest| digest.value() == hash.digest(&[content]));
            if !is_same || content_type.is_some() && stated_type != content_type {
                return Verified::OtherContent;
            }
            &self.signed_attributes
        };
        let (algorithm, signature) = (&self.info.signature_algorithm, self.info.signature.as_bytes());
        match certificate.verifies(algorithm, Some(hash), signed, signature) {
            Ok(true) => Verified::Yes,
            Ok(false) => Verified::BadSignature,
            Err(Unsupported) => Verified::Unsupported,
        }
    }
}

fn values(attributes: Option<&Attributes>, oid: ObjectIdentifier) -> impl Iterator<Item = &Any> {
    let attributes = attributes.into_iter().flat_map(|attributes| attributes.iter());
    attributes.filter(move |attribute| attribute.oid == oid).flat_map(|attribute| attribute.values.iter())
}
