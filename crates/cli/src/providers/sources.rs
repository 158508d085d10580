//! Where descriptions of providers come from: tables, files, and the system.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackhound::schema::{
    ProviderDescription, SchemaStore, looks_like_manifest, providers_of_image, providers_of_manifest,
};
use stackhound::trace::Recordings;
use stackhound::{Passes, Pipeline};

use crate::args::Common;
use crate::inputs;

/// A provider, and who described it.
#[derive(Debug)]
pub struct Known {
    pub description: ProviderDescription,
    /// A file, `built in` or `system`.
    pub origin: String,
}

impl Known {
    /// Asks the system for what a list does not need.
    pub fn complete(&mut self) {
        #[cfg(windows)]
        if self.origin == SYSTEM {
            stackhound::describe_provider_of_the_system(&mut self.description);
        }
    }
}

#[cfg(windows)]
const SYSTEM: &str = "system";

/// No manifest and no image of a provider is larger.
const FILE_SIZE_MAX: u64 = 1 << 30;

/// The providers that are built in, and on Windows those that the system knows, by name.
pub fn built_in_and_of_the_system() -> Vec<Known> {
    let built_in = SchemaStore::built_in_providers().cloned();
    #[allow(unused_mut, reason = "only Windows adds to them")]
    let mut known: Vec<Known> =
        built_in.map(|description| Known { description, origin: "built in".to_owned() }).collect();
    #[cfg(windows)]
    known.extend(
        stackhound::providers_of_the_system()
            .into_iter()
            .map(|description| Known { description, origin: SYSTEM.to_owned() }),
    );
    known.sort_by(|a, b| a.description.name.cmp(&b.description.name));
    known
}

/// The providers of files, in the order of the files. Gives also whether a recording was damaged.
pub fn of_files(files: &[PathBuf], culture: Option<&str>, common: &Common) -> Result<(Vec<Known>, bool)> {
    let (mut known, mut damaged) = (Vec::new(), false);
    for path in &inputs::expanded(files)? {
        let origin = path.display().to_string();
        let descriptions = match of_manifest_or_image(path, culture)? {
            Some(descriptions) => descriptions,
            None => {
                let mut described = Vec::new();
                let opened = Recordings::file(path).threads(crate::threads(common)).captures()?;
                for capture in inputs::reported(opened) {
                    let mut pipeline = Pipeline::new(&capture.trace, Passes::Two);
                    let outcome =
                        pipeline.run_chosen(|_| ControlFlow::Continue(false), |_| ControlFlow::Continue(()));
                    damaged |= !outcome.trace.damage.is_empty();
                    described.extend(pipeline.knowledge().described_providers());
                }
                described
            }
        };
        known.extend(
            descriptions.into_iter().map(|description| Known { description, origin: origin.clone() }),
        );
    }
    Ok((known, damaged))
}

/// A store that knows what manifests and images say.
pub fn store(files: &[PathBuf]) -> Result<SchemaStore> {
    let mut store = SchemaStore::new();
    for path in files {
        let Some(descriptions) = of_manifest_or_image(path, None)? else {
            bail!("{}: expected a manifest or an image with one", path.display());
        };
        descriptions.into_iter().for_each(|description| store.learn_description(description));
    }
    Ok(store)
}

/// What a file says if it is a manifest or an image, as its first bytes tell.
fn of_manifest_or_image(path: &Path, culture: Option<&str>) -> Result<Option<Vec<ProviderDescription>>> {
    let context = || path.display().to_string();
    // Opening a pipe waits for a writer.
    if path.exists() && !path.is_file() {
        return Ok(None);
    }
    let mut start = [0; 64];
    let length = File::open(path).and_then(|mut file| file.read(&mut start)).with_context(context)?;
    if looks_like_manifest(&start[..length]) {
        let bytes = read(path)?;
        return providers_of_manifest(&bytes, culture).map(Some).with_context(context);
    }
    if !start.starts_with(b"MZ") {
        return Ok(None);
    }
    let texts: Vec<Vec<u8>> = texts_beside(path, culture).iter().filter_map(|path| read(path).ok()).collect();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    providers_of_image(&read(path)?, &texts).map(Some).with_context(context)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        bail!("{}: larger than 1 GiB", path.display());
    }
    Ok(bytes)
}

/// The files with the texts of an image: its name with `.mui`, in a folder that is called as the culture, in that of en-US,
/// beside the image, and in other folders there.
fn texts_beside(image: &Path, culture: Option<&str>) -> Vec<PathBuf> {
    let Some(name) = image.file_name() else { return Vec::new() };
    let mut mui = name.to_owned();
    mui.push(".mui");
    let folder = match image.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.push(folder.to_owned());
    let is =
        |path: &Path, culture: &str| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(culture));
    folders.sort_by_key(|path| {
        let rank = match path {
            path if culture.is_some_and(|culture| is(path, culture)) => 0,
            path if is(path, "en-US") => 1,
            path if path == folder => 2,
            _ => 3,
        };
        (rank, path.clone())
    });
    folders.into_iter().map(|folder| folder.join(&mui)).filter(|path| path.is_file()).collect()
}
