//! The functions of the emulator that the plugin uses, looked up by name when it is loaded.
//!
//! The declarations follow version 4 of the plugin interface (QEMU 9.2), documented in
//! <https://www.qemu.org/docs/master/devel/tcg-plugins.html>.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The version of the interface.
pub const VERSION: c_int = 4;

/// A block of instructions that is being translated.
#[repr(C)]
pub struct Block {
    opaque: [u8; 0],
}

/// An instruction of a block that is being translated.
#[repr(C)]
pub struct Instruction {
    opaque: [u8; 0],
}

/// Memory with one element for each processor.
#[repr(C)]
pub struct Scoreboard {
    opaque: [u8; 0],
}

/// A number in each element of a scoreboard.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Counter {
    pub scoreboard: *mut Scoreboard,
    pub offset: usize,
}

/// The start of `GArray` and of `GByteArray`.
#[repr(C)]
pub struct Array {
    pub data: *mut u8,
    pub length: c_uint,
}

/// The description of a register.
#[repr(C)]
pub struct RegisterDescription {
    pub handle: *mut c_void,
    pub name: *const c_char,
    pub feature: *const c_char,
}

/// What the emulator tells about itself.
#[repr(C)]
pub struct Information {
    pub target: *const c_char,
    pub version_least: c_int,
    pub version: c_int,
    pub is_system: bool,
    pub processors: c_int,
    pub processors_max: c_int,
}

/// The value of a memory access.
#[repr(C)]
pub struct Value {
    pub kind: c_int,
    pub low: u64,
    pub high: u64,
}

pub type Id = u64;
pub type OnProcessor = extern "C" fn(Id, c_uint);
pub type OnBlock = extern "C" fn(Id, *mut Block);
pub type OnExecution = extern "C" fn(c_uint, *mut c_void);
pub type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type OnSystemCall = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type OnSystemReturn = extern "C" fn(Id, c_uint, i64, i64);
pub type OnExit = extern "C" fn(Id, *mut c_void);

pub const NO_REGISTERS: c_int = 0;
pub const READS_REGISTERS: c_int = 1;
pub const ADD: c_int = 0;
pub const NOT_EQUAL: c_int = 3;
pub const READS: c_int = 1;
pub const WRITES: c_int = 2;
pub const READS_AND_WRITES: c_int = 3;

/// The functions, by the names that they have in the interface without `qemu_plugin_`.
#[derive(Clone, Copy)]
pub struct Api {
    pub register_vcpu_init_cb: extern "C" fn(Id, OnProcessor),
    pub register_vcpu_tb_trans_cb: extern "C" fn(Id, OnBlock),
    pub register_atexit_cb: extern "C" fn(Id, OnExit, *mut c_void),
    pub register_vcpu_tb_exec_cond_cb:
        extern "C" fn(*mut Block, OnExecution, c_int, c_int, Counter, u64, *mut c_void),
    pub register_vcpu_syscall_cb: extern "C" fn(Id, OnSystemCall),
    pub register_vcpu_syscall_ret_cb: extern "C" fn(Id, OnSystemReturn),
    pub register_vcpu_insn_exec_cb: extern "C" fn(*mut Instruction, OnExecution, c_int, *mut c_void),
    pub register_vcpu_insn_exec_inline_per_vcpu: extern "C" fn(*mut Instruction, c_int, Counter, u64),
    pub register_vcpu_mem_cb: extern "C" fn(*mut Instruction, OnAccess, c_int, c_int, *mut c_void),
    pub tb_n_insns: extern "C" fn(*const Block) -> usize,
    pub tb_get_insn: extern "C" fn(*const Block, usize) -> *mut Instruction,
    pub insn_data: extern "C" fn(*const Instruction, *mut c_void, usize) -> usize,
    pub insn_size: extern "C" fn(*const Instruction) -> usize,
    pub insn_vaddr: extern "C" fn(*const Instruction) -> u64,
    pub mem_is_store: extern "C" fn(u32) -> bool,
    pub mem_get_value: extern "C" fn(u32) -> Value,
    pub scoreboard_new: extern "C" fn(usize) -> *mut Scoreboard,
    pub scoreboard_find: extern "C" fn(*mut Scoreboard, c_uint) -> *mut c_void,
    pub get_registers: extern "C" fn() -> *mut Array,
    pub read_register: extern "C" fn(*mut c_void, *mut Array) -> c_int,
    pub read_memory_vaddr: extern "C" fn(u64, *mut Array, usize) -> bool,
    pub byte_array_new: extern "C" fn() -> *mut Array,
    pub byte_array_set_size: extern "C" fn(*mut Array, c_uint) -> *mut Array,
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Looks a function up in the program that has loaded this library. The error is its name.
///
/// # Safety
/// `F` must be the type of the function.
unsafe fn find<F: Copy>(name: &'static CStr) -> Result<F, &'static CStr> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a null handle searches all loaded objects, and the name ends with a zero byte.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    if found.is_null() {
        return Err(name);
    }
    // SAFETY: the caller states the type. Function pointers have the representation of pointers, and
    // this one is not null.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

impl Api {
    /// Looks all functions up. The error is the name of a missing one.
    pub fn find() -> Result<Api, &'static CStr> {
        // SAFETY: the types of the fields are those of the interface.
        unsafe {
            Ok(Api {
                register_vcpu_init_cb: find(c"qemu_plugin_register_vcpu_init_cb")?,
                register_vcpu_tb_trans_cb: find(c"qemu_plugin_register_vcpu_tb_trans_cb")?,
                register_atexit_cb: find(c"qemu_plugin_register_atexit_cb")?,
                register_vcpu_tb_exec_cond_cb: find(c"qemu_plugin_register_vcpu_tb_exec_cond_cb")?,
                register_vcpu_syscall_cb: find(c"qemu_plugin_register_vcpu_syscall_cb")?,
                register_vcpu_syscall_ret_cb: find(c"qemu_plugin_register_vcpu_syscall_ret_cb")?,
                register_vcpu_insn_exec_cb: find(c"qemu_plugin_register_vcpu_insn_exec_cb")?,
                register_vcpu_insn_exec_inline_per_vcpu: find(
                    c"qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu",
                )?,
                register_vcpu_mem_cb: find(c"qemu_plugin_register_vcpu_mem_cb")?,
                tb_n_insns: find(c"qemu_plugin_tb_n_insns")?,
                tb_get_insn: find(c"qemu_plugin_tb_get_insn")?,
                insn_data: find(c"qemu_plugin_insn_data")?,
                insn_size: find(c"qemu_plugin_insn_size")?,
                insn_vaddr: find(c"qemu_plugin_insn_vaddr")?,
                mem_is_store: find(c"qemu_plugin_mem_is_store")?,
                mem_get_value: find(c"qemu_plugin_mem_get_value")?,
                scoreboard_new: find(c"qemu_plugin_scoreboard_new")?,
                scoreboard_find: find(c"qemu_plugin_scoreboard_find")?,
                get_registers: find(c"qemu_plugin_get_registers")?,
                read_register: find(c"qemu_plugin_read_register")?,
                read_memory_vaddr: find(c"qemu_plugin_read_memory_vaddr")?,
                byte_array_new: find(c"g_byte_array_new")?,
                byte_array_set_size: find(c"g_byte_array_set_size")?,
            })
        }
    }
}
