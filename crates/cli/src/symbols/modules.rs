//! The modules of traces, and their files.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::Result;
use clap::Args;
use stackhound::symbols::store::{ModuleFiles, Store};
use stackhound::types::ModuleIdentity;
use stackhound::{Passes, Pipeline};

use crate::config::SymbolArguments;
use crate::inputs::Inputs;
use crate::options::{Common, ListFormat, Output};

/// The limit of parallel downloads, which mostly wait.
const DOWNLOADS: usize = 8;

/// Arguments of the verbs about the modules of traces.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub output: Output,
}

/// A module of a trace.
#[derive(Debug)]
pub struct Module {
    pub identity: ModuleIdentity,
    /// The number of times that it was mapped.
    pub mapped: u64,
    pub files: ModuleFiles,
}

/// The modules of traces by name and identity, and whether a byte was damaged.
pub fn read(inputs: &Inputs, common: &Common) -> Result<(Vec<(ModuleIdentity, u64)>, bool)> {
    let captures = crate::inputs::captures(&inputs.files, inputs.grouping, common)?;
    let mut modules: BTreeMap<_, (ModuleIdentity, u64)> = BTreeMap::new();
    let mut damaged = false;
    for (index, capture) in captures.iter().enumerate() {
        crate::inputs::announce(&captures, index, common);
        let mut pipeline = Pipeline::new(&capture.trace, Passes::Two);
        // The first pass finds all modules, before the first event is delivered.
        let outcome = pipeline.run(|_| ControlFlow::Break(()));
        damaged |= !outcome.trace.damage.is_empty();
        for module in pipeline.trace_state().system().modules() {
            let identity = stackhound::frames::identity(module);
            // The case of a file name can vary.
            let same = ModuleIdentity { name: identity.name.to_lowercase(), ..identity.clone() };
            let (first, mapped) = modules.entry(same).or_insert_with(|| (identity.clone(), 0));
            *mapped += 1;
            if identity.name < first.name {
                *first = identity;
            }
        }
    }
    Ok((modules.into_values().collect(), damaged))
}

/// Searches the files of modules in the store, or on servers.
pub fn find(
    modules: Vec<(ModuleIdentity, u64)>,
    store: &Store,
    online: bool,
    common: &Common,
) -> Vec<Module> {
    let threads = if online { DOWNLOADS } else { common.threads() };
    let (identities, mapped): (Vec<_>, Vec<_>) = modules.into_iter().unzip();
    let files = store.files_of_all(&identities, threads);
    let modules = identities.into_iter().zip(mapped).zip(files);
    modules.map(|((identity, mapped), files)| Module { identity, mapped, files }).collect()
}
