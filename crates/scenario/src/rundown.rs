//! Writes the header, the configuration and the rundowns at the start and the end of the trace.

use std::io::Write;

use stackhound_etl::write::{EventClass, HeaderSpec, Issuer, WriteError};
use stackhound_types::{Pid, PointerSize, Tid};

use crate::attack::AttackProgress;
use crate::event::{self, EventKind, KernelEvent};
use crate::frames::Frames;
use crate::image::{KERNEL_IMAGES, SystemImage};
use crate::machine::{LiveProcess, Machine, Role};
use crate::output::{Output, TICKS_PER_MS};
use crate::payload::{self, GROUPS, Groups, NO_GROUPS, SYSTEM_CALL_GROUP};
use crate::problem::Problem;
use crate::provider::{ProviderEvent, SYSTEM_CONFIGURATION, SYSTEM_PATHS, VOLUME_MAPPING};
use crate::resources::KEYS;
use crate::simulation::Simulation;
use crate::site::{self, Call};
use crate::thread::{Action, Mode, Occurrence, Start};

/// The processor that logs the rundown.
const ON: u16 = 0;

/// The initial processes with the start functions of their threads, in the order of their creation.
const PROCESSES: [(Role, &[Start]); 11] = [
    (Role::System, &[Start::System(0), Start::System(1), Start::System(2), Start::System(0)]),
    (Role::SessionManager, &[Start::Native]),
    (Role::Subsystem, &[Start::Native, Start::Native, Start::Native]),
    (Role::Services, &[Start::Program(0), Start::Pool, Start::Pool]),
    (Role::Service, &[Start::Program(0), Start::Pool, Start::Pool, Start::Program(1)]),
    (Role::Service, &[Start::Program(0), Start::Pool, Start::Pool, Start::Pool]),
    (Role::Shell, &[Start::Program(0), Start::Program(1), Start::Program(2), Start::Pool]),
    (Role::Office, &[Start::Program(0), Start::Program(1), Start::Pool, Start::Pool]),
    (Role::Browser, &[Start::Program(0), Start::Program(1), Start::Program(2), Start::Pool, Start::Pool]),
    (Role::Browser, &[Start::Program(0), Start::Program(1), Start::Pool]),
    (Role::Sync, &[Start::Wow64(0), Start::Wow64(1)]),
];

/// Prefixes of NT paths and the corresponding DOS paths. The last entry removes a prefix.
const VOLUMES: [(&str, &str); 4] = [
    (r"\Device\HarddiskVolume3\", r"C:\"),
    (r"\Device\HarddiskVolume4\", r"D:\"),
    (r"\SystemRoot\", r"C:\Windows\"),
    (r"\??\", ""),
];

/// The thread that controls the session.
const SYSTEM: Issuer = Issuer::new(Pid::SYSTEM, Tid(8));

/// Writes the rest of the header buffer, with group masks that do not enable any events yet.
pub(crate) fn write_header<W: Write>(out: &mut Output<W>) -> Result<(), WriteError> {
    payload::group_masks(&mut out.payload, NO_GROUPS);
    out.kernel_in_header(event::EXTENSION, SYSTEM)?;
    payload::partition_info(&mut out.payload);
    out.kernel_in_header(event::PARTITION_INFO, SYSTEM)
}

/// Writes the events that describe the machine and its volumes.
pub(crate) fn write_configuration<W: Write>(out: &mut Output<W>) -> Result<(), WriteError> {
    payload::cpu(&mut out.payload);
    out.kernel(ON, event::CPU, SYSTEM)?;
    let mut configuration = |opcode, first: &str, second: &str| {
        out.payload.utf16(first).utf16(second);
        let class = EventClass { guid: SYSTEM_CONFIGURATION, opcode, level: 0, version: 0 };
        let kind = EventKind::Classic(class.guid, opcode);
        out.event(ON, kind, PointerSize::Eight, HeaderSpec::Full { class, issuer: SYSTEM }).map(drop)
    };
    configuration(SYSTEM_PATHS, r"C:\Windows\system32", r"C:\Windows\")?;
    for (nt_path, dos_path) in VOLUMES {
        configuration(VOLUME_MAPPING, nt_path, dos_path)?;
    }
    Ok(())
}

/// The events of one rundown, and the changes of the group masks before and after it.
pub(crate) struct Rundown {
    before: &'static [(KernelEvent, Groups)],
    process: KernelEvent,
    thread: KernelEvent,
    image: KernelEvent,
    interval: KernelEvent,
    after: &'static [(KernelEvent, Groups)],
}

pub(crate) const START: Rundown = Rundown {
    before: &[(event::END_EXTENSION, NO_GROUPS), (event::EXTENSION, GROUPS)],
    process: event::PROCESS_DC_START,
    thread: event::THREAD_DC_START,
    image: event::IMAGE_DC_START,
    interval: event::SAMPLING_INTERVAL_START,
    after: &[],
};
pub(crate) const END: Rundown = Rundown {
    before: &[(event::END_EXTENSION, GROUPS)],
    process: event::PROCESS_DC_END,
    thread: event::THREAD_DC_END,
    image: event::IMAGE_DC_END,
    interval: event::SAMPLING_INTERVAL_END,
    after: &[(event::EXTENSION, NO_GROUPS)],
};

impl Rundown {
    /// Number of records that [`begin`](Rundown::begin) and [`complete`](Rundown::complete) write.
    pub fn records(&self) -> u64 {
        (self.before.len() + self.after.len()) as u64 + 2
    }

    pub fn begin<W: Write>(&self, out: &mut Output<W>) -> Result<(), WriteError> {
        write_groups(out, self.before)
    }

    /// `issuer` is the thread that runs on processor 0.
    pub fn complete<W: Write>(&self, out: &mut Output<W>, issuer: Issuer) -> Result<(), WriteError> {
        payload::sampling_interval(&mut out.payload);
        out.kernel(ON, self.interval, issuer)?;
        write_groups(out, self.after)?;
        out.kernel(ON, event::RUNDOWN_COMPLETE, Issuer::UNKNOWN).map(drop)
    }
}

fn write_groups<W: Write>(out: &mut Output<W>, events: &[(KernelEvent, Groups)]) -> Result<(), WriteError> {
    for &(event, mut groups) in events {
        if !out.has_system_calls {
            groups[SYSTEM_CALL_GROUP] = 0;
        }
        payload::group_masks(&mut out.payload, groups);
        out.kernel(ON, event, Issuer::UNKNOWN)?;
    }
    Ok(())
}

/// Writes the rundown of all processes, threads and images.
pub(crate) fn write_machine<W: Write>(
    out: &mut Output<W>,
    machine: &Machine,
    rundown: &Rundown,
) -> Result<(), WriteError> {
    let live = || machine.processes.iter().enumerate().filter(|(_, process)| process.is_alive);
    let facts = || std::iter::once(&machine.idle).chain(live().map(|(_, process)| &process.facts));
    for process in facts() {
        payload::process(&mut out.payload, process, None);
        out.kernel(ON, rundown.process, Issuer::UNKNOWN)?;
    }
    for process in facts() {
        for thread in process.threads.iter().filter(|thread| thread.ended.is_none()) {
            payload::thread(&mut out.payload, process.pid, thread);
            out.kernel(ON, rundown.thread, Issuer::new(process.pid, thread.tid))?;
        }
    }
    for image in &machine.images[..KERNEL_IMAGES] {
        payload::image(&mut out.payload, Pid::IDLE, image);
        out.kernel(ON, rundown.image.with_ids(), SYSTEM)?;
    }
    for (process, live) in live() {
        for &image in &live.loaded {
            machine.image_payload(&mut out.payload, process, image);
            out.kernel(ON, rundown.image, Issuer::UNKNOWN)?;
        }
    }
    Ok(())
}

impl<W: Write> Simulation<'_, W> {
    /// Creates the initial state of the machine, and writes its rundown. With a problem, there is no
    /// attack.
    pub fn begin(&mut self, problem: Option<Problem>) -> Result<(), WriteError> {
        write_header(&mut self.out)?;
        START.begin(&mut self.out)?;
        write_configuration(&mut self.out)?;
        for (role, starts) in PROCESSES {
            if problem == Some(Problem::SlowStart) && role == Role::Office {
                // It starts during the trace.
                continue;
            }
            let has_started = |process: &&LiveProcess| Some(process.role) == role.parent();
            let parent = self.machine.processes.iter().find(has_started).map_or(Pid::IDLE, LiveProcess::pid);
            let program = role.code().0.map(SystemImage::index);
            let process = self.machine.new_process(role, program, parent, None);
            for image in program.into_iter().chain(role.libraries().iter().map(|library| library.index())) {
                self.machine.load(process, image);
            }
            for &start in starts {
                self.add_thread(process, start, None);
            }
        }
        write_machine(&mut self.out, &self.machine, &START)?;
        self.write_keys(event::KCB_RUNDOWN_BEGIN)?;
        let running = self.running();
        START.complete(&mut self.out, running)?;
        for thread in 0..self.threads.len() {
            self.start_waiting(thread);
        }
        if let Some(problem) = problem {
            self.begin_problem(problem);
            return Ok(());
        }
        let is_shell =
            |thread: &usize| self.machine.processes[self.threads[*thread].process].role == Role::Shell;
        if let Some(launcher) = (0..self.threads.len()).find(is_shell) {
            self.progress = AttackProgress::new(launcher, self.threads[launcher].process);
        }
        Ok(())
    }

    /// Lets a thread that existed before the trace wait.
    fn start_waiting(&mut self, thread: usize) {
        let call: &'static Call = match self.threads[thread].start {
            Start::System(_) => {
                let ticks = self.random.below(30 * TICKS_PER_MS as u64) as u32;
                return self.wait_from_the_start(thread, ticks);
            }
            Start::Pool => &site::NT_WAIT_FOR_WORK,
            Start::Native => &site::NT_ALPC_SEND_WAIT_RECEIVE_PORT,
            _ => &site::NT_WAIT_FOR_SINGLE_OBJECT,
        };
        let user = self.threads[thread].call_frames(&self.machine, call);
        let kernel = self.addresses(&[call.in_routine(0), site::SYSTEM_SERVICE]);
        let actor = &mut self.threads[thread];
        actor.mode = Mode::Call(call);
        actor.user = user;
        actor.kernel = Frames::EMPTY;
        actor.kernel.extend(&kernel);
        actor.script.push_back(Action::Leave);
        if self.machine.processes[actor.process].role == Role::Browser && actor.index_in_process == 0 {
            // An EventSource writes its manifest when a session starts.
            let chunks = (0..self.providers.manifest_chunks()).map(ProviderEvent::Manifest);
            actor.script.extend(chunks.map(|chunk| Action::Log(Occurrence::Provider(chunk))));
        }
        let ticks = self.random.below(25 * TICKS_PER_MS as u64) as u32;
        self.wait_from_the_start(thread, ticks);
    }

    fn write_keys(&mut self, event: KernelEvent) -> Result<(), WriteError> {
        for key in self.resources.keys() {
            payload::registry(&mut self.out.payload, 0, Some(key.into()), KEYS[key as usize].path);
            self.out.kernel(ON, event, Issuer::UNKNOWN)?;
        }
        Ok(())
    }

    /// The thread that runs on the processor that logs the rundown.
    fn running(&self) -> Issuer {
        let thread = self.processors[usize::from(ON)].running;
        thread.map_or(Issuer::new(Pid::IDLE, Tid(0)), |thread| self.issuer(thread))
    }

    /// Number of records of the final rundown at the current time.
    pub fn rundown_records(&self) -> u64 {
        let names = self.resources.files().count() + self.resources.keys().count();
        self.machine.rundown_records() + names as u64 + self.stacks.keys() + END.records()
    }

    /// Writes the final rundown.
    pub fn end(&mut self) -> Result<(), WriteError> {
        for thread in 0..self.threads.len() {
            self.settle_without_user_part(thread);
        }
        END.begin(&mut self.out)?;
        write_machine(&mut self.out, &self.machine, &END)?;
        for (file, path) in self.resources.files() {
            payload::file_name(&mut self.out.payload, file, path);
            self.out.kernel(ON, event::FILE_NAME_RUNDOWN, Issuer::UNKNOWN)?;
        }
        self.write_keys(event::KCB_RUNDOWN_END)?;
        let running = self.running();
        END.complete(&mut self.out, running)?;
        self.stacks.run_down(&mut self.out, ON)
    }
}
