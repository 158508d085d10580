//! What judges believe in, and the files that they look into.

use std::cell::OnceCell;

use anyhow::{Result, anyhow, bail};
use stackhound::detect::{Binaries, Judge};
use stackhound::frames::Lists;
use stackhound::symbols::file_loader;

use super::Arguments;
use super::sums::Sums;
use crate::config::Config;
use crate::options::Common;
use crate::{inputs, naming};

/// A judge with the lists and files that the arguments name.
pub fn judge(arguments: &Arguments, common: &Common) -> Result<Judge> {
    Ok(Judge::new(lists(arguments)?, binaries(arguments, common)?))
}

fn lists(arguments: &Arguments) -> Result<Lists> {
    let lists = match &arguments.lists {
        None => Lists::default(),
        Some(file) => {
            let at = |error: stackhound::frames::lists::ListsError| {
                anyhow!("{}:{}: {}", file.display(), error.line, error.message)
            };
            Lists::with(&inputs::text(file)?).map_err(at)?
        }
    };
    match &arguments.known_images {
        None => Ok(lists),
        Some(file) => Ok(lists.with_known_images(&inputs::text(file)?)),
    }
}

/// Files along the symbol path, those of `--images` first.
fn binaries(arguments: &Arguments, common: &Common) -> Result<Binaries> {
    let config = Config::read(common, &arguments.symbols)?;
    let mut options = naming::store_options(&config, common)?;
    for folder in arguments.images.iter().rev() {
        if !folder.is_dir() {
            bail!("{}: no directory, which --images needs", folder.display());
        }
        options.path = options.path.behind(folder.clone());
    }
    let (_, load) = file_loader(options, true);
    // Sysmon tells sums of files and nothing of their headers. Read when the first one is met.
    let (folders, sums) = (arguments.images.clone(), OnceCell::new());
    Ok(Binaries::new(Box::new(move |module| {
        let sum = module.sha256.as_ref().filter(|_| module.identity.image.is_none());
        let known = sum.and_then(|sum| sums.get_or_init(|| Sums::of(&folders)).module(sum));
        load(known.unwrap_or(&module.identity))
    })))
}
