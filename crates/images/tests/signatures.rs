//! Signatures that the test makes: valid ones, and one for each way in which they can be wrong.

#[path = "../../symbols/tests/support/mod.rs"]
mod pe;
mod support;

use stackhound_images::{Checks, FactSource, ImageFile, SignatureReport, Trust};
use stackhound_types::FileTime;
use support::*;

/// 2026-01-01.
const NOW: i64 = 1_767_225_600;

/// A 64-bit image. Its size is not a multiple of eight.
fn image() -> Vec<u8> {
    let mut file = pe::Pe::new(pe::X64).code(0x1000, vec![0xc3; 64]).file();
    file.extend(b"overlay");
    file
}

fn leaf() -> Certificate {
    certificate("Example Code", "Example Issuing")
}

fn issuing() -> Certificate {
    Certificate { is_issuer: true, ..certificate("Example Issuing", "Example Root") }
}

fn authority() -> Certificate {
    Certificate { usages: &[TIME_STAMPING], ..certificate("Example Time", "Example Root") }
}

/// A signature of an image by a signer, with the certificates of its issuer and of the authority.
fn signature(signer: &Signer, image: &[u8]) -> Vec<u8> {
    signed_data(INDIRECT_DATA, &indirect_data(&digest(image)), signer, &[issuing(), authority()])
}

fn trust(roots: &[Certificate]) -> Trust {
    let mut trust = Trust::default();
    for root in roots {
        assert_eq!(trust.add(&root.der()), Ok(1));
    }
    trust
}

fn read(bytes: &[u8], trust: Option<&Trust>) -> ImageFile {
    ImageFile::read(bytes, &Checks { trust, time: FileTime::from_unix(NOW) }).expect("an image")
}

fn text(report: &SignatureReport) -> String {
    let reason = report.signature.reason.map(|reason| format!(" {}", reason.name()));
    format!("{}{}", report.signature.state.name(), reason.unwrap_or_default())
}

/// The states of all signatures, with the root and without it.
fn states(bytes: &[u8]) -> (String, String) {
    let join = |file: ImageFile| file.signatures.iter().map(text).collect::<Vec<_>>().join(", ");
    (join(read(bytes, Some(&trust(&[root("Example Root")])))), join(read(bytes, None)))
}

#[test]
fn the_first_error_of_a_signature_is_its_reason() {
    let image = image();
    let good = signer(&leaf());
    let of = |certificate: Certificate| signer(&certificate);
    let with = |signer: &Signer| with_signatures(&image, &[signature(signer, &image)]);
    let mut changed = with(&good);
    changed[0x400] ^= 1;
    let mut other_header = with(&good);
    // The checksum is not signed.
    other_header[0x40 + 24 + 64] ^= 1;
    let forged = Signer { key: "Somebody", ..good.clone() };
    let other_content = Signer { digests_other_content: true, ..good.clone() };
    let expired = Certificate { validity: ("20200101000000Z", "20250101000000Z"), ..leaf() };
    let future = Certificate { validity: ("20270101000000Z", "20300101000000Z"), ..leaf() };
    let server = Certificate { usages: &[SERVER], ..leaf() };
    let any = Certificate { usages: &[], ..leaf() };
    let own = certificate("Example Code", "Example Code");
    let forged_issuer = Certificate { signed_by: "Somebody", ..leaf() };
    let direct = |signer: &Signer, others: &[Certificate]| {
        let data = signed_data(INDIRECT_DATA, &indirect_data(&digest(&image)), signer, others);
        with_signatures(&image, &[data])
    };
    let expired_issuer = Certificate { validity: expired.validity, ..issuing() };
    let no_issuer = Certificate { is_issuer: false, ..issuing() };
    let mut truncated = with(&good);
    truncated.truncate(truncated.len() - 8);
    let garbage = with_signatures(&image, &[b"garbage".to_vec()]);
    for (name, bytes, trusted, unchecked) in [
        ("valid", with(&good), "valid", "root-not-checked"),
        ("the checksum", other_header, "valid", "root-not-checked"),
        ("no usage stated", with(&of(any)), "valid", "root-not-checked"),
        ("changed file", changed, "invalid digest-mismatch", "invalid digest-mismatch"),
        ("forged", with(&forged), "invalid bad-signature", "invalid bad-signature"),
        (
            "attributes about other content",
            with(&other_content),
            "invalid attributes-mismatch",
            "invalid attributes-mismatch",
        ),
        ("expired", with(&of(expired)), "invalid expired", "invalid expired"),
        ("not yet valid", with(&of(future)), "invalid not-yet-valid", "invalid not-yet-valid"),
        ("for servers", with(&of(server)), "invalid not-for-code", "invalid not-for-code"),
        ("self-signed", with(&of(own)), "root-not-trusted other-root", "root-not-checked"),
        ("without issuer", direct(&good, &[]), "root-not-trusted issuer-missing", "root-not-checked"),
        ("forged issuer", with(&of(forged_issuer)), "root-not-trusted issuer-missing", "root-not-checked"),
        ("not an issuer", direct(&good, &[no_issuer]), "root-not-trusted issuer-missing", "root-not-checked"),
        ("expired issuer", direct(&good, &[expired_issuer]), "invalid expired", "root-not-checked"),
        ("beyond the file", truncated, "unknown malformed", "unknown malformed"),
        ("garbage", garbage, "unknown malformed", "unknown malformed"),
        ("none", image.clone(), "", ""),
    ] {
        assert_eq!(states(&bytes), (trusted.to_owned(), unchecked.to_owned()), "{name}");
    }
    let other = read(&with(&good), Some(&trust(&[root("Other Root")])));
    assert_eq!(text(&other.signatures[0]), "root-not-trusted issuer-missing");
    let trusted_leaf = read(&with(&good), Some(&trust(&[leaf()])));
    assert_eq!(text(&trusted_leaf.signatures[0]), "valid");
}

/// The encoding of a certificate with a validity that is not a time.
fn unreadable(certificate: &Certificate) -> Vec<u8> {
    let mut der = certificate.der();
    let start = &certificate.validity.0.as_bytes()[2..];
    let at = der.windows(start.len()).position(|bytes| bytes == start).expect("the start");
    der[at] = b'?';
    der
}

/// An unreadable certificate may be the one that is looked for.
#[test]
fn with_unreadable_certificates_nothing_is_refuted() {
    let image = image();
    let (good, authority) = (signer(&leaf()), authority());
    let content = indirect_data(&digest(&image));
    let made = good.signature(INDIRECT_DATA, &content[2..]);
    let expired = Certificate { validity: ("20200101000000Z", "20250101000000Z"), ..leaf() };
    let countersigned = |certificate: &Certificate| {
        let stamp = countersignature(&made, "20240101000000Z", &signer(&authority));
        Signer { unsigned: vec![stamp], ..signer(certificate) }
    };
    let expired = countersigned(&expired);
    let (bad_leaf, bad_issuing) = (unreadable(&leaf()), unreadable(&issuing()));
    let (time, bad_time) = (authority.der(), unreadable(&authority));
    let (leaf, issuing) = (leaf().der(), issuing().der());
    let own = expired.certificate.der();
    for (name, signer, certificates, trusted, unchecked) in [
        ("signer missing", &good, vec![&issuing], "invalid signer-missing", "invalid signer-missing"),
        ("signer", &good, vec![&bad_leaf, &issuing], "unknown malformed", "unknown malformed"),
        ("issuer", &good, vec![&leaf, &bad_issuing], "unknown malformed", "root-not-checked"),
        ("needless", &good, vec![&bad_time, &leaf, &issuing], "valid", "root-not-checked"),
        ("time stamp", &expired, vec![&own, &issuing, &time], "valid", "root-not-checked"),
        ("authority missing", &expired, vec![&own, &issuing], "invalid expired", "invalid expired"),
        ("authority", &expired, vec![&own, &issuing, &bad_time], "unknown malformed", "unknown malformed"),
    ] {
        let certificates: Vec<Vec<u8>> = certificates.into_iter().cloned().collect();
        let data = signed_data_with(INDIRECT_DATA, &content, signer, &certificates);
        let states = states(&with_signatures(&image, &[data]));
        assert_eq!(states, (trusted.to_owned(), unchecked.to_owned()), "{name}");
    }
}

/// Certificates with the names of a chain that did not sign each other: every pair is tried.
#[test]
fn a_search_that_is_too_long_decides_nothing() {
    let image = image();
    let content = indirect_data(&digest(&image));
    let false_root = Certificate { issuer: "Elsewhere", signed_by: "Elsewhere", ..root("Example Root") };
    let forged = Certificate { usages: &[], signed_by: "Somebody", ..issuing() };
    let time = Certificate {
        name: "Example Authority",
        issuer: "Example Issuing",
        signed_by: "Example Issuing",
        ..authority()
    };
    let trust = trust(&[root("Other Root")]);
    let report = |signer: &Signer, others: &[Certificate]| {
        let data = signed_data(INDIRECT_DATA, &content, signer, others);
        read(&with_signatures(&image, &[data]), Some(&trust)).signatures.remove(0)
    };
    let plain = signer(&leaf());
    let made = plain.signature(INDIRECT_DATA, &content[2..]);
    let stamp = countersignature(&made, "20240101000000Z", &signer(&time));
    let stamped = Signer { unsigned: vec![stamp], ..plain.clone() };
    for (number, expected, reason) in
        [(3, "root-not-trusted issuer-missing", "issuer-missing"), (17, "unknown malformed", "malformed")]
    {
        let mut others = [vec![forged.clone(); number], vec![false_root.clone(); number]].concat();
        assert_eq!(text(&report(&plain, &others)), expected);
        others.push(time.clone());
        let stamped = report(&stamped, &others);
        assert_eq!(text(&stamped), expected);
        // Its chain is searched before that of the signer.
        let stamp = stamped.timestamp.expect("a time stamp");
        assert_eq!((stamp.is_verified, stamp.reason.map(|one| one.name())), (false, Some(reason)));
    }
}

#[test]
fn the_facts_of_a_signature_are_those_of_its_certificate() {
    let image = image();
    let bytes = with_signatures(&image, &[signature(&signer(&leaf()), &image)]);
    let file = read(&bytes, None);
    let [report] = &*file.signatures else { panic!("{file:?}") };
    assert_eq!(report.signature.signer.as_deref(), Some("Example Code"));
    assert_eq!(report.issuer.as_deref(), Some("Example Issuing"));
    assert_eq!((&*report.serial, report.digest_algorithm), (&[13][..], Some("sha256")));
    assert_eq!(report.digest, digest(&image));
    // 2020-01-01 and 2030-01-01.
    let (start, end) = (FileTime::from_unix(1_577_836_800), FileTime::from_unix(1_893_456_000));
    assert_eq!(report.validity, Some((start, end)));
    let hashes = file.hashes.as_ref().expect("hashes");
    assert_eq!(hashes.authenticode_sha256, *digest(&image));
    // Signing does not change the digest.
    let unsigned = read(&image, None);
    assert_eq!(unsigned.hashes.expect("hashes").authenticode_sha256, *digest(&image));
    assert_eq!(unsigned.signature.state.name(), "not-embedded");
    assert_eq!(file.facts(FactSource::File).signature, Some(file.signature.clone()));
}

#[test]
fn nested_signatures_are_reported_after_the_outer_one() {
    let image = image();
    let expired = Certificate { validity: ("20200101000000Z", "20250101000000Z"), ..leaf() };
    let inner = signature(&signer(&expired), &image);
    let middle = signature(&Signer { unsigned: vec![nested(&inner)], ..signer(&leaf()) }, &image);
    let outer = Signer { unsigned: vec![nested(&middle), nested(&inner)], ..signer(&leaf()) };
    let outer = signature(&outer, &image);
    let file = read(&with_signatures(&image, &[outer, inner]), Some(&trust(&[root("Example Root")])));
    let reports: Vec<(bool, String)> =
        file.signatures.iter().map(|report| (report.is_nested, text(report))).collect();
    let expired = || "invalid expired".to_owned();
    let valid = || "valid".to_owned();
    // Unsigned attributes are a set, and sorted by their encoding: the shorter one comes first.
    let expected =
        [(false, valid()), (true, expired()), (true, valid()), (true, expired()), (false, expired())];
    assert_eq!(reports, expected);
    assert_eq!(file.signature.state.name(), "valid");
}

#[test]
fn a_verified_time_stamp_proves_that_the_certificate_was_valid() {
    let image = image();
    let expired = Certificate { validity: ("20200101000000Z", "20250101000000Z"), ..leaf() };
    let lifetime = Certificate { usages: &[CODE_SIGNING, "1.3.6.1.4.1.311.10.3.13"], ..expired.clone() };
    let content = indirect_data(&digest(&image));
    let before = "20240101000000Z";
    let stamped = |certificate: &Certificate, stamp: &dyn Fn(&[u8]) -> Vec<u8>| {
        let plain = signer(certificate);
        let header = 2;
        let made = plain.signature(INDIRECT_DATA, &content[header..]);
        let signer = Signer { unsigned: vec![stamp(&made)], ..plain };
        with_signatures(&image, &[signature(&signer, &image)])
    };
    let by = |certificate: Certificate| signer(&certificate);
    let time = || by(authority());
    let code = Certificate { usages: &[CODE_SIGNING], ..authority() };
    let own = Certificate { issuer: "Example Time", signed_by: "Example Time", ..authority() };
    let forged = Signer { key: "Somebody", ..time() };
    type Stamp<'s> = Box<dyn Fn(&[u8]) -> Vec<u8> + 's>;
    let rows: Vec<(&str, &Certificate, Stamp<'_>, bool, &str)> = vec![
        ("token", &expired, Box::new(|of| token(of, before, &time(), &[])), true, "valid"),
        ("countersignature", &expired, Box::new(|of| countersignature(of, before, &time())), true, "valid"),
        (
            "later",
            &expired,
            Box::new(|of| token(of, "20250601000000Z", &time(), &[])),
            true,
            "invalid expired",
        ),
        (
            "earlier",
            &expired,
            Box::new(|of| token(of, "20190101000000Z", &time(), &[])),
            false,
            "invalid expired",
        ),
        ("forged", &expired, Box::new(|of| token(of, before, &forged, &[])), false, "invalid expired"),
        (
            "of another signature",
            &expired,
            Box::new(|_| token(b"other", before, &time(), &[])),
            false,
            "invalid expired",
        ),
        (
            "by a code signer",
            &expired,
            Box::new(|of| token(of, before, &by(code.clone()), &[])),
            false,
            "invalid expired",
        ),
        (
            "self-signed",
            &expired,
            Box::new(|of| token(of, before, &by(own.clone()), &[])),
            false,
            "root-not-trusted other-root",
        ),
        (
            "lifetime signing",
            &lifetime,
            Box::new(|of| token(of, before, &time(), &[])),
            true,
            "invalid expired",
        ),
    ];
    for (name, certificate, stamp, is_verified, expected) in rows {
        let file = read(&stamped(certificate, &*stamp), Some(&trust(&[root("Example Root")])));
        let report = &file.signatures[0];
        assert_eq!(text(report), expected, "{name}");
        let timestamp = report.timestamp.as_ref().expect(name);
        assert_eq!(timestamp.is_verified, is_verified, "{name}");
        assert_eq!(timestamp.signer.as_deref(), Some("Example Time"), "{name}");
    }
}

#[test]
fn version_resources_are_read() {
    let texts = [
        ("CompanyName", "Example"),
        ("FileDescription", "An example"),
        ("FileVersion", "1.2.3.4"),
        ("OriginalFilename", "example.exe"),
        ("ProductName", "Example product"),
    ];
    const RESOURCES: usize = 2;
    const CLI_HEADER: usize = 14;
    let resource = version_resource(0x2000, &texts);
    for (machine, has_cli_header) in [(pe::X86, true), (pe::X64, false)] {
        let pe = pe::Pe::new(machine).code(0x1000, vec![0xc3; 72]).table(RESOURCES, 0x2000, resource.clone());
        let pe = if has_cli_header { pe.directory_at(CLI_HEADER, 0x1000, 72) } else { pe };
        let file = read(&pe.file(), None);
        let version = file.version.expect("a version resource");
        assert_eq!(file.is_dotnet, has_cli_header);
        let found = [
            version.company,
            version.description,
            version.file_version,
            version.original_file_name,
            version.product,
        ];
        let expected = texts.map(|(_, text)| Some(text.into()));
        assert_eq!(found, expected);
        // A truncated resource is read as far as it goes, without errors.
        for end in 0..resource.len() {
            let pe = pe::Pe::new(machine).code(0x1000, vec![0xc3]);
            read(&pe.table(RESOURCES, 0x2000, resource[..end].to_vec()).file(), None);
        }
    }
    assert_eq!(read(&image(), None).version, None);
}

#[test]
fn roots_are_read_from_pem_and_der() {
    let (one, two) = (root("One").der(), root("Two").der());
    let pem = |der: &[u8]| der::pem::encode_string("CERTIFICATE", der::pem::LineEnding::LF, der).unwrap();
    for (name, bytes, expected) in [
        ("DER", one.clone(), Ok(1)),
        ("PEM", pem(&one).into_bytes(), Ok(1)),
        ("several", format!("subject=One\n{}\n# Two\n{}", pem(&one), pem(&two)).into_bytes(), Ok(2)),
        ("nothing", Vec::new(), Err("expected X.509 certificates in PEM or DER, found none")),
        ("text", b"none".to_vec(), Err("expected X.509 certificates in PEM or DER, found none")),
        (
            "damaged",
            pem(&one).replace("MII", "AAA").into_bytes(),
            Err("certificate 1 of the file cannot be read; expected X.509 in PEM or DER"),
        ),
    ] {
        let added = Trust::default().add(&bytes).map_err(|error| error.to_string());
        assert_eq!(added, expected.map_err(str::to_owned), "{name}");
    }
}
