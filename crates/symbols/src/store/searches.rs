//! The searches of a store as text, so that what was made of the found files can be kept: it is
//! current as long as all searches have the same results.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use stackhound_types::{Guid, ImageIdentity, PdbIdentity};

use super::wanted::Identity;
use super::{Found, Store, Wanted};
use crate::failure::Failure;

impl Store {
    /// Describes the searches so far: a line for each file, in no order, with the path, the size and the
    /// time of the file that was found.
    pub fn searches(&self) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.iter().filter_map(|(wanted, slot)| Some(line(wanted, slot.get()?))).collect()
    }

    /// Repeats a search. Returns whether it has the result of this line: the same file with the same
    /// size and time, or none.
    pub fn finds_the_same(&self, searched: &str) -> bool {
        wanted(searched).is_some_and(|wanted| line(&wanted, &self.find(wanted.clone())) == searched)
    }
}

fn line(wanted: &Wanted, result: &Result<Found, Failure>) -> String {
    let (kind, name) = (wanted.file().name(), wanted.name.as_str());
    let identity = match wanted.identity() {
        Identity::Pdb(identity) => format!("{}\t{}", identity.guid, identity.age),
        Identity::Image(identity) => format!("{}\t{}", identity.time_date_stamp, identity.size),
    };
    let Ok(Found { path, .. }) = result else { return format!("{kind}\t{name}\t{identity}\tnone") };
    // A path can contain any character; in quotes, it is one line.
    format!("{kind}\t{name}\t{identity}\t{path:?}\t{}", size_and_time(path))
}

/// The size of a file in bytes, and the time of its last change in nanoseconds since 1970. Zeros if
/// they are not known.
pub(crate) fn size_and_time(path: &Path) -> String {
    let facts = fs::metadata(path);
    let size = facts.as_ref().map_or(0, |facts| facts.len());
    let time = facts.ok().and_then(|facts| facts.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    format!("{size}\t{}", time.unwrap_or_default().as_nanos())
}

/// The file that the search of a line was for.
fn wanted(line: &str) -> Option<Wanted> {
    let mut fields = line.split('\t');
    let (kind, name, first, second) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    match kind {
        "pdb" => {
            let (guid, age): (Guid, u32) = (first.parse().ok()?, second.parse().ok()?);
            Wanted::pdb(&PdbIdentity { name: name.to_owned(), guid, age }).ok()
        }
        "image" => {
            let (time_date_stamp, size) = (first.parse().ok()?, second.parse().ok()?);
            Wanted::image(name, ImageIdentity { time_date_stamp, size }).ok()
        }
        _ => None,
    }
}
