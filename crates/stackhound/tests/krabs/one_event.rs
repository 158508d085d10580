//! A trace with one event, for cases that push a single event at something.

use std::io::{Cursor, Write};

use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::schema::{Identity, OwnedValue};
use stackhound::{EventFilter, Filter, Guid, Pid, PointerSize, Seen, Tid, Trace, TraceStats};
use tempfile::NamedTempFile;

use crate::schemas::{IMAGE, Kind, store};

/// An event that is to be read.
pub struct OneEvent {
    kind: Kind,
    payload: Vec<u8>,
}

impl OneEvent {
    /// With these texts, and zeros for whatever else it describes.
    pub fn with_texts(kind: Kind, texts: &[(&str, &str)]) -> OneEvent {
        let Kind { provider, id, version, opcode } = kind;
        let identity = Identity::Manifest { provider, id, version, opcode, task: 0 };
        let mut store = store();
        let plan = store.lookup(&identity, &[], PointerSize::Eight).expect("a known event");
        let values: Vec<(&str, OwnedValue)> =
            texts.iter().map(|(name, text)| (*name, OwnedValue::from(*text))).collect();
        let payload = plan.schema().pack_incomplete(&values, PointerSize::Eight).expect("texts of the event");
        OneEvent { kind, payload }
    }

    /// With this payload.
    pub fn with_payload(kind: Kind, payload: Vec<u8>) -> OneEvent {
        OneEvent { kind, payload }
    }

    /// The same payload under another id, which nobody describes.
    pub fn unknown(self, id: u16) -> OneEvent {
        OneEvent { kind: Kind { id, ..self.kind }, ..self }
    }

    /// Reads the event with a trace that is set up by `set_up`.
    pub fn read(&self, set_up: impl FnOnce(Trace) -> Trace) -> TraceStats {
        self.read_with(set_up, |_| {})
    }

    /// What filters say of the event.
    pub fn asked(&self, filters: &[Filter]) -> Vec<bool> {
        let filters: Vec<EventFilter> = filters.iter().cloned().map(EventFilter::new).collect();
        assert!(filters.iter().all(|filter| filter.predicate().is_ok()), "{filters:?}");
        let mut said = Vec::new();
        self.read_with(
            |trace| trace,
            |seen| {
                // Another event describes the session.
                if seen.provider_guid() == Some(self.kind.provider) {
                    said = filters.iter().map(|filter| filter.wants(seen)).collect();
                }
            },
        );
        assert_eq!(said.len(), filters.len());
        said
    }

    fn read_with(&self, set_up: impl FnOnce(Trace) -> Trace, handle: impl FnMut(&Seen<'_>)) -> TraceStats {
        let file = self.recording();
        set_up(Trace::file(file.path()).schemas(store())).run(handle).expect("a recording")
    }

    fn recording(&self) -> NamedTempFile {
        let session = Session::default();
        let Kind { provider, id, version, opcode } = self.kind;
        let issuer = Issuer::new(Pid(812), Tid(900));
        let header = if provider == IMAGE {
            HeaderSpec::System { hook: 0x1400 | u16::from(opcode), version, issuer }
        } else {
            HeaderSpec::Event {
                provider,
                descriptor: Descriptor { id, version, channel: 0, level: 0, opcode, task: 0, keyword: 0 },
                property: 0,
                issuer,
                activity: Guid::ZERO,
                items: &[],
            }
        };
        let record = RecordSpec {
            time: session.start,
            pointer_size: PointerSize::Eight,
            header,
            payload: Payload::Bytes(&self.payload),
        };
        let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a session");
        writer.write(0, &record).expect("a record");
        let (bytes, _) = writer.finish().expect("a recording");
        let mut file = NamedTempFile::new().expect("a file");
        file.write_all(bytes.get_ref()).expect("written");
        file
    }
}

/// Checks what each filter of a table says of the event. No two rows have one name.
#[track_caller]
pub fn check(event: &OneEvent, rows: Vec<(&str, Filter, bool)>) {
    let filters: Vec<Filter> = rows.iter().map(|(_, filter, _)| filter.clone()).collect();
    let mut names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    for ((name, filter, expected), said) in rows.iter().zip(event.asked(&filters)) {
        assert_eq!(said, *expected, "{name}: {filter}");
    }
    names.sort_unstable();
    assert!(names.is_sorted_by(|a, b| a < b), "a name stands twice: {names:?}");
}
