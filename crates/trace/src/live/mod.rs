//! Events of live sessions: from the callback into blocks, and from blocks in the order of arrival into time order.
//!
//! ```text
//! callback ─▶ Capture ─▶ bounded queue ─▶ Arrivals ─▶ events in time order
//! └ one copy ─────────┘  └ drops are counted  └ waits for slower processors
//! ```
//!
//! Windows hands each event over as an `EVENT_RECORD`. [`Capture`] writes it down as the record that a recording would
//! have, so that everything behind this is the same for live events and recorded ones. Knows no Windows: the same code
//! takes events from a test.

mod arrivals;
mod capture;
mod handed;
mod queue;
mod ring;
mod session;

pub use arrivals::{Arrivals, Step};
pub use capture::Capture;
pub use handed::{Handed, HandedItem, LOST_EVENTS};
pub use queue::{Dropped, Incoming, Queue, channel};
pub use ring::{Overflow, Received, Receiver, RingCounts, Sender, ring};
pub use session::{
    AccessNeed, LiveSession, ProgramEnd, SessionCounters, SessionInfo, access_needed, on_program_end,
};
