//! Programs that report their own calls, compared with their recordings.
//!
//! Each prints how often its functions are called and how they end. Another program, which shares
//! no code with the recorder, steps through the same programs and counts instructions.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::support::{Recording, compile, record, words};
use stackhound_calltree::journal::Record;
use stackhound_calltree::{Change, EndType, Frame, Pattern, StackKind, StartType};
use stackhound_record_ptrace::Ending;

/// Records a program of `tests/programs` and checks every line it prints; `None` if it cannot be
/// compiled.
fn check(source: &str) -> Option<Recording> {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(source, folder.path(), options(source))?;
    let printed = folder.path().join("printed");
    let recording = record(&words(&program, &[printed.to_str().unwrap()]), u64::MAX);
    assert_eq!(recording.ending, Ending::Exited(0), "{source}");
    let text = std::fs::read_to_string(printed).unwrap();

    let mut ends: BTreeMap<(String, EndName), u64> = BTreeMap::new();
    for frame in recording.frames() {
        let symbol = frame.function_location().and_then(|location| location.symbol()).unwrap_or("?");
        *ends.entry((symbol.to_owned(), end_name(frame.end_type()))).or_default() += 1;
    }
    let mut expected: BTreeMap<(String, EndName), u64> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let number: u64 = fields.last().unwrap().parse().unwrap();
        match fields[..] {
            [end @ ("returned" | "unwound" | "open"), symbol, _] => {
                expected.insert((symbol.to_owned(), end.to_owned()), number);
            }
            ["stacks", _] => assert_eq!(u64::from(recording.trace.stack_count()), number, "{source}: {line}"),
            ["entered", _] => assert_eq!(entered(&recording), number, "{source}: {line}"),
            ["interrupts", _] => assert_eq!(recording.totals.signals, number, "{source}: {line}"),
            ["targets", _] => {
                let targets = ends.get(&("target".to_owned(), "returned".to_owned()));
                assert_eq!(targets.copied(), None, "a jump has no frame");
                assert_eq!(recording.totals.returns_as_jumps, number, "{source}: {line}");
            }
            ["elsewhere", _] => assert_eq!(recording.totals.returns_elsewhere, number, "{source}: {line}"),
            _ => {}
        }
    }
    assert!(!expected.is_empty(), "{source}: {text}");
    // No function that is counted ends in any other way.
    let functions: BTreeSet<&String> = expected.keys().map(|(symbol, _)| symbol).collect();
    ends.retain(|(symbol, _), _| functions.contains(symbol));
    expected.retain(|_, number| *number > 0);
    assert_eq!(ends, expected, "{source}: {text}");

    let totals = recording.totals;
    let explained =
        totals.returns_matched + totals.returns_below + totals.returns_as_jumps + totals.returns_elsewhere;
    assert_eq!(explained, totals.returns, "{source}: {totals:?}");
    assert_eq!(
        (totals.returns_below, totals.returns_elsewhere, totals.refused),
        (0, 0, 0),
        "{source}: {totals:?}"
    );
    for frame in recording.frames() {
        assert!(
            !matches!(frame.end_type(), EndType::Replaced | EndType::Gone)
                && frame.start_type() != StartType::Damaged,
            "{source}: {frame:?}"
        );
    }
    Some(recording)
}

/// Linking a C library at the start of a program takes more instructions than most of the programs, and the C++ libraries
/// take a million. `linked.c` and the programs of the slow tests are linked then, the others are static.
fn options(source: &str) -> &'static [&'static str] {
    match source {
        "exceptions.cpp" => &["-static-libstdc++", "-static-libgcc"],
        "shapes.c" | "threads.c" => &[],
        _ => &["-static"],
    }
}

/// The end of a frame, as the programs print it.
type EndName = String;

fn end_name(end: EndType) -> EndName {
    match end {
        EndType::Return => "returned".to_owned(),
        EndType::Unwound => "unwound".to_owned(),
        EndType::TraceEnd => "open".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The number of switches to alternate stacks.
fn entered(recording: &Recording) -> u64 {
    let mut kinds = Vec::new();
    let mut count = 0;
    for record in &recording.records {
        match record {
            Record::Stack(stack) => kinds.push(stack.kind),
            Record::Change(Change::Enter { stack, .. }) => {
                count += u64::from(kinds[stack.0 as usize] == StackKind::Alternate);
            }
            _ => {}
        }
    }
    count
}

#[test]
fn longjmp_unwinds_skipped_frames() {
    check("longjmp.c");
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn exceptions_unwind_skipped_frames() {
    check("exceptions.cpp");
}

#[test]
fn contexts_have_their_own_stacks() {
    check("contexts.c");
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn unusual_calls_and_returns() {
    check("shapes.c");
}

#[test]
fn code_that_is_written_while_the_program_runs() {
    check("changing.c");
}

#[test]
fn signal_handlers_are_called_by_the_system() {
    let Some(recording) = check("signals.c") else { return };
    let interrupts: Vec<_> =
        recording.frames().filter(|frame| frame.start_type() == StartType::Interrupt).collect();
    assert_eq!(interrupts.len() as u64, recording.totals.signals);
    for interrupt in interrupts {
        let handler = interrupt.children().next().expect("a handler");
        assert_eq!(handler.start_type(), StartType::Manual);
        assert!(handler.function_start().is_none(), "no call started it");
        let name = handler.function_location().unwrap().symbol().unwrap().to_owned();
        assert!(name.starts_with("on_"), "{name}");
        assert_eq!(handler.function_location().unwrap().symbol_offset(), 0);
        // A handler returns to code that calls `rt_sigreturn`.
        let expected = match handler.end_type() {
            EndType::Return => EndType::InterruptReturn,
            end => end,
        };
        assert_eq!(interrupt.end_type(), expected, "{name}");
        let kind = interrupt.stack().info().kind;
        assert_eq!(kind == StackKind::Alternate, name == "on_own", "{name} on {kind:?}");
    }
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn threads_have_their_own_stacks() {
    let Some(recording) = check("threads.c") else { return };
    let mut threads = BTreeSet::new();
    let mut works = BTreeMap::new();
    for frame in recording.frames() {
        let info = frame.stack().info();
        threads.insert(info.thread.expect("a thread"));
        if frame.function_location().and_then(|location| location.symbol()) == Some("work") {
            *works.entry(info.thread).or_insert(0) += 1;
        }
    }
    assert_eq!(threads.len(), 6);
    assert_eq!(works.into_values().collect::<Vec<_>>(), [1; 5]);
    assert!(recording.totals.switches >= 200, "{:?}", recording.totals);
}

/// Compares the numbers of instructions, calls and returns with those of another program, which has
/// its own decoder.
fn compare_with_independent_count(source: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(counter) = compile("count.c", folder.path(), &[]) else { return };
    let Some(program) = compile(source, folder.path(), options(source)) else { return };
    let command = words(&program, &[folder.path().join("printed").to_str().unwrap()]);
    let counted = Command::new(&counter).arg("1000000000").args(&command).output().unwrap();
    let counted = String::from_utf8(counted.stderr).unwrap();
    let totals = record(&command, u64::MAX).totals;
    let exit = if source == "steady.c" { 3 } else { 0 };
    let ours = format!("{} {} {} {exit}\n", totals.transitions, totals.calls, totals.returns);
    assert_eq!(ours, counted, "{source}: transitions, calls, returns, exit code");
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn independent_counts_of_longjmp_are_equal() {
    compare_with_independent_count("longjmp.c");
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn independent_counts_of_signals_are_equal() {
    compare_with_independent_count("signals.c");
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn independent_counts_of_repeated_runs_are_equal() {
    compare_with_independent_count("steady.c");
}

/// Steps through the C++ runtime, which takes longer than all others together; `.ci/run` runs it.
#[test]
#[ignore = "slow: run by .ci/run"]
fn independent_counts_of_exceptions_are_equal() {
    compare_with_independent_count("exceptions.cpp");
}

/// Functions that are bound when the program starts, and at their first call.
#[test]
fn frames_that_were_called_through_a_linkage_table_have_their_functions() {
    for bind in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-fno-builtin", "-fcf-protection=none", "-fplt", bind];
        let Some(program) = compile("linked.c", folder.path(), &options) else { return };
        let printed = folder.path().join("printed");
        let recording = record(&words(&program, &[printed.to_str().unwrap()]), u64::MAX);
        assert_eq!(recording.ending, Ending::Exited(0));
        let trace = &recording.trace;
        assert_eq!(trace.calls(&Pattern::new("*@plt").unwrap()), []);
        let text = std::fs::read_to_string(printed).unwrap();
        for line in text.lines() {
            let (symbol, number) = line.split_once(' ').unwrap();
            // Debug files name the variant of `strlen`.
            let calls = trace.calls(&Pattern::new(&format!("libc.*!{symbol}")).unwrap());
            let stubs = calls.iter().filter_map(|frame| {
                let location = frame.function_location()?;
                assert_eq!(location.symbol_offset(), 0, "{frame:?}");
                Some(location.stub()?.name().to_string())
            });
            let of_program = stubs.filter(|stub| *stub == format!("linked!{symbol}@plt")).count();
            assert_eq!(of_program.to_string(), number, "{bind}: {symbol}");
        }
        let named = |frame: &&Frame<'_>| frame.name().to_string() == "libc.so.6!toupper";
        assert!(trace.calls(&Pattern::new("toupper").unwrap()).iter().filter(named).count() >= 20);
        assert_eq!(recording.totals.returns_matched, recording.totals.returns);
    }
}
