//! The beginning and the end of a recording: what exists, told once more.

use std::io::Write;

use stackhound_etl::write::{EventClass, HeaderSpec, Issuer, WriteError};
use stackhound_etl::{Pid, PointerSize, Tid};

use crate::attack::Plot;
use crate::event::{self, EventKind, KernelEvent};
use crate::frames::Frames;
use crate::image::{KERNEL_IMAGES, Known};
use crate::machine::{LiveProcess, Machine, Role};
use crate::output::{Output, TICKS_PER_MS};
use crate::payload;
use crate::provider::{ProviderEvent, SYSTEM_CONFIGURATION, SYSTEM_PATHS, VOLUME_MAPPING};
use crate::resources::KEYS;
use crate::simulation::Simulation;
use crate::site::{self, Call};
use crate::thread::{Action, Mode, Occurrence, Start};

/// The processor that logs the rundown.
const ON: u16 = 0;

/// The processes of the machine with the starts of their threads, in the order in which they came to be.
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

/// What paths begin with and what users call it; the last rule removes a prefix.
const VOLUMES: [(&str, &str); 3] =
    [(r"\Device\HarddiskVolume3\", r"C:\"), (r"\Device\HarddiskVolume4\", r"D:\"), (r"\??\", "")];

/// Tells what machine it is and how paths are to be read.
pub(crate) fn write_configuration<W: Write>(out: &mut Output<W>) -> Result<(), WriteError> {
    let system = Issuer::new(Pid::SYSTEM, Tid(8));
    payload::group_masks(&mut out.payload);
    out.kernel(ON, event::EXTENSION, Issuer::UNKNOWN)?;
    payload::cpu(&mut out.payload);
    out.kernel(ON, event::CPU, system)?;
    let mut configuration = |opcode, first: &str, second: &str| {
        out.payload.wide(first).wide(second);
        let class = EventClass { guid: SYSTEM_CONFIGURATION, opcode, level: 0, version: 0 };
        let kind = EventKind::Classic(class.guid, opcode);
        let issuer = Issuer { tid: None, ..system };
        out.event(ON, kind, PointerSize::Eight, HeaderSpec::Full { class, issuer }).map(drop)
    };
    configuration(SYSTEM_PATHS, r"C:\Windows\system32", r"C:\Windows")?;
    for (nt_path, dos_path) in VOLUMES {
        configuration(VOLUME_MAPPING, nt_path, dos_path)?;
    }
    payload::sampling_interval(&mut out.payload);
    out.kernel(ON, event::SAMPLING_INTERVAL, Issuer::UNKNOWN)?;
    Ok(())
}

/// The events of one rundown: of processes, threads and images.
pub(crate) struct Rundown {
    process: KernelEvent,
    thread: KernelEvent,
    image: KernelEvent,
}

pub(crate) const START: Rundown = Rundown {
    process: event::PROCESS_DC_START,
    thread: event::THREAD_DC_START,
    image: event::IMAGE_DC_START,
};
pub(crate) const END: Rundown =
    Rundown { process: event::PROCESS_DC_END, thread: event::THREAD_DC_END, image: event::IMAGE_DC_END };

/// Tells of all processes, threads and images that are there.
pub(crate) fn write_machine<W: Write>(
    out: &mut Output<W>,
    machine: &Machine,
    rundown: &Rundown,
) -> Result<(), WriteError> {
    let live = || machine.processes.iter().enumerate().filter(|(_, process)| process.is_alive);
    for (_, process) in live() {
        payload::process(&mut out.payload, &process.facts, None);
        out.kernel(ON, rundown.process, Issuer::UNKNOWN)?;
    }
    for (_, process) in live() {
        for thread in process.facts.threads.iter().filter(|thread| thread.ended.is_none()) {
            payload::thread(&mut out.payload, process.pid(), thread);
            out.kernel(ON, rundown.thread, Issuer::new(process.pid(), thread.tid))?;
        }
    }
    for image in &machine.images[..KERNEL_IMAGES] {
        payload::image(&mut out.payload, Pid::IDLE, image);
        out.kernel(ON, rundown.image.with_ids(), Issuer::new(Pid::SYSTEM, Tid(8)))?;
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
    /// Makes the machine as it is when the recording begins, and writes the rundown of it.
    pub fn begin(&mut self) -> Result<(), WriteError> {
        write_configuration(&mut self.out)?;
        for (role, starts) in PROCESSES {
            let has_started = |process: &&LiveProcess| Some(process.role) == role.parent();
            let parent = self.machine.processes.iter().find(has_started).map_or(Pid::IDLE, LiveProcess::pid);
            let program = role.code().0.map(Known::index);
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
        self.out.kernel(ON, event::RUNDOWN_COMPLETE, Issuer::UNKNOWN)?;
        for thread in 0..self.threads.len() {
            self.let_wait(thread);
        }
        let is_shell =
            |thread: &usize| self.machine.processes[self.threads[*thread].process].role == Role::Shell;
        if let Some(launcher) = (0..self.threads.len()).find(is_shell) {
            self.plot = Plot::new(launcher, self.threads[launcher].process);
        }
        Ok(())
    }

    /// A thread that was there before waits for something.
    fn let_wait(&mut self, thread: usize) {
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
        if self.machine.processes[actor.process].role == Role::Browser && actor.place == 0 {
            // The session has just begun: the event source describes its events.
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

    /// Records of the rundown at the end, if it came now.
    pub fn rundown_records(&self) -> u64 {
        let names = self.resources.files().count() + self.resources.keys().count();
        self.machine.rundown_records() + names as u64 + self.stacks.keys() + 1
    }

    /// Writes the rundown of the machine as it is now.
    pub fn end(&mut self) -> Result<(), WriteError> {
        for thread in 0..self.threads.len() {
            self.settle_without_user_part(thread);
        }
        write_machine(&mut self.out, &self.machine, &END)?;
        for (file, path) in self.resources.files() {
            payload::file_name(&mut self.out.payload, file, path);
            self.out.kernel(ON, event::FILE_NAME_RUNDOWN, Issuer::UNKNOWN)?;
        }
        self.write_keys(event::KCB_RUNDOWN_END)?;
        self.stacks.run_down(&mut self.out, ON)?;
        payload::group_masks(&mut self.out.payload);
        self.out.kernel(ON, event::END_EXTENSION, Issuer::UNKNOWN)?;
        Ok(())
    }
}
