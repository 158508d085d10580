//! The cost of evaluation, with stacks as in traces and without image files.
//!
//! Evaluation runs once per distinct stack and context. This measures the evaluation, not the cache
//! look-up.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stackhound_detect::{Binaries, Case, Detector, Entry, Event, Part, Process, Services, Stack, Target};
use stackhound_frames::{Code, Frame, Lists, ModuleFacts, ModuleIndex, Operation};
use stackhound_types::{Address, ModuleIdentity};

fn module(detector: &mut Detector, path: &str) -> ModuleIndex {
    let name = path.rsplit('\\').next().unwrap_or_default().to_owned();
    let identity = ModuleIdentity { name, ..ModuleIdentity::default() };
    detector.module(&ModuleFacts { path: path.into(), identity, ..ModuleFacts::default() }, None)
}

/// Stacks of 8 to 39 frames. One of 16 has a frame in no module.
fn stacks(detector: &mut Detector) -> Vec<Vec<Frame>> {
    let ntdll = module(detector, r"C:\Windows\System32\ntdll.dll");
    let base = module(detector, r"C:\Windows\System32\KernelBase.dll");
    let kernel32 = module(detector, r"C:\Windows\System32\kernel32.dll");
    let own: Vec<ModuleIndex> =
        (0..100).map(|index| module(detector, &format!(r"C:\Program Files\App\part{index}.dll"))).collect();
    let frame = |module, rva| Frame {
        address: Some(Address(0x7ff8_0000_0000 + rva)),
        ..Frame::user(Code::Image(module, rva))
    };
    let one = |index: usize| {
        let mut frames = vec![frame(ntdll, 0x9d4c4), frame(base, 0x2730e)];
        let own = |depth: usize| frame(own[(index * 7 + depth * 3) % own.len()], 0x1000 + 16 * depth as u64);
        frames.extend((0..4 + index % 32).map(own));
        if index.is_multiple_of(16) {
            frames[3] = Frame { address: Some(Address(0x24f_64b7_b7a1)), ..Frame::user(Code::Unbacked) };
        }
        frames.extend([frame(kernel32, 0x17034), frame(ntdll, 0x526a1)]);
        frames
    };
    (0..1024).map(one).collect()
}

fn evaluate(criterion: &mut Criterion) {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let stacks = stacks(&mut detector);
    let target = Target { image: r"C:\Windows\System32\svchost.exe", is_other: true, access: Some(0x1000) };
    let event = Event {
        entry: Entry::SystemCall,
        operation: Operation::ProcessOpen,
        services: Services::Entered("NtOpenProcess"),
        target: Some(target),
        ..Event::OTHER
    };
    let mut group = criterion.benchmark_group("detector");
    group.throughput(Throughput::Elements(stacks.len() as u64));
    group.bench_function("stacks of 24 frames", |bencher| {
        bencher.iter(|| {
            for frames in &stacks {
                let stack = Stack {
                    frames,
                    live: &[],
                    kernel: Part::Whole,
                    user: Part::Whole,
                    limit: Some(192),
                    map_is_complete: true,
                    has_losses: false,
                    is_certain: true,
                    is_truncated: false,
                };
                black_box(detector.evaluate(&Case { event, process: Process::UNKNOWN, stack }));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, evaluate);
criterion_main!(benches);
