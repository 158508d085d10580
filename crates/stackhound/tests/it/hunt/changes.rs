//! The cache key of an evaluation covers all facts that it depends on: in a small system in which
//! everything changes frequently, cached evaluations are compared with those of a session without a
//! cache.

use std::ops::ControlFlow;

use stackhound::detect::{Binaries, Verdict};
use stackhound::hunt::HuntSession;
use stackhound::schema::SchemaStore;
use stackhound::testing::{OwnedEvent, RecordBuilder, write_etl};
use stackhound::trace::TraceFiles;
use stackhound::{Address, FileTime, Guid, Passes, Pipeline};

const PROCESS: Guid =
    Guid::new(0x3d6f_a8d0, 0xfe05, 0x11d0, [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);
const THREAD: Guid = Guid::new(0x3d6f_a8d1, 0xfe05, 0x11d0, [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);
const PAGE_FAULT: Guid =
    Guid::new(0x3d6f_a8d3, 0xfe05, 0x11d0, [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);
const IMAGE: Guid = Guid::new(0x2cb1_5d1d, 0x5fc1, 0x11d2, [0xab, 0xe1, 0x00, 0xa0, 0xc9, 0x11, 0xf5, 0x18]);
/// Microsoft-Windows-Kernel-Audit-API-Calls.
const AUDIT: Guid = Guid::new(0xe02a_841c, 0x75a3, 0x4fa7, [0xaf, 0xc8, 0xae, 0x09, 0xcf, 0x9b, 0x7f, 0x23]);
/// Its events: the context of a thread is set, a process is opened.
const ACTS: [u16; 2] = [4, 5];

const PIDS: [u32; 3] = [400, 404, 408];
const TIDS: [u32; 4] = [1000, 1004, 1008, 1012];
const PROGRAMS: [&str; 3] = ["program.exe", "lsass.exe", "PROGRAM.EXE"];
/// Base addresses of images.
const BASES: [u64; 4] = [0x7ffa_1000_0000, 0x7ffa_2000_0000, 0x7ff6_3000_0000, 0x1_8000_0000];
const IMAGES: [&str; 6] = [
    r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll",
    r"\Device\HarddiskVolume3\Windows\System32\kernel32.dll",
    r"\Device\HarddiskVolume3\Program Files\Program\program.exe",
    r"\Device\HarddiskVolume3\Users\a\ntdll.dll",
    r"\Device\HarddiskVolume3\Windows\System32\win32u.dll",
    r"\Device\HarddiskVolume3\Windows\Microsoft.NET\Framework64\v4.0.30319\clr.dll",
];
const SIZE: u64 = 0x20_0000;
const DRIVERS: [u64; 2] = [0xffff_f800_1000_0000, 0xffff_f800_2000_0000];
/// Memory that is allocated from time to time.
const MEMORY: [u64; 2] = [0x24f_6400_0000, 0x7ffa_8000_0000];

/// Generates random events.
struct Fate {
    random: u64,
    time: FileTime,
    store: SchemaStore,
    events: Vec<OwnedEvent>,
    /// Few stacks, so that each is repeated often. One is empty.
    stacks: Vec<Vec<Address>>,
}

impl Fate {
    fn new(seed: u64) -> Fate {
        let time = FileTime(133_500_000_000_000_000);
        let (store, events, stacks) = (SchemaStore::new(), Vec::new(), vec![Vec::new()]);
        let mut fate = Fate { random: seed, time, store, events, stacks };
        for _ in 0..6 {
            let frames = (0..2 + fate.below(3)).map(|_| Address(fate.address())).collect();
            fate.stacks.push(frames);
        }
        fate
    }

    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 33) as usize % end
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn log(&mut self, event: RecordBuilder) {
        // Some events occur at the same time.
        self.time.0 += 1000 * self.below(4) as i64;
        self.events.push(event.at(self.time).pack_incomplete(&mut self.store).unwrap());
    }

    fn address(&mut self) -> u64 {
        match self.below(10) {
            0 => self.one(&DRIVERS) + 0x1000,
            1 => self.one(&MEMORY) + 0x40,
            _ => self.one(&BASES) + self.one(&[0x1000, 0x2010]),
        }
    }

    fn load(&mut self, pid: u32, base: u64, image: &str) {
        let load = RecordBuilder::classic(IMAGE, 10, 2).pid(pid).with("ImageBase", base);
        let load = load.with("ImageSize", SIZE).with("ProcessId", pid).with("FileName", image);
        self.log(load);
    }

    fn change(&mut self) {
        let (pid, tid) = (self.one(&PIDS), self.one(&TIDS));
        match self.below(16) {
            0 => {
                let start = RecordBuilder::classic(PROCESS, 1, 4).pid(4).with("ProcessId", pid);
                let (name, flags) = (self.one(&PROGRAMS), 2 * self.below(2) as u32);
                self.log(start.with("ImageFileName", name).with("Flags", flags));
            }
            1 => self.log(RecordBuilder::classic(PROCESS, 2, 4).pid(pid).with("ProcessId", pid)),
            2 | 3 => {
                let start = RecordBuilder::classic(THREAD, 1, 3).pid(pid).tid(tid).with("ProcessId", pid);
                let address = self.address();
                self.log(start.with("TThreadId", tid).with("Win32StartAddr", address));
            }
            4 => {
                let end = RecordBuilder::classic(THREAD, 2, 3).pid(pid).tid(tid);
                self.log(end.with("ProcessId", pid).with("TThreadId", tid));
            }
            5..=9 => {
                let (base, image) = (self.one(&BASES), self.one(&IMAGES));
                self.load(pid, base, image);
            }
            10..=12 => {
                let (base, image) = (self.one(&BASES), self.one(&IMAGES));
                let unload = RecordBuilder::classic(IMAGE, 2, 2).pid(pid).with("ImageBase", base);
                let unload = unload.with("ImageSize", SIZE).with("ProcessId", pid);
                self.log(unload.with("FileName", image));
            }
            13 => {
                let base = self.one(&DRIVERS);
                self.load(0, base, r"\SystemRoot\System32\drivers\driver.sys");
            }
            kind => {
                let (base, opcode, flags) = (self.one(&MEMORY), 98 + (kind as u8 & 1), self.below(2));
                let flags = if opcode == 98 { [0x3000_u32, 0x1000][flags] } else { 0x8000 };
                let memory = RecordBuilder::classic(PAGE_FAULT, opcode, 0).pid(pid).with("BaseAddress", base);
                let memory = memory.with("RegionSize", 0x1000_u64).with("ProcessId", pid);
                self.log(memory.with("Flags", flags));
            }
        }
    }

    fn act(&mut self) {
        let (id, pid, tid) = (self.one(&ACTS), self.one(&PIDS), self.one(&TIDS));
        let (target, access) = (self.one(&PIDS[..2]), 0x1010_u32 - 0x10 * (self.below(8) / 7) as u32);
        let act = RecordBuilder::new(AUDIT, id, 0).pid(pid).tid(tid);
        let act = match id {
            5 => act.with("TargetProcessId", target).with("DesiredAccess", access),
            _ => act,
        };
        let index = self.below(self.stacks.len());
        let frames = self.stacks[index].clone();
        self.log(if frames.is_empty() { act } else { act.stack(0, frames) });
    }
}

/// The events of a seed: alternating changes and evaluated events.
fn events(seed: u64) -> Vec<OwnedEvent> {
    let mut fate = Fate::new(seed);
    for pid in PIDS {
        fate.log(RecordBuilder::classic(PROCESS, 1, 4).pid(4).with("ProcessId", pid));
        for (base, image) in BASES.into_iter().zip(IMAGES) {
            fate.load(pid, base, image);
        }
    }
    for _ in 0..100 {
        (0..fate.below(3) / 2).for_each(|_| fate.change());
        (0..6).for_each(|_| fate.act());
    }
    fate.events
}

#[test]
fn cache_keys_cover_all_facts_of_an_evaluation() {
    let (mut cached, mut compared, mut found) = (0, 0, 0);
    for seed in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes.etl");
        write_etl(std::fs::File::create(&path).unwrap(), events(seed)).unwrap();
        let trace = TraceFiles::file(&path).open().unwrap();
        for passes in [Passes::One, Passes::Two] {
            let mut pipeline = Pipeline::new(&trace, passes);
            let clock = pipeline.clock();
            let mut hunt_session = HuntSession::new(Binaries::none(), clock);
            pipeline.run(|view| {
                let evaluation = *hunt_session.evaluate(view);
                // The first thread of a process is known only to a session that observed it.
                if view.provider_guid() == Some(AUDIT) {
                    let uncached = *HuntSession::new(Binaries::none(), clock).evaluate(view);
                    for ((id, outcome), (_, right)) in evaluation.iter().zip(uncached.iter()) {
                        let name = id.name();
                        assert_eq!(outcome, right, "{passes:?}, seed {seed}, {name} {:?}", view.time());
                        found += u64::from(outcome.verdict == Verdict::Yes);
                    }
                    compared += 1;
                }
                ControlFlow::Continue(())
            });
            cached += hunt_session.stats().remembered;
        }
    }
    assert!(compared > 9000 && cached > compared / 3 && found > compared, "{compared} {cached} {found}");
}
