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

/// The columns of a lifetime.
#[derive(Clone, Copy, Debug)]
struct SpanColumns {
    start_time: NumberColumn,
    end_time: NumberColumn,
    start_evidence: TextColumn,
    end_evidence: TextColumn,
}

impl SpanColumns {
    fn of(t: &mut Table) -> SpanColumns {
        let time = |name, doc| Column::optional(name, Type::Time, doc);
        let text = |name, doc| Column::required(name, Type::Text, doc);
        SpanColumns {
            start_time: t.number(time("start_time", "Its start; null if that was before the trace.")),
            end_time: t.number(time("end_time", "Its end; null if none is known.")),
            start_evidence: t.text(text(
                "start_evidence",
                "What states the start: `observed`, `rundown-at-start`, `rundown-at-end` or `unknown`.",
            )),
            end_evidence: t.text(text("end_evidence", "What states the end, as for the start.")),
        }
    }

    fn set(self, rows: &mut Rows, span: Span, clock: &Clock) {
        utc(clock, span.from).iter().for_each(|&time| rows.time(self.start_time, time));
        utc(clock, span.to).iter().for_each(|&time| rows.time(self.end_time, time));
        rows.text(self.start_evidence, evidence(span.start));
        rows.text(self.end_evidence, evidence(span.end));
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessColumns {
    process_uid: NumberColumn,
    pid: NumberColumn,
    parent_uid: NumberColumn,
    facts: FactColumns<ProcessFact>,
    module_id: NumberColumn,
    exit_status: NumberColumn,
    span: SpanColumns,
}

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

fn process_uid(doc: &'static str) -> Column {
    Column::required("process_uid", Type::UInt64, doc).stored(Storage::LookUp)
}

pub(super) fn processes_table() -> (Table, ProcessColumns) {
    let mut t = Table::new(TableId::Processes.name(), "A process of a trace.");
    let number = |name, r#type, doc| Column::optional(name, r#type, doc);
    let columns = ProcessColumns {
        process_uid: t.number(process_uid(
            "Id of the process: equal in all traces of a machine that state the same start time.",
        )),
        pid: t.number(Column::required("pid", Type::UInt32, "Process id.")),
        parent_uid: t.number(number(
            "parent_uid",
            Type::UInt64,
            "The process that it inherits from, in `processes`.",
        )),
        facts: FactColumns::of(&mut t),
        module_id: t.number(number("module_id", Type::UInt64, "The image of the program, in `modules`.")),
        exit_status: t.number(number("exit_status", Type::UInt32, "Exit status.")),
        span: SpanColumns::of(&mut t),
    };
    (t, columns)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadColumns {
    process_uid: NumberColumn,
    pid: NumberColumn,
    tid: NumberColumn,
    name: TextColumn,
    start_module_id: NumberColumn,
    facts: FactColumns<ThreadFact>,
    span: SpanColumns,
}

pub(super) fn threads_table() -> (Table, ThreadColumns) {
    let mut t = Table::new(TableId::Threads.name(), "A thread of a trace.");
    let number = |name, doc| Column::optional(name, Type::UInt64, doc);
    let columns = ThreadColumns {
        process_uid: t.number(process_uid("The process, in `processes`.")),
        pid: t.number(Column::required("pid", Type::UInt32, "Process id.")),
        tid: t.number(Column::required("tid", Type::UInt32, "Thread id.")),
        name: t.text(Column::optional("name", Type::Text, "The last name that a program assigned to it.")),
        start_module_id: t.number(number(
            "start_module_id",
            "The module that contains the function that the thread was created for, in `modules`.",
        )),
        facts: FactColumns::of(&mut t),
        span: SpanColumns::of(&mut t),
    };
    (t, columns)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ModuleColumns {
    module_id: NumberColumn,
    name: TextColumn,
    path: TextColumn,
    time_date_stamp: NumberColumn,
    size: NumberColumn,
    checksum: NumberColumn,
    pdb: TextColumn,
    pdb_guid: TextColumn,
    pdb_age: NumberColumn,
    company: TextColumn,
    product: TextColumn,
    description: TextColumn,
    file_version: TextColumn,
    original_file_name: TextColumn,
}

pub(super) fn modules_table() -> (Table, ModuleColumns) {
    let mut t = Table::new(TableId::Modules.name(), "A distinct image that processes or the kernel loaded.");
    let text = |name, doc| Column::optional(name, Type::Text, doc);
    let number = |name, r#type, doc| Column::optional(name, r#type, doc);
    let columns = ModuleColumns {
        module_id: t.number(Column::required(
            "module_id",
            Type::UInt64,
            "Id of the module: equal for equal names, time stamps and sizes, on every machine.",
        )),
        name: t.text(Column::required("name", Type::Text, "File name.")),
        path: t.text(Column::required(
            "path",
            Type::Text,
            "Path of the first load in the trace; `regions` has the paths of all loads.",
        )),
        time_date_stamp: t.number(number("time_date_stamp", Type::UInt32, "Time stamp in its header.")),
        size: t.number(number("size", Type::UInt64, "Size in memory in bytes.")),
        checksum: t.number(number("checksum", Type::UInt32, "Checksum in its header.")),
        pdb: t.text(text("pdb", "File name of its PDB.")),
        pdb_guid: t.text(text("pdb_guid", "GUID of its PDB.")),
        pdb_age: t.number(number("pdb_age", Type::UInt32, "Age of its PDB.")),
        company: t.text(text("company", "Company, from the version resource.")),
        product: t.text(text("product", "Product, from the version resource.")),
        description: t.text(text("description", "Description, from the version resource.")),
        file_version: t.text(text("file_version", "Version, from the version resource.")),
        original_file_name: t
            .text(text("original_file_name", "Original file name, from the version resource.")),
    };
    (t, columns)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RegionColumns {
    process_uid: NumberColumn,
    pid: NumberColumn,
    base: NumberColumn,
    size: NumberColumn,
    kind: TextColumn,
    protection: TextColumn,
    module_id: NumberColumn,
    path: TextColumn,
    span: SpanColumns,
}

pub(super) fn regions_table() -> (Table, RegionColumns) {
    let mut t = Table::new(
        TableId::Regions.name(),
        "A load of an image, a mapped section, or a call that reserved or committed memory. Parts of memory can have been freed before the stated end.",
    );
    let text = |name, doc| Column::optional(name, Type::Text, doc);
    let number = |name, r#type, doc| Column::optional(name, r#type, doc);
    let columns = RegionColumns {
        process_uid: t.number(number(
            "process_uid",
            Type::UInt64,
            "The process, in `processes`; null for the kernel.",
        )),
        pid: t.number(number("pid", Type::UInt32, "Process id; null for the kernel.")),
        base: t.number(Column::required("base", Type::UInt64, "Start address.")),
        size: t.number(Column::required("size", Type::UInt64, "Size in bytes.")),
        kind: t.text(Column::required("kind", Type::Text, "`image`, `mapped`, or `private`.")),
        protection: t.text(text("protection", "Protection when it was mapped, such as `R-X`.")),
        module_id: t.number(number("module_id", Type::UInt64, "The image, in `modules`.")),
        path: t.text(text("path", "Path of the file.").stored(Storage::LookUp)),
        span: SpanColumns::of(&mut t),
    };
    (t, columns)
}

/// The rows of the state of a trace.
#[derive(Debug)]
pub(crate) struct State {
    pub processes: Rows,
    pub threads: Rows,
    pub modules: Rows,
    pub regions: Rows,
}

impl State {
    /// The state at the end of a run.
    pub fn of(pipeline: &Pipeline<'_>, uids: &mut ProcessUids, trace: u64) -> State {
        let clock = pipeline.clock();
        let state = pipeline.trace_state();
        let system = state.system();
        let mut processes = Pending::new(processes_table(), trace);
        for view in pipeline.processes() {
            process(&mut processes, &view, state, uids, &clock);
        }
        let mut threads = Pending::new(threads_table(), trace);
        for thread in system.threads() {
            add_thread(&mut threads, state, thread, uids, &clock);
        }
        let mut modules = Pending::new(modules_table(), trace);
        let mut regions =
            Regions { pending: Pending::new(regions_table(), trace), state, uids, clock: &clock };
        let mut known = HashSet::<u64, FxBuildHasher>::default();
        for module in system.modules() {
            let id = module_id(&identity(module));
            if known.insert(id) {
                add_module(&mut modules, system, module, id);
            }
            regions.image(module, id);
        }
        system.processes().for_each(|process| regions.of_process(process));
        State {
            processes: processes.take(),
            threads: threads.take(),
            modules: modules.take(),
            regions: regions.pending.take(),
        }
    }
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
    let time = thread.observed().unwrap_or(thread.span().from);
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
