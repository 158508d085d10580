//! `cargo xtask check`: format, lints, and the tests of what changed, in a few minutes.
//!
//! What changed is found with Git: files that differ from the branch's start on `main`, and untracked files. It does
//! not replace `.ci/run`, which also runs the tests of crates that depend on the changed ones, and everything for
//! Windows and Python.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, array, metadata, output, run};

/// Tests that read the pages of the project and execute their commands.
const PAGES: [&str; 4] = ["--test", "documentation", "--test", "complaints"];
/// Checks on the repository as a whole.
const REPOSITORY: &str = "xtask";
const CLI: &str = "stackhound-cli";

/// A member of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Package {
    name: String,
    /// Relative to the repository.
    folder: PathBuf,
}

/// What has to be checked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Plan {
    /// Packages whose tests run.
    packages: BTreeSet<String>,
    /// Pages changed: their commands are executed.
    pages: bool,
    /// Manifests or the lock file changed: the rules for dependencies are checked.
    dependencies: bool,
    /// Changed source files that no package of the workspace contains.
    uncovered: BTreeSet<PathBuf>,
}

impl Plan {
    /// From paths relative to the repository.
    fn new<'p>(changed: impl IntoIterator<Item = &'p Path>, packages: &[Package]) -> Plan {
        let mut plan = Plan { packages: BTreeSet::from([REPOSITORY.to_owned()]), ..Plan::default() };
        for path in changed {
            let package = packages.iter().find(|package| path.starts_with(&package.folder));
            let extension = path.extension().and_then(|extension| extension.to_str());
            plan.pages |= extension == Some("md");
            let name = path.file_name().and_then(|name| name.to_str());
            plan.dependencies |= matches!(name, Some("Cargo.toml" | "Cargo.lock" | "deny.toml"));
            let is_code = ["crates", "scripts", "fuzz"].iter().any(|folder| path.starts_with(folder));
            if let Some(package) = package {
                plan.packages.insert(package.name.clone());
            } else if is_code && extension != Some("md") {
                plan.uncovered.insert(path.to_owned());
            }
        }
        plan
    }
}

/// Runs the checks one after another and ends at the first that fails.
pub fn check() -> Result<(), Error> {
    let base = base()?;
    let changed = changed(&base)?;
    println!("{} files changed since {base}", changed.len());
    let plan = Plan::new(changed.iter().map(PathBuf::as_path), &packages()?);

    run("cargo", ["fmt", "--all", "--check"])?;
    run("cargo", ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    let selected = plan.packages.iter().flat_map(|name| ["-p", name]);
    run("cargo", ["test", "--locked", "--quiet"].into_iter().chain(selected))?;
    if plan.pages && !plan.packages.contains(CLI) {
        run("cargo", ["test", "--locked", "--quiet", "-p", CLI].into_iter().chain(PAGES))?;
    }
    if plan.dependencies {
        dependencies()?;
    }
    for path in &plan.uncovered {
        println!("not covered by this check: {}; .ci/run checks it", path.display());
    }
    Ok(())
}

/// Checks the rules of `deny.toml` where cargo-deny is installed. Advisories need the network and are left to `.ci/run`.
fn dependencies() -> Result<(), Error> {
    let installed = Command::new("cargo").args(["deny", "--version"]).output();
    if installed.is_ok_and(|output| output.status.success()) {
        run("cargo", ["deny", "check", "licenses", "bans", "sources"])
    } else {
        println!("skipped: the rules of deny.toml; `cargo install --locked cargo-deny` installs the tool");
        Ok(())
    }
}

/// The commit that changes are counted from: the start of the branch, or the last commit on `main` itself.
fn base() -> Result<String, Error> {
    let branch = output("git", ["rev-parse", "--abbrev-ref", "HEAD"])?;
    if branch == "main" {
        return Ok("HEAD".to_owned());
    }
    output("git", ["merge-base", "main", "HEAD"])
}

fn changed(base: &str) -> Result<BTreeSet<PathBuf>, Error> {
    let tracked = output("git", ["diff", "--name-only", "--no-renames", base])?;
    let untracked = output("git", ["ls-files", "--others", "--exclude-standard"])?;
    Ok(tracked.lines().chain(untracked.lines()).map(PathBuf::from).collect())
}

fn packages() -> Result<Vec<Package>, Error> {
    let metadata = metadata()?;
    let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default());
    Ok(array(&metadata["packages"])
        .filter_map(|package| {
            let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
            let folder = folder.strip_prefix(root).ok()?.to_owned();
            Some(Package { name: package["name"].as_str()?.to_owned(), folder })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_select_tests() {
        let package = |name: &str, folder: &str| Package { name: name.to_owned(), folder: folder.into() };
        let packages = [
            package("stackhound-etl", "crates/etl"),
            package("stackhound-cli", "crates/cli"),
            package("stackhound-kstack-core", "crates/kstack/core"),
            package("xtask", "crates/xtask"),
        ];
        for (path, tested, pages, dependencies, uncovered) in [
            ("crates/etl/src/lib.rs", "stackhound-etl", false, false, false),
            ("crates/etl/Cargo.toml", "stackhound-etl", false, true, false),
            ("crates/kstack/core/tests/loom.rs", "stackhound-kstack-core", false, false, false),
            ("crates/kstack/driver/src/lib.rs", "", false, false, true),
            ("docs/hunt.md", "", true, false, false),
            ("Cargo.lock", "", false, true, false),
            ("scripts/fuzz.sh", "", false, false, true),
            ("deny.toml", "", false, true, false),
        ] {
            let plan = Plan::new([Path::new(path)], &packages);
            let expected: BTreeSet<&str> =
                [REPOSITORY, tested].into_iter().filter(|name| !name.is_empty()).collect();
            let found: BTreeSet<&str> = plan.packages.iter().map(String::as_str).collect();
            assert_eq!(found, expected, "{path}");
            assert_eq!((plan.pages, plan.dependencies), (pages, dependencies), "{path}");
            assert_eq!(plan.uncovered.len(), usize::from(uncovered), "{path}");
        }
    }
}
