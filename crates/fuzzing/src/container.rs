//! Reads arbitrary bytes as .etl files, down to the records.

use stackhound_etl::{Block, EtlFile, Index, ManifestEvents, Selection};

use crate::records::read_everything;

/// Opens bytes as an .etl file, finds its buffers and reads all of their records.
pub fn container(bytes: &[u8]) {
    let Ok(etl_file) = EtlFile::open(bytes.to_vec().into()) else { return };
    let index = etl_file.index();
    check_index(&etl_file, &index);
    let selection =
        Selection::none().hook_ids([0x0f2e, 0x1820]).classic().manifest_events(ManifestEvents::All);
    for buffer in &index.buffers {
        let Ok((block, _)) = etl_file.block(buffer, None) else { continue };
        read_block(&block);
        let (selected, _) = etl_file.block(buffer, Some(&selection)).expect("as readable as before");
        let in_block = |entry| block.entries().contains(entry);
        assert!(selected.entries().iter().all(in_block), "a selection is a subset");
    }
}

/// Checks that buffers are consecutive in the file, and that the streams contain all of them.
fn check_index(etl_file: &EtlFile, index: &Index) {
    let mut end = 0;
    for buffer in &index.buffers {
        assert!(buffer.offset >= end, "buffers do not overlap");
        end = buffer.offset + u64::from(buffer.size);
        assert!(end <= etl_file.size());
    }
    for damage in &index.damage {
        assert!(damage.offset + damage.skipped <= etl_file.size());
    }
    assert_eq!(index.streams().concat().len(), index.buffers.len());
    index.missing_buffers();
}

/// Reads every record, and compares it with its entry in the block.
pub(crate) fn read_block(block: &Block) {
    let mut end = 0;
    for entry in block.entries() {
        let record = block.record(entry);
        read_everything(&record);
        assert_eq!(
            (entry.time, entry.kind(), entry.hook_id()),
            (record.time(), record.kind(), record.hook_id())
        );
        assert!(record.bytes().len() + entry.offset() <= block.bytes().len());
        // Entries are sorted by time, and so not by offset, only if processors share the stream.
        assert!(block.origin().processor.is_none() || entry.offset() >= end);
        end = entry.offset() + record.bytes().len();
    }
}
