//! Names of addresses by the Debug Help library (`dbghelp.dll`).
//!
//! A [`Session`] stands for a live process or for image files. The library is single-threaded, so every call of the
//! program goes through one lock; sessions can be used from any thread all the same. Names come as the symbols have
//! them: those of public symbols are decorated.

mod library;
mod module;
mod session;
mod walk;

pub use module::{Module, SymbolSource};
pub use session::{Inline, Line, Session, Symbol};
