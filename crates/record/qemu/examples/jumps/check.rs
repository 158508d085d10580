use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use stackhound_calltree::journal::{self, Writer};
use stackhound_calltree::{Location, Trace};
use stackhound_qemu_plugin::protocol::{Kind, Record};
use stackhound_record_qemu::{Recorder, System};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The lowest address of the kernel.
const KERNEL: u64 = 1 << 63;
/// Maximum distance from the call of a retpoline to its target.
const NEAR: u64 = 32;

/// A return address that a call has stored.
#[derive(Clone, Copy)]
struct Stored {
    return_address: u64,
    /// The address of the call.
    call: u64,
    /// The function that returns to it: the target of the call, or of a later jump.
    function: u64,
    /// The call leads to the directly following code.
    is_near: bool,
}

/// How often retpolines reached a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    /// From a thunk that was called.
    called: u64,
    /// From a function with nothing on its stack.
    tail_called: u64,
}

#[derive(Default)]
struct Expected {
    /// By the address of the slot.
    stored: HashMap<u64, Stored>,
    /// By function.
    reached: BTreeMap<u64, Reached>,
    thunks: HashSet<u64>,
    /// Jumps that did not leave a function.
    inside: u64,
}

impl Expected {
    fn take(&mut self, record: &Record) {
        // Code has the address at which it was translated first, which can be that before paging.
        if record.sp_before < KERNEL {
            return;
        }
        match record.kind {
            Kind::Call => {
                let return_address = record.pc_before + u64::from(record.length);
                let is_near = record.pc_after.wrapping_sub(return_address) <= NEAR;
                let (call, function) = (record.pc_before, record.pc_after);
                self.stored.insert(record.sp_after, Stored { return_address, call, function, is_near });
            }
            Kind::Return => {
                let Some(used) = self.stored.remove(&record.sp_before) else { return };
                if used.is_near && used.return_address != record.pc_after {
                    self.retpoline(used.call, record.sp_after, record.pc_after);
                }
            }
            _ => {}
        }
    }

    /// A retpoline has jumped to a function.
    fn retpoline(&mut self, thunk: u64, slot: u64, function: u64) {
        let Some(stored) = self.stored.get_mut(&slot) else {
            self.inside += 1;
            return;
        };
        let reached = self.reached.entry(function).or_default();
        if stored.function == thunk {
            self.thunks.insert(thunk);
            reached.called += 1;
        } else {
            reached.tail_called += 1;
        }
        stored.function = function;
    }
}

pub fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: jumps KERNEL INITRD JOURNAL [ARGUMENT…]";
    let mut path = || arguments.next().map(PathBuf::from).ok_or(usage);
    let (kernel, initrd, output) = (path()?, path()?, path()?);
    let arguments: Vec<OsString> = arguments.collect();
    let recorder = Recorder::start(&System { kernel, initrd: Some(initrd), arguments })?;
    let writer = Writer::new(BufWriter::new(File::create(&output)?))?;
    let mut expected = Expected::default();
    let never = AtomicBool::new(false);
    recorder.record_observed(u64::MAX, &never, writer, |_| {}, |record| expected.take(record))?;

    let (trace, _) = journal::trace(&std::fs::read(&output)?)?;
    compare(&trace, &expected)
}

fn compare(trace: &Trace, expected: &Expected) -> Result<()> {
    let is_thunk = |location: &Location<'_>| {
        let is_named = location.symbol().is_some_and(|name| name.starts_with("__x86_indirect_"));
        is_named || location.address().is_some_and(|address| expected.thunks.contains(&address.0))
    };
    let mut named_after_thunks = 0;
    let mut found: BTreeMap<u64, Reached> = BTreeMap::new();
    for (location, count) in trace.call_counts() {
        if is_thunk(&location) {
            named_after_thunks += count;
        }
        if location.stub().is_some_and(|stub| is_thunk(&stub))
            && let Some(address) = location.address()
        {
            found.entry(address.0).or_default().called += count;
        }
    }
    let called: u64 = expected.reached.values().map(|reached| reached.called).sum();
    eprintln!(
        "{} of {} frames are named after one of {} thunks; retpolines that were called reached {} functions {called} times",
        named_after_thunks,
        trace.frame_count(),
        expected.thunks.len(),
        expected.reached.values().filter(|reached| reached.called > 0).count(),
    );
    let differs = |(function, reached): &(&u64, &Reached)| {
        found.get(function).map_or(0, |found| found.called) != reached.called
    };
    let different: Vec<_> = expected.reached.iter().filter(differs).collect();
    for (function, reached) in &different {
        eprintln!("{function:#x}: {reached:?} expected, {:?} found", found.get(function));
    }
    if named_after_thunks > 0 || called == 0 || !different.is_empty() {
        return Err(format!("the frames of {} functions differ", different.len()).into());
    }
    Ok(())
}
