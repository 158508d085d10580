//! Provider events of the profile mix: methods and allocations of managed code.

use std::io::Write;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{HeaderSpec, ItemSpec, WriteError};
use stackhound_types::{Guid, PointerSize};

use super::Profile;
use crate::frames::Frames;
use crate::payload::Payload;
use crate::provider::{ALLOCATION_TICK, Identity, METHOD_LOAD, METHOD_RUNDOWN, RUNTIME, RUNTIME_RUNDOWN};
use crate::random::hash;

/// Number of different methods, and of different types. Their names are combined from the lists
/// below.
const METHODS: u64 = 512;
const NAMESPACES: [&str; 8] = [
    "Contoso.Office.Layout",
    "Contoso.Office.TextFormatter",
    "Contoso.Data.Query.Visitor",
    "Contoso.Net.ConnectionPool",
    "System.Collections.Generic.Dictionary`2[System.__Canon,System.Int32]",
    "System.Threading.Tasks.Task",
    "Contoso.Cache.SegmentReader",
    "Contoso.Sync.ChangeTracker",
];
const NAMES: [&str; 8] = [
    "MoveNext",
    "TryGetValue",
    "get_Current",
    "WriteCore",
    "ExecuteAsync",
    "Compare",
    ".ctor",
    "FormatParagraph",
];
const SIGNATURES: [&str; 4] = [
    "instance bool  ()",
    "instance void  (class System.String,int32)",
    "class System.Threading.Tasks.Task  (int32)",
    "int32  (!0,!0)",
];

/// Encoded names for payloads, built once.
#[derive(Debug)]
pub(super) struct Catalogue {
    methods: Vec<Payload>,
    types: Vec<Payload>,
}

impl Catalogue {
    pub fn new() -> Catalogue {
        let part = |from: &'static [&'static str], number: u64| from[number as usize % from.len()];
        let method = |number: u64| {
            let mut names = Payload::default();
            let number = hash(number);
            names.utf16(part(&NAMESPACES, number)).utf16(part(&NAMES, number >> 16));
            names.utf16(part(&SIGNATURES, number >> 32));
            names
        };
        let type_name = |number| {
            let mut name = Payload::default();
            name.utf16(part(&NAMESPACES, hash(number)));
            name
        };
        Catalogue {
            methods: (0..METHODS).map(method).collect(),
            types: (0..METHODS).map(type_name).collect(),
        }
    }
}

/// One in this many events contains its stack.
const STACK_IN: u64 = 100;

impl<W: Write> Profile<'_, W> {
    pub(super) fn provider_event(&mut self) -> Result<(), WriteError> {
        let on = self.any_processor();
        let actor = self.running[usize::from(on)];
        let is_32_bit = self.machine.processes[actor.process].facts.is_wow64;
        let pointer_size = if is_32_bit { PointerSize::Four } else { PointerSize::Eight };
        let number = self.random.below(METHODS);
        let draw = self.random.below(20);
        let out = &mut self.out.payload;
        let identity = match draw {
            0..3 => {
                allocation(out, number, &self.catalogue.types[number as usize], pointer_size);
                identity(RUNTIME, ALLOCATION_TICK, 3, 1, 11, 0x1)
            }
            3..9 => {
                method(out, number, &self.catalogue.methods[number as usize]);
                identity(RUNTIME, METHOD_LOAD, 2, 9, 37, 0x30)
            }
            _ => {
                method(out, number, &self.catalogue.methods[number as usize]);
                identity(RUNTIME_RUNDOWN, METHOD_RUNDOWN, 2, 1, 40, 0x30)
            }
        };
        let has_stack = !is_32_bit && self.random.one_in(STACK_IN);
        let frames = if has_stack { self.user_frames(&actor, false) } else { Frames::EMPTY };
        let frame_size = PointerSize::Eight;
        let items =
            [ItemSpec::StackTrace { pointer_size: frame_size, match_id: 0, frames: frames.as_slice() }];
        let header = HeaderSpec::Event {
            provider: identity.provider,
            descriptor: identity.descriptor,
            property: 0,
            issuer: actor.issuer(),
            activity: Guid::ZERO,
            items: if has_stack { &items } else { &[] },
        };
        let logged = self.out.event(on, identity.kind(), pointer_size, header)?;
        if has_stack {
            self.stacks.extended_event(identity.kind(), logged, actor.owner(), &frames, None);
        }
        Ok(())
    }
}

fn identity(provider: Guid, id: u16, version: u8, task: u16, opcode: u8, keyword: u64) -> Identity {
    let level = if id == METHOD_RUNDOWN { 4 } else { 5 };
    Identity { provider, descriptor: Descriptor { id, version, channel: 0, level, opcode, task, keyword } }
}

/// A method that was compiled, or that exists at the end of the trace.
fn method(out: &mut Payload, number: u64, names: &Payload) {
    let address = 0x7ff9_0000_0000 + number * 0x340;
    out.u64(address + 0x10_0000)
        .u64(0x7ff9_1000_0000)
        .u64(address)
        .u32(0x180)
        .u32(0x0600_0001 + number as u32);
    out.u32(0x1).bytes(names.as_bytes()).u16(6).u64(0);
}

/// An allocation tick: the bytes allocated since the last such event.
fn allocation(out: &mut Payload, number: u64, type_name: &Payload, pointer_size: PointerSize) {
    out.u32(106_496).u32(0).u16(6).u64(106_496).pointer(0x7100_0000 + number * 0x80, pointer_size);
    out.bytes(type_name.as_bytes()).u32(0).pointer(0x0270_0000 + number * 0x40, pointer_size);
}
