//! The machine: its images, its processes with their threads, and the addresses of all of them.

use std::collections::VecDeque;

use stackhound_types::{Address, Pid, RawTime, Tid};

use crate::calls::Code;
use crate::image::{Image, ImageIndex, KERNEL_IMAGES, Layout, SystemImage};
use crate::output::PROCESSORS;
use crate::payload::{self, Payload, object};
use crate::random::{Random, hash};
use crate::site::{self, Site};
use crate::truth::{Process, Region, Thread};

/// The role of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    System,
    SessionManager,
    Subsystem,
    Services,
    Service,
    Shell,
    Office,
    Browser,
    /// A 32-bit program.
    Sync,
    /// A short-lived process.
    Task,
    /// The attacker.
    Updater,
}

use SystemImage::{
    Advapi32, Bcrypt, BrowserCore, Combase, Csrsrv, Gdi32, Kernel32, Kernel32x32, Kernelbase, Kernelbase32,
    Msvcrt, Mswsock, Ntdll, Ntdll32, OfficeCore, Rpcrt4, Sechost, Shell32, Ucrtbase, Ucrtbase32, User32,
    Win32u, Winsrv, Wow64, Wow64Cpu, Ws2,
};

impl Role {
    /// The program, and the library with most of its code, if any.
    pub fn code(self) -> (Option<SystemImage>, Option<SystemImage>) {
        match self {
            Role::System => (None, None),
            Role::SessionManager => (Some(SystemImage::Smss), None),
            Role::Subsystem => (Some(SystemImage::Csrss), Some(Csrsrv)),
            Role::Services => (Some(SystemImage::Services), None),
            Role::Service => (Some(SystemImage::Svchost), Some(Combase)),
            Role::Shell => (Some(SystemImage::Explorer), Some(Shell32)),
            Role::Office => (Some(SystemImage::Office), Some(OfficeCore)),
            Role::Browser => (Some(SystemImage::Browser), Some(BrowserCore)),
            Role::Sync => (Some(SystemImage::Sync32), None),
            Role::Task => (Some(SystemImage::Task), None),
            Role::Updater => (Some(SystemImage::Updater), None),
        }
    }

    /// The images other than the program, in load order.
    pub fn libraries(self) -> &'static [SystemImage] {
        match self {
            Role::System | Role::SessionManager => &[Ntdll],
            Role::Subsystem => &[Ntdll, Csrsrv, Winsrv, Win32u],
            Role::Services => &[Ntdll, Kernel32, Kernelbase, Ucrtbase, Rpcrt4, Sechost, Advapi32],
            Role::Service => &[
                Ntdll, Kernel32, Kernelbase, Ucrtbase, Rpcrt4, Sechost, Combase, Advapi32, Msvcrt, Win32u,
                Gdi32, User32, Ws2, Mswsock, Bcrypt,
            ],
            Role::Shell => &[
                Ntdll, Kernel32, Kernelbase, Ucrtbase, Rpcrt4, Combase, Msvcrt, Win32u, Gdi32, User32,
                Sechost, Advapi32, Shell32, Ws2, Mswsock,
            ],
            Role::Office => &[
                Ntdll, Kernel32, Kernelbase, Win32u, Gdi32, User32, Ucrtbase, Rpcrt4, Combase, Msvcrt,
                Sechost, Advapi32, Shell32, Ws2, Mswsock, OfficeCore,
            ],
            Role::Browser => &[
                Ntdll,
                Kernel32,
                Kernelbase,
                Win32u,
                Gdi32,
                User32,
                Ucrtbase,
                Rpcrt4,
                Sechost,
                Msvcrt,
                Advapi32,
                Ws2,
                Mswsock,
                Bcrypt,
                BrowserCore,
            ],
            Role::Sync => &[Ntdll, Ntdll32, Wow64, Wow64Cpu, Kernel32x32, Kernelbase32, Ucrtbase32],
            Role::Task => &[Ntdll, Kernel32, Kernelbase, Ucrtbase, Rpcrt4, Combase, Sechost, Advapi32],
            Role::Updater => {
                &[Ntdll, Kernel32, Kernelbase, Win32u, Gdi32, User32, Msvcrt, Sechost, Advapi32, Ws2, Mswsock]
            }
        }
    }

    fn command_line(self) -> &'static str {
        match self {
            Role::System => "",
            Role::SessionManager => r"\SystemRoot\System32\smss.exe",
            Role::Subsystem => {
                r"%SystemRoot%\system32\csrss.exe ObjectDirectory=\Windows SharedSection=1024,20480,768 Windows=On"
            }
            Role::Services => r"C:\Windows\system32\services.exe",
            Role::Service => r"C:\Windows\system32\svchost.exe -k netsvcs -p",
            Role::Shell => r"C:\Windows\Explorer.EXE",
            Role::Office => {
                r#""C:\Program Files\Contoso Office\writer.exe" "C:\Users\ada\Documents\Quarter.docx""#
            }
            Role::Browser => r#""C:\Program Files\Contoso Browser\browser.exe" --profile=Default"#,
            Role::Sync => r#""C:\Program Files (x86)\Contoso Sync\sync.exe" /background"#,
            Role::Task => r#""C:\Windows\system32\backgroundTaskHost.exe" -ServerName:App"#,
            Role::Updater => r#""C:\ProgramData\Contoso\updater.exe" --silent"#,
        }
    }

    /// The role of the process that started a process of this role. Parents that have already ended
    /// are left out.
    pub fn parent(self) -> Option<Role> {
        match self {
            Role::System => None,
            Role::SessionManager => Some(Role::System),
            Role::Subsystem | Role::Services | Role::Shell => Some(Role::SessionManager),
            Role::Service => Some(Role::Services),
            Role::Office | Role::Browser | Role::Sync | Role::Task | Role::Updater => Some(Role::Shell),
        }
    }

    fn session(self) -> Option<u32> {
        match self {
            Role::System => None,
            Role::SessionManager | Role::Services | Role::Service => Some(0),
            _ => Some(1),
        }
    }
}

/// Index of a process in the machine.
pub(crate) type ProcessIndex = usize;

/// A process while the scenario runs.
#[derive(Debug)]
pub(crate) struct LiveProcess {
    pub facts: Process,
    pub role: Role,
    pub is_alive: bool,
    /// Images that are currently loaded.
    pub loaded: Vec<ImageIndex>,
    pub live_threads: u32,
    next_region: u64,
}

impl LiveProcess {
    pub fn pid(&self) -> Pid {
        self.facts.pid
    }

    /// Allocates a range of private memory.
    pub fn allocate(&mut self, size: u64) -> Region {
        let base = Address(self.next_region);
        self.next_region += size.next_multiple_of(0x1_0000) + 0x1_0000;
        Region { base, size }
    }
}

/// Images, processes and threads.
#[derive(Debug)]
pub(crate) struct Machine {
    pub images: Vec<Image>,
    /// The Idle process. Each processor has one idle thread; all of them have the id 0.
    pub idle: Process,
    /// All other processes.
    pub processes: Vec<LiveProcess>,
    layout: Layout,
    next_id: u32,
    /// Ids of ended processes and threads, if ids are used again.
    free_ids: Option<VecDeque<u32>>,
    live_processes: u64,
    live_threads: u64,
    loaded_images: u64,
}

impl Machine {
    pub fn new(random: &mut Random) -> Machine {
        let mut layout = Layout::new(random);
        let images = layout.known_images();
        let Site(kernel, offset) = site::IDLE_START;
        let start_address = Address(images[kernel.index() as usize].base.0 + u64::from(offset));
        let idle = Thread { tid: Tid(0), start_address, started: None, ended: None };
        Machine {
            images,
            idle: Process { threads: vec![idle; PROCESSORS.into()], ..Process::of_kernel(Pid::IDLE, "Idle") },
            processes: Vec::new(),
            layout,
            next_id: 4,
            free_ids: None,
            live_processes: 0,
            live_threads: 0,
            loaded_images: KERNEL_IMAGES as u64,
        }
    }

    /// Number of records for processes, threads and images in a rundown at the current time.
    pub fn rundown_records(&self) -> u64 {
        1 + self.live_processes + u64::from(PROCESSORS) + self.live_threads + self.loaded_images
    }

    pub fn address(&self, site: Site) -> Address {
        Address(self.images[site.0.index() as usize].base.0 + u64::from(site.1))
    }

    pub fn code(&self, known: SystemImage) -> Code {
        Code::of_image(&self.images[known.index() as usize])
    }

    /// Adds an image in addition to the known ones.
    pub fn new_image(&mut self, path: String, is_program: bool, pages: u32) -> ImageIndex {
        self.images.push(self.layout.new_image(path, is_program, pages));
        self.images.len() as ImageIndex - 1
    }

    /// Uses the ids of ended processes and threads again, the oldest first.
    pub fn reuse_ids(&mut self) {
        self.free_ids = Some(VecDeque::new());
    }

    pub fn reuses_ids(&self) -> bool {
        self.free_ids.is_some()
    }

    fn new_id(&mut self) -> u32 {
        if let Some(id) = self.free_ids.as_mut().and_then(VecDeque::pop_front) {
            return id;
        }
        let id = self.next_id;
        self.next_id += 4 + (hash(id.into()) % 16) as u32 * 4;
        id
    }

    /// Adds a process without threads and images. `program` is the image that it runs.
    pub fn new_process(
        &mut self,
        role: Role,
        program: Option<ImageIndex>,
        parent: Pid,
        started: Option<RawTime>,
    ) -> ProcessIndex {
        let pid = Pid(self.new_id());
        let name = program.map_or("System", |image| self.images[image as usize].name()).to_owned();
        // Objects are not used again at once.
        let number = Pid(0x10_0000 + self.processes.len() as u32);
        let facts = Process {
            pid,
            object: object::process(if self.reuses_ids() { number } else { pid }),
            parent,
            session: role.session(),
            name,
            command_line: role.command_line().to_owned(),
            is_wow64: role == Role::Sync,
            started,
            ended: None,
            images: Vec::new(),
            threads: Vec::new(),
            code_regions: Vec::new(),
        };
        let next_region = if role == Role::Sync {
            0x0300_0000
        } else {
            0x0180_0000_0000 + hash(pid.0.into()) % 0x1000 * 0x1000_0000
        };
        self.live_processes += 1;
        self.processes.push(LiveProcess {
            facts,
            role,
            is_alive: true,
            loaded: Vec::new(),
            live_threads: 0,
            next_region,
        });
        self.processes.len() - 1
    }

    /// Adds a thread. Returns its id and its index in the process.
    pub fn new_thread(
        &mut self,
        process: ProcessIndex,
        start_address: Address,
        started: Option<RawTime>,
    ) -> (Tid, usize) {
        let tid = Tid(self.new_id());
        self.live_threads += 1;
        let process = &mut self.processes[process];
        process.live_threads += 1;
        process.facts.threads.push(Thread { tid, start_address, started, ended: None });
        (tid, process.facts.threads.len() - 1)
    }

    pub fn end_thread(&mut self, process: ProcessIndex, thread: usize, time: RawTime) {
        self.live_threads -= 1;
        self.processes[process].live_threads -= 1;
        self.processes[process].facts.threads[thread].ended = Some(time);
        let tid = self.processes[process].facts.threads[thread].tid;
        self.free_ids.iter_mut().for_each(|free| free.push_back(tid.0));
    }

    pub fn end_process(&mut self, process: ProcessIndex, time: RawTime) {
        self.live_processes -= 1;
        let process = &mut self.processes[process];
        process.is_alive = false;
        process.facts.ended = Some(time);
        let pid = process.facts.pid;
        self.free_ids.iter_mut().for_each(|free| free.push_back(pid.0));
    }

    pub fn load(&mut self, process: ProcessIndex, image: ImageIndex) {
        self.loaded_images += 1;
        let process = &mut self.processes[process];
        process.loaded.push(image);
        if !process.facts.images.contains(&(image as usize)) {
            process.facts.images.push(image as usize);
        }
    }

    pub fn unload(&mut self, process: ProcessIndex, image: ImageIndex) {
        let loaded = &mut self.processes[process].loaded;
        let Some(at) = loaded.iter().rposition(|&known| known == image) else { return };
        loaded.remove(at);
        self.loaded_images -= 1;
    }

    /// Writes the payload of an image event.
    pub fn image_payload(&self, out: &mut Payload, process: ProcessIndex, image: ImageIndex) {
        payload::image(out, self.processes[process].pid(), &self.images[image as usize]);
    }

    /// The images and processes for a [`Truth`](crate::Truth).
    pub fn into_facts(self) -> (Vec<Image>, Vec<Process>) {
        let others = self.processes.into_iter().map(|process| process.facts);
        (self.images, std::iter::once(self.idle).chain(others).collect())
    }
}
