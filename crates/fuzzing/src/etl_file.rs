//! Runs arbitrary bytes through the whole pipeline: merged with another trace, with stacks, and
//! decoded.

use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use stackhound_etl::EtlFile;
use stackhound_etl::record::{ExtendedType, Record};
use stackhound_etl::write::{EtlWriter, Session};
use stackhound_schema::{Identity, Plan, SchemaStore, kernel};
use stackhound_stacks::Window;
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{FileTime, Pid, RawTime, Tid};

use crate::container::read_block;
use crate::correlation;
use crate::payloads::decode_everything;

/// Reads bytes as an .etl file, alone and together with another one whose clock is different.
pub fn etl_file(bytes: &[u8]) {
    let Ok(etl_file) = EtlFile::open(bytes.to_vec().into()) else { return };
    let alone = trace(&[&etl_file]);
    correlation::check(&alone, Window { max_hold: 1000, max_pending: 16 });
    correlation::check(&alone, Window::of(&alone.clock()));
    for (_, loaded) in alone.blocks() {
        loaded.iter().for_each(|(block, _)| read_block(block));
    }
    decode_all(&alone);

    for sources in [[&etl_file, other()], [other(), &etl_file]] {
        let both = trace(&sources);
        let window = Window::of(&both.clock());
        correlation::check(&both, window);
    }
}

fn trace(trace_files: &[&EtlFile]) -> OpenTrace {
    let source =
        |(number, etl_file): (u16, &&EtlFile)| Source::new("", EtlFile::clone(etl_file).numbered(number));
    OpenTrace::new((0..).zip(trace_files).map(source).collect(), 1).expect("at least one source")
}

/// A file with one event and a distinct clock.
fn other() -> &'static EtlFile {
    static OTHER: OnceLock<EtlFile> = OnceLock::new();
    OTHER.get_or_init(|| {
        let session = Session {
            start: RawTime(3),
            start_time: FileTime(1 << 40),
            perf_frequency: const { std::num::NonZeroU64::new(2_648_433).unwrap() },
            buffer_size: 1024,
            ..Session::default()
        };
        let writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a valid session");
        let (file, _) = writer.finish().expect("writing to memory succeeds");
        EtlFile::open(file.into_inner().into()).expect("a trace of the writer")
    })
}

/// Reads all embedded schemas, then decodes every payload.
fn decode_all(trace: &OpenTrace) {
    let mut store = SchemaStore::new();
    for pass in 0..2 {
        let mut events = trace.ordered();
        while let Some(event) = events.next() {
            let record = event.record();
            if pass == 0 {
                if let Some(identity) = identity(&record) {
                    let (pid, tid) = (record.pid().unwrap_or(Pid::IDLE), record.tid().unwrap_or(Tid(0)));
                    let _ = store.learn(&identity, pid, tid, record.payload());
                }
            } else if let Some(plan) = plan(&mut store, &record) {
                decode_everything(&plan, record.payload(), record.pointer_size());
            }
        }
    }
}

fn plan(store: &mut SchemaStore, record: &Record<'_>) -> Option<Arc<Plan>> {
    let (version, pointer) = (record.version(), record.pointer_size());
    let built_in = match record.hook_id() {
        Some(hook_id) => kernel::lookup_for(hook_id, version, pointer, record.payload()),
        None => None,
    };
    match built_in {
        Some(schema) => Some(Arc::new(Plan::new(Arc::new(schema.clone())))),
        None => store.lookup(&identity(record)?, record.payload(), record.pointer_size()).cloned(),
    }
}

/// The properties that determine how a record's payload is decoded.
fn identity<'a>(record: &Record<'a>) -> Option<Identity<'a>> {
    const STRING_ONLY: u16 = 0x0004;
    let version = record.version();
    if let Some(hook_id) = record.hook_id() {
        return Some(Identity::Kernel { hook_id, version });
    }
    let guid = record.guid()?;
    if record.kind().is_classic() {
        return Some(Identity::Classic { class: guid, opcode: record.opcode(), version });
    }
    if let Some(number) = record.message_number() {
        return Some(Identity::Message { guid, number });
    }
    let descriptor = record.descriptor()?;
    let items = record.extended_items();
    if let Some(metadata) = items.find(ExtendedType::SCHEMA) {
        return Some(Identity::TraceLogging { provider: guid, metadata, opcode: descriptor.opcode });
    }
    if record.event_flags().is_some_and(|(flags, _)| flags & STRING_ONLY != 0) {
        return Some(Identity::Text { provider: guid });
    }
    let (id, opcode, task) = (descriptor.id, descriptor.opcode, descriptor.task);
    Some(Identity::Manifest { provider: guid, id, version, opcode, task })
}
