//! The classes of the kernel logger, and those that merged traces and sessions add.
//!
//! A kernel record identifies its event by a *hook id*, with the group in the high byte and the
//! type in the low byte. A Windows consumer sees the same event with a class GUID and an opcode.
//! The layout of the payload depends on the hook id, the version and the record's pointer size. If
//! a layout changed without a new version, the length of the payload decides. Newer builds also
//! append fields, which are ignored by older layouts.
//!
//! The layouts are tables in a notation of this crate (`tables/*.txt`), which are read once;
//! [`lookup`] returns them as [`Schema`]s. [`view`] has typed readers of the classes that other
//! crates read most often. They are written independently of the tables, and a test compares both
//! on random bytes.
//!
//! This module does not use other records to interpret a record.

mod catalogue;
pub mod class_guid;
pub mod hook_id;
mod plans;
pub mod view;

use std::sync::Arc;

use stackhound_types::{Guid, PointerSize};

use crate::model::{InType, Length, Map, Schema};
use catalogue::{CATALOGUE, Event};
pub use plans::plan;

/// An event in the tables, with or without a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// Group and type; `None` for classes without a group.
    pub hook_id: Option<u16>,
    /// `Class/Type`.
    pub name: &'static str,
    /// The class GUID that consumers see.
    pub class: Guid,
}

/// The layout of the payload for a hook id. `None` if the tables do not contain the hook id.
///
/// Versions above the highest known one have its layout. A hook id with a name but no layout has a
/// single field with the raw payload.
#[inline]
pub fn lookup(hook_id: u16, version: u8, pointer: PointerSize) -> Option<&'static Schema> {
    Some(CATALOGUE.by_hook_id(hook_id)?.schema(version, pointer))
}

/// As [`lookup`]. If a version has several layouts, the payload decides between them.
#[inline]
pub fn lookup_for(
    hook_id: u16,
    version: u8,
    pointer: PointerSize,
    payload: &[u8],
) -> Option<&'static Schema> {
    Some(CATALOGUE.by_hook_id(hook_id)?.schema_for(version, pointer, payload))
}

/// The layout of a classic event, whose class is identified by its GUID.
pub fn lookup_classic(class: Guid, opcode: u8, version: u8, pointer: PointerSize) -> Option<&'static Schema> {
    Some(classic(class, opcode)?.schema(version, pointer))
}

/// As [`lookup_classic`]. If a version has several layouts, the payload decides between them.
pub fn lookup_classic_for(
    class: Guid,
    opcode: u8,
    version: u8,
    pointer: PointerSize,
    payload: &[u8],
) -> Option<&'static Schema> {
    Some(classic(class, opcode)?.schema_for(version, pointer, payload))
}

fn classic(class: Guid, opcode: u8) -> Option<&'static Event> {
    CATALOGUE.by_type(class, opcode).or_else(|| CATALOGUE.by_hook_id(hook_id_of(class, opcode)?))
}

/// Whether the tables contain only the event's name.
pub(crate) fn is_opaque(schema: &Schema) -> bool {
    match &*schema.fields {
        [field] => field.in_type == InType::Binary && field.length == Length::Rest,
        _ => false,
    }
}

/// The event's name, `Class/Type`.
#[inline]
pub fn name(hook_id: u16) -> Option<&'static str> {
    CATALOGUE.by_hook_id(hook_id).map(|event| &*event.name)
}

/// Whether events of a class are added by merging tools, with the times of recorded events: image
/// identities, embedded metadata, system paths and volumes; and the markers of lost events. The ids
/// in their headers are those of the tool, which ran later, and perhaps on another machine.
pub fn is_added_by_tools(class: Guid) -> bool {
    [class_guid::IMAGE_ID, class_guid::EVENT_META_DATA, class_guid::SYS_CONFIG_EX, class_guid::LOST_EVENT]
        .contains(&class)
}

/// Whether an event is a sample of what a processor executes: of its timer, of a non-maskable
/// interrupt, or of a counter. The innermost address of its stack is an instruction.
#[inline]
pub fn is_sample(hook_id: u16) -> bool {
    matches!(
        hook_id,
        hook_id::PERF_INFO_SAMPLED_PROFILE
            | hook_id::PERF_INFO_SAMPLED_PROFILE_NMI
            | hook_id::PERF_INFO_PMC_COUNTER_PROFILE
    )
}

/// Whether an event is logged when a transfer of a disk is complete, on any thread.
#[inline]
pub fn is_disk_completion(hook_id: u16) -> bool {
    matches!(
        hook_id,
        hook_id::DISK_IO_READ
            | hook_id::DISK_IO_WRITE
            | hook_id::DISK_IO_FLUSH_BUFFERS
            | hook_id::DISK_IO_OPTICAL_READ
            | hook_id::DISK_IO_OPTICAL_WRITE
            | hook_id::DISK_IO_OPTICAL_FLUSH_BUFFERS
    )
}

/// The hook id for a class and opcode that consumers see. `None` for a class without a group, and for
/// type 10 of processes, because its hook id is that of image loads.
pub fn hook_id_of(class: Guid, opcode: u8) -> Option<u16> {
    if class == class_guid::IMAGE && opcode == hook_id::IMAGE_LOAD as u8 {
        return Some(hook_id::IMAGE_LOAD);
    }
    let hook_id = u16::from(CATALOGUE.group_of(class)?) << 8 | u16::from(opcode);
    (hook_id != hook_id::IMAGE_LOAD).then_some(hook_id)
}

/// Whether an event of this class and type has a different layout with a classic header than as a
/// kernel record with the hook id of this class and type.
pub fn differs_if_classic(class: Guid, opcode: u8) -> bool {
    CATALOGUE.by_type(class, opcode).is_some() && hook_id_of(class, opcode).is_some()
}

/// The class GUID that consumers see for a group. Image loads are an exception: see [`hook_id_of`].
pub fn class_of_group(group: u8) -> Option<Guid> {
    CATALOGUE.class_guid(group)
}

/// The class GUID that consumers see for a hook id.
pub fn class_of_hook_id(hook_id: u16) -> Option<Guid> {
    if hook_id == hook_id::IMAGE_LOAD {
        return Some(class_guid::IMAGE);
    }
    class_of_group((hook_id >> 8) as u8)
}

/// The classes with their names. A class can be listed twice.
pub(crate) fn classes() -> impl Iterator<Item = (Guid, &'static str)> {
    CATALOGUE.classes().iter().map(|(class, name)| (*class, &**name))
}

/// All events, in the order of the tables.
pub fn events() -> impl Iterator<Item = KernelEvent> {
    CATALOGUE.events().iter().map(|event| KernelEvent {
        hook_id: event.hook_id,
        name: &event.name,
        class: event.class,
    })
}

/// The versions at which a layout of a hook id begins, in ascending order.
pub fn versions(hook_id: u16) -> impl Iterator<Item = u8> {
    CATALOGUE.by_hook_id(hook_id).into_iter().flat_map(Event::versions)
}

/// A map that fields of several classes use, such as `WaitReason`, `ThreadState` or `PageKind`.
pub fn map(name: &str) -> Option<&'static Arc<Map>> {
    CATALOGUE.map(name)
}
