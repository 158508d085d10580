//! Facts about image files, as `images` writes them and `hunt --image-facts` reads them, and the
//! facts about the modules of findings.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_images::{
    ImageEvidence, ImageFile, Signature, SignatureReport, SignatureState, Timestamp, VersionInfo,
};
use stackhound_symbols::image::Machine;
use stackhound_types::Guid;

use super::VERSION;
use super::value::{Bytes, Hex, Text, Time};

/// The facts in an image file: a line of `images scan` and of `images show --format ndjson`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Image<'a> {
    #[cfg_attr(test, schemars(extend("const" = "image")))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// Path of the file when it was read.
    path: &'a str,
    /// Size of the file in bytes.
    file_size: u64,
    /// The processor. Null if it is another one.
    #[cfg_attr(test, schemars(extend("enum" = ["x86", "x64", "arm64", null])))]
    machine: Option<&'static str>,
    /// Time stamp in the header of the file, or a hash in reproducible builds.
    time_date_stamp: Hex,
    /// Size in memory according to the header, in bytes.
    image_size: u32,
    /// SHA-256 of the file. Hashes are null if the program was built without them.
    sha256: Option<Bytes<'a>>,
    /// SHA-1 of the file.
    sha1: Option<Bytes<'a>>,
    /// Authenticode digest with SHA-256: the file without its checksum and signatures.
    authenticode_sha256: Option<Bytes<'a>>,
    /// Authenticode digest with SHA-1.
    authenticode_sha1: Option<Bytes<'a>>,
    /// Identity of the PDB.
    pdb: Option<Pdb<'a>>,
    /// Whether it has a CLI header: it is a .NET assembly.
    dotnet: bool,
    /// Texts of the version resource. Null if it has none.
    version: Option<Version<'a>>,
    /// The first signature, or its absence.
    signature: StatedSignature<'a>,
    /// All embedded signatures, each followed by those nested in it.
    signatures: Vec<EmbeddedSignature<'a>>,
}

/// The identity of a PDB.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Pdb<'a> {
    /// Path or file name, as the linker wrote it.
    name: &'a str,
    #[cfg_attr(test, schemars(with = "String"))]
    guid: Text<Guid>,
    age: u32,
}

/// Texts of the version resource. Its author chose them freely.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Version<'a> {
    original_file_name: Option<&'a str>,
    company: Option<&'a str>,
    product: Option<&'a str>,
    description: Option<&'a str>,
    file_version: Option<&'a str>,
}

/// The state of a signature.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct StatedSignature<'a> {
    /// `valid`: intact, and leads to a trusted root. `root-not-checked`, `root-not-trusted`: intact.
    /// `not-embedded`: a catalog may sign the file.
    #[cfg_attr(test, schemars(extend("enum" = [
        "valid", "root-not-checked", "root-not-trusted", "invalid", "unsigned", "not-embedded", "unknown"
    ])))]
    state: &'static str,
    /// The reason for a state other than valid.
    reason: Option<&'static str>,
    /// The signer: common name in the certificate.
    signer: Option<&'a str>,
}

/// A signature in the certificate table of an image file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct EmbeddedSignature<'a> {
    #[serde(flatten)]
    signature: StatedSignature<'a>,
    /// Whether it is nested in another signature.
    nested: bool,
    /// Algorithm of the signed digest. Null if it is not supported.
    digest_algorithm: Option<&'static str>,
    /// The signed digest of the file. Null if it cannot be read.
    digest: Option<Bytes<'a>>,
    /// Issuer of the signer's certificate.
    issuer: Option<&'a str>,
    /// Serial number of the signer's certificate.
    serial_number: Option<Bytes<'a>>,
    /// SHA-256 of the signer's certificate.
    thumbprint_sha256: Option<Bytes<'a>>,
    valid_from: Option<Time>,
    valid_until: Option<Time>,
    timestamp: Option<SignatureTimestamp<'a>>,
}

/// A time stamp by a time-stamping authority.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct SignatureTimestamp<'a> {
    time: Time,
    /// Whether its own signature verifies, so that the time counts.
    verified: bool,
    /// Why its certificates do not lead to a trusted root, if nothing else is wrong.
    reason: Option<&'static str>,
    /// The authority.
    signer: Option<&'a str>,
}

impl<'a> Image<'a> {
    /// The facts in the file at a path.
    pub fn new(path: &'a str, file: &'a ImageFile) -> Image<'a> {
        let hashes = file.hashes.as_ref();
        Image {
            r#type: "image",
            schema_version: VERSION,
            path,
            file_size: file.size,
            machine: match file.machine {
                Machine::X86 => Some("x86"),
                Machine::X64 => Some("x64"),
                Machine::Arm64 => Some("arm64"),
                Machine::Other(_) => None,
            },
            time_date_stamp: Hex(file.identity.time_date_stamp.into()),
            image_size: file.identity.size,
            sha256: hashes.map(|hashes| Bytes(&hashes.sha256)),
            sha1: hashes.map(|hashes| Bytes(&hashes.sha1)),
            authenticode_sha256: hashes.map(|hashes| Bytes(&hashes.authenticode_sha256)),
            authenticode_sha1: hashes.map(|hashes| Bytes(&hashes.authenticode_sha1)),
            pdb: file.pdb.as_ref().map(|pdb| Pdb { name: &pdb.name, guid: Text(pdb.guid), age: pdb.age }),
            dotnet: file.is_dotnet,
            version: file.version.as_ref().map(Version::new),
            signature: StatedSignature::new(&file.signature),
            signatures: file.signatures.iter().map(EmbeddedSignature::new).collect(),
        }
    }
}

impl<'a> Version<'a> {
    fn new(version: &'a VersionInfo) -> Version<'a> {
        Version {
            original_file_name: version.original_file_name.as_deref(),
            company: version.company.as_deref(),
            product: version.product.as_deref(),
            description: version.description.as_deref(),
            file_version: version.file_version.as_deref(),
        }
    }
}

impl<'a> StatedSignature<'a> {
    fn new(signature: &'a Signature) -> StatedSignature<'a> {
        StatedSignature {
            state: signature.state.name(),
            reason: signature.reason.map(|reason| reason.name()),
            signer: signature.signer.as_deref(),
        }
    }
}

impl<'a> EmbeddedSignature<'a> {
    fn new(report: &'a SignatureReport) -> EmbeddedSignature<'a> {
        let bytes = |bytes: &'a [u8]| (!bytes.is_empty()).then_some(Bytes(bytes));
        EmbeddedSignature {
            signature: StatedSignature::new(&report.signature),
            nested: report.is_nested,
            digest_algorithm: report.digest_algorithm,
            digest: bytes(&report.digest),
            issuer: report.issuer.as_deref(),
            serial_number: bytes(&report.serial),
            thumbprint_sha256: report.thumbprint.as_ref().map(|thumbprint| Bytes(thumbprint)),
            valid_from: report.validity.map(|(start, _)| Time(start)),
            valid_until: report.validity.map(|(_, end)| Time(end)),
            timestamp: report.timestamp.as_ref().map(SignatureTimestamp::new),
        }
    }
}

impl<'a> SignatureTimestamp<'a> {
    fn new(stamp: &'a Timestamp) -> SignatureTimestamp<'a> {
        SignatureTimestamp {
            time: Time(stamp.time),
            verified: stamp.is_verified,
            reason: stamp.reason.map(|reason| reason.name()),
            signer: stamp.signer.as_deref(),
        }
    }
}

/// What a source states about the image of a module.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ModuleImage<'a> {
    #[cfg_attr(test, schemars(extend("enum" = ["file", "image-facts", "image-load", "image-id", "sysmon"])))]
    source: &'static str,
    /// Null if the source says nothing about it.
    signature: Option<StatedSignature<'a>>,
    #[serde(flatten)]
    version: Version<'a>,
    /// Whether it is a .NET assembly.
    dotnet: Option<bool>,
}

impl<'a> ModuleImage<'a> {
    /// What all sources state.
    pub fn list(evidence: &'a ImageEvidence) -> Vec<ModuleImage<'a>> {
        let one = evidence.facts().iter().map(|facts| ModuleImage {
            source: facts.source.name(),
            signature: facts.signature.as_ref().map(StatedSignature::new),
            version: Version::new(&facts.version),
            dotnet: facts.is_dotnet,
        });
        one.collect()
    }
}

/// The signature in the form of the Elastic Common Schema (`code_signature`). Unknown facts are
/// absent.
pub(crate) fn code_signature(evidence: &ImageEvidence) -> serde_json::Value {
    let Some((signature, _)) = evidence.signature() else { return serde_json::Value::Null };
    let exists = match signature.state {
        SignatureState::Unsigned => Some(false),
        // A catalog may sign the file.
        SignatureState::NotEmbedded | SignatureState::Unknown => None,
        _ => Some(true),
    };
    let is_valid = match signature.state {
        SignatureState::Valid => Some(true),
        SignatureState::Invalid => Some(false),
        _ => None,
    };
    let is_trusted = match signature.state {
        SignatureState::Valid => Some(true),
        SignatureState::RootNotTrusted => Some(false),
        _ => None,
    };
    serde_json::json!({
        "exists": exists,
        "status": signature.state.name(),
        "subject_name": signature.signer.as_deref(),
        "trusted": is_trusted,
        "valid": is_valid,
    })
}
