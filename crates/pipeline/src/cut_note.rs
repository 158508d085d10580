//! Notes in a smaller trace about what was cut away: events of a provider of its own.
//!
//! They are TraceLogging events, which describe themselves to every reader, at the time of the first
//! record of the trace. `docs/format/cut-notes.md` has their layout. This module reads and writes them;
//! it does not decide what is cut.

use std::borrow::Cow;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, WriteError};
use stackhound_schema::kernel;
use stackhound_trace::{Event, OpenTrace, TraceTime};
use stackhound_types::{Guid, PointerSize, RawTime};

/// The provider. As for all TraceLogging providers, the GUID follows from the name, `Stackhound`.
const PROVIDER: Guid =
    Guid::new(0x8f1d_531a, 0xd781, 0x5df4, [0xbc, 0xb9, 0xef, 0xab, 0xe3, 0x3d, 0x2c, 0x35]);
/// The ids of the events.
const CUT: u16 = 1;
const CUT_KIND: u16 = 2;
/// The channel of TraceLogging events.
const CHANNEL: u8 = 11;
const INFORMATION: u8 = 4;

/// The types of fields (`TlgIn`).
const TEXT: u8 = 1;
const UINT16: u8 = 6;
const INT64: u8 = 9;
const UINT64: u8 = 10;

/// Maximum length of a selection in UTF-16 units. Longer ones are cut off.
const SELECTION_MAX: usize = 8192;
/// Maximum number of notes, and of events at the time of the first one, that are read.
const NOTES_MAX: usize = 1 << 12;
const SAME_TIME_MAX: usize = 1 << 16;

/// The events of a kind in the whole trace, and in the smaller one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutKind {
    /// The hook id.
    pub hook_id: u16,
    /// The number of events in the whole trace.
    pub events: u64,
    /// How many of them the smaller trace has.
    pub kept: u64,
}

impl CutKind {
    /// The name of the events.
    pub fn name(&self) -> Cow<'static, str> {
        let unknown = || Cow::Owned(format!("Hook({:#06x})", self.hook_id));
        kernel::name(self.hook_id).map_or_else(unknown, Cow::Borrowed)
    }
}

/// What was cut away from a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CutNote {
    /// The conditions of the selected events, as a text for people. Empty if all events were selected.
    pub selection: String,
    /// The start of the selected times, if they are limited.
    pub from: Option<TraceTime>,
    /// The end of the selected times, if they are limited.
    pub to: Option<TraceTime>,
    /// The number of events in the whole trace.
    pub events: u64,
    /// The number of selected events.
    pub selected: u64,
    /// Kinds of kernel events of which some were cut away, by hook id.
    pub kinds: Vec<CutKind>,
}

impl CutNote {
    /// The notes of a trace: none if it was not cut, and several if a smaller trace was cut again, the
    /// first cut first. Reads the events with the time of the first one.
    pub fn of(trace: &OpenTrace) -> Vec<CutNote> {
        let mut notes: Vec<CutNote> = Vec::new();
        let mut first = None;
        let mut events = trace.ordered();
        for _ in 0..SAME_TIME_MAX {
            let Some(event) = events.next() else { break };
            if *first.get_or_insert(event.time()) != event.time() || notes.len() >= NOTES_MAX {
                break;
            }
            if !is_note(&event) {
                continue;
            }
            let mut fields = Fields(event.payload());
            match event.entry().tag {
                CUT => notes.extend(fields.note()),
                CUT_KIND => {
                    if let (Some(note), Some(kind)) = (notes.last_mut(), fields.kind()) {
                        note.kinds.push(kind);
                    }
                }
                _ => {}
            }
        }
        // A cut writes its note before those of earlier ones.
        notes.reverse();
        notes
    }

    /// Passes the records of the note to `write`, each with this time.
    ///
    /// # Errors
    /// The errors of `write`.
    pub(crate) fn write(
        &self,
        time: RawTime,
        pointer_size: PointerSize,
        mut write: impl FnMut(&RecordSpec<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut payload = text(&self.selection);
        for time in [self.from.map_or(i64::MIN, |from| from.0), self.to.map_or(i64::MAX, |to| to.0)] {
            payload.extend(time.to_le_bytes());
        }
        for count in [self.events, self.selected] {
            payload.extend(count.to_le_bytes());
        }
        let metadata = metadata(
            "Cut",
            &[("Selection", TEXT), ("From", INT64), ("To", INT64), ("Events", UINT64), ("Selected", UINT64)],
        );
        write(&record(CUT, time, pointer_size, &[ItemSpec::Schema(&metadata), TRAITS], &payload))?;
        let metadata = self::metadata(
            "CutKind",
            &[("Name", TEXT), ("HookId", UINT16), ("Events", UINT64), ("Kept", UINT64)],
        );
        for kind in &self.kinds {
            let mut payload = text(&kind.name());
            payload.extend(kind.hook_id.to_le_bytes());
            for count in [kind.events, kind.kept] {
                payload.extend(count.to_le_bytes());
            }
            write(&record(CUT_KIND, time, pointer_size, &[ItemSpec::Schema(&metadata), TRAITS], &payload))?;
        }
        Ok(())
    }
}

/// Whether an event is a part of a note.
pub(crate) fn is_note(event: &Event<'_>) -> bool {
    event.kind().has_descriptor() && event.guid() == Some(PROVIDER)
}

/// The traits of the provider: their size, and its name.
const TRAITS: ItemSpec<'static> = ItemSpec::ProviderTraits(b"\x0d\0Stackhound\0");

fn record<'a>(
    id: u16,
    time: RawTime,
    pointer_size: PointerSize,
    items: &'a [ItemSpec<'a>],
    payload: &'a [u8],
) -> RecordSpec<'a> {
    let descriptor =
        Descriptor { id, version: 0, channel: CHANNEL, level: INFORMATION, opcode: 0, task: 0, keyword: 0 };
    let header = HeaderSpec::Event {
        provider: PROVIDER,
        descriptor,
        property: 0,
        issuer: Issuer::UNKNOWN,
        activity: Guid::ZERO,
        items,
    };
    RecordSpec { time, pointer_size, header, payload: Payload::Bytes(payload) }
}

/// The description of an event: its size, no tags, its name, and the names and types of its fields.
fn metadata(name: &str, fields: &[(&str, u8)]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    bytes.extend(name.bytes().chain([0]));
    for (name, in_type) in fields {
        bytes.extend(name.bytes().chain([0, *in_type]));
    }
    let size = bytes.len() as u16;
    bytes[..2].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// A text in UTF-16 with a zero at its end.
fn text(text: &str) -> Vec<u8> {
    let units = text.encode_utf16().filter(|unit| *unit != 0).take(SELECTION_MAX);
    units.chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// The rest of a payload.
struct Fields<'p>(&'p [u8]);

impl Fields<'_> {
    fn note(&mut self) -> Option<CutNote> {
        let selection = self.text()?;
        let mut time = || self.bytes().map(i64::from_le_bytes);
        let (from, to) = (time()?, time()?);
        let mut count = || self.bytes().map(u64::from_le_bytes);
        Some(CutNote {
            selection,
            from: (from > i64::MIN).then_some(TraceTime(from)),
            to: (to < i64::MAX).then_some(TraceTime(to)),
            events: count()?,
            selected: count()?,
            kinds: Vec::new(),
        })
    }

    fn kind(&mut self) -> Option<CutKind> {
        // The name follows from the id.
        self.text()?;
        let hook_id = u16::from_le_bytes(self.bytes()?);
        let mut count = || self.bytes().map(u64::from_le_bytes);
        Some(CutKind { hook_id, events: count()?, kept: count()? })
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn text(&mut self) -> Option<String> {
        let mut units = Vec::new();
        loop {
            match u16::from_le_bytes(self.bytes()?) {
                0 => return Some(String::from_utf16_lossy(&units)),
                unit => units.push(unit),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_payloads_are_notes() {
        let note = CutNote {
            selection: "pid = 4, from +0.1s".to_owned(),
            from: Some(TraceTime(7)),
            to: None,
            events: 10,
            selected: 3,
            kinds: vec![CutKind { hook_id: 0x0524, events: 9, kept: 2 }],
        };
        let mut payloads = Vec::new();
        let write = |record: &RecordSpec<'_>| {
            let Payload::Bytes(payload) = record.payload else { panic!("{record:?}") };
            payloads.push(payload.to_vec());
            Ok(())
        };
        note.write(RawTime(1), PointerSize::Eight, write).unwrap();
        let [cut, kind] = &payloads[..] else { panic!("{payloads:?}") };
        for size in 0..cut.len() {
            assert_eq!(Fields(&cut[..size]).note(), None, "{size}");
        }
        for size in 0..kind.len() {
            assert_eq!(Fields(&kind[..size]).kind(), None, "{size}");
        }
        let read = Fields(cut).note().unwrap();
        let kinds = vec![Fields(kind).kind().unwrap()];
        assert_eq!(CutNote { kinds, ..read }, note);
        assert_eq!(note.kinds[0].name(), "Thread/CSwitch");
    }
}
