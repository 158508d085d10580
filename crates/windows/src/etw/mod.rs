//! Event Tracing for Windows: starting, asking and stopping sessions, enabling providers, and taking the events of live
//! sessions.
//!
//! [`Session`] controls one, [`open`] takes its events: on a thread of its own, one call of a [`Sink`] for each event or
//! each buffer. Numbers and bytes are taken as ETW has them; what they mean, and which are allowed, others know.

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
