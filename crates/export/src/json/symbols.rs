//! Modules and their symbols, as `symbols` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_symbols::ResolvedFrame;
use stackhound_types::Rva;

use super::frame::Names;
use super::value::Hex;

/// A module of a trace: `symbols list --format json` is a list of these.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Module {
    /// File name of the module.
    pub module: String,
    /// How often the module was mapped.
    pub mapped: u64,
    /// The image.
    pub image: ModuleFile,
    /// The PDB.
    pub pdb: ModuleFile,
}

/// A file of a module. Facts that the trace does not state are null.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ModuleFile {
    /// File name.
    pub name: Option<String>,
    /// Folder of the file in a symbol store.
    pub key: Option<String>,
    /// Path of the file, if it was found.
    pub path: Option<String>,
    /// Why the file is missing.
    pub cause: Option<&'static str>,
}

/// Found and missing symbols: `symbols check` and `symbols fetch --format json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SymbolReport {
    /// Number of modules in the trace.
    pub modules: usize,
    /// Number of modules whose PDB was found.
    pub with_pdb: usize,
    /// Number of modules whose image was found.
    pub with_image: usize,
    /// Number of files that were downloaded.
    pub downloaded_files: u64,
    /// Size of the downloaded files in bytes.
    pub downloaded_bytes: u64,
    /// Missing files by cause.
    pub missing: Vec<MissingGroup>,
}

/// Files that are missing for the same cause.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MissingGroup {
    /// `image` or `pdb`.
    pub file: &'static str,
    /// The cause.
    pub cause: &'static str,
    /// The cause as a sentence.
    pub description: &'static str,
    /// How to obtain the files.
    pub hint: &'static str,
    /// The modules.
    pub modules: Vec<MissingFile>,
}

/// A missing file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MissingFile {
    /// File name of the module.
    pub module: String,
    /// The locations that were searched, or why the file is invalid.
    pub detail: String,
}

/// The names of an address: `symbols lookup --format json` is a list of these.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
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
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Stub {
    /// Name of the export.
    pub name: String,
    /// Other exports at the same address.
    pub aliases: Vec<String>,
    /// The system service number.
    pub ssn: Option<u32>,
    /// Start of the stub.
    pub rva: Hex,
    /// Address of the `syscall` or `sysenter` instruction.
    pub syscall_rva: Option<Hex>,
    /// Return address of that instruction.
    pub return_rva: Option<Hex>,
    /// Return address of the `int 2e` instruction.
    pub int2e_return_rva: Option<Hex>,
    /// `intact`, `hooked`, or `foreign` for other code.
    pub state: &'static str,
    /// Target of the jump in a hooked stub.
    pub leads_to: Option<Hex>,
}

/// A setting: `config show --format json` is a list of these.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Setting {
    /// Key in a configuration file.
    pub key: String,
    /// Value as text; null if it is not set.
    pub value: Option<String>,
    /// Source of the value.
    pub origin: String,
}
