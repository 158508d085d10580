//! The blocks of one stream, read ahead on a thread pool if there is one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::ThreadPool;
use stackhound_etl::{Block, BufferRef, Damage, EtlFile, Selection};

/// Jobs of a stream that are loaded ahead of the current one.
const AHEAD: usize = 1;

/// Maximum number of buffers in a job, and of their bytes in the file. Threads sleep between jobs,
/// and waking them costs as much as scanning a small buffer.
const JOB: usize = 8;
const JOB_BYTES: u32 = 256 << 10;

pub(crate) type Loaded = Result<(Block, Vec<Damage>), Damage>;

/// How blocks are loaded; shared by all streams of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Loading {
    pub pool: Option<Arc<ThreadPool>>,
    pub selection: Option<Arc<Selection>>,
}

/// One stream's buffers, in order.
#[derive(Debug)]
pub(crate) struct Feed {
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
    pub fn new(etl_file: EtlFile, buffers: Vec<BufferRef>, loading: Loading) -> Feed {
        let (buffers, loaded) = (buffers.into_iter(), Vec::new().into_iter());
        Feed { etl_file, buffers, loading, loaded, in_work: VecDeque::new(), has_lost: false }
    }

    /// The number of the source.
    pub fn source(&self) -> u16 {
        self.etl_file.number()
    }

    /// The next block, or its damage; `None` after the last one.
    pub fn next(&mut self) -> Option<Loaded> {
        let Some(pool) = self.loading.pool.clone() else {
            let buffer = self.buffers.next()?;
            return Some(self.etl_file.block(&buffer, self.loading.selection.as_deref()));
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
            let (etl_file, selection) = (self.etl_file.clone(), self.loading.selection.clone());
            pool.spawn(move || {
                // The receiver is dropped only together with the whole feed.
                let _ = sender
                    .send(job.iter().map(|buffer| etl_file.block(buffer, selection.as_deref())).collect());
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
