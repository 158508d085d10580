//! Names for addresses, each resolved once, on separate threads.
//!
//! The caller passes modules and addresses and immediately gets numbers. Threads load the modules'
//! tables and look up the addresses in batches. The number of requests for a module determines when
//! its table is loaded and how long it is kept, but never whether an address is named: results are
//! the same for any order, number of threads and memory limit.
//!
//! The module handles addresses within modules. It is independent of processes, events and stacks.

mod files;
mod frame;
mod loader;
mod queue;
mod stats;
mod tables;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use stackhound_types::{AddressKind, ModuleIdentity, Rva};

pub use frame::{ResolvedCallSite, ResolvedFrame, ResolvedInline, ResolvedLine, ResolvedName};
pub use loader::{Loaded, Loader};
pub use stats::SymbolStats;

use crate::failure::Failure;
use crate::store::{Store, StoreOptions};
use files::FileLoader;
use queue::{Queue, Request};
use tables::Tables;
use worker::{Done, Shared, State};

/// A module of a [`Symbolizer`]. Modules have consecutive numbers from 0, in the order of their
/// first occurrence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleNumber(u32);

impl ModuleNumber {
    /// Returns the index for columns with an entry for each module.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A distinct address of a [`Symbolizer`]. Frames have consecutive numbers from 0, in the order of
/// their first request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameNumber(u32);

impl FrameNumber {
    /// Returns the index for columns with an entry for each frame.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The resources for symbol work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkOptions {
    /// Memory for cached tables, in bytes. In addition, each thread uses one table.
    pub memory_limit: usize,
    /// The number of threads that load and look up, at least one.
    pub threads: usize,
}

impl Default for WorkOptions {
    fn default() -> WorkOptions {
        WorkOptions { memory_limit: 256 << 20, threads: 2 }
    }
}

/// The options of a symbolizer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolizerOptions {
    /// The locations to search for files, and the permission to download them.
    pub store: StoreOptions,
    /// The resources for the work.
    pub work: WorkOptions,
    /// Whether frames include their [`ResolvedCallSite`]. This keeps images in memory, within the
    /// limit.
    pub call_sites: bool,
}

/// Creates a loader for the files of a store, and returns both. `images` determines whether images
/// are returned as in their files. Tables are cached on disk, in `tables` of the user's cache
/// folder.
pub fn file_loader(options: StoreOptions, images: bool) -> (Arc<Store>, Loader) {
    let tables = options.cache.as_ref().map(|cache| cache.join("tables"));
    let store = Arc::new(Store::new(options));
    let loader = FileLoader { store: Arc::clone(&store), tables, call_sites: images };
    (store, Box::new(move |module| loader.load(module)))
}

/// The number of requests that are collected before they are passed to the threads.
const BATCH: usize = 4096;

/// Resolves addresses of modules to names.
///
/// A repeated request costs one lookup in a hash table. Results are kept as long as the symbolizer.
pub struct Symbolizer {
    modules: HashMap<Arc<ModuleIdentity>, ModuleNumber, foldhash::fast::RandomState>,
    /// By module: the number of requests, and the failures after it was loaded.
    known: Vec<ModuleState>,
    /// By [`key`].
    frames: HashMap<u64, FrameNumber, foldhash::fast::RandomState>,
    /// By frame, as they arrive.
    resolved: Vec<Option<ResolvedFrame>>,
    /// The number of frames, from the first one, that have all arrived.
    complete: usize,
    collected: Vec<Request>,
    hits: u64,
    results: Receiver<Done>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The source of files, unless another loader was specified.
    store: Option<Arc<Store>>,
}

#[derive(Debug, Default)]
struct ModuleState {
    request_count: u64,
    failures: Option<Vec<Failure>>,
}

/// Combines module, kind and address to one number. There are fewer than 2³¹ modules, see
/// [`Symbolizer::module`].
fn key(module: ModuleNumber, rva: Rva, kind: AddressKind) -> u64 {
    u64::from(module.0) << 33 | u64::from(kind == AddressKind::Return) << 32 | u64::from(rva.0)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbolizer")
            .field("modules", &self.modules.len())
            .field("frames", &self.resolved.len())
            .field("complete", &self.complete)
            .finish_non_exhaustive()
    }
}

impl Symbolizer {
    /// Creates a symbolizer for the files of a store. Tables are cached on disk, in `tables` of the
    /// user's cache folder. Fails if threads cannot be started.
    pub fn new(options: SymbolizerOptions) -> io::Result<Symbolizer> {
        let (store, loader) = file_loader(options.store, options.call_sites);
        let mut symbolizer = Symbolizer::start(&options.work, loader, options.call_sites)?;
        symbolizer.store = Some(store);
        Ok(symbolizer)
    }

    /// Creates a symbolizer with a custom loader. Fails if threads cannot be started.
    pub fn with_loader(options: &WorkOptions, loader: Loader) -> io::Result<Symbolizer> {
        Symbolizer::start(options, loader, true)
    }

    fn start(options: &WorkOptions, loader: Loader, call_sites: bool) -> io::Result<Symbolizer> {
        let (sender, results) = channel();
        let state = State {
            queue: Queue::default(),
            tables: Tables::new(options.memory_limit),
            stats: SymbolStats::default(),
            is_closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            texts: Mutex::default(),
            loader,
            call_sites,
        });
        let mut symbolizer = Symbolizer {
            modules: HashMap::default(),
            known: Vec::new(),
            frames: HashMap::default(),
            resolved: Vec::new(),
            complete: 0,
            collected: Vec::with_capacity(BATCH),
            hits: 0,
            results,
            shared,
            threads: Vec::new(),
            store: None,
        };
        for number in 0..options.threads.max(1) {
            let (shared, sender) = (Arc::clone(&symbolizer.shared), sender.clone());
            let thread = std::thread::Builder::new().name(format!("symbols-{number}"));
            symbolizer.threads.push(thread.spawn(move || worker::run(&shared, &sender))?);
        }
        Ok(symbolizer)
    }

    /// Returns the number of a module. Equal identities have equal numbers.
    ///
    /// # Panics
    ///
    /// There are more than 2³¹ modules.
    pub fn module(&mut self, identity: &ModuleIdentity) -> ModuleNumber {
        if let Some(&number) = self.modules.get(identity) {
            return number;
        }
        assert!(self.known.len() < 1 << 31, "more modules than numbers");
        let number = ModuleNumber(self.known.len() as u32);
        let identity = Arc::new(identity.clone());
        locked(&self.shared.state).queue.add_module(Arc::clone(&identity));
        self.modules.insert(identity, number);
        self.known.push(ModuleState::default());
        number
    }

    /// Returns the number of an address of a module. A new address will be resolved.
    ///
    /// # Panics
    ///
    /// There are more than 2³² frames, or the module belongs to another symbolizer.
    #[inline]
    pub fn request(&mut self, module: ModuleNumber, rva: Rva, kind: AddressKind) -> FrameNumber {
        let known = &mut self.known[module.index()];
        known.request_count += 1;
        match self.frames.entry(key(module, rva, kind)) {
            Entry::Occupied(frame) => {
                self.hits += 1;
                *frame.get()
            }
            Entry::Vacant(location) => {
                let frame =
                    FrameNumber(u32::try_from(self.resolved.len()).expect("as many frames as numbers"));
                location.insert(frame);
                self.resolved.push(None);
                self.collected.push(Request { module, frame, rva, kind });
                if self.collected.len() >= BATCH {
                    self.flush();
                }
                frame
            }
        }
    }

    /// Passes the collected requests to the threads. Returns immediately.
    pub fn flush(&mut self) {
        if self.collected.is_empty() {
            return;
        }
        let mut state = locked(&self.shared.state);
        for request in self.collected.drain(..) {
            state.queue.add(request, self.known[request.module.index()].request_count);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until all requests are resolved.
    pub fn wait(&mut self) {
        if let Some(last) = self.resolved.len().checked_sub(1) {
            self.wait_through(FrameNumber(last as u32));
        }
    }

    /// Waits until this frame and all previous ones are resolved.
    pub fn wait_through(&mut self, frame: FrameNumber) {
        if frame.index() < self.complete {
            return;
        }
        self.flush();
        while self.complete <= frame.index() && self.complete < self.resolved.len() {
            match self.results.recv() {
                Ok(done) => self.take(done),
                // All threads have ended, for which no cause is known. The remaining requests
                // cannot be resolved.
                Err(_) => {
                    for frame in &mut self.resolved {
                        frame.get_or_insert_default();
                    }
                }
            }
            while self.resolved.get(self.complete).is_some_and(Option::is_some) {
                self.complete += 1;
            }
        }
    }

    fn take(&mut self, done: Done) {
        for (number, frame) in done.frames {
            self.resolved[number.index()] = Some(frame);
        }
        if done.failures.is_some() {
            self.known[done.module.index()].failures = done.failures;
        }
    }

    /// Returns the result for a frame. `None` unless it was waited for.
    #[inline]
    pub fn frame(&self, frame: FrameNumber) -> Option<&ResolvedFrame> {
        self.resolved.get(frame.index())?.as_ref()
    }

    /// Returns the files of a module that could not be used. `None` unless a frame of it was waited
    /// for.
    pub fn failures(&self, module: ModuleNumber) -> Option<&[Failure]> {
        self.known.get(module.index())?.failures.as_deref()
    }

    /// Returns the source of files, unless another loader was specified.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> SymbolStats {
        let state = locked(&self.shared.state);
        SymbolStats {
            modules: self.known.len() as u64,
            hits: self.hits,
            misses: self.resolved.len() as u64,
            evictions: state.tables.evictions,
            memory_peak: state.tables.peak,
            downloaded: self.store.as_ref().map_or(0, |store| store.downloads().1),
            ..state.stats.clone()
        }
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        let is_idle = {
            let mut state = locked(&self.shared.state);
            state.is_closed = true;
            state.queue.modules.iter().all(|module| !module.busy)
        };
        self.shared.changed.notify_all();
        // Threads end after their current task, which is not waited for: a download can take long. If there is none,
        // they end now, and not while the process ends and removes what they use.
        if is_idle {
            for thread in self.threads.drain(..) {
                // A panic in a task is a failure of its module.
                let _ = thread.join();
            }
        }
    }
}
