//! Time stamps of signatures: tokens of RFC 3161, and countersignatures of PKCS #9.

use der::asn1::ObjectIdentifier;
use der::{Any, DateTime, Decode, Encode};
use stackhound_types::FileTime;

use super::asn1::{self, Element, GENERALIZED_TIME, INTEGER, OCTET_STRING, SEQUENCE};
use super::certificate::{TIME_STAMPING, display_name};
use super::chain::{Budget, Pool, Search, is_valid_at};
use super::digest::Hash;
use super::signed_data::{SignedData, Signer, Verified};
use crate::facts::SignatureReason;
use crate::report::Timestamp;
use crate::trust::Trust;

/// A token of RFC 3161.
const TOKEN: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.3.3.1");
const COUNTERSIGNATURE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.6");
const SIGNING_TIME: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.5");
const TST_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.1.4");
/// Maximum number of time stamps that are examined.
const TIMESTAMPS_MAX: usize = 4;

/// The time stamp of a signature: the first verified one, otherwise the first readable one.
/// `signed` is the container of the signature, with certificates.
pub(super) fn of(
    signer: &Signer,
    signed: &SignedData<'_>,
    trust: Option<&Trust>,
    budget: &mut Budget,
) -> Option<Timestamp> {
    let signature = signer.info.signature.as_bytes();
    let tokens = signer.unsigned(TOKEN).take(TIMESTAMPS_MAX).filter_map(|token| {
        let data = SignedData::read(&token)?;
        let (time, is_about_it) = token_time(&data, signature)?;
        let signer = data.signers.first()?;
        let content = (data.content.contents, Some(TST_INFO));
        let pool = Pool::of(&[&data, signed]);
        let stamp = stamp(signer, content, &pool, time, trust, budget);
        let reason = stamp.reason.filter(|_| is_about_it);
        Some(Timestamp { is_verified: stamp.is_verified && is_about_it, reason, ..stamp })
    });
    let mut found: Vec<Timestamp> = tokens.collect();
    let pool = Pool::of(&[signed]);
    for countersignature in signer.unsigned(COUNTERSIGNATURE).take(TIMESTAMPS_MAX) {
        let counter = asn1::limited(&countersignature).and_then(|element| Signer::read(element.whole));
        let time = counter.as_ref().and_then(|counter| signing_time(counter.signed(SIGNING_TIME)?));
        if let (Some(counter), Some(time)) = (counter, time) {
            found.push(stamp(&counter, (signature, None), &pool, time, trust, budget));
        }
    }
    let best = found.iter().position(|stamp| stamp.is_verified).unwrap_or(0);
    (!found.is_empty()).then(|| found.swap_remove(best))
}

/// Checks the signature of a time stamp over some content.
fn stamp(
    signer: &Signer,
    (content, content_type): (&[u8], Option<ObjectIdentifier>),
    pool: &Pool<'_>,
    time: i64,
    trust: Option<&Trust>,
    budget: &mut Budget,
) -> Timestamp {
    let certificate = signer.certificate(pool.certificates.iter().copied());
    let undecided = Some(SignatureReason::Malformed);
    let result = match certificate {
        None => Err(undecided.filter(|_| pool.has_unreadable)),
        Some(certificate)
            if !certificate.states(TIME_STAMPING) || is_valid_at(certificate, time).is_err() =>
        {
            Err(None)
        }
        Some(_) if !budget.take() => Err(undecided),
        Some(certificate) if signer.verify(certificate, content, content_type) != Verified::Yes => Err(None),
        Some(certificate) => trust.map_or(Ok(()), |trust| {
            Search { pool, trust, time, usage: TIME_STAMPING }.root(certificate, budget).map_err(Some)
        }),
    };
    let (is_verified, reason) = (result.is_ok(), result.err().flatten());
    let signer = certificate.and_then(|certificate| display_name(certificate.subject()));
    Timestamp { time: FileTime::from_unix(time), is_verified, reason, signer }
}

/// The time in a token in seconds since 1970, and whether the token is about a signature.
fn token_time(token: &SignedData<'_>, signature: &[u8]) -> Option<(i64, bool)> {
    if token.content_type != TST_INFO || token.content.tag != OCTET_STRING {
        return None;
    }
    let info = asn1::limited(token.content.contents).filter(|element| element.tag == SEQUENCE)?;
    let mut fields = info.contents;
    Element::expect(&mut fields, INTEGER)?;
    Element::take(&mut fields)?.oid()?;
    let mut imprint = Element::expect(&mut fields, SEQUENCE)?.contents;
    Element::expect(&mut fields, INTEGER)?;
    let time = Element::expect(&mut fields, GENERALIZED_TIME)?;
    let algorithm = Element::expect(&mut imprint, SEQUENCE)?.children().next()?.oid()?;
    let digest = Element::expect(&mut imprint, OCTET_STRING)?.contents;
    let is_about_it = Hash::of(&algorithm).is_some_and(|hash| hash.digest(&[signature]) == digest);
    Some((seconds(time.contents)?, is_about_it))
}

/// A time such as `20240131123000Z` or `20240131123000.5Z`, in seconds since 1970.
fn seconds(time: &[u8]) -> Option<i64> {
    let (digits, rest) = time.split_at_checked(14)?;
    if rest.last() != Some(&b'Z') {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        digits[range].iter().try_fold(0_u16, |number, digit| {
            Some(10 * number + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?))
        })
    };
    let small = |at: usize| number(at..at + 2).and_then(|number| u8::try_from(number).ok());
    let date = DateTime::new(number(0..4)?, small(4)?, small(6)?, small(8)?, small(10)?, small(12)?).ok()?;
    i64::try_from(date.unix_duration().as_secs()).ok()
}

fn signing_time(value: &Any) -> Option<i64> {
    let time = x509_cert::time::Time::from_der(&value.to_der().ok()?).ok()?;
    i64::try_from(time.to_unix_duration().as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_have_fractions() {
        for (text, expected) in [
            ("19700101000001Z", Some(1)),
            ("20000101000000.123456Z", Some(946_684_800)),
            ("20000101000000", None),
            ("2000010100000Z", None),
            ("20001301000000Z", None),
            ("2000-1-100000Z", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), expected, "{text}");
        }
    }
}
