//! The options that group, fold and select the frames of stacks, and what output says about them.

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use stackhound::analysis::rows::Applied;
use stackhound::profile::{self, PRESETS, PatternError};
use stackhound_export::escape::line;
use stackhound_export::json::top::Grouping;

#[derive(Args, Clone, Debug)]
pub struct Patterns {
    /// Group frames in a usual way
    #[arg(long, value_name = "PRESET", help_heading = "Frames", value_parser = presets())]
    preset: Option<String>,
    /// Give matching frames another name: PATTERN->NAME; of PATTERN=>NAME, keep only the entry points
    /// (* matches any text)
    #[arg(long, value_name = "PATTERN->NAME", help_heading = "Frames")]
    group: Vec<String>,
    /// Leave out matching frames, and add their cost to their callers
    #[arg(long, value_name = "PATTERN", help_heading = "Frames")]
    fold: Vec<String>,
    /// Leave out stacks that have a matching frame
    #[arg(long, value_name = "PATTERN", help_heading = "Frames")]
    exclude: Vec<String>,
    /// Show only stacks that have a matching frame for each of these patterns
    #[arg(long, value_name = "PATTERN", help_heading = "Frames")]
    include: Vec<String>,
    /// With --preset just-my-code, also keep the code of modules in this directory
    #[arg(long, value_name = "DIRECTORY", help_heading = "Frames")]
    own: Vec<String>,
}

fn presets() -> PossibleValuesParser {
    let value = |preset: &profile::Preset| PossibleValue::new(preset.name).help(preset.help);
    PossibleValuesParser::new(PRESETS.iter().map(value).collect::<Vec<_>>())
}

const JUST_MY_CODE: &str = "just-my-code";
/// The number of directories in one line.
const SHOWN_MAX: usize = 4;

impl Patterns {
    /// The patterns, if there are any. Those of the preset are the last ones.
    pub fn compile(&self) -> Result<Option<profile::Patterns>> {
        type Add = fn(&mut profile::Patterns, &str) -> Result<(), PatternError>;
        let mut patterns = profile::Patterns::default();
        if !self.own.is_empty() && self.preset.as_deref() != Some(JUST_MY_CODE) {
            bail!("--own states which code is kept by --preset {JUST_MY_CODE}");
        }
        let options: [(&str, &[String], Add); 5] = [
            ("--group", &self.group, profile::Patterns::group),
            ("--fold", &self.fold, profile::Patterns::fold),
            ("--exclude", &self.exclude, profile::Patterns::exclude),
            ("--include", &self.include, profile::Patterns::include),
            ("--own", &self.own, profile::Patterns::own_directory),
        ];
        for (option, texts, add) in options {
            for text in texts {
                add(&mut patterns, text).context(option)?;
            }
        }
        if let Some(preset) = self.preset.as_deref().and_then(profile::preset) {
            patterns.preset(preset).context("--preset")?;
        }
        Ok(self.texts().next().is_some().then_some(patterns))
    }

    /// Each option with its value.
    pub fn texts(&self) -> impl Iterator<Item = String> + '_ {
        let options = [
            ("group", &self.group),
            ("fold", &self.fold),
            ("exclude", &self.exclude),
            ("include", &self.include),
        ];
        let texts = options
            .into_iter()
            .flat_map(|(name, texts)| texts.iter().map(move |text| format!("{name} {text}")));
        self.preset.iter().map(|preset| format!("preset {preset}")).chain(texts)
    }

    /// Whether some stacks are left out.
    pub fn selects(&self) -> bool {
        !self.exclude.is_empty() || !self.include.is_empty()
    }

    /// Writes which options applied, to which directories, and how much was excluded, as `text` shows it.
    pub fn write<T: Copy>(
        &self,
        out: &mut impl Write,
        applied: Option<&Applied<T>>,
        text: impl Fn(T) -> String,
    ) -> io::Result<()> {
        let Some(Applied { excluded, own_directories }) = applied else { return Ok(()) };
        let excluded = text(*excluded);
        self.lines(own_directories, &excluded).try_for_each(|text| line(out, format_args!("  {text}")))
    }

    /// What [`write`](Self::write) writes.
    pub fn lines(&self, directories: &[String], excluded: &str) -> impl Iterator<Item = String> {
        let own = (self.preset.as_deref() == Some(JUST_MY_CODE)).then(|| {
            let all: Vec<&str> = directories.iter().chain(&self.own).map(String::as_str).collect();
            match &*all {
                [] => "own code: no program has a directory of its own; --own states one".to_owned(),
                all if all.len() <= SHOWN_MAX => format!("own code: {}", all.join(", ")),
                all => {
                    format!("own code: {} and {} more", all[..SHOWN_MAX].join(", "), all.len() - SHOWN_MAX)
                }
            }
        });
        let excluded = self.selects().then(|| format!("excluded: {excluded}, in no row"));
        let grouping = format!("frames: {}", self.texts().collect::<Vec<_>>().join(", "));
        [Some(grouping), own, excluded].into_iter().flatten()
    }

    /// The same for JSON.
    pub fn document<'a, T: Copy>(
        &'a self,
        applied: Option<&'a Applied<T>>,
        amount: impl Fn(T) -> u64,
    ) -> Option<Grouping<'a>> {
        let Applied { excluded, own_directories } = applied?;
        Some(Grouping {
            preset: self.preset.as_deref(),
            own_directories,
            listed_directories: &self.own,
            group: &self.group,
            fold: &self.fold,
            exclude: &self.exclude,
            include: &self.include,
            excluded: amount(*excluded),
        })
    }
}
