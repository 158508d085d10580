//! Problems of performance, each with one planted cause.
//!
//! The machine is that of the other scenarios, with little other activity, no attack and no lost
//! buffer. One thread causes the problem, in functions with names, and [`Cause`] states which. The
//! functions, files and durations are invented; no trace of a real problem was copied.

use std::io::Write;

use stackhound_types::{Pid, Tid};

use crate::image::SystemImage;
use crate::machine::Role;
use crate::output::TICKS_PER_MS;
use crate::payload::Transfer;
use crate::plan::Script;
use crate::resources::OPEN_KEYS;
use crate::simulation::Simulation;
use crate::site::{self, Site};
use crate::thread::{Action, Occurrence, ThreadIndex, Wake};

/// A problem that users notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A thread of a word processor keeps one processor busy: it checks the spelling without end.
    HighCpu,
    /// A word processor shows its window late: it waits for the answer of a license server.
    SlowStart,
    /// The window of a word processor hangs: its thread waits for a lock, whose owner writes a
    /// backup to a slow disk.
    Hang,
    /// A browser reads its cache in small pieces, and waits for the disk most of the time.
    DiskBound,
    /// A browser commits memory and never frees it.
    MemoryGrowth,
}

/// The planted cause of a problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// Process that causes the problem.
    pub pid: Pid,
    /// Thread that causes it.
    pub tid: Tid,
    /// Thread that hangs; `None` for other problems.
    pub waiter: Option<Tid>,
    /// Function of the cause, as `module!name`.
    pub function: &'static str,
    /// NT path of its file, if the cause has one.
    pub file: Option<String>,
}

/// How far a problem has developed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Before,
    /// The owner of the lock works.
    Working,
    /// The user waits.
    Waiting,
    Over,
}

/// A problem while the scenario runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProblemState {
    problem: Problem,
    /// Time at which the simulation starts.
    start: i64,
    stage: Stage,
    /// Thread that causes the problem.
    subject: Option<ThreadIndex>,
    /// Thread that hangs, or that starts the process of the subject.
    other: Option<ThreadIndex>,
    file: u32,
}

/// Milliseconds from the start of the simulation to the start of the program, of the backup and of
/// the hang.
const LAUNCH_AT: i64 = 300;
const BACKUP_AT: i64 = 900;
const SAVE_AT: i64 = 1000;

/// The names of functions in the library of the word processor, and in that of the browser.
const CORE: [&str; 19] = [
    "EditDistance",
    "CompareWords",
    "FindSuggestions",
    "CheckParagraph",
    "CheckSpelling",
    "WriteBackup",
    "AutoSave",
    "UnlockDocument",
    "LockDocument",
    "SaveDocument",
    "MessageLoop",
    "DrawPage",
    "ReadSettings",
    "LoadFonts",
    "BuildMenus",
    "RequestLicense",
    "CheckLicense",
    "ShowDocument",
    "Initialize",
];
const ENGINE: [&str; 6] =
    ["ReadEntry", "ChecksumEntry", "CompactCache", "CacheThumbnail", "DecodeImage", "LoadTab"];

/// Offsets of the first functions: after the functions of [`calls`](crate::calls), which are in the
/// first half of each image.
const CORE_AT: u32 = 0xa0_0000;
const ENGINE_AT: u32 = 0x600_0000;
/// Distance and size of functions in bytes.
const DISTANCE: u32 = 0x200;
const SIZE: u32 = 0x180;

const fn table<const N: usize>(first: u32, names: [&'static str; N]) -> [(u32, u32, &'static str); N] {
    let mut functions = [(0, SIZE, ""); N];
    let mut at = 0;
    while at < N {
        functions[at] = (first + DISTANCE * at as u32, SIZE, names[at]);
        at += 1;
    }
    functions
}

/// The functions of a library that occur in problems: offset, size in bytes, name.
pub(crate) fn functions(image: SystemImage) -> &'static [(u32, u32, &'static str)] {
    static OF_CORE: [(u32, u32, &str); CORE.len()] = table(CORE_AT, CORE);
    static OF_ENGINE: [(u32, u32, &str); ENGINE.len()] = table(ENGINE_AT, ENGINE);
    match image {
        SystemImage::OfficeCore => &OF_CORE,
        SystemImage::BrowserCore => &OF_ENGINE,
        _ => &[],
    }
}

/// The start of a function. Fails when the program is compiled if there is none with this name.
const fn find(image: SystemImage, first: u32, names: &[&str], name: &str) -> Site {
    let mut at = 0;
    while at < names.len() {
        let (known, wanted) = (names[at].as_bytes(), name.as_bytes());
        let mut same = 0;
        while same < known.len() && same < wanted.len() && known[same] == wanted[same] {
            same += 1;
        }
        if same == known.len() && same == wanted.len() {
            return Site(image, first + DISTANCE * at as u32);
        }
        at += 1;
    }
    panic!("no function has this name")
}

const fn core(name: &str) -> Site {
    find(SystemImage::OfficeCore, CORE_AT, &CORE, name)
}

const fn engine(name: &str) -> Site {
    find(SystemImage::BrowserCore, ENGINE_AT, &ENGINE, name)
}

/// Functions that call each other, innermost first.
type Path = &'static [Site];

const EDIT_DISTANCE: Path = &[
    core("EditDistance"),
    core("CompareWords"),
    core("FindSuggestions"),
    core("CheckParagraph"),
    core("CheckSpelling"),
];
const COMPARE_WORDS: Path =
    &[core("CompareWords"), core("FindSuggestions"), core("CheckParagraph"), core("CheckSpelling")];
const CHECK_PARAGRAPH: Path = &[core("CheckParagraph"), core("CheckSpelling")];
const WRITE_BACKUP: Path = &[core("WriteBackup"), core("AutoSave")];
const UNLOCK: Path = &[core("UnlockDocument"), core("AutoSave")];
const LOCK: Path = &[core("LockDocument"), core("SaveDocument"), core("MessageLoop")];
const DRAW: Path = &[core("DrawPage"), core("MessageLoop")];
const MESSAGE_LOOP: Path = &[core("MessageLoop")];
const READ_SETTINGS: Path = &[core("ReadSettings"), core("Initialize")];
const LOAD_FONTS: Path = &[core("LoadFonts"), core("Initialize")];
const BUILD_MENUS: Path = &[core("BuildMenus"), core("Initialize")];
const REQUEST_LICENSE: Path = &[core("RequestLicense"), core("CheckLicense"), core("Initialize")];
const SHOW: Path = &[core("ShowDocument"), core("Initialize")];
const READ_ENTRY: Path = &[engine("ReadEntry"), engine("CompactCache")];
const CHECKSUM: Path = &[engine("ChecksumEntry"), engine("CompactCache")];
const THUMBNAIL: Path = &[engine("CacheThumbnail"), engine("DecodeImage"), engine("LoadTab")];
const DECODE: Path = &[engine("DecodeImage"), engine("LoadTab")];
const LOAD_TAB: Path = &[engine("LoadTab")];

impl Problem {
    /// All problems.
    pub const ALL: [Problem; 5] =
        [Problem::HighCpu, Problem::SlowStart, Problem::Hang, Problem::DiskBound, Problem::MemoryGrowth];

    fn function(self) -> &'static str {
        match self {
            Problem::HighCpu => "core.dll!EditDistance",
            Problem::SlowStart => "core.dll!RequestLicense",
            Problem::Hang => "core.dll!WriteBackup",
            Problem::DiskBound => "engine.dll!ReadEntry",
            Problem::MemoryGrowth => "engine.dll!CacheThumbnail",
        }
    }

    /// The file that the cause reads or writes, if any.
    fn file(self) -> Option<&'static str> {
        match self {
            Problem::Hang => Some(r"\Device\HarddiskVolume4\Backup\Quarter.docx.bak"),
            Problem::DiskBound => {
                Some(r"\Device\HarddiskVolume3\Users\ada\AppData\Local\Contoso\Browser\Cache\data_2")
            }
            _ => None,
        }
    }
}

/// Ticks of a number of milliseconds.
fn ms(from: u64, to: u64, script: &mut Script<'_>) -> u32 {
    script.random.between(from * TICKS_PER_MS as u64, to * TICKS_PER_MS as u64) as u32
}

/// A transfer of a file, and the time until it is complete.
fn transfer(script: &mut Script<'_>, file: u32, size: u32, is_write: bool, ticks: u32) -> [Action; 2] {
    let (irp, offset) = (script.resources.irp(), script.random.below(1 << 16) << 12);
    let transfer = Transfer { irp, file, offset, size, started: 0, is_write };
    let request = if is_write { Occurrence::DiskWriteInit(irp) } else { Occurrence::DiskReadInit(irp) };
    [Action::Log(request), Action::Wait(Wake::Disk(transfer), ticks)]
}

fn check_spelling(script: &mut Script<'_>) {
    let path = match script.random.below(100) {
        0..72 => EDIT_DISTANCE,
        72..94 => COMPARE_WORDS,
        _ => CHECK_PARAGRAPH,
    };
    let ticks = ms(1, 4, script);
    script.push([Action::In(path), Action::Compute(ticks)]);
}

fn handle_message(script: &mut Script<'_>) {
    let (wait, run) = (ms(15, 40, script), ms(1, 2, script));
    script.push([Action::In(MESSAGE_LOOP)]);
    script.call(&site::NT_USER_MSG_WAIT, &[Action::Wait(Wake::Timer, wait)]);
    script.push([Action::In(DRAW), Action::Compute(run)]);
}

/// Writes the backup, then wakes the thread that waits for the lock.
fn write_backup(script: &mut Script<'_>, number: u32, waiter: ThreadIndex) {
    const SIZE: u32 = 1 << 20;
    script.push([Action::In(WRITE_BACKUP)]);
    let file = script.open_file(number);
    for _ in 0..32 {
        let (irp, ticks) = (script.resources.irp(), ms(45, 60, script));
        let [request, wait] = transfer(script, number, SIZE, true, ticks);
        let begin = Action::Log(Occurrence::FileWrite(irp, file, SIZE));
        let end = Action::Log(Occurrence::FileOperationEnd(irp, SIZE));
        script.call(&site::NT_WRITE_FILE, &[begin, request, wait, end]);
        script.push([Action::Compute(5_000)]);
    }
    script.close_file(file, &[]);
    script.push([Action::In(UNLOCK)]);
    script.call(&site::NT_SET_EVENT, &[Action::Unlock(waiter)]);
}

fn save_document(script: &mut Script<'_>) {
    script.push([Action::In(LOCK)]);
    script.call(&site::NT_WAIT_FOR_SINGLE_OBJECT, &[Action::Wait(Wake::Lock, 0)]);
    script.push([Action::In(DRAW), Action::Compute(20_000)]);
}

fn compact_cache(script: &mut Script<'_>, number: u32) {
    const SIZE: u32 = 4096;
    script.push([Action::In(READ_ENTRY)]);
    let file = script.open_file(number);
    for _ in 0..40 {
        let (irp, ticks, run) = (script.resources.irp(), ms(4, 9, script), ms(0, 1, script));
        let [request, wait] = transfer(script, number, SIZE, false, ticks);
        let begin = Action::Log(Occurrence::FileRead(irp, file, SIZE));
        let end = Action::Log(Occurrence::FileOperationEnd(irp, SIZE));
        script.push([Action::In(READ_ENTRY)]);
        script.call(&site::NT_READ_FILE, &[begin, request, wait, end]);
        script.push([Action::In(CHECKSUM), Action::Compute(run)]);
    }
    script.close_file(file, &[]);
}

/// Keeps a thumbnail of 1 MiB, and frees the 4 MiB that it needed to decode the image.
fn load_tab(script: &mut Script<'_>) {
    let allocate = &site::NT_ALLOCATE_VIRTUAL_MEMORY;
    script.push([Action::In(DECODE)]);
    script.call(allocate, &[Action::Log(Occurrence::VirtualAlloc(4 << 20))]);
    script.push([Action::Compute(20_000), Action::In(THUMBNAIL)]);
    script.call(allocate, &[Action::Log(Occurrence::VirtualKeep(1 << 20))]);
    script.push([Action::In(DECODE)]);
    script.call(&site::NT_FREE_VIRTUAL_MEMORY, &[Action::Log(Occurrence::VirtualFree)]);
    let wait = ms(15, 25, script);
    script.push([Action::In(LOAD_TAB)]);
    script.call(&site::NT_WAIT_FOR_SINGLE_OBJECT, &[Action::Wait(Wake::Timer, wait)]);
}

/// The start of the word processor after its images are loaded.
fn start_up(script: &mut Script<'_>) {
    const FONT: u32 = 8;
    script.push([Action::In(READ_SETTINGS)]);
    for key in 5..OPEN_KEYS {
        script.registry(key, false);
    }
    script.push([Action::In(LOAD_FONTS)]);
    let fonts = script.open_file(FONT);
    for _ in 0..12 {
        let (irp, ticks, size) = (script.resources.irp(), ms(2, 6, script), 32_768);
        let [request, wait] = transfer(script, FONT, size, false, ticks);
        let begin = Action::Log(Occurrence::FileRead(irp, fonts, size));
        let end = Action::Log(Occurrence::FileOperationEnd(irp, size));
        script.call(&site::NT_READ_FILE, &[begin, request, wait, end]);
    }
    script.close_file(fonts, &[]);
    script.push([Action::In(BUILD_MENUS), Action::Compute(900_000), Action::In(REQUEST_LICENSE)]);
    script.call(&site::NT_DEVICE_IO_CONTROL_FILE, &[Action::Log(Occurrence::TcpSend(688))]);
    let answer = ms(1150, 1250, script);
    script.call(&site::NT_WAIT_FOR_SINGLE_OBJECT, &[Action::Wait(Wake::Network(412), answer)]);
    script.push([Action::In(SHOW), Action::Compute(300_000)]);
}

impl<W: Write> Simulation<'_, W> {
    /// Selects the threads of a problem, after the processes of the machine exist.
    pub fn begin_problem(&mut self, problem: Problem) {
        let (role, index) = match problem {
            Problem::HighCpu | Problem::Hang => (Role::Office, Some(2)),
            Problem::DiskBound | Problem::MemoryGrowth => (Role::Browser, Some(1)),
            Problem::SlowStart => (Role::Office, None),
        };
        let find = |role: Role, index: usize| {
            let is_it = |thread: &crate::thread::LiveThread| {
                self.machine.processes[thread.process].role == role && thread.index_in_process == index
            };
            self.threads.iter().position(is_it)
        };
        let subject = index.and_then(|index| find(role, index));
        let other = match problem {
            Problem::Hang => find(Role::Office, 0),
            Problem::SlowStart => find(Role::Shell, 0),
            _ => None,
        };
        let file = problem.file().map_or(0, |path| self.resources.add_file(path));
        let (start, stage) = (self.out.now(), Stage::Before);
        self.problem = Some(ProblemState { problem, start, stage, subject, other, file });
    }

    /// Whether the problem has happened completely.
    pub fn is_problem_over(&self) -> bool {
        self.problem.is_none_or(|state| match state.problem {
            Problem::SlowStart | Problem::Hang => state.stage == Stage::Over,
            _ => true,
        })
    }

    fn enter_stage(&mut self, stage: Stage) {
        self.problem.iter_mut().for_each(|state| state.stage = stage);
    }

    /// Plans the next actions of a thread that takes part in a problem. Returns false for others.
    pub fn plan_problem(&mut self, thread: ThreadIndex) -> bool {
        let Some(state) = self.problem else { return false };
        let elapsed = (self.out.now() - state.start) / TICKS_PER_MS;
        let (is_subject, is_other) = (state.subject == Some(thread), state.other == Some(thread));
        match (state.problem, state.stage) {
            (Problem::HighCpu, _) if is_subject => self.script(thread, check_spelling),
            (Problem::DiskBound, _) if is_subject => {
                self.script(thread, |script| compact_cache(script, state.file));
            }
            (Problem::MemoryGrowth, _) if is_subject => self.script(thread, load_tab),
            (Problem::Hang, Stage::Before) if is_subject && elapsed >= BACKUP_AT => {
                self.enter_stage(Stage::Working);
                let waiter = state.other.unwrap_or(thread);
                self.script(thread, |script| write_backup(script, state.file, waiter));
            }
            (Problem::Hang, _) if is_subject => self.script(thread, |script| {
                let wait = ms(20, 60, script);
                script.call(&site::NT_WAIT_FOR_WORK, &[Action::Wait(Wake::Timer, wait)]);
            }),
            (Problem::Hang, Stage::Working) if is_other && elapsed >= SAVE_AT => {
                self.enter_stage(Stage::Waiting);
                self.script(thread, save_document);
            }
            (Problem::Hang, _) if is_other => self.script(thread, handle_message),
            (Problem::SlowStart, Stage::Before) if is_other && elapsed >= LAUNCH_AT => {
                self.enter_stage(Stage::Waiting);
                let spawn = [Action::Spawn(Role::Office)];
                self.script(thread, |script| script.call(&site::NT_CREATE_USER_PROCESS, &spawn));
            }
            (Problem::SlowStart, Stage::Before) if is_other => self.script(thread, |script| {
                let wait = ms(15, 40, script);
                script.call(&site::NT_USER_MSG_WAIT, &[Action::Wait(Wake::Timer, wait)]);
            }),
            (Problem::SlowStart, _) if is_subject => {
                self.enter_stage(Stage::Over);
                self.script(thread, handle_message);
            }
            _ => return false,
        }
        true
    }

    /// Plans the first thread of the process whose start is slow, after it has loaded its images.
    pub fn plan_slow_start(&mut self, thread: ThreadIndex) {
        let Some(state) = self.problem.as_mut().filter(|state| state.problem == Problem::SlowStart) else {
            return;
        };
        state.subject = Some(thread);
        self.script(thread, start_up);
    }

    /// Wakes the thread that waits for a lock. The problem is over.
    pub fn unlock(&mut self) {
        self.enter_stage(Stage::Over);
    }

    /// The planted cause.
    pub fn cause(&self) -> Option<Cause> {
        let state = self.problem?;
        let owner = self.owner(state.subject?);
        let waiter = state.other.filter(|_| state.problem == Problem::Hang);
        Some(Cause {
            pid: owner.pid,
            tid: owner.tid,
            waiter: waiter.map(|thread| self.threads[thread].tid),
            function: state.problem.function(),
            file: state.problem.file().map(str::to_owned),
        })
    }
}
