//! One interface to consume events from live sessions, trace files and other sources of blocks.
//!
//! ```
//! use stackhound::{EventFilter, Provider, Trace};
//!
//! # fn main() -> Result<(), stackhound::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let network = Provider::named("Microsoft-Windows-Kernel-Network")?
//!     .any(0x10)
//!     .filter(EventFilter::ids([10]).on_event(|event| {
//!         let process: u32 = event.parser()?.parse("PID")?;
//!         println!("{process} sends");
//!         Ok(())
//!     }));
//! // The same with `Trace::live(Session::user("network"))` on Windows.
//! let stats = Trace::file("trace.etl").enable(network).run(|_| {})?;
//! println!("{} events", stats.delivered);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Trace`] describes the source and the handlers. Handlers are called on one thread, one event
//! after the other, in time order, each event with its stack. This module distributes events to
//! handlers; it does not read or record them.

mod dispatch;
mod drive;
mod error;
mod filter;
mod handler;
mod provider;
mod running;
mod subscription;

use std::path::{Path, PathBuf};
use std::time::Duration;

use stackhound_live::{Incoming, Overflow, Queue, Session};
use stackhound_schema::SchemaStore;
use stackhound_stacks::Window;
use stackhound_trace::{Grouping, TraceFiles};

use dispatch::Dispatch;
use drive::Opened;
pub use error::Error;
pub use filter::EventFilter;
pub use handler::{EventError, IntoOutcome};
pub use provider::Provider;
pub use running::{Running, StopHandle, TraceStats};
use stackhound_pipeline::Enrichment;
use stackhound_pipeline::EventView;
use stackhound_pipeline::Passes;
pub use subscription::{KeptEvent, Subscription};

/// The source of events.
#[derive(Debug)]
enum Input {
    TraceFiles(Box<TraceFiles>),
    Live(Vec<LiveInput>),
    Blocks(Vec<Incoming>),
}

#[derive(Debug)]
enum LiveInput {
    /// A session that the trace starts.
    Session(Box<Session>),
    /// The name of a session of another program.
    Attach(String),
}

/// The time for which events wait for their stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// The time after which stacks usually arrive: two seconds of the events' own time.
    Default,
    /// The given maximum time and number of events.
    At(Duration, usize),
    /// Events do not wait.
    Not,
}

/// The source of the events, and their handlers.
#[derive(Debug)]
pub struct Trace {
    input: Input,
    dispatch: Dispatch,
    schemas: SchemaStore,
    enrichment: Enrichment,
    passes: Passes,
    hold: Hold,
    queue: Queue,
}

impl Trace {
    fn of(input: Input) -> Trace {
        Trace {
            input,
            dispatch: Dispatch::default(),
            schemas: SchemaStore::new(),
            enrichment: Enrichment::default(),
            passes: Passes::Two,
            hold: Hold::Default,
            queue: Queue::new(Overflow::Block),
        }
    }

    /// A trace file, or all trace files of a directory or an archive, which must belong to one
    /// capture (see [`merge`](Trace::merge)). Available on all systems.
    pub fn file(path: impl AsRef<Path>) -> Trace {
        Trace::of(Input::TraceFiles(Box::new(TraceFiles::file(path))))
    }

    /// Several trace files of one capture, merged by time, such as the kernel events and the user
    /// events. If they come from several machines, boots or times, the trace does not start, unless
    /// [`merge`](Trace::merge) is used.
    pub fn files(paths: impl IntoIterator<Item = PathBuf>) -> Trace {
        Trace::of(Input::TraceFiles(Box::new(TraceFiles::files(paths))))
    }

    /// Merges trace files by time even if they come from several machines, boots or times.
    /// Processes, threads and addresses with equal numbers are then treated as the same.
    pub fn merge(mut self) -> Trace {
        if let Input::TraceFiles(trace_files) = self.input {
            self.input = Input::TraceFiles(Box::new(trace_files.grouping(Grouping::Merge)));
        }
        self
    }

    /// A new session. It is started by [`start`](Trace::start) or [`run`](Trace::run), which fail
    /// on systems other than Windows, and ends with the trace.
    pub fn live(session: Session) -> Trace {
        Trace::of(Input::Live(vec![LiveInput::Session(Box::new(session))]))
    }

    /// An existing session of another program, which continues when the trace ends.
    pub fn attach(session_name: impl Into<String>) -> Trace {
        Trace::of(Input::Live(vec![LiveInput::Attach(session_name.into())]))
    }

    /// Blocks of one source, such as another transport or a test. See [`stackhound_live::channel`].
    pub fn blocks(incoming: Incoming) -> Trace {
        Trace::of(Input::Blocks(vec![incoming]))
    }

    /// The same trace with another source of events.
    pub(crate) fn taking(self, incoming: Incoming) -> Trace {
        Trace { input: Input::Blocks(vec![incoming]), ..self }
    }

    /// Adds another session, whose events are merged with those of the others by time. This allows
    /// a session with small buffers for urgent events, and one with large buffers for all others.
    /// Replaces the source of a trace that is not live.
    pub fn and_live(mut self, session: Session) -> Trace {
        let session = LiveInput::Session(Box::new(session));
        match &mut self.input {
            Input::Live(sessions) => sessions.push(session),
            other => *other = Input::Live(vec![session]),
        }
        self
    }

    /// Enables a provider. In live traces, the session requests its events; in all traces, events
    /// are tested by the same rules here. Several providers may have the same GUID: each receives
    /// the events that it selects.
    pub fn enable(mut self, provider: Provider) -> Trace {
        self.dispatch.enable(provider);
        self
    }

    /// Sets schemas of events in addition to those that the trace contains.
    pub fn schemas(mut self, schemas: SchemaStore) -> Trace {
        self.schemas = schemas;
        self
    }

    /// Sets the level of detail of stacks, and the source of function names.
    pub fn enrich(mut self, enrichment: Enrichment) -> Trace {
        self.enrichment = enrichment;
        self
    }

    /// Reads trace files in one pass, as a live session is read.
    pub fn one_pass(mut self) -> Trace {
        self.passes = Passes::One;
        self
    }

    /// Sets the number of threads that decompress trace files. The results do not depend on it.
    pub fn threads(mut self, threads: usize) -> Trace {
        if let Input::TraceFiles(trace_files) = self.input {
            self.input = Input::TraceFiles(Box::new(trace_files.threads(threads)));
        }
        self
    }

    /// Delivers events as soon as their order is known, with only those stacks that they contain
    /// (see [`Provider::stack_trace`]). Separate stack records are consumed and not delivered.
    pub fn without_stacks(mut self) -> Trace {
        self.hold = Hold::Not;
        self
    }

    /// Sets how long events wait for their stacks, in the trace's own time, and how many events may
    /// wait. The defaults are two seconds and 131,072 events.
    pub fn hold(mut self, time: Duration, events: usize) -> Trace {
        self.hold = Hold::At(time, events);
        self
    }

    /// Sets the capacity of the queue between a session and the handlers, and the behavior if it is
    /// full. By default, the session waits.
    pub fn queue(mut self, queue: Queue) -> Trace {
        self.queue = queue;
        self
    }

    /// Adds a handler for events that no provider selects. It is called only if providers are
    /// enabled.
    pub fn on_unclaimed<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
    ) -> Trace {
        self.dispatch.unclaimed.push(handler::boxed(handler));
        self
    }

    /// Adds a handler for errors: an error that a handler returned for an event, or a filter on
    /// fields of an event without a known schema. The trace continues.
    pub fn on_error<R: IntoOutcome>(
        mut self,
        mut handler: impl FnMut(&EventError<'_, '_>) -> R + Send + 'static,
    ) -> Trace {
        self.dispatch.on_error(Box::new(move |error| handler(error).into_outcome()));
        self
    }

    /// Passes every selected event to its handlers, and all of them also to `handler`, on the
    /// current thread, until the trace ends or a handler breaks. Without providers, every event is
    /// selected.
    ///
    /// # Errors
    /// If the trace cannot start, or a handler panics.
    pub fn run<R: IntoOutcome>(
        self,
        mut handler: impl FnMut(&EventView<'_>) -> R,
    ) -> Result<TraceStats, Error> {
        Opened::open(self)?.run(&mut |view| handler(view).into_outcome())
    }

    /// As [`run`](Trace::run), but on a separate thread, and only with the handlers that were added
    /// before.
    ///
    /// # Errors
    /// If the trace cannot start.
    pub fn start(self) -> Result<Running, Error> {
        Opened::open(self)?.start()
    }

    /// Starts the trace, and returns its selected events as batches for another thread. At most
    /// `batches` batches of [`Subscription::BATCH`] events wait. `overflow` is the behavior if the
    /// queue is full; dropped events are counted.
    ///
    /// # Errors
    /// If the trace cannot start.
    pub fn subscribe(mut self, batches: usize, overflow: Overflow) -> Result<(Running, Subscription), Error> {
        let (publisher, subscription) = subscription::pair(batches, overflow);
        self.dispatch.publisher = Some(publisher);
        Ok((self.start()?, subscription))
    }

    fn window(&self, clock: &stackhound_etl::Clock) -> Window {
        match self.hold {
            Hold::Default => Window::of(clock),
            Hold::Not => Window::none(),
            Hold::At(time, max_pending) => Window { max_hold: clock.duration_to_raw(time), max_pending },
        }
    }
}
