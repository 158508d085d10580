//! The classes of the kernel logger, and those that mergers and sessions add.
//!
//! A kernel record names its event by a *hook*: group in the upper, type in the lower byte. A Windows consumer sees the
//! same event as class GUID and opcode. What the payload holds depends on hook, version and the record's pointer
//! size. Where a layout changed without a new version, the payload's length decides; newer builds also append fields,
//! which readers of older layouts ignore.
//!
//! The layouts are tables in a notation of their own (`tables/*.txt`), read once; [`lookup`] gives them as
//! [`Schema`]s. [`view`] has typed readers of the classes that other crates read most, written independently of the tables;
//! a test compares the two on random bytes.
//!
//! Does not know who wrote a record, nor what other records say.

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

/// An event that the tables know at least by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// Group and type; `None` for classes that have a GUID only.
    pub hook_id: Option<u16>,
    /// `Class/Type`.
    pub name: &'static str,
    /// The class GUID that consumers see.
    pub class: Guid,
}

/// The layout of a hook's payload. `None` where not even the hook's name is known.
///
/// Versions above the highest known one are read like it. A hook of which only the name is known has a single field,
/// the raw payload.
#[inline]
pub fn lookup(hook_id: u16, version: u8, pointer: PointerSize) -> Option<&'static Schema> {
    Some(CATALOGUE.by_hook_id(hook_id)?.schema(version, pointer))
}

/// As [`lookup`], with a payload that decides where a version has several layouts.
#[inline]
pub fn lookup_for(
    hook_id: u16,
    version: u8,
    pointer: PointerSize,
    payload: &[u8],
) -> Option<&'static Schema> {
    Some(CATALOGUE.by_hook_id(hook_id)?.schema_for(version, pointer, payload))
}

/// The layout of a classic event, which names its class by GUID.
pub fn lookup_classic(class: Guid, opcode: u8, version: u8, pointer: PointerSize) -> Option<&'static Schema> {
    Some(classic(class, opcode)?.schema(version, pointer))
}

/// As [`lookup_classic`], with a payload that decides where a version has several layouts.
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

/// Whether the tables know no more than the event's name.
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

/// The hook under which the kernel records what consumers see as class and opcode. `None` for a class without a group.
pub fn hook_id_of(class: Guid, opcode: u8) -> Option<u16> {
    if class == class_guid::IMAGE && opcode == hook_id::IMAGE_LOAD as u8 {
        return Some(hook_id::IMAGE_LOAD);
    }
    Some(u16::from(CATALOGUE.group_of(class)?) << 8 | u16::from(opcode))
}

/// Whether an event of this class and type, written with a classic header, reads differently from the kernel's own under
/// the hook of the same class and type.
pub fn differs_if_classic(class: Guid, opcode: u8) -> bool {
    CATALOGUE.by_type(class, opcode).is_some() && hook_id_of(class, opcode).is_some()
}

/// The class GUID that consumers see for a group. The image load is an exception: see [`hook_id_of`].
pub fn class_of_group(group: u8) -> Option<Guid> {
    CATALOGUE.class_guid(group)
}

/// The class GUID that consumers see for a hook.
pub fn class_of_hook_id(hook_id: u16) -> Option<Guid> {
    if hook_id == hook_id::IMAGE_LOAD {
        return Some(class_guid::IMAGE);
    }
    class_of_group((hook_id >> 8) as u8)
}

/// All events, in the order of the tables.
pub fn events() -> impl Iterator<Item = KernelEvent> {
    CATALOGUE.events().iter().map(|event| KernelEvent {
        hook_id: event.hook_id,
        name: &event.name,
        class: event.class,
    })
}

/// The versions of a hook from which on a new layout holds, in ascending order.
pub fn versions(hook_id: u16) -> impl Iterator<Item = u8> {
    CATALOGUE.by_hook_id(hook_id).into_iter().flat_map(Event::versions)
}

/// The names of a field's values that several classes share, such as `WaitReason`, `ThreadState` or `PageKind`.
pub fn map(name: &str) -> Option<&'static Arc<Map>> {
    CATALOGUE.map(name)
}
