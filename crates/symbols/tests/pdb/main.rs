//! The PDB reader and its tables, on PDBs of others.

mod fixtures;
mod golden;
mod golden_lines;
mod identity;
mod oracle;
mod wording;
