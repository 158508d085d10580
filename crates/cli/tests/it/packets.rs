//! `convert -o x.pcapng`: generated captures, read back by a strict reader of the format.
//!
//! With `STACKHOUND_PACKETS=DIR`, the captures are kept there, with a list of the packets, for
//! `scripts/packets-check.sh`.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::{Guid, Pid, PointerSize, RawTime, Tid};

use crate::program::{refused, stackhound, text};

const NDIS: Guid = Guid::from_u128(0x2ed6006e_4729_4609_b423_3ee7bcd678ef);
const PKTMON: Guid = Guid::from_u128(0x4d4f80d9_c8bd_4d73_bb5b_19c90402c5ac);

const ETHERNET: u64 = 0x1;
const MOBILE: u64 = 0x200;
const WIFI: u64 = 0x1_0000;
const START: u64 = 0x4000_0000;
const END: u64 = 0x8000_0000;
const SENT: u64 = 0x1_0000_0000;
const RECEIVED: u64 = 0x2_0000_0000;

/// Ticks of 100 ns from the start of the session, processor, thread, and the event.
struct Logged {
    tick: i64,
    processor: u16,
    tid: u32,
    provider: Guid,
    id: u16,
    keyword: u64,
    payload: Vec<u8>,
}

fn fragment(at: (i64, u16, u32), keyword: u64, interface: (u32, u32), bytes: &[u8]) -> Logged {
    let (tick, processor, tid) = at;
    let head = [interface.0, interface.1, bytes.len() as u32];
    let payload = head.into_iter().flat_map(u32::to_le_bytes).chain(bytes.iter().copied()).collect();
    Logged { tick, processor, tid, provider: NDIS, id: 1001, keyword, payload }
}

/// An event of Packet Monitor: tick, id, packet, component, format, direction, and the whole size.
fn frame(tick: i64, id: u16, packet: (u64, u16), place: [u16; 3], size: u16, bytes: &[u8]) -> Logged {
    let [component, format, direction] = place;
    let mut payload = packet.0.to_le_bytes().to_vec();
    let numbers = [packet.1, 1, direction, format, component, 2, 3];
    payload.extend(numbers.into_iter().flat_map(u16::to_le_bytes));
    payload.extend([7_u32, 0xe000_4001].into_iter().flat_map(u32::to_le_bytes));
    payload.extend([size, bytes.len() as u16].into_iter().flat_map(u16::to_le_bytes));
    payload.extend(bytes);
    Logged { tick, processor: 0, tid: 8, provider: PKTMON, id, keyword: 0x10, payload }
}

/// Writes a trace. A buffer of processor 0 is lost before the event with this index.
fn write(path: &Path, events: &[Logged], lost_before: Option<usize>) {
    let session = Session { processors: 2, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for (index, event) in events.iter().enumerate() {
        if lost_before == Some(index) {
            writer.flush(0).unwrap();
            writer.lose_buffer(0).unwrap();
        }
        let descriptor = Descriptor {
            id: event.id,
            version: 0,
            channel: 0,
            level: 4,
            opcode: 0,
            task: 0,
            keyword: event.keyword,
        };
        let header = HeaderSpec::Event {
            provider: event.provider,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(1234), Tid(event.tid)),
            activity: Guid::ZERO,
            items: &[],
        };
        let (time, payload) = (RawTime(start + event.tick), Payload::Bytes(&event.payload));
        let record = RecordSpec { time, pointer_size: PointerSize::Eight, header, payload };
        writer.write(event.processor, &record).unwrap();
    }
    let (file, _) = writer.finish().unwrap();
    std::fs::write(path, file.into_inner()).unwrap();
}

/// A packet as the file states it.
#[derive(Debug, PartialEq)]
struct Read {
    link_type: u16,
    interface: String,
    /// In nanoseconds since 1970.
    time: u128,
    original: u32,
    direction: Option<u32>,
    comment: Option<String>,
    data: Vec<u8>,
}

/// Reads numbers, and checks that nothing is left.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, size: usize) -> &'b [u8] {
        let (taken, left) = self.0.split_at(size);
        self.0 = left;
        taken
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn padded(&mut self, size: usize) -> &'b [u8] {
        let taken = self.take(size);
        let padding = self.take(size.next_multiple_of(4) - size);
        assert!(padding.iter().all(|&byte| byte == 0));
        taken
    }

    /// The options up to their end, which is the end of the block.
    fn options(mut self) -> Vec<(u16, &'b [u8])> {
        let mut options = Vec::new();
        while !self.0.is_empty() {
            let (code, size) = (self.u16(), self.u16());
            if code == 0 {
                assert_eq!(
                    (size, self.0.len()),
                    (0, 0),
                    "the end of the options is not the end of the block"
                );
                return options;
            }
            options.push((code, self.padded(size.into())));
        }
        assert!(options.is_empty(), "the options have no end");
        options
    }
}

/// Reads a file with one section, by the specification alone.
fn read(bytes: &[u8]) -> Vec<Read> {
    let (mut left, mut interfaces, mut packets, mut first) = (Bytes(bytes), Vec::new(), Vec::new(), true);
    while !left.0.is_empty() {
        let (kind, size) = (left.u32(), left.u32());
        assert_eq!(size % 4, 0);
        let mut block = Bytes(left.take(size as usize - 12));
        assert_eq!(left.u32(), size, "the two sizes of a block differ");
        assert_eq!(std::mem::take(&mut first), kind == 0x0a0d_0d0a, "a section begins the file, once");
        match kind {
            0x0a0d_0d0a => {
                assert_eq!((block.u32(), block.u16(), block.u16()), (0x1a2b_3c4d, 1, 0));
                assert_eq!(block.take(8), [0xff; 8]);
                block.options();
            }
            1 => {
                let (link_type, reserved, limit) = (block.u16(), block.u16(), block.u32());
                assert_eq!((reserved, limit), (0, 0));
                let options = block.options();
                let of = |code| options.iter().find(|(of, _)| *of == code).map(|(_, value)| *value);
                assert_eq!(of(9), Some(&[7][..]), "the resolution is 100 ns");
                interfaces.push((link_type, String::from_utf8(of(2).unwrap().to_vec()).unwrap()));
            }
            6 => {
                let (interface, high, low) = (block.u32(), block.u32(), block.u32());
                let (captured, original) = (block.u32(), block.u32());
                let data = block.padded(captured as usize).to_vec();
                assert!(captured <= original);
                let (link_type, interface) = interfaces[interface as usize].clone();
                let options = block.options();
                let of = |code| options.iter().find(|(of, _)| *of == code).map(|(_, value)| *value);
                packets.push(Read {
                    link_type,
                    interface,
                    time: u128::from(u64::from(high) << 32 | u64::from(low)) * 100,
                    original,
                    direction: of(2).map(|value| u32::from_le_bytes(value.try_into().unwrap())),
                    comment: of(1).map(|value| String::from_utf8(value.to_vec()).unwrap()),
                    data,
                });
            }
            other => panic!("block of type {other}"),
        }
    }
    packets
}

/// 2024-01-01, the start of the session, in nanoseconds since 1970.
const START_NS: u128 = 1_704_067_200_000_000_000;

/// An Ethernet frame with an IPv4 packet of this many bytes after its header of 20 bytes.
fn ipv4(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0];
    bytes.extend((20 + payload as u16).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    bytes.extend((0..payload).map(|at| at as u8));
    bytes
}

fn packet(tick: u128, of: (u16, &str), direction: Option<u32>, original: usize, data: &[u8]) -> Read {
    Read {
        link_type: of.0,
        interface: of.1.to_owned(),
        time: START_NS + tick * 100,
        original: original as u32,
        direction,
        comment: Some("PID=1234 TID=8".to_owned()),
        data: data.to_owned(),
    }
}

/// Converts a trace and checks its packets, and the end of the closing lines.
#[track_caller]
fn check(name: &str, events: &[Logged], lost_before: Option<usize>, expected: &[Read], closing: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("STACKHOUND_PACKETS").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(temporary.path());
    let (trace, output) = (folder.join(format!("{name}.etl")), folder.join(format!("{name}.pcapng")));
    write(&trace, events, lost_before);
    let converted = stackhound(&["convert", text(&trace), "-o", text(&output)]);
    let said = String::from_utf8(converted.stderr).unwrap();
    assert!(converted.status.success() && converted.stdout.is_empty(), "{said}");
    let found = read(&std::fs::read(&output).unwrap());
    assert_eq!(found, expected, "{name}");
    assert_eq!(said.lines().last(), Some(closing), "{name}: {said}");
    let line = |packet: &Read| {
        let bytes: String = packet.data.iter().map(|byte| format!("{byte:02x}")).collect();
        let (seconds, rest) = (packet.time / 1_000_000_000, packet.time % 1_000_000_000);
        format!("{seconds}.{rest:09}\t{}\t{}\t{bytes}\n", packet.data.len(), packet.original)
    };
    std::fs::write(folder.join(format!("{name}.txt")), expected.iter().map(line).collect::<String>())
        .unwrap();
}

#[test]
fn packets_of_ndis_are_written() {
    let (whole, long, other) = (ipv4(26), ipv4(1400), ipv4(60));
    let single = START | END;
    let mut beacon = vec![0x88, 0x41, 0, 0];
    beacon.extend(0..40);
    let mut decrypted = beacon.clone();
    decrypted[1] = 0x01;
    let ip = &whole[14..];
    let events = [
        fragment((10, 0, 8), ETHERNET | single | SENT, (12, 12), &whole),
        // Three fragments, between which another processor and another direction log packets.
        fragment((20, 0, 8), ETHERNET | START | SENT, (12, 12), &long[..500]),
        fragment((21, 1, 8), ETHERNET | single | RECEIVED, (12, 12), &other),
        fragment((22, 0, 8), ETHERNET | single | RECEIVED, (12, 12), &whole),
        fragment((23, 0, 8), ETHERNET | SENT, (12, 12), &long[500..1000]),
        fragment((24, 0, 8), ETHERNET | END | SENT, (12, 12), &long[1000..]),
        fragment((30, 0, 8), WIFI | single | RECEIVED, (15, 14), &beacon),
        fragment((40, 0, 8), MOBILE | single | SENT, (16, 16), ip),
        // Cut by the capture: the IP header states 1,420 bytes.
        fragment((50, 0, 8), ETHERNET | single, (12, 12), &long[..96]),
        Logged { id: 1002, ..fragment((51, 0, 8), WIFI, (15, 14), &[1, 2, 3, 4]) },
        Logged { payload: vec![1, 2, 3], ..fragment((60, 0, 8), ETHERNET | single, (1, 1), &[]) },
    ];
    let eth = (1, "eth:12");
    let expected = [
        packet(10, eth, Some(2), whole.len(), &whole),
        packet(21, eth, Some(1), other.len(), &other),
        packet(22, eth, Some(1), whole.len(), &whole),
        packet(24, eth, Some(2), long.len(), &long),
        packet(30, (105, "wifi:14"), Some(1), beacon.len(), &decrypted),
        packet(40, (101, "mbb:16"), Some(2), ip.len(), ip),
        packet(50, eth, None, 14 + 1420, &long[..96]),
    ];
    check("ndis", &events, None, &expected, "7 packets of 3 interfaces; left out: 1 unreadable");
}

/// Writes a capture, for examples.
pub fn example(path: &Path) {
    write(path, &[fragment((10, 0, 8), ETHERNET | START | END | SENT, (12, 12), &ipv4(26))], None);
}

#[test]
fn packets_without_a_fragment_are_counted_and_not_written() {
    let long = ipv4(1400);
    let part = |tick, keyword, range: std::ops::Range<usize>| {
        fragment((tick, 0, 8), ETHERNET | SENT | keyword, (12, 12), &long[range])
    };
    let events = [
        // Without a beginning.
        part(10, 0, 0..100),
        part(11, END, 100..200),
        // Without an end.
        part(20, START, 0..100),
        part(30, START, 0..700),
        part(31, END, 700..1434),
        // A buffer is lost between the fragments.
        part(40, START, 0..500),
        part(50, END, 1000..1434),
        // The trace ends.
        part(60, START, 0..500),
    ];
    let expected = [packet(31, (1, "eth:12"), Some(2), long.len(), &long)];
    check("fragments", &events, Some(6), &expected, "1 packet of 1 interface; left out: 4 incomplete");
}

#[test]
fn each_packet_of_packet_monitor_is_written_once() {
    let (first, second, cut) = (ipv4(26), ipv4(60), ipv4(1400));
    let mut wifi = vec![0x08, 0x42];
    wifi.extend(0..60);
    let events = [
        frame(10, 160, (1, 1), [9, 1, 2], 60, &first),
        frame(11, 160, (1, 1), [21, 1, 2], 60, &first),
        frame(12, 160, (1, 2), [21, 1, 1], 94, &second),
        frame(13, 170, (1, 1), [30, 1, 2], 60, &first),
        frame(14, 160, (2, 1), [9, 1, 1], 1434, &cut[..128]),
        frame(15, 170, (3, 1), [9, 1, 0], 94, &second),
        frame(16, 160, (4, 1), [40, 2, 3], 62, &wifi),
        frame(17, 160, (5, 1), [41, 3, 4], 46, &first[14..]),
        frame(18, 160, (6, 1), [42, 9, 4], 4, &[1, 2, 3, 4]),
    ];
    let of = |component: &'static str| (1, component);
    let dropped = "PID=1234 TID=8 dropped, reason 7".to_owned();
    let expected = [
        packet(10, of("eth:component:9"), Some(2), 60, &first),
        packet(12, of("eth:component:21"), Some(1), 94, &second),
        packet(14, of("eth:component:9"), Some(1), 1434, &cut[..128]),
        Read { comment: Some(dropped), ..packet(15, of("eth:component:9"), None, 94, &second) },
        packet(16, (105, "wifi:component:40"), Some(1), 62, &wifi),
        packet(17, (101, "mbb:component:41"), Some(2), 46, &first[14..]),
    ];
    let closing = "6 packets of 4 interfaces; left out: 1 of an unknown format, 2 further appearances";
    check("pktmon", &events, None, &expected, closing);
}

#[test]
fn a_trace_without_packets_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, output) = (folder.path().join("none.etl"), folder.path().join("none.pcapng"));
    write(&trace, &[Logged { id: 7, ..fragment((1, 0, 8), 0, (1, 1), &[]) }], None);
    let sentence = "the trace has no selected packets of Microsoft-Windows-NDIS-PacketCapture or \
                    Microsoft-Windows-PktMon";
    refused(&["convert", text(&trace), "-o", text(&output)], sentence);
    assert!(!output.exists());
}
