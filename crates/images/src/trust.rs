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
pub const ROOTS_MAX: usize = 4096;

impl Trust {
    /// Adds the certificates of a file: any number in PEM, or one in DER. Returns their number.
    ///
    /// # Errors
    /// If there is none, or if one cannot be read. No certificate is added then.
    #[cfg(feature = "authenticode")]
    pub fn add(&mut self, bytes: &[u8]) -> Result<usize, TrustError> {
        let found = match pem_blocks(bytes) {
            blocks if blocks.is_empty() => vec![bytes.to_vec()],
            blocks => blocks
                .iter()
                .enumerate()
                .map(|(index, block)| match der::pem::decode_vec(block.as_bytes()) {
                    Ok(("CERTIFICATE", bytes)) => Ok(bytes),
                    _ => Err(TrustError::Unreadable(index + 1)),
                })
                .collect::<Result<_, _>>()?,
        };
        if self.roots.len() + found.len() > ROOTS_MAX {
            return Err(TrustError::TooMany);
        }
        let is_pem = found.len() > 1 || found.first().is_some_and(|first| first != bytes);
        let read = |(index, bytes): (usize, &Vec<u8>)| {
            let error = if is_pem { TrustError::Unreadable(index + 1) } else { TrustError::NoCertificate };
            Certificate::read(bytes).ok_or(error)
        };
        let roots = found.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        self.roots.extend(roots);
        Ok(found.len())
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
