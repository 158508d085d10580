//! Writes a part of a journal as a journal of its own: all changes at the contexts of a range, with the frames
//! that are open at its start, and the definitions that they need. Contexts are numbered from 0.
//!
//! usage: extract JOURNAL FIRST LAST OUTPUT

use std::collections::BTreeMap;
use std::error::Error;

use stackhound_calltree::journal::{Reader, Record, Writer};
use stackhound_calltree::{
    Change, ContextId, Cpu, LocationId, LocationInfo, ModuleId, ModuleInfo, StackId, StackInfo, StartType,
};

/// The definitions of a journal.
#[derive(Default)]
struct Definitions {
    modules: Vec<ModuleInfo>,
    locations: Vec<Result<LocationInfo, (LocationId, LocationId)>>,
    stacks: Vec<StackInfo>,
}

/// Writes the definitions that are needed, with new numbers.
struct Output<W: std::io::Write> {
    writer: Writer<W>,
    modules: BTreeMap<u32, ModuleId>,
    locations: BTreeMap<u32, LocationId>,
    stacks: BTreeMap<u32, StackId>,
}

impl<W: std::io::Write> Output<W> {
    fn location(&mut self, known: &Definitions, number: LocationId) -> std::io::Result<LocationId> {
        if let Some(&written) = self.locations.get(&number.0) {
            return Ok(written);
        }
        let written = match &known.locations[number.0 as usize] {
            Ok(info) => {
                let module = match info.module {
                    Some(module) => Some(match self.modules.get(&module.0) {
                        Some(&written) => written,
                        None => {
                            let written = self.writer.module(&known.modules[module.0 as usize])?;
                            self.modules.insert(module.0, written);
                            written
                        }
                    }),
                    None => None,
                };
                self.writer.location(&LocationInfo { module, ..info.clone() })?
            }
            Err((function, stub)) => {
                let (function, stub) = (self.location(known, *function)?, self.location(known, *stub)?);
                self.writer.entry(function, stub)?
            }
        };
        self.locations.insert(number.0, written);
        Ok(written)
    }

    fn stack(&mut self, known: &Definitions, number: StackId) -> std::io::Result<StackId> {
        if let Some(&written) = self.stacks.get(&number.0) {
            return Ok(written);
        }
        let written = self.writer.stack(&known.stacks[number.0 as usize])?;
        self.stacks.insert(number.0, written);
        Ok(written)
    }

    /// Writes a change after `start`.
    fn change(&mut self, known: &Definitions, change: Change, start: u64) -> std::io::Result<()> {
        let context = |context: ContextId| ContextId(context.0 - start);
        let location = |output: &mut Self, location: Option<LocationId>| {
            location.map(|location| output.location(known, location)).transpose()
        };
        let change = match change {
            Change::Enter { cpu, stack, first } => {
                Change::Enter { cpu, stack: self.stack(known, stack)?, first: context(first) }
            }
            Change::Leave { cpu, last } => Change::Leave { cpu, last: context(last) },
            Change::Open { stack, first, start, location: at } => {
                let (stack, location) = (self.stack(known, stack)?, location(self, at)?);
                Change::Open { stack, first: context(first), start, location }
            }
            Change::Close { stack, last, end } => {
                Change::Close { stack: self.stack(known, stack)?, last: context(last), end }
            }
            Change::Target { stack, location } => {
                let location = self.location(known, location)?;
                Change::Target { stack: self.stack(known, stack)?, location }
            }
            Change::TailCall { stack, first, location } => {
                let location = self.location(known, location)?;
                Change::TailCall { stack: self.stack(known, stack)?, first: context(first), location }
            }
            Change::Below { stack, location: at } => {
                let location = location(self, at)?;
                Change::Below { stack: self.stack(known, stack)?, location }
            }
        };
        self.writer.change(change)
    }
}

/// The first context at which a change holds. Changes of the frame that is open have none.
fn boundary(change: Change) -> Option<u64> {
    match change {
        Change::Enter { first, .. } | Change::Open { first, .. } | Change::TailCall { first, .. } => {
            Some(first.0)
        }
        Change::Leave { last, .. } | Change::Close { last, .. } => Some(last.0 + 1),
        Change::Target { .. } | Change::Below { .. } => None,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [journal, first, last, output] = arguments.as_slice() else {
        return Err("usage: extract JOURNAL FIRST LAST OUTPUT".into());
    };
    let (start, end): (u64, u64) = (first.parse()?, last.parse()?);
    let bytes = std::fs::read(journal)?;
    let mut reader = Reader::new(&bytes)?;
    let mut known = Definitions::default();
    let mut open: BTreeMap<u32, Vec<(StartType, Option<LocationId>)>> = BTreeMap::new();
    let mut active = None;
    let mut changes = Vec::new();
    let mut at = 0;
    while let Some(record) = reader.next_record()? {
        match record {
            Record::Module(module) => known.modules.push(module),
            Record::Location(location) => known.locations.push(Ok(location)),
            Record::Entry { function, stub } => known.locations.push(Err((function, stub))),
            Record::Stack(stack) => known.stacks.push(stack),
            Record::Named { stack, name } => known.stacks[stack.0 as usize].name = Some(name),
            Record::Change(change) => {
                at = boundary(change).unwrap_or(at);
                if at > end {
                    // Later names of stacks are still read.
                } else if at > start {
                    changes.push(change);
                } else {
                    match change {
                        Change::Enter { stack, .. } => active = Some(stack),
                        Change::Leave { .. } => active = None,
                        Change::Open { stack, start, location, .. } => {
                            open.entry(stack.0).or_default().push((start, location));
                        }
                        Change::Close { stack, .. } => _ = open.entry(stack.0).or_default().pop(),
                        Change::Target { stack, location } => {
                            if let Some(top) = open.entry(stack.0).or_default().last_mut() {
                                top.1 = Some(location);
                            }
                        }
                        // They were before the extract.
                        Change::TailCall { .. } => {}
                        Change::Below { stack, location } => {
                            open.entry(stack.0).or_default().insert(0, (StartType::Unknown, location));
                        }
                    }
                }
            }
            Record::End(_) => {}
        }
    }
    let mut used: Vec<StackId> = active.into_iter().collect();
    used.extend(changes.iter().filter_map(|change| match *change {
        Change::Enter { stack, .. } | Change::Open { stack, .. } | Change::Close { stack, .. } => Some(stack),
        Change::Target { stack, .. } | Change::TailCall { stack, .. } | Change::Below { stack, .. } => {
            Some(stack)
        }
        Change::Leave { .. } => None,
    }));
    used.sort_unstable();
    used.dedup();
    let mut output = Output {
        writer: Writer::new(std::fs::File::create(output)?)?,
        modules: BTreeMap::new(),
        locations: BTreeMap::new(),
        stacks: BTreeMap::new(),
    };
    if let Some(stack) = active {
        output.change(&known, Change::Enter { cpu: Cpu(0), stack, first: ContextId(start) }, start)?;
    }
    for stack in used {
        for &(kind, location) in open.get(&stack.0).into_iter().flatten() {
            let change = Change::Open { stack, first: ContextId(start), start: kind, location };
            output.change(&known, change, start)?;
        }
    }
    for change in changes {
        output.change(&known, change, start)?;
    }
    output.writer.finish(end - start)?;
    Ok(())
}
