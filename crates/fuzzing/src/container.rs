//! Files of arbitrary bytes, down to their records.

use stackhound_etl::{Block, Described, Index, Recording, Selection};

use crate::records::read_everything;

/// Opens bytes as a recording, finds its buffers and reads all that is in them.
pub fn container(bytes: &[u8]) {
    let Ok(recording) = Recording::open(bytes.to_vec().into()) else { return };
    let index = recording.index();
    check_index(&recording, &index);
    let selection = Selection::none().hooks([0x0f2e, 0x1820]).classic().described(Described::All);
    for buffer in &index.buffers {
        let Ok((block, _)) = recording.block(buffer, None) else { continue };
        read_block(&block);
        let (selected, _) = recording.block(buffer, Some(&selection)).expect("as readable as before");
        let in_block = |entry| block.entries().contains(entry);
        assert!(selected.entries().iter().all(in_block), "a selection is a part");
    }
}

/// Buffers stand in the file one behind the other, and streams are all of them.
fn check_index(recording: &Recording, index: &Index) {
    let mut end = 0;
    for buffer in &index.buffers {
        assert!(buffer.offset >= end, "buffers do not overlap");
        end = buffer.offset + u64::from(buffer.size);
        assert!(end <= recording.size());
    }
    for damage in &index.damage {
        assert!(damage.offset + damage.skipped <= recording.size());
    }
    assert_eq!(index.streams().concat().len(), index.buffers.len());
    index.missing_buffers();
}

/// Reads every record, and compares what the block's column says of it.
pub(crate) fn read_block(block: &Block) {
    let mut end = 0;
    for entry in block.entries() {
        let record = block.record(entry);
        read_everything(&record);
        assert_eq!((entry.time, entry.kind(), entry.hook()), (record.time(), record.kind(), record.hook()));
        assert!(record.bytes().len() + entry.offset() <= block.bytes().len());
        // Only a stream that processors share is sorted.
        assert!(block.origin().processor.is_none() || entry.offset() >= end);
        end = entry.offset() + record.bytes().len();
    }
}
