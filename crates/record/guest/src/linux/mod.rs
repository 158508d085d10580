//! Linux: symbols from kallsyms, structures by BTF, and threads and mappings from the functions by
//! which the kernel itself reports them to its performance events. They are called for every thread and
//! mapping, whether or not anyone listens.

mod btf;
mod kallsyms;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stackhound_types::Address;

use self::btf::Types;
use crate::memory::{Image, Memory, Structure, text, word};
use crate::symbols::Symbols;
use crate::system::{Code, Event, Hook, Mapping, System, Task};

/// The functions, and whether memory is read when they are called.
const FUNCTIONS: [(&str, Action, bool); 7] = [
    ("__switch_to_asm", Action::Switch, false),
    ("perf_event_init", Action::Initialize, true),
    ("perf_event_fork", Action::Create, true),
    ("perf_event_comm", Action::Name, true),
    ("perf_event_mmap", Action::Map, true),
    ("do_task_dead", Action::End, false),
    ("signal_setup_done", Action::Signal, true),
];
/// The flag of executable memory in `vm_flags`.
const EXECUTABLE: u64 = 4;
/// The bits of a page number in an address.
const PAGE_BITS: u32 = 12;
/// The name of the kernel's image.
const KERNEL: &str = "vmlinux";
/// Length of the name of a thread.
const NAME_MAX: usize = 16;
/// Maximum length of a part of a path.
const PART_MAX: usize = 256;
/// Maximum number of parts of a path.
const PARTS_MAX: usize = 64;
/// Maximum number of mappings of a process.
const MAPPINGS_MAX: usize = 1 << 14;
/// Offsets in the task state segment of the processor, and the number of stacks for exceptions.
const TSS_ENTRY: u64 = 4;
const TSS_EXCEPTION: u64 = 36;
const EXCEPTIONS: [&str; 5] =
    ["double fault stack", "NMI stack", "debug stack", "machine check stack", "VC exception stack"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// `__switch_to_asm(previous, next)`
    Switch,
    /// `perf_event_init()`, before the first interrupt
    Initialize,
    /// `perf_event_fork(task)`
    Create,
    /// `perf_event_comm(task, executes)`
    Name,
    /// `perf_event_mmap(area)`, in the process that maps
    Map,
    /// `do_task_dead()`, in the thread that ends: the next switch is its last one
    End,
    /// `signal_setup_done(failed, signal, stepping)`
    Signal,
}

/// Offsets in bytes, and sizes.
#[derive(Debug)]
struct Layout {
    task_size: u64,
    thread: u64,
    process: u64,
    name: u64,
    stack: u64,
    stack_size: u64,
    area_size: u64,
    area_start: u64,
    area_end: u64,
    area_offset: u64,
    area_flags: u64,
    area_file: u64,
    /// Of the directory entry in a file.
    entry: u64,
    entry_size: u64,
    entry_parent: u64,
    /// Of the pointer to the name.
    entry_name: u64,
    /// Of the address to which the handler of a signal returns.
    restorer: Option<u64>,
    entry_stack_size: Option<u64>,
    exception_stack_size: Option<u64>,
    interrupt_stack_size: Option<u64>,
    /// In the variables of a processor, if it is in a structure.
    interrupt_stack: Option<u64>,
}

impl Layout {
    fn read(types: &Types, symbols: &Symbols) -> Option<Layout> {
        // The linker reserves exactly one stack between these symbols.
        let symbol = |names: [&str; 2]| names.into_iter().find_map(|name| symbols.address_of(name));
        let end = symbol(["__end_init_stack", "__end_init_task"])?;
        let stack_size = end.0.checked_sub(symbol(["__start_init_stack", "__start_init_task"])?.0)?;
        let task = |member| types.offset("task_struct", member);
        let area = |member| types.offset("vm_area_struct", member);
        let entry = |member| types.offset("dentry", member);
        let exception = |member| types.offset("cea_exception_stacks", member);
        Some(Layout {
            task_size: types.size("task_struct")?,
            thread: task("pid")?,
            process: task("tgid")?,
            name: task("comm")?,
            stack: task("stack")?,
            stack_size,
            area_size: types.size("vm_area_struct")?,
            area_start: area("vm_start")?,
            area_end: area("vm_end")?,
            area_offset: area("vm_pgoff")?,
            area_flags: area("vm_flags")?,
            area_file: area("vm_file")?,
            entry: types.offset("file", "f_path")? + types.offset("path", "dentry")?,
            entry_size: types.size("dentry")?,
            entry_parent: entry("d_parent")?,
            entry_name: entry("d_name").or_else(|| entry("__d_name"))? + types.offset("qstr", "name")?,
            restorer: types
                .offset("ksignal", "ka")
                .zip(types.offset("k_sigaction", "sa"))
                .zip(types.offset("sigaction", "sa_restorer"))
                .map(|((action, inner), restorer)| action + inner + restorer),
            entry_stack_size: types.size("entry_stack"),
            exception_stack_size: exception("NMI_stack_guard")
                .zip(exception("DF_stack"))
                .and_then(|(end, start)| end.checked_sub(start)),
            interrupt_stack_size: types.size("irq_stack"),
            interrupt_stack: types.offset("pcpu_hot", "hardirq_stack_ptr"),
        })
    }
}

/// A running Linux kernel, as its memory and its calls of the [hooks](System::hooks) show it.
#[derive(Debug)]
pub struct Linux {
    symbols: Symbols,
    base: Address,
    layout: Option<Layout>,
    hooks: Vec<Hook>,
    actions: Vec<Action>,
    /// By the addresses of their structures.
    tasks: FxHashMap<u64, TaskState>,
    /// The threads by their numbers.
    addresses: FxHashMap<u32, u64>,
    processes: FxHashMap<u32, Process>,
    current: u64,
}

#[derive(Debug)]
struct TaskState {
    task: Task,
    is_ending: bool,
}

/// A process, which exists as long as one of its threads.
#[derive(Clone, Debug, Default)]
struct Process {
    threads: usize,
    /// A number that changes with the code at an address.
    program: u32,
    /// Executable mappings of files, by their ends.
    mappings: BTreeMap<u64, Mapping>,
}

impl Linux {
    /// Finds a Linux kernel that executes an instruction at an address. It need not have done anything
    /// before. Returns `None` if it is none, or has no table of symbols.
    pub fn find(at: Address, memory: &mut dyn Memory) -> Option<Linux> {
        let image = Image::around(at, memory);
        let symbols = kallsyms::find(&image)?;
        let layout = Types::find(&image).and_then(|types| Layout::read(&types, &symbols));
        let mut linux = Linux {
            base: symbols.address_of("_text").or_else(|| symbols.address_of("_stext"))?,
            symbols,
            layout,
            hooks: Vec::new(),
            actions: Vec::new(),
            tasks: FxHashMap::default(),
            addresses: FxHashMap::default(),
            processes: FxHashMap::default(),
            current: 0,
        };
        if linux.layout.is_some() {
            for (name, action, reads_memory) in FUNCTIONS {
                if let Some(address) = linux.symbols.address_of(name) {
                    linux.hooks.push(Hook { address, reads_memory });
                    linux.actions.push(action);
                }
            }
            linux.current = linux.symbols.address_of("init_task").map_or(0, |address| address.0);
            let task = Task { thread: 0, process: 0, name: "swapper/0".to_owned() };
            linux.add(linux.current, task);
        }
        Some(linux)
    }

    fn switch(&mut self, next: u64, report: &mut dyn FnMut(Event)) {
        let previous = std::mem::replace(&mut self.current, next);
        if let Some(next) = self.tasks.get(&next) {
            report(Event::Switched { to: next.task.thread });
        }
        if self.tasks.get(&previous).is_some_and(|known| known.is_ending)
            && let Some((Task { thread, process, .. }, is_last)) = self.remove(previous)
        {
            report(Event::Ended { thread, process, is_last });
        }
    }

    /// Removes a thread. Returns whether it was the last one of its process.
    fn remove(&mut self, address: u64) -> Option<(Task, bool)> {
        let task = self.tasks.remove(&address)?.task;
        self.addresses.remove(&task.thread);
        let is_last = self.processes.get_mut(&task.process).is_none_or(|process| {
            process.threads -= 1;
            process.threads == 0
        });
        if is_last {
            self.processes.remove(&task.process);
        }
        Some((task, is_last))
    }

    fn create(&mut self, address: u64, memory: &mut dyn Memory, report: &mut dyn FnMut(Event)) -> Option<()> {
        let layout = self.layout.as_ref()?;
        let structure = Structure::read(memory, address, layout.task_size)?;
        let task = Task {
            thread: structure.half(layout.thread)?,
            process: structure.half(layout.process)?,
            name: structure.text(layout.name, NAME_MAX)?,
        };
        let low = structure.word(layout.stack)?;
        let stack = low.checked_add(layout.stack_size).map(|high| (Address(low), Address(high)));
        let thread = task.thread;
        let parent = self.current().and_then(|parent| self.processes.get(&parent.process));
        if !self.processes.contains_key(&task.process)
            && let Some(parent) = parent
        {
            // The memory of a forked process is that of its parent.
            let copied = Process { threads: 0, ..parent.clone() };
            self.processes.insert(task.process, copied);
        }
        self.add(address, task);
        report(Event::Created { thread, stack });
        Some(())
    }

    fn add(&mut self, address: u64, task: Task) {
        // The end of the last thread with this structure was not reported.
        self.remove(address);
        self.addresses.insert(task.thread, address);
        self.processes.entry(task.process).or_default().threads += 1;
        self.tasks.insert(address, TaskState { task, is_ending: false });
    }

    fn name(
        &mut self,
        [address, executes]: [u64; 2],
        memory: &mut dyn Memory,
        report: &mut dyn FnMut(Event),
    ) -> Option<()> {
        let at = address.wrapping_add(self.layout.as_ref()?.name);
        let TaskState { task, .. } = self.tasks.get_mut(&address)?;
        task.name = text::<NAME_MAX>(memory, at)?;
        let (thread, number) = (task.thread, task.process);
        // The argument is a `bool`: only the lowest byte is defined.
        if executes & 0xff != 0
            && let Some(process) = self.processes.get_mut(&number)
        {
            process.mappings.clear();
            process.program += 1;
            report(Event::Executed { process: number });
        }
        report(Event::Named { thread });
        Some(())
    }

    fn map(&mut self, area: u64, memory: &mut dyn Memory) -> Option<()> {
        let layout = self.layout.as_ref()?;
        let area = Structure::read(memory, area, layout.area_size)?;
        let (start, end) = (area.word(layout.area_start)?, area.word(layout.area_end)?);
        let process = self.current()?.process;
        let is_executable = area.word(layout.area_flags)? & EXECUTABLE != 0;
        let file = area.word(layout.area_file)?;
        let mapping = if is_executable && file != 0 {
            let offset = area.word(layout.area_offset)? << PAGE_BITS;
            let path = path(file, layout, memory)?.into();
            Some(Mapping { start: Address(start), end: Address(end), offset, path })
        } else {
            None
        };
        let process = self.processes.get_mut(&process)?;
        process.replace(start, end, mapping);
        Some(())
    }

    /// Reports the stacks of the processor, which the kernel has set up.
    fn processor_stacks(&self, memory: &mut dyn Memory, report: &mut dyn FnMut(Event)) -> Option<()> {
        let layout = self.layout.as_ref()?;
        let of_processor = word(memory, self.symbols.address_of("__per_cpu_offset")?.0)?;
        let variable = |name| Some(self.symbols.address_of(name)?.0.wrapping_add(of_processor));
        let mut stack = |name, high: Option<u64>, size: Option<u64>| {
            if let Some((high, size)) = high.zip(size).filter(|&(high, _)| high != 0)
                && let Some(low) = high.checked_sub(size)
            {
                report(Event::Stack { memory: (Address(low), Address(high)), name });
            }
        };
        let segment = variable("cpu_tss_rw");
        if let Some(segment) = segment {
            stack("entry stack", word(memory, segment.wrapping_add(TSS_ENTRY)), layout.entry_stack_size);
            for (number, name) in (0..).zip(EXCEPTIONS) {
                let high = word(memory, segment.wrapping_add(TSS_EXCEPTION + 8 * number));
                stack(name, high, layout.exception_stack_size);
            }
        }
        let interrupts = variable("hardirq_stack_ptr")
            .or_else(|| Some(variable("pcpu_hot")?.wrapping_add(layout.interrupt_stack?)));
        // The pointer is that of the first word.
        let high = interrupts.and_then(|at| word(memory, at)?.checked_add(8));
        stack("interrupt stack", high, layout.interrupt_stack_size);
        Some(())
    }
}

impl System for Linux {
    fn symbols(&self) -> usize {
        self.symbols.len()
    }

    fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    fn kernel_code_at(&self, address: Address) -> Option<Code<'_>> {
        let function = self.symbols.function_at(address)?;
        Some(Code { module: KERNEL, path: None, base: self.base, function: Some(function) })
    }

    fn thunks(&self) -> Vec<Address> {
        self.symbols.functions(is_thunk).collect()
    }

    fn functions(&self) -> Vec<Address> {
        let mut functions: Vec<Address> =
            self.symbols.functions(|name| !is_thunk(name) && !is_part(name)).collect();
        functions.dedup();
        functions
    }

    fn current(&self) -> Option<&Task> {
        self.tasks.get(&self.current).map(|known| &known.task)
    }

    fn thread(&self, thread: u32) -> Option<&Task> {
        self.tasks.get(self.addresses.get(&thread)?).map(|known| &known.task)
    }

    fn program(&self) -> Option<u32> {
        Some(self.processes.get(&self.current()?.process)?.program)
    }

    fn mapping_at(&self, address: Address) -> Option<&Mapping> {
        let process = self.processes.get(&self.current()?.process)?;
        let (_, mapping) = process.mappings.range(address.0.checked_add(1)?..).next()?;
        (mapping.start <= address).then_some(mapping)
    }

    fn called(
        &mut self,
        hook: usize,
        arguments: [u64; 2],
        memory: &mut dyn Memory,
        report: &mut dyn FnMut(Event),
    ) {
        let Some(&action) = self.actions.get(hook) else { return };
        match action {
            Action::Switch => self.switch(arguments[1], report),
            Action::Initialize => {
                _ = self.processor_stacks(memory, report);
                let stack = self.symbols.address_of("init_stack");
                let stack = stack.or_else(|| self.symbols.address_of("init_thread_union"));
                let stack = stack.and_then(|low| {
                    Some((low, Address(low.0.checked_add(self.layout.as_ref()?.stack_size)?)))
                });
                report(Event::Created { thread: 0, stack });
            }
            Action::Create => _ = self.create(arguments[0], memory, report),
            Action::Name => _ = self.name(arguments, memory, report),
            Action::Map => _ = self.map(arguments[0], memory),
            // The argument is an `int`: the upper half is not defined.
            Action::Signal if arguments[0] as u32 == 0 => {
                let at = self.layout.as_ref().and_then(|layout| layout.restorer);
                let restorer = at.and_then(|at| word(memory, arguments[1].wrapping_add(at))).map(Address);
                report(Event::Signal { restorer });
            }
            Action::Signal => {}
            Action::End => {
                if let Some(known) = self.tasks.get_mut(&self.current) {
                    known.is_ending = true;
                }
            }
        }
    }
}

impl Process {
    /// Replaces what is mapped in a range. The parts of other mappings outside of it remain.
    fn replace(&mut self, start: u64, end: u64, mapping: Option<Mapping>) {
        let overlapping: Vec<u64> = self
            .mappings
            .range(start.saturating_add(1)..)
            .take_while(|(_, mapping)| mapping.start.0 < end)
            .map(|(&end, _)| end)
            .collect();
        // The code at an address can be another one.
        self.program += u32::from(!overlapping.is_empty());
        for key in overlapping {
            let Some(old) = self.mappings.remove(&key) else { continue };
            if old.start.0 < start {
                self.mappings.insert(start, Mapping { end: Address(start), ..old.clone() });
            }
            if old.end.0 > end {
                let offset = old.offset.wrapping_add(end - old.start.0);
                self.mappings.insert(key, Mapping { start: Address(end), offset, ..old });
            }
        }
        if let Some(mapping) = mapping.filter(|_| start < end && self.mappings.len() < MAPPINGS_MAX) {
            self.mappings.insert(end, mapping);
        }
    }
}

/// Whether a function is one by which compilers replace indirect calls and jumps: `__x86_indirect_thunk_rax`
/// jumps to the function whose address is in the register; or a call whose target the kernel changes:
/// `__SCT__cond_resched` jumps to this.
fn is_thunk(name: &str) -> bool {
    let is_retpoline = name.strip_prefix("__x86_indirect_").is_some_and(|rest| rest.contains("thunk"));
    is_retpoline || name.starts_with("__SCT__")
}

/// Whether a symbol is a part of other functions: the instructions by which they return, or seldom executed ones
/// that the compiler has moved.
fn is_part(name: &str) -> bool {
    name.ends_with("_return_thunk") || name.contains(".cold")
}

/// Returns the path of an open file in its file system.
fn path(file: u64, layout: &Layout, memory: &mut dyn Memory) -> Option<String> {
    let mut entry = word(memory, file.wrapping_add(layout.entry))?;
    let mut path = String::new();
    for _ in 0..PARTS_MAX {
        let structure = Structure::read(memory, entry, layout.entry_size)?;
        let parent = structure.word(layout.entry_parent)?;
        // The root is its own parent.
        if parent == entry {
            break;
        }
        let name = text::<PART_MAX>(memory, structure.word(layout.entry_name)?)?;
        path.insert_str(0, &name);
        path.insert(0, '/');
        entry = parent;
    }
    Some(path)
}
