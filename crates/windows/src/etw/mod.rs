//! Event Tracing for Windows: starting, querying and stopping sessions, enabling providers, and
//! receiving the events of live sessions.
//!
//! [`Session`] controls a session. [`open`] receives its events on a dedicated thread, which calls
//! a [`Sink`] for each event or buffer. Numbers and bytes are passed as ETW defines them; this
//! crate does not interpret or check them.

mod clock;
mod consumer;
mod properties;
mod provider;
mod session;
mod view;

pub use crate::privilege::take_system_profile_privilege;
pub use clock::{Clock, Moment, active_processors};
pub use consumer::{Consumer, Delivery, Ended, LogfileFacts, Opened, open};
pub use provider::{Enable, Filter};
pub use session::{Session, SessionState, StartSession, list, sample_interval, set_sample_interval};
pub use view::{EventView, Item, Sink};
