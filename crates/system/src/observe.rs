//! Conversion of events to statements about the machine. This is the only module of the crate that
//! parses payloads.
//!
//! Kernel events have a hook id, or are classic events with a class and an opcode. Both are handled
//! alike.

use stackhound_etl::record::Record;
use stackhound_etl::{Block, ManifestEvents, Selection};
use stackhound_schema::event_id::{
    dot_net_runtime as runtime, dot_net_runtime_rundown as rundown, kernel_process,
};
use stackhound_schema::kernel::class_guid;
use stackhound_schema::kernel::hook_id;
use stackhound_schema::kernel::view::{self, StackOwner};
use stackhound_schema::kernel::{self, is_added_by_tools};
use stackhound_schema::kernel_process::ProcessStatement;
use stackhound_schema::method::{ManagedModule, MethodCode, SCRIPT, SCRIPT_METHOD_LOAD};
use stackhound_schema::provider_guid::{DOT_NET_RUNTIME, DOT_NET_RUNTIME_RUNDOWN, KERNEL_PROCESS};
use stackhound_schema::{Error, Sid};
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{Guid, PdbIdentity, Pid, PointerSize, Tid, file_name};

use crate::caller::Caller;
use crate::file::{FileKey, FileNameEvent, FileObject};
use crate::image_version::ImageVersion;
use crate::method::{MethodFacts, Runtime};
use crate::module::ModuleFacts;
use crate::process::{ProcessDetails, ProcessFacts};
use crate::region::AllocationFacts;
use crate::registry::{KeyControlBlock, KeyNameEvent};
use crate::span::Phase;
use crate::system::{AllocationEvent, System};
use crate::thread::{StackExtent, ThreadFacts};
use crate::view::{Protection, ViewFacts};

/// The subject of a kernel event.
#[derive(Clone, Copy)]
enum Subject {
    Process(Phase),
    DefunctProcess,
    Thread(Phase),
    ThreadName,
    Module(Phase),
    HypercallPage,
    Allocation(AllocationEvent),
    View(Phase),
    FileName(fn(FileKey) -> FileNameEvent),
    FileOpen,
    FileClose,
    FileRename,
    KeyName(KeyNameEvent),
}

#[inline]
fn subject(hook_id: u16) -> Option<Subject> {
    Some(match hook_id {
        hook_id::PROCESS_START => Subject::Process(Phase::Start),
        hook_id::PROCESS_END => Subject::Process(Phase::End),
        hook_id::PROCESS_DC_START => Subject::Process(Phase::RundownAtStart),
        hook_id::PROCESS_DC_END => Subject::Process(Phase::RundownAtEnd),
        hook_id::PROCESS_DEFUNCT => Subject::DefunctProcess,
        hook_id::THREAD_START => Subject::Thread(Phase::Start),
        hook_id::THREAD_END => Subject::Thread(Phase::End),
        hook_id::THREAD_DC_START => Subject::Thread(Phase::RundownAtStart),
        hook_id::THREAD_DC_END => Subject::Thread(Phase::RundownAtEnd),
        hook_id::THREAD_SET_NAME => Subject::ThreadName,
        hook_id::IMAGE_LOAD => Subject::Module(Phase::Start),
        hook_id::IMAGE_UNLOAD => Subject::Module(Phase::End),
        hook_id::IMAGE_DC_START => Subject::Module(Phase::RundownAtStart),
        hook_id::IMAGE_DC_END => Subject::Module(Phase::RundownAtEnd),
        hook_id::IMAGE_HYPERCALL_PAGE => Subject::HypercallPage,
        hook_id::PAGE_FAULT_VIRTUAL_ALLOC => Subject::Allocation(AllocationEvent::Allocate),
        hook_id::PAGE_FAULT_VIRTUAL_FREE => Subject::Allocation(AllocationEvent::Free),
        hook_id::PAGE_FAULT_VIRTUAL_ALLOC_DC_START | hook_id::PAGE_FAULT_VIRTUAL_ALLOC_DC_END => {
            Subject::Allocation(AllocationEvent::Rundown)
        }
        hook_id::FILE_IO_MAP_FILE => Subject::View(Phase::Start),
        hook_id::FILE_IO_UNMAP_FILE => Subject::View(Phase::End),
        hook_id::FILE_IO_MAP_FILE_DC_START => Subject::View(Phase::RundownAtStart),
        hook_id::FILE_IO_MAP_FILE_DC_END => Subject::View(Phase::RundownAtEnd),
        hook_id::FILE_IO_NAME | hook_id::FILE_IO_FILE_CREATE => Subject::FileName(FileNameEvent::Create),
        hook_id::FILE_IO_FILE_DELETE => Subject::FileName(FileNameEvent::Delete),
        hook_id::FILE_IO_FILE_RUNDOWN => Subject::FileName(FileNameEvent::Rundown),
        hook_id::FILE_IO_CREATE | hook_id::FILE_IO_CREATE_NEW => Subject::FileOpen,
        hook_id::FILE_IO_CLOSE => Subject::FileClose,
        hook_id::FILE_IO_RENAME | hook_id::FILE_IO_RENAME_PATH => Subject::FileRename,
        hook_id::REGISTRY_KCB_CREATE => Subject::KeyName(KeyNameEvent::Create),
        hook_id::REGISTRY_KCB_DELETE => Subject::KeyName(KeyNameEvent::Delete),
        hook_id::REGISTRY_KCB_RUNDOWN_BEGIN | hook_id::REGISTRY_KCB_RUNDOWN_END => {
            Subject::KeyName(KeyNameEvent::Rundown)
        }
        _ => return None,
    })
}

/// The stack records that state a thread and its process.
const STACKS: [u16; 3] =
    [hook_id::STACK_WALK_STACK, hook_id::STACK_WALK_KEY_KERNEL, hook_id::STACK_WALK_KEY_USER];

const RSDS: u8 = 36;
const FILE_VERSION: u8 = 64;

const SYSTEM_PATHS: u8 = 33;
const VOLUME_MAPPING: u8 = 35;

/// What a manifest event states about the state of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ManifestSubject {
    Process(Phase),
    /// A method of .NET, and whether the event contains its name.
    Method(Phase, bool),
    Script,
    /// A module of .NET, and whether the event is about it in an application domain.
    Module(Phase, bool),
}

/// The providers of the events that have a [`ManifestSubject`].
const PROVIDERS: [Guid; 4] = [DOT_NET_RUNTIME, DOT_NET_RUNTIME_RUNDOWN, KERNEL_PROCESS, SCRIPT];

/// Whether events of any provider with an id have a [`ManifestSubject`], by the id. Most events have
/// none, and their provider does not need to be read.
static HAS_SUBJECT: [bool; 256] = {
    let mut has_subject = [false; 256];
    let mut id = 0;
    while id < has_subject.len() {
        let mut provider = 0;
        while provider < PROVIDERS.len() {
            has_subject[id] |= manifest_subject(PROVIDERS[provider], id as u16).is_some();
            provider += 1;
        }
        id += 1;
    }
    has_subject
};

#[inline]
fn has_subject(id: u16) -> bool {
    HAS_SUBJECT.get(usize::from(id)).is_some_and(|has_subject| *has_subject)
}

/// Up to about this number, methods stay in the processor's caches.
const CACHED_METHODS: usize = 1 << 16;

const fn manifest_subject(provider: Guid, id: u16) -> Option<ManifestSubject> {
    match provider {
        DOT_NET_RUNTIME => of_runtime(id),
        DOT_NET_RUNTIME_RUNDOWN => of_rundown(id),
        KERNEL_PROCESS => Some(ManifestSubject::Process(match id {
            kernel_process::PROCESS_START => Phase::Start,
            kernel_process::PROCESS_STOP => Phase::End,
            kernel_process::PROCESS_RUNDOWN => Phase::RundownAtStart,
            _ => return None,
        })),
        SCRIPT if id == SCRIPT_METHOD_LOAD => Some(ManifestSubject::Script),
        _ => None,
    }
}

const fn of_runtime(id: u16) -> Option<ManifestSubject> {
    use ManifestSubject::{Method, Module};
    Some(match id {
        runtime::METHOD_LOAD => Method(Phase::Start, false),
        runtime::METHOD_LOAD_VERBOSE => Method(Phase::Start, true),
        runtime::METHOD_UNLOAD => Method(Phase::End, false),
        runtime::METHOD_UNLOAD_VERBOSE => Method(Phase::End, true),
        runtime::METHOD_DC_START_V2 => Method(Phase::RundownAtStart, false),
        runtime::METHOD_DC_START_VERBOSE_V2 => Method(Phase::RundownAtStart, true),
        runtime::METHOD_DC_STOP_V2 => Method(Phase::RundownAtEnd, false),
        runtime::METHOD_DC_STOP_VERBOSE_V2 => Method(Phase::RundownAtEnd, true),
        runtime::LOADER_MODULE_DC_START_V2 => Module(Phase::RundownAtStart, false),
        runtime::LOADER_MODULE_DC_STOP_V2 => Module(Phase::RundownAtEnd, false),
        runtime::LOADER_DOMAIN_MODULE_LOAD => Module(Phase::Start, true),
        runtime::LOADER_MODULE_LOAD => Module(Phase::Start, false),
        runtime::LOADER_MODULE_UNLOAD => Module(Phase::End, false),
        _ => return None,
    })
}

const fn of_rundown(id: u16) -> Option<ManifestSubject> {
    use ManifestSubject::{Method, Module};
    Some(match id {
        rundown::METHOD_DC_START => Method(Phase::RundownAtStart, false),
        rundown::METHOD_DC_START_VERBOSE => Method(Phase::RundownAtStart, true),
        rundown::METHOD_DC_STOP => Method(Phase::RundownAtEnd, false),
        rundown::METHOD_DC_STOP_VERBOSE => Method(Phase::RundownAtEnd, true),
        rundown::LOADER_DOMAIN_MODULE_DC_START => Module(Phase::RundownAtStart, true),
        rundown::LOADER_DOMAIN_MODULE_DC_STOP => Module(Phase::RundownAtEnd, true),
        rundown::LOADER_MODULE_DC_START => Module(Phase::RundownAtStart, false),
        rundown::LOADER_MODULE_DC_STOP => Module(Phase::RundownAtEnd, false),
        _ => return None,
    })
}

impl System {
    /// The events that [`observe`](System::observe) uses, for a pass that reads no other events.
    pub fn selection() -> Selection {
        let hook_ids = (0..=u16::MAX).filter(|&hook_id| subject(hook_id).is_some());
        let selection = Selection::none().hook_ids(hook_ids).hook_ids(STACKS).classic().thread_owners();
        (0..=u16::MAX)
            .filter(|&id| has_subject(id))
            .fold(selection, |selection, id| selection.manifest_events(ManifestEvents::Id(id)))
    }

    /// Whether [`observe`](System::observe) uses an event, as far as its header shows.
    /// Events that only state the process of their thread are not among them.
    pub fn uses(event: &Event<'_>) -> bool {
        if let Some(hook_id) = event.hook_id() {
            return subject(hook_id).is_some();
        }
        let (kind, id) = (event.kind(), event.entry().tag);
        if kind.is_classic() {
            let record = event.record();
            return record.guid().is_some_and(|class| match (class, record.opcode()) {
                (class_guid::IMAGE_ID, opcode) => matches!(opcode, RSDS | FILE_VERSION),
                (class_guid::SYS_CONFIG_EX, opcode) => matches!(opcode, SYSTEM_PATHS | VOLUME_MAPPING),
                (class, opcode) => kernel::hook_id_of(class, opcode).and_then(subject).is_some(),
            });
        }
        if !kind.has_descriptor() || !has_subject(id) {
            return false;
        }
        event.guid().is_some_and(|provider| manifest_subject(provider, id).is_some())
    }

    /// Records an event. Events that are not about the state of the machine are ignored. Events
    /// must be in time order. A late event is sorted in, unless it is later than dozens of changes
    /// to the same object.
    #[inline]
    pub fn observe(&mut self, event: &Event<'_>) {
        if let Some(hook_id) = event.hook_id() {
            if let Some(subject) = subject(hook_id) {
                self.observe_kernel(event.time(), subject, &event.record());
            }
        } else if event.kind().is_classic() {
            self.observe_classic(event.time(), &event.record());
        } else if has_subject(event.entry().tag) && event.kind().has_descriptor() {
            self.observe_manifest_event(event.time(), event.entry().tag, &event.record());
        }
        // The header of the start of a thread can state this thread, which did not exist before.
        self.observe_thread_owner(event);
    }

    /// Records which process the thread of an event belongs to, if the header or the record of a stack
    /// states it.
    #[inline]
    fn observe_thread_owner(&mut self, event: &Event<'_>) {
        let record = event.record();
        if let (Some(tid), Some(pid)) = (record.tid(), record.pid()) {
            if states_its_thread(event, &record) {
                self.take_thread_owner(event.time(), pid, tid);
            }
        } else if event.hook_id().is_some_and(|hook_id| STACKS.contains(&hook_id))
            && let Ok(StackOwner { process_id: Some(pid), thread_id: Some(tid) }) =
                parse(&record, StackOwner::parse)
        {
            self.take_thread_owner(event.time(), pid, tid);
        }
    }

    /// The process and the thread that the header of an event states, as the one of this thread.
    pub fn owner_in_header(event: &Event<'_>) -> Option<(Pid, Tid)> {
        let record = event.record();
        let ids = (record.pid()?, record.tid()?);
        states_its_thread(event, &record).then_some(ids)
    }

    /// Requests the memory that the statements in a block about methods will need, if there are so
    /// many methods that each statement would wait for it. Changes nothing: only the time that
    /// [`observe`](System::observe) takes. Requests for many statements take hardly longer than one.
    pub fn expect(&self, block: &Block) {
        if self.methods.len() < CACHED_METHODS {
            return;
        }
        for entry in block.entries() {
            // Without reading the provider: a needless request does no harm.
            let is_method = matches!(of_runtime(entry.tag), Some(ManifestSubject::Method(..)));
            if !entry.kind().has_descriptor() || !is_method {
                continue;
            }
            let record = block.record(entry);
            if let Ok(code) = MethodCode::dot_net(record.payload(), false)
                && let Some(pid) = record.pid()
                && let Some(process) = self.processes.newest_until(pid, TraceTime(i64::MAX))
            {
                self.methods.expect(process, code.start);
            }
        }
    }

    fn observe_manifest_event(&mut self, time: TraceTime, id: u16, record: &Record<'_>) {
        match record.guid().and_then(|provider| manifest_subject(provider, id)) {
            Some(ManifestSubject::Process(Phase::End)) => self.observe_process_stop(time, record),
            Some(ManifestSubject::Process(phase)) => self.observe_process_details(time, id, phase, record),
            Some(ManifestSubject::Method(phase, is_verbose)) => {
                let code = MethodCode::dot_net(record.payload(), is_verbose);
                self.observe_method(time, Runtime::Clr, phase, code, record.pid());
            }
            Some(ManifestSubject::Script) => {
                let code = MethodCode::script(record.payload(), record.pointer_size());
                self.observe_method(time, Runtime::Script, Phase::Start, code, record.pid());
            }
            Some(ManifestSubject::Module(phase, in_domain)) => {
                self.observe_managed_module(time, phase, in_domain, record);
            }
            None => {}
        }
    }

    fn observe_process_details(&mut self, time: TraceTime, id: u16, phase: Phase, record: &Record<'_>) {
        let Some(read) = ProcessStatement::parse(id, record.version(), record.payload()) else { return };
        let taken = read.map(|process| {
            let Some(pid) = self.stated(Some(process.process_id)) else { return };
            let mut path = std::mem::take(&mut self.scratch);
            path.clear();
            process.image_name.append_to(&mut path);
            let facts = ProcessFacts {
                parent: Pid::known(process.parent_id.0),
                session: Some(process.session_id),
                image_name: file_name(&path),
                ..ProcessFacts::of(pid)
            };
            let details = ProcessDetails {
                create_time: process.create_time,
                integrity: process.mandatory_label.and_then(integrity),
                path: &path,
            };
            self.take_process_details(phase, time, &facts, &details);
            self.scratch = path;
        });
        self.count(taken);
    }

    /// Records the end of a process that the kernel class does not report.
    fn observe_process_stop(&mut self, time: TraceTime, record: &Record<'_>) {
        let Some(&pid) = record.payload().first_chunk::<4>() else { return self.stats.malformed += 1 };
        let Some(pid) = self.stated(Some(Pid(u32::from_le_bytes(pid)))) else { return };
        if self.processes.is_known_by_provider_only(pid, time) {
            self.take_process(Phase::End, time, &ProcessFacts::of(pid));
            self.stats.observed += 1;
        }
    }

    fn observe_method(
        &mut self,
        time: TraceTime,
        runtime: Runtime,
        phase: Phase,
        code: Result<MethodCode<'_>, Error>,
        pid: Option<Pid>,
    ) {
        let taken = code.map(|code| {
            let Some(pid) = self.stated(pid) else { return };
            // Rundowns repeat the statements of loads. Reading texts is most of the work.
            if phase != Phase::End && self.is_known_method(phase, pid, time, code.id, code.start, code.size) {
                return;
            }
            // All texts of the event, one after the other.
            let mut text = std::mem::take(&mut self.scratch);
            text.clear();
            let name = code.name().unwrap_or_default();
            name.namespace.append_to(&mut text);
            let of_name = text.len();
            name.name.append_to(&mut text);
            let of_signature = text.len();
            name.signature.append_to(&mut text);
            let facts = MethodFacts {
                pid,
                runtime,
                id: code.id,
                module_id: code.module_id,
                start: code.start,
                size: code.size,
                namespace: &text[..of_name],
                name: &text[of_name..of_signature],
                signature: &text[of_signature..],
            };
            self.take_method(phase, time, &facts);
            self.scratch = text;
        });
        self.count(taken);
    }

    fn observe_managed_module(
        &mut self,
        time: TraceTime,
        phase: Phase,
        in_domain: bool,
        record: &Record<'_>,
    ) {
        let taken = ManagedModule::dot_net(record.payload(), in_domain).map(|module| {
            let Some(pid) = self.stated(record.pid()) else { return };
            let mut path = std::mem::take(&mut self.scratch);
            path.clear();
            module.il_path.append_to(&mut path);
            self.take_managed_module(phase, time, pid, module.id, &path);
            self.scratch = path;
        });
        self.count(taken);
    }

    fn observe_classic(&mut self, time: TraceTime, record: &Record<'_>) {
        let Some(class) = record.guid() else { return };
        let taken = match (class, record.opcode()) {
            (class_guid::IMAGE_ID, RSDS) => self.observe_pdb(time, record),
            (class_guid::IMAGE_ID, FILE_VERSION) => self.observe_image_version(record),
            (class_guid::SYS_CONFIG_EX, SYSTEM_PATHS) => self.observe_paths(record),
            (class_guid::SYS_CONFIG_EX, VOLUME_MAPPING) => self.observe_volume(record),
            (class_guid::IMAGE_ID | class_guid::SYS_CONFIG_EX, _) => return,
            (class, opcode) => {
                if let Some(subject) = kernel::hook_id_of(class, opcode).and_then(subject) {
                    self.observe_kernel(time, subject, record);
                }
                return;
            }
        };
        self.count(taken);
    }

    fn observe_kernel(&mut self, time: TraceTime, subject: Subject, record: &Record<'_>) {
        // The buffer for texts is kept from event to event.
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let taken = match subject {
            Subject::Process(phase) => self.observe_process(time, Some(phase), record, &mut text),
            Subject::DefunctProcess => self.observe_process(time, None, record, &mut text),
            Subject::Thread(phase) => self.observe_thread(time, phase, record, &mut text),
            Subject::ThreadName => self.observe_thread_name(time, record, &mut text),
            Subject::Module(phase) => self.observe_module(time, phase, record, &mut text),
            Subject::Allocation(event) => self.observe_allocation(time, event, record),
            Subject::View(phase) => self.observe_view(time, phase, record),
            Subject::FileName(event) => self.observe_file_name(time, event, record, &mut text),
            Subject::FileOpen => self.observe_file_open(time, record, &mut text),
            Subject::FileClose => self.observe_file_close(time, record),
            Subject::FileRename => self.observe_file_rename(time, record),
            // Both payloads contain the base of an image or page of the kernel.
            Subject::HypercallPage => {
                parse(record, view::KernelBase::parse).map(|page| self.take_hypercall_page(page.image_base))
            }
            Subject::KeyName(event) => self.observe_key_name(time, event, record, &mut text),
        };
        self.scratch = text;
        self.count(taken);
    }

    fn count(&mut self, taken: Result<(), Error>) {
        match taken {
            Ok(()) => self.stats.observed += 1,
            Err(_) => self.stats.malformed += 1,
        }
    }

    /// The process that an event refers to, unless the event marks it as unknown.
    fn stated(&mut self, pid: Option<Pid>) -> Option<Pid> {
        let pid = pid.and_then(|pid| Pid::known(pid.0));
        self.stats.without_process += u64::from(pid.is_none());
        pid
    }

    fn stated_thread(&mut self, pid: Pid, tid: Tid) -> Option<(Pid, Tid)> {
        let pid = self.stated(Tid::known(tid.0).map(|_| pid))?;
        Some((pid, tid))
    }

    fn observe_process(
        &mut self,
        time: TraceTime,
        phase: Option<Phase>,
        record: &Record<'_>,
        command_line: &mut String,
    ) -> Result<(), Error> {
        let process = parse(record, view::Process::parse)?;
        let Some(pid) = self.stated(Some(process.process_id)) else { return Ok(()) };
        process.command_line.unwrap_or_default().append_to(command_line);
        let image_name = process.image_file_name.to_string_lossy();
        let facts = ProcessFacts {
            pid,
            parent: Pid::known(process.parent_id.0),
            session: process.session_id,
            key: process.unique_process_key,
            flags: process.flags,
            exit_status: process.exit_status,
            sid: process.user_sid.map_or(&[], |Sid(bytes)| bytes),
            image_name: &image_name,
            command_line,
            creator: caller(record),
        };
        match phase {
            Some(phase) => self.take_process(phase, time, &facts),
            None => self.take_defunct_process(time, &facts),
        };
        Ok(())
    }

    fn observe_thread(
        &mut self,
        time: TraceTime,
        phase: Phase,
        record: &Record<'_>,
        name: &mut String,
    ) -> Result<(), Error> {
        let thread = parse(record, view::Thread::parse)?;
        let Some(ids) = self.stated_thread(thread.process_id, thread.thread_id) else { return Ok(()) };
        let mut facts = ThreadFacts { creator: caller(record), ..ThreadFacts::default() };
        if let Some(detail) = thread.detail {
            let stack = |base, limit| Some(StackExtent { base, limit }).filter(|stack| stack.base.0 != 0);
            detail.thread_name.unwrap_or_default().append_to(name);
            facts = ThreadFacts {
                kernel_stack: stack(detail.stack_base, detail.stack_limit),
                user_stack: stack(detail.user_stack_base, detail.user_stack_limit),
                start_address: detail.start_address,
                win32_start_address: Some(detail.win32_start_address),
                teb: detail.teb_base.filter(|teb| teb.0 != 0),
                sub_process_tag: detail.sub_process_tag,
                name,
                ..facts
            };
        }
        self.take_thread(phase, time, ids, &facts);
        Ok(())
    }

    fn observe_thread_name(
        &mut self,
        time: TraceTime,
        record: &Record<'_>,
        name: &mut String,
    ) -> Result<(), Error> {
        let thread = parse(record, view::ThreadSetName::parse)?;
        thread.thread_name.append_to(name);
        let Some(ids) = self.stated_thread(thread.process_id, thread.thread_id) else { return Ok(()) };
        self.take_thread_name(time, ids, name);
        Ok(())
    }

    fn observe_module(
        &mut self,
        time: TraceTime,
        phase: Phase,
        record: &Record<'_>,
        path: &mut String,
    ) -> Result<(), Error> {
        let image = parse(record, view::Image::parse)?;
        image.file_name.append_to(path);
        // The oldest events state the process only in the header.
        let Some(pid) = self.stated(image.process_id.or(record.pid())) else { return Ok(()) };
        // Windows writes zeros for values that it cannot read without waiting.
        let known = |number: u32| Some(number).filter(|&number| number != 0);
        let facts = ModuleFacts {
            pid,
            base: image.image_base,
            size: image.image_size,
            time_date_stamp: image.identity.and_then(|identity| known(identity.time_date_stamp)),
            checksum: image.identity.and_then(|identity| known(identity.image_checksum)),
            path,
        };
        let module = self.take_module(phase, time, &facts);
        let signature = image.identity.and_then(|identity| identity.signature);
        // Level 0 means that the kernel did not check the image.
        let level = signature.map(|signature| signature.level).filter(|level| level & 0x0f != 0);
        if let (Some(module), Some(level)) = (module, level) {
            self.take_signing_level(module, level);
        }
        Ok(())
    }

    fn observe_pdb(&mut self, time: TraceTime, record: &Record<'_>) -> Result<(), Error> {
        let pdb = parse(record, view::DbgIdRsds::parse)?;
        let Some(pid) = self.stated(Some(pdb.process_id)) else { return Ok(()) };
        let name = pdb.pdb_file_name.to_string_lossy();
        let identity = PdbIdentity { guid: pdb.guid, age: pdb.age, name: &*name };
        self.take_pdb(time, pid, pdb.image_base, &identity);
        Ok(())
    }

    fn observe_image_version(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let stated = parse(record, view::FileVersion::parse)?;
        if self.image_versions.ignores(stated.time_date_stamp, stated.image_size) {
            return Ok(());
        }
        let texts = [
            stated.original_file_name,
            stated.description,
            stated.file_version,
            stated.product,
            stated.company,
        ];
        let texts = texts.map(|text| text.to_string_lossy());
        let [original_file_name, description, file_version, product, company] =
            texts.each_ref().map(|t| &**t);
        let version = ImageVersion { original_file_name, description, file_version, product, company };
        self.take_image_version(stated.time_date_stamp, stated.image_size, &version);
        Ok(())
    }

    fn observe_paths(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let paths = parse(record, view::SystemPaths::parse)?;
        self.volumes_mut().set_windows_directory(&paths.system_windows_directory.to_string_lossy());
        Ok(())
    }

    fn observe_volume(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let mapping = parse(record, view::VolumeMapping::parse)?;
        let (nt, dos) = (mapping.nt_path.to_string_lossy(), mapping.dos_path.to_string_lossy());
        self.volumes_mut().map(&nt, &dos);
        Ok(())
    }

    fn observe_allocation(
        &mut self,
        time: TraceTime,
        event: AllocationEvent,
        record: &Record<'_>,
    ) -> Result<(), Error> {
        let memory = parse(record, view::VirtualAllocation::parse)?;
        let Some(pid) = self.stated(Some(memory.process_id)) else { return Ok(()) };
        let facts = AllocationFacts {
            pid,
            base: memory.base_address,
            size: memory.region_size,
            flags: memory.flags,
            by: caller(record),
        };
        self.take_allocation(event, time, &facts);
        Ok(())
    }

    fn observe_view(&mut self, time: TraceTime, phase: Phase, record: &Record<'_>) -> Result<(), Error> {
        let view = parse(record, view::MapFile::parse)?;
        let Some(pid) = self.stated(Some(view.process_id)) else { return Ok(()) };
        let facts = ViewFacts {
            pid,
            base: view.view_base,
            size: view.view_size,
            file: FileKey(view.file_object.0),
            protection: Protection::of_section(view.protection()),
        };
        self.take_view(phase, time, &facts);
        Ok(())
    }

    fn observe_file_name(
        &mut self,
        time: TraceTime,
        event: fn(FileKey) -> FileNameEvent,
        record: &Record<'_>,
        name: &mut String,
    ) -> Result<(), Error> {
        let file = parse(record, view::FileName::parse)?;
        file.file_name.append_to(name);
        self.take_file_name(event(FileKey(file.file_object.0)), time, name);
        Ok(())
    }

    fn observe_file_open(
        &mut self,
        time: TraceTime,
        record: &Record<'_>,
        path: &mut String,
    ) -> Result<(), Error> {
        let file = parse(record, view::FileCreate::parse)?;
        file.open_path.append_to(path);
        self.take_file_name(FileNameEvent::Open(FileObject(file.file_object.0)), time, path);
        Ok(())
    }

    fn observe_file_close(&mut self, time: TraceTime, record: &Record<'_>) -> Result<(), Error> {
        let file = parse(record, view::FileOperation::parse)?;
        self.take_file_name(FileNameEvent::Close(FileObject(file.file_object.0)), time, "");
        Ok(())
    }

    fn observe_file_rename(&mut self, time: TraceTime, record: &Record<'_>) -> Result<(), Error> {
        let file = parse(record, view::FileOperation::parse)?;
        self.take_file_name(FileNameEvent::Rename(FileKey(file.file_key.0)), time, "");
        Ok(())
    }

    fn observe_key_name(
        &mut self,
        time: TraceTime,
        event: KeyNameEvent,
        record: &Record<'_>,
        name: &mut String,
    ) -> Result<(), Error> {
        let key = parse(record, view::RegistryOperation::parse)?;
        key.key_name.append_to(name);
        self.take_key_name(event, time, KeyControlBlock(key.key_handle.0), name);
        Ok(())
    }
}

/// Parses the payload of a record.
#[inline]
fn parse<'a, View>(
    record: &Record<'a>,
    parse: impl FnOnce(&'a [u8], u8, PointerSize) -> Result<View, Error>,
) -> Result<View, Error> {
    parse(record.payload(), record.version(), record.pointer_size())
}

/// The integrity level of a mandatory label, `S-1-16-` and the level.
fn integrity(Sid(label): Sid<'_>) -> Option<u32> {
    const AUTHORITY: [u8; 8] = [1, 1, 0, 0, 0, 0, 0, 16];
    let (authority, level) = label.split_first_chunk::<8>()?;
    (*authority == AUTHORITY).then_some(u32::from_le_bytes(level.try_into().ok()?))
}

/// Whether the ids in the header are those of the thread of the event.
#[inline]
fn states_its_thread(event: &Event<'_>, record: &Record<'_>) -> bool {
    !event.kind().is_classic() || !record.guid().is_some_and(is_added_by_tools)
}

/// The thread in the header, if the kernel wrote it.
fn caller(record: &Record<'_>) -> Option<Caller> {
    if !record.kind().has_hook_id() {
        return None;
    }
    Some(Caller { pid: record.pid()?, tid: record.tid()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_all_subjects_are_known() {
        let is_subject = |id| PROVIDERS.iter().any(|provider| manifest_subject(*provider, id).is_some());
        assert_eq!((0..=u16::MAX).filter(|&id| has_subject(id)).count(), 18);
        assert!((0..=u16::MAX).all(|id| has_subject(id) == is_subject(id)));
    }
}
