//! One way to consume events, wherever they come from: live sessions, recordings, or blocks from elsewhere.
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
//! A [`Trace`] says what to read and who is called for what. Handlers are called on one thread, one event after the other,
//! in time order, each event with its stack. Knows who wants which event; does not know how events get here.

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

/// Where events come from.
#[derive(Debug)]
enum Input {
    TraceFiles(Box<TraceFiles>),
    Live(Vec<LiveInput>),
    Blocks(Vec<Incoming>),
}

#[derive(Debug)]
enum LiveInput {
    /// A session of our own.
    Session(Box<Session>),
    /// One that somebody else owns.
    Attach(String),
}

/// How long events are held back for their stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// As long as stacks take to come: two seconds of the events' own time.
    Default,
    /// At most so long, and at most so many.
    At(Duration, usize),
    /// Not at all.
    Not,
}

/// What to read, and who is called for what.
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

    /// A recording, or all recordings of a directory or an archive, which must be of one capture (see
    /// [`merge`](Trace::merge)). On any system.
    pub fn file(path: impl AsRef<Path>) -> Trace {
        Trace::of(Input::TraceFiles(Box::new(TraceFiles::file(path))))
    }

    /// Several recordings of one capture, merged by time: the kernel and the user part, for example. If they come from
    /// several machines, boots or times, the trace cannot begin, unless [`merge`](Trace::merge) says otherwise.
    pub fn files(paths: impl IntoIterator<Item = PathBuf>) -> Trace {
        Trace::of(Input::TraceFiles(Box::new(TraceFiles::files(paths))))
    }

    /// Merges recordings by time even if they come from several machines, boots or times. Processes, threads and addresses
    /// of one are then taken for those of another that has the same numbers.
    pub fn merge(mut self) -> Trace {
        if let Input::TraceFiles(trace_files) = self.input {
            self.input = Input::TraceFiles(Box::new(trace_files.grouping(Grouping::Merge)));
        }
        self
    }

    /// A session of our own. It begins with [`start`](Trace::start) or [`run`](Trace::run), which is an error on other
    /// systems than Windows, and ends with them.
    pub fn live(session: Session) -> Trace {
        Trace::of(Input::Live(vec![LiveInput::Session(Box::new(session))]))
    }

    /// A session that somebody else owns and that goes on when we end.
    pub fn attach(session_name: impl Into<String>) -> Trace {
        Trace::of(Input::Live(vec![LiveInput::Attach(session_name.into())]))
    }

    /// Blocks of one source: another transport, or a test. See [`stackhound_live::channel`].
    pub fn blocks(incoming: Incoming) -> Trace {
        Trace::of(Input::Blocks(vec![incoming]))
    }

    /// The same trace, with its events from elsewhere.
    pub(crate) fn taking(self, incoming: Incoming) -> Trace {
        Trace { input: Input::Blocks(vec![incoming]), ..self }
    }

    /// One more session, merged with the others by time: one with small buffers for what must come soon beside one with
    /// large buffers for the rest. Of a trace that is not live, nothing is left.
    pub fn and_live(mut self, session: Session) -> Trace {
        let session = LiveInput::Session(Box::new(session));
        match &mut self.input {
            Input::Live(sessions) => sessions.push(session),
            other => *other = Input::Live(vec![session]),
        }
        self
    }

    /// Wants events of a provider. Live, the session asks the provider for them; everywhere, events are tested by the
    /// same rules here. Several providers may have the same GUID: each gets what it asks for.
    pub fn enable(mut self, provider: Provider) -> Trace {
        self.dispatch.enable(provider);
        self
    }

    /// Descriptions of events beside those that the trace carries.
    pub fn schemas(mut self, schemas: SchemaStore) -> Trace {
        self.schemas = schemas;
        self
    }

    /// How much of stacks is told, and who names functions.
    pub fn enrich(mut self, enrichment: Enrichment) -> Trace {
        self.enrichment = enrichment;
        self
    }

    /// Reads recordings once, as a live session is read.
    pub fn one_pass(mut self) -> Trace {
        self.passes = Passes::One;
        self
    }

    /// Threads that unpack recordings; results do not depend on it.
    pub fn threads(mut self, threads: usize) -> Trace {
        if let Input::TraceFiles(trace_files) = self.input {
            self.input = Input::TraceFiles(Box::new(trace_files.threads(threads)));
        }
        self
    }

    /// Events go out as soon as their order is known, with only those stacks that they bring along (see
    /// [`Provider::stack_trace`]). Stacks that come as records of their own are used up.
    pub fn without_stacks(mut self) -> Trace {
        self.hold = Hold::Not;
        self
    }

    /// How long events wait for their stacks, in the trace's own time, and how many may wait. Otherwise two seconds and
    /// 131,072.
    pub fn hold(mut self, time: Duration, events: usize) -> Trace {
        self.hold = Hold::At(time, events);
        self
    }

    /// How much may wait between a session and the handlers, and what if more does. Otherwise the session waits.
    pub fn queue(mut self, queue: Queue) -> Trace {
        self.queue = queue;
        self
    }

    /// Is called for events that no provider wants, where providers are enabled.
    pub fn on_unclaimed<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
    ) -> Trace {
        self.dispatch.unclaimed.push(handler::boxed(handler));
        self
    }

    /// Is called if a handler gives an error for an event, or if a filter asks for fields of an event that nobody
    /// describes. The trace goes on.
    pub fn on_error<R: IntoOutcome>(
        mut self,
        mut handler: impl FnMut(&EventError<'_, '_>) -> R + Send + 'static,
    ) -> Trace {
        self.dispatch.on_error(Box::new(move |error| handler(error).into_outcome()));
        self
    }

    /// Hands every wanted event to the handlers, and all of them to `handler` too, on this thread, until the trace ends
    /// or a handler breaks. Without providers, every event is wanted.
    ///
    /// # Errors
    /// If the trace cannot begin, or a handler panics.
    pub fn run<R: IntoOutcome>(
        self,
        mut handler: impl FnMut(&EventView<'_>) -> R,
    ) -> Result<TraceStats, Error> {
        Opened::open(self)?.run(&mut |view| handler(view).into_outcome())
    }

    /// As [`run`](Trace::run) on a thread of its own, with only the handlers that were given before.
    ///
    /// # Errors
    /// If the trace cannot begin.
    pub fn start(self) -> Result<Running, Error> {
        Opened::open(self)?.start()
    }

    /// Starts, and gives the wanted events to be taken from another thread, several at once. At most `batches` of
    /// [`Subscription::BATCH`] events wait; `overflow` says what if more come, and what is dropped is counted.
    ///
    /// # Errors
    /// If the trace cannot begin.
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
