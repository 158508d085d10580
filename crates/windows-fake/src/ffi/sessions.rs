//! The sessions that run in this process, and those that the settings say run elsewhere.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::feed::Counters;
use crate::properties::{REAL_TIME, Session, State};
use crate::settings::Settings;

use super::{code, console};

/// Windows has 64 of them by default.
pub(super) const SESSIONS_MAX: usize = 64;

/// A session that runs or was stopped.
#[derive(Debug)]
pub(super) struct Running {
    pub handle: u64,
    pub session: Mutex<Session>,
    pub counters: Mutex<Counters>,
    started: Instant,
    stopped: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Sessions {
    running: Vec<Arc<Running>>,
    /// Names of sessions that were stopped, until when nobody can have them.
    held: Vec<(String, Instant)>,
    /// Names that the settings brought in, so that each comes once.
    brought: Vec<String>,
}

/// Processors of a machine whose sessions write files.
const PROCESSORS: usize = 4;

/// `EVENT_TRACE_FILE_MODE_SEQUENTIAL`.
const FILE_SEQUENTIAL: u32 = 1;

static SESSIONS: Mutex<Option<Sessions>> = Mutex::new(None);

/// Something changed that a waiting consumer should look at.
static CHANGED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// When a controller last did something to a session.
static CONTROLLED: Mutex<Option<Instant>> = Mutex::new(None);

/// A controller does something to a session.
pub(super) fn controlled() {
    *lock(&CONTROLLED) = Some(Instant::now());
}

/// How long no controller has done anything. A session that ends with its recording must not end while it is set up,
/// however short the recording is.
pub(super) fn left_alone() -> Duration {
    lock(&CONTROLLED).map_or(Duration::MAX, |last| last.elapsed())
}

/// A panic elsewhere leaves no state here half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells waiting consumers to look.
pub(super) fn changed() {
    let _waiting = lock(&CHANGED.0);
    CHANGED.1.notify_all();
}

/// Waits for a change, or as long.
pub(super) fn wait(time: Duration) {
    let waiting = lock(&CHANGED.0);
    // A change just before this is seen when the time is over.
    drop(CHANGED.1.wait_timeout(waiting, time.min(Duration::from_millis(20))));
}

impl Running {
    pub fn is_stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Ends the session; `false` if it has ended before.
    pub fn stop(&self) -> bool {
        let first = !std::mem::replace(&mut *lock(&self.stopped), true);
        let held = Duration::from_millis(Settings::of_environment().name_held_ms);
        with(|sessions| {
            sessions.running.retain(|running| !std::ptr::eq(&**running, self));
            if first {
                sessions.held.push((lock(&self.session).name.clone(), Instant::now() + held));
            }
        });
        if first {
            self.write_file();
        }
        changed();
        first
    }

    /// What a session leaves that writes a file: its recording. One in real time besides flushes all buffers once a second, and
    /// they are written however little is in them (Microsoft's page "Logging Mode Constants").
    fn write_file(&self) {
        let session = lock(&self.session).clone();
        if session.mode & FILE_SEQUENTIAL == 0 || session.file.is_empty() {
            return;
        }
        let etl_file = Settings::of_environment().session(&session.name).etl_file;
        let mut bytes = etl_file.map_or(Vec::new(), |path| std::fs::read(path).expect("the recording"));
        if session.mode & REAL_TIME != 0 {
            let seconds = self.started.elapsed().as_secs() as usize;
            bytes.resize(bytes.len() + seconds * PROCESSORS * session.buffer_size as usize * 1024, 0xff);
        }
        std::fs::write(&session.file, &bytes).expect("the session's file is written");
        lock(&self.counters).buffers = (bytes.len() / (session.buffer_size.max(1) as usize * 1024)) as u64;
    }

    pub fn state(&self) -> State {
        let counters = *lock(&self.counters);
        let buffers = lock(&self.session).minimum_buffers;
        State {
            handle: self.handle,
            buffers,
            free: buffers,
            events_lost: counters.events_lost as u32,
            buffers_written: counters.buffers as u32,
            real_time_buffers_lost: counters.buffers_lost as u32,
        }
    }
}

fn with<T>(use_them: impl FnOnce(&mut Sessions) -> T) -> T {
    use_them(lock(&SESSIONS).get_or_insert_default())
}

impl Sessions {
    fn add(&mut self, session: Session) -> Arc<Running> {
        // The number of the slot, which the next session gets when this one has ended.
        let is_free = |&handle: &u64| self.running.iter().all(|running| running.handle != handle);
        let running = Arc::new(Running {
            handle: (1..).find(is_free).expect("a number"),
            session: Mutex::new(session),
            counters: Mutex::new(Counters::default()),
            started: Instant::now(),
            stopped: Mutex::new(false),
        });
        self.running.push(running.clone());
        running
    }

    fn bring(&mut self, settings: &Settings) {
        let listened = settings.exists.iter().map(|name| (name, REAL_TIME));
        for (name, mode) in listened.chain(settings.files.iter().map(|name| (name, FILE_SEQUENTIAL))) {
            if self.brought.iter().any(|known| known == name) {
                continue;
            }
            self.brought.push(name.clone());
            self.add(Session {
                name: name.clone(),
                clock: 1,
                buffer_size: 64,
                minimum_buffers: 4,
                maximum_buffers: 26,
                mode,
                flush_timer: 1,
                ..Session::default()
            });
        }
    }

    fn named(&self, name: &str) -> Option<Arc<Running>> {
        self.running.iter().find(|running| lock(&running.session).name.eq_ignore_ascii_case(name)).cloned()
    }
}

/// Starts a session, unless there is one of that name, or too many.
pub(super) fn start(mut session: Session) -> Result<Arc<Running>, u32> {
    let settings = Settings::of_environment();
    with(|sessions| {
        sessions.bring(&settings);
        sessions.held.retain(|(_, until)| *until > Instant::now());
        let is_held = sessions.held.iter().any(|(name, _)| name.eq_ignore_ascii_case(&session.name));
        if is_held || sessions.named(&session.name).is_some() {
            return Err(code::ALREADY_EXISTS);
        }
        if sessions.running.len() >= SESSIONS_MAX {
            return Err(code::NO_SYSTEM_RESOURCES);
        }
        // Windows chooses where nothing is asked for, and has two buffers a processor at least.
        let or = |value: &mut u32, least: u32| *value = (*value).max(least);
        if session.buffer_size == 0 {
            session.buffer_size = 64;
        }
        or(&mut session.minimum_buffers, 4);
        let least = session.minimum_buffers + if session.maximum_buffers == 0 { 22 } else { 0 };
        or(&mut session.maximum_buffers, least);
        session.clock = session.clock.max(1);
        session.groups[0] = session.flags;
        console::send(&settings.console);
        Ok(sessions.add(session))
    })
}

/// The session with a handle, or with a name where the handle is zero.
pub(super) fn find(handle: u64, name: &str) -> Option<Arc<Running>> {
    let settings = Settings::of_environment();
    with(|sessions| {
        sessions.bring(&settings);
        match handle {
            0 => sessions.named(name),
            _ => sessions.running.iter().find(|running| running.handle == handle).cloned(),
        }
    })
}

/// A session that does not run: it hands nothing over.
pub(super) fn none(name: &str) -> Arc<Running> {
    Arc::new(Running {
        handle: 0,
        session: Mutex::new(Session { name: name.to_owned(), ..Session::default() }),
        counters: Mutex::new(Counters::default()),
        started: Instant::now(),
        stopped: Mutex::new(true),
    })
}

/// All that run.
pub(super) fn all() -> Vec<Arc<Running>> {
    let settings = Settings::of_environment();
    with(|sessions| {
        sessions.bring(&settings);
        sessions.running.clone()
    })
}
