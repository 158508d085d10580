//! A device that answers with a script.

use std::collections::VecDeque;
use std::time::Duration;

use stackhound_kstack_client::{Client, Device, Error, Patience, Refused, Reply};
use stackhound_kstack_proto::{
    AnswerError, AnswerHeader, Code, MAGIC, Missing, Outcome, Request, VERSION, Version, hash,
};
use zerocopy::IntoBytes;

use crate::{PATIENCE, of};

type Answer = Result<Vec<u8>, u32>;

struct Scripted {
    answers: VecDeque<Answer>,
}

impl Device for &mut Scripted {
    fn control(&mut self, _: Code, _: &[u8], output: &mut [u8]) -> Result<usize, Refused> {
        let answer = self.answers.pop_front().expect("another answer");
        let bytes = answer.map_err(|code| Refused { function: "F", code, text: String::new() })?;
        let length = bytes.len().min(output.len());
        output[..length].copy_from_slice(&bytes[..length]);
        // Returns the full length, which may exceed the buffer. The client must not trust it.
        Ok(bytes.len())
    }
}

fn version(magic: u32, version: u16) -> Vec<u8> {
    let version = Version {
        magic: magic.into(),
        version: version.into(),
        max_frames: 256.into(),
        max_timeout_ms: 1000.into(),
        max_outstanding: 64.into(),
        abilities: 0.into(),
    };
    version.as_bytes().to_vec()
}

/// The answer to the first request, [`of`] thread 7.
fn answer(kernel: &[u64], user: &[u64], change: impl FnOnce(&mut AnswerHeader)) -> Vec<u8> {
    let capture = Request::parse(Request::from(of(7)).as_bytes()).expect("a request");
    let mut header =
        AnswerHeader::new(&stackhound_kstack_proto::Capture { id: 1, ..capture }, Outcome::Captured);
    header.kernel_count = (kernel.len() as u16).into();
    header.user_count = (user.len() as u16).into();
    let entries = [kernel, user].concat();
    header.hash = hash(entries.iter().copied()).into();
    change(&mut header);
    let entries = entries.iter().flat_map(|entry| entry.to_le_bytes());
    header.as_bytes().iter().copied().chain(entries).collect()
}

fn open(device: &mut Scripted) -> Result<Client<&mut Scripted>, Error> {
    Client::over(device, PATIENCE)
}

#[test]
fn other_versions_and_other_drivers_are_distinguished() {
    for (answer, expected) in [
        (Ok(version(MAGIC, VERSION)), None),
        (Ok(version(MAGIC, VERSION + 1)), Some(Error::OtherVersion { driver: VERSION + 1 })),
        (Ok(version(MAGIC + 1, VERSION)), Some(Error::NotOurs)),
        (Ok(version(MAGIC, VERSION)[..15].to_vec()), Some(Error::NotOurs)),
        (Ok([version(MAGIC, VERSION), vec![0]].concat()), Some(Error::NotOurs)),
        (Ok(vec![]), Some(Error::NotOurs)),
        (Err(5), Some(Error::Denied)),
        (Err(2), Some(Error::NotLoaded)),
        (Err(1), Some(Error::System(Refused { function: "F", code: 1, text: String::new() }))),
    ] {
        let mut device = Scripted { answers: [answer].into() };
        assert_eq!(open(&mut device).err(), expected);
    }
}

#[test]
fn damaged_answers_are_rejected() {
    let (kernel, user) = (0xffff_f800_0000_1000, 0x7ff6_0000_1000);
    let good = answer(&[kernel], &[user], |_| {});
    let swapped = answer(&[kernel, kernel + 8], &[user], |header| header.hash = hash([user]).into());
    for (bytes, expected) in [
        (good.clone(), None),
        (answer(&[kernel], &[Missing::System.sentinel()], |_| {}), None),
        (good[..good.len() - 1].to_vec(), Some(AnswerError::Length(good.len() - 1))),
        (good[..9].to_vec(), Some(AnswerError::Length(9))),
        (swapped, Some(AnswerError::Hash)),
        (answer(&[kernel], &[user], |header| header.id = 2.into()), Some(AnswerError::Other)),
        (answer(&[kernel], &[user], |header| header.tid = 8.into()), Some(AnswerError::Other)),
        (
            answer(&[kernel], &[user], |header| header.version = (VERSION + 1).into()),
            Some(AnswerError::Layout),
        ),
        // A requested stack has entries.
        (answer(&[kernel], &[], |_| {}), Some(AnswerError::Value)),
        (answer(&[], &[user], |_| {}), Some(AnswerError::Value)),
    ] {
        let mut device = Scripted { answers: [Ok(version(MAGIC, VERSION)), Ok(bytes)].into() };
        let mut client = open(&mut device).expect("the same version");
        let found = client.capture(&of(7));
        match expected {
            Some(expected) => assert_eq!(found, Err(Error::Damaged(expected))),
            None => assert!(matches!(found, Ok(Reply::Captured(_))), "{found:?}"),
        }
    }
}

#[test]
fn an_answer_longer_than_its_buffer_is_rejected() {
    let claimed = vec![0; AnswerHeader::length_with(257)];
    let mut device = Scripted { answers: [Ok(version(MAGIC, VERSION)), Ok(claimed)].into() };
    let found = open(&mut device).expect("the same version").capture(&of(7));
    assert_eq!(found, Err(Error::Damaged(AnswerError::Layout)));
}

#[test]
fn a_busy_driver_is_retried_a_limited_number_of_times() {
    let good = || Ok(answer(&[0xffff_f800_0000_1000], &[0x7ff6_0000_1000], |_| {}));
    for (attempts, answers, expected) in [
        (3, vec![Err(170), Err(170), good()], Ok(())),
        (3, vec![Err(170), Err(170), Err(170)], Err(Error::Busy { attempts: 3 })),
        (1, vec![Err(170)], Err(Error::Busy { attempts: 1 })),
        (0, vec![Err(170)], Err(Error::Busy { attempts: 1 })),
        (3, vec![Err(170), Err(5)], Err(Error::Denied)),
    ] {
        let answers = [Ok(version(MAGIC, VERSION))].into_iter().chain(answers).collect();
        let mut device = Scripted { answers };
        let patience = Patience { attempts, pause: Duration::from_millis(1) };
        let mut client = Client::over(&mut device, patience).expect("the same version");
        assert_eq!(client.capture(&of(7)).map(|_| ()), expected);
        assert!(device.answers.is_empty(), "{attempts}");
    }
}
