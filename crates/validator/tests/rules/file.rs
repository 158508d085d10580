//! Builds small files byte by byte, in the form that Windows writes.

/// Nominal size of buffers.
pub const BUFFER: usize = 2048;
/// Raw time of the logfile header, in ticks of 100 ns.
pub const T0: u64 = 1_000_000;
/// FILETIME of the session's start.
pub const START: u64 = 133_485_408_000_000_000;
/// Offset of the logfile header.
pub const LOGFILE: usize = 0x68;

/// The class of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Live,
    /// Live, with kernel events.
    Kernel,
    Windows7,
    Relogged,
    /// Relogged and compressed.
    Compressed,
}
use Class::*;

/// Data buffers: processor and records.
pub type Buffers = Vec<(u8, Vec<Vec<u8>>)>;

/// The contents of the data buffers of a class.
pub fn buffers(class: Class) -> Buffers {
    if class == Kernel {
        return vec![(0, kernel_records())];
    }
    let items: &[(u16, &[u8])] = &[(1, &[1; 16]), (6, &[2; 24]), (12, b"traits"), (11, b"schema")];
    vec![
        (0, vec![event(10, items), full(20, [7; 16], 1, &[0; 400])]),
        (1, vec![event(15, &[]), full(16, [7; 16], 1, &[0; 400])]),
        (0, vec![full(30, [7; 16], 1, &[0; 400])]),
    ]
}

/// The records of a kernel trace: both rundowns, a process, its thread, its image, and stacks.
fn kernel_records() -> Vec<Vec<u8>> {
    let ids = |process: u32, parent: u32| {
        [&[0; 8][..], &process.to_le_bytes(), &parent.to_le_bytes(), &[0; 8]].concat()
    };
    let thread = |process: u32, thread: u32| [process.to_le_bytes(), thread.to_le_bytes()].concat();
    let image = |process: u32| [&[0; 16][..], &process.to_le_bytes(), &[0; 4]].concat();
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    vec![
        perf_info(0x0020, 2, 1, &[0; 36]),
        perf_info(0x0005, 2, 2, &[0; 36]),
        perf_info(0x0303, 4, 3, &ids(0, 0)),
        perf_info(0x0303, 4, 4, &ids(4, 0)),
        system(0x0503, 3, 5, (4, 8), &thread(4, 8)),
        system(0x0f49, 3, 6, (4, 8), &[0; 24]),
        perf_info(0x0008, 2, 7, &[]),
        system(0x0301, 4, 10, (4, 8), &ids(100, 4)),
        system(0x030a, 3, 11, (100, 104), &image(100)),
        perf_info(0x1820, 2, 12, &words(&[T0 + 11, 0, 0x1000])),
        perf_info(0x1826, 2, 13, &words(&[T0 + 11, 0, 77])),
        system(0x1402, 3, 14, (4, 8), &image(0)),
        system(0x0502, 3, 15, (100, 104), &thread(100, 104)),
        system(0x0302, 4, 16, (100, 104), &ids(100, 4)),
        perf_info(0x0020, 2, 20, &[0; 36]),
        perf_info(0x0304, 4, 21, &ids(4, 0)),
        system(0x0504, 3, 22, (4, 8), &thread(4, 8)),
        system(0x0f4a, 3, 23, (4, 8), &[0; 24]),
        perf_info(0x0005, 2, 24, &[0; 36]),
        perf_info(0x0008, 2, 25, &[]),
        perf_info(0x1824, 2, 26, &words(&[77, 0x2000])),
    ]
}

/// The bytes of a file.
pub fn file(class: Class, buffers: &Buffers) -> Vec<u8> {
    let live = !matches!(class, Relogged | Compressed);
    let mut records = vec![logfile_record(class, buffers.len())];
    if class == Kernel {
        records.push(system(0x0005, 2, 0, (4, 8), &[0; 36]));
    }
    if matches!(class, Live | Kernel) {
        records.push(system(0x0050, 2, 0, (4, 8), &[0; 48]));
    }
    let mut header = lay_out(&records);
    let end = header.len();
    header.resize(if class == Compressed { end.next_multiple_of(512) } else { BUFFER }, 0xff);
    let saved = if class == Windows7 { 0 } else { end };
    let size = header.len();
    put(&mut header, 0x00, &(size as u32).to_le_bytes());
    put(&mut header, 0x04, &(saved as u32).to_le_bytes());
    put(&mut header, 0x08, &(if live { end } else { 0 } as u32).to_le_bytes());
    put(&mut header, 0x28, &[0, if class == Windows7 { 8 } else { 0 }, u8::from(live), 0]);
    put(&mut header, 0x2c, &[if class == Relogged { 0 } else { 3 }]);
    put(&mut header, 0x30, &(end as u32).to_le_bytes());
    put(&mut header, 0x34, &[if matches!(class, Live | Kernel) { 0x21 } else { 0x01 }, 0, 4]);

    let mut file = header;
    for (index, (processor, records)) in buffers.iter().enumerate() {
        let mut buffer = lay_out(records);
        let end = buffer.len();
        if class == Compressed {
            buffer.splice(0x48.., compress(&buffer[0x48..]));
        } else {
            buffer.resize(BUFFER, 0xff);
        }
        let timestamp = if live { T0 + 50 + index as u64 } else { START + index as u64 };
        let marker = u8::from(index + 1 == buffers.len());
        let flags = [0x20, 0x20, 0, 0x20, 0x60][class as usize] | marker;
        let size = buffer.len();
        put(&mut buffer, 0x00, &(size as u32).to_le_bytes());
        put(&mut buffer, 0x04, &(end as u32).to_le_bytes());
        put(&mut buffer, 0x08, &((end + BUFFER) as u32).to_le_bytes());
        put(&mut buffer, 0x10, &timestamp.to_le_bytes());
        put(&mut buffer, 0x18, &[index as u8 + 1]);
        let alignment = if class == Windows7 { 8 } else { 0 };
        put(&mut buffer, 0x28, &[*processor, alignment, u8::from(live), 0, 3]);
        put(&mut buffer, 0x30, &(end as u32).to_le_bytes());
        put(&mut buffer, 0x34, &[flags]);
        file.extend(buffer);
    }
    file
}

/// Replaces bytes.
pub fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..at + new.len()].copy_from_slice(new);
}

fn logfile_record(class: Class, buffers: usize) -> Vec<u8> {
    let mut logfile = vec![0; 0x118];
    let (version, build): ([u8; 4], u32) = match class {
        Windows7 => ([6, 1, 1, 5], 7601),
        Compressed => ([10, 0, 2, 0], 19045),
        _ => ([10, 0, 1, 5], 19045),
    };
    let mode: u32 = match class {
        Live | Windows7 => 1,
        Kernel => 0x200_0001,
        Relogged => 0x1_0001,
        Compressed => 0x401_0001,
    };
    put(&mut logfile, 0x00, &(BUFFER as u32).to_le_bytes());
    put(&mut logfile, 0x04, &version);
    put(&mut logfile, 0x08, &build.to_le_bytes());
    put(&mut logfile, 0x0c, &[2]);
    put(&mut logfile, 0x10, &(START + 10_000_000).to_le_bytes());
    put(&mut logfile, 0x18, &156_250_u32.to_le_bytes());
    put(&mut logfile, 0x20, &mode.to_le_bytes());
    put(&mut logfile, 0x24, &[buffers as u8 + 1, 0, 0, 0, 1, 0, 0, 0, 8]);
    put(&mut logfile, 0x34, &2400_u32.to_le_bytes());
    put(&mut logfile, 0x38, &[10]);
    put(&mut logfile, 0x40, &[7]);
    put(&mut logfile, 0x4c, b"@");
    put(&mut logfile, 0xa0, b"@");
    put(&mut logfile, 0xf8, &(START - 1).to_le_bytes());
    put(&mut logfile, 0x100, &10_000_000_u64.to_le_bytes());
    put(&mut logfile, 0x108, &START.to_le_bytes());
    put(&mut logfile, 0x110, &[1]);
    logfile.extend(b"n\0\0\0f\0\0\0");
    system(0, 2, 0, (4, 8), &logfile)
}

/// Space for a buffer header, followed by records.
fn lay_out(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 0x48];
    for record in records {
        bytes.extend(record);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}

/// A SYSTEM64 record of a process and a thread, `time` ticks after the logfile header.
pub fn system(
    hook_id: u16,
    version: u16,
    time: u64,
    (process, thread): (u32, u32),
    payload: &[u8],
) -> Vec<u8> {
    let size = (0x20 + payload.len()) as u16;
    let mut record = [version, 0xc002, size, hook_id].map(u16::to_le_bytes).concat();
    record.extend([thread.to_le_bytes(), process.to_le_bytes()].concat());
    record.extend((T0 + time).to_le_bytes());
    record.extend([0; 8]);
    record.extend(payload);
    record
}

/// A PERFINFO64 record.
pub fn perf_info(hook_id: u16, version: u16, time: u64, payload: &[u8]) -> Vec<u8> {
    let size = (0x10 + payload.len()) as u16;
    let mut record = [version, 0xc011, size, hook_id].map(u16::to_le_bytes).concat();
    record.extend((T0 + time).to_le_bytes());
    record.extend(payload);
    record
}

/// A FULL64 record.
pub fn full(time: u64, class: [u8; 16], opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut record =
        [(0x30 + payload.len()) as u16, 0xc014, u16::from(opcode), 2].map(u16::to_le_bytes).concat();
    record.extend([8_u32.to_le_bytes(), 4_u32.to_le_bytes()].concat());
    record.extend((T0 + time).to_le_bytes());
    record.extend(class);
    record.extend([0; 8]);
    record.extend(payload);
    record
}

/// An EVENT_HEADER64 record with extended data items.
pub fn event(time: u64, items: &[(u16, &[u8])]) -> Vec<u8> {
    let mut record = vec![0; 0x50];
    for (index, (item_type, data)) in items.iter().enumerate() {
        let stride = (8 + data.len()).next_multiple_of(8);
        let linkage = u16::from(index + 1 < items.len());
        let start = record.len();
        record.extend([stride as u16, *item_type, linkage, data.len() as u16].map(u16::to_le_bytes).concat());
        record.extend(*data);
        record.resize(start + stride, 0);
    }
    let size = record.len() as u16;
    let flags = u16::from(!items.is_empty());
    put(&mut record, 0, &[size, 0xc013, flags, 0].map(u16::to_le_bytes).concat());
    put(&mut record, 8, &[8, 0, 0, 0, 4]);
    put(&mut record, 16, &(T0 + time).to_le_bytes());
    record
}

/// Compresses with XPRESS. The only matches are runs of one byte, at most nine bytes long.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (mut flags, mut tokens) = (0_u32, Vec::new());
        for bit in (0..32).rev() {
            if at == bytes.len() {
                break;
            }
            let run = bytes[at..].iter().take(9).take_while(|next| **next == bytes[at]).count();
            if run >= 3 && at > 0 && bytes[at - 1] == bytes[at] {
                flags |= 1 << bit;
                tokens.extend((run as u16 - 3).to_le_bytes());
                at += run;
            } else {
                tokens.push(bytes[at]);
                at += 1;
            }
        }
        chunk.extend(flags.to_le_bytes());
        chunk.extend(tokens);
    }
    chunk
}
