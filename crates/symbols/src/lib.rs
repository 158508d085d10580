//! Names of code addresses in Windows modules.
//!
//! Reads images (PE) and symbol files (PDB) on any operating system, finds them through a symbol
//! path, and returns the names of an address: the name in the PDB, the export that contains the
//! address, and the nearest export before it, separately.
//!
//! The crate handles modules and addresses in them. It is independent of events, processes and
//! stacks.
//!
//! Features, all enabled by default: `download` queries symbol servers over HTTP, `pdb` reads PDB
//! files, and `windows` uses the Debug Help library of Windows. Files that would need a disabled
//! feature fail with [`Cause::NotBuilt`].
#![forbid(unsafe_code)]

#[cfg(all(windows, feature = "windows"))]
mod debug_help;
pub mod demangle;
mod failure;
#[cfg(test)]
#[path = "../tests/fixtures/mod.rs"]
mod fixtures;
pub mod folder;
pub mod image;
mod name;
pub mod path;
#[cfg(feature = "pdb")]
pub mod pdb;
pub mod store;
pub mod stubs;
mod symbolizer;
pub mod table;
pub mod temporary;

#[cfg(all(windows, feature = "windows"))]
pub use debug_help::DebugHelp;
pub use failure::{Cause, Failure, FileKind};
pub use name::{Inline, Line, NEAREST_EXPORT_MAX, Name, Names, Origin, Symbols};
pub use symbolizer::{
    FrameNumber, Loaded, Loader, ModuleNumber, ResolvedCallSite, ResolvedFrame, ResolvedInline, ResolvedLine,
    ResolvedName, SymbolStats, Symbolizer, SymbolizerOptions, WorkOptions, file_loader,
};
