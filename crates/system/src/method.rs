//! JIT-compiled code of runtimes.

use std::fmt;

use hashbrown::HashSet;
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid};

use crate::address_spaces::AddressSpaces;
use crate::newest::{Found, Newest};
use crate::process::{ProcessId, ProcessRef};
use crate::ranges::AddressRange;
use crate::slab::{Id, Slab};
use crate::span::{Evidence, Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};
use crate::validity::ValidityRange;

/// The id of the code of one method in a [`System`]. Indexes start at 0, in the order of first
/// observation. The index of a [forgotten](System::forget_before) method is used again, with a
/// different id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MethodId(pub(crate) Id);

impl MethodId {
    /// An index for columns with one entry for each method. If methods are forgotten, an entry can
    /// still belong to an earlier method with the same index.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// The runtime that compiled a method.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Runtime {
    /// .NET.
    Clr,
    /// A script engine, from the provider that Chakra and V8 share.
    Script,
}

impl Runtime {
    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Clr => "clr",
            Runtime::Script => "script",
        }
    }
}

/// The facts that an event states about the code of a method. Empty texts mean "not stated".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodFacts<'a> {
    /// The process that contains the method.
    pub pid: Pid,
    /// The runtime that compiled the method.
    pub runtime: Runtime,
    /// The id of the method in the runtime.
    pub id: u64,
    /// The id in the runtime of the .NET module that contains the method. 0 for scripts.
    pub module_id: u64,
    /// The start address.
    pub start: Address,
    /// The size in bytes.
    pub size: u64,
    /// The type that contains the method, with its namespace.
    pub namespace: &'a str,
    /// The name of the method.
    pub name: &'a str,
    /// The types of the result and the parameters.
    pub signature: &'a str,
}

#[derive(Debug)]
struct Record {
    process: ProcessId,
    range: AddressRange,
    id: u64,
    module_id: u64,
    runtime: Runtime,
    namespace: Text,
    name: Text,
    signature: Text,
    since: TraceTime,
    evidence: Evidence,
}

/// A process and the address at which a method starts.
pub(crate) type MethodStart = (ProcessId, u64);

impl Record {
    fn start(&self) -> MethodStart {
        (self.process, self.range.first)
    }
}

/// Methods of all processes. Each takes about 90 bytes in addition to its [`RangeHistory`] and its
/// distinct texts.
///
/// [`RangeHistory`]: crate::ranges::RangeHistory
#[derive(Debug, Default)]
pub(crate) struct Methods {
    records: Slab<Record>,
    pub spaces: AddressSpaces,
    newest: Newest,
    /// The processes whose methods a rundown at the end of the trace lists.
    listed_at_end: HashSet<ProcessId, foldhash::fast::RandomState>,
}

impl Methods {
    #[inline]
    pub fn at(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<MethodId> {
        let number = self.spaces.at(process, address, time)?;
        Some(MethodId(self.records.id(number)))
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = MethodId> {
        self.records.iter().map(|(id, _)| MethodId(id))
    }

    /// Forgets methods that are no longer referenced. Returns their number. Must be called after a
    /// process was forgotten.
    pub fn sweep(&mut self) -> u64 {
        let Methods { records, spaces, newest, .. } = self;
        let forgotten = records.sweep(spaces.values());
        *newest = Newest::default();
        for (id, record) in records.iter() {
            newest.add(record.start(), id.slot(), |number| records.get(number).start());
        }
        forgotten
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        let records = self.records.iter_mut();
        records.flat_map(|record| [&mut record.namespace, &mut record.name, &mut record.signature])
    }

    /// Whether exactly this code is known at `start`, with its name, so that another statement
    /// about it adds no facts.
    #[inline]
    pub fn is_known(
        &mut self,
        process: ProcessId,
        time: TraceTime,
        id: u64,
        start: Address,
        size: u64,
    ) -> bool {
        self.starting_at((process, start.0), time).is_some_and(|number| {
            let record = self.records.get(number);
            record.id == id
                && !record.name.is_empty()
                && AddressRange::new(start.0, size) == Some(record.range)
        })
    }

    /// Whether a rundown at the end of the trace lists the methods of a process that exists then. A
    /// process that has none is not in it.
    pub fn were_listed_at_end(&self, process: ProcessId) -> bool {
        let has_methods = || self.spaces.get(process).is_some_and(|space| space.len() > 0);
        self.listed_at_end.contains(&process) || (!self.listed_at_end.is_empty() && !has_methods())
    }

    /// Records that a rundown at the end of the trace lists methods of a process.
    pub fn list_at_end(&mut self, process: ProcessId) {
        self.listed_at_end.insert(process);
    }

    /// Requests the memory that a statement about the code at `start` will need.
    #[inline]
    pub fn expect(&self, process: ProcessId, start: Address) {
        if let Some(number) = self.newest.candidate((process, start.0)) {
            self.records.request(number);
        }
    }

    /// The method that starts at an address at a time, after all changes of that time.
    #[inline]
    fn starting_at(&mut self, at: MethodStart, time: TraceTime) -> Option<u32> {
        let records = &self.records;
        match self.newest.find(at, time, |number| records.get(number).start()) {
            Found::Nothing => None,
            Found::Method(number) => Some(number),
            Found::Unsure => self.search(at, time),
        }
    }

    #[cold]
    fn search(&mut self, at: MethodStart, time: TraceTime) -> Option<u32> {
        let (process, start) = at;
        let space = self.spaces.get(process)?;
        let number = space.held_at(start, time)?;
        if self.records.get(number).range.first != start {
            return None;
        }
        if space.newest_change().is_none_or(|newest| newest <= time) {
            self.newest.keep(at, time, number, |number| self.records.get(number).start());
        }
        Some(number)
    }

    pub fn observe(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        process: ProcessId,
        facts: &MethodFacts<'_>,
    ) {
        let Some(range) = AddressRange::new(facts.start.0, facts.size) else { return };
        let at = (process, range.first);
        let present = self.starting_at(at, time);
        let Methods { records, spaces, newest, .. } = self;
        let space = spaces.get_mut(process);
        let mut text = |text: &str| texts.intern(text);
        let (namespace, name) = (text(facts.namespace), text(facts.name));
        if let Some(number) = present {
            let record = records.get_mut(number);
            let is_nameless = record.name.is_empty();
            let is_same = record.range == range
                && (is_nameless || name.is_empty() || (record.namespace, record.name) == (namespace, name));
            if is_same && is_nameless {
                (record.namespace, record.name) = (namespace, name);
                record.signature = text(facts.signature);
            }
            match phase {
                Phase::End => {
                    newest.change(process, record.range);
                    return space.free(time, record.range);
                }
                _ if is_same => return,
                _ => {}
            }
        }
        let number = records.next();
        let is_old = phase != Phase::Start && present.is_none() && space.set_from_beginning(range, number);
        match phase {
            Phase::End if is_old => {
                newest.change(process, range);
                space.free(time, range);
            }
            // Other code was placed there since, so the facts of this method are unknown.
            Phase::End => return,
            _ if is_old => {}
            _ => {
                newest.change(process, range);
                space.set(time, range, number);
            }
        }
        let is_newest = space.newest_change().is_none_or(|newest| newest <= time);
        let evidence = match phase {
            Phase::Start => Evidence::Observed,
            Phase::RundownAtStart => Evidence::RundownAtStart,
            Phase::RundownAtEnd => Evidence::RundownAtEnd,
            Phase::End => Evidence::Unknown,
        };
        let since = if is_old { Span::BEGINNING } else { time };
        let (runtime, signature) = (facts.runtime, text(facts.signature));
        let &MethodFacts { id, module_id, .. } = facts;
        records.insert(Record {
            process,
            range,
            id,
            module_id,
            runtime,
            namespace,
            name,
            signature,
            since,
            evidence,
        });
        let start_of = |number| records.get(number).start();
        if phase != Phase::End && is_newest {
            newest.keep(at, time, number, start_of);
        } else {
            newest.add(at, number, start_of);
        }
    }
}

/// The code of a method in a [`System`].
#[derive(Clone, Copy, Debug)]
pub struct MethodRef<'s> {
    pub(crate) system: &'s System,
    pub(crate) id: MethodId,
}

impl<'s> MethodRef<'s> {
    fn record(&self) -> &'s Record {
        self.system.methods.records.of(self.id.0).expect("the method was not forgotten")
    }

    fn text(&self, text: Text) -> &'s str {
        self.system.texts.get(text)
    }

    /// The id in the system.
    pub fn id(&self) -> MethodId {
        self.id
    }

    /// The process that contains the method.
    pub fn process(&self) -> ProcessRef<'s> {
        ProcessRef { system: self.system, id: self.record().process }
    }

    /// The runtime that compiled the method.
    pub fn runtime(&self) -> Runtime {
        self.record().runtime
    }

    /// The start address.
    pub fn start(&self) -> Address {
        Address(self.record().range.first)
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        let range = self.record().range;
        (range.last - range.first).saturating_add(1)
    }

    /// The type that contains the method, with its namespace. Empty if not known.
    pub fn namespace(&self) -> &'s str {
        self.text(self.record().namespace)
    }

    /// The name, without the type. Empty if not known.
    pub fn name(&self) -> &'s str {
        self.text(self.record().name)
    }

    /// The types of the result and the parameters. Empty if not known.
    pub fn signature(&self) -> &'s str {
        self.text(self.record().signature)
    }

    /// The path of the file with the intermediate language (`ModuleILPath`) of the module that
    /// contains the method at a time, and the times at which it is the same. Empty if not known.
    /// For code of a native image, the image is a file of its own.
    ///
    /// Costs some look-ups in a tree.
    pub fn il_module(&self, time: TraceTime) -> (&'s str, ValidityRange) {
        let &Record { process, module_id, runtime, .. } = self.record();
        if runtime != Runtime::Clr {
            return ("", ValidityRange::ALWAYS);
        }
        let modules = &self.system.managed_modules;
        let path = modules.path(process, module_id, time).unwrap_or_default();
        (self.text(path), modules.validity(process, module_id, time))
    }

    /// The time from which the code exists; [`Span::BEGINNING`] if it was before the trace.
    pub fn since(&self) -> TraceTime {
        self.record().since
    }

    /// The evidence for the method.
    pub fn evidence(&self) -> Evidence {
        self.record().evidence
    }
}

/// Writes the type and the name, such as `System.String.Concat`, or nothing if they are not known.
impl fmt::Display for MethodRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => f.write_str(self.name()),
            namespace => write!(f, "{namespace}.{}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn phases() -> impl Strategy<Value = Phase> {
        prop_oneof![
            3 => Just(Phase::Start),
            1 => Just(Phase::End),
            1 => Just(Phase::RundownAtStart),
            2 => Just(Phase::RundownAtEnd),
        ]
    }

    proptest! {
        /// The hash of start addresses finds what a search of the ranges finds.
        #[test]
        fn methods_are_found_by_their_start(
            steps in proptest::collection::vec(
                (phases(), 0i64..3, 0i64..8, 0u32..2, 0u64..12, 1u64..5, 0usize..3),
                0..120,
            ),
            forget_at in 0usize..120,
        ) {
            // Some ranges are in one granule, others in many.
            const STEP: u64 = 300;
            let (mut texts, mut methods) = (Texts::default(), Methods::default());
            let mut now = 0;
            for (number, (phase, wait, late, process, start, size, name)) in steps.into_iter().enumerate() {
                now += wait;
                let time = TraceTime((now - if late == 0 { 3 } else { 0 }).max(0));
                let facts = MethodFacts {
                    pid: Pid(4),
                    runtime: Runtime::Clr,
                    id: start,
                    module_id: 0,
                    start: Address(start * STEP),
                    size: if size == 4 { 100 * STEP } else { size * STEP },
                    namespace: "",
                    name: ["", "a", "b"][name],
                    signature: "",
                };
                let process = ProcessId(Id::first(process));
                methods.observe(&mut texts, phase, time, process, &facts);
                if number == forget_at {
                    methods.spaces.forget_process(1);
                    methods.spaces.forget_before(TraceTime(now));
                    methods.sweep();
                }
                for (process, start) in [0, 1].into_iter().flat_map(|process| (0..12).map(move |n| (process, n))) {
                    let process = ProcessId(Id::first(process));
                    let start = start * STEP;
                    for time in [time, TraceTime(now), TraceTime(now + 1)] {
                        let held = methods.spaces.get(process).and_then(|space| space.held_at(start, time));
                        let expected = held.filter(|&number| methods.records.get(number).range.first == start);
                        prop_assert_eq!(methods.starting_at((process, start), time), expected);
                    }
                }
            }
        }
    }
}
