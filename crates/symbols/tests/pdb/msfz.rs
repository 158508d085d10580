//! The compressed container, made from the corpus' PDBs.

use std::io::{Cursor, Write};

use ms_pdb::msf::Msf;
use ms_pdb::msfz::{Compression, MsfzWriter};
use stackhound_symbols::pdb::{Pdb, PdbError};

use crate::fixtures::{bytes, native, open, table};

/// The same streams in the other container. Every third stream is not compressed.
fn packed(bytes: &[u8], compression: Compression) -> Vec<u8> {
    let msf = Msf::open_with_file(bytes.to_vec()).expect("a PDB");
    let mut writer = MsfzWriter::new(Cursor::new(Vec::new())).expect("a writer");
    writer.set_chunk_compression_mode(compression);
    writer.set_uncompressed_chunk_size_threshold(1 << 16);
    writer.reserve_num_streams(msf.num_streams() as usize);
    for stream in (1..msf.num_streams()).filter(|stream| msf.is_stream_valid(*stream)) {
        let content = msf.read_stream_to_vec(stream).expect("a stream");
        let mut writer = writer.stream_writer(stream).expect("a stream");
        writer.set_compression_enabled(stream % 3 != 0);
        writer.write_all(&content).expect("memory");
    }
    writer.finish().expect("a file").1.into_inner()
}

#[test]
fn a_compressed_pdb_gives_the_same_table() {
    for name in native() {
        let Some(bytes) = bytes(name) else { return };
        let plain = open(&bytes);
        for compression in [Compression::Zstd, Compression::Deflate] {
            let packed = packed(&bytes, compression);
            assert!(packed.len() < bytes.len(), "{name}");
            let packed = open(&packed);
            assert_eq!(packed.identity(), plain.identity(), "{name}");
            assert_eq!(table(&packed), table(&plain), "{name}");
        }
    }
}

/// A few bytes cannot cause the allocation of gigabytes.
#[test]
fn impossible_unpacked_sizes_are_rejected() {
    let Some(bytes) = bytes("samply/WriteArgument.pdb") else { return };
    let packed = packed(&bytes, Compression::Zstd);
    // The number of streams, the sizes of their directory, the number of chunks.
    for field in [56, 64, 68, 72] {
        let mut bytes = packed.clone();
        bytes[field..field + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        let refused = Pdb::open(bytes);
        assert!(matches!(refused, Err(PdbError::TooLarge { .. })), "{field}: {refused:?}");
    }
}
