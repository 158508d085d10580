//! The state of the processes whose stacks are resolved.

use stackhound_system::{Completeness, ModuleId, ProcessId, System, ValidityId};
use stackhound_trace::TraceTime;
use stackhound_types::PointerSize;

use crate::module::{LoadedModules, Modules, Role};
use crate::wow64;

/// If the modules of a process change more often than this, facts that depend on all of its modules
/// are unknown, because each change would require a search of all modules.
pub const CHANGES_MAX: usize = 4096;

/// The state of a process as far as frames and detections depend on it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ProcessContext {
    /// The name in the state of the trace.
    name: Box<str>,
    /// The path of its program, or its name if no module has the path.
    pub image: Box<str>,
    /// Whether it is a 32-bit process on 64-bit Windows; `None` if not known.
    pub is_wow64: Option<bool>,
    /// Whether a module with [`Role::Runtime`] is loaded; `None` if not known. A name that neither a
    /// folder nor a signer confirms does not count.
    pub has_runtime: Option<bool>,
    /// Whether `win32u.dll` is loaded; `None` if not known.
    pub has_win32u: Option<bool>,
    /// Whether a module named `ntdll.dll` is known to be loaded. Also true for kernel-only
    /// processes, and if the modules change too often.
    has_ntdll: bool,
}

impl ProcessContext {
    /// Whether all modules of the process can be known. While a process is created, its stacks
    /// contain images whose loads are logged later. Some kinds of processes log no loads.
    pub fn is_built(&self) -> bool {
        self.has_ntdll
    }

    /// Whether the process is known to run 32-bit code on 64-bit Windows.
    pub fn is_wow64(&self) -> bool {
        self.is_wow64 == Some(true)
    }
}

#[derive(Debug)]
struct CachedProcess {
    id: ProcessId,
    /// The validity range in which the context was computed.
    validity_id: ValidityId,
    is_complete: bool,
    flags: Option<u32>,
    context: ProcessContext,
    /// The module of its program.
    program: Option<ModuleId>,
    number: u32,
}

/// Processes, by their index in the system state. The state reuses the index of a process that it
/// removed, so the id is compared.
#[derive(Debug, Default)]
pub(crate) struct ProcessContexts {
    known: Vec<Option<CachedProcess>>,
    numbers: u32,
    unknown: ProcessContext,
}

impl ProcessContexts {
    /// The context of a process at a time, and a number that changes whenever the context does. The
    /// number is 0 for unknown processes.
    pub fn get(
        &mut self,
        system: &System,
        modules: (&mut Modules, &mut LoadedModules),
        pointer_size: PointerSize,
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> (&ProcessContext, u32) {
        let ProcessContexts { known, numbers, unknown } = self;
        let Some(id) = process else { return (unknown, 0) };
        let validity_id = system.module_validity_id(id, time);
        let is_complete = system.map_complete_in(id) == Completeness::Complete;
        let (flags, image) = (system.process(id).flags(), system.process(id).image_name());
        if known.len() <= id.index() {
            known.resize_with(id.index() + 1, || None);
        }
        let entry = &mut known[id.index()];
        let is_same = entry.as_ref().is_some_and(|known| {
            known.id == id
                && known.validity_id == validity_id
                && (known.is_complete, known.flags) == (is_complete, flags)
                && *known.context.name == *image
        });
        if !is_same {
            let (context, program) = look_up(system, modules, pointer_size, (id, time), is_complete);
            let number = *numbers + 1;
            *numbers = number;
            *entry = Some(CachedProcess { id, validity_id, is_complete, flags, context, program, number });
        }
        entry.as_ref().map_or((unknown, 0), |known| (&known.context, known.number))
    }

    /// The module of the program, from the last call of [`get`](ProcessContexts::get) for a process.
    pub fn last_program(&self, process: ProcessId) -> Option<ModuleId> {
        self.known.get(process.index())?.as_ref()?.program
    }

    /// The context from the last call of [`get`](ProcessContexts::get) for a process.
    pub fn last(&self, process: Option<ProcessId>) -> &ProcessContext {
        let known = process.and_then(|id| self.known.get(id.index())?.as_ref());
        known.map_or(&self.unknown, |known| &known.context)
    }
}

fn look_up(
    system: &System,
    (modules, loaded): (&mut Modules, &mut LoadedModules),
    pointer_size: PointerSize,
    (id, time): (ProcessId, TraceTime),
    is_complete: bool,
) -> (ProcessContext, Option<ModuleId>) {
    let process = system.process(id);
    let name = process.image_name();
    let program = process.program(time, CHANGES_MAX).map(|module| module.id());
    let image = match program {
        Some(program) => {
            let known = loaded.get(system, modules, program);
            modules.get(known.index).path.clone()
        }
        None => name.into(),
    };
    let (mut has_runtime, mut has_win32u, mut has_layer) = (false, false, false);
    let mut has_ntdll = process.pid().is_kernel_only();
    // The last events of a process follow its end.
    let all = system.modules_in(id, time.min(process.span().to), CHANGES_MAX);
    let knows_all = all.is_some() && is_complete;
    has_ntdll |= all.is_none();
    for module in all.into_iter().flatten() {
        let known = loaded.get(system, modules, module.id());
        has_runtime |= known.roles.has(Role::Runtime);
        has_win32u |= known.is_win32u;
        has_ntdll |= known.roles.has(Role::NamedNtdll);
        has_layer |= known.is_64_bit_part && module.file_name().eq_ignore_ascii_case(wow64::LAYER);
    }
    let if_known = |is: bool| (is || knows_all).then_some(is);
    let is_wow64 = match pointer_size {
        PointerSize::Four => Some(false),
        PointerSize::Eight => wow64::is_reported(process).or_else(|| if_known(has_layer)),
    };
    let context = ProcessContext {
        name: name.into(),
        image,
        is_wow64,
        has_runtime: if_known(has_runtime),
        has_win32u: if_known(has_win32u),
        has_ntdll,
    };
    (context, program)
}
