//! The profile mix: the trace of a profiler on a busy machine, generated as fast as possible.
//!
//! The proportions are those of a real trace: 44 % samples; 38 % events of the managed runtime and
//! other events with `EVENT_HEADER`, half of them from 32-bit processes; 5 % stack records, nearly
//! all by key; and kernel events of every kind. A record has about 127 bytes. The state that a
//! reader must keep grows with the trace: new processes, images and stacks appear throughout,
//! processes with the square root of the number of records.
//!
//! Threads are selected at random, not simulated. However, each processor has a running thread, its
//! context switches are recorded, and its events belong to that thread. Writing a record does not
//! allocate memory; memory grows only with the number of processes.

mod events;
mod processes;

use std::collections::VecDeque;
use std::io::Write;

use stackhound_etl::write::stack::StackMode;
use stackhound_etl::write::{Issuer, WriteError};
use stackhound_types::{Pid, Tid};

use self::processes::Population;
use crate::event::{self, EventKind, KernelEvent};
use crate::frames::Frames;
use crate::image::SystemImage;
use crate::machine::{Machine, ProcessIndex, Role};
use crate::output::{Logged, Output, PROCESSORS};
use crate::payload::{self, Switch, Transfer};
use crate::random::{Random, hash};
use crate::rundown;
use crate::site::{self, Call, Site, below};
use crate::stacks::{Owner, Pending, Stacks, UserPart};

/// Average number of ticks between two records. With it, the 44 % samples are 4,000 per second.
const PACE: u64 = 1_100;
/// Samples per thousand actions.
const SAMPLES: u64 = 489;
/// Provider events per thousand actions. The rest are kernel events.
const PROVIDER_EVENTS: u64 = 423;
/// One in this many samples has a stack.
const STACK_IN: u64 = 15;
/// Maximum number of actions between an event and its user stack.
const USER_PART_WITHIN: u64 = 40;

/// The properties of a thread that its records need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Actor {
    tid: Tid,
    pid: Pid,
    process: ProcessIndex,
    /// Index in the list of the process's threads.
    index_in_process: usize,
}

impl Actor {
    fn owner(&self) -> Owner {
        Owner { pid: self.pid, tid: self.tid }
    }

    fn issuer(&self) -> Issuer {
        Issuer::new(self.pid, self.tid)
    }
}

/// A user stack that is logged later.
#[derive(Debug)]
struct Due {
    /// Number of the action that it precedes.
    at: u64,
    pending: Pending,
    owner: Owner,
    user: Frames,
}

/// Generates a trace of the profile mix.
pub(crate) struct Profile<'e, W> {
    pub out: Output<W>,
    pub stacks: Stacks<'e>,
    pub machine: Machine,
    random: Random,
    population: Population,
    running: [Actor; PROCESSORS as usize],
    due: VecDeque<Due>,
    actions: u64,
    samples: u64,
    irps: u64,
    catalogue: events::Catalogue,
}

impl<'e, W: Write> Profile<'e, W> {
    /// Begins a trace that will have `records` records.
    pub fn begin(
        mut out: Output<W>,
        stacks: Stacks<'e>,
        mut random: Random,
        records: u64,
    ) -> Result<Profile<'e, W>, WriteError> {
        let machine = Machine::new(&mut random);
        rundown::write_header(&mut out)?;
        rundown::START.begin(&mut out)?;
        rundown::write_configuration(&mut out)?;
        let idle = Actor { tid: Tid(0), pid: Pid::IDLE, process: 0, index_in_process: 0 };
        let mut profile = Profile {
            out,
            stacks,
            machine,
            random,
            population: Population::new(records),
            running: [idle; PROCESSORS as usize],
            due: VecDeque::new(),
            actions: 0,
            samples: 0,
            irps: 0,
            catalogue: events::Catalogue::new(),
        };
        profile.populate()?;
        Ok(profile)
    }

    /// Writes records until the file, with the final rundown, has `records` records.
    pub fn run(&mut self, records: u64) -> Result<(), WriteError> {
        while self.out.kept() + self.rundown_records() < records {
            self.actions += 1;
            let pause = self.random.below(2 * PACE) as i64;
            self.out.wait_until(self.out.now() + pause);
            while self.due.front().is_some_and(|due| due.at <= self.actions) {
                self.user_part()?;
            }
            if self.population.is_due(self.out.kept()) {
                self.start_process()?;
                continue;
            }
            let draw = self.random.below(1000);
            if draw < SAMPLES {
                self.sample()?;
            } else if draw < SAMPLES + PROVIDER_EVENTS {
                self.provider_event()?;
            } else {
                self.kernel_event()?;
            }
        }
        while !self.due.is_empty() {
            self.user_part()?;
        }
        Ok(())
    }

    /// A random processor.
    fn any_processor(&mut self) -> u16 {
        self.random.below(PROCESSORS.into()) as u16
    }

    /// Whether a thread is in the kernel, with an event whose user stack is still pending.
    fn is_in_kernel(&self, tid: Tid) -> bool {
        self.due.iter().any(|due| due.owner.tid == tid)
    }

    fn sample(&mut self) -> Result<(), WriteError> {
        self.samples += 1;
        let on = (self.samples % u64::from(PROCESSORS)) as u16;
        let actor = self.running[usize::from(on)];
        let in_kernel = self.is_in_kernel(actor.tid);
        let has_stack = !in_kernel && self.random.one_in(STACK_IN);
        if !has_stack {
            let seed = self.random.next();
            let address = if in_kernel {
                self.kernel_address(seed)
            } else {
                self.population.code(&self.machine, actor.process).function(1, seed % 512)
            };
            payload::sample(&mut self.out.payload, address, actor.tid);
            return self.out.kernel(on, event::SAMPLED_PROFILE, Issuer::UNKNOWN).map(drop);
        }
        // Two thirds of the samples with stacks are in user mode.
        let user = self.user_frames(&actor, true);
        if self.random.below(3) > 0 {
            payload::sample(&mut self.out.payload, user.as_slice()[0], actor.tid);
            let logged = self.out.kernel(on, event::SAMPLED_PROFILE, Issuer::UNKNOWN)?;
            let kind = event::SAMPLED_PROFILE.kind();
            return self.stacks.user_event(&mut self.out, kind, logged, actor.owner(), &user, None);
        }
        let call = self.any_call();
        let kernel = self.kernel_frames(call, &[]);
        payload::sample(&mut self.out.payload, kernel.as_slice()[0], actor.tid);
        let logged = self.out.kernel(on, event::SAMPLED_PROFILE, Issuer::UNKNOWN)?;
        self.kernel_part(on, &actor, event::SAMPLED_PROFILE.kind(), logged, &kernel)
    }

    fn kernel_address(&self, seed: u64) -> stackhound_types::Address {
        let offset = 0x20_0000 + (seed % 0x1_0000) as u32 * 0x40;
        self.machine.address(Site(SystemImage::Ntoskrnl, offset))
    }

    fn any_call(&mut self) -> &'static Call {
        self.random.pick(&[
            &site::NT_READ_FILE,
            &site::NT_DEVICE_IO_CONTROL_FILE,
            &site::NT_QUERY_VALUE_KEY,
            &site::NT_ALLOCATE_VIRTUAL_MEMORY,
            &site::NT_WAIT_FOR_SINGLE_OBJECT,
        ])
    }

    /// The kernel frames of an event in a system call. Without `below`, the innermost frames are
    /// random.
    fn kernel_frames(&mut self, call: &Call, below: &[Site]) -> Frames {
        let mut frames = Frames::EMPTY;
        if below.is_empty() {
            let seed = hash(self.population.any_address_seed(&mut self.random));
            frames.push(self.kernel_address(seed));
            frames.push(self.kernel_address(seed / 3));
        }
        for &site in below.iter().chain(&[call.in_routine(0), site::SYSTEM_SERVICE]) {
            frames.push(self.machine.address(site));
        }
        frames
    }

    /// A random user stack of a thread.
    fn user_frames(&mut self, actor: &Actor, is_running: bool) -> Frames {
        let path = self.population.any_path(&mut self.random, &self.machine, actor.process);
        let role = self.machine.processes[actor.process].role;
        let mut frames = Frames::EMPTY;
        if is_running {
            path.push_running(&mut frames, path.route % 3);
        } else {
            let call = self.any_call();
            self.push_sites(&mut frames, &[call.stub_return()]);
            if role == Role::Sync {
                self.push_sites(&mut frames, &site::WOW64_CALL);
                self.push_sites(&mut frames, &site::WOW64_ROOT);
                self.push_sites(&mut frames, &site::WOW64_STUB);
            } else {
                let loaded = role.libraries();
                for wrapper in call.wrappers.iter().filter(|wrapper| loaded.contains(&wrapper.0)) {
                    self.push_sites(&mut frames, &[*wrapper]);
                }
            }
            path.push_calls(&mut frames, 0);
        }
        let root: &[Site] = if role == Role::Sync { &site::WOW64_THREAD_ROOT } else { &site::THREAD_ROOT };
        self.push_sites(&mut frames, root);
        frames
    }

    fn push_sites(&self, frames: &mut Frames, sites: &[Site]) {
        sites.iter().for_each(|&site| frames.push(self.machine.address(site)));
    }

    /// Logs the kernel stack of an event, and schedules its user stack.
    fn kernel_part(
        &mut self,
        on: u16,
        actor: &Actor,
        event: EventKind,
        logged: Logged,
        kernel: &Frames,
    ) -> Result<(), WriteError> {
        let owner = actor.owner();
        let kept = self.stacks.part(&mut self.out, on, logged, owner, StackMode::Kernel, kernel)?;
        let pending = Pending {
            event,
            logged,
            kernel: *kernel,
            kernel_kept: kept,
            is_damaged: !kept,
            is_extended: false,
            attack: None,
        };
        let user = self.user_frames(actor, false);
        let at = self.actions + 1 + self.random.below(USER_PART_WITHIN);
        let position = self.due.partition_point(|due| due.at <= at);
        self.due.insert(position, Due { at, pending, owner, user });
        Ok(())
    }

    /// Logs the user stack that is due first.
    fn user_part(&mut self) -> Result<(), WriteError> {
        let Some(due) = self.due.pop_front() else { return Ok(()) };
        // One in twenty threads has continued on another processor.
        let on = if self.random.one_in(20) { self.any_processor() } else { due.pending.logged.processor };
        let Due { pending, owner, user, .. } = due;
        let kept = self.stacks.part(&mut self.out, on, pending.logged, owner, StackMode::User, &user)?;
        self.stacks.settle(&pending, owner, Some(UserPart { frames: &user, kept }), kept);
        Ok(())
    }

    /// Logs an event with the prepared payload, and its stack unless the thread is already in the
    /// kernel.
    fn event_with_stack(
        &mut self,
        on: u16,
        actor: &Actor,
        event: KernelEvent,
        call: &Call,
        below: &[Site],
    ) -> Result<(), WriteError> {
        let logged = self.out.kernel(on, event, actor.issuer())?;
        if self.is_in_kernel(actor.tid) {
            return Ok(());
        }
        let kernel = self.kernel_frames(call, below);
        self.kernel_part(on, actor, event.kind(), logged, &kernel)
    }

    fn kernel_event(&mut self) -> Result<(), WriteError> {
        let on = self.any_processor();
        let actor = self.running[usize::from(on)];
        let now = self.out.now();
        match self.random.below(100) {
            0..36 => self.switch(on),
            36..48 => {
                let woken = self.population.any_thread(&mut self.random);
                payload::ready_thread(&mut self.out.payload, woken.tid, false);
                self.out.kernel(on, event::READY_THREAD, Issuer::UNKNOWN).map(drop)
            }
            48..57 => self.disk(on, &actor),
            57..69 => {
                let isr = self.machine.address(Site(SystemImage::Storport, 0x1f80));
                payload::interrupt(&mut self.out.payload, now, isr, 0x91);
                self.out.kernel(on, event::INTERRUPT, Issuer::UNKNOWN)?;
                let dpc = self.machine.address(Site(SystemImage::Storport, 0x2b70));
                payload::deferred_call(&mut self.out.payload, now, dpc);
                self.out.kernel(on, event::DEFERRED_CALL, Issuer::UNKNOWN).map(drop)
            }
            69..79 => {
                let size = 64 + self.random.below(1396) as u32;
                let is_send = self.random.one_in(2);
                payload::tcp(&mut self.out.payload, actor.pid, size, actor.pid.0.into(), is_send, now);
                let event = if is_send { event::TCP_SEND } else { event::TCP_RECEIVE };
                self.out.kernel(on, event, Issuer::UNKNOWN).map(drop)
            }
            79..88 => {
                let size = 0x1_0000 * (1 + self.random.below(16));
                let base = 0x0200_0000_0000 + self.random.below(0x1_0000) * 0x10_0000;
                payload::virtual_memory(&mut self.out.payload, base, size, actor.pid, payload::ALLOCATE);
                self.out.kernel(on, event::VIRTUAL_ALLOC, actor.issuer())?;
                payload::virtual_memory(&mut self.out.payload, base, size, actor.pid, payload::RELEASE);
                self.out.kernel(on, event::VIRTUAL_FREE, actor.issuer()).map(drop)
            }
            _ => {
                let key = self.random.below(crate::resources::KEYS.len() as u64);
                let name = crate::resources::KEYS[key as usize].value;
                payload::registry(&mut self.out.payload, now, Some(key), name);
                self.out.kernel(on, event::REGISTRY_QUERY_VALUE, actor.issuer()).map(drop)
            }
        }
    }

    /// Logs a disk read, for one in eight also a hard fault.
    fn disk(&mut self, on: u16, actor: &Actor) -> Result<(), WriteError> {
        self.irps += 1;
        payload::disk_init(&mut self.out.payload, self.irps, actor.tid);
        let below = below::DISK_FOR_FILE;
        self.event_with_stack(on, actor, event::DISK_READ_INIT, &site::NT_READ_FILE, below)?;
        let transfer = Transfer {
            irp: self.irps,
            file: self.population.any_file(&mut self.random),
            offset: self.random.below(1 << 24) << 12,
            size: 4096,
            started: self.out.now(),
            is_write: false,
        };
        let other = self.any_processor();
        self.out.wait_until(transfer.started + 900);
        let now = self.out.now();
        payload::disk_transfer(&mut self.out.payload, &transfer, now, actor.tid);
        self.out.kernel(other, event::DISK_READ, Issuer::UNKNOWN)?;
        if self.random.one_in(8) {
            let address = self.population.code(&self.machine, actor.process).function(1, self.irps);
            payload::hard_fault(&mut self.out.payload, &transfer, address, actor.tid);
            self.out.kernel(on, event::HARD_FAULT, Issuer::UNKNOWN)?;
        }
        Ok(())
    }

    /// Switches a processor to another thread.
    fn switch(&mut self, on: u16) -> Result<(), WriteError> {
        let next = self.population.any_thread(&mut self.random);
        if self.running.iter().any(|actor| actor.tid == next.tid) {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.running[usize::from(on)], next);
        let switch = Switch {
            new: next.tid,
            old: old.tid,
            priorities: (8, 8),
            wait_reason: 6,
            user_wait: true,
            old_state: 5,
            ideal_processor: on,
            waited_ticks: 1,
        };
        payload::context_switch(&mut self.out.payload, &switch);
        self.out.kernel(on, event::CONTEXT_SWITCH, Issuer::UNKNOWN).map(drop)
    }
}
