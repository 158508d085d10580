//! Threads, system calls and deferred procedure calls.

use stackhound_schema::kernel::view::*;

use super::{hook_ids, row};
use crate::Case;

pub static SAMPLES: &[Case] = &[
    Case {
        source: hook_ids(&[0x0501, 0x0502, 0x0503, 0x0504]),
        view: |payload, hook_id, version, pointer| {
            let v = Thread::parse(payload, version, pointer)?;
            // The table reflects that the end of a thread in version 1 has no further fields.
            let detail = v.detail.filter(|_| version != 1 || matches!(hook_id, 0x0501 | 0x0503));
            if version == 1 && v.detail.is_none() && matches!(hook_id, 0x0501 | 0x0503) {
                // It also requires them for the start of a thread, which the view does not.
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
        source: hook_ids(&[0x0548]),
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
        source: hook_ids(&[0x0524]),
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
        source: hook_ids(&[0x0532]),
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
        source: hook_ids(&[0x0F33]),
        view: |payload, _, version, pointer| {
            Ok(vec![row("SysCallAddress", SysCallEnter::parse(payload, version, pointer)?.sys_call_address)])
        },
        left_out: &[],
        longest: 12,
    },
    Case {
        source: hook_ids(&[0x0F42, 0x0F44, 0x0F45, 0x0F46]),
        view: |payload, _, version, pointer| {
            let v = Dpc::parse(payload, version, pointer)?;
            Ok(vec![row("InitialTime", v.initial_time), row("Routine", v.routine)])
        },
        left_out: &[],
        longest: 20,
    },
    Case {
        source: hook_ids(&[0x0F2E, 0x0F47]),
        view: |payload, _, version, pointer| {
            let v = SampledProfile::parse(payload, version, pointer)?;
            Ok(vec![
                row("InstructionPointer", v.instruction_pointer),
                row("ThreadId", v.thread_id),
                row("Count", v.count),
                row("Flags", (version >= 2).then_some(v.flags)),
            ])
        },
        left_out: &["Rank"],
        longest: 20,
    },
    Case {
        source: hook_ids(&[0x0F48, 0x0F49, 0x0F4A]),
        view: |payload, _, version, pointer| {
            let v = ProfileInterval::parse(payload, version, pointer)?;
            Ok(vec![
                row("Source", v.source),
                row("NewInterval", v.new_interval),
                row("OldInterval", v.old_interval),
            ])
        },
        left_out: &["SourceName"],
        longest: 40,
    },
];
