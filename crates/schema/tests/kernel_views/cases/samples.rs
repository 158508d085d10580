//! Threads, samples, system calls, interrupts and stacks.

use stackhound_schema::kernel::view::*;

use super::{hooks, row};
use crate::Case;
use crate::seen::Seen;

pub static SAMPLES: &[Case] = &[
    Case {
        source: hooks(&[0x0501, 0x0502, 0x0503, 0x0504]),
        view: |payload, hook, version, pointer| {
            let v = Thread::parse(payload, version, pointer)?;
            // The table knows that version 1 tells nothing more at a thread's end.
            let detail = v.detail.filter(|_| version != 1 || matches!(hook, 0x0501 | 0x0503));
            if version == 1 && v.detail.is_none() && matches!(hook, 0x0501 | 0x0503) {
                // And that it tells more at its start, which the view does not insist on.
                return Err(Thread::parse(&[], version, pointer).unwrap_err());
            }
            let priorities = detail.and_then(|d| d.priorities);
            Ok(vec![
                row("ProcessId", v.process_id),
                row("TThreadId", v.thread_id),
                row("StackBase", detail.map(|d| d.stack_base)),
                row("StackLimit", detail.map(|d| d.stack_limit)),
                row("UserStackBase", detail.map(|d| d.user_stack_base)),
                row("UserStackLimit", detail.map(|d| d.user_stack_limit)),
                row("StartAddr", detail.and_then(|d| d.start_address)),
                row("Affinity", detail.and_then(|d| d.affinity)),
                row("Win32StartAddr", detail.map(|d| d.win32_start_address)),
                row("WaitMode", detail.and_then(|d| d.wait_mode)),
                row("TebBase", detail.and_then(|d| d.teb_base)),
                row("SubProcessTag", detail.and_then(|d| d.sub_process_tag)),
                row("BasePriority", priorities.map(|p| p.base_priority)),
                row("PagePriority", priorities.map(|p| p.page_priority)),
                row("IoPriority", priorities.map(|p| p.io_priority)),
                row("ThreadFlags", priorities.map(|p| p.thread_flags)),
                row("ThreadName", detail.and_then(|d| d.thread_name)),
            ])
        },
        left_out: &[],
        longest: 160,
    },
    Case {
        source: hooks(&[0x0548]),
        view: |payload, _, version, pointer| {
            let v = ThreadSetName::parse(payload, version, pointer)?;
            Ok(vec![
                row("ProcessId", v.process_id),
                row("ThreadId", v.thread_id),
                row("ThreadName", v.thread_name),
            ])
        },
        left_out: &[],
        longest: 40,
    },
    Case {
        source: hooks(&[0x0524]),
        view: |payload, _, version, pointer| {
            let v = CSwitch::parse(payload, version, pointer)?;
            let new = version >= 2;
            Ok(vec![
                row("NewThreadId", v.new_thread_id),
                row("OldThreadId", v.old_thread_id),
                row("NewThreadPriority", v.new_thread_priority),
                row("OldThreadPriority", v.old_thread_priority),
                row("PreviousCState", new.then_some(v.previous_c_state)),
                row("SpareByte", new.then_some(v.spare_byte)),
                row("NewThreadQuantum", (!new).then_some(v.previous_c_state)),
                row("OldThreadQuantum", (!new).then_some(v.spare_byte)),
                row("OldThreadWaitReason", v.old_thread_wait_reason),
                row("OldThreadWaitMode", (version < 3).then_some(v.thread_flags)),
                row("ThreadFlags", (version >= 3).then_some(v.thread_flags)),
                row("OldThreadState", v.old_thread_state),
                row("OldThreadWaitIdealProcessor", v.old_thread_wait_ideal_processor),
                row("NewThreadWaitTime", new.then_some(v.new_thread_wait_time)),
                row("Reserved", new.then_some(v.reserved)),
            ])
        },
        left_out: &[],
        longest: 30,
    },
    Case {
        source: hooks(&[0x0525]),
        view: |payload, _, version, pointer| {
            let v = CompactSwitches::parse(payload, version, pointer)?;
            Ok(vec![
                row("FirstTimeStamp", v.first_time_stamp()),
                row("TidTable", v.thread_ids().collect::<Seen>()),
                row("ThreadBasePriority", v.base_priorities().iter().copied().collect::<Seen>()),
                row("Switches", Seen::Bytes(v.bytes().to_vec())),
            ])
        },
        left_out: &[],
        longest: 160,
    },
    Case {
        source: hooks(&[0x0532]),
        view: |payload, _, version, pointer| {
            let v = ReadyThread::parse(payload, version, pointer)?;
            Ok(vec![
                row("TThreadId", v.thread_id),
                row("AdjustReason", v.adjust_reason),
                row("AdjustIncrement", v.adjust_increment),
                row("Flags", v.flags),
            ])
        },
        left_out: &["Reserved"],
        longest: 12,
    },
    Case {
        source: hooks(&[0x0F2E]),
        view: |payload, _, version, pointer| {
            let v = SampledProfile::parse(payload, version, pointer)?;
            let new = version >= 2;
            Ok(vec![
                row("InstructionPointer", v.instruction_pointer),
                row("ThreadId", v.thread_id),
                row("Count", v.count),
                row("Flags", new.then_some(v.flags)),
                row("Rank", new.then_some(v.rank)),
            ])
        },
        left_out: &[],
        longest: 24,
    },
    Case {
        source: hooks(&[0x0F2F]),
        view: |payload, _, version, pointer| {
            let v = PmcSample::parse(payload, version, pointer)?;
            Ok(vec![
                row("InstructionPointer", v.instruction_pointer),
                row("ThreadId", v.thread_id),
                row("ProfileSource", v.profile_source),
            ])
        },
        left_out: &["Reserved"],
        longest: 24,
    },
    Case {
        source: hooks(&[0x0F33]),
        view: |payload, _, version, pointer| {
            Ok(vec![row("SysCallAddress", SysCallEnter::parse(payload, version, pointer)?.sys_call_address)])
        },
        left_out: &[],
        longest: 12,
    },
    Case {
        source: hooks(&[0x0F34]),
        view: |payload, _, version, pointer| {
            Ok(vec![row("SysCallNtStatus", SysCallExit::parse(payload, version, pointer)?.nt_status)])
        },
        left_out: &[],
        longest: 8,
    },
    Case {
        source: hooks(&[0x0F42, 0x0F44, 0x0F45, 0x0F46]),
        view: |payload, _, version, pointer| {
            let v = Dpc::parse(payload, version, pointer)?;
            Ok(vec![row("InitialTime", v.initial_time), row("Routine", v.routine)])
        },
        left_out: &[],
        longest: 20,
    },
    Case {
        source: hooks(&[0x0F43, 0x0F5F]),
        view: |payload, _, version, pointer| {
            let v = Isr::parse(payload, version, pointer)?;
            Ok(vec![
                row("InitialTime", v.initial_time),
                row("Routine", v.routine),
                row("ReturnValue", v.return_value),
                row("Vector", v.vector),
            ])
        },
        left_out: &["Reserved"],
        longest: 28,
    },
    Case {
        source: hooks(&[0x0F32]),
        view: |payload, _, version, pointer| {
            let v = Isr::parse_message(payload, version, pointer)?;
            Ok(vec![
                row("InitialTime", v.initial_time),
                row("Routine", v.routine),
                row("ReturnValue", v.return_value),
                row("Vector", v.vector),
                row("MessageNumber", v.message_number),
            ])
        },
        left_out: &["Reserved"],
        longest: 32,
    },
    Case {
        source: hooks(&[0x1820]),
        view: |payload, _, version, pointer| {
            let v = Stack::parse(payload, version, pointer)?;
            let backwards: Vec<_> = v.frames.iter().rev().collect();
            assert!(backwards.iter().rev().copied().eq(v.frames) && backwards.len() == v.frames.len());
            assert_eq!(v.frames.last(), backwards.first().copied());
            Ok(vec![
                row("EventTimeStamp", v.event_time_stamp),
                row("StackProcess", v.process_id),
                row("StackThread", v.thread_id),
                row("Stack", v.frames.iter().collect::<Seen>()),
            ])
        },
        left_out: &[],
        longest: 160,
    },
    Case {
        source: hooks(&[0x1825, 0x1826]),
        view: |payload, _, version, pointer| {
            let v = StackKeyReference::parse(payload, version, pointer)?;
            Ok(vec![
                row("EventTimeStamp", v.event_time_stamp),
                row("StackProcess", v.process_id),
                row("StackThread", v.thread_id),
                row("StackKey", v.stack_key),
            ])
        },
        left_out: &[],
        longest: 32,
    },
    Case {
        source: hooks(&[0x1822, 0x1823, 0x1824]),
        view: |payload, _, version, pointer| {
            let v = StackKeyDefinition::parse(payload, version, pointer)?;
            Ok(vec![row("StackKey", v.stack_key), row("Stack", v.frames.iter().collect::<Seen>())])
        },
        left_out: &[],
        longest: 160,
    },
    Case {
        source: hooks(&[0x0C20]),
        view: |payload, _, version, pointer| {
            let v = LastBranch::parse(payload, version, pointer)?;
            let branches: Vec<_> = v.branches().collect();
            let list = |of: fn(&Branch) -> stackhound_etl::Address| {
                (!branches.is_empty()).then(|| branches.iter().map(of).collect::<Seen>())
            };
            Ok(vec![
                row("TimeStamp", v.event_time_stamp),
                row("ProcessId", v.process_id),
                row("ThreadId", v.thread_id),
                row("Filters", v.filters),
                row("Branches.From", list(|b| b.from)),
                row("Branches.To", list(|b| b.to)),
            ])
        },
        left_out: &["Branches", "Branches.Reserved"],
        longest: 160,
    },
];
