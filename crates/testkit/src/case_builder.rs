//! Collects cases: the detection, the expected verdict, and the evidence that is withheld.

use super::event_spec::{Action, Actor, EventSpec, FrameSpec, Memory, ROOT, World};

/// A format of events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A trace.
    Etl,
    /// Rows of Sysmon, with the stack as text.
    CallTrace,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::Etl, Kind::CallTrace];
}

/// The expected verdict of a detection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Answer {
    /// The detection must find the event.
    Yes,
    /// The detection must not find the event.
    No,
    /// The evidence does not decide.
    Undetermined,
}

/// A defect of a whole trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Flaw {
    #[default]
    None,
    /// The trace does not list the processes and drivers that existed before it began.
    NoRundown,
    /// A buffer is lost before the events.
    LostBuffer,
}

/// The common properties of the cases in one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Setting {
    pub flaw: Flaw,
    /// The image whose file is not available.
    pub without: Option<&'static str>,
    /// Whether the programs of Windows are known.
    pub knows_system: bool,
}

/// A case that has not been written to a file.
#[derive(Clone, Debug)]
pub(super) struct TestCase {
    pub detection: &'static str,
    pub answer: Answer,
    pub at_most: Option<&'static str>,
    pub at_least: Option<&'static str>,
    pub title: String,
    pub kind: Kind,
    pub setting: Setting,
    pub event_spec: EventSpec,
}

/// Collects the cases of one detection after the other.
#[derive(Debug)]
pub(super) struct CaseBuilder<'w> {
    pub world: &'w World,
    pub test_cases: Vec<TestCase>,
    detection: &'static str,
    kinds: &'static [Kind],
    setting: Setting,
    at_most: Option<&'static str>,
    at_least: Option<&'static str>,
}

pub(super) const BOTH: &[Kind] = &[Kind::Etl, Kind::CallTrace];
pub(super) const ETL: &[Kind] = &[Kind::Etl];
pub(super) const ROWS: &[Kind] = &[Kind::CallTrace];

/// Opens a process through the Win32 base.
pub(super) const OPEN: &[&str] = &["ntdll!NtOpenProcess", "kernelbase!OpenProcess"];
/// System calls: the service, and the functions that lead to it, innermost first.
pub(super) const CALLS: [(&str, &[&str]); 5] = [
    ("NtOpenProcess", OPEN),
    ("NtProtectVirtualMemory", &["ntdll!NtProtectVirtualMemory", "kernelbase!VirtualProtect"]),
    ("NtCreateThreadEx", &["ntdll!NtCreateThreadEx", "kernelbase!CreateRemoteThreadEx"]),
    ("NtDelayExecution", &["ntdll!NtDelayExecution", "kernelbase!SleepEx"]),
    ("NtCreateFile", &["ntdll!NtCreateFile", "kernelbase!CreateFileW"]),
];

/// Programs, each with the key of the image that contains the calling code.
pub(super) const PROGRAMS: [(Actor, &str); 5] = [
    (Actor::Program("agent", &[]), "agent"),
    (Actor::Program("tool", &[]), "tool"),
    (Actor::Program("temp", &[]), "temp"),
    (Actor::Program("inbox", &["svclib"]), "svclib"),
    (Actor::Program("agent", &["plugin"]), "plugin"),
];
pub(super) const AGENT: Actor = PROGRAMS[0].0;
pub(super) const TOOL: Actor = PROGRAMS[1].0;
pub(super) const MANAGED: Actor = Actor::Program("tool", &["clr"]);
pub(super) const HOOKED: Actor = Actor::Program("tool", &["hook"]);

impl<'w> CaseBuilder<'w> {
    pub fn new(world: &'w World) -> CaseBuilder<'w> {
        let setting = Setting::default();
        CaseBuilder {
            world,
            test_cases: Vec::new(),
            detection: "",
            kinds: BOTH,
            setting,
            at_most: None,
            at_least: None,
        }
    }

    /// Sets the detection and the kinds of the following cases.
    pub fn about(&mut self, detection: &'static str, kinds: &'static [Kind]) {
        (self.detection, self.kinds) = (detection, kinds);
    }

    fn add(&mut self, answer: Answer, title: impl Into<String>, event_spec: EventSpec) {
        let title = title.into();
        for &kind in self.kinds {
            // Sysmon reports opened processes, remote threads and tampering only.
            let is_supported = match event_spec.action {
                Action::Open(..) => true,
                Action::Tamper(_) => kind == Kind::CallTrace,
                Action::Start(_, target, _) => kind == Kind::Etl || target.is_some(),
                _ => kind == Kind::Etl,
            };
            assert!(is_supported, "{}: {kind:?} has no such event: {title}", self.detection);
            self.test_cases.push(TestCase {
                detection: self.detection,
                answer,
                at_most: self.at_most,
                at_least: self.at_least,
                title: title.clone(),
                kind,
                setting: self.setting,
                event_spec: event_spec.clone(),
            });
        }
    }

    pub fn yes(&mut self, title: impl Into<String>, event_spec: EventSpec) {
        self.add(Answer::Yes, title, event_spec);
    }

    /// Adds a "yes" that benign programs cause too, with its highest permitted severity.
    pub fn yes_at_most(&mut self, severity: &'static str, title: impl Into<String>, event_spec: EventSpec) {
        self.at_most = Some(severity);
        self.add(Answer::Yes, title, event_spec);
        self.at_most = None;
    }

    /// Adds a "yes" of an attack, with its lowest permitted severity.
    pub fn yes_at_least(&mut self, severity: &'static str, title: impl Into<String>, event_spec: EventSpec) {
        self.at_least = Some(severity);
        self.add(Answer::Yes, title, event_spec);
        self.at_least = None;
    }

    pub fn no(&mut self, title: impl Into<String>, event_spec: EventSpec) {
        self.add(Answer::No, title, event_spec);
    }

    pub fn undetermined(&mut self, title: impl Into<String>, event_spec: EventSpec) {
        self.add(Answer::Undetermined, title, event_spec);
    }

    /// Adds cases with another setting.
    fn with(&mut self, setting: Setting, add: impl FnOnce(&mut CaseBuilder<'w>)) {
        self.setting = setting;
        add(self);
        self.setting = Setting::default();
    }

    /// Adds cases for which the file of an image is not available.
    pub fn without(&mut self, image: &'static str, add: impl FnOnce(&mut CaseBuilder<'w>)) {
        self.with(Setting { without: Some(image), ..Setting::default() }, add);
    }

    /// Adds cases for which the programs of Windows are known.
    pub fn knowing_windows(&mut self, add: impl FnOnce(&mut CaseBuilder<'w>)) {
        self.with(Setting { knows_system: true, ..Setting::default() }, add);
    }

    /// Adds the cases that are undetermined for every detection that relies on the stack: no user
    /// stack, unknown modules, a lost buffer. With all evidence, the verdict for `benign` is "no".
    pub fn missing(&mut self, benign: &EventSpec) {
        self.undetermined("the user stack is missing", benign.clone().without_user());
        if self.kinds.contains(&Kind::Etl) {
            let kinds = std::mem::replace(&mut self.kinds, ETL);
            self.missing_modules(benign);
            self.with(Setting { flaw: Flaw::LostBuffer, ..Setting::default() }, |builder| {
                builder.undetermined("a buffer was lost before the event", benign.clone());
            });
            self.kinds = kinds;
        }
    }

    /// Adds a case of an attack that is undetermined because a buffer was lost.
    pub fn lost(&mut self, title: impl Into<String>, event_spec: EventSpec) {
        self.with(Setting { flaw: Flaw::LostBuffer, ..Setting::default() }, |builder| {
            builder.undetermined(title, event_spec);
        });
    }

    /// Adds the undetermined case in which only modules are missing.
    pub fn missing_modules(&mut self, event_spec: &EventSpec) {
        self.with(Setting { flaw: Flaw::NoRundown, ..Setting::default() }, |builder| {
            builder.undetermined("not all modules are known", event_spec.clone());
        });
    }

    /// The stack of a program's thread: `inner`, then functions of the program, then the thread
    /// root.
    pub fn stack(&self, inner: &[&str], code: &str) -> Vec<FrameSpec> {
        self.stack_from(inner, code, &["work", "main", "entry"])
    }

    /// As [`stack`](CaseBuilder::stack), through the functions `own` of the program.
    pub fn stack_from(&self, inner: &[&str], code: &str, own: &[&str]) -> Vec<FrameSpec> {
        let own: Vec<String> = own.iter().map(|name| format!("{code}!{name}")).collect();
        let all: Vec<&str> =
            inner.iter().copied().chain(own.iter().map(String::as_str)).chain(ROOT).collect();
        self.world.stack(&all)
    }

    /// Opens an ordinary process through the Win32 base.
    pub fn open(&self, (actor, code): (Actor, &str)) -> EventSpec {
        EventSpec::open(actor, self.stack(OPEN, code))
    }

    /// Adds a normal open of a process for each program.
    pub fn all_open(&mut self, answer: Answer) {
        for program in PROGRAMS {
            let event_spec = self.open(program);
            self.add(answer, format!("{} opens a process normally", program.1), event_spec);
        }
    }

    /// Adds a normal system call for each program, each with another service.
    pub fn all_call(&mut self, answer: Answer) {
        for ((actor, code), (service, inner)) in PROGRAMS.into_iter().zip(CALLS) {
            let event_spec = EventSpec::new(actor, Action::Call(service), self.stack(inner, code));
            self.add(answer, format!("{code} calls {service} normally"), event_spec);
        }
    }

    /// A stack of the 32-bit program.
    pub fn stack_32_bit(&self) -> Vec<FrameSpec> {
        let mut stack = self.world.stack(&[
            "ntdll!NtOpenProcess",
            "wow64!Wow64SystemServiceEx",
            "wow64cpu!ServiceNoTurbo",
            "wow64cpu!BTCpuSimulate",
            "wow64!Wow64LdrpInitialize",
            "ntdll!LdrpInitialize",
            "ntdll!LdrInitializeThunk",
        ]);
        stack.extend(self.part_32_bit());
        stack
    }

    /// The 32-bit frames of that stack.
    pub fn part_32_bit(&self) -> Vec<FrameSpec> {
        self.world.stack(&[
            "ntdll32!NtOpenProcess",
            "kernelbase32!OpenProcess",
            "host32!main",
            "host32!entry",
            "kernel32x32!BaseThreadInitThunk",
            "ntdll32!__RtlUserThreadStart",
            "ntdll32!_RtlUserThreadStart",
        ])
    }

    /// The root of a thread.
    pub fn root(&self, callee: &str) -> Vec<FrameSpec> {
        self.world.callers(callee, &ROOT)
    }
}

/// An address of unbacked code, away from images. Each `number` has an allocation of its own.
pub(super) fn private(number: u64) -> FrameSpec {
    FrameSpec::At(0x0000_01f4_3000_0000 + number * 0x10_0000 + 0x2b1)
}

/// The allocation of [`private`] code.
pub(super) fn allocation(number: u64) -> Memory {
    Memory::Allocated(0x0000_01f4_3000_0000 + number * 0x10_0000)
}
