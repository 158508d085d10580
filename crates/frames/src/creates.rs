//! Joins requests to create or open files with their results.
//!
//! The event of the request has the stack. The result is in a later event, which identifies only
//! the I/O request packet (IRP). [`CreateJoin`] joins the two.
//!
//! The join does not hold back events, because the correlator already does. It observes each event
//! when the event enters the correlator. When a create leaves the correlator, the join has observed
//! its end if the end came within the correlator's window. Therefore, one pass and two passes give
//! the same results, creates are delivered as early as without the join, and the window limits the
//! memory.

use std::collections::VecDeque;

use stackhound_etl::Selection;
use stackhound_stacks::Window;
use stackhound_trace::{Event, EventKey, TraceTime};

use crate::Map;
use crate::operation::{self, Family, Operation};

/// What the request does if the file exists, and if it does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateDisposition {
    /// Replace it, or create it.
    Supersede,
    /// Open it; never create it.
    Open,
    /// Create it; never open it.
    Create,
    /// Open it, or create it.
    OpenIf,
    /// Open and truncate it; never create it.
    Overwrite,
    /// Open and truncate it, or create it.
    OverwriteIf,
    /// A value that Windows does not define.
    Other(u8),
}

impl CreateDisposition {
    /// The disposition from the upper eight bits of the request's create options.
    pub fn of(number: u8) -> CreateDisposition {
        match number {
            0 => CreateDisposition::Supersede,
            1 => CreateDisposition::Open,
            2 => CreateDisposition::Create,
            3 => CreateDisposition::OpenIf,
            4 => CreateDisposition::Overwrite,
            5 => CreateDisposition::OverwriteIf,
            other => CreateDisposition::Other(other),
        }
    }

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            CreateDisposition::Supersede => "supersede",
            CreateDisposition::Open => "open",
            CreateDisposition::Create => "create",
            CreateDisposition::OpenIf => "open-if",
            CreateDisposition::Overwrite => "overwrite",
            CreateDisposition::OverwriteIf => "overwrite-if",
            CreateDisposition::Other(_) => "other",
        }
    }
}

/// The effect of a request on the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateResult {
    /// It was replaced by a new file.
    Superseded,
    /// It was opened.
    Opened,
    /// It was created.
    Created,
    /// It was opened and truncated.
    Overwritten,
    /// None, because the file exists.
    Exists,
    /// None, because the file does not exist.
    DoesNotExist,
    /// None: the path is redirected by a reparse point, and another request follows.
    Redirected,
    /// None: the request failed with another status.
    Refused,
    /// The request succeeded, but its effect is not recorded.
    Unclear,
    /// Windows does not return this result for the disposition, so the end may belong to another
    /// request.
    Contradictory,
}

impl CreateResult {
    /// The result from the NTSTATUS and the information value of the end of a create.
    pub fn of(status: u32, information: u64) -> CreateResult {
        const REPARSE: u32 = 0x104;
        const NAME_NOT_FOUND: u32 = 0xc000_0034;
        const NAME_COLLISION: u32 = 0xc000_0035;
        const PATH_NOT_FOUND: u32 = 0xc000_003a;
        let succeeded = status >> 31 == 0;
        match (status, information) {
            (REPARSE, _) => CreateResult::Redirected,
            (NAME_COLLISION, _) => CreateResult::Exists,
            (NAME_NOT_FOUND | PATH_NOT_FOUND, _) => CreateResult::DoesNotExist,
            (_, 4) => CreateResult::Exists,
            (_, 5) => CreateResult::DoesNotExist,
            _ if !succeeded => CreateResult::Refused,
            (_, 0) => CreateResult::Superseded,
            (_, 1) => CreateResult::Opened,
            (_, 2) => CreateResult::Created,
            (_, 3) => CreateResult::Overwritten,
            _ => CreateResult::Unclear,
        }
    }

    /// The same result, or [`Contradictory`](CreateResult::Contradictory) if NtCreateFile does not
    /// return it for the disposition.
    fn for_request(self, requested: CreateDisposition) -> CreateResult {
        use CreateResult::{Contradictory, Created, Opened, Overwritten, Superseded};
        let possible: &[CreateResult] = match requested {
            CreateDisposition::Supersede => &[Superseded, Created],
            CreateDisposition::Open => &[Opened],
            CreateDisposition::Create => &[Created],
            CreateDisposition::OpenIf => &[Opened, Created],
            CreateDisposition::Overwrite => &[Overwritten],
            CreateDisposition::OverwriteIf => &[Overwritten, Created],
            CreateDisposition::Other(_) => return self,
        };
        match self {
            Superseded | Opened | Created | Overwritten if !possible.contains(&self) => Contradictory,
            other => other,
        }
    }

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            CreateResult::Superseded => "superseded",
            CreateResult::Opened => "opened",
            CreateResult::Created => "created",
            CreateResult::Overwritten => "overwritten",
            CreateResult::Exists => "exists",
            CreateResult::DoesNotExist => "does-not-exist",
            CreateResult::Redirected => "redirected",
            CreateResult::Refused => "refused",
            CreateResult::Unclear => "unclear",
            CreateResult::Contradictory => "contradictory",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateEnd {
    /// Its end was recorded.
    Completed {
        /// NTSTATUS.
        status: u32,
        /// The effect on the file.
        result: CreateResult,
        /// Time of the end.
        time: TraceTime,
    },
    /// It did not end within the window.
    Late,
    /// Another operation used the same IRP before an end was recorded: the end was lost.
    Displaced,
    /// The trace ends before the request does.
    Unfinished,
    /// The event has no IRP.
    Unnamed,
}

impl CreateEnd {
    /// Whether it is known that the request failed.
    pub fn has_failed(self) -> bool {
        matches!(self, CreateEnd::Completed { status, .. } if status >> 31 == 1)
    }

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            CreateEnd::Completed { .. } => "completed",
            CreateEnd::Late => "late",
            CreateEnd::Displaced => "displaced",
            CreateEnd::Unfinished => "unfinished",
            CreateEnd::Unnamed => "unnamed",
        }
    }
}

/// A request to create or open a file, with its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateOutcome {
    /// The disposition that was requested.
    pub requested: CreateDisposition,
    /// How it ended.
    pub end: CreateEnd,
}

/// Finds the operations on files that decide the outcomes of some creates: of each, the next one with
/// its IRP. Memory holds the creates that wait for it.
#[derive(Debug, Default)]
pub struct CreateEnds(hashbrown::HashSet<Request, foldhash::fast::RandomState>);

impl CreateEnds {
    /// Adds an event whose outcome is needed. Events that are not creates have none.
    pub fn await_end(&mut self, event: &Event<'_>) {
        if let Some((family, Operation::Create { irp, .. })) = Operation::of(event)
            && irp != 0
        {
            self.0.insert((event.session_number(), family, irp));
        }
    }

    /// Whether an event decides the outcome of a create that waits.
    pub fn is_end(&mut self, event: &Event<'_>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some((family, operation)) = Operation::of(event) else { return false };
        let (Operation::Create { irp, .. } | Operation::End { irp, .. } | Operation::Other { irp }) =
            operation
        else {
            return false;
        };
        self.0.remove(&(event.session_number(), family, irp))
    }
}

impl CreateOutcome {
    /// Whether the request only opened an existing file. The result decides; if it is not known, or
    /// if the request had no effect, the requested disposition decides.
    pub fn is_open(&self) -> bool {
        use CreateResult::{Created, Opened, Overwritten, Superseded};
        match self.end {
            CreateEnd::Completed { result: Opened, .. } => true,
            CreateEnd::Completed { result: Created | Overwritten | Superseded, .. } => false,
            _ => self.requested == CreateDisposition::Open,
        }
    }
}

/// Counters of a [`CreateJoin`]. Each create counts once: joined, late, displaced, unfinished,
/// unnamed or malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CreateStats {
    /// Creates whose end was recorded.
    pub joined: u64,
    /// Joined creates with the result [`CreateResult::Contradictory`].
    pub contradictory: u64,
    /// Creates that did not end within the window.
    pub late: u64,
    /// Creates whose IRP was used by another operation before an end was recorded.
    pub displaced: u64,
    /// Creates that had not ended at the end of the trace.
    pub unfinished: u64,
    /// Creates without an IRP.
    pub unnamed: u64,
    /// Creates and ends whose payload could not be read.
    pub malformed: u64,
    /// Ends without a create: ends of other operations, and of creates that are late or older than
    /// the trace.
    pub other_ends: u64,
}

/// Identifies a request: session number, kind of events, and address of the IRP.
type Request = (u32, Family, u64);

/// A create whose event has not left the correlator yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    event: EventKey,
    request: Option<Request>,
    requested: CreateDisposition,
    end: Option<CreateEnd>,
}

/// Maximum number of ends that are kept until the time advances.
const SAME_INSTANT_MAX: usize = 64;

/// Joins creates and their ends.
///
/// Call [`push`](CreateJoin::push) for each event that enters the correlator,
/// [`end`](CreateJoin::end) after the last one, and [`outcome`](CreateJoin::outcome) for each event
/// that leaves it.
#[derive(Debug)]
pub struct CreateJoin {
    window: Window,
    /// In the order in which they enter and leave the correlator.
    creates: VecDeque<Pending>,
    /// Sequence number of the first of `creates`.
    first: u64,
    /// Sequence number of the create that currently uses the IRP.
    open: Map<Request, u64>,
    newest: TraceTime,
    /// Ends without a create that have exactly the newest time. Events with equal times have no
    /// defined order, so the create can follow.
    just_ended: Vec<(Request, CreateEnd)>,
    /// Whether a create was dropped before its event left the correlator. If not, the events of all
    /// pending creates are still to come.
    has_dropped: bool,
    ended: bool,
    stats: CreateStats,
}

impl CreateJoin {
    /// A join for events that pass through a correlator with this window.
    pub fn new(window: Window) -> CreateJoin {
        CreateJoin {
            window,
            creates: VecDeque::new(),
            first: 0,
            open: Map::default(),
            newest: TraceTime(i64::MIN),
            just_ended: Vec::new(),
            has_dropped: false,
            ended: false,
            stats: CreateStats::default(),
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> CreateStats {
        self.stats
    }

    /// Adds the events that [`push`](CreateJoin::push) uses.
    pub fn select(selection: Selection) -> Selection {
        operation::select(selection)
    }

    /// Observes an event that enters the correlator.
    pub fn push(&mut self, event: &Event<'_>) {
        if let Some((family, operation)) = Operation::of(event) {
            self.take(event, family, operation);
        }
    }

    /// Marks the end of the trace: no more events follow.
    pub fn end(&mut self) {
        self.ended = true;
        self.stats.other_ends += self.just_ended.drain(..).count() as u64;
    }

    fn take(&mut self, event: &Event<'_>, family: Family, operation: Operation) {
        let time = event.time();
        if time > self.newest {
            self.newest = time;
            self.stats.other_ends += self.just_ended.len() as u64;
            self.just_ended.clear();
        }
        let request = |irp: u64| (event.session_number(), family, irp);
        match operation {
            Operation::Create { irp, disposition } => {
                let request = (irp != 0).then_some(request(irp));
                self.begin(event.key(), request, CreateDisposition::of(disposition));
            }
            Operation::End { irp, status, information } => {
                let end =
                    CreateEnd::Completed { status, result: CreateResult::of(status, information), time };
                self.finish(request(irp), end, time);
            }
            Operation::Other { irp } => {
                if let Some(number) = self.open.remove(&request(irp)) {
                    self.settle(number, CreateEnd::Displaced);
                }
            }
            Operation::Malformed => self.stats.malformed += 1,
        }
    }

    fn begin(&mut self, event: EventKey, request: Option<Request>, requested: CreateDisposition) {
        if self.creates.len() >= self.window.max_pending {
            self.has_dropped |= self.drop_first().is_some();
        }
        let number = self.first + self.creates.len() as u64;
        let mut end = request.is_none().then_some(CreateEnd::Unnamed);
        if let Some(request) = request {
            if let Some(position) = self.just_ended.iter().position(|(ended, _)| *ended == request) {
                end = Some(self.just_ended.swap_remove(position).1);
            } else if let Some(before) = self.open.insert(request, number) {
                self.settle(before, CreateEnd::Displaced);
            }
        }
        self.creates.push_back(Pending { event, request, requested, end });
    }

    fn finish(&mut self, request: Request, end: CreateEnd, time: TraceTime) {
        let Some(number) = self.open.remove(&request) else {
            if self.just_ended.len() < SAME_INSTANT_MAX {
                self.just_ended.push((request, end));
            } else {
                self.stats.other_ends += 1;
            }
            return;
        };
        let begun = self.pending(number).map(|create| create.event.time);
        let in_time = begun.is_some_and(|begun| time.0.saturating_sub(begun.0) <= self.window.max_hold);
        self.settle(number, if in_time { end } else { CreateEnd::Late });
    }

    fn pending(&mut self, number: u64) -> Option<&mut Pending> {
        self.creates.get_mut(number.checked_sub(self.first)? as usize)
    }

    fn settle(&mut self, number: u64, end: CreateEnd) {
        if let Some(create) = self.pending(number) {
            create.end.get_or_insert(end);
        }
    }

    /// The outcome of a create that leaves the correlator. `None` for other events, and for creates
    /// whose payload cannot be read.
    #[inline]
    pub fn outcome(&mut self, event: &Event<'_>) -> Option<CreateOutcome> {
        let is_pending = self.creates.front().is_some_and(|create| create.event.time == event.time());
        if !is_pending && !self.has_dropped {
            return None;
        }
        let (_, Operation::Create { disposition, .. }) = Operation::of(event)? else { return None };
        let late = CreateOutcome { requested: CreateDisposition::of(disposition), end: CreateEnd::Late };
        if self.creates.front().is_none_or(|create| create.event != event.key()) {
            // It was already dropped and counted.
            return Some(late);
        }
        self.drop_first()
    }

    /// Drops the oldest create: an end that follows is not joined.
    fn drop_first(&mut self) -> Option<CreateOutcome> {
        let create = self.creates.pop_front()?;
        let number = self.first;
        self.first += 1;
        let open = create.request.filter(|request| self.open.get(request) == Some(&number));
        if let Some(request) = open {
            self.open.remove(&request);
        }
        let never = if self.ended { CreateEnd::Unfinished } else { CreateEnd::Late };
        let mut end = create.end.unwrap_or(never);
        if let CreateEnd::Completed { result, .. } = &mut end {
            *result = result.for_request(create.requested);
            self.stats.contradictory += u64::from(*result == CreateResult::Contradictory);
        }
        let counter = match end {
            CreateEnd::Completed { .. } => &mut self.stats.joined,
            CreateEnd::Late => &mut self.stats.late,
            CreateEnd::Displaced => &mut self.stats.displaced,
            CreateEnd::Unfinished => &mut self.stats.unfinished,
            CreateEnd::Unnamed => &mut self.stats.unnamed,
        };
        *counter += 1;
        Some(CreateOutcome { requested: create.requested, end })
    }
}
