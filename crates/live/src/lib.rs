//! Live sessions of Event Tracing for Windows: descriptions of sessions and providers, running
//! sessions, and their events in time order.
//!
//! ```text
//! callback ─▶ Capture ─▶ bounded queue ─▶ LiveMerger ─▶ events in time order
//! └ one copy ─────────┘  └ drops are counted  └ waits for slower processors
//! ```
//!
//! [`Session`] and [`ProviderSettings`] describe a session in the numbers that ETW accepts.
//! [`LiveSession`] starts a session on Windows. Windows delivers each event as an `EVENT_RECORD`.
//! [`Capture`] converts it to the record that a file would contain, so that all later stages are
//! the same for live sessions and files.
//!
//! This crate handles the limits of ETW settings, the order of arrival and the control of sessions.
//! It does not handle stacks or the use of events. Only the module `session` calls Windows; all
//! other modules also accept events from a test.
#![forbid(unsafe_code)]

mod capture;
mod error;
mod event_record;
mod live_merger;
mod queue;
mod ring;
mod session;
mod settings;

pub use capture::Capture;
pub use error::Error;
pub use event_record::{EventRecord, ExtendedDataItem, LOST_EVENTS};
pub use live_merger::{LiveMerger, Step};
pub use queue::{Dropped, Incoming, Queue, channel};
pub use ring::{Overflow, Received, Receiver, RingCounts, Sender, ring};
pub use session::{
    AccessNeed, LiveSession, ProgramEnd, SessionCounters, SessionInfo, access_needed, on_program_end,
};
pub use settings::{
    Buffers, ClassicEvent, Delivery, EnableParameters, EnableProperties, EtwFilter, FilterBytes, FlushTimer,
    GROUP_MASKS, GroupMask, IfExists, KernelGroups, KernelProvider, NT_KERNEL_LOGGER, Preset,
    ProviderSettings, Session, SessionClock, SessionNumbers,
};
