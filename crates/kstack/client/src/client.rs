//! The client of the driver.

use std::thread::sleep;
use std::time::Duration;

use stackhound_kstack_proto::{AnswerHeader, Capture, Code, MAGIC, Request, VERSION, Version};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Device, Error, Reply, Thread};

/// The retries if the driver is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// The total number of attempts, at least one.
    pub attempts: u32,
    /// The pause between two attempts.
    pub pause: Duration,
}

impl Default for Patience {
    /// A tenth of a second in total. Other captures end within this time, except those that wait
    /// for threads that do not react.
    fn default() -> Self {
        Patience { attempts: 5, pause: Duration::from_millis(25) }
    }
}

/// A client of the driver. It serves one thread at a time; several threads open one client each.
#[derive(Debug)]
pub struct Client<D> {
    device: D,
    patience: Patience,
    /// The id of the next request.
    id: u64,
    /// The buffer for answers.
    buffer: Vec<u8>,
}

impl<D: Device> Client<D> {
    /// Creates a client for a device, and requests the version of its driver.
    ///
    /// # Errors
    /// [`Error::OtherVersion`] if the driver has another version, [`Error::NotOurs`] if the answer
    /// is not that of the driver.
    pub fn over(mut device: D, patience: Patience) -> Result<Client<D>, Error> {
        let mut answer = [0; size_of::<Version>()];
        let written = device.control(Code::Version, &[], &mut answer)?;
        let answer = answer.get(..written).and_then(|bytes| Version::read_from_bytes(bytes).ok());
        let version = answer.filter(|version| version.magic == MAGIC).ok_or(Error::NotOurs)?;
        if version.version != VERSION {
            return Err(Error::OtherVersion { driver: version.version.get() });
        }
        Ok(Client { device, patience, id: 1, buffer: Vec::new() })
    }

    /// Captures the stack of one thread. The field `id` of `capture` is replaced by an id of the
    /// client. Waits at most for the timeout of the capture and, if the driver is busy, for the
    /// retries of the [`Patience`].
    ///
    /// # Errors
    /// If there is no valid answer. Then nothing is known about the thread.
    pub fn capture(&mut self, capture: &Capture) -> Result<Reply, Error> {
        let capture = Capture { id: self.id, ..*capture };
        let request = Request::from(capture);
        // A refusal of the driver does not contain the reason.
        Request::parse(request.as_bytes()).map_err(Error::Request)?;
        self.id += 1;
        self.buffer.resize(AnswerHeader::length_with(capture.max_frames.into()), 0);
        let mut attempts = 1;
        let written = loop {
            let answered = self.device.control(Code::Capture, request.as_bytes(), &mut self.buffer);
            match answered.map_err(Error::from) {
                Ok(written) => break written,
                Err(Error::Busy { .. }) if attempts < self.patience.attempts => attempts += 1,
                Err(Error::Busy { .. }) => return Err(Error::Busy { attempts }),
                Err(error) => return Err(error),
            }
            sleep(self.patience.pause);
        };
        Reply::read(&self.buffer[..written.min(self.buffer.len())], &capture)
    }

    /// Captures the stacks of several threads of a process, one after another, as the iterator is
    /// advanced. All other fields of the requests are those of `like`. May take the timeout and the
    /// retries of the [`Patience`] for each thread.
    pub fn captures(
        &mut self,
        threads: impl IntoIterator<Item = Thread>,
        like: Capture,
    ) -> impl Iterator<Item = (Thread, Result<Reply, Error>)> {
        threads.into_iter().map(move |thread| {
            let capture = Capture { tid: thread.id, created: thread.created, ..like };
            (thread, self.capture(&capture))
        })
    }
}
