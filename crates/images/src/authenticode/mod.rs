//! Authenticode: the signatures in the certificate table of an image file.
//!
//! | module | topic |
//! |---|---|
//! | `asn1` | elements of the encoding, and limits |
//! | `digest` | hash algorithms, and the digest of an image file |
//! | `certificate` | certificates, keys, names |
//! | `signed_data` | the container of signatures |
//! | `chain` | from a certificate to a trusted root |
//! | `timestamp` | time stamps by RFC 3161 and PKCS #9 |
//! | `check` | the check of one signature |

mod asn1;
mod certificate;
mod chain;
mod check;
mod digest;
mod signed_data;
mod timestamp;

pub(crate) use certificate::Certificate;

use std::collections::VecDeque;

use crate::facts::SignatureReason;
use crate::headers::{Headers, u32_at};
use crate::report::{Hashes, SignatureReport, unknown};
use crate::trust::Checks;
use chain::Budget;
use digest::Digests;

/// Maximum number of signatures, with nested ones. Files with more than three are not known.
const SIGNATURES_MAX: usize = 16;
/// The type of entries of the certificate table that contain PKCS #7 data.
const PKCS_SIGNED_DATA: u16 = 2;
/// Size of the header of an entry.
const ENTRY_HEADER: usize = 8;

/// The hashes and signatures of an image file.
pub(crate) fn signatures(
    bytes: &[u8],
    headers: &Headers,
    checks: &Checks<'_>,
) -> (Option<Hashes>, Vec<SignatureReport>) {
    let table = headers.certificate_table(bytes);
    let located = table.as_ref().and_then(|table| table.as_ref().ok()).cloned();
    let mut digests = Digests::new(bytes, headers, located.clone());
    let reports = match (table, located) {
        (None, _) => Vec::new(),
        (Some(_), None) => vec![unknown(SignatureReason::Malformed)],
        (Some(_), Some(table)) => table_signatures(&bytes[table], &mut digests, checks),
    };
    (Some(digests.hashes()), reports)
}

fn table_signatures(
    mut table: &[u8],
    digests: &mut Digests<'_>,
    checks: &Checks<'_>,
) -> Vec<SignatureReport> {
    let mut reports = Vec::new();
    // A small limit of expensive operations for all signatures together.
    let mut budget = Budget::new();
    while reports.len() < SIGNATURES_MAX
        && let Some(length) = u32_at(table, 0)
    {
        let (length, kind) = (length as usize, table.get(6..8));
        let Some(entry) = table.get(ENTRY_HEADER..length) else {
            reports.push(unknown(SignatureReason::Malformed));
            break;
        };
        // The length is a multiple of eight, but not in all files.
        table = table.get(length.next_multiple_of(8)..).unwrap_or_default();
        if kind != Some(&PKCS_SIGNED_DATA.to_le_bytes()) {
            continue;
        }
        // Nested signatures can contain nested ones.
        let mut left = VecDeque::from([(entry.to_vec(), false)]);
        while reports.len() < SIGNATURES_MAX
            && let Some((blob, is_nested)) = left.pop_front()
        {
            let (report, nested) = check::signature(&blob, digests, checks, &mut budget);
            reports.push(SignatureReport { is_nested, ..report });
            left.extend(nested.into_iter().map(|blob| (blob, true)));
        }
    }
    if reports.is_empty() {
        reports.push(unknown(SignatureReason::Malformed));
    }
    reports
}
