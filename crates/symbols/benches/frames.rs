//! Benchmarks of repeated and new requests: the cost for the thread that reads events, and the
//! total cost of resolving.

use std::borrow::Cow;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stackhound_symbols::{
    Inline, Line, Loaded, Loader, ModuleNumber, Name, Names, Symbolizer, Symbols, WorkOptions,
};
use stackhound_types::{AddressKind, ModuleIdentity, Rva};

const MODULES: u32 = 50;
const FRAMES: u32 = 200_000;

/// A table without a cost.
struct Free;

impl Symbols for Free {
    fn names(&self, rva: Rva, _: AddressKind) -> Names<'_> {
        let text = Cow::Borrowed(["Open", "Close", "Read", "Write"][(rva.0 >> 8) as usize % 4]);
        Names { pdb: Some(Name { text, offset: rva.0 & 0xff }), ..Names::default() }
    }

    fn line(&self, _: Rva, _: AddressKind) -> Option<Line<'_>> {
        None
    }

    fn inlines(&self, _: Rva, _: AddressKind) -> Vec<Inline<'_>> {
        Vec::new()
    }

    fn memory(&self) -> usize {
        0
    }
}

fn symbolizer() -> (Symbolizer, Vec<(ModuleNumber, Rva)>) {
    let loader: Loader = Box::new(|_| Loaded { symbols: Some(Box::new(Free)), ..Loaded::default() });
    let mut symbolizer = Symbolizer::with_loader(&WorkOptions::default(), loader).expect("threads");
    let modules: Vec<ModuleNumber> = (0..MODULES)
        .map(|number| {
            let name = format!("module{number}.dll");
            symbolizer.module(&ModuleIdentity { name, ..ModuleIdentity::default() })
        })
        .collect();
    // In no particular order, as in stacks.
    let frame = |number: u32| {
        let draw = number.wrapping_mul(2_654_435_761);
        (modules[(draw >> 7) as usize % modules.len()], Rva(draw >> 10))
    };
    (symbolizer, (0..FRAMES).map(frame).collect())
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames");
    group.throughput(Throughput::Elements(FRAMES.into()));
    group.sample_size(20);
    let request_all = |symbolizer: &mut Symbolizer, frames: &[(ModuleNumber, Rva)]| {
        let requests =
            frames.iter().map(|&(module, rva)| symbolizer.request(module, rva, AddressKind::Return));
        requests.map(|frame| frame.index()).fold(0, usize::wrapping_add)
    };
    let (mut known, frames) = symbolizer();
    request_all(&mut known, &frames);
    known.wait();
    group.bench_function("requested before", |bencher| bencher.iter(|| request_all(&mut known, &frames)));
    group.bench_function("new, until all are resolved", |bencher| {
        let resolve = |(mut symbolizer, frames): (Symbolizer, Vec<_>)| {
            request_all(&mut symbolizer, &frames);
            symbolizer.wait();
            symbolizer
        };
        bencher.iter_batched(symbolizer, resolve, BatchSize::LargeInput);
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
