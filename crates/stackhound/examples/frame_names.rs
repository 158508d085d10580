//! Prints how many frames of call trees have a name.
//!
//! `frame_names FILE…` prints a table for each file (a trace of events, an exact trace, or an
//! index): the number of frames, the shares of those with a function name and with a module, and
//! the same for each module, those with the most frames first.

use std::collections::BTreeMap;
use std::path::Path;

use stackhound::trace::Grouping;
use stackhound::{Enrichment, open_stacks};

/// The maximum number of modules that are printed.
const MODULES_MAX: usize = 25;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in std::env::args_os().skip(1) {
        let path = Path::new(&file);
        let (trace, _) = open_stacks(path, Enrichment::default(), Grouping::default())?;
        let mut by_module: BTreeMap<Option<String>, Frames> = BTreeMap::new();
        let mut all = Frames { all: trace.frame_count(), ..Frames::default() };
        for (location, count) in trace.call_counts() {
            let module = location.module().map(|module| module.name.to_owned());
            let named = if location.symbol().is_some() { count } else { 0 };
            all.named += named;
            all.in_module += if module.is_some() { count } else { 0 };
            let sum = by_module.entry(module).or_default();
            sum.all += count;
            sum.named += named;
        }
        let located: u64 = by_module.values().map(|frames| frames.all).sum();
        by_module.entry(None).or_default().all += all.all - located;
        println!("{}", path.display());
        println!("{:>10} frames", all.all);
        println!("{:>10} with a function name ({:.2} %)", all.named, percent(all.named, all.all));
        println!("{:>10} with a module ({:.2} %)", all.in_module, percent(all.in_module, all.all));
        println!("{:>10} {:>10} {:>8}  module", "frames", "named", "named %");
        let mut modules: Vec<_> = by_module.into_iter().filter(|(_, frames)| frames.all > 0).collect();
        // Modules with equally many frames stay in the order of their names.
        modules.sort_by_key(|(_, frames)| std::cmp::Reverse(frames.all));
        for (module, frames) in modules.iter().take(MODULES_MAX) {
            let module = module.as_deref().unwrap_or("(no module)");
            let share = percent(frames.named, frames.all);
            println!("{:>10} {:>10} {share:>8.2}  {module}", frames.all, frames.named);
        }
        if modules.len() > MODULES_MAX {
            println!("{} more modules", modules.len() - MODULES_MAX);
        }
    }
    Ok(())
}

/// Numbers of frames.
#[derive(Default)]
struct Frames {
    all: u64,
    named: u64,
    in_module: u64,
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}
