//! Reading traces in one pass or two, with provider descriptions from manifests and images.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use stackhound::Pipeline;
use stackhound::schema::{
    ProviderDescription, SchemaStore, looks_like_manifest, providers_of_image, providers_of_manifest,
};
use stackhound::trace::OpenTrace;

/// Larger than any manifest or image of a provider.
const FILE_SIZE_MAX: u64 = 1 << 30;

#[derive(Args, Debug)]
pub struct Reading {
    /// Read the trace once, like a live session: names and stack keys apply only to later events
    #[arg(long, help_heading = "Reading")]
    pub one_pass: bool,
    /// Decode events with this manifest (.man, .xml), or the manifest in this image (.dll, .exe,
    /// .sys)
    #[arg(long, value_name = "FILE", help_heading = "Reading")]
    pub manifest: Vec<PathBuf>,
}

impl Reading {
    pub fn passes(&self) -> stackhound::Passes {
        if self.one_pass { stackhound::Passes::One } else { stackhound::Passes::Two }
    }

    /// A pipeline that reads a trace with these arguments.
    pub fn pipeline<'t>(&self, trace: &'t OpenTrace) -> Result<Pipeline<'t>> {
        Ok(Pipeline::with_schemas(trace, self.passes(), self.schemas()?))
    }

    /// The provider descriptions of the given manifests and images.
    pub fn schemas(&self) -> Result<SchemaStore> {
        store(&self.manifest)
    }
}

/// A schema store with the provider descriptions of manifests and images.
fn store(files: &[PathBuf]) -> Result<SchemaStore> {
    let mut store = SchemaStore::new();
    for path in files {
        let Some(descriptions) = of_manifest_or_image(path, None)? else {
            bail!("{}: expected a manifest or an image with a manifest", path.display());
        };
        descriptions.into_iter().for_each(|description| store.learn_description(description));
    }
    Ok(store)
}

/// The providers in a manifest or image, which is recognized by its first bytes; `None` for other
/// files.
pub fn of_manifest_or_image(path: &Path, culture: Option<&str>) -> Result<Option<Vec<ProviderDescription>>> {
    let context = || path.display().to_string();
    // Opening a pipe would wait for a writer.
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
    let texts: Vec<Vec<u8>> = mui_files(path, culture).iter().filter_map(|path| read(path).ok()).collect();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    providers_of_image(&read(path)?, &texts).map(Some).with_context(context)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        bail!("{}: expected a manifest or image of at most 1 GiB, found a larger file", path.display());
    }
    Ok(bytes)
}

/// The files with the messages of an image: its name with `.mui`, in the folder named after the
/// culture, in the folder en-US, in the folder of the image, and in the other folders there.
fn mui_files(image: &Path, culture: Option<&str>) -> Vec<PathBuf> {
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

/// Stops reading at an error, which is kept.
pub fn or_stop<E>(result: Result<(), E>, failure: &mut Option<E>) -> ControlFlow<()> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *failure = Some(error);
            ControlFlow::Break(())
        }
    }
}
