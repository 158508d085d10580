//! Reads the operations on files that the join of creates and ends needs.

use stackhound_etl::record::Record;
use stackhound_etl::{ManifestEvents, Selection};
use stackhound_schema::event_id::kernel_file;
use stackhound_schema::kernel::{self, hook_id, view};
use stackhound_schema::{Error, provider_guid};
use stackhound_trace::Event;
use stackhound_types::{Guid, PointerSize};

/// The source of an operation. A trace can contain both, with the same requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Family {
    /// The kernel logger's class `FileIo`.
    Kernel,
    /// Microsoft-Windows-Kernel-File.
    Provider,
}

/// An operation on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// A request to create or open a file.
    Create { irp: u64, disposition: u8 },
    /// The end of a request.
    End { irp: u64, status: u32, information: u64 },
    /// Another request.
    Other { irp: u64 },
    /// The payload cannot be read.
    Malformed,
}

const PROVIDER: Guid = provider_guid::KERNEL_FILE;

/// The kind of an operation, from the event's id alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Create,
    End,
    /// The address of the IRP is at this offset in the payload.
    Other(usize),
}

/// Adds the events that can describe an operation.
pub(crate) fn select(selection: Selection) -> Selection {
    let hook_ids = (0..=u16::MAX).filter(|&hook_id| of_kernel(hook_id).is_some());
    let ids = (0..=u16::MAX).filter(|&id| of_provider(id).is_some());
    let selection = selection.hook_ids(hook_ids).classic();
    ids.fold(selection, |selection, id| selection.manifest_events(ManifestEvents::Id(id)))
}

fn of_kernel(hook_id: u16) -> Option<Kind> {
    Some(match hook_id {
        hook_id::FILE_IO_CREATE | hook_id::FILE_IO_CREATE_NEW => Kind::Create,
        hook_id::FILE_IO_OPERATION_END => Kind::End,
        hook_id::FILE_IO_READ | hook_id::FILE_IO_WRITE => Kind::Other(8),
        hook_id::FILE_IO_CLEANUP
        | hook_id::FILE_IO_CLOSE
        | hook_id::FILE_IO_SET_INFO..=hook_id::FILE_IO_FS_CONTROL
        | hook_id::FILE_IO_DIR_NOTIFY
        | hook_id::FILE_IO_DELETE_PATH..=hook_id::FILE_IO_SET_LINK
        | hook_id::FILE_IO_QUERY_SECURITY
        | hook_id::FILE_IO_QUERY_EA => Kind::Other(0),
        _ => return None,
    })
}

fn of_provider(id: u16) -> Option<Kind> {
    Some(match id {
        kernel_file::CREATE | kernel_file::CREATE_NEW_FILE => Kind::Create,
        kernel_file::OPERATION_END => Kind::End,
        kernel_file::READ | kernel_file::WRITE => Kind::Other(8),
        kernel_file::CLEANUP..=kernel_file::FSCTL
        | kernel_file::DIR_NOTIFY..=kernel_file::RENAME_29
        | kernel_file::SET_SECURITY..=kernel_file::QUERY_EA => Kind::Other(0),
        _ => return None,
    })
}

impl Operation {
    /// The operation that an event describes; `None` for most events.
    pub fn of(event: &Event<'_>) -> Option<(Family, Operation)> {
        if let Some(hook_id) = event.hook_id() {
            let kind = of_kernel(hook_id)?;
            return Some((Family::Kernel, Operation::read(kind, &event.record(), 0)));
        }
        let (kind, tag) = (event.kind(), event.entry().tag);
        if kind.has_descriptor() {
            let kind = of_provider(tag)?;
            let record = event.record();
            // The provider's versions 0 and 1 have the layout of the class's versions 2 and 3.
            return (record.guid() == Some(PROVIDER))
                .then(|| (Family::Provider, Operation::read(kind, &record, 2)));
        }
        if kind.is_classic() {
            let record = event.record();
            let hook_id = kernel::hook_id_of(record.guid()?, record.opcode())?;
            return Some((Family::Kernel, Operation::read(of_kernel(hook_id)?, &record, 0)));
        }
        None
    }

    fn read(kind: Kind, record: &Record<'_>, version_offset: u8) -> Operation {
        let (payload, pointer) = (record.payload(), record.pointer_size());
        let version = record.version().saturating_add(version_offset);
        let read = || -> Result<Operation, Error> {
            Ok(match kind {
                Kind::Create => {
                    let create = view::FileCreate::parse(payload, version, pointer)?;
                    Operation::Create { irp: create.irp.0, disposition: create.disposition() }
                }
                Kind::End => {
                    let end = view::OperationEnd::parse(payload, version, pointer)?;
                    Operation::End { irp: end.irp.0, status: end.nt_status, information: end.extra_info }
                }
                Kind::Other(at) => {
                    request(payload, at, pointer).map_or(Operation::Malformed, |irp| Operation::Other { irp })
                }
            })
        };
        read().unwrap_or(Operation::Malformed)
    }
}

fn request(payload: &[u8], at: usize, pointer: PointerSize) -> Option<u64> {
    let bytes = payload.get(at..at + pointer.bytes())?;
    let mut extended = [0; 8];
    extended[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(extended))
}
