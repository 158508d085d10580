//! One script for each rule. The expected items were derived from the rule by hand.

use super::notation::check;

#[test]
fn a_call_returns() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         static 501 ff0     |
         call  600 fe8      | open 0 Call 600
         ret   506 ff0      | close 0 Return
         static 507 ff8     |
         ret   105 1000     | close 0 Return
         other 106 1000     |",
    );
}

#[test]
fn a_frame_pointer_moves_the_stack_pointer_within_its_stack() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         static 501 800     |
         dynamic 502 ff8    |
         ret   105 1000     | close 0 Return",
    );
}

#[test]
fn a_long_jump_unwinds_all_skipped_frames() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         call  600 ff0      | open 0 Call 600
         call  700 fe8      | open 0 Call 700
         dynamic 501 ff8    | close 0 Unwound, close 0 Unwound
         ret   105 1000     | close 0 Return",
    );
}

#[test]
fn a_return_to_another_address_is_reported() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         poke  ff8 900      |
         ret   900 1000     | close 0 ReturnElsewhere",
    );
}

#[test]
fn a_return_frees_arguments() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         static 101 ff0     |
         call  500 fe8      | open 0 Call 500
         ret   106 1000     | close 0 Return",
    );
}

#[test]
fn a_tail_call_keeps_the_frame() {
    let counts = check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         static 501 ff0     |
         jmp   510 ff0      |
         static 511 ff8     |
         jmp   600 ff8      | jump 0 500 600
         jmp   700 ff8      | jump 0 600 700
         ret   105 1000     | close 0 Return
         jmp   800 1000     |",
    );
    assert_eq!(counts.tail_calls, 2);
}

/// The function `500` saves registers and moves its return address below them. `600` calls it twice.
#[test]
fn a_function_can_move_its_return_address() {
    check(
        "start 100 1000  | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call 600 ff8    | open 0 Call 600
         call 500 ff0    | open 0 Call 500
         static 501 fc0  |
         static 502 fb8  |
         ret 605 fc0     | close 0 Return
         static 606 ff0  |
         call 500 ff0    | open 0 Call 500
         static 501 fc0  |
         static 502 fb8  |
         ret 700 fc0     |
         static 701 ff0  |
         ret 60b ff8     | close 0 Return
         ret 105 1000    | close 0 Return",
    );
}

#[test]
fn a_return_to_a_pushed_address_is_a_jump() {
    let counts = check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         static 101 ff8     |
         ret   300 1000     |
         call  500 ff8      | open 0 Call 500
         static 501 ff0     |
         ret   600 ff8      | jump 0 500 600
         ret   305 1000     | close 0 Return",
    );
    assert_eq!(counts.returns_as_jumps, 2);
}

/// `call thunk`, and in it `call over; …; over: mov [rsp], rax; ret`.
#[test]
fn a_retpoline_is_a_jump() {
    let counts = check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  800 ff8      | open 0 Call 800
         call  80c ff0      |
         poke  ff0 500      |
         other 810 ff0      |
         ret   500 ff8      | jump 0 800 500
         static 501 ff0     |
         static 502 ff8     |
         ret   105 1000     | close 0 Return",
    );
    assert_eq!((counts.returns_as_jumps, counts.calls_without_frame), (1, 0));
}

/// The retpoline `800` is known when it is interrupted. Then it is in the function that `600` continues in,
/// and not at the end of that.
#[test]
fn an_interrupted_retpoline_is_a_jump() {
    let counts = check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  800 ff8      | open 0 Call 800
         call  80c ff0      |
         ret   500 ff8      | jump 0 800 500
         ret   105 1000     | close 0 Return
         call  800 ff8      | open 0 Call 800
         call  80c ff0      |
         int   fd8 900 fd8  | open 0 Interrupt 900
         iret  80c ff0      | close 0 InterruptReturn
         ret   500 ff8      | jump 0 800 500
         ret   10a 1000     | close 0 Return
         call  600 ff8      | open 0 Call 600
         jmp   800 ff8      | jump 0 600 800
         call  80c ff0      |
         int   fd8 900 fd8  | open 0 Interrupt 900
         iret  80c ff0      | close 0 InterruptReturn
         ret   500 ff8      | jump 0 800 500
         static 501 fe8     |
         jmp   800 fe8      |
         call  80c fe0      |
         int   fc8 900 fc8  | open 0 Interrupt 900
         iret  80c fe0      | close 0 InterruptReturn
         ret   700 fe8      |
         static 701 ff8     |
         ret   10f 1000     | close 0 Return",
    );
    assert_eq!((counts.returns_as_jumps, counts.tail_calls), (4, 1));
}

/// Nothing is known of the call at `800`.
#[test]
fn an_interrupted_call_is_a_function() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  800 ff8      | open 0 Call 800
         call  80c ff0      |
         int   fd8 900 fd8  | open 0 Call 80c @3, open 0 Interrupt 900
         iret  80c ff0      | close 0 InterruptReturn
         ret   500 ff8      | close 0 ReturnElsewhere",
    );
}

/// The directly following function `110` jumps to `500` by a retpoline.
#[test]
fn a_function_that_jumps_is_no_retpoline() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  110 ff8      |
         call  120 ff0      |
         ret   500 ff8      | open 0 Call 110 @2, jump 0 110 500
         ret   105 1000     | close 0 Return",
    );
}

#[test]
fn reading_the_own_address_opens_no_frame() {
    let counts = check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  105 ff8      |
         static 106 1000    |
         call  500 ff8      | open 0 Call 500",
    );
    assert_eq!(counts.calls_without_frame, 1);
}

/// `call; call; add rsp, 16`, as in kernels.
#[test]
fn filling_the_return_predictor_opens_no_frame() {
    let counts = check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  106 ff8      |
         call  10c ff0      |
         static 110 1000    |",
    );
    assert_eq!(counts.calls_without_frame, 2);
}

/// More nested calls may be recursion.
#[test]
fn at_most_four_calls_are_doubted_at_once() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  106 ff8      |
         call  10c ff0      |
         call  112 fe8      |
         call  118 fe0      |
         call  11e fd8      | open 0 Call 106 @2, open 0 Call 10c @3, open 0 Call 112 @4, open 0 Call 118 @5
         call  500 fd0      | open 0 Call 11e @6, open 0 Call 500",
    );
}

#[test]
fn a_function_directly_after_its_caller_is_a_function() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  110 ff8      |
         ret   105 1000     | open 0 Call 110 @2, close 0 Return
         call  110 ff8      |
         call  500 ff0      | open 0 Call 110 @4, open 0 Call 500
         ret   115 ff8      | close 0 Return
         ret   10a 1000     | close 0 Return
         call  115 ff8      |
         other 116 ff8      |
         other 117 ff8      |
         other 118 ff8      |
         other 119 ff8      |
         other 11a ff8      |
         other 11b ff8      |
         other 11c ff8      |
         other 11d ff8      | open 0 Call 115 @8
         poke  ff8 900      |
         ret   900 1000     | close 0 ReturnElsewhere",
    );
}

#[test]
fn returns_from_before_the_trace_show_frames_below() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         ret   105 1000     | close 0 Return
         static 106 1010    |
         ret   600 1018     | close 0 Return, below 0 600
         static 601 1010    |
         ret   700 1018     |
         ret   800 1020     | close 0 Return, below 0 800",
    );
}

#[test]
fn the_stack_pointer_of_a_base_may_rise() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         static 101 1040    |
         static 102 1000    |
         ret   300 1008     |
         call  500 1000     | open 0 Call 500
         ret   305 1008     | close 0 Return",
    );
}

#[test]
fn coroutines_have_stacks_of_their_own() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         dynamic 700 80000  | new 1 Alternate, enter 1, open 1 Unknown 700
         call  800 7fff8    | open 1 Call 800
         static 801 7ffe0   |
         dynamic 501 ff8    | enter 0
         ret   105 1000     | close 0 Return
         dynamic 802 7ffe0  | enter 1
         static 803 7fff8   |
         ret   705 80000    | close 1 Return",
    );
}

#[test]
fn static_steps_never_change_the_stack() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 200 800000 | new 1 Alternate, enter 1, open 1 Unknown 200
         static 201 1000    |
         call  500 ff8      | open 1 Call 500
         ret   206 1000     | close 1 Return",
    );
}

#[test]
fn near_pointers_are_on_the_same_stack() {
    check(
        "start 100 100000   | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 101 f0000  |
         dynamic 102 e0000  |
         dynamic 103 cfff8  | new 1 Alternate, enter 1, open 1 Unknown 103",
    );
    check(
        "start 100 100000   | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 101 effff  |
         dynamic 102 dfffd  | new 1 Alternate, enter 1, open 1 Unknown 102",
    );
}

#[test]
fn used_memory_belongs_to_the_stack() {
    check(
        "start 100 100000    | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         static 101 d0000    |
         dynamic 700 8000000 | new 1 Alternate, enter 1, open 1 Unknown 700
         dynamic 102 d8000   | enter 0",
    );
}

#[test]
fn the_same_address_in_another_space_is_another_stack() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         space 1            |
         dynamic 700 1000   | new 1 Alternate, enter 1, open 1 Unknown 700
         space 0            |
         dynamic 101 1000   | enter 0",
    );
}

/// A full stack has no space left: its pointer equals the lowest address.
#[test]
fn the_pointer_of_a_full_stack_is_outside_its_memory() {
    check(
        "declare 2000 3000 User |
         start 100 2800     | new 0 User 2000-3000, enter 0 @0, open 0 Unknown 100 @0
         dynamic 101 2001   |
         dynamic 102 2000   | new 1 Alternate, enter 1, open 1 Unknown 102",
    );
}

#[test]
fn a_stack_whose_memory_is_reused_ends() {
    check(
        "declare 1000 2000 User |
         start 100 1800     | new 0 User 1000-2000, enter 0 @0, open 0 Unknown 100 @0
         declare 800 1800 User |
         declare 1800 2800 User | close 0 Abandoned, leave
         dynamic 101 1800   | new 1 User 800-1800, enter 1, open 1 Unknown 101",
    );
}

#[test]
fn only_memory_below_the_stack_pointer_can_be_released() {
    check(
        "declare 1000 3000 User |
         start 100 2000     | new 0 User 1000-3000, enter 0 @0, open 0 Unknown 100 @0
         release 1000 2000  |
         dynamic 101 2800   |
         release 1000 2801  | close 0 Abandoned, leave",
    );
}

#[test]
fn adjacent_declared_stacks_are_distinguished() {
    check(
        "declare 1000 2000 User |
         declare 2000 3000 Alternate |
         start 100 2000      | new 0 User 1000-2000, enter 0 @0, open 0 Unknown 100 @0
         call  500 1ff8      | open 0 Call 500
         dynamic 600 3000    | new 1 Alternate 2000-3000, enter 1, open 1 Unknown 600
         call  700 2ff8      | open 1 Call 700
         dynamic 501 1ff8    | enter 0
         dynamic 601 3000    | enter 1, close 1 Unwound
         dynamic 105 2000    | enter 0, close 0 Unwound
         dynamic 602 2ff0    | enter 1, open 1 Manual 602",
    );
}

#[test]
fn a_declared_stack_grows_downwards_by_use() {
    check(
        "declare 1000 2000 User |
         start 100 1100      | new 0 User 1000-2000, enter 0 @0, open 0 Unknown 100 @0
         static 101 800      |
         call  500 7f8       | open 0 Call 500
         static 501 700      |
         poke  6f0 3f0       |
         signal 6f8 900 6f0  | open 0 Interrupt 3f0, open 0 Manual 900
         ret   3f0 6f8       | close 0 Return
         iret  502 700       | close 0 InterruptReturn
         dynamic 700 50000   | new 1 Alternate, enter 1, open 1 Unknown 700
         dynamic 503 780     | enter 0
         static 504 7f8      |
         ret   106 800       | close 0 Return",
    );
}

/// As `swapcontext` does: the stack continues as if its last call had returned.
#[test]
fn entering_with_a_higher_pointer_unwinds() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         dynamic 700 80000  | new 1 Alternate, enter 1, open 1 Unknown 700
         dynamic 501 1000   | enter 0, close 0 Unwound
         static 502 ff8     |
         ret   105 1000     |",
    );
}

#[test]
fn entering_with_a_lower_pointer_opens_a_manual_frame() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         static 501 ff0     |
         system 700 80000   | new 1 User, enter 1, open 1 Unknown 700
         system 900 f00     | enter 0, open 0 Manual 900
         call  990 ef8      | open 0 Call 990
         ret   905 f00      | close 0 Return
         system 705 80000   | enter 1
         system 502 ff0     | enter 0, close 0 Unwound
         static 503 ff8     |
         ret   105 1000     | close 0 Return",
    );
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 700 80000  | new 1 Alternate, enter 1, open 1 Unknown 700
         dynamic 900 f00    | enter 0, open 0 Manual 900
         static 901 ff8     |
         ret   101 1000     | close 0 Return",
    );
}

#[test]
fn changed_return_addresses_are_found_on_entering() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         call  600 ff0      | open 0 Call 600
         call  700 fe8      | open 0 Call 700
         dynamic 800 80000  | new 1 Alternate, enter 1, open 1 Unknown 800
         poke  fe8 a00      |
         poke  ff0 b00      |
         dynamic 701 fe8    | enter 0, close 0 Replaced, close 0 Replaced, open 0 Damaged 701
         ret   a00 ff0      | jump 0 701 a00
         ret   b00 ff8      | close 0 Return
         ret   105 1000     | close 0 Return",
    );
}

#[test]
fn changed_return_addresses_further_down_are_found_when_they_become_the_top() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8      | open 0 Call 500
         call  600 ff0      | open 0 Call 600
         call  700 fe8      | open 0 Call 700
         dynamic 800 80000  | new 1 Alternate, enter 1, open 1 Unknown 800
         poke  ff0 b00      |
         dynamic 701 fe8    | enter 0
         ret   605 ff0      | close 0 Return, close 0 Replaced, open 0 Damaged 605
         ret   b00 ff8      | close 0 Return
         ret   105 1000     | close 0 Return",
    );
}

/// Changes by the program to its own active stack are detected when they are used.
#[test]
fn changes_on_the_active_stack_are_not_damage() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 800 80000  | new 1 Alternate, enter 1, open 1 Unknown 800
         dynamic 101 1000   | enter 0
         call  500 ff8      | open 0 Call 500
         call  600 ff0      | open 0 Call 600
         poke  ff8 b00      |
         ret   505 ff8      | close 0 Return
         ret   b00 1000     | close 0 ReturnElsewhere",
    );
}

#[test]
fn nothing_is_concluded_from_memory_that_cannot_be_read() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         blind              |
         call  500 ff8      | open 0 Call 500
         dynamic 800 80000  | new 1 Alternate, enter 1, open 1 Unknown 800
         dynamic 501 ff8    | enter 0
         signal f00 900 ef8 | open 0 Interrupt ?, open 0 Manual 900
         ret   3f0 f00      | close 0 Return
         iret  502 ff8      | close 0 InterruptReturn
         ret   a00 1000     | close 0 ReturnElsewhere",
    );
}

#[test]
fn interrupts_nest_on_one_stack() {
    check(
        "start 100 1000     | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         int   f00 900 ef8  | open 0 Interrupt 900
         call  990 ef0      | open 0 Call 990
         int   e00 a00 e00  | open 0 Interrupt a00
         iret  991 ef0      | close 0 InterruptReturn
         ret   905 ef8      | close 0 Return
         static 906 f00     |
         iret  100 1000     | close 0 InterruptReturn",
    );
}

#[test]
fn an_interrupt_brings_its_own_stack() {
    check(
        "declare 8000 9000 Interrupt |
         start 100 1000        | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8         | open 0 Call 500
         int   8fd8 900 8fd8   | new 1 Interrupt 8000-9000 of the processor, enter 1, open 1 Interrupt 900
         call  990 8fd0        | open 1 Call 990
         ret   905 8fd8        | close 1 Return
         iret  500 ff8         | close 1 InterruptReturn, enter 0
         int   8fd8 a00 8fd0   | enter 1, open 1 Interrupt a00
         static a01 8fd8       |
         iret  500 ff8         | close 1 InterruptReturn, enter 0
         ret   105 1000        | close 0 Return",
    );
}

#[test]
fn a_signal_opens_a_frame_and_its_handler_another() {
    check(
        "start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         poke  df8 3f0       |
         signal e00 900 df8  | open 0 Interrupt 3f0, open 0 Manual 900
         call  990 df0       | open 0 Call 990
         ret   905 df8       | close 0 Return
         ret   3f0 e00       | close 0 Return
         other 3f5 e00       |
         iret  100 1000      | close 0 InterruptReturn",
    );
}

#[test]
fn a_signal_on_the_alternate_stack() {
    check(
        "declare 8000 9000 Alternate |
         start 100 1000        | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8         | open 0 Call 500
         poke  8df8 3f0        |
         signal 8e00 900 8df8  | new 1 Alternate 8000-9000, enter 1, open 1 Interrupt 3f0, open 1 Manual 900
         ret   3f0 8e00        | close 1 Return
         iret  500 ff8         | close 1 InterruptReturn, enter 0
         signal 8e00 900 8df8  | enter 1, open 1 Interrupt 3f0, open 1 Manual 900
         call  950 8df0        | open 1 Call 950
         dynamic 105 1000      | enter 0, close 0 Unwound
         signal 8e00 900 8df8  | enter 1, close 1 Unwound, close 1 Unwound, close 1 Unwound, open 1 Interrupt 3f0, open 1 Manual 900",
    );
}

/// A local variable is used as alternate stack.
#[test]
fn a_stack_may_lie_in_the_memory_of_another() {
    check(
        "declare 1000 9000 User |
         start 100 8000        | new 0 User 1000-9000, enter 0 @0, open 0 Unknown 100 @0
         call  500 7ff8        | open 0 Call 500
         static 501 5000       |
         declare 6000 7000 Alternate |
         poke  6df8 3f0        |
         signal 6e00 900 6df8  | new 1 Alternate 6000-7000, enter 1, open 1 Interrupt 3f0, open 1 Manual 900
         ret   3f0 6e00        | close 1 Return
         iret  502 5000        | close 1 InterruptReturn, enter 0
         dynamic 700 80000     | new 2 Alternate, enter 2, open 2 Unknown 700
         release 6000 7000     |
         dynamic 503 6800      | enter 0
         release 0 ffff        | close 0 Abandoned, close 0 Abandoned, leave",
    );
}

#[test]
fn each_thread_has_its_stack() {
    check(
        "start 100 1000       | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8        | open 0 Call 500
         switch 2 700 800000  | new 1 User, enter 1, open 1 Unknown 700
         call  800 7ffff8     | open 1 Call 800
         switch 1 501 ff8     | enter 0
         ret   105 1000       | close 0 Return
         switch 2 801 7ffff8  | enter 1
         exit  2              | close 1 Abandoned, close 1 Abandoned, leave
         switch 1 105 1000    | enter 0
         switch 3 700 800000  | new 2 User, enter 2, open 2 Unknown 700
         switch 1 105 1000    | enter 0
         exit  3              | close 2 Abandoned",
    );
}

#[test]
fn a_thread_continues_where_it_stopped_in_any_region() {
    check(
        "declare 8000 9000 User |
         declare a000 b000 User |
         start 100 b000        | new 0 User a000-b000, enter 0 @0, open 0 Unknown 100 @0
         static 101 8800       |
         switch 2 700 9000     | new 1 User 8000-9000, enter 1, open 1 Unknown 700
         switch 1 101 8800     | enter 0",
    );
}

#[test]
fn released_memory_ends_its_frames() {
    check(
        "start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 700 80000   | new 1 Alternate, enter 1, open 1 Unknown 700
         call  800 7fff8     | open 1 Call 800
         release 60000 7fff8 |
         dynamic 101 1000    | enter 0
         release 70000 80000 | close 1 Abandoned, close 1 Abandoned
         dynamic 700 80000   | new 2 Alternate, enter 2, open 2 Unknown 700
         release 70000 80000 | close 2 Abandoned, leave
         system 701 80000    |
         call  800 7fff8     |
         dynamic 101 1000    | enter 0",
    );
}

#[test]
fn memory_reused_as_another_stack_ends_its_frames() {
    check(
        "declare 80000 90000 Alternate |
         start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         dynamic 700 90000   | new 1 Alternate 80000-90000, enter 1, open 1 Unknown 700
         dynamic 101 1000    | enter 0
         declare 70000 98000 User | close 1 Abandoned
         dynamic 700 90000   | new 2 User 70000-98000, enter 2, open 2 Unknown 700",
    );
}

#[test]
fn declaring_what_is_known_changes_nothing() {
    check(
        "start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         declare 0 2000 User |
         call  500 ff8       | open 0 Call 500
         declare 0 2000 User |
         dynamic 501 10      |
         dynamic 502 ff8     |
         ret   105 1000      | close 0 Return",
    );
}

/// Another program in the same process.
#[test]
fn a_new_image_leaves_nothing() {
    check(
        "start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8       | open 0 Call 500
         release 0 ffffffffffffffff | close 0 Abandoned, close 0 Abandoned, leave
         system 700 2000     | new 1 User, enter 1, open 1 Unknown 700",
    );
}

#[test]
fn skipped_unwinding_is_detected_at_the_next_step() {
    check(
        "start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8       | open 0 Call 500
         call  600 ff0       | open 0 Call 600
         skip  10            |
         unseen 520 ff8      |
         ret   105 1000      | close 0 Unwound, close 0 Return
         call  500 ff8       | open 0 Call 500
         unseen 110 1000     |
         static 111 f00      | close 0 Unwound",
    );
}

#[test]
fn initially_skipped_steps_are_on_the_first_stack() {
    check(
        "skip  3             |
         start 100 1000      | new 0 User, enter 0 @0, open 0 Unknown 100 @0
         call  500 ff8       | open 0 Call 500",
    );
}
