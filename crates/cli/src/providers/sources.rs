//! The sources of provider descriptions: built-in tables, files and the system.

use std::path::PathBuf;

use anyhow::Result;
use stackhound::etl::Selection;
use stackhound::schema::{ProviderDescription, SchemaStore};
use stackhound::trace::TraceFiles;

use crate::inputs;
use crate::options::Common;
use crate::reading::of_manifest_or_image;

/// A provider and the source of its description.
#[derive(Debug)]
pub struct ListedProvider {
    pub description: ProviderDescription,
    /// A file name, `built in` or `system`.
    pub origin: String,
}

impl ListedProvider {
    /// Queries the system for the parts of the description that a list does not need.
    pub fn complete(&mut self) {
        #[cfg(windows)]
        if self.origin == SYSTEM {
            stackhound::describe_provider_of_the_system(&mut self.description);
        }
    }
}

#[cfg(windows)]
const SYSTEM: &str = "system";

/// The built-in providers, and on Windows those registered on the system, sorted by name.
pub fn built_in_and_of_the_system() -> Vec<ListedProvider> {
    let built_in = SchemaStore::built_in_providers().cloned();
    #[allow(unused_mut, reason = "only Windows adds to them")]
    let mut known: Vec<ListedProvider> =
        built_in.map(|description| ListedProvider { description, origin: "built in".to_owned() }).collect();
    #[cfg(windows)]
    known.extend(
        stackhound::providers_of_the_system()
            .into_iter()
            .map(|description| ListedProvider { description, origin: SYSTEM.to_owned() }),
    );
    known.sort_by(|a, b| a.description.name.cmp(&b.description.name));
    known
}

/// The providers in files, in the order of the files, and whether a trace was damaged.
pub fn of_files(
    files: &[PathBuf],
    culture: Option<&str>,
    common: &Common,
) -> Result<(Vec<ListedProvider>, bool)> {
    let (mut known, mut damaged) = (Vec::new(), false);
    for path in &inputs::expanded(files)? {
        let origin = path.display().to_string();
        let descriptions = match of_manifest_or_image(path, culture)? {
            Some(descriptions) => descriptions,
            None => {
                let mut described = Vec::new();
                let opened = TraceFiles::file(path).threads(common.threads()).captures()?;
                for capture in inputs::reported(opened) {
                    let mut known = SchemaStore::new();
                    let mut events = capture.trace.selected(SchemaStore::select(Selection::none()));
                    while let Some(event) = events.next() {
                        // Descriptions that cannot be read are not listed.
                        let _ = known.learn_record(event.entry().tag, &event.record());
                    }
                    damaged |= !events.stats().damage.is_empty();
                    described.extend(known.learned_providers());
                }
                described
            }
        };
        known.extend(
            descriptions
                .into_iter()
                .map(|description| ListedProvider { description, origin: origin.clone() }),
        );
    }
    Ok((known, damaged))
}
