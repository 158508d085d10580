//! Simulates a session that runs for days with always new stacks. Fails if memory grows.
//!
//! usage: stacks_soak [EVENTS]      (1,000,000 if not given)

use std::collections::VecDeque;
use std::io::Cursor;
use std::process::ExitCode;
use std::time::Instant;

use stackhound_etl::EtlFile;
use stackhound_etl::write::stack::{self, Trigger};
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_stacks::{Correlator, Kept, Window};
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{Address, Pid, PointerSize, RawTime, Tid};

/// Events of one piece of the session.
const PIECE: i64 = 20_000;
const TICKS: i64 = 1_000;
const FRAMES_MAX: usize = 200_000;
const WINDOW: Window = Window { max_hold: 2_000 * TICKS, max_pending: 1 << 17 };
/// Events that the reader of the session keeps.
const KEPT: usize = 1_000;

/// A piece of the session, written as an .etl file.
fn piece(number: i64) -> OpenTrace {
    let start = number * PIECE * TICKS;
    let session = Session { processors: 2, start: RawTime(start), ..Session::default() };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("writing to memory");
    for event in 0..PIECE {
        let time = RawTime(start + event * TICKS + 1);
        let (pid, tid) = (Pid(8), Tid(8 + 4 * (event % 100) as u32));
        let issuer = Issuer::new(pid, tid);
        let header = HeaderSpec::System { hook_id: 0x010c, version: 2, issuer };
        let record =
            RecordSpec { time, pointer_size: PointerSize::Eight, header, payload: Payload::Bytes(&[]) };
        let processor = (event % 2) as u16;
        writer.write(processor, &record).expect("writing to memory");
        let all = (number * PIECE + event) as u64;
        // The inner frames are new, the outer ones are common to all events.
        let kernel: Vec<Address> = (0..10).map(|n| Address(0xffff_8000_0000_0000 + all * 16 + n)).collect();
        let user: Vec<Address> =
            (0..20).map(|n| Address(0x7ff0_0000_0000 + if n < 6 { all * 16 + n } else { n })).collect();
        for (frames, later) in [(kernel, 1), (user, 2)] {
            let trigger = Trigger { time, pid, tid };
            let part = stack::frames(RawTime(time.0 + later), PointerSize::Eight, trigger, &frames);
            writer.write(processor, &part).expect("writing to memory");
        }
    }
    let (file, _) = writer.finish().expect("writing to memory");
    let etl_file = EtlFile::open(file.into_inner().into()).expect("what was written can be read");
    OpenTrace::new(vec![Source::new("", etl_file)], 1).expect("one source")
}

/// Anonymous memory in KB, if the system reports it.
fn memory_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?.trim().trim_end_matches(" kB").parse().ok()
}

fn main() -> ExitCode {
    let events =
        std::env::args().nth(1).map_or(1_000_000, |count| count.parse().expect("a number of events"));
    let pieces = (events / PIECE).max(20);
    let mut correlator = Correlator::live(WINDOW, piece(0).time_bases(), FRAMES_MAX);
    let mut kept: VecDeque<Kept> = VecDeque::new();
    let (mut early, mut late, mut frames, mut seen) = (0, 0, 0, 0);
    let started = Instant::now();
    for number in 0..pieces {
        let trace = piece(number);
        let mut all = trace.ordered();
        while let Some(event) = all.next() {
            correlator.push(&event);
            while let Some(delivered) = correlator.pop() {
                seen += 1;
                if delivered.stack.is_some() {
                    kept.push_back(delivered.keep());
                }
                if kept.len() > KEPT {
                    let oldest = kept.pop_front().expect("some are kept");
                    frames += oldest.delivered(delivered.table()).frames().count();
                }
            }
        }
        let memory = memory_kb().unwrap_or(0);
        let most = if number < pieces / 4 { &mut early } else { &mut late };
        *most = memory.max(*most);
        if number % (pieces / 20) == 0 {
            println!("{seen:>12} events {memory:>7} kB {:>8} frames in the table", correlator.table().len());
        }
    }
    let (stats, seconds) = (correlator.stats(), started.elapsed().as_secs_f64());
    println!(
        "{:.1} M events/s with the writing of the session, {} generations, {frames} frames seen, {early} kB at first, {late} kB later",
        seen as f64 / seconds / 1e6,
        stats.generations,
    );
    // The allocator may add a tenth and four megabytes.
    if late > early + early / 10 + 4096 || stats.generations == 0 {
        println!("memory grows");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
