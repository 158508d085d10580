//! Access to the memory of the processes of this machine, through Windows.

use stackhound_detect::{Memory, MemoryKind, SiteBytes};
use stackhound_types::{FileTime, Pid};
use stackhound_windows::memory::{Kind, Process, State, take_debug_privilege};

use super::{Answer, Look, Open};

/// An address that every process can query, with or without memory.
const SOMEWHERE: u64 = 0x1_0000;

pub(super) fn opener() -> Open {
    // Without the privilege, fewer processes can be opened; failures are counted.
    let _ = take_debug_privilege();
    Box::new(open)
}

fn open(pid: Pid, at: FileTime) -> Option<Look> {
    let process = Process::open(pid.0).ok()?;
    let created = i64::try_from(process.created().ok()?).ok()?;
    // Windows reuses process ids.
    if created > at.0 {
        return None;
    }
    Some(Box::new(move |address| look(&process, address)))
}

fn look(process: &Process, address: u64) -> Answer {
    let state = match process.region(address) {
        Ok(region) => region.state,
        // Stacks contain arbitrary values. If the process has not ended, the address is invalid.
        Err(_) if process.region(SOMEWHERE).is_ok() => return Answer::Nothing,
        Err(_) => return Answer::Gone,
    };
    let State::Committed { kind, protection } = state else { return Answer::Nothing };
    let kind = match kind {
        Kind::Image => Some(MemoryKind::Image),
        Kind::Mapped => Some(MemoryKind::Mapped),
        Kind::Private => Some(MemoryKind::Private),
        Kind::Other(_) => None,
    };
    let bytes = bytes(process, address);
    // After the bytes were read, so that the page is in memory.
    let is_original = if kind == Some(MemoryKind::Image) { process.is_original(address) } else { None };
    Answer::Found { memory: Memory { kind, protection: Some(protection), is_original }, bytes }
}

fn bytes(process: &Process, address: u64) -> Option<SiteBytes> {
    let mut site = [[0; 16]; 2];
    let start = address.checked_sub(site[0].len() as u64)?;
    let read = process.read(start, site.as_flattened_mut());
    let [before, after] = site;
    (read == site.as_flattened().len()).then_some(SiteBytes { before, after })
}
