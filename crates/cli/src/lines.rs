//! Writes batches of events as lines of JSON, in their order. With several threads, the lines are
//! created on the others while the calling thread reads the trace, and on that one if they are busy.

use std::io::Write;
use std::panic;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use stackhound_export::json::event_rows::Batch;

use crate::output::Sink;

/// Writes batches to an output.
#[derive(Debug)]
pub enum LineWriter {
    /// On the calling thread. The bytes are those of the last batch, which keep their memory.
    Here(Sink, Vec<u8>),
    /// On other threads.
    Threads(Workers),
}

/// Threads that create lines.
#[derive(Debug)]
pub struct Workers {
    /// `None` at the end.
    work: Option<SyncSender<(u64, Work)>>,
    /// The number of batches so far.
    sent: u64,
    output: Arc<Output>,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread writes when it is its turn.
#[derive(Debug)]
enum Work {
    /// The lines of these events, which the thread creates.
    Batch(Batch),
    /// These lines.
    Lines(Vec<u8>),
}

/// The output, which the threads use one after the other in the order of the batches.
#[derive(Debug)]
struct Output {
    state: Mutex<State>,
    turn_changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// `None` after the end.
    sink: Option<Sink>,
    /// The number of the next batch to write.
    turn: u64,
    /// Further batches are not written.
    failure: Option<anyhow::Error>,
    /// Whether a thread ended without its turn.
    is_broken: bool,
}

/// Maximum number of threads: more would wait for the one that reads.
const WORKERS_MAX: usize = 4;

/// Batches that wait for a thread.
const WAITING_MAX: usize = 4;

impl LineWriter {
    /// Creates a writer that uses this number of threads, including the calling one.
    pub fn new(sink: Sink, threads: usize) -> Result<LineWriter> {
        let workers = threads.saturating_sub(1).min(WORKERS_MAX);
        if workers == 0 {
            return Ok(LineWriter::Here(sink, Vec::new()));
        }
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let state = Mutex::new(State { sink: Some(sink), turn: 0, failure: None, is_broken: false });
        let output = Arc::new(Output { state, turn_changed: Condvar::new() });
        let receiver = Arc::new(Mutex::new(receiver));
        let start = || {
            let (receiver, output) = (Arc::clone(&receiver), Arc::clone(&output));
            let thread = thread::Builder::new().name("lines".to_owned());
            thread.spawn(move || work(&receiver, &output)).context("cannot start a thread")
        };
        let threads = (0..workers).map(|_| start()).collect::<Result<_>>()?;
        Ok(LineWriter::Threads(Workers { work: Some(sender), sent: 0, output, threads }))
    }

    /// Writes a batch, at once or as soon as a thread has the time.
    ///
    /// # Errors
    /// This batch or an earlier one cannot be written.
    pub fn write(&mut self, batch: Batch) -> Result<()> {
        match self {
            LineWriter::Here(sink, lines) => {
                lines.clear();
                batch.append_lines(lines)?;
                Ok(sink.write_all(lines)?)
            }
            LineWriter::Threads(workers) => {
                let failure = workers.output.lock().failure.take();
                if let Some(failure) = failure {
                    return Err(failure);
                }
                workers.send(batch)
            }
        }
    }

    /// Flushes all batches.
    ///
    /// # Errors
    /// Writing fails.
    pub fn flush(&mut self) -> Result<()> {
        match self {
            LineWriter::Here(sink, _) => Ok(sink.flush()?),
            LineWriter::Threads(workers) => {
                let mut state = workers.output.wait_for(workers.sent);
                match (state.failure.take(), &mut state.sink) {
                    (Some(failure), _) => Err(failure),
                    (None, Some(sink)) => Ok(sink.flush()?),
                    (None, None) => Ok(()),
                }
            }
        }
    }

    /// Writes all batches and completes the output.
    ///
    /// # Errors
    /// Writing fails.
    pub fn finish(self) -> Result<()> {
        match self {
            LineWriter::Here(sink, _) => sink.finish(),
            LineWriter::Threads(mut workers) => {
                if let Err(reason) = workers.end() {
                    panic::resume_unwind(reason);
                }
                let mut state = workers.output.lock();
                match (state.failure.take(), state.sink.take()) {
                    (Some(failure), _) => Err(failure),
                    (None, Some(sink)) => sink.finish(),
                    (None, None) => Ok(()),
                }
            }
        }
    }
}

impl Workers {
    /// Passes a batch on. If all threads are busy, the calling one creates the lines instead of
    /// waiting for them.
    fn send(&mut self, batch: Batch) -> Result<()> {
        let Some(work) = &self.work else { return Ok(()) };
        let is_sent = match work.try_send((self.sent, Work::Batch(batch))) {
            Err(TrySendError::Full((number, Work::Batch(batch)))) => {
                let mut lines = Vec::new();
                batch.append_lines(&mut lines)?;
                work.send((number, Work::Lines(lines))).is_ok()
            }
            sent => sent.is_ok(),
        };
        // If all threads have ended, `finish` reports the reason.
        self.sent += u64::from(is_sent);
        Ok(())
    }

    /// Waits until all batches are written. Returns the panic of a thread.
    fn end(&mut self) -> thread::Result<()> {
        self.work = None;
        self.threads.drain(..).map(JoinHandle::join).fold(Ok(()), Result::and)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // On an error, the output is dropped, which removes an incomplete file.
        let _ = self.end();
    }
}

/// Creates and writes the lines of batches until there are no more.
fn work(work: &Mutex<Receiver<(u64, Work)>>, output: &Output) {
    let _at_panic = MarkBroken(output);
    let mut lines = Vec::new();
    loop {
        let received = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, work)) = received else { return };
        let created = match work {
            Work::Batch(batch) => {
                lines.clear();
                batch.append_lines(&mut lines)
            }
            Work::Lines(of_caller) => {
                lines = of_caller;
                Ok(())
            }
        };
        let mut state = output.wait_for(number);
        if state.is_broken {
            return;
        }
        if state.failure.is_none()
            && let Some(sink) = &mut state.sink
            && let Err(error) = created.and_then(|()| sink.write_all(&lines))
        {
            // Nothing that follows a gap is written.
            state.failure = Some(error.into());
            state.sink = None;
        }
        state.turn = number + 1;
        output.turn_changed.notify_all();
    }
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all batches before this one are written.
    fn wait_for(&self, number: u64) -> MutexGuard<'_, State> {
        let state = self.lock();
        let waits = |state: &mut State| state.turn != number && !state.is_broken;
        self.turn_changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner)
    }
}

/// If its thread panics, ends the threads that would wait for its turn.
struct MarkBroken<'o>(&'o Output);

impl Drop for MarkBroken<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().is_broken = true;
            self.0.turn_changed.notify_all();
        }
    }
}
