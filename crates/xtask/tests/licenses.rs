//! Licenses and sources of all dependencies, by the rules of `deny.toml`. `cargo deny check` also tests them, and
//! security advisories; this test needs neither the tool nor a network.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, LicenseReq, ParseMode};

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

impl Licenses {
    /// Why a dependency may not be used, if it may not.
    fn refuse(&self, name: &str, license: Option<&str>) -> Option<String> {
        let Some(license) = license else { return Some(format!("{name} states no license")) };
        let exceptions = self.exceptions.iter().filter(|exception| exception.name == name);
        let allowed: BTreeSet<&str> = self
            .allow
            .iter()
            .chain(exceptions.flat_map(|exception| &exception.allow))
            .map(String::as_str)
            .collect();
        let is_allowed = |required: &LicenseReq| allowed.contains(required.to_string().as_str());
        match Expression::parse_mode(license, ParseMode::LAX) {
            Ok(expression) if expression.evaluate(is_allowed) => None,
            Ok(_) => Some(format!("{name} has the license {license}, which deny.toml does not allow")),
            Err(error) => Some(format!("{name} has a license that cannot be parsed: {error}")),
        }
    }
}

fn rules() -> Licenses {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    let text = std::fs::read_to_string(file).expect("deny.toml");
    toml::from_str::<Rules>(&text).expect("rules for licenses").licenses
}

/// All packages of the lock file of a crate, for all systems and features.
fn packages(of: &str) -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of))
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    serde_json::from_value(metadata["packages"].take()).expect("packages")
}

fn check(of: &str, packages_min: usize) {
    let rules = rules();
    let packages = packages(of);
    assert!(packages.len() > packages_min, "{} packages of {of}", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|package| rules.refuse(package["name"].as_str().unwrap(), package["license"].as_str()))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let other_sources: Vec<&str> = packages
        .iter()
        .filter_map(|package| package["source"].as_str())
        .filter(|source| !source.starts_with("registry+"))
        .collect();
    assert!(other_sources.is_empty(), "not from the registry: {other_sources:#?}");
}

#[test]
fn dependencies_have_allowed_licenses_and_one_source() {
    check("xtask", 200);
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn dependencies_of_separate_programs_have_allowed_licenses_and_one_source() {
    check("lake", 400);
    check("python", 100);
}

#[test]
fn other_licenses_are_refused() {
    let rules = rules();
    for (name, license, allowed) in [
        ("any", Some("MIT"), true),
        ("any", Some("MIT OR GPL-3.0-only"), true),
        ("any", Some("MIT/Apache-2.0"), true),
        ("any", Some("MIT AND GPL-3.0-only"), false),
        ("any", Some("GPL-3.0-only"), false),
        ("webpki-roots", Some("CDLA-Permissive-2.0"), true),
        ("any", Some("CDLA-Permissive-2.0"), false),
        ("any", None, false),
    ] {
        assert_eq!(rules.refuse(name, license).is_none(), allowed, "{name}: {license:?}");
    }
}
