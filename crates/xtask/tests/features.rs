//! What the library depends on without features, and whether the program and the tests share what they
//! build.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What must not be there: HTTP, TLS, what compiles C, the calls of Windows, and cryptography for signatures.
const UNWANTED: [&str; 13] = [
    "ureq",
    "rustls",
    "ring",
    "cc",
    "stackhound-windows",
    "cms",
    "der",
    "p256",
    "p384",
    "rsa",
    "sha1",
    "sha2",
    "x509-cert",
];

/// The names of the packages that are built for a target, also to build others. `None` where the packages of another target are
/// not on this machine; `cargo fetch` gets them.
fn packages(package: &str, target: &str) -> Option<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--no-default-features", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}", "--package", package, "--target", target])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("cargo tree");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("--offline was specified") && std::env::var_os("CI").is_none() {
        eprintln!("skipped: the packages for {target} are not downloaded, see `cargo fetch`");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    let names = String::from_utf8(output.stdout).expect("text");
    Some(names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

#[test]
fn without_features_the_library_needs_no_tls_no_cryptography_and_no_c_compiler() {
    for target in ["x86_64-unknown-linux-gnu", "x86_64-pc-windows-msvc"] {
        let Some(packages) = packages("stackhound", target) else { continue };
        assert!(packages.len() > 20, "{packages:?}");
        for unwanted in UNWANTED {
            assert!(!packages.iter().any(|name| name == unwanted), "{unwanted} for {target}");
        }
    }
}

/// The packages that a selection of the workspace is built of, each with its features.
fn units(selection: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}"])
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .args(selection)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let units = String::from_utf8(output.stdout).expect("text");
    // Packages that were listed before are marked.
    units.lines().map(|unit| unit.trim_end_matches(" (*)").to_owned()).collect()
}

/// `cargo run` builds nothing that `cargo test --workspace` builds again with other features. Where this
/// fails, state the features that dependencies of tests enable in `cli/Cargo.toml`.
#[test]
fn the_program_and_the_tests_share_what_they_build() {
    let program = units(&["--package", "stackhound-cli", "--edges", "normal,build"]);
    let tests = units(&["--workspace", "--edges", "normal,build,dev"]);
    assert!(program.len() > 100, "{}", program.len());
    assert_eq!(program.difference(&tests).collect::<Vec<_>>(), Vec::<&String>::new());
}
