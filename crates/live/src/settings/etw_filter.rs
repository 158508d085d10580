//! Filters that ETW applies, as `EnableTraceEx2` accepts them.
//!
//! They save the cost of unwanted events, but are not reliable: Windows ignores some of them for
//! some providers, does not enable some providers at all with others, and a provider that other
//! sessions enabled as well may deliver more. Therefore
//! [`ProviderSettings::wants`](super::ProviderSettings::wants) tests all properties in the header
//! again. Layouts and limits are those of Microsoft's page "EVENT_FILTER_DESCRIPTOR structure" and
//! of `evntprov.h`.

use crate::Error;

/// `MAX_EVENT_FILTER_EVENT_ID_COUNT`.
const IDS_MAX: usize = 64;
/// `MAX_EVENT_FILTER_PID_COUNT`.
const PIDS_MAX: usize = 8;
/// `MAX_EVENT_FILTER_DATA_SIZE`.
const DATA_MAX: usize = 1024;
/// `MAX_EVENT_FILTER_EVENT_NAME_SIZE`.
const NAMES_MAX: usize = 4096;
/// `MAX_EVENT_FILTER_PAYLOAD_SIZE`.
const PAYLOAD_MAX: usize = 4096;

/// One filter. A provider accepts one of each kind.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EtwFilter {
    /// Only events with these ids; at most 64.
    EventIds(Vec<u16>),
    /// Only events without these ids; at most 64. The same kind as [`EtwFilter::EventIds`].
    NotEventIds(Vec<u16>),
    /// Only events of these processes; at most 8. Windows enables the provider in those of them
    /// that run at that moment. A provider that is registered in the kernel, such as
    /// Microsoft-Windows-Kernel-Process, is not enabled at all and delivers nothing, and a process
    /// that starts later is not included.
    Pids(Vec<u32>),
    /// Only events of programs with these file names, such as `notepad.exe`; 1,024 bytes of UTF-16
    /// in total. As with [`EtwFilter::Pids`], a provider in the kernel delivers nothing.
    Executables(Vec<String>),
    /// Only events of processes of these packages, by their full names; 1,024 bytes of UTF-16 in
    /// total.
    PackageIds(Vec<String>),
    /// Only TraceLogging events with these names; 4,096 bytes in total. Windows 10 (1709) and
    /// later.
    EventNames(Vec<String>),
    /// Stacks only for events with these ids; at most 64. Needs
    /// [`super::EnableProperties::STACK_TRACE`].
    StackIds(Vec<u16>),
    /// Stacks only for TraceLogging events with these names; 4,096 bytes in total. Needs
    /// [`super::EnableProperties::STACK_TRACE`].
    StackNames(Vec<String>),
    /// By payload, in the bytes that `TdhAggregatePayloadFilters` returns; at most 4,096.
    Payload(Vec<u8>),
}

/// The events that a filter by name applies to: those with the keywords and level of the provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub any: u64,
    pub all: u64,
    pub level: u8,
}

/// The content of an `EVENT_FILTER_DESCRIPTOR`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterBytes {
    /// `EVENT_FILTER_TYPE_*`.
    pub kind: u32,
    /// The bytes that `Ptr` points to. Their number is `Size`.
    pub bytes: Vec<u8>,
}

impl EtwFilter {
    /// Checks the limits, sorts the values and removes duplicates.
    pub(super) fn checked(mut self) -> Result<EtwFilter, Error> {
        let values = self.values();
        let size = |found: usize, limit: usize| match found {
            0 => Err(Error::EmptyFilter(values)),
            _ if found > limit => Err(Error::FilterSize { values, found, limit }),
            _ => Ok(()),
        };
        match &mut self {
            EtwFilter::EventIds(ids) | EtwFilter::NotEventIds(ids) | EtwFilter::StackIds(ids) => {
                in_order(ids, values, IDS_MAX)?;
            }
            EtwFilter::Pids(pids) => in_order(pids, values, PIDS_MAX)?,
            EtwFilter::Executables(names) | EtwFilter::PackageIds(names) => {
                named(names, &['\0', ';'])?;
                in_order(names, values, usize::MAX)?;
                size(joined(names).len(), DATA_MAX)?;
            }
            EtwFilter::EventNames(names) | EtwFilter::StackNames(names) => {
                named(names, &['\0'])?;
                in_order(names, values, usize::from(u16::MAX))?;
                size(names.iter().map(|name| name.len() + 1).sum(), NAMES_MAX)?;
            }
            EtwFilter::Payload(bytes) => size(bytes.len(), PAYLOAD_MAX)?,
        }
        Ok(self)
    }

    /// The kind of the values for messages, in the plural.
    pub(super) fn values(&self) -> &'static str {
        match self {
            EtwFilter::EventIds(_) | EtwFilter::NotEventIds(_) => "event ids",
            EtwFilter::Pids(_) => "process ids",
            EtwFilter::Executables(_) => "executables",
            EtwFilter::PackageIds(_) => "package ids",
            EtwFilter::EventNames(_) => "event names",
            EtwFilter::StackIds(_) => "ids of events with stacks",
            EtwFilter::StackNames(_) => "names of events with stacks",
            EtwFilter::Payload(_) => "payload filters",
        }
    }

    /// `EVENT_FILTER_TYPE_*`. Windows accepts one filter of each kind.
    pub(super) fn kind(&self) -> u32 {
        match self {
            EtwFilter::Pids(_) => 0x8000_0004,
            EtwFilter::Executables(_) => 0x8000_0008,
            EtwFilter::PackageIds(_) => 0x8000_0010,
            EtwFilter::Payload(_) => 0x8000_0100,
            EtwFilter::EventIds(_) | EtwFilter::NotEventIds(_) => 0x8000_0200,
            EtwFilter::EventNames(_) => 0x8000_0400,
            EtwFilter::StackIds(_) => 0x8000_1000,
            EtwFilter::StackNames(_) => 0x8000_2000,
        }
    }

    /// Whether the filter only selects the events that get stacks.
    pub(super) fn is_about_stacks(&self) -> bool {
        matches!(self, EtwFilter::StackIds(_) | EtwFilter::StackNames(_))
    }

    /// The filter as Windows accepts it.
    pub(super) fn to_bytes(&self, scope: Scope) -> FilterBytes {
        let bytes = match self {
            EtwFilter::EventIds(ids) | EtwFilter::StackIds(ids) => by_id(true, ids),
            EtwFilter::NotEventIds(ids) => by_id(false, ids),
            EtwFilter::Pids(pids) => pids.iter().flat_map(|pid| pid.to_le_bytes()).collect(),
            EtwFilter::Executables(names) | EtwFilter::PackageIds(names) => joined(names),
            EtwFilter::EventNames(names) | EtwFilter::StackNames(names) => by_name(names, scope),
            EtwFilter::Payload(bytes) => bytes.clone(),
        };
        FilterBytes { kind: self.kind(), bytes }
    }

    /// A filter that passes all events that at least one of the two passes; `None` if no filter of
    /// their kind does.
    pub(super) fn union(&self, other: &EtwFilter) -> Option<EtwFilter> {
        fn either<T: Clone>(one: &[T], other: &[T]) -> Vec<T> {
            one.iter().chain(other).cloned().collect()
        }
        let joined = match (self, other) {
            (EtwFilter::EventIds(a), EtwFilter::EventIds(b)) => EtwFilter::EventIds(either(a, b)),
            (EtwFilter::NotEventIds(a), EtwFilter::NotEventIds(b)) => {
                EtwFilter::NotEventIds(a.iter().filter(|id| b.contains(id)).copied().collect())
            }
            // Events that one filter requests must not be excluded by the other.
            (EtwFilter::EventIds(wanted), EtwFilter::NotEventIds(unwanted))
            | (EtwFilter::NotEventIds(unwanted), EtwFilter::EventIds(wanted)) => {
                EtwFilter::NotEventIds(unwanted.iter().filter(|id| !wanted.contains(id)).copied().collect())
            }
            (EtwFilter::Pids(a), EtwFilter::Pids(b)) => EtwFilter::Pids(either(a, b)),
            (EtwFilter::Executables(a), EtwFilter::Executables(b)) => EtwFilter::Executables(either(a, b)),
            (EtwFilter::PackageIds(a), EtwFilter::PackageIds(b)) => EtwFilter::PackageIds(either(a, b)),
            (EtwFilter::EventNames(a), EtwFilter::EventNames(b)) => EtwFilter::EventNames(either(a, b)),
            (EtwFilter::StackIds(a), EtwFilter::StackIds(b)) => EtwFilter::StackIds(either(a, b)),
            (EtwFilter::StackNames(a), EtwFilter::StackNames(b)) => EtwFilter::StackNames(either(a, b)),
            (EtwFilter::Payload(a), EtwFilter::Payload(b)) if a == b => self.clone(),
            _ => return None,
        };
        joined.checked().ok()
    }
}

fn in_order<T: Ord>(list: &mut Vec<T>, values: &'static str, limit: usize) -> Result<(), Error> {
    list.sort_unstable();
    list.dedup();
    match list.len() {
        0 => Err(Error::EmptyFilter(values)),
        found if found > limit => Err(Error::TooManyInFilter { values, found, limit }),
        _ => Ok(()),
    }
}

fn named(names: &[String], forbidden: &[char]) -> Result<(), Error> {
    let bad = names.iter().find(|name| name.is_empty() || name.contains(forbidden));
    bad.map_or(Ok(()), |name| Err(Error::FilterName(name.clone())))
}

/// UTF-16 names, separated by semicolons and terminated by a zero.
fn joined(names: &[String]) -> Vec<u8> {
    names.join(";").encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// `EVENT_FILTER_EVENT_ID`.
fn by_id(filter_in: bool, ids: &[u16]) -> Vec<u8> {
    let count = ids.len() as u16;
    let ids = std::iter::once(&count).chain(ids).flat_map(|id| id.to_le_bytes());
    [u8::from(filter_in), 0].into_iter().chain(ids).collect()
}

/// `EVENT_FILTER_EVENT_NAME`: zero-terminated names in UTF-8.
fn by_name(names: &[String], scope: Scope) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20);
    bytes.extend(scope.any.to_le_bytes());
    bytes.extend(scope.all.to_le_bytes());
    bytes.extend([scope.level, 1]);
    bytes.extend((names.len() as u16).to_le_bytes());
    for name in names {
        bytes.extend(name.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Scope = Scope { any: 0x10, all: 0x20, level: 4 };

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn filters_are_laid_out_as_windows_reads_them() {
        let rows: [(EtwFilter, u32, Vec<u8>); 9] = [
            (EtwFilter::EventIds(vec![10, 0x102, 10]), 0x8000_0200, vec![1, 0, 2, 0, 10, 0, 2, 1]),
            (EtwFilter::NotEventIds(vec![5]), 0x8000_0200, vec![0, 0, 1, 0, 5, 0]),
            (EtwFilter::StackIds(vec![7]), 0x8000_1000, vec![1, 0, 1, 0, 7, 0]),
            (EtwFilter::Pids(vec![0x1_0004, 8]), 0x8000_0004, vec![8, 0, 0, 0, 4, 0, 1, 0]),
            (EtwFilter::Executables(texts(&["b", "a"])), 0x8000_0008, vec![b'a', 0, b';', 0, b'b', 0, 0, 0]),
            (EtwFilter::PackageIds(texts(&["x"])), 0x8000_0010, vec![b'x', 0, 0, 0]),
            (
                EtwFilter::EventNames(texts(&["Ab", "C"])),
                0x8000_0400,
                [&[0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 0][..], b"Ab\0C\0"]
                    .concat(),
            ),
            (
                EtwFilter::StackNames(texts(&["é"])),
                0x8000_2000,
                [&[0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 4, 1, 1, 0][..], "é\0".as_bytes()]
                    .concat(),
            ),
            (EtwFilter::Payload(vec![1, 2, 3]), 0x8000_0100, vec![1, 2, 3]),
        ];
        for (filter, kind, bytes) in rows {
            let filter = filter.checked().unwrap();
            assert_eq!(filter.to_bytes(SCOPE), FilterBytes { kind, bytes }, "{filter:?}");
        }
    }

    #[test]
    fn limits_are_checked_here() {
        let many = |count: u16| (0..count).collect::<Vec<_>>();
        let too_many = |values, found, limit| Error::TooManyInFilter { values, found, limit };
        let rows = [
            (EtwFilter::EventIds(many(65)), too_many("event ids", 65, 64)),
            (EtwFilter::NotEventIds(many(65)), too_many("event ids", 65, 64)),
            (EtwFilter::StackIds(many(65)), too_many("ids of events with stacks", 65, 64)),
            (EtwFilter::Pids((0..9).collect()), too_many("process ids", 9, 8)),
            (EtwFilter::EventIds(Vec::new()), Error::EmptyFilter("event ids")),
            (EtwFilter::Payload(Vec::new()), Error::EmptyFilter("payload filters")),
            (
                EtwFilter::Executables(vec!["x".repeat(512)]),
                Error::FilterSize { values: "executables", found: 1026, limit: 1024 },
            ),
            (
                EtwFilter::EventNames(vec!["x".repeat(4096)]),
                Error::FilterSize { values: "event names", found: 4097, limit: 4096 },
            ),
            (
                EtwFilter::Payload(vec![0; 4097]),
                Error::FilterSize { values: "payload filters", found: 4097, limit: 4096 },
            ),
            (EtwFilter::Executables(texts(&["a;b"])), Error::FilterName("a;b".into())),
            (EtwFilter::EventNames(texts(&[""])), Error::FilterName(String::new())),
        ];
        for (filter, expected) in rows {
            assert_eq!(filter.checked(), Err(expected));
        }
        assert!(EtwFilter::EventIds(many(64)).checked().is_ok());
        assert!(EtwFilter::Pids((0..8).collect()).checked().is_ok());
        assert!(EtwFilter::Executables(vec!["x".repeat(511)]).checked().is_ok());
        assert!(EtwFilter::EventNames(vec!["x;y".repeat(1365)]).checked().is_ok());
    }

    #[test]
    fn a_union_passes_the_events_of_both_filters() {
        use EtwFilter::{EventIds, NotEventIds, Payload, Pids};
        let rows = [
            (EventIds(vec![1, 2]), EventIds(vec![2, 3]), Some(EventIds(vec![1, 2, 3]))),
            (NotEventIds(vec![1, 2]), NotEventIds(vec![2, 3]), Some(NotEventIds(vec![2]))),
            (NotEventIds(vec![1]), NotEventIds(vec![2]), None),
            (EventIds(vec![1]), NotEventIds(vec![1, 2]), Some(NotEventIds(vec![2]))),
            (NotEventIds(vec![1]), EventIds(vec![1]), None),
            (Pids(vec![4, 8]), Pids(vec![12]), Some(Pids(vec![4, 8, 12]))),
            (Pids((0..5).collect()), Pids((5..9).collect()), None),
            (Payload(vec![1]), Payload(vec![1]), Some(Payload(vec![1]))),
            (Payload(vec![1]), Payload(vec![2]), None),
        ];
        for (one, other, expected) in rows {
            assert_eq!(one.union(&other), expected, "{one:?} {other:?}");
        }
    }
}
