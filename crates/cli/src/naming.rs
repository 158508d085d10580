//! Converts arguments and settings for symbols to options of the library.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
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
use crate::output::{at_end, counted, grouped, message};
use crate::progress::{Closing, Progress};
use crate::render;

#[derive(Args, Clone, Debug)]
pub struct Naming {
    /// Resolve frames to this depth; by default as configured for each event
    #[arg(long, value_enum, value_name = "DEPTH", help_heading = "Symbols")]
    pub symbols: Option<Symbols>,
    /// Resolve kernel frames at most to this depth; by default as configured, initially modules
    #[arg(long, value_enum, value_name = "DEPTH", help_heading = "Symbols")]
    pub kernel_symbols: Option<Symbols>,
    #[command(flatten)]
    pub locations: SymbolArguments,
}

impl Naming {
    /// Whether an option asks for names.
    pub fn is_stated(&self) -> bool {
        let Naming { symbols, kernel_symbols, locations } = self;
        *symbols == Some(Symbols::Full)
            || kernel_symbols.is_some()
            || locations.symbol_path.is_some()
            || locations.online
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Symbols {
    /// Functions with module and offset
    Full,
    /// Modules with offset
    Modules,
    /// Addresses only
    Off,
}

/// The use of the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Single events. The settings define how much of each stack is named.
    Events,
    /// Like [`Use::Events`], with the code around return addresses.
    EventsWithCode,
    /// Aggregated stacks. All frames are named, because each distinct frame is resolved only once.
    Summary,
}

/// The enrichment for these arguments. A filter that uses names of functions gets a symbolizer even
/// if the output shows no names.
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
    let reads_code = used == Use::EventsWithCode || filter.is_some_and(EventFilter::reads_code);
    let symbolizer = match depth {
        None | Some(Depth::Function) => Some(symbolizer(&config, common, reads_code)?),
        Some(_) if filter.is_some_and(EventFilter::names_functions) => {
            Some(symbolizer(&config, common, reads_code)?)
        }
        Some(_) => None,
    };
    Ok(Enrichment { policy: config.policy, depth, symbolizer })
}

/// An enrichment that names functions on request, first with the files in these folders.
pub fn with_folders(
    locations: &SymbolArguments,
    folders: &[PathBuf],
    reads_code: bool,
    common: &Common,
) -> Result<Enrichment> {
    let config = Config::read(common, locations)?;
    let mut options = options(&config, common, reads_code)?;
    for folder in folders.iter().rev() {
        options.store.path = options.store.path.with_first(folder.clone());
    }
    let symbolizer = Symbolizer::new(options).context("cannot start the symbol threads")?;
    Ok(Enrichment { policy: config.policy, depth: None, symbolizer: Some(symbolizer) })
}

/// The same enrichment, naming all frames to the functions.
pub fn in_full(enrichment: Enrichment) -> Enrichment {
    Enrichment { depth: Some(Depth::Function), ..enrichment }
}

/// An enrichment that names all frames with the symbol files of one folder.
pub fn from_folder(folder: &Path) -> Result<Enrichment> {
    let store = folder_options(folder);
    let symbolizer = Symbolizer::new(SymbolizerOptions { store, ..SymbolizerOptions::default() })
        .context("cannot start the symbol threads")?;
    Ok(Enrichment { depth: Some(Depth::Function), symbolizer: Some(symbolizer), ..Enrichment::default() })
}

/// Options of a symbol store that uses one folder and no cache.
pub fn folder_options(folder: &Path) -> StoreOptions {
    StoreOptions { path: SymbolPath::store(folder.to_owned()), cache: None, ..StoreOptions::default() }
}

/// A symbolizer with the files along the symbol path.
pub fn symbolizer(config: &Config, common: &Common, call_sites: bool) -> Result<Symbolizer> {
    Symbolizer::new(options(config, common, call_sites)?).context("cannot start the symbol threads")
}

fn options(config: &Config, common: &Common, call_sites: bool) -> Result<SymbolizerOptions> {
    let store = store_options(config, common)?;
    let memory_limit = (config.memory_limit_mib.value as usize) << 20;
    let work = WorkOptions { memory_limit, threads: common.threads() };
    Ok(SymbolizerOptions { store, work, call_sites })
}

/// Options for sources that build their own symbolizer.
#[cfg(windows)]
pub fn symbolizer_options(locations: &SymbolArguments, common: &Common) -> Result<SymbolizerOptions> {
    options(&Config::read(common, locations)?, common, false)
}

/// Options of the symbol store. Reports the parts of the symbol path that this system cannot use.
pub fn store_options(config: &Config, common: &Common) -> Result<StoreOptions> {
    let path = match &config.symbol_path.value {
        Some(text) => SymbolPath::parse(text)?,
        None => SymbolPath::user_store(),
    };
    if !common.quiet {
        for unusable in path.unusable() {
            message(format_args!(
                "The symbol path contains {unusable}, which cannot be used on this system."
            ));
        }
    }
    if config.online.value && cfg!(not(feature = "download")) {
        bail!("--online needs the feature `download`, without which this program was built");
    }
    if config.online.value && !path.has_server() {
        bail!(
            "the symbol path contains no server; add one, such as srv*https://msdl.microsoft.com/download/symbols, with --symbol-path or _NT_SYMBOL_PATH"
        );
    }
    let limits = DownloadLimits {
        file_size: u64::from(config.download_limit_mib.value) << 20,
        file: Duration::from_secs(config.download_timeout_seconds.value.into()),
        ..DownloadLimits::default()
    };
    Ok(StoreOptions { path, online: config.online.value, limits, ..StoreOptions::default() })
}

/// Writes the closing line of a verb that shows stacks, then the missing files by cause.
pub fn finish(
    progress: Progress,
    outcome: &Outcome,
    pipeline: &Pipeline<'_>,
    filter: Option<&EventFilter>,
    common: &Common,
) {
    finish_with(progress, outcome, pipeline, (filter, ""), common);
}

/// As [`finish`], with a further part of the closing line.
pub fn finish_with(
    progress: Progress,
    outcome: &Outcome,
    pipeline: &Pipeline<'_>,
    (filter, part): (Option<&EventFilter>, &str),
    common: &Common,
) {
    let symbols = pipeline.symbol_stats();
    progress.finish_with(Closing {
        selected: filter.and_then(EventFilter::selected),
        losses: &(render::losses(outcome) + &render::calls(&outcome.calls)),
        undecided: &filter.map(EventFilter::undecided).unwrap_or_default(),
        results: &(part.to_owned() + &render::symbols(symbols.as_ref())),
    });
    if !common.quiet {
        report_no_match(filter, pipeline);
        symbols.iter().for_each(report_calls);
        report_missing(symbols.as_ref());
    }
}

/// Reports that a filter selected no event, and the events and processes of the trace. Also reports
/// modules in the filter that the trace does not contain.
pub fn report_no_match(filter: Option<&EventFilter>, pipeline: &Pipeline<'_>) {
    let system = pipeline.trace_state().system();
    if let Some(report) = filter.and_then(|filter| filter.no_match(system)) {
        at_end(format_args!("{report}"));
    }
    for module in filter.into_iter().flat_map(|filter| filter.unknown_modules(system)) {
        report_unknown_module(&module);
    }
}

/// Reports a pattern that matches no module of the trace.
pub fn report_unknown_module(pattern: &dyn Display) {
    at_end(format_args!("No module of the trace matches `{pattern}`."));
}

/// Reports the number of return addresses whose call is not known, by reason.
fn report_calls(stats: &SymbolStats) {
    for (reason, count) in &stats.no_calls {
        let addresses = counted(*count, "return address", "return addresses");
        at_end(format_args!("The call before {addresses} is not known: {}.", reason.description()));
    }
}

/// The number of modules without a file in all captures, by the kind of the file and the cause.
static MISSING: Mutex<BTreeMap<(&str, &str), u64>> = Mutex::new(BTreeMap::new());

/// Counts modules without a file, for [`report_all_missing`].
pub fn report_missing(stats: Option<&SymbolStats>) {
    let mut missing = MISSING.lock().unwrap_or_else(PoisonError::into_inner);
    for ((file, cause), modules) in stats.into_iter().flat_map(|stats| &stats.failures) {
        *missing.entry((file.name(), cause.describe())).or_default() += modules;
    }
}

/// Reports the modules without a file on one line, after the result.
pub fn report_all_missing() {
    let missing = std::mem::take(&mut *MISSING.lock().unwrap_or_else(PoisonError::into_inner));
    let causes = missing.iter().enumerate().map(|(index, ((file, cause), count))| match index {
        0 => format!("{} without {file} ({cause})", counted(*count, "module", "modules")),
        _ => format!("{} without {file} ({cause})", grouped(*count)),
    });
    let causes: Vec<String> = causes.collect();
    if !causes.is_empty() {
        at_end(format_args!("{}; `stackhound symbols check FILE` shows remedies", causes.join(", ")));
    }
}
