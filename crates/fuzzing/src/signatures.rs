//! Reads arbitrary bytes as image files with signatures, and as side-car files.

use std::sync::LazyLock;

use stackhound_images::{Checks, ImageFile, ImageTable, SignatureState, Trust};
use stackhound_types::FileTime;

use self::signed::{Certificate, INDIRECT_DATA, Signer, TIME_STAMPING, certificate, root, signer};
use crate::image::pe;

/// The writer of signatures from the tests of the reader.
#[path = "../../images/tests/support/mod.rs"]
mod signed;

/// Maximum number of signatures of a file.
const SIGNATURES_MAX: usize = 16;
/// 2026-01-01.
const NOW: i64 = 1_767_225_600;

static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    let mut trust = Trust::default();
    trust.add(&root("Root").der()).expect("a certificate");
    trust
});

/// Reads bytes as an image file, with and without a trusted root, and as a side-car file.
pub fn signatures(bytes: &[u8]) {
    let time = FileTime::from_unix(NOW);
    let read = |trust| ImageFile::read(bytes, &Checks { trust, time }).ok();
    if let (Some(trusted), Some(unchecked)) = (read(Some(&*TRUST)), read(None)) {
        check(&trusted, &unchecked);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut table = ImageTable::default();
        let added = table.add_side_car(text).unwrap_or_default();
        assert!(added <= text.lines().count());
    }
    let _ = Trust::default().add(bytes);
}

fn check(trusted: &ImageFile, unchecked: &ImageFile) {
    assert!(trusted.signatures.len() <= SIGNATURES_MAX);
    assert_eq!(trusted.hashes, unchecked.hashes);
    assert_eq!(trusted.signatures.len(), unchecked.signatures.len());
    for (trusted, unchecked) in trusted.signatures.iter().zip(&unchecked.signatures) {
        assert_ne!(unchecked.signature.state, SignatureState::Valid, "nothing is valid without a root");
        // A signature that is not intact is so for any root.
        let is_valid = trusted.signature.state == SignatureState::Valid;
        assert!(!is_valid || unchecked.signature.state == SignatureState::RootNotChecked);
        assert_eq!(trusted.digest, unchecked.digest);
    }
    let digests = trusted.hashes.as_ref().expect("hashes");
    for report in trusted.signatures.iter().filter(|report| report.digest_algorithm == Some("sha256")) {
        let is_same = report.digest == digests.authenticode_sha256;
        assert!(is_same || report.signature.state != SignatureState::Valid);
    }
}

/// Signed images with nested signatures and time stamps, certificates, and a side-car file.
pub(crate) fn files() -> Vec<Vec<u8>> {
    let texts = [("OriginalFilename", "a.exe"), ("CompanyName", "Example")];
    let image = pe::Pe::new(pe::X64)
        .code(0x1000, vec![0xc3; 8])
        .table(2, 0x2000, signed::version_resource(0x2000, &texts))
        .directory_at(14, 0x1000, 72)
        .file();
    let (leaf, time) = (certificate("Code", "Root"), certificate("Time", "Root"));
    let time = Certificate { usages: &[TIME_STAMPING], ..time };
    let content = signed::indirect_data(&signed::digest(&image));
    let sign =
        |signer: &Signer| signed::signed_data(INDIRECT_DATA, &content, signer, std::slice::from_ref(&time));
    let plain = signer(&leaf);
    let made = plain.signature(INDIRECT_DATA, &content[2..]);
    let before = "20240101000000Z";
    let stamped =
        Signer { unsigned: vec![signed::token(&made, before, &signer(&time), &[])], ..plain.clone() };
    let countersigned =
        Signer { unsigned: vec![signed::countersignature(&made, before, &signer(&time))], ..plain.clone() };
    let nested = Signer { unsigned: vec![signed::nested(&sign(&countersigned))], ..plain.clone() };
    let side_car = r#"{"type":"image","schema_version":1,"time_date_stamp":"0x1","image_size":2,"sha256":null,
        "pdb":null,"dotnet":false,"version":null,"signature":{"state":"valid","reason":null,"signer":"S"}}"#;
    vec![
        signed::with_signatures(&image, &[sign(&plain)]),
        signed::with_signatures(&image, &[sign(&stamped), sign(&nested)]),
        leaf.der(),
        side_car.replace('\n', "").into_bytes(),
    ]
}
