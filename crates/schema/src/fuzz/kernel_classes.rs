//! Kernel classes: tables and views.

use std::fmt;

use stackhound_types::{Guid, PointerSize};

use super::{discard, look_at_all};
use crate::error::Error;
use crate::kernel;
use crate::kernel::view::*;
use crate::model::Schema;

/// Reads bytes as the payload of every kernel class, along the tables and with every view.
///
/// The first byte is the version, the lowest bit of the second the pointer size.
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
        look_at_all(&mut decoder);
        assert!(decoder.offset() <= payload.len());
    }
}

fn kernel_views(payload: &[u8], version: u8, pointer: PointerSize) {
    see(Process::parse(payload, version, pointer));
    see(Thread::parse(payload, version, pointer));
    see(ThreadSetName::parse(payload, version, pointer));
    see(CSwitch::parse(payload, version, pointer));
    see(ReadyThread::parse(payload, version, pointer));
    see(Image::parse(payload, version, pointer));
    see(KernelBase::parse(payload, version, pointer));
    see(SysCallEnter::parse(payload, version, pointer));
    see(Dpc::parse(payload, version, pointer));
    see(VirtualAllocation::parse(payload, version, pointer));
    see(FileName::parse(payload, version, pointer));
    see(FileCreate::parse(payload, version, pointer));
    see(FileOperation::parse(payload, version, pointer));
    see(OperationEnd::parse(payload, version, pointer));
    see(MapFile::parse(payload, version, pointer));
    see(RegistryOperation::parse(payload, version, pointer));
    see(CpuConfig::parse(payload, version, pointer));
    see(DbgIdRsds::parse(payload, version, pointer));
    see(SystemPaths::parse(payload, version, pointer));
    see(VolumeMapping::parse(payload, version, pointer));
}

/// Formats a view or its error.
fn see<T: fmt::Debug>(parsed: Result<T, Error>) {
    match parsed {
        Ok(view) => discard(format_args!("{view:?}")),
        Err(error) => discard(format_args!("{error}")),
    }
}
