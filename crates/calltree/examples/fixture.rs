//! Writes the index of the documented example trace to the specified file, for tests in other
//! languages. With a number of levels as second argument, writes a trace of that many nested calls
//! instead, for tests of pictures.

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, Error, LocationInfo, ModuleInfo, StackInfo, StackKind,
    StartType, Trace,
};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path =
        arguments.next().ok_or_else(|| std::io::Error::other("expected the output file as argument"))?;
    let levels = arguments.next().and_then(|levels| levels.to_str()?.parse().ok());
    let trace = match levels {
        Some(levels) => nested(levels).map_err(std::io::Error::other)?,
        None => fixtures::trace(),
    };
    std::fs::write(path, trace.as_bytes())
}

/// Each function calls `short` and then the function of the next level.
fn nested(levels: u64) -> Result<Trace, Error> {
    let mut builder = Builder::new();
    let stack = builder.stack(StackInfo {
        kind: StackKind::User,
        process: Some(7),
        thread: Some(8),
        cpu: None,
        name: None,
        region: None,
    });
    builder.apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) })?;
    let module = builder.module(ModuleInfo { name: "application.exe".to_owned(), path: None, base: None });
    let open = |builder: &mut Builder, first, name: String| {
        let location = builder.location(LocationInfo {
            address: None,
            module: Some(module),
            rva: None,
            symbol: Some(name),
            symbol_offset: 0,
        });
        let first = ContextId(first);
        builder.apply(Change::Open { stack, first, start: StartType::Call, location: Some(location) })
    };
    let transitions = 3 * levels;
    let label = builder.label("");
    for at in 0..transitions {
        builder.transition(1_000_000 + 1_234 * at, Cpu(0), label);
    }
    for level in 0..levels {
        let at = 3 * level + 1;
        open(&mut builder, at, format!("Namespace::Class::function_of_level_{level}"))?;
        open(&mut builder, at + 1, "short".to_owned())?;
        builder.apply(Change::Close { stack, last: ContextId(at + 1), end: EndType::Return })?;
    }
    builder.finish(transitions)
}
