//! Modules and their symbols: what `symbols` writes.

use schemars::JsonSchema;
use serde::Serialize;
use stackhound_symbols::ResolvedFrame;
use stackhound_types::Rva;

use super::frame::Names;
use super::value::Hex;

/// A module of a trace: `symbols list --format json` is a list of these.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Module {
    /// File name of the module.
    pub module: String,
    /// How often it was mapped.
    pub mapped: u64,
    /// Its image.
    pub image: ModuleFile,
    /// Its PDB.
    pub pdb: ModuleFile,
}

/// A file of a module. What the trace does not state is null.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModuleFile {
    /// File name.
    pub name: Option<String>,
    /// Its folder in a symbol store.
    pub key: Option<String>,
    /// Where it is.
    pub path: Option<String>,
    /// Why it is not there.
    pub cause: Option<&'static str>,
}

/// The symbols that are there and that are missing: `symbols check` and `symbols fetch --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SymbolReport {
    /// Modules of the trace.
    pub modules: usize,
    /// Those whose PDB is there.
    pub with_pdb: usize,
    /// Those whose image is there.
    pub with_image: usize,
    /// Files that were downloaded.
    pub downloaded_files: u64,
    /// Their bytes.
    pub downloaded_bytes: u64,
    /// What is missing, by cause.
    pub missing: Vec<MissingGroup>,
}

/// Files that are missing for one cause.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MissingGroup {
    /// `image` or `pdb`.
    pub file: &'static str,
    /// The cause.
    pub cause: &'static str,
    /// The cause as a sentence.
    pub description: &'static str,
    /// What helps.
    pub hint: &'static str,
    /// The modules.
    pub modules: Vec<MissingFile>,
}

/// A file that is missing.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MissingFile {
    /// File name of the module.
    pub module: String,
    /// Where it was looked for, or what is wrong with it.
    pub detail: String,
}

/// The names of an address: `symbols lookup --format json` is a list of these.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AddressNames<'a> {
    rva: Hex,
    #[serde(flatten)]
    names: Names<'a>,
}

impl<'a> AddressNames<'a> {
    /// The names at an offset in a module.
    pub fn new(rva: Rva, names: &'a ResolvedFrame) -> AddressNames<'a> {
        AddressNames { rva: Hex(rva.0.into()), names: Names::new(names) }
    }
}

/// A system-call stub: `symbols stubs --format json` is a list of these.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Stub {
    /// Its export.
    pub name: String,
    /// Other exports at the same address.
    pub aliases: Vec<String>,
    /// System service number.
    pub ssn: Option<u32>,
    /// Where it begins.
    pub rva: Hex,
    /// Where its `syscall` or `sysenter` is.
    pub syscall_rva: Option<Hex>,
    /// Where that returns to.
    pub return_rva: Option<Hex>,
    /// Where its `int 2e` returns to.
    pub int2e_return_rva: Option<Hex>,
    /// `intact`, `hooked`, or `foreign` for other code.
    pub state: &'static str,
    /// Where a hooked stub jumps to.
    pub leads_to: Option<Hex>,
}

/// A setting: `config show --format json` is a list of these.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Setting {
    /// Its key, as in a configuration file.
    pub key: String,
    /// Its value as text; null if nothing is set.
    pub value: Option<String>,
    /// Where the value comes from.
    pub origin: String,
}
