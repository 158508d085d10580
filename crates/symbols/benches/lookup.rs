//! Benchmarks of building a table from a PDB, and of lookups in it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stackhound_symbols::Symbols;
use stackhound_symbols::pdb::Pdb;
use stackhound_symbols::table::{Detail, SymbolTable, SymbolTableBuilder};
use stackhound_types::{AddressKind, Rva};

/// The largest PDB of the corpus.
const PDB: &str = "symbols/pairs/dump_syms/basic32.pdb";
const LOOKUPS: u32 = 10_000;

fn table(pdb: &Pdb, detail: Detail) -> SymbolTable {
    let mut builder = SymbolTableBuilder::new();
    builder.add_pdb(pdb, detail).expect("a PDB");
    builder.build()
}

fn lookup(criterion: &mut Criterion) {
    let Some(bytes) = stackhound_corpus::bytes(PDB) else { return };
    let pdb = Pdb::open(bytes.clone()).expect("a PDB");

    let mut group = criterion.benchmark_group("table");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("names from a PDB", |bencher| bencher.iter(|| table(&pdb, Detail::Names)));
    group.bench_function("names and lines from a PDB", |bencher| bencher.iter(|| table(&pdb, Detail::Lines)));
    let full = table(&pdb, Detail::Lines);
    let packed = full.to_bytes();
    group.throughput(Throughput::Bytes(packed.len() as u64));
    group
        .bench_function("from bytes", |bencher| bencher.iter(|| SymbolTable::from_bytes(black_box(&packed))));
    group.finish();
    println!("names: {} bytes, with lines: {}", table(&pdb, Detail::Names).memory(), full.memory());

    let last = pdb.sections().first().map_or(0, |section| section.rva.0 + section.size);
    let rvas: Vec<Rva> = (0..LOOKUPS).map(|at| Rva(at.wrapping_mul(0x9e37_79b9) % last)).collect();
    let mut group = criterion.benchmark_group("look up");
    group.throughput(Throughput::Elements(u64::from(LOOKUPS)));
    group.bench_function("names", |bencher| {
        bencher
            .iter(|| rvas.iter().filter(|rva| full.names(**rva, AddressKind::Return).pdb.is_some()).count());
    });
    group.bench_function("lines", |bencher| {
        bencher.iter(|| rvas.iter().filter(|rva| full.line(**rva, AddressKind::Return).is_some()).count());
    });
    group.finish();
}

criterion_group!(benches, lookup);
criterion_main!(benches);
