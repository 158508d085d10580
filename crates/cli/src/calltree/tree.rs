//! `tree`: the calls around a position in a trace.

use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use stackhound_export::json::tree::TreeDocument;
use stackhound_export::tree::{Limits, Tree, html, text};

use super::position::{Position, StackChoice};
use super::{Source, open};
use crate::options::{Common, Output};
use crate::outcome::Outcome;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Show the calls at this context, such as #1000 (or 1000), or time: RFC 3339, or +5s since the
    /// start; by default, those of the outermost frame of the chosen threads with the most calls
    /// below it
    #[arg(long, value_name = "POSITION")]
    at: Option<Position>,
    #[command(flatten)]
    choice: StackChoice,
    /// Show at most N frames above the active one
    #[arg(long, value_name = "N", default_value_t = Limits::default().ancestors)]
    ancestors: usize,
    /// Show at most N levels of calls below the active frame
    #[arg(long, value_name = "N", default_value_t = Limits::default().depth)]
    depth: usize,
    /// Show at most N calls of each frame
    #[arg(long, value_name = "N", default_value_t = Limits::default().children)]
    children: usize,
    /// Output format; by default derived from the file name of -o, else text
    #[arg(long, value_enum)]
    format: Option<TreeFormat>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TreeFormat {
    /// Human-readable text, indented
    Text,
    /// One self-contained page with a tree that can be folded (.html)
    #[value(alias = "htm")]
    Html,
    /// One JSON object (.json)
    Json,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, TreeFormat::Text)?;
    let (trace, outcome) = open(&arguments.source, common)?;
    let (context, stack, frame) = match arguments.at {
        Some(at) => {
            let choice = &arguments.choice;
            (at.context(&trace)?, choice.stack(&trace, at)?, choice.frame(&trace, at)?)
        }
        None if arguments.choice.cpu.is_some() => {
            bail!("--cpu chooses a stack at a position; add --at")
        }
        None => {
            let chosen = arguments.choice.threads.stacks(&trace)?;
            let frame = trace.largest_call(|frame| chosen.has_frame(frame));
            let frame = frame.context("no frames are known")?;
            (frame.first_context(), frame.stack(), frame)
        }
    };
    let limits =
        Limits { ancestors: arguments.ancestors, depth: arguments.depth, children: arguments.children };
    let tree = Tree::around(frame, limits);
    let mut sink = arguments.output.rows(format)?;
    match format {
        TreeFormat::Text => text::tree(&tree, &mut sink)?,
        TreeFormat::Html => sink.write_all(html::page(&tree).as_bytes())?,
        TreeFormat::Json => {
            sink.json(&TreeDocument::new(context, stack, &tree))?;
        }
    }
    sink.finish()?;
    Ok(outcome)
}
