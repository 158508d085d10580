//! Who asks.

use std::thread::sleep;
use std::time::Duration;

use stackhound_kstack_proto::{AnswerHeader, Capture, Code, MAGIC, Request, VERSION, Version};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Device, Error, Reply, Thread};

/// How long a driver that is busy is asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Attempts in all, at least one.
    pub attempts: u32,
    /// How long to wait between two.
    pub pause: Duration,
}

impl Default for Patience {
    /// A tenth of a second in all: other captures end within that, but for those that wait for threads that do not react.
    fn default() -> Self {
        Patience { attempts: 5, pause: Duration::from_millis(25) }
    }
}

/// Asks the driver. Not for several threads at a time: each opens the device for itself.
#[derive(Debug)]
pub struct Client<D> {
    device: D,
    patience: Patience,
    /// Of the next request.
    id: u64,
    /// For answers.
    buffer: Vec<u8>,
}

impl<D: Device> Client<D> {
    /// Asks the device what version it speaks.
    ///
    /// # Errors
    /// [`Error::OtherVersion`] if it is not ours, [`Error::NotOurs`] if it is no answer of the driver.
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

    /// Asks for one stack. The request gets a number of its own, whatever `id` is in `capture`. Waits as long as the capture allows, and
    /// for a driver that is busy as long as the [`Patience`] says.
    ///
    /// # Errors
    /// If there is no answer to it. Nothing can be said of the thread then.
    pub fn capture(&mut self, capture: &Capture) -> Result<Reply, Error> {
        let capture = Capture { id: self.id, ..*capture };
        let request = Request::from(capture);
        // A refusal of the driver does not say what is wrong.
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

    /// Asks for the stacks of several threads of a process, one after another, as each is taken from the iterator. What else is asked is
    /// what `like` says. May take its limit of time, and the time of the [`Patience`], for each thread.
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
