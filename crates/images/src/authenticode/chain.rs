//! The chain from a certificate to a trusted root.

use der::asn1::ObjectIdentifier;

use super::certificate::Certificate;
use super::signed_data::SignedData;
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

/// The certificates of containers, none of which is trusted.
pub(super) struct Pool<'a> {
    pub certificates: Vec<&'a Certificate>,
    /// Whether there are further ones, which cannot be read.
    pub has_unreadable: bool,
}

impl<'a> Pool<'a> {
    pub fn of(containers: &[&'a SignedData<'_>]) -> Pool<'a> {
        Pool {
            certificates: containers.iter().flat_map(|data| &data.certificates).collect(),
            has_unreadable: containers.iter().any(|data| data.has_unreadable),
        }
    }
}

/// The search for a chain.
pub(super) struct Search<'a> {
    pub pool: &'a Pool<'a>,
    pub trust: &'a Trust,
    /// The time at which all certificates must be valid, in seconds since 1970.
    pub time: i64,
    /// The purpose that all issuers must permit.
    pub usage: ObjectIdentifier,
}

impl Search<'_> {
    /// Whether a certificate leads to a trusted root; otherwise the reason, which is
    /// [`SignatureReason::Malformed`] if it is not known, since the budget is spent or certificates
    /// cannot be read.
    pub fn root(&self, certificate: &Certificate, budget: &mut Budget) -> Result<(), SignatureReason> {
        let result = self.search(certificate, 0, budget);
        // A certificate that cannot be read may be an issuer.
        result.map_err(|reason| if self.pool.has_unreadable { SignatureReason::Malformed } else { reason })
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
        let others = self.pool.certificates.iter().map(|other| (*other, false));
        for (issuer, is_root) in roots.chain(others) {
            let may_issue = issuer.subject() == certificate.issuer()
                && issuer != certificate
                && issuer.may_issue(issuers)
                && (is_root || issuer.permits(self.usage));
            if !may_issue {
                continue;
            }
            if !budget.take() {
                return Err(SignatureReason::Malformed);
            }
            if issuer.has_signed(certificate) != Ok(true) {
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
                done @ (Ok(()) | Err(SignatureReason::Malformed)) => return done,
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
