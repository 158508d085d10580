//! Why a module's file is missing, by cause, and what helps.

use std::fmt;

/// Which file of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FileKind {
    /// Its PDB.
    Pdb,
    /// Its image: the executable, library or driver itself.
    Image,
}

impl FileKind {
    /// `pdb` or `image`.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Pdb => "pdb",
            FileKind::Image => "image",
        }
    }
}

/// Why a file of a module could not be used. Of several places, the greatest cause is reported: the order is from what
/// says least of the file to what says most, or most helps to get it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// The recording does not say which file it is.
    NoIdentity,
    /// The image was built without a PDB.
    NoPdb,
    /// The recording gives it a name that is none of a file.
    BadName,
    /// Not in any folder of the symbol path, and the path names no server.
    NotInPath,
    /// A file of this name is there, of another build.
    WrongIdentity,
    /// The servers do not have it.
    NotOnServer,
    /// A server could not be reached, broke off, or answered with an error.
    Unreachable,
    /// A server offers more bytes than are allowed.
    TooLarge,
    /// It was downloaded and could not be kept.
    NotKept,
    /// Not in any folder of the symbol path. Its servers were not asked.
    NotAsked,
    /// It is there or could be downloaded, but this program was built without the feature that does
    /// it.
    NotBuilt,
    /// It is there in a packed form only, or as a reference to another place.
    Packed,
    /// A PDB of the right build is there, written another time.
    WrongAge,
    /// It is there and cannot be read.
    Damaged,
}

impl Cause {
    /// All, in order.
    pub const ALL: [Cause; 14] = [
        Cause::NoIdentity,
        Cause::NoPdb,
        Cause::BadName,
        Cause::NotInPath,
        Cause::WrongIdentity,
        Cause::NotOnServer,
        Cause::Unreachable,
        Cause::TooLarge,
        Cause::NotKept,
        Cause::NotAsked,
        Cause::NotBuilt,
        Cause::Packed,
        Cause::WrongAge,
        Cause::Damaged,
    ];

    /// A short name for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Cause::NoIdentity => "no-identity",
            Cause::NoPdb => "no-pdb",
            Cause::BadName => "bad-name",
            Cause::NotInPath => "not-in-path",
            Cause::NotAsked => "not-asked",
            Cause::NotOnServer => "not-on-server",
            Cause::Unreachable => "unreachable",
            Cause::TooLarge => "too-large",
            Cause::NotKept => "not-kept",
            Cause::NotBuilt => "not-built",
            Cause::Packed => "packed",
            Cause::WrongIdentity => "wrong-identity",
            Cause::WrongAge => "wrong-age",
            Cause::Damaged => "damaged",
        }
    }

    /// What is wrong, in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Cause::NoIdentity => "the recording does not say which file it is",
            Cause::NoPdb => "the image names none",
            Cause::BadName => "the recording gives it a name that no file can have",
            Cause::NotInPath => "not in the symbol path",
            Cause::NotAsked => "not in the folders of the symbol path; servers were not asked",
            Cause::NotOnServer => "the symbol servers do not have it",
            Cause::Unreachable => "a symbol server could not be reached",
            Cause::TooLarge => "larger than may be downloaded",
            Cause::NotKept => "downloaded, but could not be written to its folder",
            Cause::NotBuilt => "this program was built without the feature that reads or downloads it",
            Cause::Packed => "in the symbol path in packed form only",
            Cause::WrongIdentity => "only other builds of it are in the symbol path",
            Cause::WrongAge => "the PDB was written again after the image was linked",
            Cause::Damaged => "the file cannot be read",
        }
    }

    /// What helps, in a sentence.
    pub fn hint(self) -> &'static str {
        match self {
            Cause::NoIdentity => {
                "Merge the recording on the machine it was made on (xperf -merge, wpr -stop), which writes the identities into it; an image in the symbol path also names its PDB."
            }
            Cause::NoPdb => "Nothing to do: it was built without one, and its exports are named.",
            Cause::BadName => "Nothing to do: the recording is damaged here, or was made to mislead.",
            Cause::NotInPath => {
                "Add the folder that has it, or a server such as srv*https://msdl.microsoft.com/download/symbols, with --symbol-path or _NT_SYMBOL_PATH."
            }
            Cause::NotAsked => "Run again with --online, or once: stackhound symbols fetch --online FILE.",
            Cause::NotOnServer => {
                "Take it from the build that made the module; if the server has got it since, ask again with stackhound symbols fetch --online --retry FILE."
            }
            Cause::Unreachable => {
                "Check the server's address in the symbol path and the connection, then run again."
            }
            Cause::TooLarge => "Download it by other means and add its folder with --symbol-path.",
            Cause::NotKept => "Make room in the folder that keeps downloads, or allow writing to it.",
            Cause::NotBuilt => "Build with the features `download` and `pdb`.",
            Cause::Packed => "Unpack the file beside it (expand on Windows, cabextract elsewhere).",
            Cause::WrongIdentity => {
                "Find the file of the build that was recorded; another build would give wrong names."
            }
            Cause::WrongAge => "Take the PDB as the linker left it, before other tools wrote it again.",
            Cause::Damaged => "Delete the file and fetch it again.",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// That a file of a module could not be used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Failure {
    /// Which file.
    pub file: FileKind,
    /// Why.
    pub cause: Cause,
    /// The place and what was found there. May be empty.
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
