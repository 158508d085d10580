//! The boundary to the emulator: its calls into the plugin, and access to registers and memory.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::api::{self, Api, Array, Block, Counter, Id, Information};
use crate::channel::Channel;
use crate::decode::{self, Effect, Target};
use crate::observer::{DirectCall, Instruction, KERNEL, Observer, PlainReturn, Processor};
use crate::protocol::Ring;
use crate::user;

/// The version of the interface that the plugin needs, which the emulator reads.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of the interface")]
pub static qemu_plugin_version: c_int = api::VERSION;

/// The state of the plugin. It is set once, before the emulator calls anything else.
static PLUGIN: AtomicPtr<Plugin> = AtomicPtr::new(std::ptr::null_mut());

struct Plugin {
    api: Api,
    registers: Registers,
    /// The number of instructions that have begun, which translated code changes.
    executed: *mut u64,
    /// The memory of the emulator that contains it.
    scoreboard: *mut api::Scoreboard,
    buffer: *mut Array,
    observer: Observer,
}

#[derive(Default)]
pub(crate) struct Registers {
    general: [Option<Handle>; 16],
    rip: Option<Handle>,
}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

/// The names of the general registers, by their numbers in instructions.
const NAMES: [&CStr; 16] = [
    c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11", c"r12",
    c"r13", c"r14", c"r15",
];

/// The processor, as the observer sees it during a call.
pub(crate) struct View<'a> {
    pub api: &'a Api,
    pub registers: &'a Registers,
    pub buffer: *mut Array,
    pub executed: *const u64,
}

impl View<'_> {
    fn read(&mut self, register: Option<Handle>) -> u64 {
        let Some(Handle(handle)) = register else { return 0 };
        (self.api.byte_array_set_size)(self.buffer, 0);
        (self.api.read_register)(handle, self.buffer);
        self.bytes().first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the emulator allocated the array, which has `length` initialized bytes.
        unsafe {
            let Array { data, length } = *self.buffer;
            if data.is_null() { &[] } else { std::slice::from_raw_parts(data, length as usize) }
        }
    }
}

impl Processor for View<'_> {
    fn register(&mut self, number: u8) -> u64 {
        self.read(self.registers.general.get(usize::from(number)).copied().flatten())
    }

    fn instruction_pointer(&mut self) -> u64 {
        self.read(self.registers.rip)
    }

    fn memory(&mut self, address: u64, length: usize) -> Option<&[u8]> {
        (self.api.byte_array_set_size)(self.buffer, 0);
        let read = (self.api.read_memory_vaddr)(address, self.buffer, length);
        (read && self.bytes().len() >= length).then(|| &self.bytes()[..length])
    }

    fn executed(&self) -> u64 {
        // SAFETY: the number exists as long as the emulator, and only the thread of the processor
        // changes it, which makes this call, or has ended.
        unsafe { *self.executed }
    }
}

/// Calls the observer with the processor.
fn with<R>(call: impl FnOnce(&mut Observer, &mut View) -> R) -> R {
    // SAFETY: the pointer was set from a box that is never freed. The emulator has one processor, and
    // calls the plugin from its thread, or after it has ended, so that no two references exist at a time.
    let plugin = unsafe { &mut *PLUGIN.load(Ordering::Relaxed) };
    let Plugin { api, registers, executed, buffer, observer, .. } = plugin;
    call(observer, &mut View { api, registers, buffer: *buffer, executed: *executed })
}

/// Called by the emulator when it loads the plugin.
///
/// # Safety
/// The arguments must be those of the plugin interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    information: *const Information,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let refuse = |reason: &str| {
        eprintln!("stackhound: {reason}");
        1
    };
    // SAFETY: the emulator passes its description, with strings that end with a zero byte.
    let (information, target) = unsafe { (&*information, CStr::from_ptr((*information).target)) };
    if target != c"x86_64" {
        return refuse("expected an emulator of x86-64");
    }
    if information.is_system && information.processors != 1 {
        return refuse("only systems with one processor can be recorded: use -smp 1");
    }
    let descriptor = |name: &str| {
        // SAFETY: there are `count` strings.
        (0..count as usize).find_map(|index| unsafe {
            let text = CStr::from_ptr(*arguments.add(index)).to_str().ok()?;
            text.strip_prefix(name)?.parse::<c_int>().ok()
        })
    };
    let (Some(memory), Some(output), Some(input)) =
        (descriptor("memory="), descriptor("output="), descriptor("input="))
    else {
        return refuse("expected descriptors: the arguments memory=, output= and input=");
    };
    let api = match Api::find() {
        Ok(api) => api,
        Err(name) => {
            let name = name.to_string_lossy();
            return refuse(&format!("this version of QEMU has no {name}; expected version 10 or later"));
        }
    };
    // SAFETY: the recorder passes open descriptors that nothing else uses.
    let [memory, output, input] =
        [memory, output, input].map(|descriptor| unsafe { File::from_raw_fd(descriptor) });
    let Some(ring) = map(&memory) else { return refuse("the shared memory cannot be mapped") };
    if !information.is_system {
        user::install(id, api, ring, output);
        return 0;
    }
    let plugin = Box::new(Plugin {
        api,
        registers: Registers::default(),
        executed: std::ptr::null_mut(),
        scoreboard: (api.scoreboard_new)(size_of::<u64>()),
        buffer: (api.byte_array_new)(),
        observer: Observer::new(Channel::new(ring, output), input),
    });
    PLUGIN.store(Box::into_raw(plugin), Ordering::Relaxed);
    (api.register_vcpu_init_cb)(id, processor_started);
    (api.register_vcpu_tb_trans_cb)(id, block_translated);
    (api.register_atexit_cb)(id, exited, std::ptr::null_mut());
    0
}

unsafe extern "C" {
    fn mmap(
        address: *mut c_void,
        length: usize,
        access: c_int,
        kind: c_int,
        descriptor: c_int,
        offset: i64,
    ) -> *mut c_void;
}

/// Maps the memory that is shared with the recorder, for as long as the process exists.
fn map(memory: &File) -> Option<&'static Ring> {
    const READ_AND_WRITE: c_int = 3;
    const SHARED: c_int = 1;
    const FAILED: usize = usize::MAX;
    let length = size_of::<Ring>();
    // SAFETY: the system chooses the address, and checks the descriptor.
    let mapped = unsafe { mmap(std::ptr::null_mut(), length, READ_AND_WRITE, SHARED, memory.as_raw_fd(), 0) };
    // SAFETY: the mapping has this length, is never removed, and both sides access it as atomic words.
    (mapped.addr() != FAILED).then(|| unsafe { &*mapped.cast() })
}

extern "C" fn processor_started(_: Id, processor: c_uint) {
    // SAFETY: as in `with`.
    let plugin = unsafe { &mut *PLUGIN.load(Ordering::Relaxed) };
    plugin.executed = (plugin.api.scoreboard_find)(plugin.scoreboard, processor).cast();
    plugin.registers = registers(plugin.api);
}

/// Finds the registers of the processor that makes this call.
pub(crate) fn registers(api: Api) -> Registers {
    let mut registers = Registers::default();
    let array = (api.get_registers)();
    // SAFETY: the emulator returns an array of `length` descriptions.
    let descriptions = unsafe {
        let Array { data, length } = *array;
        std::slice::from_raw_parts(data.cast::<api::RegisterDescription>(), length as usize)
    };
    for description in descriptions {
        // SAFETY: the name ends with a zero byte.
        let name = unsafe { CStr::from_ptr(description.name) };
        if let Some(number) = NAMES.iter().position(|&known| known == name) {
            registers.general[number].get_or_insert(Handle(description.handle));
        } else if name == c"rip" {
            registers.rip.get_or_insert(Handle(description.handle));
        }
    }
    registers
}

extern "C" fn block_translated(_: Id, block: *mut Block) {
    // SAFETY: as in `with`.
    let (api, scoreboard) = unsafe {
        let plugin = &*PLUGIN.load(Ordering::Relaxed);
        (plugin.api, plugin.scoreboard)
    };
    let executed = Counter { scoreboard, offset: 0 };
    let count = (api.tb_n_insns)(block);
    let mut after_load = false;
    let mut first = 0;
    // Instructions that cannot stop the block are counted with the next one that can.
    let mut uncounted = 0;
    for index in 0..count {
        let instruction = (api.tb_get_insn)(block, index);
        let address = (api.insn_vaddr)(instruction);
        if index == 0 {
            first = address;
            let vector = with(|observer, view| observer.handler_at(address, view));
            if let Some(vector) = vector {
                let known =
                    known(Instruction { address, block: first, length: 0, effect: None, number: vector });
                (api.register_vcpu_insn_exec_cb)(instruction, interrupted, api::READS_REGISTERS, known);
            }
        } else if after_load {
            (api.register_vcpu_insn_exec_cb)(
                instruction,
                completed,
                api::READS_REGISTERS,
                std::ptr::null_mut(),
            );
        }
        after_load = false;
        if let Some(number) = with(|observer, _| observer.hook_at(address)) {
            let known = known(Instruction { address, block: first, length: 0, effect: None, number });
            (api.register_vcpu_insn_exec_cb)(instruction, hooked, api::READS_REGISTERS, known);
        }
        let mut bytes = [0_u8; 16];
        let length = (api.insn_size)(instruction).min(bytes.len());
        let read = (api.insn_data)(instruction, bytes.as_mut_ptr().cast(), length).min(length);
        let bytes = &bytes[..read];
        let effect = decode::effect(bytes).or_else(|| jump(address, bytes).map(Effect::Jump));
        uncounted += 1;
        if effect.is_some() || index + 1 == count || !decode::completes(bytes) {
            (api.register_vcpu_insn_exec_inline_per_vcpu)(instruction, api::ADD, executed, uncounted);
            uncounted = 0;
        }
        let Some(effect) = effect else { continue };
        let whole =
            Instruction { address, block: first, length: length as u8, effect: Some(effect), number: 0 };
        let kept = || known(whole);
        match effect {
            Effect::Repeated => {
                (api.register_vcpu_insn_exec_cb)(instruction, repeated, api::NO_REGISTERS, kept());
            }
            Effect::SetsInterruptTable => {
                (api.register_vcpu_mem_cb)(
                    instruction,
                    interrupt_table_read,
                    api::NO_REGISTERS,
                    api::READS,
                    kept(),
                );
            }
            Effect::Jump(Target::Memory) => {
                (api.register_vcpu_mem_cb)(instruction, loaded, api::READS_REGISTERS, api::READS, kept());
            }
            Effect::Jump(_) => {
                (api.register_vcpu_insn_exec_cb)(instruction, jumps, api::READS_REGISTERS, kept());
            }
            Effect::Call(Target::Memory) => {
                let accesses = api::READS_AND_WRITES;
                (api.register_vcpu_mem_cb)(instruction, accessed, api::NO_REGISTERS, accesses, kept());
            }
            Effect::Call(Target::Register(_)) => {
                (api.register_vcpu_mem_cb)(instruction, stored, api::READS_REGISTERS, api::WRITES, kept());
            }
            Effect::Call(Target::Relative(distance)) => {
                let (called, userdata): (api::OnAccess, _) =
                    match DirectCall::new(address, length as u8, distance) {
                        Some(DirectCall(word)) => (called, word as usize as *mut c_void),
                        None => (stored, kept()),
                    };
                (api.register_vcpu_mem_cb)(instruction, called, api::NO_REGISTERS, api::WRITES, userdata);
            }
            Effect::Return { freed } => {
                let PlainReturn(word) = PlainReturn::new(address, length as u8);
                let (returned, userdata): (api::OnAccess, _) = match freed {
                    0 => (returned, word as usize as *mut c_void),
                    _ => (loaded, kept()),
                };
                (api.register_vcpu_mem_cb)(instruction, returned, api::NO_REGISTERS, api::READS, userdata);
            }
            _ => {
                (api.register_vcpu_insn_exec_cb)(instruction, begins, api::READS_REGISTERS, kept());
                after_load = effect == Effect::LoadsStackPointer;
            }
        }
    }
}

/// Returns the target of a jump of the kernel that may lead to another function.
fn jump(address: u64, bytes: &[u8]) -> Option<Target> {
    if address < KERNEL {
        return None;
    }
    let leaves = |distance: &i32| {
        let next = address.wrapping_add(bytes.len() as u64);
        let target = next.wrapping_add_signed(i64::from(*distance));
        with(|observer, _| observer.leaves_function(address, target))
    };
    match decode::direct_jump(bytes) {
        Some(distance) => Some(distance).filter(leaves).map(Target::Relative),
        None => decode::indirect_jump(bytes),
    }
}

fn known(instruction: Instruction) -> *mut c_void {
    with(|observer, _| observer.keep(instruction)) as usize as *mut c_void
}

extern "C" fn begins(_: c_uint, instruction: *mut c_void) {
    with(|observer, view| observer.begins(instruction as usize as u32, view));
}

extern "C" fn jumps(_: c_uint, instruction: *mut c_void) {
    with(|observer, view| observer.jumps(instruction as usize as u32, view));
}

extern "C" fn completed(_: c_uint, _: *mut c_void) {
    with(|observer, view| observer.completed(view));
}

extern "C" fn interrupted(_: c_uint, instruction: *mut c_void) {
    with(|observer, view| observer.handler_begins(instruction as usize as u32, view));
}

extern "C" fn hooked(_: c_uint, instruction: *mut c_void) {
    with(|observer, view| observer.hook_begins(instruction as usize as u32, view));
}

extern "C" fn repeated(_: c_uint, instruction: *mut c_void) {
    with(|observer, view| observer.repeated(instruction as usize as u32, view));
}

extern "C" fn interrupt_table_read(_: c_uint, access: u32, _: u64, _: *mut c_void) {
    with(|observer, view| observer.interrupt_table_read((view.api.mem_get_value)(access).low));
}

extern "C" fn called(_: c_uint, _: u32, address: u64, word: *mut c_void) {
    with(|observer, view| observer.called(DirectCall(word as usize as u64), address, view));
}

extern "C" fn returned(_: c_uint, access: u32, address: u64, word: *mut c_void) {
    with(|observer, view| {
        let value = |view: &mut View<'_>| (view.api.mem_get_value)(access).low;
        observer.returned(PlainReturn(word as usize as u64), address, value, view);
    });
}

extern "C" fn stored(_: c_uint, access: u32, address: u64, instruction: *mut c_void) {
    has_accessed(true, access, address, instruction);
}

extern "C" fn loaded(_: c_uint, access: u32, address: u64, instruction: *mut c_void) {
    has_accessed(false, access, address, instruction);
}

extern "C" fn accessed(_: c_uint, access: u32, address: u64, instruction: *mut c_void) {
    let is_store = with(|_, view| (view.api.mem_is_store)(access));
    has_accessed(is_store, access, address, instruction);
}

fn has_accessed(is_store: bool, access: u32, address: u64, instruction: *mut c_void) {
    with(|observer, view| {
        let value = (view.api.mem_get_value)(access).low;
        observer.accessed(instruction as usize as u32, is_store, address, value, view);
    });
}

extern "C" fn exited(_: Id, _: *mut c_void) {
    with(|observer, view| observer.exited(view));
}
