//! Scripts for entries into the kernel, as x86-64 Linux executes them. The expected items were derived
//! from the rules by hand.
//!
//! User stacks are near 1000. Memory of the kernel: the stack of a thread from 90000000 to 90004000 and
//! of another one from 90004000 to 90008000, the entry stack below 90011000, that of interrupts below
//! 90024000, and that of exceptions below 90032000.

use super::notation::check;

const DECLARED: &str = "declare 90000000 90004000 Kernel |
    declare 90004000 90008000 Kernel |
    declare 90010000 90011000 Interrupt |
    declare 90020000 90024000 Interrupt |
    declare 90030000 90032000 Interrupt |";

#[track_caller]
fn check_declared(script: &str) {
    check(&format!("{DECLARED}\n{script}"));
}

/// The kernel returns by way of the entry stack.
#[test]
fn a_system_call() {
    check(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8              | open 0 Call 500
         system 80000100 ff8        |
         other 80000103 ff8         |
         dynamic 80000110 90004000  | new 1 Kernel, enter 1, open 1 Call 80000100
         static 80000112 90003f58   |
         call 80000500 90003f50     | open 1 Call 80000500
         ret 80000117 90003f58      | close 1 Return
         dynamic 80000120 90011000  | new 2 Kernel, enter 2, open 2 Call 80000100
         static 80000122 90010ff0   |
         dynamic 80000124 ff8       | enter 0
         system 502 ff8             | close 2 InterruptReturn, close 1 InterruptReturn
         ret 105 1000               | close 0 Return
         system 80000100 1000       |
         dynamic 80000110 90004000  | enter 1, open 1 Call 80000100
         static 80000112 90003f58   |
         iret 107 1000              | close 1 InterruptReturn, enter 0",
    );
}

/// With separate page tables, the entry point computes in the stack pointer.
#[test]
fn a_pointer_that_the_entry_point_computes_in_is_not_a_stack() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         system 80000100 1000       |
         dynamic 80000103 12346000  |
         other 80000106 12345000    |
         dynamic 80000109 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         dynamic 80000124 1000      | enter 0
         system 102 1000            | close 1 InterruptReturn",
    );
}

#[test]
fn a_system_call_that_loads_no_stack() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8              | open 0 Call 500
         system 80000100 ff8        |
         dynamic 80000103 12346000  |
         system 502 ff8             |
         ret 105 1000               | close 0 Return",
    );
}

#[test]
fn an_interrupt_from_user_mode_by_way_of_the_entry_stack() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8              | open 0 Call 500
         int 90010fd8 80000200 90010fd8 | new 1 Interrupt 90010000-90011000 of the processor, enter 1, open 1 Interrupt 80000200
         static 80000202 90010f50   |
         call 80000600 90010f48     | open 1 Call 80000600
         ret 80000207 90010f50      | close 1 Return
         dynamic 80000210 90003f50  | new 2 Kernel 90000000-90004000, enter 2, open 2 Interrupt 80000200
         call 80000700 90003f48     | open 2 Call 80000700
         ret 80000215 90003f50      | close 2 Return
         static 80000216 90003fd8   |
         iret 500 ff8               | close 2 InterruptReturn, close 1 InterruptReturn, enter 0
         int 90010fd8 80000300 90010fd8 | enter 1, open 1 Interrupt 80000300
         dynamic 80000310 90003f50  | enter 2, open 2 Interrupt 80000300
         iret 500 ff8               | close 2 InterruptReturn, close 1 InterruptReturn, enter 0
         ret 105 1000               | close 0 Return",
    );
}

/// `error_entry` of Linux saves the registers below its return address, which it moves below them.
#[test]
fn an_entry_point_whose_function_moves_its_return_address() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         int 90010fd8 80000200 90010fd0 | new 1 Interrupt 90010000-90011000 of the processor, enter 1, open 1 Interrupt 80000200
         call 80000600 90010fc8     | open 1 Call 80000600
         static 80000602 90010f50   |
         call 80000900 90010f48     | open 1 Call 80000900
         ret 80000607 90010f50      | close 1 Return
         static 80000608 90010f48   |
         ret 80000205 90010f50      | close 1 Return
         dynamic 80000210 90003f50  | new 2 Kernel 90000000-90004000, enter 2, open 2 Interrupt 80000200
         static 80000212 90003fd8   |
         iret 100 1000              | close 2 InterruptReturn, close 1 InterruptReturn, enter 0",
    );
}

/// With separate page tables, the kernel copies the registers back to the entry stack.
#[test]
fn a_return_by_way_of_the_entry_stack() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         int 90010fd8 80000200 90010fd8 | new 1 Interrupt 90010000-90011000 of the processor, enter 1, open 1 Interrupt 80000200
         dynamic 80000210 90003f50  | new 2 Kernel 90000000-90004000, enter 2, open 2 Interrupt 80000200
         dynamic 80000220 90011000  | enter 1
         static 80000222 90010fd8   |
         iret 100 1000              | close 1 InterruptReturn, close 2 InterruptReturn, enter 0",
    );
}

/// The handler runs on the stack of interrupts.
#[test]
fn an_interrupt_in_kernel_mode() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         system 80000100 1000       |
         dynamic 80000110 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         call 80000500 90003ff8     | open 1 Call 80000500
         int 90003fc8 80000200 90003fc8 | open 1 Interrupt 80000200
         call 80000700 90003fc0     | open 1 Call 80000700
         dynamic 80000702 90023ff8  | new 2 Interrupt 90020000-90024000 of the processor, enter 2, open 2 Manual 80000702
         call 80000800 90023ff0     | open 2 Call 80000800
         int 90023fb8 80000300 90023fb0 | open 2 Interrupt 80000300
         static 80000301 90023fb8   |
         iret 80000801 90023ff0     | close 2 InterruptReturn
         ret 80000707 90023ff8      | close 2 Return
         dynamic 80000709 90003fc0  | close 2 Unwound, enter 1
         ret 80000205 90003fc8      | close 1 Return
         iret 80000501 90003ff8     | close 1 InterruptReturn
         ret 80000115 90004000      | close 1 Return
         iret 102 1000              | close 1 InterruptReturn, enter 0",
    );
}

/// Interrupts and exceptions of the kernel itself that have no stack of their own.
#[test]
fn a_page_fault_in_kernel_mode() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         system 80000100 1000       |
         dynamic 80000110 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         call 80000500 90003ff8     | open 1 Call 80000500
         int 90003fc8 80000300 90003fc0 | open 1 Interrupt 80000300
         call 80000900 90003fb8     | open 1 Call 80000900
         dynamic 80000920 90003ff8  | close 1 Unwound, close 1 Unwound
         ret 80000115 90004000      | close 1 Return",
    );
}

#[test]
fn a_page_fault_in_user_mode() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         int 90010fd8 80000300 90010fd0 | new 1 Interrupt 90010000-90011000 of the processor, enter 1, open 1 Interrupt 80000300
         dynamic 80000310 90003f50  | new 2 Kernel 90000000-90004000, enter 2, open 2 Interrupt 80000300
         iret 100 1000              | close 2 InterruptReturn, close 1 InterruptReturn, enter 0
         static 101 ff0             |",
    );
}

#[test]
fn an_exception_with_its_own_stack() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         system 80000100 1000       |
         int 90031fd8 80000400 90031fd8 | new 1 Interrupt 90030000-90032000 of the processor, enter 1, open 1 Interrupt 80000400
         call 80000900 90031fd0     | open 1 Call 80000900
         ret 80000405 90031fd8      | close 1 Return
         iret 80000103 1000         | close 1 InterruptReturn, enter 0
         dynamic 80000110 90004000  | new 2 Kernel 90000000-90004000, enter 2, open 2 Call 80000100
         call 80000500 90003ff8     | open 2 Call 80000500
         int 90031fd8 80000400 90031fd8 | enter 1, open 1 Interrupt 80000400
         iret 80000501 90003ff8     | close 1 InterruptReturn, enter 2
         ret 80000115 90004000      | close 2 Return
         dynamic 80000124 1000      | enter 0
         int 90031fd8 80000400 90031fd8 | enter 1, open 1 Interrupt 80000400
         iret 80000125 1000         | close 1 InterruptReturn, enter 0
         system 102 1000            | close 2 InterruptReturn",
    );
}

/// The first thread waits in a system call, and the second one returns to user mode.
#[test]
fn a_thread_switch_in_kernel_mode() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         system 80000100 1000       |
         dynamic 80000110 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         call 80000500 90003ff8     | open 1 Call 80000500
         switch 2 80000510 90007f00 | new 2 Kernel 90004000-90008000, enter 2, open 2 Unknown 80000510
         ret 80000600 90007f08      | close 2 Return, below 2 80000600
         space 2                    |
         iret 700 1000              | close 2 InterruptReturn, new 3 User, enter 3, open 3 Unknown 700
         int 90010fd8 80000200 90010fd8 | new 4 Interrupt 90010000-90011000 of the processor, enter 4, open 4 Interrupt 80000200
         dynamic 80000210 90007f50  | enter 2, open 2 Interrupt 80000200
         call 80000500 90007f48     | open 2 Call 80000500
         switch 1 80000510 90003ff8 | enter 1
         ret 80000115 90004000      | close 1 Return
         space 0                    |
         iret 102 1000              | close 1 InterruptReturn, close 4 InterruptReturn, enter 0
         system 80000100 1000       |
         dynamic 80000110 90004000  | enter 1, open 1 Call 80000100
         call 80000500 90003ff8     | open 1 Call 80000500
         switch 2 80000510 90007f48 | enter 2
         ret 80000215 90007f50      | close 2 Return
         space 2                    |
         iret 700 1000              | close 2 InterruptReturn, enter 3",
    );
}

/// The same without knowledge of threads and of memory. The stacks are adjacent.
#[test]
fn undeclared_stacks_of_the_kernel_are_distinguished() {
    check(
        "start 80000500 90003f00    | new 0 Kernel, enter 0 @0, open 0 Unknown 80000500 @0
         call 80000600 90003ef8     | open 0 Call 80000600
         dynamic 80000601 90007f00  | new 1 Kernel, enter 1, open 1 Unknown 80000601
         call 80000600 90007ef8     | open 1 Call 80000600
         int 9000afd8 80000400 9000afd8 | new 2 Kernel, enter 2, open 2 Interrupt 80000400
         iret 80000601 90007ef8     | close 2 InterruptReturn, enter 1
         dynamic 80000602 90003ef8  | enter 0
         ret 80000505 90003f00      | close 0 Return",
    );
}

/// A handler runs between two parts of a function, and a system call returns from it.
#[test]
fn a_signal_on_return_to_user_mode() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8              | open 0 Call 500
         int 90010fd8 80000200 90010fd8 | new 1 Interrupt 90010000-90011000 of the processor, enter 1, open 1 Interrupt 80000200
         dynamic 80000210 90003f50  | new 2 Kernel 90000000-90004000, enter 2, open 2 Interrupt 80000200
         poke df8 3f0               |
         signal e00 900 df8         | close 2 InterruptReturn, close 1 InterruptReturn, enter 0, open 0 Interrupt 3f0, open 0 Manual 900
         call 990 df0               | open 0 Call 990
         int 90010fd8 80000200 90010fd8 | enter 1, open 1 Interrupt 80000200
         dynamic 80000210 90003f50  | enter 2, open 2 Interrupt 80000200
         iret 991 df0               | close 2 InterruptReturn, close 1 InterruptReturn, enter 0
         ret 905 df8                | close 0 Return
         ret 3f0 e00                | close 0 Return
         system 80000100 e00        |
         dynamic 80000110 90004000  | enter 2, open 2 Call 80000100
         iret 500 ff8               | close 2 InterruptReturn, close 0 InterruptReturn, enter 0
         ret 105 1000               | close 0 Return",
    );
}

/// The producer of the steps does not know that the system delivers a signal.
#[test]
fn code_that_the_system_starts_on_a_user_stack() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8              | open 0 Call 500
         system 80000100 ff8        |
         dynamic 80000110 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         iret 900 df8               | close 1 InterruptReturn, enter 0, open 0 Manual 900
         system 80000100 e00        |
         dynamic 80000110 90004000  | enter 1, open 1 Call 80000100
         iret 502 ff8               | close 1 InterruptReturn, enter 0, close 0 Unwound
         ret 105 1000               | close 0 Return",
    );
}

/// The kernel thread that becomes the first process.
#[test]
fn a_stack_that_begins_in_kernel_mode() {
    check(
        "start 80000600 90003f00    | new 0 Kernel, enter 0 @0, open 0 Unknown 80000600 @0
         call 80000700 90003ef8     | open 0 Call 80000700
         ret 80000605 90003f00      | close 0 Return
         iret 100 1000              | close 0 InterruptReturn, new 1 User, enter 1, open 1 Unknown 100
         system 80000100 1000       |
         dynamic 80000110 90004000  | enter 0, open 0 Call 80000100",
    );
}

/// Boot code uses low memory, before there is a user mode.
#[test]
fn low_memory_may_be_a_stack_of_boot_code() {
    check(
        "start 80000100 7000        | new 0 Kernel, enter 0 @0, open 0 Unknown 80000100 @0
         call 80000200 6ff8         | open 0 Call 80000200
         dynamic 80000300 200000    | new 1 Kernel, enter 1, open 1 Unknown 80000300
         dynamic 80000201 6ff8      | close 1 Unwound, enter 0
         ret 80000105 7000          | close 0 Return
         dynamic 80000400 90004000  | close 0 Unwound, new 2 Kernel, enter 2, open 2 Unknown 80000400",
    );
}

/// An entry finds frames on its stack only if the trace has lost track.
#[test]
fn an_entry_begins_on_an_empty_stack() {
    check_declared(
        "start 80000500 90003f00    | new 0 Kernel 90000000-90004000, enter 0 @0, open 0 Unknown 80000500 @0
         call 80000600 90003ef8     | open 0 Call 80000600
         switch 2 80000601 90007f00 | new 1 Kernel 90004000-90008000, enter 1, open 1 Unknown 80000601
         iret 100 1000              | close 1 InterruptReturn, new 2 User, enter 2, open 2 Unknown 100
         system 80000100 1000       |
         dynamic 80000110 90004000  | enter 0, close 0 Unwound, close 0 Unwound, open 0 Call 80000100",
    );
}

#[test]
fn the_trace_of_a_system_begins_with_an_entry_or_a_return() {
    check(
        "unseen 100 1000            |
         int 90010fd8 80000200 90010fd8 | new 0 Kernel, enter 0, open 0 Interrupt 80000200
         iret 100 1000              | close 0 InterruptReturn, new 1 User, enter 1, open 1 Unknown 100",
    );
    check(
        "unseen 80000200 90010fd8   |
         iret 100 1000              | new 0 User, enter 0, open 0 Unknown 100",
    );
}

/// The page table of the first program in space 1 is used again for another one.
#[test]
fn a_program_starts_in_a_space_without_stacks() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         system 80000100 1000       |
         dynamic 80000110 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         space 1                    |
         iret 200 1800              | close 1 InterruptReturn, new 2 User, enter 2, open 2 Unknown 200
         call 300 17f8              | open 2 Call 300
         system 80000100 17f8       |
         dynamic 80000110 90004000  | enter 1, open 1 Call 80000100
         switch 2 80000510 90007f00 | new 3 Kernel 90004000-90008000, enter 3, open 3 Unknown 80000510
         space 0                    |
         iret 102 1000              | close 3 InterruptReturn, enter 0
         system 80000100 1000       |
         dynamic 80000110 90008000  | enter 3, open 3 Call 80000100
         space 1                    |
         iret 400 1900              | close 3 InterruptReturn, close 2 Abandoned, close 2 Abandoned, new 4 User, enter 4, open 4 Unknown 400",
    );
}

/// Thread 2 starts on the stack of a thread that has ended, and thread 3 on that of its creator.
#[test]
fn a_thread_starts_on_a_stack_without_frames_or_on_that_of_its_creator() {
    check_declared(
        "start 100 1000             | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call 500 ff8               | open 0 Call 500
         static 501 f80             |
         system 80000100 f80        |
         dynamic 80000110 90004000  | new 1 Kernel 90000000-90004000, enter 1, open 1 Call 80000100
         switch 2 80000510 90007f00 | new 2 Kernel 90004000-90008000, enter 2, open 2 Unknown 80000510
         iret 700 ff0               | close 2 InterruptReturn, close 0 Abandoned, close 0 Abandoned, new 3 User, enter 3, open 3 Unknown 700
         call 800 fe8               | open 3 Call 800
         system 80000100 fe8        |
         dynamic 80000110 90008000  | enter 2, open 2 Call 80000100
         switch 3 80000510 9000bf00 | new 4 Kernel, enter 4, open 4 Unknown 80000510
         iret 802 fe8               | close 4 InterruptReturn, enter 3
         ret 705 ff0                | close 3 Return",
    );
}
