//! Writes a trace several times in a row into one file, as one long session, to measure speed.
//!
//! `repeat_trace FILE COPIES OUT` decompresses the buffers of `FILE`, shifts the times of each copy
//! behind those of the copy before, also the times in stack records, and continues the sequence
//! numbers. Only the first copy has the logfile header. Other times in payloads are not shifted.

use std::fs::File;
use std::io::{BufWriter, Write};

use stackhound_etl::record::Records;
use stackhound_etl::{BUFFER_HEADER_SIZE, BufferFlags, BufferHeader, BufferType, EtlFile};
use zerocopy::FromBytes;

type Error = Box<dyn std::error::Error>;

/// Hook ids of stack records that begin with the time of their event: frames, kernel key, user key.
const STACKS: [u16; 3] = [0x1820, 0x1825, 0x1826];
/// Buffer times above this are units of 100 ns since 1601, and no ticks.
const SYSTEM_TIMES: i64 = 100_000_000_000_000_000;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: repeat_trace FILE COPIES OUT");
    let (file, copies, out) = (next()?, next()?.parse::<i64>()?, next()?);
    let etl_file = EtlFile::open(std::fs::read(file)?.into())?;
    let size = etl_file.session().buffer_size as usize;
    let index = etl_file.index();
    let mut buffers = Vec::new();
    for buffer in &index.buffers {
        let (block, _) = etl_file.block(buffer, None).map_err(|damage| format!("{damage:?}"))?;
        buffers.push(block.bytes().to_vec());
    }
    let times = || {
        buffers
            .iter()
            .flat_map(|buffer| Records::new(buffer, BUFFER_HEADER_SIZE).map(|record| record.time().0))
    };
    let span = times().max().zip(times().min()).map_or(0, |(last, first)| last - first) + 1;
    let numbers = index.buffers.iter().map(|buffer| buffer.sequence).max().unwrap_or(0) + 1;
    let mut out = BufWriter::new(File::create(out)?);
    for copy in 0..copies {
        for buffer in &buffers {
            out.write_all(&shifted(buffer, size, copy, copy * span, copy * numbers)?)?;
        }
    }
    Ok(out.flush()?)
}

/// A buffer of a copy: without the logfile header, except in the first copy.
fn shifted(buffer: &[u8], size: usize, copy: i64, ticks: i64, numbers: i64) -> Result<Vec<u8>, Error> {
    let mut buffer = buffer.to_vec();
    let is_header =
        BufferHeader::read(&buffer).and_then(BufferHeader::buffer_type) == Some(BufferType::Header);
    if is_header && copy > 0 {
        let mut records = Records::new(&buffer, BUFFER_HEADER_SIZE);
        records.next();
        let first = records.position();
        buffer.drain(BUFFER_HEADER_SIZE..first);
    }
    let times: Vec<usize> = {
        let start = buffer.as_ptr().addr();
        let offset_of = |bytes: &[u8]| bytes.as_ptr().addr() - start;
        Records::new(&buffer, BUFFER_HEADER_SIZE)
            .flat_map(|record| {
                let own = record.kind().time_offset().map(|at| offset_of(record.bytes()) + at);
                let is_stack = record.hook_id().is_some_and(|hook_id| STACKS.contains(&hook_id));
                let of_event = is_stack.then(|| offset_of(record.payload()));
                [own, of_event].into_iter().flatten().collect::<Vec<_>>()
            })
            .collect()
    };
    for at in times {
        let time = i64::from_le_bytes(buffer[at..at + 8].try_into()?) + ticks;
        buffer[at..at + 8].copy_from_slice(&time.to_le_bytes());
    }
    let end = buffer.len() as u32;
    buffer.resize(size.max(buffer.len()), 0xff);
    let size = buffer.len() as u32;
    let (header, _) = BufferHeader::mut_from_prefix(&mut buffer).map_err(|_| "a buffer without header")?;
    header.buffer_size = size.into();
    (header.saved_offset, header.offset) = (end.into(), end.into());
    header.flags = (header.flags.get() & !BufferFlags::COMPRESSED.0).into();
    header.sequence_number = (header.sequence_number.get() + numbers).into();
    if header.time_stamp.get() < SYSTEM_TIMES {
        header.time_stamp = (header.time_stamp.get() + ticks).into();
    }
    if is_header && copy > 0 {
        header.buffer_type = 0.into();
    }
    Ok(buffer)
}
