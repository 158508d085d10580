//! Settings: built in, from a config file, from the environment, from the command line; and
//! `config show`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use stackhound::frames::{EventPattern, KernelSymbols, Level, Origin, Policy, PolicyText};
use stackhound_export::json::symbols::Setting;

use crate::hunt_files::{HuntText, PolicyFiles};
use crate::inputs;
use crate::options::{Common, ListFormat, Output};
use crate::outcome::Outcome;

#[derive(Args, Clone, Debug)]
pub struct SymbolArguments {
    /// Search symbol files along this path, in the syntax of _NT_SYMBOL_PATH, which it replaces
    #[arg(long, value_name = "PATH", help_heading = "Symbols")]
    pub symbol_path: Option<String>,
    /// Download missing files from the servers of the symbol path
    #[arg(long, help_heading = "Symbols")]
    pub online: bool,
}

/// The contents of a config file. Every key is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigText {
    kernel_symbols: Option<KernelSymbols>,
    events: BTreeMap<EventPattern, Level>,
    symbols: SymbolsText,
    hunt: HuntText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SymbolsText {
    path: Option<String>,
    online: Option<bool>,
    memory_limit_mib: Option<u32>,
    download_limit_mib: Option<u32>,
    download_timeout_seconds: Option<u32>,
}

/// A value and its source.
#[derive(Clone, Debug)]
pub struct Stated<T> {
    pub value: T,
    origin: Origin,
}

impl<T: Default> Default for Stated<T> {
    fn default() -> Stated<T> {
        Stated::built_in(T::default())
    }
}

impl<T> Stated<T> {
    fn built_in(value: T) -> Stated<T> {
        Stated { value, origin: Origin::Default }
    }

    /// Overrides the value if one is given, so that later sources take precedence.
    pub fn put(&mut self, value: Option<T>, origin: &Origin) {
        if let Some(value) = value {
            *self = Stated { value, origin: origin.clone() };
        }
    }
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The events that get stacks and names.
    pub policy: Policy,
    /// In the syntax of `_NT_SYMBOL_PATH`; `None` for the store in the user's cache directory.
    pub symbol_path: Stated<Option<String>>,
    /// Whether files are downloaded from the servers of the symbol path.
    pub online: Stated<bool>,
    /// Limit of the memory for symbol tables.
    pub memory_limit_mib: Stated<u32>,
    /// Limit of the size of one downloaded file.
    pub download_limit_mib: Stated<u32>,
    /// Limit of the time of one download.
    pub download_timeout_seconds: Stated<u32>,
    /// The files of the policy of hunts.
    pub hunt: PolicyFiles,
}

/// The environment variable of Microsoft's debugging tools.
const SYMBOL_PATH_VARIABLE: &str = "_NT_SYMBOL_PATH";

/// Reads a config file. Errors name the file and the line.
pub fn read_file(file: &Path) -> Result<ConfigText> {
    let text = inputs::text(file)?;
    toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        anyhow!("{}:{line}: {}", file.display(), error.message())
    })
}

impl Config {
    /// Reads the built-in values, the environment, the config file and the arguments, in this
    /// order. Later sources override earlier ones.
    pub fn read(common: &Common, symbols: &SymbolArguments) -> Result<Config> {
        let mut config = Config {
            policy: Policy::default(),
            symbol_path: Stated::default(),
            online: Stated::default(),
            memory_limit_mib: Stated::built_in(256),
            download_limit_mib: Stated::built_in(2048),
            download_timeout_seconds: Stated::built_in(600),
            hunt: PolicyFiles::default(),
        };
        let path = std::env::var(SYMBOL_PATH_VARIABLE).ok().filter(|path| !path.trim().is_empty());
        config.symbol_path.put(path.map(Some), &Origin::Named(SYMBOL_PATH_VARIABLE.into()));
        if let Some(file) = &common.config {
            config.put_file(file)?;
        }
        let argument = |name: &str| Origin::Named(name.into());
        config.symbol_path.put(symbols.symbol_path.clone().map(Some), &argument("--symbol-path"));
        config.online.put(symbols.online.then_some(true), &argument("--online"));
        Ok(config)
    }

    fn put_file(&mut self, file: &Path) -> Result<()> {
        let stated = read_file(file)?;
        let origin = Origin::Named(file.display().to_string().into());
        let ConfigText { kernel_symbols, events, symbols, hunt } = stated;
        self.policy.put(PolicyText { kernel_symbols, events }, origin.clone());
        self.symbol_path.put(symbols.path.map(Some), &origin);
        self.online.put(symbols.online, &origin);
        self.memory_limit_mib.put(symbols.memory_limit_mib, &origin);
        self.download_limit_mib.put(symbols.download_limit_mib, &origin);
        self.download_timeout_seconds.put(symbols.download_timeout_seconds, &origin);
        self.hunt.put(hunt, file, &origin);
        Ok(())
    }

    /// All settings, under their keys in a config file.
    fn rows(&self) -> Vec<Row> {
        fn row<T: Serialize>(key: &str, stated: &Stated<T>) -> Row {
            let value = serde_json::json!(stated.value);
            Row { key: key.to_owned(), value, origin: stated.origin.to_string() }
        }
        let policy = self.policy.settings();
        let policy = policy.into_iter().map(|setting| Row {
            key: setting.key,
            value: setting.value.into(),
            origin: setting.origin.to_string(),
        });
        let symbols = [
            row("symbols.path", &self.symbol_path),
            row("symbols.online", &self.online),
            row("symbols.memory_limit_mib", &self.memory_limit_mib),
            row("symbols.download_limit_mib", &self.download_limit_mib),
            row("symbols.download_timeout_seconds", &self.download_timeout_seconds),
        ];
        let hunt = [
            row("hunt.images", &self.hunt.images),
            row("hunt.image_facts", &self.hunt.image_facts),
            row("hunt.trust", &self.hunt.trust),
            row("hunt.lists", &self.hunt.lists),
            row("hunt.rules", &self.hunt.rules),
            row("hunt.compat", &self.hunt.compat),
            row("hunt.baseline", &self.hunt.baseline),
            row("hunt.known_images", &self.hunt.known_images),
        ];
        policy.chain(symbols).chain(hunt).collect()
    }
}

#[derive(Debug)]
struct Row {
    key: String,
    value: serde_json::Value,
    origin: String,
}

impl Row {
    fn into_setting(self) -> Setting {
        let value = match self.value {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text),
            value => Some(value.to_string()),
        };
        Setting { key: self.key, value, origin: self.origin }
    }
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show each setting with its value and the source of the value
    Show(Show),
}

#[derive(Args, Debug)]
pub struct Show {
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    #[command(flatten)]
    pub output: Output,
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    let Verb::Show(arguments) = verb;
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let rows = Config::read(common, &arguments.symbols)?.rows();
    let mut sink = arguments.output.sentences(format)?;
    match format {
        ListFormat::Json => sink.json(&rows.into_iter().map(Row::into_setting).collect::<Vec<_>>())?,
        ListFormat::Table => {
            let value = |row: &Row| match &row.value {
                serde_json::Value::Null => "not set".to_owned(),
                value => value.to_string(),
            };
            let key_width = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
            let value_width = rows.iter().map(|row| value(row).len().min(24)).max().unwrap_or(0);
            for row in &rows {
                let (key, value, origin) = (&row.key, value(row), &row.origin);
                writeln!(sink, "{key:<key_width$} = {value:<value_width$}  # {origin}")?;
            }
        }
    }
    sink.finish()?;
    Ok(Outcome::default())
}
