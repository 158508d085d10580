//! Names of code addresses in Windows modules.
//!
//! Reads images (PE) and symbol files (PDB) on any system, finds them along a symbol path, and answers what stands at an
//! address of a module: the name in its PDB, the export that the address is in, and the export before it, side by side.
//!
//! Knows modules and addresses in them; must not know events, processes or stacks.
//!
//! Features, all on by default: `download` asks symbol servers by HTTP, `pdb` reads PDB files, `windows`
//! asks the Debug Help library of Windows. What one of them would have given is [`Cause::NotBuilt`].
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
pub use name::{Inline, Line, Name, Names, Origin, Symbols};
pub use symbolizer::{
    FrameNumber, Loaded, Loader, ModuleNumber, ResolvedCallSite, ResolvedFrame, ResolvedInline, ResolvedLine,
    ResolvedName, SymbolStats, Symbolizer, SymbolizerOptions, WorkOptions, file_loader,
};
