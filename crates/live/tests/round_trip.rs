//! A record that is converted to the form that consumers receive, and restored, is unchanged.
//! Checked for all traces of the corpus and of the demo.

use std::collections::BTreeMap;
use std::io::Cursor;

use stackhound_etl::record::Record;
use stackhound_etl::{Block, BlockBuilder, EtlFile};
use stackhound_etw_fake::deliver::{Delivered, deliver, flags};
use stackhound_live::{EventRecord, ExtendedDataItem};
use stackhound_scenario::{Mix, Scenario};

/// The reason why a record is not restored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reason {
    /// Consumers receive the header of the session in another way.
    LogfileHeader,
    /// The class of the group is unknown, so the class that Windows would show is not known.
    UnknownGroup,
    /// A classic record of a kernel class. Consumers cannot distinguish it from an event of the
    /// kernel.
    KernelClass,
}

fn reason(record: &Record<'_>) -> Option<Reason> {
    match record.hook_id() {
        Some(0) => Some(Reason::LogfileHeader),
        Some(hook_id) if stackhound_schema::kernel::class_of_group((hook_id >> 8) as u8).is_none() => {
            Some(Reason::UnknownGroup)
        }
        Some(_) => None,
        None if record.kind().is_classic() => {
            let class = record.guid().expect("classic records have a class");
            stackhound_schema::kernel::hook_id_of(class, record.opcode()).map(|_| Reason::KernelClass)
        }
        None => None,
    }
}

/// The record that the conversion writes.
fn restored(block: &Block, event: &Delivered<'_>) -> Vec<u8> {
    let items: Vec<ExtendedDataItem<'_>> =
        event.items.iter().map(|(kind, data)| (*kind, data.bytes())).collect();
    let converted =
        EventRecord { header: &event.header, processor: 0, items: &items, payload: event.payload };
    let mut builder = BlockBuilder::new(block.session().clone(), 0, Some(0), 1 << 10);
    converted.write(&mut builder).expect("no larger than it was");
    let (block, error) = builder.take().expect("an event was written");
    assert_eq!(error, None);
    assert_eq!(block.entries().len(), 1, "one record each");
    block.record(&block.entries()[0]).bytes().to_vec()
}

/// The number of records of a trace that were restored, and the others by reason.
fn check(name: &str, etl_file: &EtlFile) -> (u64, BTreeMap<Reason, u64>) {
    let (mut same, mut others) = (0, BTreeMap::new());
    for buffer in &etl_file.index().buffers {
        let Ok((block, _)) = etl_file.block(buffer, None) else { continue };
        for entry in block.entries() {
            let record = block.record(entry);
            let event = deliver(&record, flags::PROCESSOR_INDEX);
            if let Some(reason) = reason(&record) {
                assert_eq!(event.is_some(), reason == Reason::KernelClass, "{name} {record:?}");
                *others.entry(reason).or_default() += 1;
                continue;
            }
            let event = event.unwrap_or_else(|| panic!("{name}: {record:?} is not delivered"));
            let returned = restored(&block, &event);
            assert!(
                returned == record.bytes(),
                "{name}: {:?} {:?}\n{:02x?}\n{returned:02x?}",
                record.kind(),
                record.hook_id(),
                record.bytes()
            );
            same += 1;
        }
    }
    (same, others)
}

#[test]
fn windows_records_are_restored_byte_for_byte() {
    let mut total = 0;
    let mut others = BTreeMap::new();
    for (name, _) in stackhound_corpus::trace_files() {
        let bytes = stackhound_corpus::etl_file(&name).expect("it was listed");
        let Ok(etl_file) = EtlFile::open(bytes.into()) else { continue };
        let (same, not) = check(&name, &etl_file);
        total += same;
        for (reason, count) in not {
            *others.entry(reason).or_insert(0) += count;
        }
    }
    println!("{total} records are the same; others: {others:?}");
    assert!(total > 0 || stackhound_corpus::folder().is_none());
}

#[test]
fn demo_records_are_restored_byte_for_byte() {
    for mix in [Mix::Default, Mix::Profile] {
        let mut file = Cursor::new(Vec::new());
        Scenario { events: 50_000, seed: 7, mix }.write(&mut file).expect("a trace");
        let etl_file = EtlFile::open(file.into_inner().into()).expect("a trace");
        let (same, others) = check("demo", &etl_file);
        println!("{same} records are the same; others: {others:?}");
        assert!(same > 10_000);
    }
}
