//! The chain from a certificate to a trusted root.

use der::asn1::ObjectIdentifier;

use super::certificate::Certificate;
use crate::facts::SignatureReason;
use crate::trust::Trust;

/// Maximum number of issuers in a chain.
const ISSUERS_MAX: usize = 8;
/// Maximum number of signatures that are verified for one image.
const VERIFICATIONS_MAX: usize = 256;

/// The number of signatures that may still be verified. Each takes up to a few milliseconds.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub fn new() -> Budget {
        Budget(VERIFICATIONS_MAX)
    }

    /// Whether one more signature may be verified.
    pub fn take(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

/// The search for a chain.
pub(super) struct Search<'a> {
    /// Certificates of the signature, none of which is trusted.
    pub pool: &'a [&'a Certificate],
    pub trust: &'a Trust,
    /// The time at which all certificates must be valid, in seconds since 1970.
    pub time: i64,
    /// The purpose that all issuers must permit.
    pub usage: ObjectIdentifier,
}

impl Search<'_> {
    /// Whether a certificate leads to a trusted root; otherwise the reason.
    pub fn root(&self, certificate: &Certificate, budget: &mut Budget) -> Result<(), SignatureReason> {
        self.search(certificate, 0, budget)
    }

    /// `issuers` is the number of issuers below the certificate.
    fn search(
        &self,
        certificate: &Certificate,
        issuers: usize,
        budget: &mut Budget,
    ) -> Result<(), SignatureReason> {
        if self.trust.roots.contains(certificate) {
            return Ok(());
        }
        let mut reason = match certificate.is_self_issued() {
            true => SignatureReason::OtherRoot,
            false => SignatureReason::IssuerMissing,
        };
        let roots = self.trust.roots.iter().map(|root| (root, true));
        let others = self.pool.iter().map(|other| (*other, false));
        for (issuer, is_root) in roots.chain(others) {
            let may_issue = issuer.subject() == certificate.issuer()
                && issuer != certificate
                && issuer.may_issue(issuers)
                && (is_root || issuer.permits(self.usage));
            if !may_issue || !budget.take() || issuer.has_signed(certificate) != Ok(true) {
                continue;
            }
            if let Err(wrong_time) = is_valid_at(issuer, self.time) {
                reason = wrong_time;
                continue;
            }
            if is_root {
                return Ok(());
            }
            if issuers >= ISSUERS_MAX {
                continue;
            }
            match self.search(issuer, issuers + 1, budget) {
                Ok(()) => return Ok(()),
                Err(other) => reason = other,
            }
        }
        Err(reason)
    }
}

/// Whether a certificate is valid at a time, in seconds since 1970; otherwise the reason.
pub(super) fn is_valid_at(certificate: &Certificate, time: i64) -> Result<(), SignatureReason> {
    let (start, end) = certificate.validity();
    match time {
        time if time < start => Err(SignatureReason::NotYetValid),
        time if time > end => Err(SignatureReason::Expired),
        _ => Ok(()),
    }
}
