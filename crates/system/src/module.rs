//! Modules of processes and of the kernel.

use hashbrown::HashMap;
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Guid, PdbIdentity, Pid, file_name};

use crate::image_version::ImageVersion;
use crate::process::{ProcessId, ProcessRef};
use crate::ranges::{AddressRange, RangeHistory, ValidityId};
use crate::slab::{Id, Slab};
use crate::span::{Evidence, Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};
use crate::validity::ValidityRange;

/// The id of a module in a [`System`]: an image at a base address in one address space, from its
/// load to its unload. Indexes start at 0, in the order of first observation. The index of a
/// [forgotten](System::forget_before) module is used again, with a different id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub(crate) Id);

impl ModuleId {
    /// An index for columns with one entry for each module. If modules are forgotten, an entry can
    /// still belong to an earlier module with the same index.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// The facts that an event states about a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleFacts<'a> {
    /// The process id as stated by the event. Kernel modules have 0, in rundowns also 4.
    pub pid: Pid,
    /// The base address.
    pub base: Address,
    /// The size in memory, in bytes. The image format has 32 bits for it; higher values are cut.
    pub size: u64,
    /// From the header of the image. `None` in old traces, and if Windows did not have the header
    /// in memory.
    pub time_date_stamp: Option<u32>,
    /// From the header of the image. `None` in old traces, and for images without a checksum.
    pub checksum: Option<u32>,
    /// The NT path. May be empty.
    pub path: &'a str,
}

/// As [`PdbIdentity`], with an interned name.
type Pdb = (Guid, u32, Text);

/// The address space of a module: that of a process, or the kernel address space.
pub(crate) type Owner = Option<ProcessId>;

#[derive(Debug)]
struct Record {
    owner: Owner,
    range: AddressRange,
    path: Text,
    time_date_stamp: Option<u32>,
    checksum: Option<u32>,
    span: Span,
    signing_level: Option<u8>,
    /// An index into `pdbs`.
    pdb: Option<u32>,
    statements: Statements,
}

/// The times of the statements about a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statements {
    pub first: TraceTime,
    pub last: TraceTime,
    /// The last load while it was known to be loaded: it was unloaded before, which is not recorded.
    pub reload: Option<TraceTime>,
}

/// Maximum number of surprises of an address space. Beyond that, the newest are merged: each costs a
/// search of the unloads.
const SURPRISES_MAX: usize = 64;

/// The modules of one address space.
#[derive(Debug, Default)]
pub(crate) struct ModuleSpace {
    ranges: RangeHistory,
    /// A rundown at the start of the trace listed a module of this address space.
    pub was_listed_at_start: bool,
    /// The rundown at the end of the trace listed a module of this address space.
    pub was_listed_at_end: bool,
    /// The number of known modules that have not been unloaded.
    loaded: u32,
    /// The base addresses and times of unloads.
    unloads: Vec<(u64, TraceTime)>,
    /// The rundowns and unloads of modules that were not known, at an address where another one had
    /// been until an earlier time: they were loaded in between.
    surprises: Vec<(TraceTime, TraceTime)>,
}

impl ModuleSpace {
    /// Records that a module is stated that was not known, at an address where another one had been.
    fn surprise(&mut self, base: u64, last: Option<TraceTime>, time: TraceTime) {
        if self.surprises.len() >= SURPRISES_MAX
            && let Some(merged) = self.surprises.last_mut()
        {
            *merged = (Span::BEGINNING, merged.1.max(time));
            return;
        }
        let unload = || self.unloads.iter().rev().find(|unload| unload.0 == base).map(|unload| unload.1);
        let since = last.or_else(unload).unwrap_or(Span::BEGINNING);
        self.surprises.push((since, time));
    }

    /// The time at which the last module was unloaded; `None` if some are not.
    pub fn all_unloaded_at(&self) -> Option<TraceTime> {
        let times = self.unloads.iter().map(|unload| unload.1);
        times.max().filter(|_| self.loaded == 0)
    }

    /// For modules that are stated at a time or later, and that can have been loaded then: the times
    /// since which they can have been loaded.
    pub fn loaded_since(&self, time: TraceTime) -> impl Iterator<Item = TraceTime> {
        let surprises = self.surprises.iter().filter(move |(since, stated)| *since < time && time <= *stated);
        surprises.map(|(since, _)| *since)
    }
}

/// All modules. Each takes about 130 bytes in addition to its [`RangeHistory`] and its distinct
/// texts.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    records: Slab<Record>,
    kernel: ModuleSpace,
    /// Indexed by process.
    spaces: Vec<ModuleSpace>,
    pdbs: Slab<Pdb>,
    pdb_numbers: HashMap<Pdb, u32, foldhash::fast::RandomState>,
    /// PDBs of modules that were not known when their PDB was recorded.
    awaiting: HashMap<(Owner, u64, TraceTime), u32, foldhash::fast::RandomState>,
    /// A load was observed, so loads are recorded.
    pub loads_are_recorded: bool,
    /// Unloads of unknown modules.
    pub unresolved: u64,
    /// PDBs for which no module was found before they were forgotten.
    unclaimed: u64,
}

impl Modules {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ModuleId> {
        self.records.iter().map(|(id, _)| ModuleId(id))
    }

    /// Forgets all modules of a process, because it has ended or because a limit was exceeded.
    pub fn forget_process(&mut self, index: u32) {
        if let Some(space) = self.spaces.get_mut(index as usize) {
            space.ranges.clear();
            let ranges = std::mem::take(&mut space.ranges);
            *space = ModuleSpace { ranges, ..ModuleSpace::default() };
        }
    }

    /// Forgets all state that no query about this time or a later one needs.
    pub fn forget_before(&mut self, time: TraceTime) {
        for space in self.spaces.iter_mut().chain([&mut self.kernel]) {
            space.ranges.forget_before(time);
            space.unloads.retain(|unload| unload.1 >= time);
        }
        let before = self.awaiting.len();
        self.awaiting.retain(|&(_, _, at), _| at >= time);
        self.unclaimed += (before - self.awaiting.len()) as u64;
    }

    /// The number of stored changes of each process.
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.spaces.iter().map(|space| space.ranges.len())
    }

    /// Forgets modules that are no longer referenced. Returns their number.
    pub fn sweep(&mut self) -> u64 {
        let spaces = self.spaces.iter().chain([&self.kernel]);
        let forgotten = self.records.sweep(spaces.flat_map(|space| space.ranges.values()));
        let pdbs = self.records.iter().filter_map(|(_, record)| record.pdb);
        self.pdbs.sweep(pdbs.chain(self.awaiting.values().copied()));
        self.number_pdbs();
        forgotten
    }

    fn number_pdbs(&mut self) {
        self.pdb_numbers = self.pdbs.iter().map(|(id, &pdb)| (pdb, id.slot())).collect();
    }

    /// Calls `change` for all referenced texts.
    pub fn change_texts(&mut self, change: &mut dyn FnMut(&mut Text)) {
        self.records.iter_mut().for_each(|record| change(&mut record.path));
        self.pdbs.iter_mut().for_each(|(_, _, name)| change(name));
        self.number_pdbs();
    }

    pub fn space(&self, owner: Owner) -> Option<&ModuleSpace> {
        match owner {
            None => Some(&self.kernel),
            Some(process) => self.spaces.get(process.index()),
        }
    }

    fn space_mut(&mut self, owner: Owner) -> &mut ModuleSpace {
        let Some(process) = owner else { return &mut self.kernel };
        if self.spaces.len() <= process.index() {
            self.spaces.resize_with(process.index() + 1, ModuleSpace::default);
        }
        &mut self.spaces[process.index()]
    }

    /// The module at an address, and the offset of the address in it.
    #[inline]
    pub fn at(&self, owner: Owner, address: Address, time: TraceTime) -> Option<(ModuleId, u64)> {
        let number = self.space(owner)?.ranges.at(address.0, time)?;
        Some((ModuleId(self.records.id(number)), address.0 - self.records.get(number).range.first))
    }

    pub fn validity_id(&self, owner: Owner, time: TraceTime) -> ValidityId {
        self.space(owner).map_or_else(ValidityId::default, |space| space.ranges.validity_id(time))
    }

    pub fn validity(&self, owner: Owner, time: TraceTime) -> ValidityRange {
        self.space(owner).map_or(ValidityRange::ALWAYS, |space| space.ranges.validity(time))
    }

    /// All modules that a process ever had, each once. `None` if more than `max` changes are
    /// stored.
    pub fn of_process(&self, process: ProcessId, max: usize) -> Option<impl Iterator<Item = ModuleId>> {
        let ranges = self.space(Some(process)).map(|space| &space.ranges);
        if ranges.is_some_and(|ranges| ranges.len() > max) {
            return None;
        }
        let mut numbers: Vec<u32> = ranges.into_iter().flat_map(RangeHistory::values).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Some(numbers.into_iter().map(|number| ModuleId(self.records.id(number))))
    }

    /// Records the statement of an event about a module. `owner_from` is the start of its address
    /// space.
    pub fn observe(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        (owner, owner_from): (Owner, TraceTime),
        facts: &ModuleFacts<'_>,
    ) -> Option<ModuleId> {
        let size = facts.size.clamp(1, u32::MAX.into());
        let range = AddressRange::new(facts.base.0, size)?;
        self.loads_are_recorded |= phase == Phase::Start;
        let space = self.space_mut(owner);
        space.was_listed_at_start |= phase == Phase::RundownAtStart;
        space.was_listed_at_end |= phase == Phase::RundownAtEnd;
        let present = space.ranges.held_at(range.first, time);
        let present = present.filter(|&number| self.records.get(number).range.first == range.first);
        let is_same = present.is_none_or(|number| self.is_same(texts, number, range, facts));
        let number = match present {
            Some(number) if phase == Phase::End => {
                self.end(number, time, Evidence::Observed);
                let range = self.records.get(number).range;
                self.space_mut(owner).ranges.free(time, range);
                number
            }
            Some(number) if is_same => {
                let span = &mut self.records.get_mut(number).span;
                if phase == Phase::RundownAtEnd && span.end == Evidence::Unknown {
                    span.end = Evidence::RundownAtEnd;
                }
                number
            }
            present => {
                let last = present.map(|old| self.records.get(old).statements.last);
                if let Some(old) = present {
                    self.end(old, time, Evidence::Unknown);
                }
                self.add(phase, time, (owner, owner_from), range, last)?
            }
        };
        // The unload of another image, which replaced the known one.
        if phase == Phase::End && !is_same {
            let last = self.records.get(number).statements.last;
            self.space_mut(owner).surprise(range.first, Some(last), time);
        }
        if phase == Phase::End {
            self.space_mut(owner).unloads.push((range.first, time));
        }
        let record = self.records.get_mut(number);
        let Statements { last, reload, .. } = &mut record.statements;
        if phase == Phase::Start && time > *last {
            *reload = Some(time);
        }
        if phase != Phase::End || is_same {
            *last = time.max(*last);
        }
        record.time_date_stamp = record.time_date_stamp.or(facts.time_date_stamp);
        record.checksum = record.checksum.or(facts.checksum);
        // A load can omit the device that later events state.
        let (known, stated) = (texts.get(record.path), facts.path);
        if stated.len() > known.len() && ends_with_ignore_case(stated, known) {
            record.path = texts.intern(stated);
        }
        if !self.awaiting.is_empty()
            && let Some(pdb) = self.awaiting.remove(&(owner, range.first, time))
        {
            self.records.get_mut(number).pdb.get_or_insert(pdb);
        }
        Some(ModuleId(self.records.id(number)))
    }

    /// Whether the statement about a base address matches the module at that address.
    fn is_same(&self, texts: &Texts, number: u32, range: AddressRange, facts: &ModuleFacts<'_>) -> bool {
        let record = self.records.get(number);
        let agree = |known: Option<u32>, stated: Option<u32>| known.zip(stated).map(|(a, b)| a == b);
        let same_image = match agree(record.time_date_stamp, facts.time_date_stamp) {
            Some(agree) => agree,
            None => file_name(texts.get(record.path)).eq_ignore_ascii_case(file_name(facts.path)),
        };
        record.range == range && same_image && agree(record.checksum, facts.checksum) != Some(false)
    }

    fn end(&mut self, number: u32, time: TraceTime, end: Evidence) {
        let Record { owner, span, .. } = self.records.get_mut(number);
        let was_loaded = span.to == Span::OPEN;
        (span.to, span.end) = (time.max(span.from), end);
        let owner = *owner;
        self.space_mut(owner).loaded -= u32::from(was_loaded);
    }

    /// Adds a module that was not known. It exists from the beginning unless it was just loaded or
    /// its range was used by another module. `replaced` is the time of the last statement about the
    /// module that is known at its base.
    fn add(
        &mut self,
        phase: Phase,
        time: TraceTime,
        (owner, owner_from): (Owner, TraceTime),
        range: AddressRange,
        replaced: Option<TraceTime>,
    ) -> Option<u32> {
        let number = self.records.next();
        let ranges = &mut self.space_mut(owner).ranges;
        let is_old = phase != Phase::Start && replaced.is_none() && ranges.set_from_beginning(range, number);
        if phase != Phase::Start && !is_old {
            self.space_mut(owner).surprise(range.first, replaced, time);
        }
        let ranges = &mut self.space_mut(owner).ranges;
        match phase {
            Phase::End if is_old => ranges.free(time, range),
            Phase::End => {
                self.unresolved += 1;
                return None;
            }
            _ if is_old => {}
            _ => ranges.set(time, range, number),
        }
        let start = match phase {
            Phase::Start => Evidence::Observed,
            Phase::RundownAtStart => Evidence::RundownAtStart,
            Phase::RundownAtEnd => Evidence::RundownAtEnd,
            Phase::End => Evidence::Unknown,
        };
        let (to, end) = match phase {
            Phase::End => (time, Evidence::Observed),
            Phase::RundownAtEnd => (Span::OPEN, Evidence::RundownAtEnd),
            _ => (Span::OPEN, Evidence::Unknown),
        };
        self.space_mut(owner).loaded += u32::from(to == Span::OPEN);
        let from = if is_old { owner_from } else { time };
        let span = Span { from, to, start, end };
        let (path, time_date_stamp, checksum) = (Text::EMPTY, None, None);
        let (signing_level, pdb) = (None, None);
        self.records.insert(Record {
            owner,
            range,
            path,
            time_date_stamp,
            checksum,
            span,
            signing_level,
            pdb,
            statements: Statements { first: time, last: time, reload: None },
        });
        Some(number)
    }

    /// Records the signing level of a module. The first known one counts.
    pub fn set_signing_level(&mut self, module: ModuleId, level: u8) {
        self.records.get_mut(module.0.slot()).signing_level.get_or_insert(level);
    }

    /// Records the PDB of the module at `base`. The event of the module has the same time and may
    /// be recorded later.
    pub fn identify(
        &mut self,
        texts: &mut Texts,
        time: TraceTime,
        owner: Owner,
        base: Address,
        pdb: &PdbIdentity<&str>,
    ) {
        let present = self.at(owner, base, time).filter(|&(_, rva)| rva == 0);
        let known = present.and_then(|(module, _)| self.records.get(module.0.slot()).pdb);
        if let Some(&(guid, age, name)) = known.map(|number| self.pdbs.get(number))
            && (guid, age, texts.get(name)) == (pdb.guid, pdb.age, pdb.name)
        {
            return;
        }
        let pdb = (pdb.guid, pdb.age, texts.intern(pdb.name));
        let number = *self.pdb_numbers.entry(pdb).or_insert_with(|| self.pdbs.insert(pdb).slot());
        let known = present.map(|(module, _)| &mut self.records.get_mut(module.0.slot()).pdb);
        match known {
            Some(known) if known.is_none_or(|known| known == number) => *known = Some(number),
            _ => {
                self.awaiting.insert((owner, base.0, time), number);
            }
        }
    }

    /// PDBs for which no module was found.
    pub fn unclaimed_pdbs(&self) -> u64 {
        self.unclaimed + self.awaiting.len() as u64
    }
}

fn ends_with_ignore_case(text: &str, end: &str) -> bool {
    let tail = text.len().checked_sub(end.len()).and_then(|at| text.get(at..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

/// A module in a [`System`].
#[derive(Clone, Copy, Debug)]
pub struct ModuleRef<'s> {
    pub(crate) system: &'s System,
    pub(crate) id: ModuleId,
}

impl<'s> ModuleRef<'s> {
    fn record(&self) -> &'s Record {
        self.system.modules.records.of(self.id.0).expect("the module was not forgotten")
    }

    /// The id in the system.
    pub fn id(&self) -> ModuleId {
        self.id
    }

    /// The process that the module is loaded in; `None` for kernel modules.
    pub fn process(&self) -> Option<ProcessRef<'s>> {
        self.record().owner.map(|id| ProcessRef { system: self.system, id })
    }

    /// The base address.
    pub fn base(&self) -> Address {
        Address(self.record().range.first)
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        let range = self.record().range;
        range.last - range.first + 1
    }

    /// The NT path, with the device if any event stated it. See [`System::dos_path`].
    pub fn path(&self) -> &'s str {
        self.system.texts.get(self.record().path)
    }

    /// The time of the first statement about the module.
    pub fn stated(&self) -> TraceTime {
        self.record().statements.first
    }

    /// The times of the statements about the module.
    pub(crate) fn statements(&self) -> Statements {
        self.record().statements
    }

    /// The last component of the path.
    pub fn file_name(&self) -> &'s str {
        file_name(self.path())
    }

    /// From the header of the image: a time, or a hash in reproducible builds. With the size, it
    /// identifies the image on a symbol server. `None` if no event states it; many rundowns do not.
    pub fn time_date_stamp(&self) -> Option<u32> {
        self.record().time_date_stamp
    }

    /// From the header of the image.
    pub fn checksum(&self) -> Option<u32> {
        self.record().checksum
    }

    /// The signing level that the kernel verified when it loaded the image, as the event states it:
    /// the level in the low four bits, from 1 (unsigned) to 15. `None` if the kernel did not check
    /// the image, and in old traces.
    pub fn signing_level(&self) -> Option<u8> {
        self.record().signing_level
    }

    /// The version resource of the image. It is recorded only in traces that were merged on the
    /// traced machine.
    pub fn version(&self) -> Option<ImageVersion<'s>> {
        let size = u32::try_from(self.size()).ok()?;
        self.system.image_versions.find(&self.system.texts, self.time_date_stamp()?, size)
    }

    /// The PDB of the module. It is recorded only in traces that were merged on the traced machine.
    pub fn pdb(&self) -> Option<PdbIdentity<&'s str>> {
        let &(guid, age, name) = self.system.modules.pdbs.get(self.record().pdb?);
        Some(PdbIdentity { guid, age, name: self.system.texts.get(name) })
    }

    /// The time during which the module was loaded. It ends no later than its process.
    pub fn span(&self) -> Span {
        let mut span = self.record().span;
        if let Some(process) = self.process().map(|process| process.span())
            && process.to < span.to
        {
            (span.to, span.end) = (process.to, process.end);
        }
        span
    }
}
