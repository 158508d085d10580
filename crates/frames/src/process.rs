//! The state of the processes whose stacks are resolved.

use stackhound_system::{
    Completeness, ModuleId, ModuleRef, ProcessId, System, ValidityId, is_same_name, with_one_path,
};
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

/// A module of a process.
#[derive(Debug)]
struct ProcessModule {
    id: ModuleId,
    from: TraceTime,
    to: TraceTime,
    has_program_name: bool,
    /// Known once the module was loaded at the time of a look-up.
    facts: Option<ModuleFacts>,
}

/// The facts about a module that the context of its process depends on.
#[derive(Clone, Copy, Debug)]
struct ModuleFacts {
    is_runtime: bool,
    is_win32u: bool,
    is_ntdll: bool,
    is_layer: bool,
}

/// The modules of a process at all times. With two passes, the state of the system does not change
/// any more, so the modules are searched for once and not after each load of a module.
#[derive(Debug)]
struct ProcessModules {
    id: ProcessId,
    revision: u64,
    /// `None` if they change too often.
    all: Option<Vec<ProcessModule>>,
}

/// Processes, by their index in the system state. The state reuses the index of a process that it
/// removed, so the id is compared.
#[derive(Debug, Default)]
pub(crate) struct ProcessContexts {
    known: Vec<Option<CachedProcess>>,
    modules: Vec<Option<ProcessModules>>,
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
        let ProcessContexts { known, modules: of_processes, numbers, unknown } = self;
        let Some(id) = process else { return (unknown, 0) };
        let validity_id = system.module_validity_id(id, time);
        let is_complete = system.map_complete_in(id, time) == Completeness::Complete;
        let (flags, image) = (system.process(id).flags(), system.process(id).image_name());
        if known.len() <= id.index() {
            known.resize_with(id.index() + 1, || None);
            of_processes.resize_with(id.index() + 1, || None);
        }
        let entry = &mut known[id.index()];
        let is_same = entry.as_ref().is_some_and(|known| {
            known.id == id
                && known.validity_id == validity_id
                && (known.is_complete, known.flags) == (is_complete, flags)
                && *known.context.name == *image
        });
        if !is_same {
            let all = modules_of(&mut of_processes[id.index()], system, id);
            let (context, program) = look_up(system, modules, pointer_size, (id, time, all), is_complete);
            let same = entry.as_ref().filter(|known| known.id == id && known.context == context);
            let number = same.map_or(*numbers + 1, |known| known.number);
            *numbers = number.max(*numbers);
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

impl ProcessModule {
    fn of(module: ModuleRef<'_>, program: &str) -> ProcessModule {
        let span = module.span();
        let has_program_name = is_same_name(module.file_name(), program);
        ProcessModule { id: module.id(), from: span.from, to: span.to, has_program_name, facts: None }
    }

    fn touches(&self, time: TraceTime) -> bool {
        self.from <= time && time <= self.to
    }
}

impl ModuleFacts {
    fn of(system: &System, modules: (&mut Modules, &mut LoadedModules), id: ModuleId) -> ModuleFacts {
        let known = modules.1.get(system, modules.0, id);
        ModuleFacts {
            is_runtime: known.roles.has(Role::Runtime),
            is_win32u: known.is_win32u,
            is_ntdll: known.roles.has(Role::NamedNtdll),
            is_layer: known.is_64_bit_part
                && system.module(id).file_name().eq_ignore_ascii_case(wow64::LAYER),
        }
    }
}

/// The modules of a process at all times; `None` if they change too often.
fn modules_of<'k>(
    known: &'k mut Option<ProcessModules>,
    system: &System,
    id: ProcessId,
) -> Option<&'k mut [ProcessModule]> {
    let revision = system.revision();
    if known.as_ref().is_none_or(|known| (known.id, known.revision) != (id, revision)) {
        let program = system.process(id).image_name();
        let all = system.modules_of(id, CHANGES_MAX);
        let all = all.map(|all| all.map(|module| ProcessModule::of(module, program)).collect());
        *known = Some(ProcessModules { id, revision, all });
    }
    known.as_mut()?.all.as_deref_mut()
}

/// The module that has the name of the process; `None` if modules with different paths have it.
fn program(system: &System, time: TraceTime, all: &[ProcessModule]) -> Option<ModuleId> {
    let found = all.iter().filter(|module| module.has_program_name && module.touches(time));
    with_one_path(found.map(|module| system.module(module.id))).map(|module| module.id())
}

fn look_up(
    system: &System,
    (modules, loaded): (&mut Modules, &mut LoadedModules),
    pointer_size: PointerSize,
    (id, time, all): (ProcessId, TraceTime, Option<&mut [ProcessModule]>),
    is_complete: bool,
) -> (ProcessContext, Option<ModuleId>) {
    let process = system.process(id);
    let name = process.image_name();
    // The last events of a process follow its end.
    let time = time.min(process.span().to);
    let program = all.as_deref().and_then(|all| program(system, time, all));
    let image = match program {
        Some(program) => {
            let known = loaded.get(system, modules, program);
            modules.get(known.index).path.clone()
        }
        None => name.into(),
    };
    let knows_all = all.is_some() && is_complete;
    // Whether such a module is loaded, as far as is known.
    let (mut has_runtime, mut has_win32u, mut has_layer) =
        if knows_all { (Some(false), Some(false), Some(false)) } else { (None, None, None) };
    let mut has_ntdll = process.pid().is_kernel_only() || all.is_none();
    for module in all.into_iter().flatten().filter(|module| module.touches(time)) {
        let facts = *module
            .facts
            .get_or_insert_with(|| ModuleFacts::of(system, (&mut *modules, &mut *loaded), module.id));
        has_ntdll |= facts.is_ntdll;
        let is_certain = system.is_module_certain(module.id, time);
        for (has, is) in [
            (&mut has_runtime, facts.is_runtime),
            (&mut has_win32u, facts.is_win32u),
            (&mut has_layer, facts.is_layer),
        ] {
            if is && *has != Some(true) {
                *has = is_certain.then_some(true);
            }
        }
    }
    let is_wow64 = match pointer_size {
        PointerSize::Four => Some(false),
        PointerSize::Eight => wow64::is_reported(process).or(has_layer),
    };
    let context = ProcessContext { name: name.into(), image, is_wow64, has_runtime, has_win32u, has_ntdll };
    (context, program)
}

#[cfg(test)]
mod tests {
    use stackhound_system::{ModuleFacts as Stated, Phase, ProcessFacts};
    use stackhound_types::{Address, Pid};

    use super::*;

    const SYSTEM32: &str = r"C:\Windows\System32";
    const PID: Pid = Pid(8);

    /// A process that starts at time 10, and loads and unloads modules at the times given.
    fn process(modules: &[(&str, i64, i64)]) -> (System, ProcessId) {
        let mut system = System::new(PointerSize::Eight);
        let facts = ProcessFacts { image_name: "app.exe", ..ProcessFacts::of(PID) };
        let id = system.take_process(Phase::Start, TraceTime(10), &facts);
        let mut changes: Vec<(i64, Phase, u64, &str)> = Vec::new();
        for (number, &(path, from, to)) in modules.iter().enumerate() {
            let base = (number as u64 + 1) << 20;
            changes.extend([(from, Phase::Start, base, path), (to, Phase::End, base, path)]);
        }
        changes.sort_unstable_by_key(|change| change.0);
        for (time, phase, base, path) in changes {
            let base = Address(base);
            let stated = Stated { pid: PID, base, size: 4096, time_date_stamp: None, checksum: None, path };
            system.take_module(phase, TraceTime(time), &stated);
        }
        (system, id)
    }

    #[test]
    fn remembered_modules_change_no_context() {
        let ntdll = format!(r"{SYSTEM32}\ntdll.dll");
        let (win32u, layer) = (format!(r"{SYSTEM32}\win32u.dll"), format!(r"{SYSTEM32}\wow64.dll"));
        let (system, id) = process(&[
            (&ntdll, 11, 90),
            (r"C:\app\app.exe", 12, 80),
            (&win32u, 20, 30),
            // A second program with another path, then again the first.
            (r"C:\other\APP.EXE", 40, 50),
            (r"C:\APP\app.exe", 60, 70),
            (&layer, 65, 75),
        ]);
        let (mut modules, mut loaded) = (Modules::default(), LoadedModules::default());
        let mut kept = ProcessContexts::default();
        let mut number = 0;
        let mut last: Option<ProcessContext> = None;
        let mut distinct = 0;
        for time in (0..100).map(TraceTime) {
            let (context, then) =
                kept.get(&system, (&mut modules, &mut loaded), PointerSize::Eight, Some(id), time);
            let context = context.clone();
            let mut new = ProcessContexts::default();
            let fresh = new.get(&system, (&mut modules, &mut loaded), PointerSize::Eight, Some(id), time).0;
            assert_eq!(&context, fresh, "{time:?}");
            let program = system.process(id).program(time, CHANGES_MAX).map(|module| module.id());
            assert_eq!(kept.last_program(id), program, "{time:?}");
            // The number changes with the context, and only then.
            assert_eq!(last.as_ref() == Some(&context), then == number, "{time:?}");
            distinct += u32::from(then != number);
            (number, last) = (then, Some(context));
        }
        assert!(distinct > 5, "{distinct}");
    }

    /// As for live sessions, whose state changes between look-ups.
    #[test]
    fn new_statements_are_noticed() {
        let (mut system, id) = process(&[(r"C:\app\app.exe", 12, 80)]);
        let (mut modules, mut loaded) = (Modules::default(), LoadedModules::default());
        let mut contexts = ProcessContexts::default();
        let mut win32u = |contexts: &mut ProcessContexts, system: &System| {
            let modules = (&mut modules, &mut loaded);
            contexts.get(system, modules, PointerSize::Eight, Some(id), TraceTime(50)).0.has_win32u
        };
        assert_ne!(win32u(&mut contexts, &system), Some(true));
        let path = &format!(r"{SYSTEM32}\win32u.dll");
        let base = Address(1 << 30);
        let stated = Stated { pid: PID, base, size: 4096, time_date_stamp: None, checksum: None, path };
        system.take_module(Phase::Start, TraceTime(49), &stated);
        assert_eq!(win32u(&mut contexts, &system), Some(true));
    }
}
