//! Simulates a machine that runs for days: processes, threads, modules, memory and names come and
//! go, some ends are lost, and one program creates names without limit. Fails if memory grows.
//!
//! usage: `system_soak [EVENTS]` (default 10,000,000; 10,000 events are a second of trace time)

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

use stackhound_system::{
    AllocationEvent, AllocationFacts, FileKey, FileNameEvent, FileObject, KeyControlBlock, KeyNameEvent,
    Limits, MethodFacts, ModuleFacts, Phase, ProcessFacts, Protection, Runtime, System, ThreadFacts,
    ViewFacts,
};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid, PointerSize, Tid};

/// Events in a second of trace time.
const RATE: i64 = 10_000;
/// Seconds for which ended objects are kept.
const REMEMBERED: i64 = 10;
/// Seconds between two calls of `forget_before`.
const EVERY: i64 = 5;
const PROCESSES: usize = 150;
const MODULES: u64 = 30;

/// Pseudorandom numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

struct Machine {
    system: System,
    random: Random,
    now: TraceTime,
    events: i64,
    /// Existing objects, oldest first.
    processes: VecDeque<Pid>,
    threads: VecDeque<(Pid, Tid)>,
    files: VecDeque<u64>,
    keys: VecDeque<u64>,
    memory: VecDeque<(Pid, u64)>,
    views: VecDeque<(Pid, u64)>,
    free_pids: VecDeque<u32>,
    free_tids: VecDeque<u32>,
}

impl Machine {
    fn new() -> Machine {
        // Small enough to be reached early in the run.
        let limits = Limits {
            file_names: 60_000,
            key_names: 60_000,
            thread_names: 5_000,
            text_bytes: 16 << 20,
            ..Limits::default()
        };
        let mut machine = Machine {
            system: System::new(PointerSize::Eight).limited(limits),
            random: Random(1),
            now: TraceTime(0),
            events: 0,
            processes: VecDeque::new(),
            threads: VecDeque::new(),
            files: VecDeque::new(),
            keys: VecDeque::new(),
            memory: VecDeque::new(),
            views: VecDeque::new(),
            // An object with a lost end stays until its id is used again; all ids are used within
            // the first part of the run.
            free_pids: (2..1024).map(|n| n * 4).collect(),
            free_tids: (1024..8192).map(|n| n * 4).collect(),
        };
        for _ in 0..PROCESSES {
            machine.start_process();
        }
        machine
    }

    /// Advances the time by one event.
    fn tick(&mut self) -> TraceTime {
        self.events += 1;
        self.now.0 += 1;
        if self.events % (EVERY * RATE) == 0 {
            self.system.forget_before(TraceTime(self.now.0 - REMEMBERED * RATE));
        }
        self.now
    }

    /// One end in a hundred is lost.
    fn is_lost(&mut self) -> bool {
        self.random.below(100) == 0
    }

    fn some_process(&mut self) -> Pid {
        self.processes[self.random.below(self.processes.len() as u64) as usize]
    }

    fn start_process(&mut self) {
        let (time, number) = (self.tick(), self.events);
        let pid = Pid(self.free_pids.pop_front().expect("an id is free"));
        let facts = ProcessFacts {
            image_name: &format!("program{}.exe", number % 50),
            command_line: &format!("program.exe --job {number} --with \"some more arguments\""),
            key: Some(Address(number as u64 * 64)),
            ..ProcessFacts::of(pid)
        };
        self.system.take_process(Phase::Start, time, &facts);
        self.processes.push_back(pid);
        for n in 0..MODULES {
            let time = self.tick();
            let facts = ModuleFacts {
                pid,
                base: Address(0x7ff0_0000_0000 + n * 0x100_0000),
                size: 0x20_0000,
                time_date_stamp: Some(n as u32),
                checksum: None,
                path: &format!("\\Device\\HarddiskVolume3\\Windows\\System32\\library{n}.dll"),
            };
            self.system.take_module(Phase::Start, time, &facts);
        }
        self.start_thread(pid);
    }

    fn end_process(&mut self) {
        let Some(pid) = self.processes.pop_front() else { return };
        let (ended, there): (VecDeque<_>, VecDeque<_>) =
            self.threads.drain(..).partition(|thread| thread.0 == pid);
        self.threads = there;
        ended.into_iter().for_each(|thread| self.end_thread(thread));
        let time = self.tick();
        if !self.is_lost() {
            self.system.take_process(Phase::End, time, &ProcessFacts::of(pid));
        }
        self.free_pids.push_back(pid.0);
        self.memory.retain(|&(owner, _)| owner != pid);
        self.views.retain(|&(owner, _)| owner != pid);
    }

    fn start_thread(&mut self, pid: Pid) {
        let time = self.tick();
        let tid = Tid(self.free_tids.pop_front().expect("an id is free"));
        self.system.take_thread(Phase::Start, time, (pid, tid), &ThreadFacts::default());
        self.threads.push_back((pid, tid));
    }

    fn end_thread(&mut self, (pid, tid): (Pid, Tid)) {
        let time = self.tick();
        if !self.is_lost() {
            self.system.take_thread(Phase::End, time, (pid, tid), &ThreadFacts::default());
        }
        self.free_tids.push_back(tid.0);
    }

    /// Simulates one random event.
    fn step(&mut self) {
        let (kind, pid) = (self.random.below(1000), self.some_process());
        match kind {
            // Three processes in a second, which live for less than a minute.
            0 if self.random.below(3) == 0 => {
                self.end_process();
                self.start_process();
            }
            0..20 => self.start_thread(pid),
            20..40 if self.threads.len() > 3 * PROCESSES => {
                let thread = self.threads.pop_front().expect("there are many");
                self.end_thread(thread);
            }
            40..50 => self.name_thread(pid),
            50..60 => self.compile(pid),
            60..300 => self.use_file(),
            300..500 => self.use_key(),
            500..750 => self.use_memory(pid),
            750..850 => self.use_view(pid),
            // The program that creates names without limit.
            850..900 => {
                let (time, number) = (self.tick(), self.events as u64);
                let name = format!("\\Device\\HarddiskVolume3\\Temp\\{number:080}");
                self.system.take_file_name(FileNameEvent::Create(FileKey(number << 4)), time, &name);
            }
            _ => {
                self.tick();
            }
        }
    }

    fn name_thread(&mut self, pid: Pid) {
        let (time, number) = (self.tick(), self.events);
        if let Some(&(owner, tid)) = self.threads.iter().find(|thread| thread.0 == pid) {
            self.system.take_thread_name(time, (owner, tid), &format!("worker {number}"));
        }
    }

    fn compile(&mut self, pid: Pid) {
        let (time, number) = (self.tick(), self.events as u64);
        let facts = MethodFacts {
            module_id: 0,
            pid,
            runtime: Runtime::Clr,
            id: number,
            start: Address(0x6000_0000 + number % 4096 * 0x100),
            size: 0x80,
            namespace: "Some.Name.Space",
            name: &format!("Method{}", number % 10_000),
            signature: "void ()",
        };
        self.system.take_method(Phase::Start, time, &facts);
    }

    fn use_file(&mut self) {
        let (time, number) = (self.tick(), self.events as u64);
        if self.files.len() > 500 {
            let file = self.files.pop_front().expect("there are many");
            if !self.is_lost() {
                self.system.take_file_name(FileNameEvent::Close(FileObject(file)), time, "");
            }
        } else {
            // Addresses of objects are reused.
            let file = 0xffff_8000_0000_0000 | (number % 100_003) << 4;
            let name = format!("\\Device\\HarddiskVolume3\\Users\\somebody\\document {number}.txt");
            self.system.take_file_name(FileNameEvent::Open(FileObject(file)), time, &name);
            self.files.push_back(file);
        }
    }

    fn use_key(&mut self) {
        let (time, number) = (self.tick(), self.events as u64);
        if self.keys.len() > 300 {
            let key = self.keys.pop_front().expect("there are many");
            if !self.is_lost() {
                self.system.take_key_name(KeyNameEvent::Delete, time, KeyControlBlock(key), "gone");
            }
        } else {
            let key = 0xffff_9000_0000_0000 | (number % 50_021) << 4;
            let name = format!("\\REGISTRY\\MACHINE\\SOFTWARE\\Something\\{number}");
            self.system.take_key_name(KeyNameEvent::Create, time, KeyControlBlock(key), &name);
            self.keys.push_back(key);
        }
    }

    fn use_memory(&mut self, pid: Pid) {
        let (time, number) = (self.tick(), self.events as u64);
        let memory =
            |pid, base, size, flags| AllocationFacts { pid, base: Address(base), size, flags, by: None };
        if self.memory.len() > 3_000 {
            let (pid, base) = self.memory.pop_front().expect("there are many");
            if !self.is_lost() {
                self.system.take_allocation(AllocationEvent::Free, time, &memory(pid, base, 0, 0x8000));
            }
        } else {
            let base = 0x1_0000_0000 + number % 20_011 * 0x1_0000;
            self.system.take_allocation(AllocationEvent::Allocate, time, &memory(pid, base, 0x8000, 0x3000));
            self.memory.push_back((pid, base));
        }
    }

    fn use_view(&mut self, pid: Pid) {
        let (time, number) = (self.tick(), self.events as u64);
        let view = |pid, base| ViewFacts {
            pid,
            base: Address(base),
            size: 0x8000,
            file: FileKey(number),
            protection: Protection::of_section(1),
        };
        if self.views.len() > 1_000 {
            let (pid, base) = self.views.pop_front().expect("there are many");
            self.system.take_view(Phase::End, time, &view(pid, base));
        } else {
            let base = 0x5_0000_0000 + number % 10_007 * 0x1_0000;
            self.system.take_view(Phase::Start, time, &view(pid, base));
            self.views.push_back((pid, base));
        }
    }
}

/// Kilobytes of anonymous memory, if the system reports it.
fn memory_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?.trim().trim_end_matches(" kB").parse().ok()
}

fn main() -> ExitCode {
    let events =
        std::env::args().nth(1).map_or(10_000_000, |count| count.parse().expect("a number of events"));
    let (mut machine, started) = (Machine::new(), Instant::now());
    // The maximum in the first half, and in the second.
    let (mut early, mut late) = (0, 0);
    for part in 1..=20 {
        while machine.events < events / 20 * part {
            machine.step();
        }
        let memory = memory_kb().unwrap_or(0);
        let most = if part <= 10 { &mut early } else { &mut late };
        *most = memory.max(*most);
        let system = &machine.system;
        println!(
            "{:>12} events {:>7} kB {:>6} processes {:>6} threads {:>7} modules",
            machine.events,
            memory,
            system.processes().count(),
            system.threads().count(),
            system.modules().count(),
        );
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{:?}", machine.system.stats());
    println!("{:.1} M events/s, {early} kB at first, {late} kB later", events as f64 / seconds / 1e6);
    // Smaller growth is noise of the allocator. Leaked memory doubles from one half to the next.
    if late > early + early / 5 {
        println!("memory grows");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
