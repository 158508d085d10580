use std::collections::{BTreeMap, BTreeSet, HashSet};
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
/// The length of a stack, of which its address is a multiple.
const STACK: u64 = 16 << 10;
/// Maximum distance from the call of a retpoline to its target.
const NEAR: u64 = 32;

/// A return address that a call has stored.
struct Stored {
    return_address: u64,
    /// The address of the call.
    call: u64,
    /// The function that returns to it: the target of the call, or of a later jump.
    function: u64,
    /// The call leads to the directly following code.
    is_near: bool,
    /// The functions that jumps reached.
    jumps: Vec<u64>,
}

/// How often jumps reached a function.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// By a retpoline that was called, and did not do anything else.
    called: u64,
    /// In any way.
    all: u64,
    /// Those of `all` that may not have left a function: later, the memory of the return address was used for
    /// something else, such as the stack of another thread, perhaps before the jump.
    uncertain: u64,
}

impl Reached {
    fn allows(&self, found: &Reached) -> bool {
        let all = self.all - self.uncertain..=self.all;
        found.called == self.called && all.contains(&found.all)
    }
}

#[derive(Default)]
struct Expected {
    /// By the address of the slot.
    stored: BTreeMap<u64, Stored>,
    /// By function.
    reached: BTreeMap<u64, Reached>,
    thunks: HashSet<u64>,
    /// The kernel was entered from user mode, and has not loaded the pointer of a thread's stack.
    is_entering: bool,
    /// The functions that retpolines reached.
    by_return: HashSet<u64>,
}

impl Expected {
    fn take(&mut self, record: &Record) {
        if matches!(record.kind, Kind::Space | Kind::Begun | Kind::Hooked | Kind::End) {
            return;
        }
        self.free(record);
        match record.kind {
            // Code has the address at which it was translated first, which can be that before paging.
            _ if record.sp_before < KERNEL => {}
            Kind::Call => {
                let return_address = record.pc_before.wrapping_add(u64::from(record.length));
                let is_near = record.pc_after.wrapping_sub(return_address) <= NEAR;
                let (call, function) = (record.pc_before, record.pc_after);
                let jumps = Vec::new();
                let stored = Stored { return_address, call, function, is_near, jumps };
                self.stored.insert(record.sp_after, stored);
            }
            Kind::Return => {
                let Some(used) = self.stored.remove(&record.sp_before) else { return };
                if used.return_address == record.pc_after {
                    return;
                }
                if used.is_near {
                    self.jump(Some(used.call), record.sp_after, record.pc_after);
                }
                for function in used.jumps {
                    self.reached.entry(function).or_default().uncertain += 1;
                }
            }
            Kind::Jump => self.jump(None, record.sp_before, record.pc_after),
            _ => {}
        }
    }

    /// Forgets the slots that are free at a record: those below the stack pointer, and all on the first stacks
    /// that the kernel uses after user mode.
    fn free(&mut self, record: &Record) {
        let is_load = record.kind == Kind::Load;
        let stack = |sp: u64| sp & !(STACK - 1);
        if record.kind == Kind::SystemCall || record.kind == Kind::Interrupt && record.ring_before == 3 {
            self.is_entering = true;
        }
        let changes = stack(record.sp_after) != stack(record.sp_before) && record.sp_after >= KERNEL;
        let (lowest, end) = if changes && self.is_entering && (is_load || record.kind == Kind::Interrupt) {
            self.is_entering = record.kind == Kind::Interrupt;
            (stack(record.sp_after), stack(record.sp_after).saturating_add(STACK))
        } else {
            (stack(record.sp_before), record.sp_before)
        };
        while let Some((&slot, _)) = self.stored.range(lowest..end).next_back() {
            self.stored.remove(&slot);
        }
    }

    /// A jump leads to a function, from a thunk if it is a retpoline. It leaves the function before if the slot
    /// is that of a return address.
    fn jump(&mut self, thunk: Option<u64>, slot: u64, function: u64) {
        let Some(stored) = self.stored.get_mut(&slot).filter(|stored| stored.function != function) else {
            return;
        };
        let reached = self.reached.entry(function).or_default();
        reached.all += 1;
        if let Some(thunk) = thunk {
            self.by_return.insert(function);
            if stored.function == thunk {
                self.thunks.insert(thunk);
                reached.called += 1;
            }
        }
        stored.function = function;
        stored.jumps.push(function);
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
        if let (Some(stub), Some(address)) = (location.stub(), location.address()) {
            let reached = found.entry(address.0).or_default();
            reached.called += if is_thunk(&stub) { count } else { 0 };
            reached.all += count;
        }
    }
    for tail_call in trace.tail_calls_where(|_| true) {
        if let Some(address) = tail_call.location().and_then(|location| location.address()) {
            found.entry(address.0).or_default().all += 1;
        }
    }
    found.retain(|_, reached| reached.all > 0);
    let sum = |count: fn(&Reached) -> u64| expected.reached.values().map(count).sum::<u64>();
    let (called, all) = (sum(|reached| reached.called), sum(|reached| reached.all));
    let uncertain = sum(|reached| reached.uncertain);
    eprintln!(
        "{named_after_thunks} of {} frames are named after one of {} thunks; retpolines reached {} functions, {called} times \
         by a call; jumps reached {} functions {all} times ({uncertain} uncertain)",
        trace.frame_count(),
        expected.thunks.len(),
        expected.by_return.len(),
        expected.reached.len(),
    );
    let functions: BTreeSet<&u64> = found.keys().chain(expected.reached.keys()).collect();
    let different: Vec<_> = functions
        .into_iter()
        .map(|function| {
            let reached = |of: &BTreeMap<u64, Reached>| of.get(function).copied().unwrap_or_default();
            (function, reached(&expected.reached), reached(&found))
        })
        .filter(|(_, expected, found)| !expected.allows(found))
        .collect();
    for (function, expected, found) in &different {
        eprintln!("{function:#x}: expected {expected:?}, found {found:?}");
    }
    if named_after_thunks > 0 || called == 0 || all == called || !different.is_empty() {
        return Err(format!("{} functions differ", different.len()).into());
    }
    Ok(())
}
