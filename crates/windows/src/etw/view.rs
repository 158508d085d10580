//! Events and buffers as Windows delivers them, without its pointers.

use std::ops::ControlFlow;
use std::slice;

use windows_sys::Win32::System::Diagnostics::Etw::{
    EVENT_HEADER_EXTENDED_DATA_ITEM, EVENT_HEADER_FLAG_PROCESSOR_INDEX, EVENT_RECORD,
};

/// The type (`ExtType`) and the data of an extended data item.
pub type Item<'a> = (u16, &'a [u8]);

/// The maximum number of extended data items of an event. Windows has 18 types, each of which an
/// event has once.
const ITEMS_MAX: usize = 32;

/// An event during its delivery.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    /// The bytes of the `EVENT_HEADER`.
    pub header: &'a [u8; 80],
    /// The index of the processor.
    pub processor: u16,
    /// The extended data items.
    pub items: &'a [Item<'a>],
    /// The payload.
    pub payload: &'a [u8],
}

/// Receives events or whole buffers, on the thread that [`super::Opened::run`] starts. `Break` ends
/// the delivery. Dropped on that thread when no call can follow.
pub trait Sink: Send + 'static {
    /// Receives an event.
    fn event(&mut self, event: &EventView<'_>) -> ControlFlow<()>;
    /// Called after the events of a buffer were delivered. The next event may arrive much later.
    fn buffer_done(&mut self) -> ControlFlow<()>;
    /// Receives a whole buffer with its header, instead of its events.
    fn raw_buffer(&mut self, bytes: &[u8]) -> ControlFlow<()>;
}

/// Calls `take` with the content of a record.
///
/// # Safety
/// ETW must have passed the record to a callback: its pointers are valid for the sizes next to them
/// until the callback returns.
pub(super) unsafe fn with_view<R>(record: &EVENT_RECORD, take: impl FnOnce(&EventView<'_>) -> R) -> R {
    // SAFETY: the header is the first field of the record and has this size (asserted below); any
    // bytes are valid.
    let header = unsafe { &*(&raw const record.EventHeader).cast::<[u8; 80]>() };
    let flags = u32::from(record.EventHeader.Flags);
    // SAFETY: both forms of the union are numbers; the flag states which one is used.
    let index = unsafe { record.BufferContext.Anonymous.ProcessorIndex };
    let processor = if flags & EVENT_HEADER_FLAG_PROCESSOR_INDEX != 0 { index } else { index & 0xFF };
    // SAFETY: guaranteed by the caller.
    let payload = unsafe { slice_of(record.UserData.cast::<u8>(), usize::from(record.UserDataLength)) };
    // SAFETY: guaranteed by the caller.
    let stored = unsafe { slice_of(record.ExtendedData, usize::from(record.ExtendedDataCount)) };
    if stored.is_empty() {
        return take(&EventView { header, processor, items: &[], payload });
    }
    let mut items: [Item<'_>; ITEMS_MAX] = [(0, &[]); ITEMS_MAX];
    for (item, stored) in items.iter_mut().zip(stored) {
        // SAFETY: guaranteed by the caller.
        let data = unsafe { slice_of(stored.DataPtr as *const u8, usize::from(stored.DataSize)) };
        *item = (stored.ExtType, data);
    }
    let items = &items[..stored.len().min(ITEMS_MAX)];
    take(&EventView { header, processor, items, payload })
}

const _: () = assert!(size_of::<windows_sys::Win32::System::Diagnostics::Etw::EVENT_HEADER>() == 80);
const _: () = assert!(size_of::<EVENT_HEADER_EXTENDED_DATA_ITEM>() == 16);

/// # Safety
/// `start` must be null or valid for `length` values for the lifetime `'a`.
pub(super) unsafe fn slice_of<'a, T>(start: *const T, length: usize) -> &'a [T] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(start, length) }
}
