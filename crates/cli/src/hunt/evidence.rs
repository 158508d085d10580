//! What judges believe in, and the files that they look into.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use stackhound::detect::{Binaries, Judge, Lists};
use stackhound::symbols::file_loader;

use crate::args::{Common, Hunt};
use crate::config::Config;
use crate::naming;

/// A judge with the lists and files that the arguments name.
pub fn judge(arguments: &Hunt, common: &Common) -> Result<Judge> {
    Ok(Judge::new(lists(arguments)?, binaries(arguments, common)?))
}

fn lists(arguments: &Hunt) -> Result<Lists> {
    let lists = match &arguments.lists {
        None => Lists::default(),
        Some(file) => {
            let at = |error: stackhound::detect::lists::ListsError| {
                anyhow!("{}:{}: {}", file.display(), error.line, error.message)
            };
            Lists::with(&read(file)?).map_err(at)?
        }
    };
    match &arguments.known_images {
        None => Ok(lists),
        Some(file) => Ok(lists.with_known_images(&read(file)?)),
    }
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// Files along the symbol path, those of `--images` first.
fn binaries(arguments: &Hunt, common: &Common) -> Result<Binaries> {
    let config = Config::read(common, &arguments.symbols)?;
    let mut options = naming::store_options(&config, common)?;
    for folder in arguments.images.iter().rev() {
        if !folder.is_dir() {
            bail!("{}: no directory, which --images needs", folder.display());
        }
        options.path = options.path.behind(folder.clone());
    }
    let (_, load) = file_loader(options, true);
    Ok(Binaries::new(Box::new(move |module| load(&module.identity))))
}
