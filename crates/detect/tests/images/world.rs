//! The modules of the tests, and a detector with their files.

use std::collections::BTreeMap;

use stackhound_detect::{
    Binaries, Case, Detector, Entry, Evaluation, Event, LiveFrame, Outcome, Part, Process, Services, Stack,
    Verdict,
};
use stackhound_frames::{Code, Frame, Lists, Module, ModuleFacts, ModuleIndex};
use stackhound_symbols::Loaded;
use stackhound_symbols::image::Image;
use stackhound_symbols::table::SymbolTableBuilder;
use stackhound_system::Runtime;
use stackhound_types::{AddressKind, Mode, ModuleIdentity};

use crate::made::{ARM64, Pe, X64, X86};
use crate::program::{self, Program, slot};

/// Short names and their paths.
const PATHS: [(&str, &str); 14] = [
    ("ntdll", r"C:\Windows\System32\ntdll.dll"),
    ("ntdll32", r"C:\Windows\SysWOW64\ntdll.dll"),
    ("base", r"C:\Windows\System32\KernelBase.dll"),
    ("wow64", r"C:\Windows\System32\wow64.dll"),
    ("app", r"C:\Tools\app.exe"),
    ("app32", r"C:\Tools\app32.exe"),
    ("other", r"C:\Tools\other.dll"),
    ("gone", r"C:\Tools\gone.dll"),
    ("bad", r"C:\Tools\bad.dll"),
    ("arm", r"C:\Tools\arm.dll"),
    ("packed", r"C:\Tools\packed.exe"),
    ("hook", r"C:\Program Files\Guard\ctiuser.dll"),
    ("runtime", r"C:\Program Files\Runtime\coreclr.dll"),
    ("tableless", r"C:\Tools\tableless.dll"),
];

pub fn ntdll() -> Program {
    Program::new(X64)
        .stub(0x1000, ["NtOpenProcess", "ZwOpenProcess"], 0x26)
        .stub(0x1020, ["NtClose", "ZwClose"], 0xf)
        .stub(0x1040, ["NtReadVirtualMemory", "ZwReadVirtualMemory"], 0x3f)
        .stub(0x1060, ["NtDelayExecution", "ZwDelayExecution"], 0x34)
        .stub(0x1080, ["NtProtectVirtualMemory", "ZwProtectVirtualMemory"], 0x50)
        // As modified by an inline hook.
        .code(0x1080, "e9 >90001000 000000")
        .function(0x1200, 0x1220, "4883ec28 e8 >1000 4883c428 c3")
        .export("RtlOpen", 0x1200)
        .dispatcher(0x1240, 0x1260, "e8 >1200 c3")
        .export("KiUserExceptionDispatcher", 0x1240)
        .function(0x1280, 0x12a0, "90 0f05 c3 909090")
        .function(0x1300, 0x1320, "4883ec28 ffd0 4883c428 c3")
        .export("RtlUserThreadStart", 0x1300)
}

fn base() -> Program {
    Program::new(X64)
        .import("ntdll.dll", "NtOpenProcess")
        .function(0x1000, 0x1020, &format!("4883ec28 ff15 >{:x} 4883c428 c3", slot(X64, 0)))
        .export("OpenProcess", 0x1000)
}

/// Callers of 0x40 bytes each, the functions that they call, and ROP gadgets. The tests use their
/// offsets.
pub fn app() -> Program {
    let slots: [String; 3] = std::array::from_fn(|index| format!(">{:x}", slot(X64, index as u32)));
    let [open, close, handle] = &slots;
    let caller = |call: &str| format!("4883ec28 {call} 4883c428 c3");
    Program::new(X64)
        .import("ntdll.dll", "NtOpenProcess")
        .import("NTDLL", "ZwClose")
        .import("kernel32.dll", "CloseHandle")
        .function(0x1000, 0x1040, &caller(&format!("ff15 {open}")))
        .function(0x1040, 0x1080, &caller(&format!("ff15 {close}")))
        .function(0x1080, 0x10c0, &caller("e8 >1400"))
        .function(0x10c0, 0x1100, &caller("e8 >1410"))
        .function(0x1100, 0x1140, &caller("e8 >1440"))
        .function(0x1140, 0x1180, &caller("e8 >1480"))
        .function(0x1180, 0x11c0, &caller("e8 >14c0"))
        .function(0x11c0, 0x1200, &caller("ffd0"))
        .function(0x1200, 0x1240, &caller("e8 >1500"))
        .function(0x1240, 0x1280, &caller(&format!("ff15 {handle}")))
        .function(0x1280, 0x12c0, &caller("e8 >1520"))
        .function(0x12c0, 0x1300, &caller("e8 >1560"))
        .function(0x1300, 0x1340, &caller("e8 >15a0"))
        .function(0x1340, 0x1380, &caller("e8 >15e0"))
        .function(0x1380, 0x13c0, &caller("e8 >1660"))
        .function(0x13c0, 0x1400, &caller("e8 >1900"))
        // Thunks: of an import, of a thunk, of another import.
        .code(0x1400, &format!("ff25 {open}"))
        .code(0x1410, "e9 >1400")
        .code(0x1500, &format!("ff25 {close}"))
        // Private stubs: through a register, with a parameter kept on the stack, through the stack,
        // with another copy.
        .code(0x1440, "4c8bd1 b826000000 41ffe3")
        .code(0x1560, "4c8b542408 b826000000 41ffe3")
        .code(0x15a0, "4c8bd1 b826000000 4153 c3")
        .code(0x1660, "4c8d11 b826000000 ff25 >7000")
        // A private function that makes a call, wrappers of a pointer, and a function that ends in
        // another one.
        .function(0x1480, 0x14a0, "4883ec28 ffd0 4883c428 c3")
        .code(0x14c0, "488b05 >7000 ffe0")
        .code(0x1520, "49ba 0102030405060708 ff25 >7000")
        .function(0x15e0, 0x1600, "4883ec28 4883c428 e9 >1620")
        .function(0x1620, 0x1640, "4883ec28 ffd0 4883c428 c3")
        // ROP gadgets, two bytes after the start of each line.
        .function(0x1700, 0x1780, "9090 ff23")
        .code(0x1708, "9090 41ff2424")
        .code(0x1710, "9090 4883c438 c3")
        .code(0x1718, "9090 5b 5d c3")
        .code(0x1720, "9090 ffe0")
        .code(0x1728, "ffd0 ff23")
        .code(0x1730, "ffd0 4883c438 c3")
        .code(0x1738, "ffd0 ffe0")
        .code(0x1740, "9090 9090")
        .code(0x1748, "9090 ff6500")
        .code(0x1750, "9090 53 c3")
        // Code without unwind data.
        .code(0x1800, "ffd0 90")
        .code(0x1810, "9090 90")
        .function(0x1840, 0x1860, "9090 90")
        // A call that never returns at the end of its function.
        .function(0x1880, 0x1885, "e8 >1480")
        .function(0x1885, 0x18a0, "9090 90")
        // System-call instructions in the program, of both kinds.
        .code(0x1b00, "0f05 c3")
        .code(0x1b10, "cd2e c3")
        // A function of two chunks.
        .function(0x1900, 0x1920, "4883ec28 e9 >1940")
        .chunk(0x1940, 0x1960, (0x1900, 0x1920), "ffd0 4883c428 c3")
        .relocation(0x1a10)
        .function(0x1a00, 0x1a40, "4883ec28 9090 48b8 0000000000000000 90 90 48b8 1122334455667788 ffd0 c3")
}

fn ntdll32() -> Program {
    Program::new(X86)
        .code(0x1000, "b8 26000000 ba 40201000 ffd2 c21000")
        .export("NtOpenProcess", 0x1000)
        .export("ZwOpenProcess", 0x1000)
        .code(0x1020, "b8 0f000000 ba 40201000 ffd2 c20400")
        .export("NtClose", 0x1020)
        .export("ZwClose", 0x1020)
        .code(0x1100, "8bd4 0f34 c3")
        .export("KiFastSystemCall", 0x1100)
        .export("KiFastSystemCallRet", 0x1104)
        .code(0x1200, "9090 0f34 c3")
}

fn app32() -> Program {
    let slot = (0x1000_0000 + slot(X86, 0)).to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
    Program::new(X86)
        .import("ntdll.dll", "NtOpenProcess")
        .code(0x1000, &format!("ff15 {slot} c3"))
        .code(0x1040, "e8 >1080 c3")
        .code(0x1080, "b826000000 c3")
        .code(0x10c0, "9090 90")
        .code(0x10d0, "9090 ff23")
        .code(0x10e0, "ffd0 ff23")
}

/// The files of the modules by path.
pub fn files() -> BTreeMap<&'static str, Vec<u8>> {
    let tableless = Program::new(X64).code(0x1000, "ffd0 90").file();
    let small = Pe::new(X64).code(0x1000, vec![0x90; 0x200]).file();
    let files = [
        ("ntdll", ntdll().file()),
        ("ntdll32", ntdll32().file()),
        ("base", base().file()),
        ("app", app().file()),
        ("app32", app32().file()),
        ("other", app().file()),
        ("hook", app().file()),
        ("runtime", app().file()),
        ("tableless", tableless),
        ("bad", b"MZ and nothing else".to_vec()),
        ("arm", Pe::new(ARM64).code(0x1000, vec![0; 0x200]).file()),
        ("packed", program::stretched(small)),
    ];
    files.into_iter().map(|(name, bytes)| (path(name), bytes)).collect()
}

pub fn path(name: &str) -> &'static str {
    PATHS.iter().find(|known| known.0 == name).unwrap_or_else(|| panic!("{name}")).1
}

/// The files of modules as the detector uses them.
pub fn binaries(files: BTreeMap<&'static str, Vec<u8>>) -> Binaries {
    Binaries::new(Box::new(move |module: &Module| {
        let Some(bytes) = files.get(&*module.path) else { return Loaded::default() };
        let mut names = SymbolTableBuilder::new();
        if let Ok(image) = Image::parse(bytes) {
            let _ = names.add_image(&image);
        }
        Loaded { symbols: Some(Box::new(names.build())), image: Some(bytes.clone()), failures: Vec::new() }
    }))
}

pub struct World {
    pub detector: Detector,
    /// The facts from live memory of each frame.
    pub live: Vec<LiveFrame>,
}

impl World {
    /// All files except for these.
    pub fn without(names: &[&str]) -> World {
        let mut files = files();
        names.iter().for_each(|name| drop(files.remove(path(name))));
        World::of(binaries(files))
    }

    pub fn of(binaries: Binaries) -> World {
        World { detector: Detector::new(Lists::default(), binaries), live: Vec::new() }
    }

    pub fn module(&mut self, name: &str) -> ModuleIndex {
        let path = path(name);
        let file = path.rsplit('\\').next().unwrap_or_default().to_owned();
        let identity = ModuleIdentity { name: file, ..ModuleIdentity::default() };
        let facts = ModuleFacts { path: path.into(), identity, ..ModuleFacts::default() };
        self.detector.module(&facts, None)
    }

    pub fn frame(&mut self, text: &str) -> Frame {
        let (text, is_wow64) = text.strip_suffix('~').map_or((text, false), |text| (text, true));
        let (text, is_instruction) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        let code = match text {
            "!" | "K" => Code::Unbacked,
            "?" => Code::Unknown,
            "jit" => Code::Jit(Runtime::Clr),
            "root" => Code::Image(self.module("ntdll"), 0x1306),
            _ => {
                let (name, offset) = text.split_once('+').expect("a module and an offset");
                Code::Image(self.module(name), u64::from_str_radix(offset, 16).expect("hexadecimal"))
            }
        };
        let mode = if text == "K" { Mode::Kernel } else { Mode::User };
        let kind = if is_instruction { AddressKind::Instruction } else { AddressKind::Return };
        Frame { mode, is_wow64, kind, ..Frame::user(code) }
    }

    pub fn frames(&mut self, text: &str) -> Vec<Frame> {
        text.split_whitespace().map(|frame| self.frame(frame)).collect()
    }

    pub fn evaluate(&mut self, frames: &[Frame], entry: Entry, services: Services<'_>) -> Evaluation {
        let stack = Stack {
            frames,
            live: &self.live,
            kernel: Part::Whole,
            user: Part::Whole,
            limit: None,
            map_is_complete: true,
            has_losses: false,
            is_certain: true,
            is_truncated: false,
        };
        let event = Event { entry, services, ..Event::OTHER };
        self.detector.evaluate(&Case { event, process: Process::UNKNOWN, stack })
    }
}

/// An outcome as a line of text.
pub fn line(outcome: &Outcome) -> String {
    let mut line = outcome.verdict.name().to_owned();
    if outcome.verdict == Verdict::Yes {
        line = format!("{line} {}", outcome.severity.name());
    }
    let reasons: Vec<_> = outcome.reasons.iter().map(|reason| reason.code()).collect();
    line = format!("{line} {}", reasons.join("+"));
    if outcome.verdict == Verdict::Yes {
        line += &outcome.frame.map_or_else(String::new, |frame| format!(" @{frame}"));
    }
    outcome.missing.iter().for_each(|input| line += &format!(" -{}", input.name()));
    line
}
