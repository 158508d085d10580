//! The threads that load tables and look up addresses.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stackhound_types::{AddressKind, ModuleIdentity};

use super::frame::{Texts, resolve};
use super::queue::{Queue, Request, Waiting};
use super::tables::Tables;
use super::{
    FrameNumber, Loaded, Loader, ModuleNumber, ResolvedCallSite, ResolvedFrame, SymbolStats, locked,
};
use crate::failure::Failure;
use crate::image::{Functions, Image, NoCall};

/// The state that threads and caller share, under one lock that is held only briefly.
#[derive(Debug)]
pub(super) struct State {
    pub queue: Queue,
    pub tables: Tables,
    pub stats: SymbolStats,
    pub is_closed: bool,
}

pub(super) struct Shared {
    pub state: Mutex<State>,
    /// Signals new requests, a released module, or the end.
    pub changed: Condvar,
    pub texts: Mutex<Texts>,
    pub loader: Loader,
    /// Whether frames include their call sites.
    pub call_sites: bool,
}

/// The results of a thread for one module.
#[derive(Debug)]
pub(super) struct Done {
    pub module: ModuleNumber,
    pub frames: Vec<(FrameNumber, ResolvedFrame)>,
    /// Set when the module was loaded for the first time.
    pub failures: Option<Vec<Failure>>,
}

/// The counters of a batch.
#[derive(Default)]
struct Work {
    loaded_now: bool,
    load_time: Duration,
    resolve_time: Duration,
    panics: u64,
    calls: u64,
    no_calls: BTreeMap<NoCall, u64>,
}

/// Runs until the symbolizer is dropped.
pub(super) fn run(shared: &Shared, results: &Sender<Done>) {
    while let Some(batch) = next(shared) {
        let mut work = Work::default();
        let loaded = batch.cached.unwrap_or_else(|| load(shared, &batch.identity, &mut work));
        let frames = resolve_all(shared, &loaded, &batch.requests, &mut work);

        let mut state = locked(&shared.state);
        let failures = count(&mut state, batch.module, &loaded, &frames, &work);
        let gone = if work.loaded_now {
            state.tables.keep(batch.module, batch.request_count, &loaded)
        } else {
            Vec::new()
        };
        state.queue.modules[batch.module.index()].busy = false;
        drop(state);
        // Requests for this module may have arrived meanwhile, which no other thread could process.
        shared.changed.notify_one();
        if results.send(Done { module: batch.module, frames, failures }).is_err() {
            return;
        }
        // Freeing a table takes time, so it is done without the lock.
        drop(gone);
    }
}

/// The requests of one module.
struct Batch {
    module: ModuleNumber,
    requests: Vec<Request>,
    identity: Arc<ModuleIdentity>,
    request_count: u64,
    cached: Option<Arc<Loaded>>,
}

/// Waits for the next batch. Returns `None` at the end.
fn next(shared: &Shared) -> Option<Batch> {
    let mut state = locked(&shared.state);
    while !state.is_closed {
        let State { queue, tables, .. } = &mut *state;
        if let Some((module, requests)) = queue.take(|module| tables.contains(module)) {
            let Waiting { identity, request_count, .. } = &queue.modules[module.index()];
            let (identity, request_count) = (Arc::clone(identity), *request_count);
            return Some(Batch {
                module,
                requests,
                identity,
                request_count,
                cached: tables.get(module, request_count),
            });
        }
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    None
}

fn load(shared: &Shared, identity: &ModuleIdentity, work: &mut Work) -> Arc<Loaded> {
    let start = Instant::now();
    let loaded = catch_unwind(AssertUnwindSafe(|| (shared.loader)(identity)));
    work.loaded_now = true;
    work.load_time = start.elapsed();
    Arc::new(loaded.unwrap_or_else(|_| {
        work.panics += 1;
        Loaded::default()
    }))
}

fn resolve_all(
    shared: &Shared,
    loaded: &Loaded,
    requests: &[Request],
    work: &mut Work,
) -> Vec<(FrameNumber, ResolvedFrame)> {
    let start = Instant::now();
    let panics = AtomicU64::new(0);
    let image = loaded.image.as_ref().and_then(|image| Image::parse(image).ok());
    let functions = OnceCell::new();
    let one = |request: &Request| {
        let code = image.as_ref().map(|image| (image, &functions));
        let frame = catch_unwind(AssertUnwindSafe(|| resolve_one(shared, loaded, code, request, work)));
        let frame = frame.unwrap_or_else(|_| {
            panics.fetch_add(1, Ordering::Relaxed);
            ResolvedFrame::default()
        });
        (request.frame, frame)
    };
    let frames = requests.iter().map(one).collect();
    work.panics += panics.into_inner();
    work.resolve_time = start.elapsed();
    frames
}

fn resolve_one(
    shared: &Shared,
    loaded: &Loaded,
    code: Option<(&Image<'_>, &OnceCell<Functions>)>,
    request: &Request,
    work: &mut Work,
) -> ResolvedFrame {
    let mut frame = match &loaded.symbols {
        Some(symbols) => resolve(&**symbols, request.rva, request.kind, &shared.texts),
        None => ResolvedFrame::default(),
    };
    let is_wanted = shared.call_sites && request.kind == AddressKind::Return;
    let call = is_wanted.then(|| match code {
        Some((image, functions)) => {
            image.call_before(functions.get_or_init(|| image.functions()), request.rva)
        }
        None => Err(NoCall::NoImage),
    });
    match &call {
        Some(Ok(_)) => work.calls += 1,
        Some(Err(reason)) => *work.no_calls.entry(*reason).or_default() += 1,
        None => {}
    }
    let instruction = call.and_then(Result::ok);
    let site = code.and_then(|(image, _)| ResolvedCallSite::read(image, request.rva, instruction));
    frame.call_site = site.map(Box::new);
    frame
}

/// Updates the counters. Returns the failures if the module was loaded for the first time.
fn count(
    state: &mut State,
    module: ModuleNumber,
    loaded: &Loaded,
    frames: &[(FrameNumber, ResolvedFrame)],
    work: &Work,
) -> Option<Vec<Failure>> {
    let stats = &mut state.stats;
    stats.resolved += frames.len() as u64;
    stats.named += frames.iter().filter(|(_, frame)| frame.best().is_some()).count() as u64;
    stats.panics += work.panics;
    stats.calls += work.calls;
    for (reason, count) in &work.no_calls {
        *stats.no_calls.entry(*reason).or_default() += count;
    }
    stats.load_time += work.load_time;
    stats.resolve_time += work.resolve_time;
    if !work.loaded_now {
        return None;
    }
    stats.loads += 1;
    let was_loaded = std::mem::replace(&mut state.queue.modules[module.index()].was_loaded, true);
    (!was_loaded).then(|| {
        for failure in &loaded.failures {
            *stats.failures.entry((failure.file, failure.cause)).or_default() += 1;
        }
        loaded.failures.clone()
    })
}
