//! Processes, threads, modules, and the memory of processes.

use std::collections::HashSet;
use std::marker::PhantomData;

use rustc_hash::FxBuildHasher;
use stackhound_etl::Clock;
use stackhound_facts::{FactId, FactSet, FactType, FactValue, ProcessFact, ThreadFact};
use stackhound_frames::identity;
use stackhound_pipeline::{Pipeline, ProcessView, TraceState};
use stackhound_system::{Evidence, ModuleRef, ProcessId, ProcessRef, Span, System, ThreadRef};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, FileTime, ModuleIdentity, RawTime};

use super::{Pending, TableId};
use crate::id::IdParts;
use crate::layout::{Column, NumberColumn, Storage, Table, TextColumn, Type};
use crate::rows::Rows;

/// Id of a module: its name, and the time stamp and the size in the header of its image.
pub(super) fn module_id(identity: &ModuleIdentity) -> u64 {
    let parts = IdParts::new("module").text(&identity.name.to_lowercase());
    let parts = parts.optional(identity.image.map(|image| image.time_date_stamp.into()));
    parts.optional(identity.image.map(|image| image.size.into())).finish()
}

/// The ids of processes.
#[derive(Debug)]
pub(crate) struct ProcessUids {
    trace: u64,
    machine: u64,
    /// By index of the process.
    known: Vec<Option<(ProcessId, u64)>>,
}

impl ProcessUids {
    /// For processes of a trace of a machine.
    pub fn new(trace: u64, host: &str) -> ProcessUids {
        let machine = IdParts::new("machine").text(&host.to_lowercase()).finish();
        ProcessUids { trace, machine, known: Vec::new() }
    }

    /// The id of a process: that of the machine, the process id and the start time. If the start
    /// time is not known, the ids of the trace and of the process in it take the place of both.
    pub fn of(&mut self, state: &TraceState, process: ProcessRef<'_>) -> u64 {
        let (id, index) = (process.id(), process.id().index());
        if let Some(&Some((known, uid))) = self.known.get(index)
            && known == id
        {
            return uid;
        }
        let pid = u64::from(process.pid().0);
        let parts = IdParts::new("process");
        let uid = match state.start_time_of(process) {
            Ok(start) => parts.number(self.machine).number(pid).number(start.0.cast_unsigned()),
            Err(_) => parts.number(self.trace).number(pid).number(index as u64),
        };
        let uid = uid.finish();
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        self.known[index] = Some((id, uid));
        uid
    }
}

fn utc(clock: &Clock, time: TraceTime) -> Option<FileTime> {
    (time != Span::BEGINNING && time != Span::OPEN).then(|| clock.to_file_time(RawTime(time.0)))
}

fn evidence(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Observed => "observed",
        Evidence::RundownAtStart => "rundown-at-start",
        Evidence::RundownAtEnd => "rundown-at-end",
        Evidence::Unknown => "unknown",
    }
}

columns! {
    SpanColumns {
        /// Its start; null if that was before the trace.
        start_time: number optional Time,
        /// Its end; null if none is known.
        end_time: number optional Time,
        /// What states the start: `observed`, `rundown-at-start`, `rundown-at-end` or `unknown`.
        start_evidence: text required,
        /// What states the end, as for the start.
        end_evidence: text required,
    }
}

impl SpanColumns {
    fn set(self, rows: &mut Rows, span: Span, clock: &Clock) {
        utc(clock, span.from).iter().for_each(|&time| rows.time(self.start_time, time));
        utc(clock, span.to).iter().for_each(|&time| rows.time(self.end_time, time));
        rows.text(self.start_evidence, evidence(span.start));
        rows.text(self.end_evidence, evidence(span.end));
    }
}

columns! {
    pub(super) ProcessColumns {
        /// Id of the process: equal in all traces of a machine that state the same start time.
        process_uid: number required UInt64 LookUp,
        /// Process id.
        pid: number required UInt32,
        /// The process that it inherits from, in `processes`.
        parent_uid: number optional UInt64,
        facts: group ProcessFactColumns,
        /// The image of the program, in `modules`.
        module_id: number optional UInt64,
        /// Exit status.
        exit_status: number optional UInt32,
        span: group SpanColumns,
    }
}

type ProcessFactColumns = FactColumns<ProcessFact>;
type ThreadFactColumns = FactColumns<ThreadFact>;

/// The columns of facts: one for each row of the catalogue.
#[derive(Clone, Copy, Debug)]
struct FactColumns<F> {
    /// The index of the first column.
    first: usize,
    facts: PhantomData<F>,
}

impl<F: FactId> FactColumns<F> {
    fn of(t: &mut Table) -> FactColumns<F> {
        let first = t.columns().len();
        for fact in F::ALL {
            let row = fact.row();
            let r#type = match row.r#type {
                FactType::Text => Type::Text,
                FactType::Number => Type::UInt32,
                FactType::Hex => Type::UInt64,
                FactType::Time => Type::Time,
            };
            let column = Column::optional(row.column, r#type, row.doc);
            let column = if row.path == "path" { column.stored(Storage::LookUp) } else { column };
            if r#type == Type::Text {
                t.text(column);
            } else {
                t.number(column);
            }
        }
        FactColumns { first, facts: PhantomData }
    }

    fn set(self, rows: &mut Rows, facts: &FactSet<'_, F>) {
        for (fact, value) in facts.known() {
            let index = self.first + fact.index();
            match value {
                FactValue::Number(number) => rows.number(NumberColumn(index), *number),
                FactValue::Hex(number) => rows.number(NumberColumn(index), *number),
                FactValue::Time(time) => rows.time(NumberColumn(index), *time),
                FactValue::Text(text) => rows.text(TextColumn(index), text),
                text => rows.text(TextColumn(index), &text.to_string()),
            }
        }
    }
}

columns! {
    pub(super) ThreadColumns {
        /// The process, in `processes`.
        process_uid: number required UInt64 LookUp,
        /// Process id.
        pid: number required UInt32,
        /// Thread id.
        tid: number required UInt32,
        /// The last name that a program assigned to it.
        name: text optional,
        /// The module that contains the function that the thread was created for, in `modules`.
        start_module_id: number optional UInt64,
        facts: group ThreadFactColumns,
        span: group SpanColumns,
    }
}

columns! {
    pub(super) ModuleColumns {
        /// Id of the module: equal for equal names, time stamps and sizes, on every machine.
        module_id: number required UInt64,
        /// File name.
        name: text required,
        /// Path of the first load in the trace; `regions` has the paths of all loads.
        path: text required,
        /// Time stamp in its header.
        time_date_stamp: number optional UInt32,
        /// Size in memory in bytes.
        size: number optional UInt64,
        /// Checksum in its header.
        checksum: number optional UInt32,
        /// File name of its PDB.
        pdb: text optional,
        /// GUID of its PDB.
        pdb_guid: text optional,
        /// Age of its PDB.
        pdb_age: number optional UInt32,
        /// Company, from the version resource.
        company: text optional,
        /// Product, from the version resource.
        product: text optional,
        /// Description, from the version resource.
        description: text optional,
        /// Version, from the version resource.
        file_version: text optional,
        /// Original file name, from the version resource.
        original_file_name: text optional,
    }
}

columns! {
    pub(super) RegionColumns {
        /// The process, in `processes`; null for the kernel.
        process_uid: number optional UInt64,
        /// Process id; null for the kernel.
        pid: number optional UInt32,
        /// Start address.
        base: number required UInt64,
        /// Size in bytes.
        size: number required UInt64,
        /// `image`, `mapped`, or `private`.
        kind: text required,
        /// Protection when it was mapped, such as `R-X`.
        protection: text optional,
        /// The image, in `modules`.
        module_id: number optional UInt64,
        /// Path of the file.
        path: text optional LookUp,
        span: group SpanColumns,
    }
}

/// The rows of the state of a trace at the end of a run.
pub(crate) fn state_rows(
    pipeline: &Pipeline<'_>,
    uids: &mut ProcessUids,
    trace: u64,
) -> [(TableId, Rows); 4] {
    let clock = pipeline.clock();
    let state = pipeline.trace_state();
    let system = state.system();
    let mut processes = Pending::new(TableId::Processes, ProcessColumns::of, trace);
    for view in pipeline.processes() {
        process(&mut processes, &view, state, uids, &clock);
    }
    let mut threads = Pending::new(TableId::Threads, ThreadColumns::of, trace);
    for thread in system.threads() {
        add_thread(&mut threads, state, thread, uids, &clock);
    }
    let mut modules = Pending::new(TableId::Modules, ModuleColumns::of, trace);
    let mut regions = Regions {
        pending: Pending::new(TableId::Regions, RegionColumns::of, trace),
        state,
        uids,
        clock: &clock,
    };
    let mut known = HashSet::<u64, FxBuildHasher>::default();
    for module in system.modules() {
        let id = module_id(&identity(module));
        if known.insert(id) {
            add_module(&mut modules, system, module, id);
        }
        regions.image(module, id);
    }
    system.processes().for_each(|process| regions.of_process(process));
    [
        (TableId::Processes, processes.rows),
        (TableId::Threads, threads.rows),
        (TableId::Modules, modules.rows),
        (TableId::Regions, regions.pending.rows),
    ]
}

fn process(
    pending: &mut Pending<ProcessColumns>,
    view: &ProcessView<'_>,
    state: &TraceState,
    uids: &mut ProcessUids,
    clock: &Clock,
) {
    let Pending { rows, columns: c, .. } = pending;
    let process = view.process();
    rows.begin();
    rows.number(c.process_uid, uids.of(state, process));
    rows.number(c.pid, process.pid().0);
    if let Ok(parent) = view.parent() {
        rows.number(c.parent_uid, uids.of(state, parent.process()));
    }
    c.facts.set(rows, &view.facts());
    if let Ok(program) = view.program() {
        rows.number(c.module_id, module_id(&identity(program)));
    }
    process.exit_status().iter().for_each(|&status| rows.number(c.exit_status, status));
    c.span.set(rows, process.span(), clock);
}

fn add_thread(
    pending: &mut Pending<ThreadColumns>,
    state: &TraceState,
    thread: ThreadRef<'_>,
    uids: &mut ProcessUids,
    clock: &Clock,
) {
    let Pending { rows, columns: c, .. } = pending;
    rows.begin();
    rows.number(c.process_uid, uids.of(state, thread.process()));
    rows.number(c.pid, thread.pid().0);
    rows.number(c.tid, thread.tid().0);
    let name = thread.name_at(thread.span().to);
    if !name.is_empty() {
        rows.text(c.name, name);
    }
    c.span.set(rows, thread.span(), clock);
    let time = thread.thread_events().map_or(thread.span().from, |(first, _)| first);
    let Ok(start) = state.thread_start(thread, time) else { return };
    c.facts.set(rows, &start.facts());
    if let Ok((module, _)) = start.module {
        rows.number(c.start_module_id, module_id(&identity(module)));
    }
}

fn add_module(pending: &mut Pending<ModuleColumns>, system: &System, module: ModuleRef<'_>, id: u64) {
    let Pending { rows, columns: c, .. } = pending;
    rows.begin();
    rows.number(c.module_id, id);
    rows.text(c.name, module.file_name());
    rows.text(c.path, &system.dos_path(module.path()));
    module.time_date_stamp().iter().for_each(|&stamp| rows.number(c.time_date_stamp, stamp));
    rows.number(c.size, module.size());
    module.checksum().iter().for_each(|&sum| rows.number(c.checksum, sum));
    if let Some(pdb) = module.pdb() {
        rows.text(c.pdb, pdb.file_name());
        rows.text(c.pdb_guid, &pdb.guid.to_string());
        rows.number(c.pdb_age, pdb.age);
    }
    let Some(version) = module.version() else { return };
    let texts = [
        (c.company, version.company),
        (c.product, version.product),
        (c.description, version.description),
        (c.file_version, version.file_version),
        (c.original_file_name, version.original_file_name),
    ];
    for (column, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        rows.text(column, text);
    }
}

/// The regions of processes.
struct Regions<'a> {
    pending: Pending<RegionColumns>,
    state: &'a TraceState,
    uids: &'a mut ProcessUids,
    clock: &'a Clock,
}

impl Regions<'_> {
    fn begin(
        &mut self,
        process: Option<ProcessRef<'_>>,
        (base, size): (Address, u64),
        kind: &str,
        span: Span,
    ) {
        let Pending { rows, columns: c, .. } = &mut self.pending;
        rows.begin();
        if let Some(process) = process {
            rows.number(c.process_uid, self.uids.of(self.state, process));
            rows.number(c.pid, process.pid().0);
        }
        rows.number(c.base, base.0);
        rows.number(c.size, size);
        rows.text(c.kind, kind);
        c.span.set(rows, span, self.clock);
    }

    /// Adds the memory that an image was loaded to.
    fn image(&mut self, module: ModuleRef<'_>, id: u64) {
        self.begin(module.process(), (module.base(), module.size()), "image", module.span());
        let Pending { rows, columns: c, .. } = &mut self.pending;
        rows.number(c.module_id, id);
        rows.text(c.path, &self.state.system().dos_path(module.path()));
    }

    /// Adds the sections and the private memory of a process.
    fn of_process(&mut self, process: ProcessRef<'_>) {
        let system = self.state.system();
        for view in system.views_of(process.id()) {
            self.begin(Some(process), (view.base, view.size), "mapped", since(view.since, view.evidence));
            let Pending { rows, columns: c, .. } = &mut self.pending;
            rows.text(c.protection, view.protection.letters());
            let time = if view.since == Span::BEGINNING { process.span().to } else { view.since };
            if let Some(name) = system.file_name(Some(view.file), None, time) {
                rows.text(c.path, &system.dos_path(name));
            }
        }
        for call in system.allocations_of(process.id()) {
            let is_old = call.since == Span::BEGINNING;
            let evidence = if is_old { Evidence::Unknown } else { Evidence::Observed };
            self.begin(Some(process), (call.base, call.size), "private", since(call.since, evidence));
        }
    }
}

/// The lifetime of memory, of which the trace states the start only: parts of it can have been freed.
fn since(from: TraceTime, start: Evidence) -> Span {
    Span { from, to: Span::OPEN, start, end: Evidence::Unknown }
}
