//! Files, memory and the registry.

use stackhound_schema::kernel::view::*;

use super::{hook_ids, row, thread, widened};
use crate::Case;

pub static IO: &[Case] = &[
    Case {
        source: hook_ids(&[0x0262, 0x0263, 0x0280, 0x0281]),
        view: |payload, _, version, pointer| {
            let v = VirtualAllocation::parse(payload, version, pointer)?;
            Ok(vec![
                row("BaseAddress", v.base_address),
                row("RegionSize", v.region_size),
                row("ProcessId", v.process_id),
                row("Flags", v.flags),
            ])
        },
        left_out: &[],
        longest: 32,
    },
    Case {
        source: hook_ids(&[0x0400, 0x0420, 0x0423, 0x0424]),
        view: |payload, _, version, pointer| {
            let v = FileName::parse(payload, version, pointer)?;
            Ok(vec![row("FileObject", v.file_object), row("FileName", v.file_name)])
        },
        left_out: &[],
        longest: 60,
    },
    Case {
        source: hook_ids(&[0x0440, 0x044E]),
        view: |payload, _, version, pointer| {
            let v = FileCreate::parse(payload, version, pointer)?;
            Ok(vec![
                row("IrpPtr", v.irp),
                row("FileObject", v.file_object),
                row("TTID", thread(payload, 0, version, pointer, v.thread_id)),
                row("CreateOptions", v.create_options),
                row("FileAttributes", v.file_attributes),
                row("ShareAccess", v.share_access),
                row("OpenPath", v.open_path),
            ])
        },
        left_out: &[],
        longest: 160,
    },
    Case {
        source: hook_ids(&[0x0441, 0x0442, 0x0449]),
        view: |payload, _, version, pointer| {
            let v = FileOperation::parse(payload, version, pointer)?;
            Ok(vec![
                row("IrpPtr", v.irp),
                row("FileObject", v.file_object),
                row("FileKey", v.file_key),
                row("TTID", thread(payload, 0, version, pointer, v.thread_id)),
            ])
        },
        left_out: &[],
        longest: 40,
    },
    Case {
        source: hook_ids(&[0x044C]),
        view: |payload, _, version, pointer| {
            let v = OperationEnd::parse(payload, version, pointer)?;
            Ok(vec![row("IrpPtr", v.irp), row("ExtraInfo", v.extra_info), row("NtStatus", v.nt_status)])
        },
        left_out: &[],
        longest: 28,
    },
    Case {
        source: hook_ids(&[0x0425, 0x0426, 0x0427, 0x0428]),
        view: |payload, _, version, pointer| {
            let v = MapFile::parse(payload, version, pointer)?;
            Ok(vec![
                row("ViewBase", v.view_base),
                row("FileObject", v.file_object),
                row("MiscInfo", v.misc_info),
                row("ViewSize", v.view_size),
                row("ByteOffset", v.byte_offset),
                row("ProcessId", v.process_id),
            ])
        },
        left_out: &[],
        longest: 56,
    },
    Case {
        source: hook_ids(&[
            0x090A, 0x090B, 0x090C, 0x090D, 0x090E, 0x090F, 0x0910, 0x0911, 0x0912, 0x0913, 0x0914, 0x0915,
            0x0916, 0x0917, 0x0918, 0x0919, 0x091A, 0x091B, 0x091C, 0x091D,
        ]),
        view: |payload, _, version, pointer| {
            let v = RegistryOperation::parse(payload, version, pointer)?;
            let status = match version {
                2.. => v.status.into(),
                _ => widened(payload, 0, pointer, v.status),
            };
            Ok(vec![
                row("InitialTime", v.initial_time),
                row("ElapsedTime", v.elapsed_time),
                row("Status", status),
                row("Index", v.index),
                row("KeyHandle", v.key_handle),
                row("KeyName", v.key_name),
            ])
        },
        left_out: &[],
        longest: 80,
    },
];
