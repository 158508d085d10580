//! Interned data: names, modules, frames and stacks. Ids are the indexes of the profile plus 1.

use std::io;

use rustc_hash::FxHashMap;
use stackhound_types::PdbIdentity;

use super::messages::{Callstack, Frame, InternedData, InternedString, Mapping, Named, TracePacket};
use super::{NEEDS_STATE, Packets};
use stackhound_profile::Profile;
use stackhound_profile::{Module, StackId};

/// Maximum number of entries per packet, so that the size of packets is bounded.
const ENTRIES_MAX: usize = 1 << 12;

/// The mapping of frames in no module. The mappings of modules follow.
const NO_MODULE: u64 = 1;

pub fn stack_number(stack: StackId) -> u64 {
    stack.index() as u64 + 1
}

/// Keys of markers by their text.
pub type Keys<'p> = FxHashMap<&'p str, u64>;

/// The ids of all keys.
pub fn keys(profile: &Profile) -> Keys<'_> {
    let mut keys = Keys::default();
    for key in profile.marker_kinds().iter().flat_map(|kind| &kind.keys) {
        let next = keys.len() as u64 + 1;
        keys.entry(key).or_insert(next);
    }
    keys
}

/// Writes all interned data.
pub fn write(profile: &Profile, keys: &Keys<'_>, packets: &mut Packets<'_>) -> io::Result<()> {
    let named = |(index, name): (usize, &str)| Named { iid: index as u64 + 1, name: name.to_owned() };
    let category = InternedData { event_categories: vec![named((0, "event"))], ..InternedData::default() };
    send(category, packets)?;
    let names = profile.marker_kinds().iter().map(|kind| &*kind.name).enumerate().map(named);
    in_parts(names, packets, |event_names| InternedData { event_names, ..InternedData::default() })?;
    let mut keys: Vec<_> = keys.iter().map(|(&key, &iid)| Named { iid, name: key.to_owned() }).collect();
    keys.sort_unstable_by_key(|key| key.iid);
    in_parts(keys.into_iter(), packets, |debug_annotation_names| InternedData {
        debug_annotation_names,
        ..InternedData::default()
    })?;
    modules(profile, packets)?;
    frames(profile, packets)?;
    let used = used(profile);
    let stacks = profile.stack_ids().filter(|stack| used[stack.index()]).map(|stack| {
        let mut frame_ids: Vec<u64> = profile.stack(stack).map(|frame| frame.index() as u64 + 1).collect();
        frame_ids.reverse();
        Callstack { iid: stack_number(stack), frame_ids }
    });
    in_parts(stacks, packets, |callstacks| InternedData { callstacks, ..InternedData::default() })
}

fn modules(profile: &Profile, packets: &mut Packets<'_>) -> io::Result<()> {
    let text = |iid: u64, text: &str| InternedString { iid, str: text.as_bytes().to_vec() };
    send(
        InternedData {
            mapping_paths: vec![text(NO_MODULE, "")],
            mappings: vec![Mapping { iid: NO_MODULE, build_id: None, path_string_ids: vec![NO_MODULE] }],
            ..InternedData::default()
        },
        packets,
    )?;
    for (index, module) in profile.modules().iter().enumerate() {
        let iid = NO_MODULE + 1 + index as u64;
        let build_id = build_id(module);
        send(
            InternedData {
                mapping_paths: vec![text(
                    iid,
                    if module.path.is_empty() { &module.name } else { &module.path },
                )],
                mappings: vec![Mapping {
                    iid,
                    build_id: build_id.as_ref().map(|_| iid),
                    path_string_ids: vec![iid],
                }],
                build_ids: build_id.iter().map(|id| text(iid, id)).collect(),
                ..InternedData::default()
            },
            packets,
        )?;
    }
    Ok(())
}

/// The key of the PDB on symbol servers, otherwise that of the image.
fn build_id(module: &Module) -> Option<String> {
    let pdb = module.pdb.as_ref().map(PdbIdentity::store_key);
    pdb.or_else(|| module.image.map(|image| image.store_key()))
}

fn frames(profile: &Profile, packets: &mut Packets<'_>) -> io::Result<()> {
    let text = |iid: u64, text: &str| InternedString { iid, str: text.as_bytes().to_vec() };
    let number = |index: usize| index as u64 + 1;
    let names = profile.frames().iter().enumerate().map(|(index, frame)| text(number(index), &frame.name));
    in_parts(names, packets, |function_names| InternedData { function_names, ..InternedData::default() })?;
    let paths = profile.frames().iter().enumerate();
    let paths = paths.filter_map(|(index, frame)| Some(text(number(index), &frame.source.as_ref()?.file)));
    in_parts(paths, packets, |source_paths| InternedData { source_paths, ..InternedData::default() })?;
    let frames = profile.frames().iter().enumerate().map(|(index, frame)| Frame {
        iid: number(index),
        function_name_id: number(index),
        mapping_id: frame
            .location
            .map_or(NO_MODULE, |location| NO_MODULE + 1 + location.module.index() as u64),
        rel_pc: frame.location.map_or(0, |location| location.instruction().into()),
        source_path_iid: frame.source.as_ref().map(|_| number(index)),
        line_number: frame.source.as_ref().map(|source| source.line),
    });
    in_parts(frames, packets, |frames| InternedData { frames, ..InternedData::default() })
}

/// The stacks that samples or markers refer to.
fn used(profile: &Profile) -> Vec<bool> {
    let mut used = vec![false; profile.stacks().len()];
    let markers = profile.markers().iter().filter_map(|record| record.marker.stack);
    for stack in profile.samples().map(|sample| sample.stack).chain(markers) {
        used[stack.index()] = true;
    }
    used
}

fn in_parts<T>(
    mut entries: impl Iterator<Item = T>,
    packets: &mut Packets<'_>,
    data: impl Fn(Vec<T>) -> InternedData,
) -> io::Result<()> {
    loop {
        let part: Vec<T> = entries.by_ref().take(ENTRIES_MAX).collect();
        if part.is_empty() {
            return Ok(());
        }
        send(data(part), packets)?;
    }
}

fn send(data: InternedData, packets: &mut Packets<'_>) -> io::Result<()> {
    packets.send(TracePacket {
        interned_data: Some(data),
        sequence_flags: NEEDS_STATE,
        ..TracePacket::default()
    })
}
