//! The blocks of one stream, read ahead on a thread pool if there is one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::ThreadPool;
use stackhound_etl::{Block, BufferRef, Damage, EtlFile, Selection};

use crate::scans::Scans;

/// Jobs of a stream that are loaded ahead of the current one.
const AHEAD: usize = 1;

/// Maximum number of buffers in a job, and of their bytes in the file. Threads sleep between jobs,
/// and waking them costs as much as scanning a small buffer.
const JOB: usize = 8;
const JOB_BYTES: u32 = 256 << 10;

pub(crate) type Loaded = Result<(Block, Option<Damage>), Damage>;

/// How blocks are loaded; shared by all streams of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Loading {
    pub pool: Option<Arc<ThreadPool>>,
    /// Reads only these records, and keeps the entries of all others in `scans`.
    pub selection: Option<Arc<Selection>>,
    pub scans: Arc<Scans>,
}

impl Loading {
    /// Loads a buffer of the source at an index of the trace.
    fn load(&self, source: usize, etl_file: &EtlFile, buffer: &BufferRef) -> Loaded {
        let key = (source, buffer.offset);
        if let Some(selection) = &self.selection {
            let (block, damage, packed) = etl_file.block_and_pack(buffer, selection)?;
            if let Some(packed) = packed {
                self.scans.keep(key, packed);
            }
            return Ok((block, damage));
        }
        match self.scans.take(key) {
            Some(packed) => etl_file.block_again(buffer, &packed),
            None => etl_file.block(buffer, None),
        }
    }
}

/// One stream's buffers, in order.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The index of the source in the trace.
    index: usize,
    etl_file: EtlFile,
    buffers: std::vec::IntoIter<BufferRef>,
    loading: Loading,
    /// The rest of the current job.
    loaded: std::vec::IntoIter<Loaded>,
    in_work: VecDeque<Receiver<Vec<Loaded>>>,
    /// Whether records were lost to damage since the latest block.
    pub has_lost: bool,
}

impl Feed {
    /// Reads buffers of the source at an index of the trace.
    pub fn new(index: usize, etl_file: EtlFile, buffers: Vec<BufferRef>, loading: Loading) -> Feed {
        let (buffers, loaded) = (buffers.into_iter(), Vec::new().into_iter());
        Feed { index, etl_file, buffers, loading, loaded, in_work: VecDeque::new(), has_lost: false }
    }

    /// The number of the source.
    pub fn source(&self) -> u16 {
        self.etl_file.number()
    }

    /// The next block, or its damage; `None` after the last one.
    pub fn next(&mut self) -> Option<Loaded> {
        let Some(pool) = self.loading.pool.clone() else {
            let buffer = self.buffers.next()?;
            return Some(self.loading.load(self.index, &self.etl_file, &buffer));
        };
        if let Some(loaded) = self.loaded.next() {
            return Some(loaded);
        }
        while self.in_work.len() <= AHEAD {
            let job = self.next_job();
            if job.is_empty() {
                break;
            }
            let (sender, receiver) = sync_channel(1);
            let (index, etl_file, loading) = (self.index, self.etl_file.clone(), self.loading.clone());
            pool.spawn(move || {
                // The receiver is dropped only together with the whole feed.
                let _ =
                    sender.send(job.iter().map(|buffer| loading.load(index, &etl_file, buffer)).collect());
            });
            self.in_work.push_back(receiver);
        }
        let receiver = self.in_work.pop_front()?;
        self.loaded = receiver.recv().expect("a job ends with a result").into_iter();
        self.loaded.next()
    }

    fn next_job(&mut self) -> Vec<BufferRef> {
        let (mut job, mut bytes) = (Vec::new(), 0);
        while job.len() < JOB && bytes < JOB_BYTES {
            let Some(buffer) = self.buffers.next() else { break };
            bytes += buffer.size;
            job.push(buffer);
        }
        job
    }
}
