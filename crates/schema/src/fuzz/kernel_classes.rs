//! The tables and views of kernel classes.

use std::fmt;

use stackhound_types::{Guid, PointerSize};

use super::{discard, visit_all};
use crate::error::Error;
use crate::kernel;
use crate::kernel::view::*;
use crate::model::Schema;

/// Reads the bytes as the payload of every kernel class, with the tables and with every view.
///
/// The first byte is the version; the lowest bit of the second byte is the pointer size.
pub fn kernel(data: &[u8]) {
    let Some((&[version, flags], payload)) = data.split_first_chunk() else { return };
    let pointer = if flags & 1 == 0 { PointerSize::Four } else { PointerSize::Eight };
    kernel_tables(payload, version, pointer);
    kernel_views(payload, version, pointer);
}

fn kernel_tables(payload: &[u8], version: u8, pointer: PointerSize) {
    let mut last_class = Guid::ZERO;
    for event in kernel::events() {
        if let Some(hook_id) = event.hook_id {
            decode(kernel::lookup_for(hook_id, version, pointer, payload), payload, pointer);
        } else if event.class != last_class {
            last_class = event.class;
            for opcode in 0..=u8::MAX {
                let schema = kernel::lookup_classic_for(event.class, opcode, version, pointer, payload);
                decode(schema, payload, pointer);
            }
        }
    }
}

fn decode(schema: Option<&Schema>, payload: &[u8], pointer: PointerSize) {
    if let Some(schema) = schema {
        let mut decoder = schema.decode(payload, pointer);
        visit_all(&mut decoder);
        assert!(decoder.offset() <= payload.len());
    }
}

fn kernel_views(payload: &[u8], version: u8, pointer: PointerSize) {
    format_result(Process::parse(payload, version, pointer));
    format_result(Thread::parse(payload, version, pointer));
    format_result(ThreadSetName::parse(payload, version, pointer));
    format_result(CSwitch::parse(payload, version, pointer));
    format_result(ReadyThread::parse(payload, version, pointer));
    format_result(Image::parse(payload, version, pointer));
    format_result(KernelBase::parse(payload, version, pointer));
    format_result(SysCallEnter::parse(payload, version, pointer));
    format_result(Dpc::parse(payload, version, pointer));
    format_result(VirtualAllocation::parse(payload, version, pointer));
    format_result(FileName::parse(payload, version, pointer));
    format_result(FileCreate::parse(payload, version, pointer));
    format_result(FileOperation::parse(payload, version, pointer));
    format_result(OperationEnd::parse(payload, version, pointer));
    format_result(MapFile::parse(payload, version, pointer));
    format_result(RegistryOperation::parse(payload, version, pointer));
    format_result(CpuConfig::parse(payload, version, pointer));
    format_result(DbgIdRsds::parse(payload, version, pointer));
    format_result(FileVersion::parse(payload, version, pointer));
    format_result(SystemPaths::parse(payload, version, pointer));
    format_result(VolumeMapping::parse(payload, version, pointer));
}

fn format_result<T: fmt::Debug>(parsed: Result<T, Error>) {
    match parsed {
        Ok(view) => discard(format_args!("{view:?}")),
        Err(error) => discard(format_args!("{error}")),
    }
}
