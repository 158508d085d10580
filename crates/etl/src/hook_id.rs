//! The few hook ids that containers and captures need: group in the upper, type in the lower byte.
//!
//! All others are in `stackhound-schema`, where a test compares these with the tables.

/// The first record of a trace: the logfile header.
pub const EVENT_TRACE_HEADER: u16 = 0x0000;
/// Processors, memory and names of the machine.
pub const SYSTEM_CONFIG_CPU: u16 = 0x0b0a;
/// A stack, frames inline.
pub const STACK_WALK_STACK: u16 = 0x1820;
/// A definition made when a stack key enters the cache.
pub const STACK_WALK_KEY_CREATE: u16 = 0x1822;
/// A definition made when a stack key leaves the cache.
pub const STACK_WALK_KEY_DELETE: u16 = 0x1823;
/// A definition made at the end of the session.
pub const STACK_WALK_KEY_RUNDOWN: u16 = 0x1824;
/// A reference to the key of a kernel stack.
pub const STACK_WALK_KEY_KERNEL: u16 = 0x1825;
/// A reference to the key of a user stack.
pub const STACK_WALK_KEY_USER: u16 = 0x1826;
