//! The files of the policy of hunts: options of `hunt`, and the section `hunt` of the config file,
//! which applies to all verbs that hunt.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use stackhound::frames::Origin;

use crate::config::Stated;
use crate::images::TrustArguments;

#[derive(Args, Clone, Debug, Default)]
pub struct PolicyArguments {
    /// Use image and symbol files of the recorded machine in this directory or symbol store; files
    /// of other builds are ignored
    #[arg(long, value_name = "DIR", help_heading = "Evidence")]
    pub images: Vec<PathBuf>,
    /// Use facts about image files that `stackhound images scan` wrote
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub image_facts: Vec<PathBuf>,
    #[command(flatten)]
    pub trust: TrustArguments,
    /// Replace built-in lists of modules, folders and programs with those in this TOML file, and
    /// apply its sections `severity` and `exceptions`
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub lists: Option<PathBuf>,
    /// Evaluate the rules in this file or directory too
    #[arg(long, value_name = "PATH", help_heading = "Rules")]
    pub rules: Vec<PathBuf>,
    /// Compare missing fields in rules as Fibratus does: as empty, 0 or false
    #[arg(long, requires = "rules", help_heading = "Rules")]
    pub compat: bool,
    /// Compare findings with this baseline: suppress known low findings, and mark new processes and
    /// new stacks
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub baseline: Option<PathBuf>,
    /// Treat the images in this file as parts of Windows: one path, file name or SHA-256 per line
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub known_images: Option<PathBuf>,
}

/// The section `hunt` of a config file. Paths are relative to its folder.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HuntText {
    images: Option<Vec<PathBuf>>,
    image_facts: Option<Vec<PathBuf>>,
    trust: Option<Vec<PathBuf>>,
    lists: Option<PathBuf>,
    rules: Option<Vec<PathBuf>>,
    compat: Option<bool>,
    baseline: Option<PathBuf>,
    known_images: Option<PathBuf>,
}

/// The files of the policy, and where they are stated.
#[derive(Clone, Debug, Default)]
pub struct PolicyFiles {
    pub images: Stated<Vec<PathBuf>>,
    pub image_facts: Stated<Vec<PathBuf>>,
    pub trust: Stated<Vec<PathBuf>>,
    pub lists: Stated<Option<PathBuf>>,
    pub rules: Stated<Vec<PathBuf>>,
    pub compat: Stated<bool>,
    pub baseline: Stated<Option<PathBuf>>,
    pub known_images: Stated<Option<PathBuf>>,
}

impl PolicyFiles {
    /// Overrides what the section of a config file states.
    pub fn put(&mut self, text: HuntText, file: &Path, origin: &Origin) {
        let folder = file.parent().unwrap_or(Path::new(""));
        let one = |path: PathBuf| folder.join(path);
        let all = |paths: Vec<PathBuf>| paths.into_iter().map(one).collect();
        self.images.put(text.images.map(all), origin);
        self.image_facts.put(text.image_facts.map(all), origin);
        self.trust.put(text.trust.map(all), origin);
        self.lists.put(text.lists.map(one).map(Some), origin);
        self.rules.put(text.rules.map(all), origin);
        self.compat.put(text.compat, origin);
        self.baseline.put(text.baseline.map(one).map(Some), origin);
        self.known_images.put(text.known_images.map(one).map(Some), origin);
    }

    pub fn put_arguments(&mut self, arguments: &PolicyArguments) {
        let origin = |name: &str| Origin::Named(name.into());
        let stated = |paths: &Vec<PathBuf>| Some(paths.clone()).filter(|paths| !paths.is_empty());
        self.images.put(stated(&arguments.images), &origin("--images"));
        self.image_facts.put(stated(&arguments.image_facts), &origin("--image-facts"));
        self.trust.put(stated(&arguments.trust.trust), &origin("--trust"));
        self.lists.put(arguments.lists.clone().map(Some), &origin("--lists"));
        self.rules.put(stated(&arguments.rules), &origin("--rules"));
        self.compat.put(arguments.compat.then_some(true), &origin("--compat"));
        self.baseline.put(arguments.baseline.clone().map(Some), &origin("--baseline"));
        self.known_images.put(arguments.known_images.clone().map(Some), &origin("--known-images"));
    }
}
