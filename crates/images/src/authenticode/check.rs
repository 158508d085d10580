//! The check of one Authenticode signature.

use der::asn1::ObjectIdentifier;

use super::asn1::{Element, OCTET_STRING, SEQUENCE};
use super::certificate::{CODE_SIGNING, Certificate, display_name};
use super::chain::{Budget, Pool, Search, is_valid_at};
use super::digest::{Digests, Hash};
use super::signed_data::{SignedData, Signer, Verified};
use super::timestamp;
use crate::facts::{SignatureReason, SignatureState};
use crate::report::{SignatureReport, unknown};
use crate::trust::Checks;

/// The content of a signature of a file: its digest.
const INDIRECT_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.4");
/// The kind of file: a PE image.
const PE_IMAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.15");
/// Further signatures of the same file.
const NESTED: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.4.1");

/// Checks a signature. Returns the signatures nested in it, too.
pub(super) fn signature(
    blob: &[u8],
    digests: &mut Digests<'_>,
    checks: &Checks<'_>,
    budget: &mut Budget,
) -> (SignatureReport, Vec<Vec<u8>>) {
    let Some(data) = SignedData::read(blob) else {
        return (unknown(SignatureReason::Malformed), Vec::new());
    };
    // A signature of a file has exactly one signer.
    let ([signer], Some((algorithm, digest))) = (&*data.signers, signed_digest(&data)) else {
        return (unknown(SignatureReason::Malformed), Vec::new());
    };
    let hash = Hash::of(&algorithm);
    let certificate = signer.certificate(&data.certificates);
    let mut report = SignatureReport {
        digest_algorithm: hash.map(Hash::name),
        digest: digest.to_vec(),
        timestamp: timestamp::of(signer, &data, checks.trust, budget),
        ..SignatureReport::default()
    };
    if let Some(certificate) = certificate {
        report.signature.signer = display_name(certificate.subject());
        report.issuer = display_name(certificate.issuer());
        report.serial = certificate.serial().to_vec();
        report.thumbprint = Some(certificate.thumbprint());
        report.validity = Some(certificate.validity_times());
    }
    let is_same = hash.map(|hash| digests.of(hash) == digest);
    let (state, reason) = state(&data, signer, certificate, is_same, &report, checks, budget);
    (report.signature.state, report.signature.reason) = (state, reason);
    (report, signer.unsigned(NESTED).collect())
}

fn state(
    data: &SignedData<'_>,
    signer: &Signer,
    certificate: Option<&Certificate>,
    is_same: Option<bool>,
    report: &SignatureReport,
    checks: &Checks<'_>,
    budget: &mut Budget,
) -> (SignatureState, Option<SignatureReason>) {
    let invalid = |reason| (SignatureState::Invalid, Some(reason));
    let unsupported = (SignatureState::Unknown, Some(SignatureReason::UnsupportedAlgorithm));
    let undecided = (SignatureState::Unknown, Some(SignatureReason::Malformed));
    let certificate = match certificate {
        Some(certificate) => certificate,
        None if data.has_unreadable => return undecided,
        None => return invalid(SignatureReason::SignerMissing),
    };
    match is_same {
        None => return unsupported,
        Some(false) => return invalid(SignatureReason::DigestMismatch),
        Some(true) => {}
    }
    if !budget.take() {
        return undecided;
    }
    match signer.verify(certificate, data.content.contents, Some(INDIRECT_DATA)) {
        Verified::Yes => {}
        Verified::OtherContent => return invalid(SignatureReason::AttributesMismatch),
        Verified::BadSignature => return invalid(SignatureReason::BadSignature),
        Verified::Unsupported => return unsupported,
    }
    if !certificate.permits(CODE_SIGNING) {
        return invalid(SignatureReason::NotForCode);
    }
    let stamp = report.timestamp.as_ref().filter(|_| !certificate.is_for_its_lifetime());
    let time = stamp.filter(|stamp| stamp.is_verified).map_or(checks.time, |stamp| stamp.time).to_unix().0;
    if let Err(reason) = is_valid_at(certificate, time) {
        // If only the root of the time stamp is unknown, the certificate may have been valid.
        let unproven = stamp.filter(|stamp| is_valid_at(certificate, stamp.time.to_unix().0).is_ok());
        return match unproven.and_then(|stamp| stamp.reason) {
            Some(SignatureReason::Malformed) => undecided,
            Some(unknown_root) => (SignatureState::RootNotTrusted, Some(unknown_root)),
            None => invalid(reason),
        };
    }
    let Some(trust) = checks.trust else { return (SignatureState::RootNotChecked, None) };
    let pool = Pool::of(&[data]);
    match (Search { pool: &pool, trust, time, usage: CODE_SIGNING }).root(certificate, budget) {
        Ok(()) => (SignatureState::Valid, None),
        Err(SignatureReason::Malformed) => undecided,
        Err(reason @ (SignatureReason::Expired | SignatureReason::NotYetValid)) => invalid(reason),
        Err(reason) => (SignatureState::RootNotTrusted, Some(reason)),
    }
}

/// The hash algorithm and the digest of the image file that a signature is about.
fn signed_digest<'a>(data: &SignedData<'a>) -> Option<(ObjectIdentifier, &'a [u8])> {
    if data.content_type != INDIRECT_DATA || data.content.tag != SEQUENCE {
        return None;
    }
    let mut parts = data.content.children();
    let kind = parts.next().filter(|kind| kind.tag == SEQUENCE)?.children().next()?.oid()?;
    let mut digest = parts.next().filter(|digest| digest.tag == SEQUENCE && kind == PE_IMAGE)?.contents;
    let algorithm = Element::expect(&mut digest, SEQUENCE)?.children().next()?.oid()?;
    Some((algorithm, Element::expect(&mut digest, OCTET_STRING)?.contents))
}
