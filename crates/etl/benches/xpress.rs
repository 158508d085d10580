//! XPRESS on the buffers of a real trace: the decoder, the bytewise reference decoder, and the
//! encoder. Only the ratios of their times are meaningful.

#[path = "../tests/chunks/mod.rs"]
mod chunks;
use stackhound_corpus as corpus;
#[path = "../src/compress/xpress/oracle.rs"]
mod oracle;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stackhound_etl::compress::{DecompressError, Problem, xpress};

fn bench(criterion: &mut Criterion) {
    let Some(etl_file) = corpus::etl_file("perfview-net452-x64.etl") else { return };
    let chunks = chunks::compressed(&etl_file);
    let expanded: Vec<Vec<u8>> = chunks
        .iter()
        .map(|&(input, size)| {
            let mut output = vec![0; size];
            xpress::decompress(input, &mut output).unwrap();
            output
        })
        .collect();
    let mut output = vec![0; expanded.iter().map(Vec::len).max().unwrap_or(0)];

    let mut group = criterion.benchmark_group("xpress");
    group.throughput(Throughput::Bytes(expanded.iter().map(Vec::len).sum::<usize>() as u64));
    group.sample_size(20);
    for (name, decompress) in [
        ("decompress", xpress::decompress as fn(&[u8], &mut [u8]) -> Result<(), DecompressError>),
        ("decompress, bytewise", oracle::decompress),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for &(input, size) in &chunks {
                    decompress(input, &mut output[..size]).unwrap();
                }
            });
        });
    }
    group.bench_function("compress", |bencher| {
        bencher.iter(|| expanded.iter().map(|data| xpress::compress(data).len()).sum::<usize>());
    });
    group.finish();

    let packed: usize = expanded.iter().map(|data| xpress::compress(data).len()).sum();
    let windows: usize = chunks.iter().map(|(input, _)| input.len()).sum();
    println!("compressed size: {packed} bytes, Windows {windows} bytes");
}

criterion_group!(benches, bench);
criterion_main!(benches);
