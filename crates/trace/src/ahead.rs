//! A merge on a thread of its own.
//!
//! It delivers the same events and counters as [`Merge`] does on the calling thread. Events are
//! passed on in batches, because the exchange between the threads costs more than the merge of one.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use stackhound_etl::{Block, Damage, Entry};

use crate::event::{Event, TraceTime};
use crate::merge::Merge;
use crate::stats::Stats;

/// Maximum number of events in a batch.
const BATCH: usize = 1 << 11;

/// Maximum number of batches that wait for the reader.
const WAITING: usize = 2;

/// One event, and the index of its block in the batch.
#[derive(Clone, Copy, Debug)]
struct Merged {
    entry: Entry,
    time: TraceTime,
    index: u32,
    block: u32,
}

/// What the counters of buffers and damage are from an event of the batch on.
#[derive(Debug)]
struct Note {
    /// The index of the event.
    at: usize,
    buffers: u64,
    damage: Vec<(u16, Damage)>,
}

#[derive(Debug, Default)]
struct Batch {
    blocks: Vec<Arc<Block>>,
    events: Vec<Merged>,
    notes: Vec<Note>,
}

impl Batch {
    fn clear(&mut self) {
        self.blocks.clear();
        self.events.clear();
        self.notes.clear();
    }
}

/// The events of a merge that runs on another thread.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// `None` after the end.
    batches: Option<Receiver<Batch>>,
    /// Batches to be filled again.
    used: Sender<Batch>,
    worker: Option<JoinHandle<Box<Merge>>>,
    /// The merge, after the end.
    merged: Option<Box<Merge>>,
    batch: Batch,
    /// The index of the next event in the batch.
    next: usize,
    /// The index of the next note in the batch.
    noted: usize,
    stats: Stats,
    last: TraceTime,
}

impl Ahead {
    /// Starts the thread; returns the merge if that is not possible.
    pub fn start(merge: Box<Merge>) -> Result<Ahead, Box<Merge>> {
        let (sender, batches) = sync_channel(WAITING);
        let (used, to_fill) = channel();
        let stats = merge.stats().clone();
        // A merge cannot be taken back from a thread that did not start, so it is sent to it.
        let (hand_over, handed_over) = sync_channel::<Box<Merge>>(1);
        let work = move || {
            let merge = handed_over.recv().expect("the merge is sent at once");
            fill(merge, &sender, &to_fill)
        };
        match std::thread::Builder::new().name("merge".to_owned()).spawn(work) {
            Err(_) => Err(merge),
            Ok(worker) => {
                hand_over.send(merge).expect("the thread waits for the merge");
                let (batch, last) = (Batch::default(), TraceTime(i64::MIN));
                let (batches, worker) = (Some(batches), Some(worker));
                Ok(Ahead { batches, used, worker, merged: None, batch, next: 0, noted: 0, stats, last })
            }
        }
    }

    /// The next event; `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Option<Event<'_>> {
        loop {
            if self.batch.notes.get(self.noted).is_some_and(|note| note.at == self.next) {
                self.note();
            }
            if let Some(&Merged { entry, time, index, block }) = self.batch.events.get(self.next) {
                self.next += 1;
                self.stats.count(&mut self.last, time);
                return Some(Event::again(&self.batch.blocks[block as usize], entry, index, time));
            }
            if !self.receive() {
                return None;
            }
        }
    }

    #[cold]
    fn note(&mut self) {
        let note = &mut self.batch.notes[self.noted];
        self.stats.buffers = note.buffers;
        self.stats.damage.append(&mut note.damage);
        self.noted += 1;
    }

    /// Gets the next batch. False at the end.
    #[cold]
    fn receive(&mut self) -> bool {
        let Some(batches) = &self.batches else { return false };
        let Ok(batch) = batches.recv() else {
            // Either the end, or a panic, which must not look like the end.
            self.merged = self.join();
            return false;
        };
        let mut used = std::mem::replace(&mut self.batch, batch);
        (self.next, self.noted) = (0, 0);
        used.clear();
        // The thread ends before the last batches are used.
        let _ = self.used.send(used);
        true
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Ends the thread, and returns its merge.
    pub fn into_merge(mut self) -> Option<Box<Merge>> {
        self.merged.take().or_else(|| self.join())
    }

    /// A panic of the thread continues here.
    fn join(&mut self) -> Option<Box<Merge>> {
        self.batches = None;
        self.worker.take()?.join().map_err(|panic| resume_unwind(panic)).ok()
    }
}

/// Ends the thread before the sources that it reads are closed.
impl Drop for Ahead {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// Merges until the end, or until the batches are not received any more.
fn fill(mut merge: Box<Merge>, batches: &SyncSender<Batch>, used: &Receiver<Batch>) -> Box<Merge> {
    let (mut buffers, mut damage) = (merge.stats().buffers, merge.stats().damage.len());
    let mut batch = Batch::default();
    // The index in the batch of each stream's block.
    let mut block_of: Vec<Option<u32>> = vec![None; merge.streams()];
    loop {
        let step = merge.step();
        let stats = merge.stats();
        if (stats.buffers, stats.damage.len()) != (buffers, damage) {
            let found = stats.damage[damage..].to_vec();
            (buffers, damage) = (stats.buffers, stats.damage.len());
            batch.notes.push(Note { at: batch.events.len(), buffers, damage: found });
            // The stream of this step has a new block; others may have none any more.
            block_of.fill(None);
        }
        let Some((stream, time)) = step else { break };
        let event = merge.event(stream, time);
        let block = *block_of[stream as usize].get_or_insert_with(|| {
            batch.blocks.push(Arc::clone(event.block()));
            batch.blocks.len() as u32 - 1
        });
        batch.events.push(Merged { entry: event.entry(), time, index: event.index(), block });
        if batch.events.len() == BATCH {
            let next = used.try_recv().unwrap_or_default();
            if batches.send(std::mem::replace(&mut batch, next)).is_err() {
                return merge;
            }
            block_of.fill(None);
        }
    }
    let _ = batches.send(batch);
    merge
}
