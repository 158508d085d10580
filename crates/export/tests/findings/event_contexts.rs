//! Evaluated events: typical ones, and arbitrary ones.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use stackhound_detect::baseline::Novelty;
use stackhound_detect::report::{
    CreatedFile, EarlierEvent, EventContext, EventReport, Finding, FrameReport, FunctionReport, LossReport,
    ProcessReport, RegionReport, RuleMatch, SourceLocation, TamperingReport,
};
use stackhound_detect::tuning::{SuppressedBy, Suppression};
use stackhound_detect::{DetectionId, Input, Inputs, Outcome, Reason, Reasons, RuleInfo, Severity, Verdict};
use stackhound_facts::{FactId, FactSet, FactType, FactValue, ProcessFact, ProcessFacts, ThreadFact};
use stackhound_frames::{Answer, Backing, Region, RegionKind};
use stackhound_images::{
    FactSource, ImageEvidence, ImageFacts, Signature, SignatureReason, SignatureState, VersionInfo,
};
use stackhound_system::Runtime;
use stackhound_types::{Address, FileTime, Mode};

/// 2023-01-01T00:00:00Z in units of 100 ns since 1601: 153,767 days of 864,000,000,000.
pub const NEW_YEAR: u64 = 133_170_048_000_000_000;

pub fn finding(id: &str, outcome: Outcome) -> Finding {
    let alert = if outcome.verdict == Verdict::Yes { "00000000deadbeef" } else { "" };
    Finding { alert: alert.to_owned(), ..Finding::new(DetectionId::parse(id).unwrap(), outcome) }
}

pub fn yes(severity: Severity, frame: usize, reason: Reason) -> Outcome {
    Outcome::yes(severity, Some(frame), reason, Inputs::of(&[Input::Stack, Input::Modules]))
}

pub fn no() -> Outcome {
    Outcome::no(Reason::AllBacked, Inputs::of(&[Input::Stack]))
}

pub fn undetermined(severity: Severity, reason: Reason, missing: Input) -> Outcome {
    Outcome::undetermined(severity, reason, Inputs::of(&[Input::Stack]), Inputs::of(&[missing]))
}

/// `symbol` is a function with an offset, such as `NtOpenProcess+0x14`, or empty.
pub fn backed(module: &str, rva: u64, symbol: &str) -> FrameReport {
    let function = symbol.split_once("+0x").map(|(function, offset)| FunctionReport {
        text: function.to_owned(),
        offset: u64::from_str_radix(offset, 16).unwrap(),
        origin: "export",
    });
    FrameReport {
        address: Some(0x7ff8_0000_0000 + rva),
        module: format!(r"C:\Windows\System32\{module}"),
        rva: Some(rva),
        function,
        backing: Backing::Backed,
        ..FrameReport::default()
    }
}

pub fn unbacked(address: u64) -> FrameReport {
    FrameReport {
        address: Some(address),
        backing: Backing::Unbacked,
        region: Region { kind: RegionKind::Private, ..Region::UNKNOWN },
        page_protection: Some(0x40),
        ..FrameReport::default()
    }
}

/// The facts that the path of a program states.
fn program(path: &str) -> ProcessFacts<'static> {
    let name = path.rsplit('\\').next().unwrap_or_default();
    ProcessFacts::default().with(ProcessFact::Path, path.to_owned()).with(ProcessFact::Name, name.to_owned())
}

/// A process of which only the id and the name are known.
fn named(pid: u32, name: &'static str) -> ProcessReport {
    let facts = ProcessFacts::default().with(ProcessFact::Name, name);
    ProcessReport { pid: Some(pid), facts, ..ProcessReport::default() }
}

/// Shellcode opens lsass: two detections find it, a third is undetermined.
pub fn access() -> (EventContext, Vec<Finding>) {
    let mut caller = unbacked(0x24f_64b7_b7a1);
    caller.leading_bytes = vec![0xff, 0xd0];
    caller.trailing_bytes = vec![0x48, 0x85, 0xc0];
    let event_context = EventContext {
        location: SourceLocation { file: "events.evtx".to_owned(), record: 17 },
        count: 3,
        time: Some(NEW_YEAR + 1),
        host: "WS1".to_owned(),
        process: ProcessReport {
            pid: Some(4021),
            tid: Some(5032),
            facts: program(r"C:\Users\Public\tool.exe")
                .with(ProcessFact::CommandLine, "tool.exe --dump")
                .with(ProcessFact::ParentPid, FactValue::Number(640))
                .with(ProcessFact::StartTime, FactValue::Time(FileTime(NEW_YEAR as i64))),
            ..ProcessReport::default()
        },
        event: EventReport {
            name: "ProcessAccess".to_owned(),
            provider: "Microsoft-Windows-Sysmon".to_owned(),
            service: "NtOpenProcess".to_owned(),
            target: Some(ProcessReport {
                pid: Some(612),
                facts: program(r"C:\Windows\System32\lsass.exe"),
                ..ProcessReport::default()
            }),
            access: Some(0x1410),
            ..EventReport::default()
        },
        stack: vec![
            backed("ntdll.dll", 0x9d4c4, "NtOpenProcess+0x14"),
            backed("KERNELBASE.dll", 0x2c13e, ""),
            caller,
        ],
        states: vec!["user-only", "truncated"],
        summary: "ntdll.dll|KERNELBASE.dll|unbacked".to_owned(),
        kernel_summary: String::new(),
        final_kernel_module: None,
        final_user_module: Some("unbacked".to_owned()),
        contains_unbacked: Answer::Yes,
        has_user_part: true,
        ..EventContext::default()
    };
    let findings = vec![
        finding("CS07", yes(Severity::High, 2, Reason::CallerUnbacked).because(Reason::SensitiveOperation)),
        finding("CS24", yes(Severity::Critical, 2, Reason::CallerUnusual)),
        finding("CS11", undetermined(Severity::High, Reason::ImageMissing, Input::ImageBytes)),
    ];
    (event_context, findings)
}

/// A process starts another one. The stack is that of the parent and has kernel frames. Little else
/// is known.
pub fn start() -> (EventContext, Vec<Finding>) {
    let kernel =
        FrameReport { mode: Mode::Kernel, ..backed("ntoskrnl.exe", 0x1234, "NtCreateUserProcess+0x5") };
    let event_context = EventContext {
        location: SourceLocation { file: "boot.etl".to_owned(), record: 1 },
        count: 1,
        time: Some(NEW_YEAR),
        process: named(100, "parent.exe"),
        event: EventReport {
            name: "Process/Start".to_owned(),
            target: Some(named(200, "child.exe")),
            ..EventReport::default()
        },
        stack: vec![kernel, backed("ntdll.dll", 0x10, "")],
        final_user_module: Some("ntdll.dll".to_owned()),
        contains_unbacked: Answer::No,
        has_user_part: true,
        ..EventContext::default()
    };
    (event_context, vec![finding("CS02", yes(Severity::Low, 1, Reason::TopImage))])
}

/// Only that the stack is missing is known.
pub fn nothing() -> (EventContext, Vec<Finding>) {
    let event_context = EventContext { count: 1, ..EventContext::default() };
    let outcome = undetermined(Severity::High, Reason::StackMissing, Input::Stack);
    (event_context, vec![finding("CS01", outcome)])
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,8}\\.exe",
        // Strings of the library's own strategy need more time than all other parts together.
        vec(any::<char>(), 0..12).prop_map(String::from_iter),
        Just("\u{1b}[2J\u{9b}31m\r\n\u{202e}=1".to_owned()),
        Just(r#"C:\a "b",c\=x.dll"#.to_owned()),
    ]
}

fn image() -> impl Strategy<Value = ImageEvidence> {
    let signature = (
        proptest::sample::select(SignatureState::ALL.to_vec()),
        option::of(proptest::sample::select(SignatureReason::ALL.to_vec())),
        option::of(text()),
    );
    let facts =
        (proptest::sample::select(FactSource::ALL.to_vec()), option::of(signature), option::of(text()));
    vec(facts, 0..3).prop_map(|facts| {
        facts.into_iter().fold(ImageEvidence::default(), |all, (source, signature, name)| {
            let signature = signature.map(|(state, reason, signer)| {
                let signer = signer.filter(|signer| !signer.is_empty()).map(Into::into);
                Signature { state, reason, signer }
            });
            let original_file_name = name.filter(|name| !name.is_empty()).map(Into::into);
            let version = VersionInfo { original_file_name, ..VersionInfo::default() };
            all.with(ImageFacts { signature, version, ..ImageFacts::new(source) })
        })
    })
}

fn frame() -> impl Strategy<Value = FrameReport> {
    let function = option::of((text(), any::<u32>()));
    let code = (option::of(any::<u64>()), text(), option::of(any::<u64>()), function);
    let kind = (any::<bool>(), any::<bool>(), 0..3_usize, 0..6_usize, option::of(any::<u32>()));
    (code, kind, vec(any::<u8>(), 0..4), vec(any::<u8>(), 0..4), image()).prop_map(
        |(code, kind, leading, trailing, image)| {
            let (address, module, rva, function) = code;
            let (is_kernel, is_wow64, backing, memory, page_protection) = kind;
            let kinds = [
                RegionKind::Image,
                RegionKind::Mapped,
                RegionKind::Private,
                RegionKind::Jit(Runtime::Clr),
                RegionKind::Jit(Runtime::Script),
                RegionKind::Unknown,
            ];
            let extent = address.map(|address| (Address(address), 0x1000));
            FrameReport {
                address,
                mode: if is_kernel { Mode::Kernel } else { Mode::User },
                is_wow64,
                module,
                image,
                rva,
                function: function.map(|(text, offset)| FunctionReport {
                    text,
                    offset: offset.into(),
                    origin: "pdb",
                }),
                backing: [Backing::Backed, Backing::Unbacked, Backing::Unknown][backing],
                region: Region { kind: kinds[memory], extent, ..Region::UNKNOWN },
                page_protection,
                leading_bytes: leading,
                trailing_bytes: trailing,
            }
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let reasons = vec(proptest::sample::select(Reason::ALL.to_vec()), 0..4);
    let inputs = || vec(proptest::sample::select(Input::ALL.to_vec()), 0..4);
    let severity = proptest::sample::select(Severity::ALL.to_vec());
    (0..3_usize, severity, reasons, inputs(), inputs(), option::of(0..70_u16)).prop_map(
        |(verdict, severity, reasons, used, missing, frame)| Outcome {
            verdict: [Verdict::Yes, Verdict::No, Verdict::Undetermined][verdict],
            severity,
            reasons: reasons.into_iter().fold(Reasons::NONE, Reasons::with),
            used: Inputs::of(&used),
            missing: Inputs::of(&missing),
            frame,
        },
    )
}

fn suppression() -> impl Strategy<Value = Arc<Suppression>> {
    let by = [SuppressedBy::Exception, SuppressedBy::Severity, SuppressedBy::Baseline];
    (proptest::sample::select(by.to_vec()), option::of(1..99_usize), text())
        .prop_map(|(by, line, reason)| Arc::new(Suppression { by, line, reason, expires: String::new() }))
}

fn of_detection() -> impl Strategy<Value = Finding> {
    let id = proptest::sample::select(DetectionId::all().collect::<Vec<_>>());
    (id, outcome()).prop_map(|(id, outcome)| Finding::new(id, outcome))
}

prop_compose! {
    fn rule_match()(text in text(), is_possible in any::<bool>(), missing in vec("[a-z_.]{1,20}", 0..3),
        earlier in vec((any::<u64>(), option::of(any::<u64>())), 0..3)) -> RuleMatch {
        let earlier = earlier.into_iter().map(|(record, time)| EarlierEvent { record, time }).collect();
        RuleMatch { text, is_possible, missing, earlier }
    }
}

prop_compose! {
    fn rule()(texts in proptest::array::uniform5(text()), technique in option::of("T[0-9]{4}(\\.[0-9]{3})?"),
        tactic in option::of("TA[0-9]{4}")) -> RuleInfo {
        let [name, id, version, description, file] = texts;
        let named = |id: Option<String>| id.map(|id| (id, name.clone())).into_iter().collect();
        let (techniques, tactics) = (named(technique), named(tactic));
        RuleInfo { id: format!("r{id}"), version, description, file, techniques, tactics, name }
    }
}

fn of_rule() -> impl Strategy<Value = Finding> {
    (rule(), rule_match(), outcome()).prop_map(|(rule, found, outcome)| {
        Finding::of_rule(Arc::new(rule), outcome.severity, outcome.verdict, found)
    })
}

fn any_finding() -> impl Strategy<Value = Finding> {
    let novelty = option::of(proptest::sample::select(Novelty::ALL.to_vec()));
    let finding = prop_oneof![4 => of_detection(), 1 => of_rule()];
    (finding, "[0-9a-f]{0,16}", option::weighted(0.2, suppression()), novelty)
        .prop_map(|(finding, alert, suppressed, novelty)| Finding { alert, suppressed, novelty, ..finding })
}

/// A text and a number, of which a fact has the one of its type.
fn value() -> impl Strategy<Value = (String, u64)> {
    (text(), any::<u64>())
}

/// Facts with these values. Times are after 1601 and before 2060.
fn known<F: FactId>(values: &[Option<(String, u64)>]) -> FactSet<'static, F> {
    FactSet::new(|fact: F| {
        let (text, number) = values[fact.index()].clone()?;
        match fact.row().r#type {
            FactType::Text => Some(text).filter(|text| !text.is_empty()).map(FactValue::from),
            FactType::Number => Some(FactValue::Number(number as u32)),
            FactType::Hex => Some(FactValue::Hex(number)),
            FactType::Time => Some(FactValue::Time(FileTime((number >> 7) as i64))),
        }
    })
}

prop_compose! {
    fn process()(ids in proptest::array::uniform2(option::of(any::<u32>())),
        process in vec(option::of(value()), ProcessFact::ALL.len()),
        thread in vec(option::of(value()), ThreadFact::ALL.len())) -> ProcessReport {
        let [pid, tid] = ids;
        let mut facts: ProcessFacts<'static> = known(&process);
        // Whatever states the program of the parent states its id.
        if facts.number(ProcessFact::ParentPid).is_none() {
            facts.set(ProcessFact::ParentPid, FactValue::Number(4));
        }
        ProcessReport { pid, tid, facts, thread: known(&thread) }
    }
}

prop_compose! {
    fn created_file()(path in text(), time in any::<u64>(), pid in option::of(any::<u32>()), process in text(),
        sha256 in option::of(any::<[u8; 32]>())) -> CreatedFile {
        CreatedFile { path, time, pid, process, sha256 }
    }
}

prop_compose! {
    fn tampering()(time in option::of(any::<u64>()), kind in text()) -> TamperingReport {
        TamperingReport { time, kind }
    }
}

prop_compose! {
    fn lost()(pid in any::<u32>(), process in text(), from in option::of(any::<u64>()),
        until in option::of(any::<u64>())) -> LossReport {
        LossReport { pid, process, from, until }
    }
}

prop_compose! {
    fn region()(address in any::<u64>(), size in option::of(any::<u64>()), protection in option::of(any::<u32>()),
        old_protection in option::of(any::<u32>())) -> RegionReport {
        RegionReport { address, size, protection, old_protection }
    }
}

prop_compose! {
    fn event()(texts in proptest::array::uniform4(text()), is_start in any::<bool>(), target in option::of(process()),
        region in option::of(region()),
        access in option::of(any::<u32>()), start_address in option::of(any::<u64>())) -> EventReport {
        let [name, provider, service, start_name] = texts;
        let name = if is_start { "Process/Start".to_owned() } else { name };
        EventReport {
            name, provider, service, target, region, access, start_address, start_name,
            memory: None,
        }
    }
}

fn contains_unbacked() -> impl Strategy<Value = Answer> {
    proptest::sample::select(vec![Answer::Yes, Answer::No, Answer::Undetermined])
}

prop_compose! {
    fn event_context()(location in (text(), any::<u64>()), count in 1..1000_u64, time in option::of(any::<u64>()), host in text(),
        process in process(), event in event(), stack in vec(frame(), 0..60), summary in text(),
        kernel_summary in text(), modules in proptest::array::uniform2(option::of(text().prop_filter("a name", |name| !name.is_empty()))),
        states in proptest::sample::subsequence(vec!["lost", "ambiguous", "complete"], 0..3), contains_unbacked in contains_unbacked(), has_user_part in any::<bool>(),
        created_files in vec(created_file(), 0..3),
        (tampering, lost) in (vec(tampering(), 0..3), option::of(lost()))) -> EventContext {
        let location = SourceLocation { file: location.0, record: location.1 };
        let [final_user_module, final_kernel_module] = modules;
        EventContext {
            location, count, time, host, process, event, stack, states, summary, kernel_summary, final_user_module,
            final_kernel_module, contains_unbacked, has_user_part, created_files, tampering, lost,
        }
    }
}

/// Any event with any answers.
pub fn event_with_answers() -> impl Strategy<Value = (EventContext, Vec<Finding>)> {
    (event_context(), vec(any_finding(), 0..5))
}

/// Several events.
pub fn events() -> impl Strategy<Value = Vec<(EventContext, Vec<Finding>)>> {
    vec(event_with_answers(), 0..4)
}
