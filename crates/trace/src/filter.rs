//! Filters on the header fields of events.
//!
//! Levels and keywords are compared as ETW does it, so a filter that was tried on an .etl file has
//! the same effect in a live session.

use stackhound_types::{Guid, Pid, Tid};

use crate::event::{Event, TraceTime};

/// Events of one provider, by level and keywords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderFilter {
    /// The provider, or the classic event class.
    pub provider: Guid,
    /// The `MatchAnyKeyword` mask, see [`any`](ProviderFilter::any); 0 for all events.
    pub any: u64,
    /// The `MatchAllKeyword` mask, see [`all`](ProviderFilter::all); 0 for all events.
    pub all: u64,
    /// The maximum level, see [`level`](ProviderFilter::level); 0 for all events.
    pub level: u8,
}

impl ProviderFilter {
    /// All events of a provider, or of a classic event class.
    pub fn new(provider: Guid) -> ProviderFilter {
        ProviderFilter { provider, any: 0, all: 0, level: 0 }
    }

    /// Restricts the filter to events with at least one of these keywords, or without any keyword.
    /// Further calls add keywords.
    pub fn any(mut self, keywords: u64) -> ProviderFilter {
        self.any |= keywords;
        self
    }

    /// Restricts the filter further to events with all of these keywords, or without any keyword.
    /// Further calls add keywords.
    pub fn all(mut self, keywords: u64) -> ProviderFilter {
        self.all |= keywords;
        self
    }

    /// Restricts the filter to events of at most this level, or of level 0. 0 means every level.
    pub fn level(mut self, level: u8) -> ProviderFilter {
        self.level = level;
        self
    }

    /// Whether an event passes.
    pub fn wants(&self, event: &Event<'_>) -> bool {
        let record = event.record();
        if record.guid() != Some(self.provider) {
            return false;
        }
        let Some(descriptor) = record.descriptor() else { return true };
        let (keyword, level) = (descriptor.keyword, descriptor.level);
        let by_keyword =
            keyword == 0 || ((self.any == 0 || keyword & self.any != 0) && keyword & self.all == self.all);
        by_keyword && (self.level == 0 || level <= self.level)
    }
}

/// A filter on header fields. An event passes if each field that the filter names has one of its
/// values. Kernel events have no provider in their headers and are selected by hook id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderFilter {
    providers: Vec<ProviderFilter>,
    hook_ids: Vec<u16>,
    ids: Vec<u16>,
    opcodes: Vec<u8>,
    pids: Vec<Pid>,
    tids: Vec<Tid>,
    processors: Vec<u16>,
    from: Option<TraceTime>,
    until: Option<TraceTime>,
}

impl HeaderFilter {
    /// A filter that every event passes.
    pub fn new() -> HeaderFilter {
        HeaderFilter::default()
    }

    /// Selects events of this provider; several calls select events of any of them.
    pub fn provider(mut self, provider: ProviderFilter) -> HeaderFilter {
        self.providers.push(provider);
        self
    }

    /// Selects kernel events with these hook ids, in addition to events of the named providers.
    pub fn hook_ids(mut self, hook_ids: impl IntoIterator<Item = u16>) -> HeaderFilter {
        self.hook_ids.extend(hook_ids);
        self
    }

    /// Restricts the filter to events with these event ids.
    pub fn ids(mut self, ids: impl IntoIterator<Item = u16>) -> HeaderFilter {
        self.ids.extend(ids);
        self
    }

    /// Restricts the filter to events with these opcodes.
    pub fn opcodes(mut self, opcodes: impl IntoIterator<Item = u8>) -> HeaderFilter {
        self.opcodes.extend(opcodes);
        self
    }

    /// Restricts the filter to events with these process ids in their headers.
    pub fn pids(mut self, pids: impl IntoIterator<Item = Pid>) -> HeaderFilter {
        self.pids.extend(pids);
        self
    }

    /// Restricts the filter to events with these thread ids in their headers.
    pub fn tids(mut self, tids: impl IntoIterator<Item = Tid>) -> HeaderFilter {
        self.tids.extend(tids);
        self
    }

    /// Restricts the filter to events of these processors.
    pub fn processors(mut self, processors: impl IntoIterator<Item = u16>) -> HeaderFilter {
        self.processors.extend(processors);
        self
    }

    /// Restricts the filter to events at or after this time.
    pub fn from(mut self, time: TraceTime) -> HeaderFilter {
        self.from = Some(time);
        self
    }

    /// Restricts the filter to events before this time.
    pub fn until(mut self, time: TraceTime) -> HeaderFilter {
        self.until = Some(time);
        self
    }

    /// Whether an event passes.
    pub fn wants(&self, event: &Event<'_>) -> bool {
        fn one_of<T: PartialEq>(allowed: &[T], value: Option<T>) -> bool {
            allowed.is_empty() || value.is_some_and(|value| allowed.contains(&value))
        }
        let record = event.record();
        let by_kind = (self.providers.is_empty() && self.hook_ids.is_empty())
            || self.providers.iter().any(|provider| provider.wants(event))
            || event.hook_id().is_some_and(|hook_id| self.hook_ids.contains(&hook_id));
        by_kind
            && one_of(&self.ids, record.descriptor().map(|descriptor| descriptor.id))
            && one_of(&self.opcodes, Some(record.opcode()))
            && one_of(&self.pids, record.pid())
            && one_of(&self.tids, record.tid())
            && one_of(&self.processors, event.processor())
            && self.from.is_none_or(|from| event.time() >= from)
            && self.until.is_none_or(|until| event.time() < until)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::ops::ControlFlow;

    use stackhound_etl::EtlFile;
    use stackhound_etl::record::Descriptor;
    use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
    use stackhound_types::{PointerSize, RawTime};

    use super::*;
    use crate::{OpenTrace, Source};

    const PROVIDER: Guid = Guid([9; 16]);

    /// Ten events of one provider: event `n` has id, level and opcode `n`, and keyword bit `n`
    /// (event 0 has none).
    fn trace() -> OpenTrace {
        let session = Session { processors: 2, ..Session::default() };
        let start = session.start.0;
        let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
        for n in 0..10u8 {
            let keyword = if n == 0 { 0 } else { 1 << n };
            let descriptor =
                Descriptor { id: n.into(), version: 0, channel: 0, level: n, opcode: n, task: 0, keyword };
            let header = HeaderSpec::Event {
                provider: PROVIDER,
                descriptor,
                property: 0,
                issuer: Issuer::new(Pid(u32::from(n) / 2), Tid(n.into())),
                activity: Guid::ZERO,
                items: &[],
            };
            let time = RawTime(start + 1 + i64::from(n));
            let record =
                RecordSpec { time, pointer_size: PointerSize::Eight, header, payload: Payload::Bytes(&[]) };
            writer.write(u16::from(n % 2), &record).unwrap();
        }
        let (file, _) = writer.finish().unwrap();
        let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
        OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap()
    }

    #[track_caller]
    fn check(filter: HeaderFilter, expected: &[u16]) {
        let mut ids = Vec::new();
        trace().filter(filter).run(|event| {
            ids.extend(event.record().descriptor().map(|descriptor| descriptor.id));
            ControlFlow::Continue(())
        });
        assert_eq!(ids, expected);
    }

    #[test]
    fn each_field_selects_events() {
        let of = || ProviderFilter::new(PROVIDER);
        let by = |provider| HeaderFilter::new().provider(provider);
        check(HeaderFilter::new().ids([3, 5]), &[3, 5]);
        check(HeaderFilter::new().opcodes([7]), &[7]);
        check(HeaderFilter::new().pids([Pid(1)]), &[2, 3]);
        check(HeaderFilter::new().tids([Tid(4), Tid(8)]), &[4, 8]);
        check(HeaderFilter::new().processors([1]).ids([1, 2, 3]), &[1, 3]);
        check(HeaderFilter::new().hook_ids([0x0301]), &[]);
        check(by(ProviderFilter::new(Guid::ZERO)), &[]);
        check(by(of()).ids([1]), &[1]);
        check(by(of().any(0b10).any(0b100)), &[0, 1, 2]);
        check(by(of().all(0b100)), &[0, 2]);
        check(by(of().level(2)), &[0, 1, 2]);
        check(by(of().any(0b1110).level(2)), &[0, 1, 2]);
        let start = Session::default().start.0;
        check(HeaderFilter::new().from(TraceTime(start + 8)).until(TraceTime(start + 10)), &[7, 8]);
    }
}
