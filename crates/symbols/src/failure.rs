//! Causes of missing module files, with hints.

use std::fmt;

use strum::{IntoStaticStr, VariantArray};

/// A file of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum FileKind {
    /// The PDB.
    Pdb,
    /// The image: the executable, library or driver itself.
    Image,
}

impl FileKind {
    /// Returns `pdb` or `image`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The cause for which a file of a module cannot be used. If locations fail with different causes,
/// the greatest one is reported. Causes are in ascending order of their information about the file
/// and of their value for obtaining it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Cause {
    /// The trace does not identify the file.
    NoIdentity,
    /// The image was built without a PDB.
    NoPdb,
    /// The trace gives a name that is not a valid file name.
    BadName,
    /// Not in any folder of the symbol path, which has no server.
    NotInPath,
    /// A file with this name exists, but of another build.
    WrongIdentity,
    /// The servers do not have it.
    NotOnServer,
    /// A server could not be reached, ended the connection early, or returned an error.
    Unreachable,
    /// A server offers more bytes than the limit allows.
    TooLarge,
    /// It was downloaded, but could not be stored.
    NotKept,
    /// Not in any folder of the symbol path, whose servers were not queried.
    NotAsked,
    /// It exists or could be downloaded, but this program was built without the required feature.
    NotBuilt,
    /// It exists only in packed form, or as a reference to another location.
    Packed,
    /// A PDB of the right build exists, but with another age.
    WrongAge,
    /// It exists, but cannot be read.
    Damaged,
}

impl Cause {
    /// All causes, in ascending order.
    pub const ALL: &[Cause] = Cause::VARIANTS;

    /// Returns a short name for scripts.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Describes the cause in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Cause::NoIdentity => "the trace does not identify the file",
            Cause::NoPdb => "the image does not name a PDB",
            Cause::BadName => "the trace gives a name that is not a valid file name",
            Cause::NotInPath => "not in the symbol path",
            Cause::NotAsked => "not in the folders of the symbol path; servers were not queried",
            Cause::NotOnServer => "the symbol servers do not have it",
            Cause::Unreachable => "a symbol server could not be reached",
            Cause::TooLarge => "larger than the download limit",
            Cause::NotKept => "downloaded, but could not be written to its folder",
            Cause::NotBuilt => "this program was built without the feature that reads or downloads it",
            Cause::Packed => "only a packed copy is in the symbol path",
            Cause::WrongIdentity => "only other builds of it are in the symbol path",
            Cause::WrongAge => "the PDB was rewritten after the image was linked",
            Cause::Damaged => "the file cannot be read",
        }
    }

    /// Returns a hint for the user, in one sentence.
    pub fn hint(self) -> &'static str {
        match self {
            Cause::NoIdentity => {
                "Merge the trace on the machine on which it was recorded (xperf -merge, wpr -stop), which adds the identities; an image in the symbol path also names its PDB."
            }
            Cause::NoPdb => "No action needed: it was built without a PDB, and its exports provide names.",
            Cause::BadName => "No action possible: the trace is damaged here, or was manipulated.",
            Cause::NotInPath => {
                "Add the folder that contains it, or a server such as srv*https://msdl.microsoft.com/download/symbols, with --symbol-path or _NT_SYMBOL_PATH."
            }
            Cause::NotAsked => "Run again with --online, or once: stackhound symbols fetch --online FILE.",
            Cause::NotOnServer => {
                "Use the file from the build that produced the module; if the server has it by now, query it again with stackhound symbols fetch --online --retry FILE."
            }
            Cause::Unreachable => {
                "Check the server's address in the symbol path and the network connection, then run again."
            }
            Cause::TooLarge => "Download it by other means and add its folder with --symbol-path.",
            Cause::NotKept => "Free space in the download folder, or allow writing to it.",
            Cause::NotBuilt => "Build with the features `download` and `pdb`.",
            Cause::Packed => "Unpack the file in its folder (expand on Windows, cabextract elsewhere).",
            Cause::WrongIdentity => {
                "Find the file of the recorded build; another build would give wrong names."
            }
            Cause::WrongAge => "Use the PDB as the linker wrote it, before other tools changed it.",
            Cause::Damaged => "Delete the file and fetch it again.",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// The failure to use a file of a module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Failure {
    /// The file.
    pub file: FileKind,
    /// The cause.
    pub cause: Cause,
    /// The location and the finding there. May be empty.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_name_and_a_hint_of_its_own() {
        let mut names: Vec<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        let mut hints: Vec<_> = Cause::ALL.iter().map(|cause| cause.hint()).collect();
        for texts in [&mut names, &mut hints] {
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(texts.len(), Cause::ALL.len());
        }
        assert!(hints.iter().all(|hint| hint.ends_with('.')), "each is a sentence");
        assert!(Cause::ALL.is_sorted());
    }
}
