//! Writes traces: records as plain data become buffers, and buffers a file.
//!
//! ```
//! use std::io::Cursor;
//! use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
//! use stackhound_etl::EtlFile;
//! use stackhound_types::{Pid, PointerSize, RawTime, Tid};
//!
//! let session = Session { processors: 2, ..Session::default() };
//! let start = session.start.0;
//! let mut writer = EtlWriter::new(session, Cursor::new(Vec::new()))?;
//! for tick in 1..=1000 {
//!     let issuer = Issuer::new(Pid(1234), Tid(5678));
//!     let record = RecordSpec {
//!         time: RawTime(start + tick),
//!         pointer_size: PointerSize::Eight,
//!         header: HeaderSpec::System { hook_id: 0x0301, version: 4, issuer },
//!         payload: Payload::Bytes(b"payload"),
//!     };
//!     writer.write((tick % 2) as u16, &record)?;
//! }
//! let (file, totals) = writer.finish()?;
//! assert_eq!((totals.records, totals.buffers), (1000, 3));
//! assert_eq!(EtlFile::open(file.into_inner().into())?.session().processors, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Session`] describes the session, [`RecordSpec`] a record, and [`stack`] makes records of
//! stacks. Records of one processor must be given in time order. Records of different processors
//! may come in any order, as in a real trace, where each processor fills its own buffer. Only these
//! open buffers are held in memory, and no record costs an allocation.
//!
//! This module writes the container that [`crate::EtlFile`] reads. It does not interpret payloads,
//! and does not check whether the records make up a plausible trace.

mod buffer;
mod error;
mod extended;
mod layout;
mod record;
mod session;
pub mod stack;

use std::io::{Read, Seek, SeekFrom, Write};

use stackhound_types::{FileTime, RawTime};

pub use error::WriteError;
pub use extended::ItemSpec;
pub(crate) use record::{EVENT_HEADER_SIZE, encode_event, event_size};
pub use record::{
    EventClass, HeaderSpec, InstanceIds, Issuer, MessageSpec, Payload, RECORD_SIZE_MAX, RecordSpec,
};
pub use session::{Form, Session};

use self::buffer::{Buffer, Cause, Stream};
use self::session::Closing;
use crate::ClockKind;
use crate::buffer::BUFFER_HEADER_SIZE;
use crate::hook_id;
use crate::record::{HeaderKind, Record};

/// Version of the logfile header, the first record.
const LOGFILE_HEADER_VERSION: u8 = 2;
/// Time from the last record to the end of a session, in units of 100 ns: one clock interrupt.
const END_DELAY: i64 = 156_250;

/// Writes one trace to an output.
#[derive(Debug)]
pub struct EtlWriter<W> {
    session: Session,
    output: W,
    header: Buffer,
    /// The first of the two ends of the records in the header buffer, if it differs from the
    /// second.
    header_saved_offset: Option<usize>,
    header_written: bool,
    streams: Vec<Stream>,
    next_sequence: i64,
    /// The data buffers of a circular file, by their position in the file.
    ring: Vec<Vec<u8>>,
    /// Time of the latest record.
    latest: RawTime,
    totals: Totals,
}

/// Totals of written and lost records and buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Number of records, in data buffers and in the header buffer, without the logfile header.
    pub records: u64,
    /// Number of buffers written, including the header buffer. A circular file may contain fewer.
    pub buffers: u32,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of records reported as lost.
    pub events_lost: u32,
    /// Number of buffers reported as lost.
    pub buffers_lost: u32,
}

impl<W: Write> EtlWriter<W> {
    /// Starts a trace at the current position of `output`. Nothing is written before the first
    /// buffer is full.
    ///
    /// # Errors
    /// If the session is invalid, or its logfile header does not fit into a buffer.
    pub fn new(session: Session, output: W) -> Result<EtlWriter<W>, WriteError> {
        session.check()?;
        let mut header = Buffer::new(session.buffer_size as usize);
        let payload = session.logfile_header(&Closing::RUNNING);
        let logfile_header = RecordSpec {
            time: session.start,
            pointer_size: session.pointer_size,
            header: HeaderSpec::System {
                hook_id: hook_id::EVENT_TRACE_HEADER,
                version: LOGFILE_HEADER_VERSION,
                issuer: session.issuer,
            },
            payload: Payload::Bytes(&payload),
        };
        let size = fitting(logfile_header.size()?, header.room())?;
        header.push(size, |bytes| logfile_header.encode(bytes));
        Ok(EtlWriter {
            streams: (0..session.processors).map(Stream::new).collect(),
            next_sequence: session.first_sequence_number,
            latest: session.start,
            header_saved_offset: None,
            header_written: false,
            ring: Vec::new(),
            totals: Totals::default(),
            session,
            output,
            header,
        })
    }

    /// The session of the trace.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Appends a record to the header buffer, after the logfile header. Fails after the first data
    /// buffer was written.
    pub fn write_to_header(&mut self, record: &RecordSpec<'_>) -> Result<(), WriteError> {
        if self.header_written {
            return Err(WriteError::HeaderBufferWritten);
        }
        let size = fitting(record.size()?, self.header.room())?;
        self.header.push(size, |bytes| record.encode(bytes));
        self.count(record.stored_time());
        Ok(())
    }

    /// Makes the header buffer state two different ends of its records: the current end, and the
    /// end of all records that are written to it later. Some sessions of Windows 11 write such
    /// files.
    pub fn split_header(&mut self) {
        self.header_saved_offset = Some(self.header.end());
    }

    /// Appends a record to the stream of a processor. Costs a copy of its bytes and, occasionally,
    /// the writing of a buffer.
    #[inline]
    pub fn write(&mut self, processor: u16, record: &RecordSpec<'_>) -> Result<(), WriteError> {
        let time = record.stored_time();
        // The wall clock may be set back; the other clocks only run forward.
        let ordered = self.session.clock != ClockKind::SystemTime;
        if let (true, Some(time), Some(last)) = (ordered, time, self.stream(processor)?.last())
            && time < last
        {
            return Err(WriteError::OutOfOrder { time, last });
        }
        self.append(processor, record.size()?, time, |bytes| record.encode(bytes))
    }

    /// Appends a record of another trace unchanged, even if that trace is not in time order. Its
    /// clock must be that of this session. Costs as much as [`write`](EtlWriter::write).
    pub fn copy(&mut self, processor: u16, record: &Record<'_>) -> Result<(), WriteError> {
        self.copy_bytes(processor, record.bytes(), record.time())
    }

    /// Appends the bytes of a record, from its header on, as [`copy`](EtlWriter::copy) does. `time` is
    /// the time in its header.
    pub fn copy_bytes(&mut self, processor: u16, record: &[u8], time: RawTime) -> Result<(), WriteError> {
        self.append(processor, record.len(), Some(time), |bytes| bytes.copy_from_slice(record))
    }

    #[inline]
    fn append(
        &mut self,
        processor: u16,
        size: usize,
        time: Option<RawTime>,
        encode: impl Fn(&mut [u8]),
    ) -> Result<(), WriteError> {
        if !self.stream(processor)?.push(size, time, &encode) {
            fitting(size, self.session.buffer_size as usize - BUFFER_HEADER_SIZE)?;
            self.seal(processor, Cause::Full { record: size })?;
            let pushed = self.open(processor).push(size, time, &encode);
            debug_assert!(pushed, "a record of {size} bytes does not fit into an empty buffer");
        }
        self.count(time);
        Ok(())
    }

    /// Writes the current buffer of a processor, even if it is empty.
    pub fn flush(&mut self, processor: u16) -> Result<(), WriteError> {
        if !self.stream(processor)?.is_open() {
            self.open(processor);
        }
        self.seal(processor, Cause::Flush)
    }

    /// Loses the current buffer of a processor with all its records. Its sequence number is then
    /// missing. No buffer flag reports the loss, as in files of Windows.
    pub fn lose_buffer(&mut self, processor: u16) -> Result<(), WriteError> {
        if !self.stream(processor)?.is_open() {
            self.open(processor);
        }
        self.stream(processor)?.discard();
        self.totals.buffers_lost += 1;
        Ok(())
    }

    /// Reports `count` more records as lost. Only the logfile header contains this, as in files of
    /// Windows.
    pub fn lose_events(&mut self, count: u32) {
        self.totals.events_lost = self.totals.events_lost.saturating_add(count);
    }

    /// Reports `count` more buffers as lost, as [`lose_events`](EtlWriter::lose_events) does. No
    /// sequence number is missing.
    pub fn lose_buffers(&mut self, count: u32) {
        self.totals.buffers_lost = self.totals.buffers_lost.saturating_add(count);
    }

    /// States that records of a processor are missing between its last record and the next one, by a
    /// flag of the next buffer. No counter changes. No file of Windows is known to have the flag, but
    /// readers respect it.
    pub fn mark_loss(&mut self, processor: u16) -> Result<(), WriteError> {
        if self.stream(processor)?.is_open() {
            self.seal(processor, Cause::Flush)?;
        }
        self.stream(processor)?.mark_loss();
        Ok(())
    }

    /// Ends the trace as a crash would: the logfile header still describes a running session, and
    /// `zeros` bytes of zeros follow, as in a preallocated file. All open buffers are written.
    ///
    /// With `zeros` 0, this ends a trace on an output that cannot seek.
    pub fn leave_unfinished(mut self, zeros: u64) -> Result<(W, Totals), WriteError> {
        self.write_open_buffers()?;
        self.totals.bytes += std::io::copy(&mut std::io::repeat(0).take(zeros), &mut self.output)?;
        self.output.flush()?;
        Ok((self.output, self.totals))
    }

    fn stream(&mut self, processor: u16) -> Result<&mut Stream, WriteError> {
        let processors = self.session.processors;
        self.streams.get_mut(usize::from(processor)).ok_or(WriteError::Processor { processor, processors })
    }

    fn count(&mut self, time: Option<RawTime>) {
        self.totals.records += 1;
        if let Some(time) = time {
            self.latest = self.latest.max(time);
        }
    }

    /// Starts a new buffer for an existing processor that has no open buffer.
    fn open(&mut self, processor: u16) -> &mut Stream {
        let stream = &mut self.streams[usize::from(processor)];
        stream.open(self.session.buffer_size as usize, self.next_sequence);
        self.next_sequence += 1;
        stream
    }

    /// Writes the open buffer of an existing processor, if there is one.
    fn seal(&mut self, processor: u16, cause: Cause) -> Result<(), WriteError> {
        if !self.header_written {
            self.write_header_buffer()?;
        }
        let Some(sealed) = self.streams[usize::from(processor)].seal(&self.session, cause) else {
            return Ok(());
        };
        let data_buffers = self.totals.buffers - 1;
        self.totals.buffers += 1;
        let Some(slots) = self.session.circular else {
            self.output.write_all(sealed.plain)?;
            self.output.write_all(&sealed.chunk)?;
            self.totals.bytes += (sealed.plain.len() + sealed.chunk.len()) as u64;
            return Ok(());
        };
        match self.ring.get_mut((data_buffers % slots) as usize) {
            Some(oldest) => oldest.copy_from_slice(sealed.plain),
            None => self.ring.push(sealed.plain.to_vec()),
        }
        Ok(())
    }

    fn write_header_buffer(&mut self) -> Result<(), WriteError> {
        let saved_offset = self.header_saved_offset.unwrap_or(self.header.end());
        let bytes = self.header.seal_as_header(&self.session, saved_offset);
        self.output.write_all(bytes)?;
        self.header_written = true;
        self.totals.bytes += bytes.len() as u64;
        self.totals.buffers += 1;
        Ok(())
    }

    fn write_open_buffers(&mut self) -> Result<(), WriteError> {
        let open: Vec<u16> =
            (0..self.session.processors).filter(|&at| self.streams[usize::from(at)].is_open()).collect();
        for &processor in &open {
            let cause = if open.last() == Some(&processor) { Cause::End } else { Cause::Flush };
            self.seal(processor, cause)?;
        }
        if !self.header_written {
            self.write_header_buffer()?;
        }
        for buffer in &self.ring {
            self.output.write_all(buffer)?;
            self.totals.bytes += buffer.len() as u64;
        }
        Ok(())
    }
}

impl<W: Write + Seek> EtlWriter<W> {
    /// Ends the trace: writes all open buffers, then seeks back and completes the logfile header.
    pub fn finish(mut self) -> Result<(W, Totals), WriteError> {
        self.write_open_buffers()?;
        let latest = self.session.clock().to_file_time(self.latest);
        let after_latest = FileTime(latest.0.saturating_add(END_DELAY));
        let closing = Closing {
            end_time: self.session.end_time.unwrap_or(after_latest),
            buffers_written: self.totals.buffers,
            events_lost: self.totals.events_lost,
            buffers_lost: self.totals.buffers_lost,
        };
        let payload = self.session.logfile_header(&closing);
        self.header.overwrite(BUFFER_HEADER_SIZE + HeaderKind::System64.header_size(), &payload);
        let end = self.output.stream_position()?;
        self.output.seek(SeekFrom::Start(end - self.totals.bytes))?;
        self.output.write_all(self.header.bytes())?;
        self.output.seek(SeekFrom::Start(end))?;
        self.output.flush()?;
        Ok((self.output, self.totals))
    }
}

/// The size of a record, if it is at most `room`.
fn fitting(size: usize, room: usize) -> Result<usize, WriteError> {
    if size > room { Err(WriteError::BufferTooSmall { size, room }) } else { Ok(size) }
}
