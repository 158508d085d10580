//! Tests of the PDB reader and its tables with PDBs from other tools.

mod fixtures;
mod golden;
mod golden_lines;
mod hostile;
mod identity;
mod msfz;
mod oracle;
mod tables;
mod wording;
