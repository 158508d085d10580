//! The facts in the bytes of an image file.

use stackhound_symbols::image::{DebugEntry, Image, ImageError, Machine};
use stackhound_types::{ImageIdentity, PdbIdentity};

use crate::facts::{FactSource, ImageFacts, Signature, SignatureState, VersionInfo};
use crate::headers::Headers;
use crate::report::{Hashes, SignatureReport};
use crate::trust::Checks;
use crate::version;

/// The facts in an image file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageFile {
    /// The processor.
    pub machine: Machine,
    /// Time stamp and size in the header.
    pub identity: ImageIdentity,
    /// The PDB; for a .NET assembly without one, the portable PDB.
    pub pdb: Option<PdbIdentity>,
    /// Size of the file in bytes.
    pub size: u64,
    /// The hashes. `None` without the feature `authenticode`.
    pub hashes: Option<Hashes>,
    /// Texts of the version resource; `None` if it has none.
    pub version: Option<VersionInfo>,
    /// Whether it has a CLI header: it is a .NET assembly.
    pub is_dotnet: bool,
    /// The first signature, which Windows checks. If there is none, it says so.
    pub signature: Signature,
    /// All embedded signatures: each followed by those nested in it.
    pub signatures: Vec<SignatureReport>,
}

impl ImageFile {
    /// Reads an image file.
    ///
    /// Costs four hashes of the file, and two further ones if signatures use other algorithms.
    ///
    /// # Errors
    /// If the bytes are not a PE image.
    pub fn read(bytes: &[u8], checks: &Checks<'_>) -> Result<ImageFile, ImageError> {
        let image = Image::parse(bytes)?;
        let headers = Headers::read(bytes).ok_or(ImageError::NotAnImage("the headers are truncated"))?;
        let (hashes, signatures) = signatures(bytes, &headers, checks);
        Ok(ImageFile {
            machine: image.machine(),
            identity: image.identity(),
            pdb: pdb(&image),
            size: bytes.len() as u64,
            hashes,
            version: version::read(&image, headers.resources),
            is_dotnet: headers.cli_header.at != 0 && headers.cli_header.size != 0,
            signature: match signatures.first() {
                Some(report) => report.signature.clone(),
                None => Signature { state: SignatureState::NotEmbedded, ..Signature::default() },
            },
            signatures,
        })
    }

    /// The facts in the form that they have for all sources.
    pub fn facts(&self, source: FactSource) -> ImageFacts {
        ImageFacts {
            source,
            signature: Some(self.signature.clone()),
            version: self.version.clone().unwrap_or_default(),
            is_dotnet: Some(self.is_dotnet),
        }
    }
}

/// The PDB, otherwise the portable PDB.
fn pdb(image: &Image<'_>) -> Option<PdbIdentity> {
    let portable = |entry| if let DebugEntry::PortablePdb(pdb) = entry { Some(pdb) } else { None };
    image.pdb().or_else(|| image.debug_entries().into_iter().find_map(portable))
}

#[cfg(feature = "authenticode")]
use crate::authenticode::signatures;

#[cfg(not(feature = "authenticode"))]
fn signatures(bytes: &[u8], headers: &Headers, _: &Checks<'_>) -> (Option<Hashes>, Vec<SignatureReport>) {
    use crate::facts::SignatureReason;

    let report = |_| crate::report::unknown(SignatureReason::NotBuilt);
    (None, headers.certificate_table(bytes).map(report).into_iter().collect())
}
