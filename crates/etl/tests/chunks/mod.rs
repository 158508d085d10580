//! What is compressed in a recording, found without the reader.

/// The compressed chunks of a recording, each with the length it expands to.
pub fn compressed(recording: &[u8]) -> Vec<(&[u8], usize)> {
    let u32_at = |at: usize| u32::from_le_bytes(recording[at..at + 4].try_into().unwrap()) as usize;
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < recording.len() {
        let (size, saved_offset) = (u32_at(start), u32_at(start + 4));
        if recording[start + 0x34] & 0x40 != 0 {
            chunks.push((&recording[start + 0x48..start + size], saved_offset - 0x48));
        }
        start += size;
    }
    chunks
}
