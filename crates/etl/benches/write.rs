//! Writes a trace with the usual mix of records, plain and compressed, to a sink.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session, stack};
use stackhound_types::{Address, Guid, Pid, PointerSize, Tid};

const RECORDS: u32 = 1_000_000;
const PROCESSORS: u16 = 8;

/// Writes [`RECORDS`] records and returns the size of the trace in bytes.
fn write(session: Session) -> u64 {
    let pointer_size = PointerSize::Eight;
    let frames: Vec<Address> = (0..24u64).map(|at| Address(0x7ff6_1234_0000 + at * 0x3f8)).collect();
    let descriptor =
        Descriptor { id: 30, version: 2, channel: 11, level: 4, opcode: 15, task: 30, keyword: 1 << 46 };
    let mut time = session.start;
    let mut payload = [0; 136];
    let mut writer = EtlWriter::new(session, std::io::sink()).unwrap();
    for number in 0..RECORDS {
        time.0 += 37;
        let (pid, tid) = (Pid(number % 97 * 4), Tid(number % 311 * 4));
        let issuer = Issuer::new(pid, tid);
        payload[..4].copy_from_slice(&number.to_le_bytes());
        payload[8..12].copy_from_slice(&tid.0.to_le_bytes());
        let record = match number % 100 {
            0..44 => RecordSpec {
                time,
                pointer_size,
                header: HeaderSpec::PerfInfo { hook_id: 0x0f2e, version: 2, pebs_index: None, counters: &[] },
                payload: Payload::Bytes(&payload[..16]),
            },
            44..82 => RecordSpec {
                time,
                pointer_size,
                header: HeaderSpec::Event {
                    provider: Guid([7; 16]),
                    descriptor,
                    property: 0,
                    issuer,
                    activity: Guid::ZERO,
                    items: &[],
                },
                payload: Payload::Bytes(&payload),
            },
            82..87 => stack::frames(time, pointer_size, stack::Trigger { time, pid, tid }, &frames),
            _ => RecordSpec {
                time,
                pointer_size,
                header: HeaderSpec::System { hook_id: 0x0501, version: 4, issuer },
                payload: Payload::Bytes(&payload[..80]),
            },
        };
        writer.write((number % u32::from(PROCESSORS)) as u16, &record).unwrap();
    }
    let (_, totals) = writer.leave_unfinished(0).unwrap();
    totals.bytes
}

fn bench(criterion: &mut Criterion) {
    let session = Session { processors: PROCESSORS, ..Session::default() };
    println!("{} bytes per record", write(session.clone()) / u64::from(RECORDS));
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Elements(RECORDS.into()));
    group.sample_size(10);
    for (name, compressed) in [("plain", false), ("compressed", true)] {
        let session = Session { compressed, ..session.clone() };
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| session.clone(), write, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
