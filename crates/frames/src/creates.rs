//! The outcome of requests to create or open files.
//!
//! The request to create or open a file has the stack; its result is recorded when the
//! request ends, by an event that names nothing but the request. [`CreateJoin`] brings the two together.
//!
//! It holds no events: the correlator does already. Events are shown to the join when they go into the correlator, and
//! when a create comes out, its end has been seen if it came within the correlator's window. So reading in one pass and
//! in two gives the same, a create comes no later than without the join, and memory is bounded by the window.

use std::collections::VecDeque;

use hashbrown::HashMap;
use stackhound_stacks::Window;
use stackhound_trace::{Event, TraceTime};

use crate::operation::{Family, Operation};

/// What to do about a file that is there, or is not.
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
    /// Open it with its contents dropped; never create it.
    Overwrite,
    /// Open it with its contents dropped, or create it.
    OverwriteIf,
    /// A number that Windows does not know.
    Other(u8),
}

impl CreateDisposition {
    /// Of the upper eight bits of a create's options.
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

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CreateResult {
    /// It was replaced by a new one.
    Superseded,
    /// It was opened as it was.
    Opened,
    /// It was created.
    Created,
    /// It was opened and its contents dropped.
    Overwritten,
    /// Nothing, as it was there already.
    Exists,
    /// Nothing, as it was not there.
    DoesNotExist,
    /// Nothing here: the path leads elsewhere, where another request follows.
    Redirected,
    /// Nothing: see the status.
    Refused,
    /// The request succeeded, but does not say how.
    Unclear,
    /// The end states a result that Windows does not give for the request, so it may be the end of another one.
    Contradictory,
}

impl CreateResult {
    /// From the status and information of the end of a create.
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

    /// The same, or [`Contradictory`](CreateResult::Contradictory) if NtCreateFile does not give it for the disposition.
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
        /// What became of the file.
        result: CreateResult,
        /// When.
        time: TraceTime,
    },
    /// It did not end within the window.
    Late,
    /// Another operation had the same request before any end was recorded: the end was lost.
    Displaced,
    /// The recording ends first.
    Unfinished,
    /// The event names no request.
    Unnamed,
}

impl CreateEnd {
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

/// A file that was requested for, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreateOutcome {
    /// What was requested.
    pub requested: CreateDisposition,
    /// How it ended.
    pub end: CreateEnd,
}

impl CreateOutcome {
    /// Whether this only opened what was there: by what became of it, or where that is not known or nothing became of
    /// it, by what was requested.
    pub fn is_open(&self) -> bool {
        use CreateResult::{Created, Opened, Overwritten, Superseded};
        match self.end {
            CreateEnd::Completed { result: Opened, .. } => true,
            CreateEnd::Completed { result: Created | Overwritten | Superseded, .. } => false,
            _ => self.requested == CreateDisposition::Open,
        }
    }
}

/// Counters of a [`CreateJoin`]. Each create counts once: joined, late, displaced, unfinished, unnamed or malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CreateStats {
    /// Creates whose end was recorded.
    pub joined: u64,
    /// Of these, creates whose end states a result that their request cannot have.
    pub contradictory: u64,
    /// Creates that did not end within the window.
    pub late: u64,
    /// Creates whose request was used for something else before any end.
    pub displaced: u64,
    /// Creates that had not ended when the recording did.
    pub unfinished: u64,
    /// Creates without a request.
    pub unnamed: u64,
    /// Creates and ends whose payload could not be read.
    pub malformed: u64,
    /// Ends of requests that no create is known of: those of other operations, and of creates that are late or older
    /// than the recording.
    pub other_ends: u64,
}

/// Which request: of which session, by which kind of events, its address.
type Request = (u32, Family, u64);

/// A create whose event did not leave the correlator yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    event: EventKey,
    request: Option<Request>,
    requested: CreateDisposition,
    end: Option<CreateEnd>,
}

/// Enough to know an event again among those that wait.
type EventKey = (u32, Option<u16>, u32, TraceTime);

fn key(event: &Event<'_>) -> EventKey {
    (event.session_number(), event.processor(), event.index(), event.time())
}

/// Ends that came at the very instant of an event to come.
const SAME_INSTANT_MAX: usize = 64;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Joins creates and their ends.
#[derive(Debug)]
pub struct CreateJoin {
    window: Window,
    /// In the order in which they went into the correlator, and will leave it.
    creates: VecDeque<Pending>,
    /// The number of the first of `creates`.
    first: u64,
    /// The create that is under way, by its number.
    open: Map<Request, u64>,
    newest: TraceTime,
    /// Ends without a create that have exactly the newest time: events of one instant are in no order.
    just_ended: Vec<(Request, CreateEnd)>,
    ended: bool,
    stats: CreateStats,
}

impl CreateJoin {
    /// For events that go through a correlator with this window.
    pub fn new(window: Window) -> CreateJoin {
        CreateJoin {
            window,
            creates: VecDeque::new(),
            first: 0,
            open: Map::default(),
            newest: TraceTime(i64::MIN),
            just_ended: Vec::new(),
            ended: false,
            stats: CreateStats::default(),
        }
    }

    /// What was counted.
    pub fn stats(&self) -> CreateStats {
        self.stats
    }

    /// Takes in an event that goes into the correlator.
    #[inline]
    pub fn push(&mut self, event: &Event<'_>) {
        if let Some((family, operation)) = Operation::of(event) {
            self.take(event, family, operation);
        }
    }

    /// Says that no more events come.
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
                self.begin(key(event), request, CreateDisposition::of(disposition));
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
            self.drop_first();
        }
        let number = self.first + self.creates.len() as u64;
        let mut end = request.is_none().then_some(CreateEnd::Unnamed);
        if let Some(request) = request {
            if let Some(location) = self.just_ended.iter().position(|(ended, _)| *ended == request) {
                end = Some(self.just_ended.swap_remove(location).1);
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
        let begun = self.pending(number).map(|create| create.event.3);
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

    /// What became of a create that leaves the correlator; `None` for other events, and for creates that cannot be read.
    #[inline]
    pub fn outcome(&mut self, event: &Event<'_>) -> Option<CreateOutcome> {
        let (_, Operation::Create { disposition, .. }) = Operation::of(event)? else { return None };
        let late = CreateOutcome { requested: CreateDisposition::of(disposition), end: CreateEnd::Late };
        if self.creates.front().is_none_or(|create| create.event != key(event)) {
            // It was dropped before, and counted.
            return Some(late);
        }
        self.drop_first()
    }

    /// Gives the oldest create up: from now on its end is late.
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
