//! The hook ids that this crate and captures need. The group is in the high byte, the type in the
//! low byte.
//!
//! `stackhound-schema` has all others. A test there compares these constants with its tables.

/// The first record of a trace: the logfile header.
pub const EVENT_TRACE_HEADER: u16 = 0x0000;
/// Processors, memory and names of the machine.
pub const SYSTEM_CONFIG_CPU: u16 = 0x0b0a;
/// A stack with its frames.
pub const STACK_WALK_STACK: u16 = 0x1820;
/// A stack-key definition, written when the key enters the cache.
pub const STACK_WALK_KEY_CREATE: u16 = 0x1822;
/// A stack-key definition, written when the key leaves the cache.
pub const STACK_WALK_KEY_DELETE: u16 = 0x1823;
/// A stack-key definition, written at the end of the session.
pub const STACK_WALK_KEY_RUNDOWN: u16 = 0x1824;
/// A reference to the key of a kernel stack.
pub const STACK_WALK_KEY_KERNEL: u16 = 0x1825;
/// A reference to the key of a user stack.
pub const STACK_WALK_KEY_USER: u16 = 0x1826;
