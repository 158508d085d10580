//! Plans the actions of threads, by the role of their process.

use std::collections::VecDeque;
use std::io::Write;

use crate::image::SystemImage;
use crate::machine::{ProcessIndex, Role};
use crate::output::TICKS_PER_MS;
use crate::payload::{Create, OpenFile, Transfer};
use crate::provider::ProviderEvent;
use crate::random::{Random, hash2};
use crate::resources::{FILES, OPEN_KEYS, RUN_KEY, Resources};
use crate::simulation::{Simulation, Version};
use crate::site;
use crate::thread::{Action, Caller, Occurrence, Start, ThreadIndex, Wake};
use crate::truth::AttackKind;

/// A task of a thread, which consists of several actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    Compute,
    ReadFile,
    TemporaryFile,
    QueryRegistry,
    SetRegistry,
    Memory,
    PageFault,
    Send,
    Receive,
    Sleep,
    AwaitSignal,
    AwaitCall,
    AwaitWork,
    AwaitMessage,
    Signal,
    Window,
    WriteBehind,
    StartThread,
    Spawn,
    Library,
    Event,
}

/// The tasks of the threads of a role, with weights.
fn tasks(role: Role) -> &'static [(u32, Task)] {
    use Task::*;
    match role {
        Role::System => &[(5, WriteBehind), (5, Sleep)],
        Role::SessionManager => &[(1, AwaitCall)],
        Role::Subsystem => &[(4, AwaitCall), (1, QueryRegistry), (1, Signal)],
        Role::Services => &[(4, AwaitCall), (6, QueryRegistry), (1, SetRegistry), (2, Event), (2, Sleep)],
        Role::Service => &[
            (6, AwaitWork),
            (5, QueryRegistry),
            (3, ReadFile),
            (3, Send),
            (3, Receive),
            (2, Event),
            (2, Memory),
            (4, Compute),
            (2, Signal),
            (1, StartThread),
            (1, Spawn),
        ],
        Role::Shell => {
            &[(8, Window), (5, AwaitMessage), (3, QueryRegistry), (2, ReadFile), (4, Compute), (2, PageFault)]
        }
        Role::Office => &[
            (8, Compute),
            (4, ReadFile),
            (3, TemporaryFile),
            (4, Window),
            (4, AwaitMessage),
            (2, PageFault),
            (2, Memory),
            (1, SetRegistry),
            (1, Library),
        ],
        Role::Browser => &[
            (9, Compute),
            (4, Send),
            (4, Receive),
            (5, Event),
            (4, Memory),
            (3, ReadFile),
            (3, Signal),
            (5, AwaitSignal),
        ],
        Role::Sync => &[(4, Compute), (3, ReadFile), (4, Event), (2, QueryRegistry), (5, Sleep)],
        Role::Task => &[(3, QueryRegistry), (2, ReadFile), (3, Compute), (1, Memory)],
        Role::Updater => &[(3, Send), (3, Receive), (2, Event), (2, Compute), (4, Sleep)],
    }
}

/// Minimum and maximum wait of the threads of a role, in milliseconds. All waits are shorter than
/// the time for which readers hold events.
fn wait_range(role: Role) -> (u64, u64) {
    match role {
        Role::System => (10, 60),
        Role::SessionManager | Role::Subsystem => (40, 200),
        Role::Services => (20, 120),
        Role::Service | Role::Sync => (10, 100),
        Role::Shell | Role::Office => (5, 50),
        Role::Browser => (3, 40),
        Role::Task | Role::Updater => (1, 6),
    }
}

/// Writes the actions of a thread.
pub(crate) struct Script<'s> {
    actions: &'s mut VecDeque<Action>,
    pub random: &'s mut Random,
    pub resources: &'s mut Resources,
    process: ProcessIndex,
    role: Role,
}

impl Script<'_> {
    pub fn push(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.actions.extend(actions);
    }

    fn log(&mut self, occurrence: Occurrence) {
        self.actions.push_back(Action::Log(occurrence));
    }

    /// A system call that performs the actions `inside`.
    pub fn call(&mut self, call: &'static site::Call, inside: &[Action]) {
        self.push([Action::Enter(call)]);
        self.push(inside.iter().copied());
        self.push([Action::Leave]);
    }

    /// Calls the function that is slower in one version of the program.
    fn lay_out(&mut self, version: Version) {
        let slowness = if version == Version::After { 3 } else { 1 };
        let ticks = self.random.between(500, 3_000) as u32 * slowness;
        self.push([Action::LayOut(true), Action::Compute(ticks), Action::LayOut(false)]);
    }

    fn wait(&mut self, call: &'static site::Call, wake: Wake) {
        let (low, high) = wait_range(self.role);
        let ticks = self.random.between(low, high) as i64 * TICKS_PER_MS + self.random.below(5000) as i64;
        self.call(call, &[Action::Wait(wake, ticks as u32)]);
    }

    /// A transfer between disk and memory, and the wait for it.
    fn disk(&mut self, file: u32, is_write: bool) -> (Transfer, Action) {
        let transfer = Transfer {
            irp: self.resources.irp(),
            file,
            offset: self.random.below(1 << 24) << 12,
            size: self.random.pick(&[4096, 16_384, 32_768]),
            started: 0,
            is_write,
        };
        let ticks = self.random.between(600, 40_000) as u32;
        (transfer, Action::Wait(Wake::Disk(transfer), ticks))
    }

    fn read_file(&mut self) {
        let number = self.random.below(FILES.len() as u64) as u32;
        let file = self.open_file(number);
        for _ in 0..self.random.between(1, 3) {
            let (irp, size) = (self.resources.irp(), 4096);
            self.push([Action::Enter(&site::NT_READ_FILE)]);
            self.log(Occurrence::FileRead(irp, file, size));
            if self.random.one_in(3) {
                let (transfer, wait) = self.disk(number, false);
                self.log(Occurrence::DiskReadInit(transfer.irp));
                self.push([wait]);
            }
            self.log(Occurrence::FileOperationEnd(irp, size));
            self.push([Action::Leave]);
        }
        self.close_file(file, &[]);
    }

    pub fn open_file(&mut self, number: u32) -> OpenFile {
        let (irp, file) = (self.resources.irp(), self.resources.open(number));
        let create = Create::Existing;
        let inside =
            [Occurrence::FileCreate(irp, file, create), Occurrence::FileOperationEnd(irp, create.result())];
        self.call(&site::NT_CREATE_FILE, &inside.map(Action::Log));
        file
    }

    /// Closes a file. The actions `last` follow in the same system call.
    pub fn close_file(&mut self, file: OpenFile, last: &[Action]) {
        let (cleanup, close) = (self.resources.irp(), self.resources.irp());
        let inside = [
            Occurrence::FileCleanup(cleanup, file),
            Occurrence::FileOperationEnd(cleanup, 0),
            Occurrence::FileClose(close, file),
            Occurrence::FileOperationEnd(close, 0),
        ];
        self.call(&site::NT_CLOSE, &[&inside.map(Action::Log), last].concat());
    }

    /// Creates and writes a file, whose name is logged when it is created. Half of the files are
    /// deleted when they are closed.
    fn temporary_file(&mut self) {
        let Some(number) = self.resources.new_file() else {
            return self.read_file();
        };
        let (irp, file) = (self.resources.irp(), self.resources.open(number));
        let create = Create::New;
        let inside = [
            Occurrence::FileCreate(irp, file, create),
            Occurrence::FileName(number),
            Occurrence::FileOperationEnd(irp, create.result()),
        ];
        self.call(&site::NT_CREATE_FILE, &inside.map(Action::Log));
        let irp = self.resources.irp();
        let inside = [Occurrence::FileWrite(irp, file, 2048), Occurrence::FileOperationEnd(irp, 2048)];
        self.call(&site::NT_WRITE_FILE, &inside.map(Action::Log));
        let is_deleted = self.random.one_in(2);
        let delete = Action::Log(Occurrence::FileNameDelete(number));
        self.close_file(file, if is_deleted { std::slice::from_ref(&delete) } else { &[] });
    }

    pub fn registry(&mut self, key: u32, set: bool) {
        let open = if set { Occurrence::RegistryCreate(key) } else { Occurrence::RegistryOpen(key) };
        let inside = [open, Occurrence::KeyControlBlock(key)].map(Action::Log);
        self.call(if set { &site::NT_CREATE_KEY } else { &site::NT_OPEN_KEY_EX }, &inside);
        if set {
            self.call(&site::NT_SET_VALUE_KEY, &[Action::Log(Occurrence::RegistrySetValue(key))]);
        } else {
            self.call(&site::NT_QUERY_VALUE_KEY, &[Action::Log(Occurrence::RegistryQueryValue(key))]);
        }
        let close = [Occurrence::RegistryClose(key), Occurrence::KeyControlBlockDelete(key)].map(Action::Log);
        let is_last = key >= OPEN_KEYS && self.random.one_in(3);
        self.call(&site::NT_CLOSE, if is_last { &close } else { &close[..1] });
    }

    fn any_key(&mut self) -> u32 {
        // The last key is reserved for the attack.
        5 + self.random.below(u64::from(RUN_KEY) - 5) as u32
    }

    fn page_fault(&mut self) {
        let file = self.random.below(FILES.len() as u64) as u32;
        let (transfer, wait) = self.disk(file, false);
        self.push([Action::Fault]);
        self.log(Occurrence::DiskReadInit(transfer.irp));
        self.push([wait]);
        self.log(Occurrence::HardFault(transfer));
        self.push([Action::Leave]);
    }

    /// The kernel calls a window procedure, which opens a registry key.
    fn window(&mut self) {
        let key = 5 + self.random.below(3) as u32;
        self.push([
            Action::Enter(&site::NT_USER_MESSAGE_CALL),
            Action::EnterFromCallback(&site::NT_OPEN_KEY_EX),
            Action::Log(Occurrence::RegistryOpen(key)),
            Action::ReturnToCallback,
            Action::Leave,
        ]);
    }

    fn event(&mut self) {
        let number = self.random.below(1 << 20);
        let events: &[ProviderEvent] = match self.role {
            Role::Sync => &[ProviderEvent::SyncState(number as u32)],
            Role::Browser => &[
                ProviderEvent::NavigationStart(number as u32 % 8),
                ProviderEvent::CacheLookup(number),
                ProviderEvent::NavigationStop(number as u32 % 8),
            ],
            _ => &[ProviderEvent::DownloadProgress(number)],
        };
        for &event in events {
            self.call(&site::NT_TRACE_EVENT, &[Action::Log(Occurrence::Provider(event))]);
        }
    }

    fn write(&mut self, task: Task) {
        match task {
            Task::Compute => {
                let ticks = self.random.between(2_000, 60_000) as u32;
                self.push([Action::Compute(ticks)]);
            }
            Task::ReadFile => self.read_file(),
            Task::TemporaryFile => self.temporary_file(),
            Task::QueryRegistry => {
                let key = self.any_key();
                self.registry(key, false);
            }
            Task::SetRegistry => {
                let key = self.any_key();
                self.registry(key, true);
            }
            Task::Memory => {
                let size = self.random.between(1, 64) << 16;
                self.call(&site::NT_ALLOCATE_VIRTUAL_MEMORY, &[Action::Log(Occurrence::VirtualAlloc(size))]);
                self.push([Action::Compute(2000)]);
                self.call(&site::NT_FREE_VIRTUAL_MEMORY, &[Action::Log(Occurrence::VirtualFree)]);
            }
            Task::PageFault => self.page_fault(),
            Task::Send => {
                let size = self.random.between(100, 1460) as u32;
                self.call(&site::NT_DEVICE_IO_CONTROL_FILE, &[Action::Log(Occurrence::TcpSend(size))]);
            }
            Task::Receive => {
                let size = self.random.between(100, 1460) as u32;
                self.wait(&site::NT_WAIT_FOR_SINGLE_OBJECT, Wake::Network(size));
            }
            Task::Sleep if self.role == Role::System => {
                self.push([Action::Wait(Wake::Timer, 200_000)]);
            }
            Task::Sleep => self.wait(&site::NT_DELAY_EXECUTION, Wake::Timer),
            Task::AwaitSignal => self.wait(&site::NT_WAIT_FOR_SINGLE_OBJECT, Wake::Signal),
            Task::AwaitCall => self.wait(&site::NT_ALPC_SEND_WAIT_RECEIVE_PORT, Wake::Signal),
            Task::AwaitWork => self.wait(&site::NT_WAIT_FOR_WORK, Wake::Signal),
            Task::AwaitMessage => self.wait(&site::NT_USER_MSG_WAIT, Wake::Timer),
            Task::Signal => self.call(&site::NT_SET_EVENT, &[Action::Signal]),
            Task::Window => self.window(),
            Task::WriteBehind => {
                let file = self.random.below(FILES.len() as u64) as u32;
                let (transfer, wait) = self.disk(file, true);
                self.log(Occurrence::DiskWriteInit(transfer.irp));
                self.push([wait]);
            }
            Task::StartThread => {
                let start = Action::StartThread(self.process, Start::Pool);
                self.call(&site::NT_CREATE_THREAD_EX, &[start]);
            }
            Task::Spawn => {
                self.call(&site::NT_CREATE_USER_PROCESS, &[Action::Spawn(Role::Task)]);
            }
            Task::Library => {
                let image = SystemImage::Bcrypt.index();
                self.call(&site::NT_MAP_VIEW_OF_SECTION, &[Action::Log(Occurrence::ImageLoad(image))]);
                self.push([Action::Compute(20_000)]);
                self.call(&site::NT_UNMAP_VIEW_OF_SECTION, &[Action::Log(Occurrence::ImageUnload(image))]);
            }
            Task::Event => self.event(),
        }
    }

    /// A long wait, for a thread that has little to do.
    fn pause(&mut self) {
        let ticks = self.random.between(200, 900) as u32 * TICKS_PER_MS as u32;
        let wait = Action::Wait(Wake::Timer, ticks);
        if self.role == Role::System {
            self.push([wait]);
        } else {
            self.call(&site::NT_WAIT_FOR_SINGLE_OBJECT, &[wait]);
        }
    }

    fn write_any(&mut self) {
        let tasks = tasks(self.role);
        let total: u32 = tasks.iter().map(|(weight, _)| weight).sum();
        let mut at = self.random.below(total.into()) as u32;
        for &(weight, task) in tasks {
            if at < weight {
                return self.write(task);
            }
            at -= weight;
        }
    }
}

/// Number of different routes through a program's call graph.
const ROUTES: u64 = 20;

impl<W: Write> Simulation<'_, W> {
    pub fn script<T>(&mut self, thread: ThreadIndex, write: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let process = self.threads[thread].process;
        let route = self.random.below(ROUTES);
        self.threads[thread].route = hash2(process as u64, route);
        write(&mut Script {
            actions: &mut self.threads[thread].script,
            random: &mut self.random,
            resources: &mut self.resources,
            process,
            role: self.machine.processes[process].role,
        })
    }

    /// Plans the next actions of a thread.
    pub fn plan(&mut self, thread: ThreadIndex) {
        if self.plan_problem(thread) {
            return;
        }
        let has_little_to_do = self.problem.is_some();
        let is_launcher = self.progress.launcher == Some(thread);
        let is_private = matches!(self.threads[thread].start, Start::Private(_));
        let version = self.version;
        self.script(thread, |script| {
            if is_launcher {
                // Short waits only, because this thread must start the attack.
                script.push([Action::Compute(3000)]);
                script.call(&site::NT_USER_MSG_WAIT, &[Action::Wait(Wake::Timer, 15_000)]);
            } else if is_private {
                script.push([Action::Compute(8000)]);
                script.write(Task::Send);
                script.call(&site::NT_DELAY_EXECUTION, &[Action::Wait(Wake::Timer, 40_000)]);
            } else {
                if has_little_to_do {
                    script.pause();
                }
                // Between tasks, a thread runs in its own code.
                let ticks = script.random.between(500, 9_000) as u32;
                script.push([Action::Compute(ticks)]);
                if let (Some(version), Role::Office) = (version, script.role) {
                    script.lay_out(version);
                }
                script.write_any();
            }
        });
    }

    /// Plans the first actions of a thread that another thread has started.
    pub fn plan_first(&mut self, thread: ThreadIndex) {
        let is_private = matches!(self.threads[thread].start, Start::Private(_));
        self.script(thread, |script| {
            if is_private {
                // Long enough to be sampled.
                script.push([Action::Attack(AttackKind::UnbackedThread), Action::Compute(25_000)]);
                script.write(Task::Send);
                script.push([Action::AttackEnds]);
            } else {
                script.write(Task::QueryRegistry);
                script.write(Task::Compute);
                script.push([Action::Enter(&site::NT_TERMINATE_THREAD), Action::ExitThread]);
            }
        });
    }

    /// Plans the first thread of a new process, which loads the images and then executes its tasks.
    pub fn plan_startup(&mut self, thread: ThreadIndex) {
        let process = self.threads[thread].process;
        let role = self.machine.processes[process].role;
        let (program, _) = role.code();
        let libraries = role.libraries().iter().map(|library| library.index());
        let mut images = program.map(|program| program.index()).into_iter().chain(libraries);
        let victim = self.machine.processes[self.progress.victim()].pid();
        let attacks = self.version == Some(Version::After) && role == Role::Task;
        self.script(thread, |script| {
            // The kernel maps the program and `ntdll.dll` before any user code runs.
            for image in images.by_ref().take(2) {
                script.log(Occurrence::ImageLoad(image));
            }
            script.push([Action::CallAs(Caller::Loader), Action::Leave]);
            for image in images {
                script.call(&site::NT_MAP_VIEW_OF_SECTION, &[Action::Log(Occurrence::ImageLoad(image))]);
            }
            if attacks {
                script.push([Action::CallAs(Caller::Direct), Action::Enter(&site::NT_OPEN_PROCESS)]);
                script.log(Occurrence::Provider(ProviderEvent::OpenProcess(victim)));
                script.push([Action::Leave]);
            }
            script.push([Action::CallAs(Caller::Stub)]);
            if role == Role::Task {
                (0..4).for_each(|_| script.write_any());
                script.push([Action::Enter(&site::NT_TERMINATE_PROCESS), Action::ExitProcess]);
            }
        });
        match role {
            Role::Updater => self.plan_attack(thread),
            Role::Office => self.plan_slow_start(thread),
            _ => {}
        }
    }
}
