use std::collections::HashMap;

use stackhound_frames::Backing;
use stackhound_kstack_client::{Client, Device, Patience, Refused, Thread};
use stackhound_kstack_proto::{
    AnswerHeader, Capture, Code, Flags, MAGIC, Missing, Outcome, Request, VERSION, Version, hash,
};
use stackhound_symbols::{
    Inline, Line, Loaded as LoadedSymbols, Name, Names, Symbolizer, Symbols, WorkOptions,
};
use stackhound_types::{AddressKind, Mode, Pid, Rva, Tid};
use zerocopy::IntoBytes;

use super::modules::{Loaded, Modules};
use super::resolve::ProcessMap;
use super::{Answered, Unnamed, answer};
use crate::{Absent, Evidence, KernelStackError, Part, ThreadStack};

const NT: u64 = 0xffff_f800_0000_0000;
const DRIVER: u64 = 0xffff_f800_7000_0000;
const PROGRAM: u64 = 0x7ff6_0000_0000;

/// The stack of a thread, or the answer of the driver instead.
#[derive(Clone)]
pub(super) enum Row {
    Stack(Vec<u64>, Vec<u64>),
    Ended(Outcome),
    Refused(u32),
}

/// A fake device that answers from a table.
#[derive(Debug)]
pub(super) struct Table(pub HashMap<u32, Row>);

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("row")
    }
}

impl Device for Table {
    fn control(&mut self, code: Code, input: &[u8], output: &mut [u8]) -> Result<usize, Refused> {
        let bytes = match code {
            Code::Version => version(),
            Code::Capture => {
                let capture = Request::parse(input).expect("a request");
                let row = self.0.get(&capture.tid).cloned().unwrap_or(Row::Ended(Outcome::NoThread));
                if let Row::Refused(code) = row {
                    return Err(Refused { function: "DeviceIoControl", code, text: "no".to_owned() });
                }
                answer_bytes(&capture, row)
            }
        };
        output[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

fn version() -> Vec<u8> {
    let version = Version {
        magic: MAGIC.into(),
        version: VERSION.into(),
        max_frames: 256.into(),
        max_timeout_ms: 1000.into(),
        max_outstanding: 64.into(),
        abilities: 0.into(),
    };
    version.as_bytes().to_vec()
}

fn answer_bytes(capture: &Capture, row: Row) -> Vec<u8> {
    let (outcome, [kernel, user]) = match row {
        Row::Stack(kernel, user) => (Outcome::Captured, [kernel, user]),
        Row::Ended(outcome) => (outcome, [vec![], vec![]]),
        Row::Refused(_) => unreachable!("answered before"),
    };
    let part = |frames: Vec<u64>, flag| if capture.flags.has(flag) { frames } else { vec![] };
    let (kernel, user) = (part(kernel, Flags::KERNEL), part(user, Flags::USER));
    let mut header = AnswerHeader::new(capture, outcome);
    header.kernel_count = (kernel.len() as u16).into();
    header.user_count = (user.len() as u16).into();
    // A user stack with frames is marked as cut.
    if user.first().is_some_and(|&first| Missing::from_sentinel(first).is_none()) {
        header.flags = AnswerHeader::USER_CUT.into();
    }
    if outcome != Outcome::NoThread {
        header.created = capture.created.unwrap_or_default().into();
    }
    header.waited = 12_345_670.into();
    let entries = [kernel, user].concat();
    header.hash = hash(entries.iter().copied()).into();
    let entries = entries.iter().flat_map(|entry| entry.to_le_bytes());
    header.as_bytes().iter().copied().chain(entries).collect()
}

pub(super) fn client(rows: impl IntoIterator<Item = (u32, Row)>) -> Client<Table> {
    let patience = Patience { attempts: 1, ..Patience::default() };
    Client::over(Table(rows.into_iter().collect()), patience).expect("the same version")
}

/// Functions of 0x100 bytes each, in sequence; names that start with `~` are known only as the
/// nearest export.
struct Functions(&'static [&'static str]);

impl Symbols for Functions {
    fn names(&self, rva: Rva, kind: AddressKind) -> Names<'_> {
        let rva = kind.looked_up(rva).0;
        let Some(&name) = self.0.get(rva as usize / 0x100) else { return Names::default() };
        let text = name.trim_start_matches('~').into();
        let name_of = Name { text, offset: rva % 0x100 + 1 };
        match name.starts_with('~') {
            true => Names { nearest_export: Some(name_of), ..Names::default() },
            false => Names { pdb: Some(name_of), ..Names::default() },
        }
    }

    fn line(&self, _: Rva, _: AddressKind) -> Option<Line<'_>> {
        None
    }

    fn inlines(&self, _: Rva, _: AddressKind) -> Vec<Inline<'_>> {
        Vec::new()
    }

    fn memory(&self) -> usize {
        0
    }
}

fn symbolizer() -> Symbolizer {
    let loader = |module: &stackhound_types::ModuleIdentity| {
        let functions: &[&str] = match (&*module.name, module.image.map(|image| image.time_date_stamp)) {
            ("ntoskrnl.exe", Some(0x5eed)) => &[
                "KiDeliverApc",
                "KiApcInterrupt",
                "KiCheckForKernelApcDelivery",
                "~KiDeliverApc",
                "KiSwapThread",
                "NtWaitForSingleObject",
                "KiCheckForThreadDispatch",
                "KiHandleDeferredPreemption",
            ],
            // A driver with a function of the same name.
            ("some.sys", _) => &["KiDeliverApc"],
            ("program.exe", None) => &["main"],
            other => panic!("{other:?}"),
        };
        LoadedSymbols { symbols: Some(Box::new(Functions(functions))), ..LoadedSymbols::default() }
    };
    Symbolizer::with_loader(&WorkOptions::default(), Box::new(loader)).expect("threads")
}

fn loaded(base: u64, path: &str, time_date_stamp: Option<u32>) -> Loaded {
    Loaded { base, size: 0x1000, path: path.to_owned(), time_date_stamp }
}

/// The return address in the n-th function of the kernel.
fn nt(function: u64) -> u64 {
    NT + function * 0x100 + 0x10
}

fn stack_of(row: Row, user: bool, keep: bool, hidden: bool) -> Result<ThreadStack, KernelStackError> {
    let drivers = vec![
        loaded(NT, r"\SystemRoot\system32\ntoskrnl.exe", Some(0x5eed)),
        loaded(DRIVER, r"\??\C:\some.sys", Some(7)),
    ];
    let kernel = if hidden { Modules::default() } else { Modules::new(drivers) };
    let program = Modules::new(vec![loaded(PROGRAM, r"C:\program.exe", None)]);
    let memory = |address| if address == 0x1000 { Backing::Unbacked } else { Backing::Unknown };
    let process_map = ProcessMap { kernel: &kernel, user: &program, memory: &memory };
    let flags = if user { Flags::KERNEL.and(Flags::USER) } else { Flags::KERNEL };
    let template = Capture {
        pid: 4,
        tid: 0,
        created: None,
        max_frames: 256,
        flags,
        timeout_ms: 100,
        id: 0,
        frames_to_skip: 0,
    };
    let mut client = client([(7, row)]);
    let (thread, reply) = client.captures([Thread { id: 7, created: None }], template).next().expect("one");
    let mut naming = symbolizer();
    let answered = Answered { tid: Tid(thread.id), answer: answer(reply)?, user_later: false };
    let unnamed = Unnamed::of(answered, user, &process_map, Some(&mut naming));
    naming.wait();
    Ok(unnamed.named(Pid(4), "System", keep, Some(&naming)))
}

fn texts(part: &Part) -> Vec<String> {
    part.as_ref().expect("frames").iter().map(ToString::to_string).collect()
}

#[test]
fn frames_have_modules_and_names() {
    let row = Row::Stack(vec![nt(4), nt(5), DRIVER + 0x10], vec![PROGRAM + 0x20, PROGRAM + 0x800, 0x1000]);
    let found = stack_of(row, true, false, false).expect("a stack");
    assert_eq!((found.pid, found.tid, found.process.as_deref()), (Some(Pid(4)), Tid(7), Some("System")));
    assert_eq!(
        texts(&found.kernel),
        [
            "ntoskrnl.exe!KiSwapThread+0x10 [pdb]",
            "ntoskrnl.exe!NtWaitForSingleObject+0x10 [pdb]",
            "some.sys!KiDeliverApc+0x10 [pdb]"
        ]
    );
    let user = found.user.expect("requested");
    assert_eq!(texts(&user), ["program.exe!main+0x20 [pdb]", "program.exe+0x800", "0x1000 (unbacked)"]);
    let modes: Vec<Mode> =
        found.kernel.expect("frames").iter().chain(&user.expect("frames")).map(|frame| frame.mode).collect();
    assert_eq!(modes, [[Mode::Kernel; 3], [Mode::User; 3]].concat());
    let took = std::time::Duration::from_micros(1_234_567);
    let expected =
        Evidence::Captured { took, own: false, kernel_cut: false, user_cut: true, user_later: false };
    assert_eq!(found.evidence, Some(expected));
}

/// For example, a window procedure that `KiSwapThread` calls.
#[test]
fn kernel_frames_of_a_callback_are_resolved_in_the_kernel() {
    let user = vec![PROGRAM + 0x20, nt(4), DRIVER + 0x10, PROGRAM + 0x30];
    let found = stack_of(Row::Stack(vec![nt(5)], user), true, false, false).expect("a stack");
    let user = found.user.expect("requested");
    assert_eq!(
        texts(&user),
        [
            "program.exe!main+0x20 [pdb]",
            "ntoskrnl.exe!KiSwapThread+0x10 [pdb]",
            "some.sys!KiDeliverApc+0x10 [pdb]",
            "program.exe!main+0x30 [pdb]"
        ]
    );
    let modes: Vec<Mode> = user.expect("frames").iter().map(|frame| frame.mode).collect();
    assert_eq!(modes, [Mode::User, Mode::Kernel, Mode::Kernel, Mode::User]);
}

#[test]
fn kernel_addresses_outside_modules_are_unbacked_if_modules_are_listed() {
    for (hidden, expected) in [(false, Backing::Unbacked), (true, Backing::Unknown)] {
        let found = stack_of(Row::Stack(vec![NT - 0x1000], vec![]), false, false, hidden).expect("a stack");
        assert_eq!(found.kernel.expect("frames")[0].backing, expected);
        assert!(found.user.is_none());
    }
}

/// The driver has removed its own frames and the one that called it.
#[test]
fn dispatcher_frames_are_removed_by_name_at_the_inner_end_only() {
    let (swap, wait) =
        ("ntoskrnl.exe!KiSwapThread+0x10 [pdb]", "ntoskrnl.exe!NtWaitForSingleObject+0x10 [pdb]");
    let near = "ntoskrnl.exe!KiDeliverApc+0x10 [nearest_export]";
    for (frames, expected) in [
        (vec![nt(4), nt(5)], vec![swap, wait]),
        (vec![nt(1), nt(4)], vec![swap]),
        (vec![nt(0), nt(1), nt(5)], vec![wait]),
        (vec![nt(0), nt(2), nt(4)], vec![swap]),
        (vec![nt(0), nt(6), nt(5)], vec![wait]),
        (vec![nt(0), nt(7), nt(5)], vec![wait]),
        (vec![nt(4), nt(2), nt(5)], vec![swap, "ntoskrnl.exe!KiCheckForKernelApcDelivery+0x10 [pdb]", wait]),
        // The nearest export is not a reliable name, and other modules have functions with the same
        // names.
        (vec![nt(3), nt(5)], vec![near, wait]),
        (vec![DRIVER + 0x10, nt(5)], vec!["some.sys!KiDeliverApc+0x10 [pdb]", wait]),
    ] {
        let found = stack_of(Row::Stack(frames.clone(), vec![]), false, false, false).expect("a stack");
        assert_eq!(texts(&found.kernel), expected);
        let kept = stack_of(Row::Stack(frames.clone(), vec![]), false, true, false).expect("a stack");
        assert_eq!(texts(&kept.kernel).len(), frames.len());
    }
}

#[test]
fn a_thread_with_only_dispatcher_frames_was_running() {
    let found = stack_of(Row::Stack(vec![nt(1)], vec![PROGRAM + 1]), true, false, false).expect("a stack");
    assert_eq!(found.kernel, Err(Absent::Running));
    assert!(found.user.expect("requested").is_ok());
}

#[test]
fn missing_parts_have_a_reason() {
    for (missing, expected) in [
        (Missing::Nothing, Absent::NothingWalked),
        (Missing::System, Absent::SystemThread),
        (Missing::Faulted, Absent::Faulted),
        (Missing::Attached, Absent::Attached),
        (Missing::Protected, Absent::Protected),
        (Missing::NoRoom, Absent::NoRoom),
        (Missing::NotNow, Absent::NotNow),
        (Missing::CriticalRegion, Absent::CriticalRegion),
        (Missing::Unfinished, Absent::Unfinished),
    ] {
        let row = Row::Stack(vec![nt(4)], vec![missing.sentinel()]);
        let found = stack_of(row, true, false, false).expect("a stack");
        assert_eq!(found.user, Some(Err(expected)));
        assert!(found.kernel.is_ok() && found.evidence.is_some());
    }
    for (row, expected) in [
        (Row::Ended(Outcome::NoThread), Absent::Gone),
        (Row::Ended(Outcome::Terminating), Absent::Terminating),
        (Row::Ended(Outcome::TimedOut), Absent::TimedOut),
        (Row::Ended(Outcome::Idle), Absent::Idle),
        (Row::Refused(170), Absent::Busy),
    ] {
        let found = stack_of(row, true, false, false).expect("an answer");
        assert_eq!((found.kernel, found.user), (Err(expected), Some(Err(expected))));
        assert_eq!(found.evidence, None);
    }
}

#[test]
fn errors_that_affect_all_threads_are_returned() {
    let error = stack_of(Row::Refused(5), false, false, false).expect_err("denied");
    assert!(error.to_string().contains("SeDebugPrivilege"), "{error}");
}
