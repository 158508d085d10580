//! Writes cases as a trace: a rundown of processes, threads and images, then one event per case.

mod changes;

use std::io::Cursor;

use stackhound_etl::LogFileMode;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::stack::{self, Trigger};
use stackhound_etl::write::{
    EtlWriter, HeaderSpec, Issuer, ItemSpec, Payload as PayloadSpec, RecordSpec, Session, WriteError,
};
use stackhound_scenario::event::{self, KernelEvent};
use stackhound_scenario::payload::{self, GROUPS, NO_GROUPS, Payload};
use stackhound_scenario::{Image, METHOD_LOAD, Process, RUNTIME, Thread};
use stackhound_schema::provider_guid;
use stackhound_types::{Address, Guid, Pid, PointerSize, RawTime, Tid};

use super::case_builder::{Flaw, TestCase};
use super::code::{ImageRegion, SIZE};
use super::event_spec::{Action, Actor, EventSpec, FRAMES_MAX, FrameSpec, Memory, Parts, World};

/// Returns the trace, and the raw time of the event of each case.
pub(super) fn write(
    world: &World,
    flaw: Flaw,
    test_cases: &[&TestCase],
) -> Result<(Vec<u8>, Vec<u64>), WriteError> {
    let session = Session {
        build: 19_041,
        mode: LogFileMode(SYSTEM_LOGGER | SEQUENTIAL),
        name: "NT Kernel Logger".to_owned(),
        file_name: r"C:\cases.etl".to_owned(),
        ..Session::default()
    };
    let now = session.start.0;
    let writer = EtlWriter::new(session, Cursor::new(Vec::new()))?;
    let mut recorder = Recorder { world, writer, payload: Payload::default(), now, match_ids: 0 };
    let actors: Vec<Instance<'_>> =
        (0..).zip(test_cases).map(|(number, test_case)| Instance::new(number, test_case)).collect();
    recorder.begin(flaw, &actors)?;
    if flaw == Flaw::LostBuffer {
        recorder.writer.flush(0)?;
        recorder.payload.u32(0);
        recorder.kernel(event::SYSTEM_CALL_EXIT, Issuer::UNKNOWN)?;
        recorder.writer.lose_buffer(0)?;
    }
    let times = actors.iter().map(|actor| recorder.perform(actor)).collect::<Result<Vec<RawTime>, _>>()?;
    let (output, _) = recorder.writer.finish()?;
    Ok((output.into_inner(), times.into_iter().map(|time| time.0 as u64).collect()))
}

/// Logging modes: a system logger that writes to a file without a size limit.
const SYSTEM_LOGGER: u32 = 0x0200_0000;
const SEQUENTIAL: u32 = 1;

/// The thread that controls the session.
const SYSTEM: Issuer = Issuer::new(Pid::SYSTEM, Tid(8));

const POINTER_SIZE: PointerSize = PointerSize::Eight;

/// Target processes.
const TARGETS: [(&str, Pid); 3] = [("lsass", Pid(700)), ("csrss", Pid(704)), ("tool", Pid(708))];

fn target(program: &str) -> Pid {
    let found = TARGETS.iter().find(|(name, _)| *name == program);
    found.unwrap_or_else(|| panic!("{program} is not a target process")).1
}

/// The process and thread of a case.
struct Instance<'d> {
    event_spec: &'d EventSpec,
    pid: Pid,
    tid: Tid,
}

impl<'d> Instance<'d> {
    fn new(number: u32, test_case: &'d TestCase) -> Instance<'d> {
        Instance {
            event_spec: &test_case.event_spec,
            pid: Pid(4000 + 8 * number),
            tid: Tid(4004 + 8 * number),
        }
    }

    fn issuer(&self) -> Issuer {
        Issuer::new(self.pid, self.tid)
    }
}

/// Writes records in order of time, all on one processor.
struct Recorder<'w> {
    world: &'w World,
    writer: EtlWriter<Cursor<Vec<u8>>>,
    payload: Payload,
    now: i64,
    match_ids: u64,
}

impl Recorder<'_> {
    /// Writes the events at the start of the trace, without the rundown for [`Flaw::NoRundown`].
    fn begin(&mut self, flaw: Flaw, actors: &[Instance<'_>]) -> Result<(), WriteError> {
        payload::group_masks(&mut self.payload, NO_GROUPS);
        self.payload.write_to_header(&mut self.writer, event::EXTENSION, SYSTEM)?;
        payload::partition_info(&mut self.payload);
        self.payload.write_to_header(&mut self.writer, event::PARTITION_INFO, SYSTEM)?;
        payload::group_masks(&mut self.payload, NO_GROUPS);
        self.kernel(event::END_EXTENSION, Issuer::UNKNOWN)?;
        payload::group_masks(&mut self.payload, GROUPS);
        self.kernel(event::EXTENSION, Issuer::UNKNOWN)?;
        let has_rundown = flaw != Flaw::NoRundown;
        let image = if has_rundown { event::IMAGE_DC_START } else { event::IMAGE_LOAD };
        for (number, unit) in self.world.units.iter().enumerate() {
            if unit.spec.location == ImageRegion::Kernel {
                self.image(image.with_ids(), Pid::IDLE, number, SYSTEM)?;
            }
        }
        for (pid, name) in [(Pid::IDLE, "Idle"), (Pid::SYSTEM, "System")] {
            if has_rundown {
                payload::process(&mut self.payload, &Process::of_kernel(pid, name), None);
                self.kernel(event::PROCESS_DC_START, Issuer::UNKNOWN)?;
            }
        }
        let targets = TARGETS.map(|(program, pid)| (Actor::Program(program, &[]), pid, Tid(pid.0 + 1)));
        let instances = actors.iter().map(|actor| (actor.event_spec.actor, actor.pid, actor.tid));
        for (actor, pid, tid) in targets.into_iter().chain(instances) {
            if has_rundown {
                let facts = self.process(actor, pid);
                payload::process(&mut self.payload, &facts, None);
                self.kernel(event::PROCESS_DC_START, Issuer::UNKNOWN)?;
            }
            for key in actor.images() {
                self.image(image, pid, self.world.index(key), Issuer::new(pid, tid))?;
            }
        }
        for actor in actors.iter().filter(|actor| has_rundown && actor.event_spec.has_start) {
            let entry = || self.world.at(&format!("{}!entry", actor.event_spec.actor.program()), 0);
            let start = actor.event_spec.start.unwrap_or_else(entry);
            self.thread(event::THREAD_DC_START, actor.pid, actor.tid, start, actor.issuer())?;
        }
        self.kernel(event::RUNDOWN_COMPLETE, Issuer::UNKNOWN).map(drop)
    }

    fn process(&self, actor: Actor, pid: Pid) -> Process {
        let spec = self.world.units[self.world.index(actor.program())].spec;
        Process {
            pid,
            object: 0xffff_9f0d_0000_0000 + u64::from(pid.0) * 0x240,
            parent: Pid(600),
            session: Some(1),
            name: spec.name().to_owned(),
            command_line: format!("\"{}\"", spec.path),
            is_wow64: actor == Actor::Bits32,
            started: None,
            ended: None,
            images: Vec::new(),
            threads: Vec::new(),
            code_regions: Vec::new(),
        }
    }

    fn thread(
        &mut self,
        event: KernelEvent,
        pid: Pid,
        tid: Tid,
        start: FrameSpec,
        issuer: Issuer,
    ) -> Result<RawTime, WriteError> {
        let start_address = Address(self.world.address(start));
        let thread = Thread { tid, start_address, started: None, ended: None };
        payload::thread(&mut self.payload, pid, &thread);
        self.kernel(event, issuer)
    }

    fn image(
        &mut self,
        event: KernelEvent,
        pid: Pid,
        number: usize,
        issuer: Issuer,
    ) -> Result<RawTime, WriteError> {
        let unit = &self.world.units[number];
        let image = Image {
            path: unit.spec.path.replacen("C:", r"\Device\HarddiskVolume3", 1),
            base: Address(unit.base),
            size: SIZE,
            checksum: unit.file.checksum,
            time_date_stamp: unit.file.time_date_stamp,
        };
        payload::image(&mut self.payload, pid, &image);
        self.kernel(event, issuer)
    }

    /// Writes the events of a case. Returns the raw time of its own event.
    fn perform(&mut self, actor: &Instance<'_>) -> Result<RawTime, WriteError> {
        match actor.event_spec.memory {
            Some(Memory::Allocated(base)) => {
                payload::virtual_memory(&mut self.payload, base, 0x1_0000, actor.pid, payload::ALLOCATE);
                self.kernel(event::VIRTUAL_ALLOC, Issuer::UNKNOWN)?;
            }
            Some(Memory::Jit(start)) => self.method(actor, start)?,
            None => {}
        }
        for step in &actor.event_spec.steps {
            self.now += 10_000 * step.wait;
            self.change(actor, &step.change, &step.stack)?;
        }
        let (event, service) = match actor.event_spec.action {
            Action::Change(change) => return self.change(actor, &change, &actor.event_spec.stack),
            Action::Open(program, access) => return self.open(actor, target(program), access),
            Action::Call(service) => {
                let routine = self.world.at(&format!("ntoskrnl!{service}"), 0);
                self.payload.address(Address(self.world.address(routine)));
                (self.kernel(event::SYSTEM_CALL_ENTER, Issuer::UNKNOWN)?, None)
            }
            Action::Start(at, program, _) => {
                let pid = program.map_or(actor.pid, target);
                let tid = Tid(actor.tid.0 + 2);
                let time = self.thread(event::THREAD_START, pid, tid, at, actor.issuer())?;
                (time, Some("NtCreateThreadEx"))
            }
            Action::Load(key) => {
                let number = self.world.index(key);
                let time = self.image(event::IMAGE_LOAD, actor.pid, number, actor.issuer())?;
                (time, Some("NtMapViewOfSection"))
            }
            Action::Wait => {
                let switch = payload::Switch {
                    new: actor.tid,
                    old: Tid(0),
                    priorities: (8, 0),
                    wait_reason: 6,
                    user_wait: true,
                    old_state: 2,
                    ideal_processor: 0,
                    waited_ticks: 3,
                };
                payload::context_switch(&mut self.payload, &switch);
                (self.kernel(event::CONTEXT_SWITCH, Issuer::UNKNOWN)?, Some("NtDelayExecution"))
            }
            Action::Sample => {
                let location = actor.event_spec.stack.first().map_or(0, |frame| self.world.address(*frame));
                payload::sample(&mut self.payload, Address(location), actor.tid);
                (self.kernel(event::SAMPLED_PROFILE, Issuer::UNKNOWN)?, None)
            }
            Action::Tamper(_) => unreachable!("traces do not report tampering"),
        };
        let trigger = Trigger { time: event, pid: actor.pid, tid: actor.tid };
        let (kernel, user) = self.frames(actor.event_spec, service);
        match actor.event_spec.parts {
            Parts::All => self.stacks(trigger, &[kernel, user])?,
            Parts::Kernel => self.stacks(trigger, &[kernel])?,
            Parts::User => self.stacks(trigger, &[user])?,
        }
        Ok(event)
    }

    /// Writes the stacks of a kernel event that have frames.
    fn stacks(&mut self, trigger: Trigger, stacks: &[Vec<Address>]) -> Result<(), WriteError> {
        for frames in stacks.iter().filter(|frames| !frames.is_empty()) {
            self.tick();
            let record = stack::frames(RawTime(self.now), POINTER_SIZE, trigger, frames);
            self.writer.write(0, &record)?;
        }
        Ok(())
    }

    fn addresses(&self, frames: &[FrameSpec]) -> Vec<Address> {
        frames.iter().map(|frame| Address(self.world.address(*frame))).collect()
    }

    /// Return addresses in these functions of the kernel, each of which calls the one before it.
    fn kernel_frames(&self, functions: &[&str]) -> Vec<Address> {
        let names: Vec<String> = functions.iter().map(|name| format!("ntoskrnl!{name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.addresses(&self.world.callers("", &names))
    }

    /// The kernel frames and the user frames, at most as many as Windows records.
    fn frames(&self, event_spec: &EventSpec, service: Option<&str>) -> (Vec<Address>, Vec<Address>) {
        let usual = || match (event_spec.action, service) {
            (Action::Sample, _) => Vec::new(),
            (Action::Wait, _) => ["KiSwapContext", "NtDelayExecution", "KiSystemServiceCopyEnd"].to_vec(),
            (_, None) => ["EtwTraceStack", "KiSystemServiceCopyEnd"].to_vec(),
            (_, Some(service)) => ["EtwTraceStack", service, "KiSystemServiceCopyEnd"].to_vec(),
        };
        let mut kernel = match &event_spec.kernel {
            Some(kernel) => self.addresses(kernel),
            None => self.kernel_frames(&usual()),
        };
        let (inner, mut user): (Vec<Address>, Vec<Address>) =
            self.addresses(&event_spec.stack).into_iter().partition(|address| address.0 >> 63 != 0);
        // Windows walks the whole kernel stack at once, including the kernel frames of callbacks.
        kernel.extend(inner);
        user.truncate(FRAMES_MAX - kernel.len());
        (kernel, user)
    }

    fn open(
        &mut self,
        actor: &Instance<'_>,
        target: Pid,
        access: Option<u32>,
    ) -> Result<RawTime, WriteError> {
        let access = access.expect("traces contain the access rights");
        self.payload.u32(target.0).u32(access).u32(0);
        let (mut frames, user) = self.frames(actor.event_spec, Some("NtOpenProcess"));
        // The match id announces a user stack that is not written.
        let match_id = match actor.event_spec.parts {
            Parts::Kernel => {
                self.match_ids += 1;
                self.match_ids
            }
            Parts::User => unreachable!("the stack of an extended data item begins in the kernel"),
            Parts::All => {
                frames.extend(user);
                0
            }
        };
        let items = [ItemSpec::StackTrace { pointer_size: POINTER_SIZE, match_id, frames: &frames }];
        self.header_event(actor, OPEN_PROCESS, &items)
    }

    /// Writes the event of a JIT-compiled method.
    fn method(&mut self, actor: &Instance<'_>, start: u64) -> Result<(), WriteError> {
        self.payload
            .u64(start + 0x10_0000)
            .u64(start + 0x20_0000)
            .u64(start)
            .u32(0x400)
            .u32(0x0600_0001)
            .u32(1);
        self.payload.utf16("Contoso.Tools.Program").utf16("Open").utf16("instance void  ()").u16(6).u64(0);
        let descriptor = Descriptor {
            id: METHOD_LOAD,
            version: 2,
            channel: 0,
            level: 5,
            opcode: 37,
            task: 9,
            keyword: 0x30,
        };
        self.header_event(actor, (RUNTIME, descriptor), &[]).map(drop)
    }

    fn header_event(
        &mut self,
        actor: &Instance<'_>,
        (provider, descriptor): (Guid, Descriptor),
        items: &[ItemSpec<'_>],
    ) -> Result<RawTime, WriteError> {
        let issuer = actor.issuer();
        self.record(HeaderSpec::Event {
            provider,
            descriptor,
            property: 0,
            issuer,
            activity: Guid::ZERO,
            items,
        })
    }

    fn kernel(&mut self, event: KernelEvent, issuer: Issuer) -> Result<RawTime, WriteError> {
        self.record(event.header(issuer))
    }

    /// Writes a record with the prepared payload.
    fn record(&mut self, header: HeaderSpec<'_>) -> Result<RawTime, WriteError> {
        self.tick();
        let time = RawTime(self.now);
        let payload = PayloadSpec::Bytes(self.payload.as_bytes());
        self.writer.write(0, &RecordSpec { time, pointer_size: POINTER_SIZE, header, payload })?;
        self.payload.clear();
        Ok(time)
    }

    fn tick(&mut self) {
        self.now += 40;
    }
}

/// The event of the kernel audit provider for opening a process.
const OPEN_PROCESS: (Guid, Descriptor) = (
    provider_guid::KERNEL_AUDIT_API_CALLS,
    Descriptor { id: 5, version: 0, channel: 16, level: 4, opcode: 0, task: 0, keyword: 0 },
);
