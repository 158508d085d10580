//! The load configuration, which the system's loader reads for control flow guard.
//!
//! Usually the C runtime provides it. The linker defines the symbols that begin with `__guard_`.
//! Some of them are numbers instead of addresses, so this module is written in assembly. If the
//! kernel checks indirect calls, its loader replaces the two pointers; otherwise they point to the
//! two functions below, which check nothing. The layout is that of `IMAGE_LOAD_CONFIG_DIRECTORY64`,
//! up to the table of long jumps.

core::arch::global_asm!(
    ".section .text,\"xr\"",
    ".p2align 4",
    "stackhound_guard_check: ret",
    ".p2align 4",
    "stackhound_guard_dispatch: jmp rax",
    ".section .rdata,\"dr\"",
    ".p2align 3",
    ".globl __guard_check_icall_fptr",
    "__guard_check_icall_fptr: .quad stackhound_guard_check",
    ".globl __guard_dispatch_icall_fptr",
    "__guard_dispatch_icall_fptr: .quad stackhound_guard_dispatch",
    ".globl _load_config_used",
    ".p2align 3",
    "_load_config_used:",
    ".long 0xc0",
    // The fields from the time stamp to the security cookie, and the exception handlers of 32-bit
    // code, are not used.
    ".zero 0x70 - 4",
    ".quad __guard_check_icall_fptr",
    ".quad __guard_dispatch_icall_fptr",
    ".quad __guard_fids_table",
    ".quad __guard_fids_count",
    ".long __guard_flags",
    // Code integrity.
    ".zero 12",
    ".quad __guard_iat_table",
    ".quad __guard_iat_count",
    ".quad __guard_longjmp_table",
    ".quad __guard_longjmp_count",
    ".text",
);
