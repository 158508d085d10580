//! `stackhound images scan`: a side-car file with the facts about many images.

use std::io::Write;
use std::path::PathBuf;
use std::slice;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::images::ImageFile;
use stackhound_export::escape::json;
use stackhound_export::json::images::Image;

use super::read;
use super::trust::{TrustArguments, checks};
use crate::inputs;
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, counted, message};

#[derive(Args, Debug)]
pub struct Scan {
    /// Read the image files in these directories and their subdirectories
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    #[command(flatten)]
    pub trust: TrustArguments,
    #[command(flatten)]
    pub output: Output,
}

pub fn run(arguments: &Scan, common: &Common) -> Result<Outcome> {
    let trust = arguments.trust.read()?;
    let checks = checks(trust.as_ref());
    if let Some(folder) = arguments.folders.iter().find(|folder| !folder.is_dir()) {
        bail!("{}: expected a directory; `stackhound images show` reads single files", folder.display());
    }
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    let (mut images, mut others) = (0, 0);
    for path in arguments.folders.iter().flat_map(|folder| inputs::files_in(slice::from_ref(folder))) {
        let file = read(&path).and_then(|bytes| ImageFile::read(&bytes, &checks).ok());
        match file {
            Some(file) => {
                json(&mut sink, &Image::new(&path.to_string_lossy(), &file))?;
                writeln!(sink)?;
                images += 1;
            }
            None => others += 1,
        }
    }
    sink.flush()?;
    sink.finish()?;
    if !common.quiet {
        let (images, others) =
            (counted(images, "image", "images"), counted(others, "other file", "other files"));
        message(format_args!("{images}, {others}"));
    }
    Ok(Outcome::default())
}
