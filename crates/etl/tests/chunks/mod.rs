//! Finds the compressed chunks of a trace without the library's reader.

/// The compressed chunks of a trace, each with its expanded length.
pub fn compressed(etl_file: &[u8]) -> Vec<(&[u8], usize)> {
    let u32_at = |at: usize| u32::from_le_bytes(etl_file[at..at + 4].try_into().unwrap()) as usize;
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < etl_file.len() {
        let (size, saved_offset) = (u32_at(start), u32_at(start + 4));
        if etl_file[start + 0x34] & 0x40 != 0 {
            chunks.push((&etl_file[start + 0x48..start + size], saved_offset - 0x48));
        }
        start += size;
    }
    chunks
}
