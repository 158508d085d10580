//! Damaged PDBs: any bytes give a result or an error within a short time.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use stackhound_symbols::Symbols;
use stackhound_symbols::pdb::{Pdb, PdbError};
use stackhound_symbols::table::{Detail, SymbolTableBuilder};
use stackhound_types::{AddressKind, Rva};

use crate::fixtures::bytes;

/// Reads all data, and queries some names.
fn read_all(bytes: Vec<u8>) {
    let started = Instant::now();
    let Ok(pdb) = Pdb::open(bytes) else { return };
    let mut builder = SymbolTableBuilder::new();
    if builder.add_pdb(&pdb, Detail::Lines).is_ok() {
        let table = builder.build();
        for rva in (0..0x2_0000).step_by(0x101) {
            table.names(Rva(rva), AddressKind::Return);
            table.line(Rva(rva), AddressKind::Return);
            table.inlines(Rva(rva), AddressKind::Return);
        }
    }
    assert!(started.elapsed() < Duration::from_secs(20), "took {:?}", started.elapsed());
}

/// Small PDBs that together contain all kinds of records and the parts of both containers.
fn samples() -> Vec<Vec<u8>> {
    let names =
        ["samply/WriteArgument.pdb", "symbolic/CrashWithException.pdb", "breakpad/omap_reorder_bbs.pdb"];
    names.iter().filter_map(|name| bytes(name)).collect()
}

#[test]
fn damaged_bytes_do_not_panic() {
    let samples = samples();
    if samples.is_empty() {
        return;
    }
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1..5_usize), 1..40);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let inputs = (0..samples.len(), damage);
    let result = runner.run(&inputs, |(sample, damage)| {
        let mut bytes = samples[sample].clone();
        for (index, byte, run) in damage {
            let at = index.index(bytes.len());
            let end = (at + run).min(bytes.len());
            bytes[at..end].fill(byte);
        }
        read_all(bytes);
        Ok(())
    });
    result.expect("no panic");
}

/// Damages the streams of headers and tables, where it has more effect than in names and types.
#[test]
fn damaged_streams_do_not_panic() {
    let samples = samples();
    if samples.is_empty() {
        return;
    }
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    let damage = prop::collection::vec((0..6_usize, any::<prop::sample::Index>(), any::<u32>()), 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&(0..samples.len(), damage), |(sample, damage)| {
        let mut bytes = samples[sample].clone();
        let pages = pages_of_headers(&bytes);
        for (kind, index, number) in damage {
            let (start, end) = pages[index.index(pages.len())];
            let at = (start + 4 * (number as usize % ((end - start) / 4))).min(bytes.len() - 4);
            let old = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let new = match kind {
                0 => 0,
                1 => u32::MAX,
                2 => 1 << 31,
                3 => old.wrapping_add(1),
                4 => old ^ (1 << (number % 32)),
                _ => number,
            };
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        read_all(bytes);
        Ok(())
    });
    result.expect("no panic");
}

/// The file's first page, and the pages of its small streams.
fn pages_of_headers(bytes: &[u8]) -> Vec<(usize, usize)> {
    let msf = ms_pdb::msf::Msf::open_with_file(bytes.to_vec()).expect("a PDB");
    let size = u32::from(msf.page_size()) as usize;
    let mut pages = vec![(0, 64)];
    for stream in 1..msf.num_streams() {
        let Ok((_, numbers)) = msf.stream_size_and_pages(stream) else { continue };
        // The starts, which contain the headers.
        pages
            .extend(numbers.iter().take(3).map(|page| (*page as usize * size, *page as usize * size + size)));
    }
    pages.retain(|page| page.1 <= bytes.len());
    pages
}

#[test]
fn truncated_files_are_reported() {
    let Some(bytes) = bytes("samply/WriteArgument.pdb") else { return };
    for length in [512, 4096, bytes.len() / 2, bytes.len() - 1] {
        let error = Pdb::open(bytes[..length].to_vec()).expect_err("a part of a PDB");
        assert!(matches!(error, PdbError::Truncated { .. }), "{length}: {error}");
    }
}
