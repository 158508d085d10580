//! A trace: the description of its files as plain data ([`TraceFiles`]), and its opened form
//! ([`OpenTrace`]).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rayon::ThreadPoolBuilder;
use stackhound_etl::{Clock, EtlFile, Index, LogfileHeader, Selection};

use crate::capture::{self, Capture, Facts, Grouping};
use crate::event::Event;
use crate::feed::{Feed, Loaded, Loading};
use crate::filter::HeaderFilter;
use crate::merge::{Merge, TimeBase};
use crate::ordered::Ordered;
use crate::source::{self, Opened, Source};
use crate::{Error, Stats};

/// The result of a callback: continue, or break to stop reading.
pub type Flow = ControlFlow<()>;

/// The files to read, and how to read them.
#[derive(Clone, Debug, Default)]
pub struct TraceFiles {
    paths: Vec<PathBuf>,
    threads: usize,
    filter: HeaderFilter,
    grouping: Grouping,
}

impl TraceFiles {
    /// One .etl file, or all .etl files of a directory or an archive.
    pub fn file(path: impl AsRef<Path>) -> TraceFiles {
        TraceFiles::files([path.as_ref().to_owned()])
    }

    /// Several .etl files, directories or archives: the kernel and the user session of one capture,
    /// for example, or captures of several machines.
    pub fn files(paths: impl IntoIterator<Item = PathBuf>) -> TraceFiles {
        let (filter, grouping) = (HeaderFilter::new(), Grouping::default());
        TraceFiles { paths: paths.into_iter().collect(), threads: 1, filter, grouping }
    }

    /// Sets how the files are grouped into captures; by default, by machine, boot and time.
    pub fn grouping(mut self, grouping: Grouping) -> TraceFiles {
        self.grouping = grouping;
        self
    }

    /// Sets the number of threads that decompress and scan buffers; another one merges them. With 0
    /// or 1, all of this is done on demand on the calling thread. Results do not depend on the
    /// number.
    pub fn threads(mut self, threads: usize) -> TraceFiles {
        self.threads = threads;
        self
    }

    /// Restricts the events that [`run`](TraceFiles::run) delivers.
    pub fn filter(mut self, filter: HeaderFilter) -> TraceFiles {
        self.filter = filter;
        self
    }

    /// Opens the sources as one capture.
    ///
    /// # Errors
    /// The errors of [`captures`](TraceFiles::captures), an error if a file of a directory cannot be
    /// opened, and [`Error::SeveralCaptures`] if there is more than one capture.
    pub fn open(&self) -> Result<OpenTrace, Error> {
        let Captures { mut captures, skipped } = self.captures()?;
        match (captures.len(), skipped.into_iter().next()) {
            (_, Some(error)) => Err(error),
            (1, None) => Ok(captures.remove(0).trace),
            _ => Err(capture::several_captures(&captures)),
        }
    }

    /// Opens every source and groups them into captures, sorted by start time. There is at least
    /// one.
    ///
    /// Visits every buffer header, and reads a few buffers at the beginning and at the end of each
    /// stream.
    ///
    /// # Errors
    /// If a file cannot be opened, or there is no file. Files of directories that cannot be opened are
    /// skipped, unless no file is left.
    pub fn captures(&self) -> Result<Captures, Error> {
        let Opened { sources, skipped } = source::open_all(&self.paths)?;
        let trace = OpenTrace::new(sources, self.threads)?;
        Ok(Captures { captures: trace.filter(self.filter.clone()).into_captures(self.grouping), skipped })
    }

    /// Passes every event to `handle`, in time order, until it breaks.
    ///
    /// # Errors
    /// The errors of [`open`](TraceFiles::open).
    pub fn run(&self, handle: impl FnMut(&Event<'_>) -> Flow) -> Result<Stats, Error> {
        Ok(self.open()?.run(handle))
    }
}

/// The result of opening paths and grouping their sources.
#[derive(Debug)]
pub struct Captures {
    /// The captures, sorted by start time.
    pub captures: Vec<Capture>,
    /// The errors of files of directories that could not be opened.
    pub skipped: Vec<Error>,
}

/// A trace whose sources are open. Can be read any number of times.
#[derive(Debug)]
pub struct OpenTrace {
    sources: Vec<Source>,
    indexes: OnceLock<Vec<Index>>,
    loading: Loading,
    filter: HeaderFilter,
}

impl OpenTrace {
    /// Makes a trace of sources that are already open. The caller guarantees that they belong to
    /// one capture.
    ///
    /// # Errors
    /// [`Error::Nothing`] without sources; [`Error::Threads`] if threads cannot be started.
    pub fn new(sources: Vec<Source>, threads: usize) -> Result<OpenTrace, Error> {
        if sources.is_empty() {
            return Err(Error::Nothing);
        }
        let pool = match threads {
            0 | 1 => None,
            // The others are the calling thread and that of the merge.
            _ => Some(Arc::new(ThreadPoolBuilder::new().num_threads(1.max(threads - 2)).build()?)),
        };
        let loading = Loading { pool, selection: None };
        Ok(OpenTrace { sources, indexes: OnceLock::new(), loading, filter: HeaderFilter::new() })
    }

    /// Restricts the events that [`run`](OpenTrace::run) delivers. [`ordered`](OpenTrace::ordered)
    /// and the stages that read from it get all events, because the stacks and names of the
    /// selected events are recorded in other events.
    pub fn filter(mut self, filter: HeaderFilter) -> OpenTrace {
        self.filter = filter;
        self
    }

    /// Splits the sources into captures.
    fn into_captures(self, grouping: Grouping) -> Vec<Capture> {
        let sources = self.sources.iter().zip(self.indexes());
        let facts: Vec<_> = sources.map(|(source, index)| Facts::of(source, index)).collect();
        let groups = match grouping {
            Grouping::ByCapture => capture::grouped(&facts),
            Grouping::Merge => vec![(0..facts.len()).collect()],
            Grouping::Separate => capture::in_order(&facts, (0..facts.len()).map(|at| vec![at]).collect()),
        };
        if let [group] = groups.as_slice() {
            let (machine, times) = capture::summary(&facts, group);
            return vec![Capture { trace: self, machine, times }];
        }
        let capture = |group: Vec<usize>| {
            let (machine, times) = capture::summary(&facts, &group);
            Capture { trace: self.part(&group), machine, times }
        };
        groups.into_iter().map(capture).collect()
    }

    /// Some of the sources as a trace of their own.
    fn part(&self, group: &[usize]) -> OpenTrace {
        let source = |(number, &at): (usize, &usize)| {
            let source = self.sources[at].clone();
            Source { etl_file: source.etl_file.numbered(number as u16), ..source }
        };
        let indexes: Vec<Index> = group.iter().map(|&at| self.indexes()[at].clone()).collect();
        OpenTrace {
            sources: group.iter().enumerate().map(source).collect(),
            indexes: OnceLock::from(indexes),
            loading: self.loading.clone(),
            filter: self.filter.clone(),
        }
    }

    /// The sources, in the order of their numbers.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The logfile headers of all sessions, in the order of the sessions' numbers.
    pub fn sessions(&self) -> impl Iterator<Item = &LogfileHeader> {
        self.indexes().iter().flat_map(|index| &index.sessions).map(|session| &**session)
    }

    /// The .etl files, with their sessions numbered within the trace, and their buffers.
    fn numbered(&self) -> impl Iterator<Item = (EtlFile, &Index)> {
        self.sources.iter().zip(self.indexes()).scan(0, |first, (source, index)| {
            let etl_file = source.etl_file.clone().sessions_from(*first);
            *first += index.sessions.len() as u32;
            Some((etl_file, index))
        })
    }

    /// The buffers of each source. The first call visits every buffer header.
    pub fn indexes(&self) -> &[Index] {
        self.indexes.get_or_init(|| self.sources.iter().map(|source| source.etl_file.index()).collect())
    }

    /// The clock of trace time: the first source's.
    pub fn clock(&self) -> Clock {
        self.sources[0].etl_file.clock()
    }

    /// The conversion of each session's raw time to trace time, indexed by the session's number.
    pub fn time_bases(&self) -> Vec<TimeBase> {
        let to = self.clock();
        self.sessions().map(|session| TimeBase::between(session.clock(), to)).collect()
    }

    /// Counters before the first event.
    fn initial_stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (source, index) in self.sources.iter().zip(self.indexes()) {
            stats.bytes += source.etl_file.size();
            stats.events_lost +=
                index.sessions.iter().map(|session| u64::from(session.events_lost)).sum::<u64>();
            stats.buffers_lost +=
                index.sessions.iter().map(|session| u64::from(session.buffers_lost)).sum::<u64>();
            stats.buffers_missing = stats.buffers_missing.saturating_add(index.missing_buffers());
        }
        for (number, (source, index)) in self.sources.iter().zip(self.indexes()).enumerate() {
            let all = index.damage.iter().chain(&source.packed_damage);
            stats.damage.extend(all.map(|&damage| (number as u16, damage)));
        }
        stats
    }

    /// All events in time order.
    pub fn ordered(&self) -> Ordered {
        self.merge(None)
    }

    /// The events of a selection in time order. Of the other events, only the headers are read.
    pub fn selected(&self, selection: Selection) -> Ordered {
        self.merge(Some(Arc::new(selection)))
    }

    fn merge(&self, selection: Option<Arc<Selection>>) -> Ordered {
        let is_survey = selection.is_some();
        let mut feeds = Vec::new();
        for (etl_file, index) in self.numbered() {
            let loading = Loading { selection: selection.clone(), ..self.loading_of(index) };
            let feed = |stream| Feed::new(etl_file.clone(), stream, loading.clone());
            feeds.extend(index.streams().into_iter().map(feed));
        }
        let merge = Merge::new(feeds, self.time_bases(), self.initial_stats(), is_survey);
        Ordered::new(merge, self.loading.pool.is_some())
    }

    /// How the blocks of a source are loaded. With two threads, that of the merge scans buffers
    /// itself, unless they are compressed: waking another one costs as much.
    fn loading_of(&self, index: &Index) -> Loading {
        let is_compressed = || index.buffers.iter().any(|buffer| buffer.compressed);
        let pool = self.loading.pool.clone();
        let pool = pool.filter(|pool| pool.current_num_threads() > 1 || is_compressed());
        Loading { pool, ..self.loading.clone() }
    }

    /// Passes every event to `handle`, in time order, until it breaks.
    pub fn run(&self, mut handle: impl FnMut(&Event<'_>) -> Flow) -> Stats {
        let mut ordered = self.ordered();
        let all = self.filter == HeaderFilter::new();
        while let Some(event) = ordered.next() {
            if (all || self.filter.wants(&event)) && handle(&event).is_break() {
                break;
            }
        }
        ordered.into_stats()
    }

    /// Every block of every source, in file order and without keeping it, with the source's number.
    pub fn blocks(&self) -> impl Iterator<Item = (u16, Loaded)> + '_ {
        self.numbered().enumerate().flat_map(move |(number, (etl_file, index))| {
            let mut feed = Feed::new(etl_file, index.buffers.clone(), self.loading_of(index));
            std::iter::from_fn(move || feed.next().map(|loaded| (number as u16, loaded)))
        })
    }
}
