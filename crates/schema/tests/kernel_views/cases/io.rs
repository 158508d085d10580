//! Disks, files and memory.

use stackhound_schema::kernel::view::*;

use super::{hooks, row, thread};
use crate::Case;

pub static IO: &[Case] = &[
    Case {
        source: hooks(&[0x010A, 0x010B, 0x0137, 0x0138]),
        view: |payload, _, version, pointer| {
            let v = DiskTransfer::parse(payload, version, pointer)?;
            Ok(vec![
                row("DiskNumber", v.disk_number),
                row("IrpFlags", v.irp_flags),
                row("TransferSize", v.transfer_size),
                row("ByteOffset", v.byte_offset),
                row("FileObject", v.file_object),
                row("Irp", v.irp),
                row("HighResResponseTime", v.high_res_response_time),
                row("IssuingThreadId", v.issuing_thread_id),
            ])
        },
        left_out: &["Reserved", "ResponseTime"],
        longest: 64,
    },
    Case {
        source: hooks(&[0x010C, 0x010D, 0x010F, 0x013A, 0x013B, 0x013C]),
        view: |payload, _, version, pointer| {
            let v = DiskInit::parse(payload, version, pointer)?;
            Ok(vec![row("Irp", v.irp), row("IssuingThreadId", v.issuing_thread_id)])
        },
        left_out: &[],
        longest: 16,
    },
    Case {
        source: hooks(&[0x010E, 0x0139]),
        view: |payload, _, version, pointer| {
            let v = DiskFlush::parse(payload, version, pointer)?;
            Ok(vec![
                row("DiskNumber", v.disk_number),
                row("IrpFlags", v.irp_flags),
                row("HighResResponseTime", v.high_res_response_time),
                row("Irp", v.irp),
                row("IssuingThreadId", v.issuing_thread_id),
            ])
        },
        left_out: &[],
        longest: 36,
    },
    Case {
        source: hooks(&[0x0220]),
        view: |payload, _, version, pointer| {
            let v = HardFault::parse(payload, version, pointer)?;
            Ok(vec![
                row("InitialTime", v.initial_time),
                row("ReadOffset", v.read_offset),
                row("VirtualAddress", v.virtual_address),
                row("FileObject", v.file_object),
                row("TThreadId", v.thread_id),
                row("ByteCount", v.byte_count),
            ])
        },
        left_out: &[],
        longest: 48,
    },
    Case {
        source: hooks(&[0x020A, 0x020B, 0x020C, 0x020D, 0x020E, 0x020F]),
        view: |payload, _, version, pointer| {
            let v = PageFault::parse(payload, version, pointer)?;
            Ok(vec![row("VirtualAddress", v.virtual_address), row("ProgramCounter", v.program_counter)])
        },
        left_out: &[],
        longest: 20,
    },
    Case {
        source: hooks(&[0x0262, 0x0263, 0x0280, 0x0281]),
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
        source: hooks(&[0x0400, 0x0420, 0x0423, 0x0424]),
        view: |payload, _, version, pointer| {
            let v = FileName::parse(payload, version, pointer)?;
            Ok(vec![row("FileObject", v.file_object), row("FileName", v.file_name)])
        },
        left_out: &[],
        longest: 60,
    },
    Case {
        source: hooks(&[0x0440, 0x044E]),
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
        source: hooks(&[0x0443, 0x0444]),
        view: |payload, _, version, pointer| {
            let v = FileReadWrite::parse(payload, version, pointer)?;
            Ok(vec![
                row("Offset", v.offset),
                row("IrpPtr", v.irp),
                row("FileObject", v.file_object),
                row("FileKey", v.file_key),
                row("TTID", thread(payload, 8, version, pointer, v.thread_id)),
                row("IoSize", v.io_size),
                row("IoFlags", v.io_flags),
                row("ExtraFlags", v.extra_flags),
            ])
        },
        left_out: &[],
        longest: 64,
    },
    Case {
        source: hooks(&[0x0441, 0x0442, 0x0449]),
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
        source: hooks(&[0x0445, 0x0446, 0x0447, 0x044A, 0x044B, 0x0452, 0x0454, 0x0456]),
        view: |payload, _, version, pointer| {
            let v = FileInformation::parse(payload, version, pointer)?;
            Ok(vec![
                row("IrpPtr", v.irp),
                row("FileObject", v.file_object),
                row("FileKey", v.file_key),
                row("ExtraInfo", v.extra_info),
                row("TTID", thread(payload, 0, version, pointer, v.thread_id)),
                row("InfoClass", v.info_class),
            ])
        },
        left_out: &[],
        longest: 56,
    },
    Case {
        source: hooks(&[0x044F, 0x0450, 0x0451]),
        view: |payload, _, version, pointer| {
            let v = FilePath::parse(payload, version, pointer)?;
            let i = v.information;
            Ok(vec![
                row("IrpPtr", i.irp),
                row("FileObject", i.file_object),
                row("FileKey", i.file_key),
                row("ExtraInfo", i.extra_info),
                row("TTID", i.thread_id),
                row("InfoClass", i.info_class),
                row("FileName", v.file_name),
            ])
        },
        left_out: &[],
        longest: 100,
    },
    Case {
        source: hooks(&[0x0448, 0x044D]),
        view: |payload, _, version, pointer| {
            let v = DirectoryEnumeration::parse(payload, version, pointer)?;
            let o = v.operation;
            Ok(vec![
                row("IrpPtr", o.irp),
                row("FileObject", o.file_object),
                row("FileKey", o.file_key),
                row("TTID", thread(payload, 0, version, pointer, o.thread_id)),
                row("Length", v.length),
                row("InfoClass", v.info_class),
                row("FileIndex", v.file_index),
                row("FileName", v.file_name),
            ])
        },
        left_out: &[],
        longest: 100,
    },
    Case {
        source: hooks(&[0x044C]),
        view: |payload, _, version, pointer| {
            let v = OperationEnd::parse(payload, version, pointer)?;
            Ok(vec![row("IrpPtr", v.irp), row("ExtraInfo", v.extra_info), row("NtStatus", v.nt_status)])
        },
        left_out: &[],
        longest: 28,
    },
    Case {
        source: hooks(&[0x0425, 0x0426, 0x0427, 0x0428]),
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
        source: hooks(&[0x0E20, 0x0E21, 0x0E22, 0x0E23]),
        view: |payload, _, version, pointer| {
            let v = PoolAllocation::parse(payload, version, pointer)?;
            Ok(vec![
                row("PoolType", v.pool_type),
                row("Tag", v.tag),
                row("NumberOfBytes", v.number_of_bytes),
                row("Entry", v.entry),
            ])
        },
        left_out: &[],
        longest: 32,
    },
];
