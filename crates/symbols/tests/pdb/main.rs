//! The PDB reader and its tables, on PDBs of others.

mod fixtures;
mod golden;
mod identity;
mod wording;
