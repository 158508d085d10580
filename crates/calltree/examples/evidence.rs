//! Writes the index of a small event trace, for tests in other languages: 20 events on two
//! processors, 100 µs apart; a thread that makes a system call, moves to the other processor and is
//! interrupted there; and frames with bounds inferred from snapshots.

use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, Error, Evidence, LocationId, LocationInfo, ModuleInfo,
    StackInfo, StackKind, StartType,
};
use stackhound_types::Address;

/// 2024-01-01T00:00:00.0000007Z.
const ORIGIN: u64 = 133_485_408_000_000_007;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("expected the output file as argument")?;
    let mut builder = Builder::new();
    builder.sampled();
    describe(&mut builder)?;
    for number in 0..20 {
        let label = builder.label(match number {
            2 => "PerfInfo/SysCallEnter",
            7 => "PerfInfo/SysCallExit",
            14 | 16 => "PerfInfo/ISR",
            _ => "PerfInfo/SampledProfile",
        });
        builder.transition(ORIGIN + number * 1000, Cpu(u16::from(number >= 10)), label);
    }
    Ok(std::fs::write(path, builder.finish(20)?.as_bytes())?)
}

fn describe(builder: &mut Builder) -> Result<(), Error> {
    let mut stack = |kind, thread, cpu, name: &str| {
        let region = Some((Address(0x1000), Address(0x5000))).filter(|_| kind == StackKind::User);
        let process = Some(4);
        builder.stack(StackInfo { kind, process, thread, cpu, name: Some(name.to_owned()), region })
    };
    let user = stack(StackKind::User, Some(7), None, "app.exe");
    let kernel = stack(StackKind::Kernel, Some(7), None, "app.exe");
    let interrupt = stack(StackKind::Interrupt, None, Some(Cpu(1)), "<ISR>");
    let start = location(builder, "app.exe", None);
    let work = location(builder, "app.exe", Some("work"));
    let read = location(builder, "ntoskrnl.exe", Some("NtReadFile"));
    let service = location(builder, "ntoskrnl.exe", Some("KiIsr"));

    builder.apply(Change::Enter { cpu: Cpu(0), stack: user, first: ContextId(0) })?;
    builder.apply(Change::Enter { cpu: Cpu(0), stack: kernel, first: ContextId(3) })?;
    builder.apply(Change::Enter { cpu: Cpu(0), stack: user, first: ContextId(8) })?;
    builder.apply(Change::Leave { cpu: Cpu(0), last: ContextId(9) })?;
    builder.enter_between(Cpu(1), user, ContextId(10), ContextId(12))?;
    builder.apply(Change::Enter { cpu: Cpu(1), stack: interrupt, first: ContextId(15) })?;
    builder.apply(Change::Enter { cpu: Cpu(1), stack: user, first: ContextId(17) })?;

    let open =
        |stack, first, start, location| Change::Open { stack, first: ContextId(first), start, location };
    let close = |stack, last, end| Change::Close { stack, last: ContextId(last), end };
    builder.apply(open(user, 0, StartType::Unknown, start))?;
    let seen = (ContextId(0), ContextId(1));
    builder.open_between(user, seen, StartType::Call, work, Evidence::Snapshot)?;
    builder.close_between(user, (ContextId(14), ContextId(18)), EndType::Gone)?;
    let exact = (ContextId(3), ContextId(3));
    builder.open_between(kernel, exact, StartType::Call, read, Evidence::Boundary)?;
    builder.apply(close(kernel, 7, EndType::Return))?;
    builder.apply(open(interrupt, 15, StartType::Interrupt, service))?;
    builder.apply(close(interrupt, 16, EndType::InterruptReturn))
}

fn location(builder: &mut Builder, module: &str, symbol: Option<&str>) -> Option<LocationId> {
    let (path, base) = (Some(format!("C:\\{module}")), Some(Address(0x1_4000_0000)));
    let name = module.trim_end_matches(".exe").to_owned();
    let module = Some(builder.module(ModuleInfo { name, path, base }));
    let (address, rva) = (Some(Address(0x1_4000_1230)), Some(0x1230));
    let symbol = symbol.map(str::to_owned);
    Some(builder.location(LocationInfo { address, module, rva, symbol, symbol_offset: 0 }))
}
