//! The registry, the network, handles and messages.

use stackhound_schema::kernel::view::*;

use super::{hooks, row, widened};
use crate::Case;

pub static ACTIVITY: &[Case] = &[
    Case {
        source: hooks(&[
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
    Case {
        source: hooks(&[0x091E, 0x091F, 0x0920]),
        view: |payload, _, version, pointer| {
            let v = RegistryTransaction::parse(payload, version, pointer)?;
            Ok(vec![
                row("TxrGUID", v.transaction),
                row("Status", v.status),
                row("UowCount", v.uow_count),
                row("OperationTime", v.operation_time),
                row("Hive", v.hive),
            ])
        },
        left_out: &[],
        longest: 80,
    },
    Case {
        source: hooks(&[0x0924]),
        view: |payload, _, version, pointer| {
            let v = HiveInit::parse(payload, version, pointer)?;
            Ok(vec![
                row("Hive", v.hive),
                row("OperationType", v.operation_type),
                row("PoolTag", v.pool_tag),
                row("Size", v.size),
                row("FileName", v.file_name),
            ])
        },
        left_out: &[],
        longest: 80,
    },
    Case {
        source: hooks(&[0x0925]),
        view: |payload, _, version, pointer| {
            let v = HiveDestroy::parse(payload, version, pointer)?;
            Ok(vec![row("Hive", v.hive), row("FileName", v.file_name), row("Path", v.path)])
        },
        left_out: &[],
        longest: 80,
    },
    Case {
        source: hooks(&[0x0926]),
        view: |payload, _, version, pointer| {
            let v = HiveLink::parse(payload, version, pointer)?;
            Ok(vec![row("Hive", v.hive), row("Path", v.path)])
        },
        left_out: &[],
        longest: 80,
    },
    Case {
        source: hooks(&[0x0927]),
        view: |payload, _, version, pointer| {
            let v = HiveRundown::parse(payload, version, pointer)?;
            Ok(vec![
                row("Size", v.size),
                row("Hive", v.hive),
                row("LoadedKeyCount", v.loaded_key_count),
                row("FileName", v.file_name),
                row("LinkPath", v.link_path),
            ])
        },
        left_out: &[],
        longest: 80,
    },
    Case {
        source: hooks(&[0x0928]),
        view: |payload, _, version, pointer| {
            let v = HiveDirty::parse(payload, version, pointer)?;
            Ok(vec![row("Hive", v.hive), row("LinkPath", v.link_path), row("DirtyReason", v.dirty_reason)])
        },
        left_out: &[],
        longest: 60,
    },
    Case {
        source: hooks(&[
            0x060A, 0x060B, 0x060C, 0x060D, 0x060E, 0x060F, 0x0610, 0x0612, 0x061A, 0x061B, 0x061C, 0x061D,
            0x061E, 0x061F, 0x0620, 0x0622, 0x080A, 0x080B, 0x081A, 0x081B,
        ]),
        view: |payload, hook, version, pointer| {
            let shape = TransferShape::of(hook).expect("a hook with addresses");
            let v = NetworkTransfer::parse(payload, shape, version, pointer)?;
            let (e, s) = (v.endpoints, v.setup);
            Ok(vec![
                row("PID", v.process_id),
                row("size", v.size),
                row("daddr", e.destination),
                row("saddr", e.source),
                row("dport", e.destination_port.swap_bytes()),
                row("sport", e.source_port.swap_bytes()),
                row("startime", v.send_times.map(|t| t.0)),
                row("endtime", v.send_times.map(|t| t.1)),
                row("mss", s.map(|s| s.mss)),
                row("sackopt", s.map(|s| s.sack_option)),
                row("tsopt", s.map(|s| s.timestamp_option)),
                row("wsopt", s.map(|s| s.window_scale_option)),
                row("rcvwin", s.map(|s| s.receive_window)),
                row("rcvwinscale", s.map(|s| s.receive_window_scale)),
                row("sndwinscale", s.map(|s| s.send_window_scale)),
                row("seqnum", v.sequence),
                row("connid", v.connection_id),
            ])
        },
        left_out: &["context", "dsize"],
        longest: 90,
    },
    Case {
        source: hooks(&[0x0611, 0x0811]),
        view: |payload, _, version, pointer| {
            let v = NetworkFailure::parse(payload, version, pointer)?;
            Ok(vec![row("Proto", v.protocol), row("FailureCode", v.failure_code)])
        },
        left_out: &[],
        longest: 8,
    },
    Case {
        source: hooks(&[0x1120, 0x1121]),
        view: |payload, _, version, pointer| {
            let v = Handle::parse(payload, version, pointer)?;
            Ok(vec![
                row("Object", v.object),
                row("Handle", v.handle),
                row("ObjectType", v.object_type),
                row("ObjectName", v.object_name),
            ])
        },
        left_out: &[],
        longest: 40,
    },
    Case {
        source: hooks(&[0x1122]),
        view: |payload, _, version, pointer| {
            let v = HandleDuplicate::parse(payload, version, pointer)?;
            Ok(vec![
                row("Object", v.object),
                row("SourceHandle", v.source_handle),
                row("TargetHandle", v.target_handle),
                row("TargetProcessId", v.target_process_id),
                row("ObjectType", v.object_type),
                row("SourceProcessId", v.source_process_id),
            ])
        },
        left_out: &[],
        longest: 36,
    },
    Case {
        source: hooks(&[0x1A21, 0x1A22, 0x1A23]),
        view: |payload, _, version, pointer| {
            Ok(vec![row("MessageID", AlpcMessage::parse(payload, version, pointer)?.message_id)])
        },
        left_out: &[],
        longest: 8,
    },
    Case {
        source: hooks(&[0x1A24]),
        view: |payload, _, version, pointer| {
            let v = AlpcPortWait::parse(payload, version, pointer)?;
            Ok(vec![row("IsServerPort", v.is_server_port), row("PortName", v.port_name)])
        },
        left_out: &[],
        longest: 20,
    },
    Case {
        source: hooks(&[0x1A25]),
        view: |payload, _, version, pointer| {
            Ok(vec![row("Status", AlpcUnwait::parse(payload, version, pointer)?.status)])
        },
        left_out: &[],
        longest: 8,
    },
];
