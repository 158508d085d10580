//! Facts about an image from one source, and the facts of all sources.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

/// The source of facts about an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum FactSource {
    /// The file itself was read.
    File,
    /// A side-car file, written when the file was read.
    #[strum(serialize = "image-facts")]
    SideCar,
    /// An event of the kernel about the load of the image: the result of code integrity.
    ImageLoad,
    /// An event about the version resource, which merging adds to a trace.
    ImageId,
    /// Sysmon's events 6 and 7.
    Sysmon,
}

impl FactSource {
    /// All sources.
    pub const ALL: &[FactSource] = FactSource::VARIANTS;

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The state of a signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum SignatureState {
    /// Intact, and its certificates lead to a trusted root.
    Valid,
    /// Intact, but no trusted roots were given.
    RootNotChecked,
    /// Intact, but its certificates do not lead to a trusted root.
    RootNotTrusted,
    /// Not valid, whatever the root is.
    Invalid,
    /// The source checked embedded and catalog signatures, and found none.
    Unsigned,
    /// The file has no embedded signature. A catalog may sign it.
    NotEmbedded,
    /// Not checked, or not understood.
    #[default]
    Unknown,
}

impl SignatureState {
    /// All states.
    pub const ALL: &[SignatureState] = SignatureState::VARIANTS;

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The state with this spelling.
    pub fn of(name: &str) -> Option<SignatureState> {
        SignatureState::ALL.iter().copied().find(|state| state.name() == name)
    }
}

/// The reason for a state other than valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum SignatureReason {
    /// The file was changed after it was signed.
    DigestMismatch,
    /// The signed attributes are about other content.
    AttributesMismatch,
    /// The signature does not match the key of the signer.
    BadSignature,
    /// The file does not contain the certificate of the signer.
    SignerMissing,
    /// The certificate is not for signing code.
    NotForCode,
    /// The certificate had expired, and no time stamp proves that the file was signed before.
    Expired,
    /// The certificate was not valid yet when the file was signed.
    NotYetValid,
    /// A certificate between the signer and the root is missing, or does not verify.
    IssuerMissing,
    /// The chain ends in a root that is not among the trusted ones.
    OtherRoot,
    /// The signature cannot be read.
    Malformed,
    /// The signature uses an algorithm that is not supported.
    UnsupportedAlgorithm,
    /// The program was built without support for signatures.
    NotBuilt,
    /// The source states that the signature is not valid, without details.
    StatedInvalid,
}

impl SignatureReason {
    /// All reasons.
    pub const ALL: &[SignatureReason] = SignatureReason::VARIANTS;

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The reason with this spelling.
    pub fn of(name: &str) -> Option<SignatureReason> {
        SignatureReason::ALL.iter().copied().find(|reason| reason.name() == name)
    }

    /// The reason as a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            SignatureReason::DigestMismatch => "The file was changed after it was signed.",
            SignatureReason::AttributesMismatch => "The signed attributes are about other content.",
            SignatureReason::BadSignature => "The signature does not match the key of the signer.",
            SignatureReason::SignerMissing => "The certificate of the signer is missing.",
            SignatureReason::NotForCode => "The certificate is not for signing code.",
            SignatureReason::Expired => "The certificate has expired, and no time stamp is earlier.",
            SignatureReason::NotYetValid => "The certificate was not valid yet.",
            SignatureReason::IssuerMissing => "A certificate between the signer and the root is missing.",
            SignatureReason::OtherRoot => "The root is not among the trusted ones.",
            SignatureReason::Malformed => "The signature cannot be read.",
            SignatureReason::UnsupportedAlgorithm => "The signature uses an unsupported algorithm.",
            SignatureReason::NotBuilt => "The program was built without support for signatures.",
            SignatureReason::StatedInvalid => "The source states that the signature is not valid.",
        }
    }
}

/// A signature as one source states it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Signature {
    /// Its state.
    pub state: SignatureState,
    /// The reason for the state, if there is one.
    pub reason: Option<SignatureReason>,
    /// The signer: common name of the certificate's subject, or as the source states it.
    pub signer: Option<Box<str>>,
}

/// Texts of the version resource. Its author chose them freely; only a signature protects them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VersionInfo {
    /// `OriginalFilename`: the file name that the author intended.
    pub original_file_name: Option<Box<str>>,
    /// `CompanyName`.
    pub company: Option<Box<str>>,
    /// `ProductName`.
    pub product: Option<Box<str>>,
    /// `FileDescription`.
    pub description: Option<Box<str>>,
    /// `FileVersion`.
    pub file_version: Option<Box<str>>,
}

impl VersionInfo {
    /// Whether no text is known.
    pub fn is_empty(&self) -> bool {
        *self == VersionInfo::default()
    }
}

/// The facts about an image from one source. Unknown facts are `None`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageFacts {
    /// The source.
    pub source: FactSource,
    /// The signature, if the source says anything about it.
    pub signature: Option<Signature>,
    /// Texts of the version resource.
    pub version: VersionInfo,
    /// Whether it is a .NET assembly.
    pub is_dotnet: Option<bool>,
}

impl ImageFacts {
    /// No facts from this source.
    pub fn new(source: FactSource) -> ImageFacts {
        ImageFacts { source, signature: None, version: VersionInfo::default(), is_dotnet: None }
    }

    /// Whether the source says nothing.
    pub fn is_empty(&self) -> bool {
        self.signature.is_none() && self.version.is_empty() && self.is_dotnet.is_none()
    }
}

/// The facts about an image from all sources, in the order in which they were added. Copies share
/// the facts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ImageEvidence(Option<Arc<[ImageFacts]>>);

impl ImageEvidence {
    /// The facts by source.
    pub fn facts(&self) -> &[ImageFacts] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether no source says anything.
    pub fn is_empty(&self) -> bool {
        self.facts().is_empty()
    }

    /// Adds the facts of a source, unless it says nothing or was added before.
    #[must_use]
    pub fn with(&self, facts: ImageFacts) -> ImageEvidence {
        if facts.is_empty() || self.facts().contains(&facts) {
            return self.clone();
        }
        ImageEvidence(Some(self.facts().iter().cloned().chain([facts]).collect()))
    }

    /// The signature to show, with its source: the first with a known state and a signer, otherwise
    /// with a known state.
    pub fn signature(&self) -> Option<(&Signature, FactSource)> {
        let all = || self.facts().iter().filter_map(|facts| Some((facts.signature.as_ref()?, facts.source)));
        let is_known = |(signature, _): &(&Signature, _)| {
            !matches!(signature.state, SignatureState::Unknown | SignatureState::NotEmbedded)
        };
        let is_named = |given: &(&Signature, _)| is_known(given) && given.0.signer.is_some();
        all().find(is_named).or_else(|| all().find(is_known)).or_else(|| all().next())
    }

    /// Whether a source states that the image has no signature, neither in the file nor in a
    /// catalog, and no source found one.
    pub fn is_unsigned(&self) -> bool {
        let mut states = self.facts().iter().filter_map(|facts| Some(facts.signature.as_ref()?.state));
        let is_stated = states.clone().any(|state| state == SignatureState::Unsigned);
        is_stated
            && states.all(|state| {
                matches!(
                    state,
                    SignatureState::Unsigned | SignatureState::NotEmbedded | SignatureState::Unknown
                )
            })
    }

    /// The signer, if a source found the signature valid and no source contradicts it: that it is
    /// invalid, that there is none, or that another one signed.
    pub fn valid_signer(&self) -> Option<&str> {
        let signatures = || self.facts().iter().filter_map(|facts| facts.signature.as_ref());
        let is_valid = |signature: &&Signature| signature.state == SignatureState::Valid;
        let signer = signatures().filter(is_valid).find_map(|signature| signature.signer.as_deref())?;
        let contradicts = |signature: &Signature| {
            matches!(signature.state, SignatureState::Invalid | SignatureState::Unsigned)
                || is_valid(&signature) && signature.signer.as_deref().is_some_and(|other| other != signer)
        };
        (!signatures().any(contradicts)).then_some(signer)
    }

    /// The first known text of the version resource with its source.
    pub fn text(&self, field: impl Fn(&VersionInfo) -> Option<&Box<str>>) -> Option<(&str, FactSource)> {
        self.facts().iter().find_map(|facts| Some((&**field(&facts.version)?, facts.source)))
    }

    /// The file name that the author intended, with its source.
    pub fn original_file_name(&self) -> Option<(&str, FactSource)> {
        self.text(|version| version.original_file_name.as_ref())
    }

    /// Whether it is a .NET assembly, if a source states it.
    pub fn is_dotnet(&self) -> Option<bool> {
        self.facts().iter().find_map(|facts| facts.is_dotnet)
    }
}

impl From<ImageFacts> for ImageEvidence {
    fn from(facts: ImageFacts) -> ImageEvidence {
        ImageEvidence::default().with(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(source: FactSource, state: SignatureState, signer: Option<&str>) -> ImageFacts {
        let signature = Some(Signature { state, reason: None, signer: signer.map(Into::into) });
        ImageFacts { signature, ..ImageFacts::new(source) }
    }

    #[test]
    fn a_signer_counts_only_if_no_source_contradicts() {
        use FactSource::{File, Sysmon};
        use SignatureState::{Invalid, NotEmbedded, RootNotChecked, Unknown, Unsigned, Valid};
        for (facts, expected) in [
            (vec![signed(Sysmon, Valid, Some("A"))], Some("A")),
            (vec![signed(File, RootNotChecked, Some("A"))], None),
            (vec![signed(File, Unknown, None), signed(Sysmon, Valid, Some("A"))], Some("A")),
            (vec![signed(File, NotEmbedded, None), signed(Sysmon, Valid, Some("A"))], Some("A")),
            (vec![signed(File, Invalid, Some("A")), signed(Sysmon, Valid, Some("A"))], None),
            (vec![signed(File, Valid, Some("A")), signed(Sysmon, Unsigned, None)], None),
            (vec![signed(File, Valid, Some("A")), signed(Sysmon, Valid, Some("B"))], None),
            (vec![signed(File, Valid, None)], None),
        ] {
            let evidence = facts.iter().cloned().fold(ImageEvidence::default(), |all, one| all.with(one));
            assert_eq!(evidence.valid_signer(), expected, "{facts:?}");
        }
    }

    #[test]
    fn sources_are_kept_side_by_side() {
        let name = |source, name: &str| ImageFacts {
            version: VersionInfo { original_file_name: Some(name.into()), ..VersionInfo::default() },
            ..ImageFacts::new(source)
        };
        let (sysmon, file) = (name(FactSource::Sysmon, "a.exe"), name(FactSource::File, "b.exe"));
        let evidence = ImageEvidence::from(sysmon.clone());
        let evidence = evidence.with(ImageFacts::new(FactSource::ImageLoad)).with(file).with(sysmon);
        assert_eq!(evidence.facts().len(), 2);
        assert_eq!(evidence.original_file_name(), Some(("a.exe", FactSource::Sysmon)));
    }

    #[test]
    fn spellings_are_distinct() {
        assert!(SignatureState::ALL.iter().all(|state| SignatureState::of(state.name()) == Some(*state)));
        assert!(SignatureReason::ALL.iter().all(|one| SignatureReason::of(one.name()) == Some(*one)));
    }
}
