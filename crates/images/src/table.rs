//! Facts about many images, found by the hash of the file or by the identity in its header.

use std::collections::HashMap;

use serde::Deserialize;
use stackhound_types::{Guid, ImageIdentity, ModuleIdentity, PdbIdentity, sha256_of_hex};

use crate::facts::{FactSource, ImageFacts, Signature, SignatureReason, SignatureState, VersionInfo};
use crate::file::ImageFile;

/// Maximum number of images. Further ones are refused.
const IMAGES_MAX: usize = 1 << 18;
/// Maximum number of different images with the same time stamp and size. Beyond it, none is found.
const SAME_IDENTITY_MAX: usize = 64;
/// Version of the side-car format.
const VERSION: u32 = 1;

/// Why facts cannot be added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// A line of a side-car file is not valid.
    #[error("line {line}: expected an image as `images scan` writes it, found {found}")]
    Line {
        /// Number of the line, starting at 1.
        line: usize,
        /// The reason.
        found: String,
    },
    /// There are more images than the limit.
    #[error("expected at most {IMAGES_MAX} images, found more")]
    TooMany,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    facts: ImageFacts,
    pdb: Option<PdbIdentity>,
}

/// The facts about many images.
#[derive(Clone, Debug, Default)]
pub struct ImageTable {
    entries: Vec<Entry>,
    by_sha256: HashMap<[u8; 32], usize>,
    by_identity: HashMap<ImageIdentity, Vec<usize>>,
}

impl ImageTable {
    /// Number of distinct images.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the facts of a file.
    ///
    /// # Errors
    /// [`TableError::TooMany`]
    pub fn add(&mut self, file: &ImageFile) -> Result<(), TableError> {
        let sha256 = file.hashes.as_ref().map(|hashes| hashes.sha256);
        let entry = Entry { facts: file.facts(FactSource::File), pdb: file.pdb.clone() };
        self.insert(file.identity, sha256, entry)
    }

    /// Adds the images of a side-car file: one JSON object per line, in the format of
    /// `docs/images.md`. Returns their number.
    ///
    /// # Errors
    /// About the first invalid line. The images before it are added.
    pub fn add_side_car(&mut self, text: &str) -> Result<usize, TableError> {
        let mut added = 0;
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let error = |found| TableError::Line { line: index + 1, found };
            let line: Line = serde_json::from_str(line).map_err(|other| error(other.to_string()))?;
            let (identity, sha256, entry) = line.entry().map_err(error)?;
            self.insert(identity, sha256, entry)?;
            added += 1;
        }
        Ok(added)
    }

    fn insert(
        &mut self,
        identity: ImageIdentity,
        sha256: Option<[u8; 32]>,
        entry: Entry,
    ) -> Result<(), TableError> {
        let same = self.by_identity.get(&identity).map(Vec::as_slice).unwrap_or_default();
        let is_known = match sha256 {
            Some(sha256) => self.by_sha256.contains_key(&sha256),
            None => same.iter().take(SAME_IDENTITY_MAX).any(|index| self.entries[*index] == entry),
        };
        if is_known {
            return Ok(());
        }
        if self.entries.len() >= IMAGES_MAX {
            return Err(TableError::TooMany);
        }
        let index = self.entries.len();
        self.entries.push(entry);
        if let Some(sha256) = sha256 {
            self.by_sha256.insert(sha256, index);
        }
        self.by_identity.entry(identity).or_default().push(index);
        Ok(())
    }

    /// The facts about a module: by the SHA-256 of its file if it is known, otherwise by the time
    /// stamp and size in its header and, where both sides state one, its PDB. `None` if there are no
    /// facts, or if different images have this identity.
    pub fn find(&self, identity: &ModuleIdentity, sha256: Option<&[u8; 32]>) -> Option<&ImageFacts> {
        if let Some(sha256) = sha256 {
            return self.by_sha256.get(sha256).map(|index| &self.entries[*index].facts);
        }
        let indexes = self.by_identity.get(&identity.image?)?;
        if indexes.len() > SAME_IDENTITY_MAX {
            return None;
        }
        let is_same_pdb = |entry: &&Entry| match (&identity.pdb, &entry.pdb) {
            (Some(one), Some(other)) => (one.guid, one.age) == (other.guid, other.age),
            _ => true,
        };
        let mut found = indexes.iter().map(|index| &self.entries[*index]).filter(is_same_pdb);
        let first = found.next()?;
        found.all(|other| other.facts == first.facts).then_some(&first.facts)
    }
}

/// The part of a line that is read.
#[derive(Deserialize)]
struct Line {
    r#type: String,
    schema_version: u32,
    time_date_stamp: String,
    image_size: u32,
    sha256: Option<String>,
    pdb: Option<PdbLine>,
    dotnet: bool,
    version: Option<VersionLine>,
    signature: SignatureLine,
}

#[derive(Deserialize)]
struct PdbLine {
    name: String,
    guid: String,
    age: u32,
}

#[derive(Deserialize)]
struct VersionLine {
    original_file_name: Option<String>,
    company: Option<String>,
    product: Option<String>,
    description: Option<String>,
    file_version: Option<String>,
}

#[derive(Deserialize)]
struct SignatureLine {
    state: String,
    reason: Option<String>,
    signer: Option<String>,
}

impl Line {
    fn entry(self) -> Result<(ImageIdentity, Option<[u8; 32]>, Entry), String> {
        if self.r#type != "image" {
            return Err(format!("an object of the type `{}`", self.r#type));
        }
        if self.schema_version != VERSION {
            return Err(format!("version {} instead of {VERSION}", self.schema_version));
        }
        let stamp =
            self.time_date_stamp.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let time_date_stamp = stamp.ok_or("a `time_date_stamp` that is not a number such as 0x5eed5eed")?;
        let sha256 =
            self.sha256.as_deref().map(|text| sha256_of_hex(text).ok_or("a `sha256` without 64 digits"));
        let pdb = self.pdb.map(|pdb| match pdb.guid.parse::<Guid>() {
            Ok(guid) => Ok(PdbIdentity { name: pdb.name, guid, age: pdb.age }),
            Err(_) => Err("a `pdb` without a GUID"),
        });
        let text = |text: Option<String>| text.map(String::into_boxed_str);
        let facts = ImageFacts {
            source: FactSource::SideCar,
            signature: Some(self.signature.read()?),
            version: self.version.map_or_else(VersionInfo::default, |version| VersionInfo {
                original_file_name: text(version.original_file_name),
                company: text(version.company),
                product: text(version.product),
                description: text(version.description),
                file_version: text(version.file_version),
            }),
            is_dotnet: Some(self.dotnet),
        };
        let identity = ImageIdentity { time_date_stamp, size: self.image_size };
        Ok((identity, sha256.transpose()?, Entry { facts, pdb: pdb.transpose()? }))
    }
}

impl SignatureLine {
    fn read(self) -> Result<Signature, String> {
        let state = SignatureState::of(&self.state).ok_or(format!("the state `{}`", self.state))?;
        let reason =
            self.reason.map(|reason| SignatureReason::of(&reason).ok_or(format!("the reason `{reason}`")));
        Ok(Signature { state, reason: reason.transpose()?, signer: self.signer.map(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"type":"image","schema_version":1,"path":"a.exe","time_date_stamp":"0x5eed5eed",
        "image_size":4096,"sha256":"SUM","pdb":{"name":"a.pdb","guid":"00000000-0000-0000-0000-000000000001","age":2},"dotnet":true,
        "version":{"original_file_name":"NAME","company":null,"product":null,"description":null,"file_version":"1"},
        "signature":{"state":"valid","reason":null,"signer":"S"},"signatures":[]}"#;

    fn line(sum: &str, name: &str) -> String {
        LINE.replace('\n', " ").replace("SUM", &sum.repeat(32)).replace("NAME", name)
    }

    fn identity(pdb_age: Option<u32>) -> ModuleIdentity {
        let guid = Guid::from_u128(1);
        let pdb = pdb_age.map(|age| PdbIdentity { name: "x.pdb".to_owned(), guid, age });
        let image = Some(ImageIdentity { time_date_stamp: 0x5eed_5eed, size: 4096 });
        ModuleIdentity { name: "b.exe".to_owned(), image, pdb }
    }

    fn name<'t>(table: &'t ImageTable, identity: &ModuleIdentity, sum: Option<u8>) -> Option<&'t str> {
        let sum = sum.map(|byte| [byte; 32]);
        let facts = table.find(identity, sum.as_ref())?;
        assert_eq!((facts.source, facts.is_dotnet), (FactSource::SideCar, Some(true)));
        facts.version.original_file_name.as_deref()
    }

    #[test]
    fn images_are_found_by_hash_or_identity() {
        let mut table = ImageTable::default();
        assert_eq!(table.add_side_car(&(line("aa", "one.exe") + "\n\n" + &line("aa", "one.exe"))), Ok(2));
        assert_eq!(table.len(), 1);
        for (pdb_age, sum, expected) in [
            (None, Some(0xaa), Some("one.exe")),
            // A known hash of another file excludes this one, whatever its header states.
            (None, Some(0xbb), None),
            (None, None, Some("one.exe")),
            (Some(2), None, Some("one.exe")),
            (Some(3), None, None),
        ] {
            assert_eq!(name(&table, &identity(pdb_age), sum), expected, "{pdb_age:?} {sum:?}");
        }
        assert_eq!(name(&table, &ModuleIdentity::default(), None), None);
        // A second image with the same identity and other facts: only the hash decides.
        assert_eq!(table.add_side_car(&line("bb", "two.exe")), Ok(1));
        assert_eq!(name(&table, &identity(None), None), None);
        assert_eq!(name(&table, &identity(None), Some(0xbb)), Some("two.exe"));
    }

    #[test]
    fn equal_images_without_a_hash_are_kept_once() {
        let mut table = ImageTable::default();
        let without = |name| line("", name).replace("\"\"", "null");
        let lines = [without("one.exe"), without("one.exe"), without("two.exe")];
        let other_pdb = without("one.exe").replace(r#""age":2"#, r#""age":3"#);
        for (line, images) in lines.iter().chain([&other_pdb]).zip([1, 1, 2, 3]) {
            assert_eq!(table.add_side_car(line), Ok(1));
            assert_eq!(table.len(), images, "{line}");
        }
        assert_eq!(name(&table, &identity(Some(3)), None), Some("one.exe"));
        // Any number of equal ones is one image.
        let mut table = ImageTable::default();
        let lines = vec![without("one.exe"); SAME_IDENTITY_MAX + 1].join("\n");
        assert_eq!(table.add_side_car(&lines), Ok(SAME_IDENTITY_MAX + 1));
        assert_eq!(name(&table, &identity(None), None), Some("one.exe"));
    }

    #[test]
    fn errors_name_the_line() {
        for (change, to, expected) in [
            ("\"image\"", "\"finding\"", "an object of the type `finding`"),
            ("_version\":1", "_version\":2", "version 2 instead of 1"),
            ("0x5eed5eed", "5eed5eed", "a `time_date_stamp` that is not"),
            ("SUM", "aa", "a `sha256` without"),
            ("\"valid\"", "\"good\"", "the state `good`"),
            ("00000000-", "", "a `pdb` without a GUID"),
            ("{\"type\"", "\"type\"", "invalid type"),
        ] {
            let text = format!("\n{}", line("aa", "n"));
            let text = match change {
                "SUM" => text.replace(&"aa".repeat(32), to),
                _ => text.replacen(change, to, 1),
            };
            let error = ImageTable::default().add_side_car(&text).unwrap_err().to_string();
            assert!(error.starts_with("line 2: expected an image") && error.contains(expected), "{error}");
        }
    }
}
