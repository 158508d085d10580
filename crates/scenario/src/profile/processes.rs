//! Processes of the profile mix. They start and end during the trace, and many of them have their
//! own programs and libraries.

use std::io::Write;

use stackhound_etl::write::{Issuer, WriteError};
use stackhound_types::{Pid, RawTime, Tid};

use super::{Actor, Profile};
use crate::calls::{CallPath, Code};
use crate::event;
use crate::image::{ImageIndex, SystemImage};
use crate::machine::{Machine, ProcessIndex, Role};
use crate::payload;
use crate::random::{Random, hash, hash2};
use crate::rundown;
use crate::site::{self, below};

/// The processor that logs the rundown.
const ON: u16 = 0;
/// Number of threads of a process.
const THREADS: std::ops::RangeInclusive<u64> = 3..=8;
/// Maximum number of concurrent processes.
const LIVE_MAX: u64 = 48;
/// One in this many processes is a 32-bit process.
const WOW64_IN: u64 = 2;
/// Number of innermost levels in which similar call paths differ.
const INNER_LEVELS: u32 = 2;
const INNER_PATHS: u64 = 1 << (2 * INNER_LEVELS);
/// One in this many 64-bit processes runs its own program.
const OWN_PROGRAM_IN: u64 = 2;

/// The current processes and threads, and the current variety of stacks and files.
#[derive(Debug)]
pub(super) struct Population {
    live_max: u64,
    live: Vec<ProcessIndex>,
    threads: Vec<Actor>,
    /// Number of processes that were started during the trace.
    started: u64,
    /// Number of different stacks and addresses per process. It increases with the number of
    /// records.
    variety: u64,
    files: u64,
}

impl Population {
    /// The population for a trace with this number of records.
    pub fn new(records: u64) -> Population {
        Population {
            live_max: (records.isqrt() / 12).clamp(6, LIVE_MAX),
            live: Vec::new(),
            threads: Vec::new(),
            started: 0,
            variety: 0,
            files: 0,
        }
    }

    /// Updates the current number of records. Returns whether the next process is due.
    pub fn is_due(&mut self, records: u64) -> bool {
        self.variety = 32 + records.isqrt() / 8;
        self.files = 64 + records.isqrt();
        // The nth process starts at record 9 n².
        9 * self.started * self.started <= records
    }

    /// A random thread. Threads of older processes are more likely.
    pub fn any_thread(&self, random: &mut Random) -> Actor {
        let limit = 1 + random.below(self.threads.len() as u64);
        self.threads[random.below(limit) as usize]
    }

    /// A random number that selects an address or a stack. Low numbers are more likely, because
    /// most stacks of a trace are repeated.
    pub fn any_address_seed(&self, random: &mut Random) -> u64 {
        let mut limit = self.variety;
        for _ in 0..3 {
            limit = 1 + random.below(limit);
        }
        random.below(limit)
    }

    /// A random call path of a process. Most paths differ from another one in the innermost levels
    /// only.
    pub fn any_path(&self, random: &mut Random, machine: &Machine, process: ProcessIndex) -> CallPath {
        let seed = self.any_address_seed(random);
        let outer = hash2(process as u64, seed / INNER_PATHS);
        let outer_levels = 2 + (outer >> 58) as u32 % 14;
        let inner = seed % INNER_PATHS;
        let images = &machine.processes[process].loaded;
        let library = images[images.len() - 1 - (outer >> 60) as usize % 3];
        CallPath {
            program: self.code(machine, process),
            library: Code::of_image(&machine.images[library as usize]),
            root: 0,
            route: outer & ((1 << (2 * outer_levels)) - 1) | inner << (2 * outer_levels),
            depth: outer_levels + INNER_LEVELS,
        }
    }

    /// The code of a process's program.
    pub fn code(&self, machine: &Machine, process: ProcessIndex) -> Code {
        Code::of_image(&machine.images[machine.processes[process].loaded[0] as usize])
    }

    pub fn any_file(&self, random: &mut Random) -> u32 {
        random.below(self.files.max(1)) as u32
    }
}

impl<W: Write> Profile<'_, W> {
    /// Creates the processes that exist at the start of the trace, and writes their rundown.
    pub(super) fn populate(&mut self) -> Result<(), WriteError> {
        // System is not part of the population: it never ends, and has no code in user mode.
        let system = self.machine.new_process(Role::System, None, Pid::IDLE, None);
        self.machine.load(system, SystemImage::Ntdll.index());
        for routine in site::SYSTEM_ROUTINES {
            let start = self.machine.address(routine);
            self.machine.new_thread(system, start, None);
        }
        while (self.population.live.len() as u64) < self.population.live_max {
            let process = self.new_process(Pid::SYSTEM);
            for _ in 0..self.random.between(*THREADS.start(), *THREADS.end()) {
                self.new_thread(process, None);
            }
            let images = self.images_of(process);
            images.iter().for_each(|&image| self.machine.load(process, image));
        }
        rundown::write_machine(&mut self.out, &self.machine, &rundown::START)?;
        rundown::START.complete(&mut self.out, self.running[usize::from(ON)].issuer())?;
        for on in 0..self.running.len() {
            self.running[on] = self.population.threads[on];
        }
        Ok(())
    }

    fn new_process(&mut self, parent: Pid) -> ProcessIndex {
        let number = self.machine.processes.len() as u64;
        let role = if number % WOW64_IN == 1 { Role::Sync } else { Role::Task };
        let program = if role == Role::Sync {
            SystemImage::Sync32.index()
        } else if self.random.one_in(OWN_PROGRAM_IN) {
            let path = format!(r"\Device\HarddiskVolume3\Program Files\Contoso\Tools\tool{number:05}.exe");
            self.machine.new_image(path, true, 16 + hash(number) as u32 % 512)
        } else {
            self.random
                .pick(&[SystemImage::Svchost, SystemImage::Browser, SystemImage::Office, SystemImage::Task])
                .index()
        };
        let process = self.machine.new_process(role, Some(program), parent, None);
        self.machine.processes[process].facts.images.push(program as usize);
        self.population.live.push(process);
        process
    }

    fn new_thread(&mut self, process: ProcessIndex, started: Option<RawTime>) -> Actor {
        let program = self.machine.processes[process].facts.images[0];
        let start = Code::of_image(&self.machine.images[program]).function(0, 0);
        let (tid, index_in_process) = self.machine.new_thread(process, start, started);
        let actor = Actor { tid, pid: self.machine.processes[process].pid(), process, index_in_process };
        self.population.threads.push(actor);
        actor
    }

    /// The images of a process: those of its role, and for 64-bit processes a new library.
    fn images_of(&mut self, process: ProcessIndex) -> Vec<ImageIndex> {
        let program = self.machine.processes[process].facts.images[0] as ImageIndex;
        let role = self.machine.processes[process].role;
        let own = (role != Role::Sync).then(|| {
            let path = format!(r"\Device\HarddiskVolume3\Program Files\Contoso\Tools\part{process:05}.dll");
            self.machine.new_image(path, false, 32 + hash(process as u64) as u32 % 1024)
        });
        let libraries = role.libraries().iter().map(|library| library.index());
        std::iter::once(program).chain(libraries).chain(own).collect()
    }

    /// Starts a process. If the maximum is exceeded, the oldest process ends.
    pub(super) fn start_process(&mut self) -> Result<(), WriteError> {
        self.population.started += 1;
        let on = self.any_processor();
        let creator = self.running[usize::from(on)];
        let process = self.new_process(creator.pid);
        payload::process(&mut self.out.payload, &self.machine.processes[process].facts, None);
        let logged = self.out.kernel(on, event::PROCESS_START, creator.issuer())?;
        self.machine.processes[process].facts.started = Some(logged.time);
        for number in 0..self.random.between(*THREADS.start(), *THREADS.end()) {
            let actor = self.new_thread(process, Some(RawTime(self.out.now())));
            let facts = &mut self.machine.processes[process].facts;
            payload::thread(&mut self.out.payload, actor.pid, &facts.threads[actor.index_in_process]);
            if number == 0 {
                let call = &site::NT_CREATE_THREAD_EX;
                self.event_with_stack(on, &creator, event::THREAD_START, call, below::THREAD)?;
            } else {
                self.out.kernel(on, event::THREAD_START, creator.issuer())?;
            }
        }
        for image in self.images_of(process) {
            self.machine.load(process, image);
            self.machine.image_payload(&mut self.out.payload, process, image);
            let first = self.machine.processes[process].facts.threads[0].tid;
            let issuer = Issuer::new(self.machine.processes[process].pid(), first);
            self.out.kernel(on, event::IMAGE_LOAD, issuer)?;
        }
        if self.population.live.len() as u64 > self.population.live_max {
            self.end_oldest(on)?;
        }
        Ok(())
    }

    fn end_oldest(&mut self, on: u16) -> Result<(), WriteError> {
        let process = self.population.live.remove(0);
        let pid = self.machine.processes[process].pid();
        self.population.threads.retain(|actor| actor.process != process);
        while let Some(at) = self.due.iter().position(|due| due.owner.pid == pid) {
            // The thread leaves the kernel before it ends.
            self.due.rotate_left(at);
            self.user_part()?;
            self.due.make_contiguous().sort_by_key(|due| due.at);
        }
        for on in 0..self.running.len() as u16 {
            while self.running[usize::from(on)].process == process {
                self.switch(on)?;
            }
        }
        for index_in_process in 0..self.machine.processes[process].facts.threads.len() {
            let facts = self.machine.processes[process].facts.threads[index_in_process];
            payload::thread(&mut self.out.payload, pid, &facts);
            let logged = self.out.kernel(on, event::THREAD_END, Issuer::new(pid, facts.tid))?;
            self.machine.end_thread(process, index_in_process, logged.time);
        }
        let last = self.machine.processes[process].facts.threads.last().map(|thread| thread.tid);
        let issuer = Issuer { tid: last, ..Issuer::new(pid, Tid(0)) };
        for image in self.machine.processes[process].loaded.clone() {
            self.machine.unload(process, image);
            self.machine.image_payload(&mut self.out.payload, process, image);
            self.out.kernel(on, event::IMAGE_UNLOAD, issuer)?;
        }
        payload::process(&mut self.out.payload, &self.machine.processes[process].facts, Some(0));
        let logged = self.out.kernel(on, event::PROCESS_END, issuer)?;
        self.machine.end_process(process, logged.time);
        Ok(())
    }

    /// Number of records of the final rundown at the current time.
    pub(super) fn rundown_records(&self) -> u64 {
        self.machine.rundown_records() + self.population.files + self.stacks.keys() + rundown::END.records()
    }

    /// Writes the final rundown.
    pub fn end(&mut self) -> Result<(), WriteError> {
        let out = &mut self.out;
        rundown::END.begin(out)?;
        rundown::write_machine(out, &self.machine, &rundown::END)?;
        for file in 0..self.population.files {
            let path = format!(r"\Device\HarddiskVolume3\Users\ada\Documents\Project\part{file:05}.cs");
            payload::file_name(&mut out.payload, file as u32, &path);
            out.kernel(ON, event::FILE_NAME_RUNDOWN, Issuer::UNKNOWN)?;
        }
        rundown::END.complete(out, self.running[usize::from(ON)].issuer())?;
        self.stacks.run_down(out, ON)
    }
}
