//! A file to search for, and the verification of found files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{FileName, Refusal};
use crate::failure::{Cause, Failure, FileKind};
use crate::image::Image;
use stackhound_types::{ImageIdentity, PdbIdentity};

/// The maximum size of the headers of an image.
const HEADERS_MAX: u64 = 64 << 10;

/// A file, identified by its name and identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wanted {
    pub name: FileName,
    /// Its folder in a store.
    pub key: String,
    identity: Identity,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Identity {
    Pdb(PdbIdentity),
    Image(ImageIdentity),
}

impl Wanted {
    pub fn pdb(identity: &PdbIdentity) -> Result<Wanted, Failure> {
        let name = file_name(FileKind::Pdb, &identity.name)?;
        // The path that the linker wrote does not identify a file.
        let identity = PdbIdentity { name: String::new(), ..identity.clone() };
        Ok(Wanted { name, key: identity.store_key(), identity: Identity::Pdb(identity) })
    }

    pub fn image(name: &str, identity: ImageIdentity) -> Result<Wanted, Failure> {
        let name = file_name(FileKind::Image, name)?;
        Ok(Wanted { name, key: identity.store_key(), identity: Identity::Image(identity) })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn file(&self) -> FileKind {
        match self.identity {
            Identity::Pdb(_) => FileKind::Pdb,
            Identity::Image(_) => FileKind::Image,
        }
    }

    pub fn failure(&self, cause: Cause, detail: String) -> Failure {
        Failure { file: self.file(), cause, detail }
    }

    /// Verifies that a file is the wanted one.
    pub fn check(&self, path: &Path) -> Result<(), Failure> {
        let failure = |cause, detail: &str| Err(self.failure(cause, format!("{}: {detail}", path.display())));
        match &self.identity {
            Identity::Image(wanted) => match image_identity(path) {
                Ok(found) if found == *wanted => Ok(()),
                Ok(found) => {
                    failure(Cause::WrongIdentity, &format!("is {}, not {}", found.store_key(), self.key))
                }
                Err(error) => failure(Cause::Damaged, &error.to_string()),
            },
            Identity::Pdb(wanted) => match pdb_identity(path) {
                Ok(found) if (found.guid, found.age) == (wanted.guid, wanted.age) => Ok(()),
                Ok(found) if found.guid == wanted.guid => {
                    failure(Cause::WrongAge, &format!("has age {}, not {}", found.age, wanted.age))
                }
                Ok(found) => {
                    failure(Cause::WrongIdentity, &format!("is {}, not {}", found.store_key(), self.key))
                }
                Err((cause, detail)) => failure(cause, &detail),
            },
        }
    }
}

fn file_name(file: FileKind, name: &str) -> Result<FileName, Failure> {
    if name.is_empty() {
        return Err(Failure { file, cause: Cause::NoIdentity, detail: "the file has no name".to_owned() });
    }
    let bad = || Failure { file, cause: Cause::BadName, detail: format!("{name:?}") };
    FileName::last_of(name).ok_or_else(bad)
}

#[cfg(feature = "pdb")]
fn pdb_identity(path: &Path) -> Result<PdbIdentity, Refusal> {
    let pdb = crate::pdb::Pdb::open_path(path);
    pdb.map(|pdb| pdb.identity()).map_err(|error| (Cause::Damaged, error.to_string()))
}

#[cfg(not(feature = "pdb"))]
fn pdb_identity(_: &Path) -> Result<PdbIdentity, Refusal> {
    Err((Cause::NotBuilt, "PDB files need the feature `pdb`".to_owned()))
}

fn image_identity(path: &Path) -> io::Result<ImageIdentity> {
    let mut headers = Vec::new();
    File::open(path)?.take(HEADERS_MAX).read_to_end(&mut headers)?;
    Image::parse(&headers).map(|image| image.identity()).map_err(io::Error::other)
}
