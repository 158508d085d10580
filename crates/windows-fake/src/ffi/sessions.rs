//! The running sessions: those started by this process, and those that the settings add.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::feed::Counters;
use crate::properties::{REAL_TIME, Session, State};
use crate::settings::Settings;

use super::{code, console};

/// Default limit of Windows.
pub(super) const SESSIONS_MAX: usize = 64;

/// A session that is running or was stopped.
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
    /// Names of stopped sessions, and the times until which they cannot be reused.
    held: Vec<(String, Instant)>,
    /// Names of sessions from the settings that were already added.
    added: Vec<String>,
}

/// Number of processors of a machine whose sessions write files.
const PROCESSORS: usize = 4;

/// `EVENT_TRACE_FILE_MODE_SEQUENTIAL`.
const FILE_SEQUENTIAL: u32 = 1;

static SESSIONS: Mutex<Option<Sessions>> = Mutex::new(None);

/// Notifies waiting consumers of a change.
static CHANGED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// Time of the last call of a controller.
static CONTROLLED: Mutex<Option<Instant>> = Mutex::new(None);

/// Registers a call of a controller.
pub(super) fn controlled() {
    *lock(&CONTROLLED) = Some(Instant::now());
}

/// Time since the last call of a controller. A session that ends with its trace must not end while
/// it is being configured, even if the trace is short.
pub(super) fn time_since_control() -> Duration {
    lock(&CONTROLLED).map_or(Duration::MAX, |last| last.elapsed())
}

/// Locks a mutex. Ignores poisoning, because a panic never leaves inconsistent state here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes waiting consumers after a change.
pub(super) fn changed() {
    let _waiting = lock(&CHANGED.0);
    CHANGED.1.notify_all();
}

/// Waits for a change, at most for this time.
pub(super) fn wait(time: Duration) {
    let waiting = lock(&CHANGED.0);
    // A change directly before this call is noticed after the timeout.
    drop(CHANGED.1.wait_timeout(waiting, time.min(Duration::from_millis(20))));
}

impl Running {
    pub fn is_stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Stops the session. Returns `false` if it was already stopped.
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

    /// Writes the file of a session that has one. If the session also delivers in real time, it
    /// flushes all buffers once per second, and writes them even if they are almost empty
    /// (Microsoft's page "Logging Mode Constants").
    fn write_file(&self) {
        let session = lock(&self.session).clone();
        if session.mode & FILE_SEQUENTIAL == 0 || session.file.is_empty() {
            return;
        }
        let etl_file = Settings::of_environment().session(&session.name).etl_file;
        let mut bytes = etl_file.map_or(Vec::new(), |path| std::fs::read(path).expect("a readable trace"));
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
        // The handle is the number of a slot, which is reused when its session has ended.
        let is_free = |&handle: &u64| self.running.iter().all(|running| running.handle != handle);
        let running = Arc::new(Running {
            handle: (1..).find(is_free).expect("a free slot"),
            session: Mutex::new(session),
            counters: Mutex::new(Counters::default()),
            started: Instant::now(),
            stopped: Mutex::new(false),
        });
        self.running.push(running.clone());
        running
    }

    /// Adds the sessions of the settings, each of them once.
    fn add_existing(&mut self, settings: &Settings) {
        let real_time = settings.exists.iter().map(|name| (name, REAL_TIME));
        for (name, mode) in real_time.chain(settings.files.iter().map(|name| (name, FILE_SEQUENTIAL))) {
            if self.added.iter().any(|known| known == name) {
                continue;
            }
            self.added.push(name.clone());
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

/// Starts a session, unless one with this name is running or the limit is reached.
pub(super) fn start(mut session: Session) -> Result<Arc<Running>, u32> {
    let settings = Settings::of_environment();
    with(|sessions| {
        sessions.add_existing(&settings);
        sessions.held.retain(|(_, until)| *until > Instant::now());
        let is_held = sessions.held.iter().any(|(name, _)| name.eq_ignore_ascii_case(&session.name));
        if is_held || sessions.named(&session.name).is_some() {
            return Err(code::ALREADY_EXISTS);
        }
        if sessions.running.len() >= SESSIONS_MAX {
            return Err(code::NO_SYSTEM_RESOURCES);
        }
        // Windows chooses values that are not set, and uses at least two buffers per processor.
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

/// The session with a handle, or with a name if the handle is zero.
pub(super) fn find(handle: u64, name: &str) -> Option<Arc<Running>> {
    let settings = Settings::of_environment();
    with(|sessions| {
        sessions.add_existing(&settings);
        match handle {
            0 => sessions.named(name),
            _ => sessions.running.iter().find(|running| running.handle == handle).cloned(),
        }
    })
}

/// A session that is not running: it delivers no events.
pub(super) fn not_running(name: &str) -> Arc<Running> {
    Arc::new(Running {
        handle: 0,
        session: Mutex::new(Session { name: name.to_owned(), ..Session::default() }),
        counters: Mutex::new(Counters::default()),
        started: Instant::now(),
        stopped: Mutex::new(true),
    })
}

/// All running sessions.
pub(super) fn all() -> Vec<Arc<Running>> {
    let settings = Settings::of_environment();
    with(|sessions| {
        sessions.add_existing(&settings);
        sessions.running.clone()
    })
}
