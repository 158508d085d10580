//! Events and buffers as Windows hands them over, without its pointers.

use std::ops::ControlFlow;
use std::slice;

use windows_sys::Win32::System::Diagnostics::Etw::{
    EVENT_HEADER_EXTENDED_DATA_ITEM, EVENT_HEADER_FLAG_PROCESSOR_INDEX, EVENT_RECORD,
};

/// Type (`ExtType`) and data of an extended item.
pub type Item<'a> = (u16, &'a [u8]);

/// Items of one event that are looked at. Windows knows 18 types, each of which an event has once.
const ITEMS_MAX: usize = 32;

/// An event while it is handed over.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    /// The `EVENT_HEADER` as in memory.
    pub header: &'a [u8; 80],
    /// Index of the processor.
    pub processor: u16,
    /// Extended items.
    pub items: &'a [Item<'a>],
    /// The payload.
    pub payload: &'a [u8],
}

/// Takes events or whole buffers, on the thread that [`super::Opened::run`] starts. `Break` ends it. Dropped on that
/// thread when nothing comes any more.
pub trait Sink: Send + 'static {
    /// An event.
    fn event(&mut self, event: &EventView<'_>) -> ControlFlow<()>;
    /// Events of a buffer were handed over; maybe none will come for a while.
    fn buffer_done(&mut self) -> ControlFlow<()>;
    /// A whole buffer with its header, instead of its events.
    fn raw_buffer(&mut self, bytes: &[u8]) -> ControlFlow<()>;
}

/// Calls `take` with a record's content.
///
/// # Safety
/// The record must be one that ETW hands to a callback: its pointers are valid for the sizes beside them until the
/// callback returns.
pub(super) unsafe fn with_view<R>(record: &EVENT_RECORD, take: impl FnOnce(&EventView<'_>) -> R) -> R {
    // SAFETY: the header is the record's first field and has this size (asserted below); any bytes are valid.
    let header = unsafe { &*(&raw const record.EventHeader).cast::<[u8; 80]>() };
    let flags = u32::from(record.EventHeader.Flags);
    // SAFETY: both forms of the union are numbers; the flag says which one was meant.
    let index = unsafe { record.BufferContext.Anonymous.ProcessorIndex };
    let processor = if flags & EVENT_HEADER_FLAG_PROCESSOR_INDEX != 0 { index } else { index & 0xFF };
    // SAFETY: of the caller.
    let payload = unsafe { slice_of(record.UserData.cast::<u8>(), usize::from(record.UserDataLength)) };
    // SAFETY: of the caller.
    let stored = unsafe { slice_of(record.ExtendedData, usize::from(record.ExtendedDataCount)) };
    if stored.is_empty() {
        return take(&EventView { header, processor, items: &[], payload });
    }
    let mut items: [Item<'_>; ITEMS_MAX] = [(0, &[]); ITEMS_MAX];
    for (item, stored) in items.iter_mut().zip(stored) {
        // SAFETY: of the caller.
        let data = unsafe { slice_of(stored.DataPtr as *const u8, usize::from(stored.DataSize)) };
        *item = (stored.ExtType, data);
    }
    let items = &items[..stored.len().min(ITEMS_MAX)];
    take(&EventView { header, processor, items, payload })
}

const _: () = assert!(size_of::<windows_sys::Win32::System::Diagnostics::Etw::EVENT_HEADER>() == 80);
const _: () = assert!(size_of::<EVENT_HEADER_EXTENDED_DATA_ITEM>() == 16);

/// # Safety
/// So much must be there as long as `'a`, unless there is no beginning.
pub(super) unsafe fn slice_of<'a, T>(start: *const T, length: usize) -> &'a [T] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: of the caller.
    unsafe { slice::from_raw_parts(start, length) }
}
