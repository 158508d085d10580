//! `top`: what costs time in a trace, by process, thread, module, function or stack.

pub mod cpu;
pub mod table;

use anyhow::Result;
use clap::Subcommand;

use crate::options::Common;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show where processor time was spent, by profile samples and by context switches
    Cpu(cpu::Arguments),
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    match verb {
        Verb::Cpu(arguments) => cpu::run(arguments, common),
    }
}
