//! Names of addresses from the Debug Help library (`dbghelp.dll`).
//!
//! A [`Session`] represents a live process or image files. The library is single-threaded, so every
//! call in the program holds one lock; sessions can still be used from any thread. Names are
//! returned as the symbols contain them: those of public symbols are decorated.

mod library;
mod module;
mod session;
mod walk;

pub use module::{Module, SymbolSource};
pub use session::{Inline, Line, Session, Symbol};
