//! How traces are read: in one pass or two, with descriptions of providers from manifests and
//! images.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use stackhound::Pipeline;
use stackhound::schema::{
    ProviderDescription, SchemaStore, looks_like_manifest, providers_of_image, providers_of_manifest,
};
use stackhound::trace::OpenTrace;

/// No manifest and no image of a provider is larger.
const FILE_SIZE_MAX: u64 = 1 << 30;

/// How the trace is read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// Read once, as a live session would be read: names and stack keys that stand later are not known earlier
    #[arg(long)]
    pub one_pass: bool,
    /// Describes events that recordings do not: a manifest (.man, .xml) or an image that has one (.dll, .exe, .sys)
    #[arg(long, value_name = "FILE")]
    pub manifest: Vec<PathBuf>,
}

impl Reading {
    /// As the library names it.
    pub fn passes(&self) -> stackhound::Passes {
        if self.one_pass { stackhound::Passes::One } else { stackhound::Passes::Two }
    }

    /// Reads a trace so, with the descriptions that are given.
    pub fn pipeline<'t>(&self, trace: &'t OpenTrace) -> Result<Pipeline<'t>> {
        Ok(Pipeline::with_schemas(trace, self.passes(), self.schemas()?))
    }

    /// The descriptions that are given.
    pub fn schemas(&self) -> Result<SchemaStore> {
        store(&self.manifest)
    }
}

/// A store that knows what manifests and images say.
fn store(files: &[PathBuf]) -> Result<SchemaStore> {
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
pub fn of_manifest_or_image(path: &Path, culture: Option<&str>) -> Result<Option<Vec<ProviderDescription>>> {
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
