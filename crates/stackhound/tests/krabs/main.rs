//! The behaviours that krabsetw's tests describe, as far as they need no Windows, one module for each of its files.
//!
//! Each module is a table of named cases. Where Stackhound means to behave otherwise, the case says how, and
//! `docs/krabs.md` says why.

mod schemas;
