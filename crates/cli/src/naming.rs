//! What arguments and settings say of names, for the library.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use stackhound::frames::{KernelSymbols, Origin, PolicyText};
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::{DownloadLimits, StoreOptions};
use stackhound::symbols::{SymbolStats, Symbolizer, SymbolizerOptions, WorkOptions};
use stackhound::{Depth, Enrichment, Outcome, Pipeline};

use crate::config::{Config, SymbolArguments};
use crate::filter::EventFilter;
use crate::options::Common;
use crate::output::message;
use crate::progress::Progress;
use crate::render;

/// How much of stacks is named.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Names")]
pub struct Naming {
    /// How much of stacks is named; by default what the settings say for each event
    #[arg(long, value_enum, value_name = "HOW")]
    pub symbols: Option<Symbols>,
    /// How much of the kernel's frames is named at most; by default what the settings say, which is modules
    #[arg(long, value_enum, value_name = "HOW")]
    pub kernel_symbols: Option<Symbols>,
    #[command(flatten)]
    pub locations: SymbolArguments,
}

/// How much of stacks is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Symbols {
    /// Functions, with their module and the offset
    Full,
    /// Modules, with the offset in them
    Modules,
    /// Nothing: addresses only
    Off,
}

/// What names are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Events one by one: the settings say how much of each stack is named.
    Events,
    /// As [`Use::Events`], with the code around return addresses.
    EventsWithCode,
    /// Stacks put together: everything is named, since each frame is shown once.
    Summary,
}

/// How much of stacks is named, and with what. A filter that asks for names gets them, whatever is shown.
pub fn enrichment(
    arguments: &Naming,
    common: &Common,
    used: Use,
    filter: Option<&EventFilter>,
) -> Result<Enrichment> {
    let mut config = Config::read(common, &arguments.locations)?;
    let kernel_symbols = arguments.kernel_symbols.map(|symbols| match symbols {
        Symbols::Full => KernelSymbols::Full,
        Symbols::Modules => KernelSymbols::Modules,
        Symbols::Off => KernelSymbols::Off,
    });
    if kernel_symbols.is_some() {
        let stated = PolicyText { kernel_symbols, ..PolicyText::default() };
        config.policy.put(stated, Origin::Named("--kernel-symbols".into()));
    }
    let depth = match (arguments.symbols, used) {
        (Some(Symbols::Full), _) | (None, Use::Summary) => Some(Depth::Function),
        (Some(Symbols::Modules), _) => Some(Depth::Module),
        (Some(Symbols::Off), _) => Some(Depth::Address),
        (None, Use::Events | Use::EventsWithCode) => None,
    };
    let symbolizer = match depth {
        None | Some(Depth::Function) => Some(symbolizer(&config, common, used == Use::EventsWithCode)?),
        Some(_) if filter.is_some_and(EventFilter::names_functions) => {
            Some(symbolizer(&config, common, false)?)
        }
        Some(_) => None,
    };
    Ok(Enrichment { policy: config.policy, depth, symbolizer })
}

/// Everything named, from one folder and nothing else.
pub fn from_folder(folder: &Path) -> Result<Enrichment> {
    let store = folder_options(folder);
    let symbolizer = Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() })
        .context("cannot start the threads for symbols")?;
    Ok(Enrichment { depth: Some(Depth::Function), symbolizer: Some(symbolizer), ..Enrichment::default() })
}

/// Files in a folder, and nowhere else.
pub fn folder_options(folder: &Path) -> StoreOptions {
    StoreOptions { path: SymbolPath::store(folder.to_owned()), cache: None, ..StoreOptions::default() }
}

fn symbolizer(config: &Config, common: &Common, call_sites: bool) -> Result<Symbolizer> {
    Symbolizer::new(options(config, common, call_sites)?).context("cannot start the threads for symbols")
}

fn options(config: &Config, common: &Common, call_sites: bool) -> Result<SymbolizerOptions> {
    let store = store_options(config, common)?;
    let memory_limit = (config.memory_limit_mib.value as usize) << 20;
    let work = WorkOptions { memory_limit, threads: common.threads() };
    Ok(SymbolizerOptions { store, work, call_sites })
}

/// What a symbolizer is made with, for sources that make their own.
#[cfg(windows)]
pub fn symbolizer_options(locations: &SymbolArguments, common: &Common) -> Result<SymbolizerOptions> {
    options(&Config::read(common, locations)?, common, false)
}

/// Where symbol files are looked for.
pub fn store_options(config: &Config, common: &Common) -> Result<StoreOptions> {
    let path = match &config.symbol_path.value {
        Some(text) => SymbolPath::parse(text)?,
        None => SymbolPath::user_store(),
    };
    if !common.quiet {
        for unusable in path.unusable() {
            message(format_args!("The symbol path names {unusable}, which cannot be used on this system."));
        }
    }
    if config.online.value && cfg!(not(feature = "download")) {
        bail!("this program was built without the feature `download`: --online needs it");
    }
    if config.online.value && !path.has_server() {
        bail!(
            "the symbol path names no server: add one, such as srv*https://msdl.microsoft.com/download/symbols, with --symbol-path or _NT_SYMBOL_PATH"
        );
    }
    let limits = DownloadLimits {
        file_size: u64::from(config.download_limit_mib.value) << 20,
        file: Duration::from_secs(config.download_timeout_seconds.value.into()),
        ..DownloadLimits::default()
    };
    Ok(StoreOptions { path, online: config.online.value, limits, ..StoreOptions::default() })
}

/// The closing line of a verb that shows stacks; then, once, what was missing, by cause.
pub fn finish(
    progress: Progress,
    outcome: &Outcome,
    pipeline: &Pipeline<'_>,
    filter: Option<&EventFilter>,
    common: &Common,
) {
    let symbols = pipeline.symbol_stats();
    let counts = [
        render::losses(outcome),
        filter.map(EventFilter::undecided).unwrap_or_default(),
        render::symbols(symbols.as_ref()),
    ];
    progress.finish(&counts.concat());
    if !common.quiet {
        report_no_match(filter, pipeline);
        tell_missing(symbols.as_ref());
    }
}

/// Reports that a filter selected nothing, and what there is; and modules that it names and that are not there.
pub fn report_no_match(filter: Option<&EventFilter>, pipeline: &Pipeline<'_>) {
    let system = pipeline.trace_state().system();
    if let Some(report) = filter.and_then(|filter| filter.no_match(system)) {
        message(format_args!("{report}"));
    }
    for module in filter.into_iter().flat_map(|filter| filter.unknown_modules(system)) {
        report_unknown_module(&module);
    }
}

/// Reports what was to match a module, and matches none.
pub fn report_unknown_module(pattern: &dyn Display) {
    message(format_args!("No module of the trace matches `{pattern}`."));
}

/// Which files were missing, by cause.
pub fn tell_missing(stats: Option<&SymbolStats>) {
    for ((file, cause), modules) in stats.into_iter().flat_map(|stats| &stats.failures) {
        message(format_args!("{modules} modules without {}: {cause}. {}", file.name(), cause.hint()));
    }
}
