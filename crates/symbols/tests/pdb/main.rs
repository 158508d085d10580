//! The PDB reader and its tables, on PDBs of others.

mod fixtures;
mod golden;
mod golden_lines;
mod hostile;
mod identity;
mod msfz;
mod oracle;
mod tables;
mod wording;
