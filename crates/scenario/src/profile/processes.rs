//! The processes of the profile mix: they come and go, and the later ones have programs and libraries of their own.

use std::io::Write;

use stackhound_etl::write::{Issuer, WriteError};
use stackhound_types::{Pid, RawTime, Tid};

use super::{Actor, Profile};
use crate::calls::{Code, Way};
use crate::event;
use crate::image::{ImageIndex, SystemImage};
use crate::machine::{Machine, ProcessIndex, Role};
use crate::payload;
use crate::random::{Random, hash, hash2};
use crate::rundown;
use crate::site::{self, below};

/// The processor that logs the rundown.
const ON: u16 = 0;
/// Threads of a process.
const THREADS: std::ops::RangeInclusive<u64> = 3..=8;
/// Processes that live at one time, at most.
const LIVE_MAX: u64 = 48;
/// One process in so many is one of 32 bits, and so on for those that run a program of their own.
const NARROW_IN: u64 = 2;
/// How many innermost levels the ways of one kind differ in, and how many such ways there are.
const INNER_LEVELS: u32 = 2;
const INNER_WAYS: u64 = 1 << (2 * INNER_LEVELS);
const OWN_PROGRAM_IN: u64 = 2;

/// Who lives, and how much of everything there is by now.
#[derive(Debug)]
pub(super) struct Population {
    live_max: u64,
    live: Vec<ProcessIndex>,
    threads: Vec<Actor>,
    /// Processes that were started while the recording ran.
    started: u64,
    /// Different stacks and places that there are by now; goes up with the number of records.
    variety: u64,
    files: u64,
}

impl Population {
    /// For a recording with so many records.
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

    /// Takes note of how many records there are, and tells whether it is time for one more process.
    pub fn is_due(&mut self, records: u64) -> bool {
        self.variety = 32 + records.isqrt() / 8;
        self.files = 64 + records.isqrt();
        // The nth process comes with record 9 n².
        9 * self.started * self.started <= records
    }

    /// A thread; those of old processes are more likely.
    pub fn any_thread(&self, random: &mut Random) -> Actor {
        let limit = 1 + random.below(self.threads.len() as u64);
        self.threads[random.below(limit) as usize]
    }

    /// A number that stands for one of many places. Low ones are more likely: most stacks come again and again.
    pub fn any_address_seed(&self, random: &mut Random) -> u64 {
        let mut limit = self.variety;
        for _ in 0..3 {
            limit = 1 + random.below(limit);
        }
        random.below(limit)
    }

    /// One of the ways through a process's program. Most differ from some other way in the innermost levels only.
    pub fn any_way(&self, random: &mut Random, machine: &Machine, process: ProcessIndex) -> Way {
        let location = self.any_address_seed(random);
        let outer = hash2(process as u64, location / INNER_WAYS);
        let outer_levels = 2 + (outer >> 58) as u32 % 14;
        let inner = location % INNER_WAYS;
        let images = &machine.processes[process].loaded;
        let library = images[images.len() - 1 - (outer >> 60) as usize % 3];
        Way {
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
    /// Makes the processes that are there from the start on, and writes the rundown of them.
    pub(super) fn populate(&mut self) -> Result<(), WriteError> {
        // System is not part of the population: it never ends, and never runs code of its own in user mode.
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
        let role = if number % NARROW_IN == 1 { Role::Sync } else { Role::Task };
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
        let (tid, location) = self.machine.new_thread(process, start, started);
        let actor = Actor { tid, pid: self.machine.processes[process].pid(), process, location };
        self.population.threads.push(actor);
        actor
    }

    /// The images of a process: those of its role, and for 64-bit ones a library that no process had before.
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

    /// Starts a process; if there are enough, the oldest one ends.
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
            payload::thread(&mut self.out.payload, actor.pid, &facts.threads[actor.location]);
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
            // It leaves the kernel before it ends.
            self.due.rotate_left(at);
            self.user_part()?;
            self.due.make_contiguous().sort_by_key(|due| due.at);
        }
        for on in 0..self.running.len() as u16 {
            while self.running[usize::from(on)].process == process {
                self.switch(on)?;
            }
        }
        for location in 0..self.machine.processes[process].facts.threads.len() {
            let facts = self.machine.processes[process].facts.threads[location];
            payload::thread(&mut self.out.payload, pid, &facts);
            let logged = self.out.kernel(on, event::THREAD_END, Issuer::new(pid, facts.tid))?;
            self.machine.end_thread(process, location, logged.time);
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

    /// Records of the rundown at the end, if it came now.
    pub(super) fn rundown_records(&self) -> u64 {
        self.machine.rundown_records() + self.population.files + self.stacks.keys() + rundown::END.records()
    }

    /// Writes the rundown of what there is now.
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
