//! Filters over events, built in Rust.
//!
//! ```
//! use stackhound_expr::Filter;
//! use stackhound_pipeline::{Predicate, pred};
//!
//! let filter = (pred::id_is(10) | pred::id_is(11))
//!     & !pred::process_name_is("svchost.exe")
//!     & pred::property("PID").is(812_u32)
//!     & pred::property("Url").icontains("example");
//!
//! // The filter has the same tree as the text of `--where`, and is displayed as that text.
//! let text = "(id = 10 or id = 11) and not process i= 'svchost.exe' and fields.PID is 812 \
//!             and fields.Url icontains 'example'";
//! assert_eq!(filter.to_string(), text);
//! assert_eq!(Filter::parse(text), Ok(filter.clone()));
//!
//! let predicate = Predicate::new(&filter)?;
//! assert!(predicate.needs_payload());
//! # Ok::<(), stackhound_expr::Error>(())
//! ```
//!
//! The operators `&`, `|` and `!` combine filters; [`any_of`], [`all_of`] and [`none_of`] take lists.
//! Comparisons follow the rules of the
//! [filter language](stackhound_expr#how-a-field-compares-with-a-value): a comparison with a field
//! that the event does not have is false.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use stackhound_expr::{self as expr, Field, Filter, field};
use stackhound_schema::Sid;
use stackhound_types::{Address, FileTime, Guid, Pid, Rfc3339, Tid};

use crate::predicate::PAYLOAD;

/// Every event.
pub fn any_event() -> Filter {
    Filter::everything()
}

/// No event.
pub fn no_event() -> Filter {
    Filter::nothing()
}

/// Events with this ID. Kernel and classic events have the ID 0.
pub fn id_is(id: u16) -> Filter {
    field("id").equals(id)
}

/// Events with this opcode; for kernel and classic events, the event type.
pub fn opcode_is(opcode: u8) -> Filter {
    field("opcode").equals(opcode)
}

/// Events whose payload has this version.
pub fn version_is(version: u8) -> Filter {
    field("version").equals(version)
}

/// Events of this level; 1 is critical, 5 is verbose. Kernel events have no level.
pub fn level_is(level: u8) -> Filter {
    field("level").equals(level)
}

/// Events of this level, of more severe levels, and of level 0, which means no level.
pub fn level_at_most(level: u8) -> Filter {
    field("level").at_most(level)
}

/// Events with any of these keyword bits. An event without keywords does not match, although ETW
/// delivers such events for any keyword mask.
pub fn keyword_any(bits: u64) -> Filter {
    field("keyword").has_any(bits)
}

/// Events with all of these keyword bits.
pub fn keyword_all(bits: u64) -> Filter {
    field("keyword").has_all(bits)
}

/// Events of this channel.
pub fn channel_is(channel: u8) -> Filter {
    field("channel").equals(channel)
}

/// Events of this task.
pub fn task_is(task: u16) -> Filter {
    field("task").equals(task)
}

/// Events of this activity.
pub fn activity_is(activity: Guid) -> Filter {
    field("activity").equals(activity.to_string())
}

/// Events of the process with this ID.
pub fn pid_is(pid: u32) -> Filter {
    field("pid").equals(pid)
}

/// Events of the thread with this ID.
pub fn tid_is(tid: u32) -> Filter {
    field("tid").equals(tid)
}

/// Events of processes with this image name, such as `svchost.exe`. Ignores case.
pub fn process_name_is(name: &str) -> Filter {
    field("process").iequals(name)
}

/// Events of processes whose program has this path, such as `C:\Windows\explorer.exe`. Ignores case.
pub fn process_path_is(path: &str) -> Filter {
    field("process.path").iequals(path)
}

/// Events of processes of this user: a SID, or the name of a well-known one. Ignores case.
pub fn process_user_is(user: &str) -> Filter {
    field("process.user").iequals(user)
}

/// Events about the file with this path. Ignores case.
pub fn file_path_is(path: &str) -> Filter {
    field("file.path").iequals(path)
}

/// Events about the registry key with this path, such as `\REGISTRY\MACHINE\SOFTWARE`. Ignores case.
pub fn registry_path_is(path: &str) -> Filter {
    field("registry.path").iequals(path)
}

/// Events that act on the process with this ID, which is not the event's own.
pub fn target_pid_is(pid: u32) -> Filter {
    field("target.pid").equals(pid)
}

/// A field by its name in filter text, such as `process.command_line`.
pub fn named(name: &str) -> Property {
    Property(field(name))
}

/// Events of this provider or class.
pub fn provider_is(provider: Guid) -> Filter {
    field("provider_guid").equals(provider.to_string())
}

/// Events with this name, such as `Process/Start`.
pub fn event_is(name: &str) -> Filter {
    field("event").equals(name)
}

/// Events that match any of the filters; for an empty list, no events.
pub fn any_of(filters: impl IntoIterator<Item = Filter>) -> Filter {
    Filter::any_of(filters)
}

/// Events that match all filters; for an empty list, **no events**: a list that is empty by mistake
/// matches nothing.
pub fn all_of(filters: impl IntoIterator<Item = Filter>) -> Filter {
    Filter::all_of(filters)
}

/// Events that match none of the filters; for an empty list, all events.
pub fn none_of(filters: impl IntoIterator<Item = Filter>) -> Filter {
    Filter::none_of(filters)
}

/// A field of the payload, by its name in the schema, case-sensitive.
pub fn property(name: &str) -> Property {
    Property(field(format!("{PAYLOAD}{name}")))
}

/// A field for comparisons. Text is compared independently of its storage: UTF-16 or
/// 8-bit, terminated, counted or of fixed length.
#[derive(Clone, Debug)]
pub struct Property(Field);

impl Property {
    /// Equals the value and has the same type: a number never equals text with the same digits. The
    /// width of the number does not matter.
    pub fn is(self, value: impl Into<Literal>) -> Filter {
        self.0.is(value.into().0)
    }

    /// Equals the value, also if one is a number and the other is text with the same digits.
    pub fn equals(self, value: impl Into<Literal>) -> Filter {
        self.0.equals(value.into().0)
    }

    /// Equals the text, ignoring case.
    pub fn iequals(self, value: impl Into<Literal>) -> Filter {
        self.0.iequals(value.into().0)
    }

    /// Has a value, but not this one.
    pub fn differs(self, value: impl Into<Literal>) -> Filter {
        self.0.differs(value.into().0)
    }

    /// Equals one of the values.
    pub fn one_of(self, values: impl IntoIterator<Item = impl Into<Literal>>) -> Filter {
        self.0.one_of(values.into_iter().map(|value| value.into().0))
    }

    /// Contains the text.
    pub fn contains(self, text: &str) -> Filter {
        self.0.contains(text)
    }

    /// Contains the text, ignoring case.
    pub fn icontains(self, text: &str) -> Filter {
        self.0.icontains(text)
    }

    /// Starts with the text.
    pub fn starts_with(self, text: &str) -> Filter {
        self.0.starts_with(text)
    }

    /// Starts with the text, ignoring case.
    pub fn istarts_with(self, text: &str) -> Filter {
        self.0.istarts_with(text)
    }

    /// Ends with the text.
    pub fn ends_with(self, text: &str) -> Filter {
        self.0.ends_with(text)
    }

    /// Ends with the text, ignoring case.
    pub fn iends_with(self, text: &str) -> Filter {
        self.0.iends_with(text)
    }

    /// The whole value matches the pattern: `*` is any text, `?` is any one character.
    pub fn matches(self, pattern: &str) -> Filter {
        self.0.matches(pattern)
    }

    /// The whole value matches the pattern, ignoring case.
    pub fn imatches(self, pattern: &str) -> Filter {
        self.0.imatches(pattern)
    }

    /// Is less than the value: numbers by value, text by code points.
    pub fn less(self, value: impl Into<Literal>) -> Filter {
        self.0.less(value.into().0)
    }

    /// Is at most the value.
    pub fn at_most(self, value: impl Into<Literal>) -> Filter {
        self.0.at_most(value.into().0)
    }

    /// Is greater than the value.
    pub fn greater(self, value: impl Into<Literal>) -> Filter {
        self.0.greater(value.into().0)
    }

    /// Is at least the value.
    pub fn at_least(self, value: impl Into<Literal>) -> Filter {
        self.0.at_least(value.into().0)
    }

    /// Is an integer with any of these bits.
    pub fn has_any(self, bits: u64) -> Filter {
        self.0.has_any(bits)
    }

    /// Is an integer with all of these bits.
    pub fn has_all(self, bits: u64) -> Filter {
        self.0.has_all(bits)
    }
}

/// A value to compare a property with: a number, a Boolean, text, or a value that is displayed as
/// text.
#[derive(Clone, Debug)]
pub struct Literal(expr::Literal);

macro_rules! plain {
    ($($plain:ty)*) => {$(
        impl From<$plain> for Literal {
            fn from(value: $plain) -> Literal {
                Literal(value.into())
            }
        }
    )*};
}

plain!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 bool &str String IpAddr Ipv4Addr Ipv6Addr SocketAddr);

impl From<Guid> for Literal {
    fn from(guid: Guid) -> Literal {
        Literal(guid.to_string().into())
    }
}

impl From<Sid<'_>> for Literal {
    fn from(sid: Sid<'_>) -> Literal {
        Literal(sid.to_string().into())
    }
}

impl From<FileTime> for Literal {
    fn from(time: FileTime) -> Literal {
        Literal(Rfc3339(time).to_string().into())
    }
}

impl From<Address> for Literal {
    fn from(address: Address) -> Literal {
        Literal(address.0.into())
    }
}

impl From<Pid> for Literal {
    fn from(pid: Pid) -> Literal {
        Literal(pid.0.into())
    }
}

impl From<Tid> for Literal {
    fn from(tid: Tid) -> Literal {
        Literal(tid.0.into())
    }
}
