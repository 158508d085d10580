//! Trusted root certificates, and the settings of the check of signatures.

use stackhound_types::FileTime;

#[cfg(feature = "authenticode")]
use crate::authenticode::Certificate;

/// Root certificates that a valid signature must lead to.
#[derive(Debug, Default)]
pub struct Trust {
    #[cfg(feature = "authenticode")]
    pub(crate) roots: Vec<Certificate>,
}

/// The settings of the check of signatures.
#[derive(Clone, Copy, Debug)]
pub struct Checks<'t> {
    /// The trusted roots. Without them, no signature is valid, only intact.
    pub trust: Option<&'t Trust>,
    /// The current time. Certificates of signatures without a time stamp must be valid then.
    pub time: FileTime,
}

/// Why a file of root certificates cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrustError {
    /// The bytes contain no certificate.
    #[error("expected X.509 certificates in PEM or DER, found none")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("certificate {0} of the file cannot be read; expected X.509 in PEM or DER")]
    Unreadable(usize),
    /// There are more certificates than the limit.
    #[error("expected at most {ROOTS_MAX} root certificates, found more")]
    TooMany,
    /// The program was built without the feature `authenticode`.
    #[error("this program was built without support for signatures (feature `authenticode`)")]
    NotBuilt,
}

/// Maximum number of root certificates. Windows knows about 500.
const ROOTS_MAX: usize = 4096;

impl Trust {
    /// Adds the certificates of a file: any number in PEM, or one in DER. Returns their number.
    ///
    /// # Errors
    /// If there is none, or if one cannot be read. No certificate is added then.
    #[cfg(feature = "authenticode")]
    pub fn add(&mut self, bytes: &[u8]) -> Result<usize, TrustError> {
        let blocks = pem_blocks(bytes);
        let count = blocks.len().max(1);
        if self.roots.len() + count > ROOTS_MAX {
            return Err(TrustError::TooMany);
        }
        let roots = match &*blocks {
            [] => vec![Certificate::read(bytes).ok_or(TrustError::NoCertificate)?],
            blocks => (1..).zip(blocks).map(pem_certificate).collect::<Result<_, _>>()?,
        };
        self.roots.extend(roots);
        Ok(count)
    }

    /// Without the feature `authenticode`, no certificate can be read.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "authenticode"))]
    pub fn add(&mut self, _: &[u8]) -> Result<usize, TrustError> {
        Err(TrustError::NotBuilt)
    }
}

/// The certificate in a PEM block with this number.
#[cfg(feature = "authenticode")]
fn pem_certificate((number, block): (usize, &String)) -> Result<Certificate, TrustError> {
    let certificate = match der::pem::decode_vec(block.as_bytes()) {
        Ok(("CERTIFICATE", bytes)) => Certificate::read(&bytes),
        _ => None,
    };
    certificate.ok_or(TrustError::Unreadable(number))
}

/// The PEM blocks of a text, without the lines between them.
#[cfg(feature = "authenticode")]
fn pem_blocks(bytes: &[u8]) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        rest = &rest[start..];
        let end = rest.find(END).map_or(rest.len(), |end| end + END.len());
        blocks.push(format!("{}\n", &rest[..end]));
        rest = &rest[end..];
    }
    blocks
}
