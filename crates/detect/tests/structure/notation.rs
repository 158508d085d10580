//! Cases as text.

use stackhound_detect::{
    Binaries, Case, DetectionId, Detector, Entry, Evaluation, Event, LiveFrame, Outcome, Part, Process,
    Reason, Services, Severity, Stack, Target, Verdict,
};
use stackhound_frames::{Code, Frame, Lists, Module, ModuleFacts, ModuleIndex, Operation};
use stackhound_symbols::Loaded;
use stackhound_symbols::table::SymbolTableBuilder;
use stackhound_system::Runtime;
use stackhound_types::{Address, Mode, ModuleIdentity, Rva};

/// Short names and their paths.
const PATHS: &[(&str, &str)] = &[
    ("ntdll", r"C:\Windows\System32\ntdll.dll"),
    ("win32u", r"C:\Windows\System32\win32u.dll"),
    ("user32", r"C:\Windows\System32\user32.dll"),
    ("kernelbase", r"C:\Windows\System32\KernelBase.dll"),
    ("kernel32", r"C:\Windows\System32\kernel32.dll"),
    ("wow64", r"C:\Windows\System32\wow64.dll"),
    ("wow64cpu", r"C:\Windows\System32\wow64cpu.dll"),
    ("rpcrt4", r"C:\Windows\System32\rpcrt4.dll"),
    ("csrsrv", r"C:\Windows\System32\csrsrv.dll"),
    ("explorer", r"C:\Windows\explorer.exe"),
    ("planted", r"C:\Windows\System32\planted.exe"),
    ("temp", r"C:\Windows\Temp\planted.exe"),
    ("clr", r"C:\Windows\Microsoft.NET\Framework64\v4.0.30319\clr.dll"),
    ("hook", r"C:\Program Files\Agent\umppc123.dll"),
    ("app", r"C:\Users\a\app.exe"),
    ("other", r"C:\Users\a\other.dll"),
    ("installed", r"C:\Program Files\App\app.exe"),
    ("steam", r"C:\Program Files (x86)\Steam\steamservice.exe"),
    ("copy", r"C:\Users\a\ntdll.dll"),
    ("copy32", r"C:\Users\a\kernel32.dll"),
    ("bare", "app.exe"),
    ("driver", r"C:\Windows\System32\drivers\a.sys"),
    ("dbgcore", r"C:\Windows\System32\dbgcore.dll"),
    ("comsvcs", r"C:\Windows\System32\comsvcs.dll"),
    ("own_dbghelp", r"C:\Users\a\dbghelp.dll"),
    ("faultrep", r"C:\Windows\System32\faultrep.dll"),
    ("rundll32", r"C:\Windows\System32\rundll32.exe"),
    ("ni", r"C:\Windows\assembly\NativeImages_v4.0.30319_64\System\0a\System.ni.dll"),
    ("own_ni", r"C:\Users\a\NativeImages_v4.0.30319_64\System.ni.dll"),
    ("lua", r"C:\Users\a\lua51.dll"),
];

/// Functions that the detector of [`evaluate_with_names`] knows in each module.
const FUNCTIONS: [&str; 10] = [
    "RtlUserThreadStart",
    "BaseThreadInitThunk",
    "TppWorkerThread",
    "RtlpTpTimerCallback",
    "RtlDispatchException",
    "LoadLibraryW",
    "CtrlRoutine",
    "LdrLoadDll",
    "KiUserCallbackDispatcher",
    "Other",
];

/// The offset of a function in its module.
pub fn start(function: &str) -> u64 {
    let number = FUNCTIONS.iter().position(|known| *known == function);
    0x8000 + 0x100 * number.unwrap_or_else(|| panic!("unknown function {function}")) as u64
}

/// The facts of a case apart from its frames.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    pub event: Event<'a>,
    pub process: Process<'a>,
    pub limit: Option<u16>,
    pub kernel: Part,
    pub user: Part,
    pub map_is_complete: bool,
    pub has_losses: bool,
    pub is_certain: bool,
    pub is_truncated: bool,
}

impl Default for Given<'_> {
    /// An unremarkable system call, with complete evidence about modules.
    fn default() -> Self {
        Given {
            event: Event { entry: Entry::SystemCall, ..Event::OTHER },
            process: Process { has_win32u: Some(true), ..Process::UNKNOWN },
            limit: Some(192),
            kernel: Part::Whole,
            user: Part::Whole,
            map_is_complete: true,
            has_losses: false,
            is_certain: true,
            is_truncated: false,
        }
    }
}

/// An event that opens a handle to another process.
pub fn opening(image: &str, access: Option<u32>) -> Given<'_> {
    let target = Some(Target { image, is_other: true, access });
    let event = Event {
        entry: Entry::SystemCall,
        operation: Operation::ProcessOpen,
        services: Services::Unknown,
        target,
        ..Event::OTHER
    };
    Given { event, ..Given::default() }
}

/// A detector without files.
pub fn detector(lists: Lists) -> Detector {
    Detector::new(lists, Binaries::none())
}

/// A detector that knows names of functions and has no images.
pub fn evaluate_with_names() -> Detector {
    let load = |_: &Module| {
        let mut names = SymbolTableBuilder::new();
        for function in FUNCTIONS {
            let start = Rva(start(function) as u32);
            names.add_function(start..Rva(start.0 + 0x80));
            names.add_export(start, function);
        }
        Loaded { symbols: Some(Box::new(names.build())), ..Loaded::default() }
    };
    Detector::new(Lists::default(), Binaries::new(Box::new(load)))
}

pub fn module(detector: &mut Detector, name: &str) -> ModuleIndex {
    let path = PATHS.iter().find(|(short, _)| *short == name).map(|(_, path)| *path);
    let path = path.unwrap_or_else(|| panic!("unknown module {name}"));
    let name = path.rsplit('\\').next().unwrap().to_owned();
    let identity = ModuleIdentity { name, ..ModuleIdentity::default() };
    detector.module(&ModuleFacts { path: path.into(), identity, ..ModuleFacts::default() }, None)
}

pub fn frames(detector: &mut Detector, text: &str) -> Vec<Frame> {
    let hex = |text: &str| (!text.is_empty()).then(|| u64::from_str_radix(text, 16).expect("hexadecimal"));
    let frame = |(index, word): (usize, &str)| {
        let (word, is_wow64) = word.strip_suffix('~').map_or((word, false), |word| (word, true));
        let (word, mode) = match word.strip_prefix('K') {
            Some(rest) => (if rest.is_empty() { "driver" } else { rest }, Mode::Kernel),
            None => (word, Mode::User),
        };
        let (code, address) = match word.strip_prefix('!') {
            Some(address) => (Code::Unbacked, hex(address).or(Some(0x24f_64b7_b7a1)).map(Address)),
            None if word == "?" => (Code::Unknown, None),
            None if word == "jit" => (Code::Jit(Runtime::Clr), None),
            None => {
                let (name, offset) = match word.split_once('!') {
                    Some((name, function)) => (name, start(function) + 0x20),
                    None => (word, 0x1000 + 0x20 * index as u64),
                };
                (Code::Image(module(detector, name), offset), None)
            }
        };
        Frame { address, mode, is_wow64, ..Frame::user(code) }
    };
    text.split_whitespace().enumerate().map(frame).collect()
}

/// All answers for a case.
pub fn evaluated(detector: &mut Detector, given: Given<'_>, stack: &str) -> Evaluation {
    let frames = frames(detector, stack);
    evaluated_frames(detector, given, &frames)
}

/// All answers for frames that the notation cannot express.
pub fn evaluated_frames(detector: &mut Detector, given: Given<'_>, frames: &[Frame]) -> Evaluation {
    evaluated_live(detector, given, frames, &[])
}

/// All answers for frames with facts from live memory.
pub fn evaluated_live(
    detector: &mut Detector,
    given: Given<'_>,
    frames: &[Frame],
    live: &[LiveFrame],
) -> Evaluation {
    let Given { event, process, limit, kernel, user, map_is_complete, has_losses, is_certain, is_truncated } =
        given;
    let stack =
        Stack { frames, live, kernel, user, limit, map_is_complete, has_losses, is_certain, is_truncated };
    detector.evaluate(&Case { event, process, stack })
}

/// The answer of one detection.
pub fn outcome(id: &str, given: Given<'_>, stack: &str) -> Outcome {
    let evaluation = evaluated(&mut detector(Lists::default()), given, stack);
    *evaluation.outcome(DetectionId::parse(id).expect("a detection"))
}

/// The expected answer.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// A finding of this severity about this frame.
    Yes(Severity, usize),
    /// No finding.
    No,
    /// The evidence does not decide.
    Undetermined,
}

/// Checks the verdict for a case, and that one of its reasons is `reason`.
#[track_caller]
pub fn check(id: &str, given: Given<'_>, stack: &str, expected: Expected, reason: Reason) {
    check_by(&mut detector(Lists::default()), id, given, stack, expected, reason);
}

/// Checks the verdict of a detector with more evidence.
#[track_caller]
pub fn check_by(
    detector: &mut Detector,
    id: &str,
    given: Given<'_>,
    stack: &str,
    expected: Expected,
    reason: Reason,
) {
    let evaluation = evaluated(detector, given, stack);
    let outcome = evaluation.outcome(DetectionId::parse(id).expect("a detection"));
    let location = format!("{id} of `{stack}`: {outcome:?}");
    match expected {
        Expected::Yes(severity, frame) => {
            assert_eq!(outcome.verdict, Verdict::Yes, "{location}");
            assert_eq!(outcome.severity, severity, "{location}");
            assert_eq!(outcome.frame.map(usize::from), Some(frame), "{location}");
        }
        Expected::No => assert_eq!(outcome.verdict, Verdict::No, "{location}"),
        Expected::Undetermined => {
            assert_eq!(outcome.verdict, Verdict::Undetermined, "{location}");
            assert!(!outcome.missing.is_empty(), "{location}");
        }
    }
    assert!(outcome.reasons.has(reason), "{reason:?} of {location}");
}
