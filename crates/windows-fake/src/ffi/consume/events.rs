//! Delivers buffers as events: calls the consumer for each event, and after each buffer.

use std::mem::offset_of;

use stackhound_etl::{BUFFER_HEADER_SIZE, Clock};
use stackhound_types::RawTime;
use windows_sys::Win32::System::Diagnostics::Etw::{
    ETW_BUFFER_CONTEXT, ETW_BUFFER_CONTEXT_0, EVENT_HEADER, EVENT_HEADER_EXTENDED_DATA_ITEM, EVENT_RECORD,
    EVENT_TRACE_LOGFILEW,
};

use crate::deliver::{self, Delivered, HEADER_SIZE, deliver};
use crate::raw::{shift_time, stack_time_offset};
use crate::replay::Slice;

const _: () = assert!(size_of::<EVENT_HEADER>() == HEADER_SIZE && size_of::<EVENT_RECORD>() == 0x70);

/// Builds EVENT_RECORDs.
pub(super) struct Events {
    /// Converts times, unless the consumer requested raw times.
    clock: Option<Clock>,
    /// Process id in the trace that is replaced by that of this process; 0 for none.
    own_pid: u32,
    items: Vec<EVENT_HEADER_EXTENDED_DATA_ITEM>,
    /// A payload whose time was shifted.
    moved: Vec<u8>,
}

impl Events {
    pub fn new(clock: Option<Clock>, own_pid: u32) -> Events {
        Events { clock, own_pid, items: Vec::new(), moved: Vec::new() }
    }

    /// Delivers all events of some buffers in the order of their times, with a call after the last
    /// event of each buffer. Microsoft's page of ProcessTrace describes this: events are delivered
    /// in the order of their times if possible. Returns `false` if the consumer ends processing.
    ///
    /// # Safety
    /// The callbacks and the context in `logfile` are valid.
    pub unsafe fn buffers(
        &mut self,
        slices: &[Slice],
        buffers_read: &mut u32,
        logfile: &mut EVENT_TRACE_LOGFILEW,
    ) -> bool {
        let mut entries: Vec<_> = slices.iter().map(|slice| slice.entries().peekable()).collect();
        let mut filled = vec![BUFFER_HEADER_SIZE; slices.len()];
        loop {
            let firsts = entries.iter_mut().enumerate();
            let times = firsts.filter_map(|(at, rest)| Some((rest.peek()?.time.0 + slices[at].shift, at)));
            let Some((_, at)) = times.min() else { return true };
            let (slice, flags) = (&slices[at], slices[at].buffer_flags());
            let Some(entry) = entries[at].next() else { return true };
            if slice.after_loss && filled[at] == BUFFER_HEADER_SIZE {
                let header = deliver::lost_buffer(entry.time.0, flags);
                let lost = Delivered { header, items: Vec::new(), payload: &[] };
                // SAFETY: guaranteed by the caller.
                unsafe { self.event(slice, lost, None, logfile) };
            }
            let record = slice.block.record(entry);
            filled[at] += record.bytes().len().next_multiple_of(8);
            if let Some(event) = deliver(&record, flags) {
                let moved = stack_time_offset(&record).filter(|_| slice.shift != 0).map(|_| slice.shift);
                // SAFETY: guaranteed by the caller.
                unsafe { self.event(slice, event, moved, logfile) };
            }
            if entries[at].peek().is_some() {
                continue;
            }
            *buffers_read += 1;
            logfile.BuffersRead = *buffers_read;
            logfile.BufferSize = slice.block.session().buffer_size;
            logfile.Filled = filled[at] as u32;
            // SAFETY: guaranteed by the caller.
            if logfile.BufferCallback.is_some_and(|callback| unsafe { callback(logfile) == 0 }) {
                return false;
            }
        }
    }

    /// # Safety
    /// As for [`buffers`](Events::buffers).
    unsafe fn event(
        &mut self,
        slice: &Slice,
        mut event: Delivered<'_>,
        moved: Option<i64>,
        logfile: &EVENT_TRACE_LOGFILEW,
    ) {
        let Some(callback) = (
            // SAFETY: both members are function pointers, and the mode determines which one is
            // valid.
            unsafe { logfile.Anonymous2.EventRecordCallback }
        ) else {
            return;
        };
        const TIME: usize = offset_of!(EVENT_HEADER, TimeStamp);
        const PID: usize = offset_of!(EVENT_HEADER, ProcessId);
        shift_time(&mut event.header, TIME, slice.shift);
        if let Some(clock) = &self.clock {
            let time = &mut event.header[TIME..TIME + 8];
            let raw = RawTime(i64::from_le_bytes((&*time).try_into().expect("eight bytes")));
            time.copy_from_slice(&clock.to_file_time(raw).0.to_le_bytes());
        }
        let pid = &mut event.header[PID..PID + 4];
        if self.own_pid != 0 && *pid == self.own_pid.to_le_bytes() {
            pid.copy_from_slice(&std::process::id().to_le_bytes());
        }
        let mut payload = event.payload;
        if let Some(shift) = moved {
            self.moved.clear();
            self.moved.extend_from_slice(payload);
            shift_time(&mut self.moved, 0, shift);
            payload = &self.moved;
        }
        self.items.clear();
        for (number, (item_type, data)) in event.items.iter().enumerate() {
            let mut item = EVENT_HEADER_EXTENDED_DATA_ITEM {
                ExtType: *item_type,
                DataSize: data.bytes().len() as u16,
                DataPtr: data.bytes().as_ptr() as u64,
                ..EVENT_HEADER_EXTENDED_DATA_ITEM::default()
            };
            // Linkage: another item follows.
            item.Anonymous._bitfield = u16::from(number + 1 < event.items.len());
            self.items.push(item);
        }
        let processor = slice.processor.to_le_bytes();
        let mut context = ETW_BUFFER_CONTEXT { LoggerId: slice.logger, ..ETW_BUFFER_CONTEXT::default() };
        context.Anonymous = ETW_BUFFER_CONTEXT_0 { ProcessorIndex: u16::from_le_bytes(processor) };
        let mut record = EVENT_RECORD {
            // SAFETY: both have the same size, and all bit patterns are valid.
            EventHeader: unsafe { std::mem::transmute::<[u8; HEADER_SIZE], EVENT_HEADER>(event.header) },
            BufferContext: context,
            ExtendedDataCount: self.items.len() as u16,
            UserDataLength: payload.len() as u16,
            ExtendedData: if self.items.is_empty() { std::ptr::null_mut() } else { self.items.as_mut_ptr() },
            UserData: if payload.is_empty() { std::ptr::null_mut() } else { payload.as_ptr() as *mut _ },
            UserContext: logfile.Context,
        };
        // SAFETY: guaranteed by the caller; all pointers in the record are valid until the callback
        // returns.
        unsafe { callback(&mut record) };
    }
}
