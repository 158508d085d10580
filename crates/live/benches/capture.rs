//! The cost of the callback of a live session for each event: the copy into a block, and the
//! event's share of sending the block.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stackhound_etl::write::{EtlWriter, Session};
use stackhound_etl::{EtlFile, LogfileHeader};
use stackhound_live::{Capture, EventRecord, ExtendedDataItem, LiveMerger, Overflow, Queue, Step, channel};

use std::hint::black_box;
use std::io::Cursor;
use std::sync::Arc;

/// Events in one iteration.
const EVENTS: usize = 1000;

fn session() -> Arc<LogfileHeader> {
    let settings = Session { processors: 4, buffer_size: 64 << 10, ..Session::default() };
    let (file, _) = EtlWriter::new(settings, Cursor::new(Vec::new())).unwrap().finish().unwrap();
    EtlFile::open(file.into_inner().into()).unwrap().session().clone()
}

/// An `EVENT_HEADER` with these flags, class or provider, and opcode.
fn header(flags: u16, guid: [u8; 16], opcode: u8) -> [u8; 80] {
    let mut header = [0; 80];
    header[4..6].copy_from_slice(&flags.to_le_bytes());
    header[8..12].copy_from_slice(&900_u32.to_le_bytes());
    header[12..16].copy_from_slice(&812_u32.to_le_bytes());
    header[0x10..0x18].copy_from_slice(&1_000_000_i64.to_le_bytes());
    header[0x18..0x28].copy_from_slice(&guid);
    header[0x2d] = opcode;
    header
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("capture");
    group.throughput(Throughput::Elements(EVENTS as u64));
    let perf_info = *b"\xb4\xbf\x1d\xce\x7e\x13\xa6\x4d\x87\xb0\x3f\x59\xaa\x10\x2c\xbc";
    let stack = [7; 8 + 20 * 8];
    let rows: [(&str, [u8; 80], &[ExtendedDataItem<'_>], usize); 3] = [
        ("system call, 8 bytes", header(0x0150, perf_info, 0x33), &[], 8),
        ("provider's event, 100 bytes", header(0x0040, [9; 16], 0), &[], 100),
        ("provider's event, 100 bytes and a stack of 20", header(0x0041, [9; 16], 0), &[(6, &stack)], 100),
    ];
    for (name, header, items, size) in rows {
        let payload = vec![5; size];
        group.bench_function(name, |bencher| {
            let fresh = || {
                let (capture, incoming) =
                    channel(session(), Queue { blocks: 4, ..Queue::new(Overflow::DropOldest) });
                (capture, incoming)
            };
            bencher.iter_batched_ref(
                fresh,
                |(capture, _incoming): &mut (Capture, _)| {
                    for n in 0..EVENTS {
                        let event = EventRecord {
                            header: black_box(&header),
                            processor: (n / 250) as u16,
                            items: black_box(items),
                            payload: black_box(&payload),
                        };
                        let _ = capture.event(&event);
                    }
                    let _ = capture.buffer_done();
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();

    // The reader: blocks of four processors, merged into time order.
    let mut group = criterion.benchmark_group("arrivals");
    group.throughput(Throughput::Elements(4 * EVENTS as u64));
    group.bench_function("four processors", |bencher| {
        let captured = || {
            let (mut capture, incoming) = channel(session(), Queue::new(Overflow::Block));
            for processor in 0..4_u16 {
                for n in 0..EVENTS as i64 {
                    let mut header = header(0x0150, perf_info, 0x33);
                    header[0x10..0x18].copy_from_slice(&(n * 7 + i64::from(processor)).to_le_bytes());
                    let _ = capture.event(&EventRecord {
                        header: &header,
                        processor,
                        items: &[],
                        payload: &[1; 8],
                    });
                }
            }
            incoming
        };
        bencher.iter_batched(
            captured,
            |incoming| {
                let mut merger = LiveMerger::new(vec![incoming]).unwrap();
                let mut sum = 0;
                while let Step::Event(event) = merger.next() {
                    sum += event.time().0;
                }
                sum
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
