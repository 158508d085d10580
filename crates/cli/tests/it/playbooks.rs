//! The commands of the playbooks lead to the cause that the generator planted, in traces of several
//! seeds. The numbers are compared with those of the generator.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use crate::program::{stackhound, text};
use stackhound_scenario::{Cause, GroundTruth, Mix, Problem, Scenario, TraceEvent, Truth};
use stackhound_types::Tid;

const SEEDS: [u64; 3] = [1, 2, 3];

/// The name of the mix for a problem. It is also the name of the playbook and of the trace.
fn name(problem: Problem) -> &'static str {
    match problem {
        Problem::HighCpu => "high-cpu",
        Problem::SlowStart => "slow-start",
        Problem::Hang => "hang",
        Problem::DiskBound => "disk-bound",
        Problem::MemoryGrowth => "memory-growth",
    }
}

/// A trace that `demo` wrote, and what the generator knows about it.
struct Generated {
    path: PathBuf,
    symbols: PathBuf,
    truth: Truth,
    cause: Cause,
    events: Vec<TraceEvent>,
    _folder: tempfile::TempDir,
}

fn generated(problem: Problem, seed: u64) -> Generated {
    let folder = tempfile::tempdir().unwrap();
    let (seed_text, name) = (seed.to_string(), name(problem));
    let made = stackhound(&["demo", "-q", "--mix", name, "--seed", &seed_text, "--out", text(folder.path())]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = folder.path().join(format!("{name}.etl"));
    let mut file = Cursor::new(Vec::new());
    let scenario = Scenario { events: 40_000, seed, mix: Mix::Problem(problem) };
    let (truth, events) = scenario.write_with_events(&mut file).unwrap();
    assert!(std::fs::read(&path).unwrap() == file.into_inner(), "demo writes another trace");
    let symbols = folder.path().join("symbols");
    let cause = truth.cause.clone().expect("a cause");
    Generated { path, symbols, truth, cause, events, _folder: folder }
}

/// A row of `top`: its columns by name.
struct Row {
    columns: csv::StringRecord,
    values: csv::StringRecord,
}

impl Row {
    fn text(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|known| known == column);
        &self.values[at.unwrap_or_else(|| panic!("no column {column} in {:?}", self.columns))]
    }

    fn number(&self, column: &str) -> u64 {
        self.text(column).parse().unwrap()
    }

    fn name(&self) -> &str {
        &self.values[0]
    }
}

impl Generated {
    fn top(&self, arguments: &[&str]) -> Vec<Row> {
        let mut all = vec!["top", arguments[0], text(&self.path)];
        all.extend(&arguments[1..]);
        all.extend(["--all", "--format", "csv", "-q", "--symbol-path", text(&self.symbols)]);
        let output = stackhound(&all);
        assert!(output.status.success(), "{all:?}: {}", String::from_utf8_lossy(&output.stderr));
        let mut reader = csv::Reader::from_reader(&*output.stdout);
        let columns = reader.headers().unwrap().clone();
        let rows = reader.records().map(|values| Row { columns: columns.clone(), values: values.unwrap() });
        rows.collect()
    }

    fn row(&self, arguments: &[&str], name: &str) -> Row {
        let mut rows = self.top(arguments).into_iter();
        rows.find(|row| row.name() == name).unwrap_or_else(|| panic!("{arguments:?} has no row {name}"))
    }

    /// The longest wait of a thread in nanoseconds. The clock has units of 100 ns.
    fn longest_wait(&self, tid: Tid) -> u64 {
        let (mut since, mut longest) = (None, 0);
        for event in &self.events {
            match event.action {
                GroundTruth::Switch { old, .. } if old == tid => since = Some(event.time.0),
                GroundTruth::Ready { tid: ready, .. } if ready == tid => {
                    let wait = since.take().map_or(0, |since| event.time.0 - since);
                    longest = longest.max(wait as u64 * 100);
                }
                _ => {}
            }
        }
        longest
    }

    /// Number and bytes of the transfers that a thread requested.
    fn transfers(&self, of: Tid) -> (u64, u64) {
        let sizes = self.events.iter().filter_map(|event| match event.action {
            GroundTruth::Disk { tid, bytes, .. } if tid == of => Some(u64::from(bytes)),
            _ => None,
        });
        sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size))
    }

    /// Time in which a thread ran, in nanoseconds, up to its last switch.
    fn ran(&self, tid: Tid) -> u64 {
        let (mut since, mut ran) = (None, 0);
        for event in &self.events {
            let GroundTruth::Switch { old, new, .. } = event.action else { continue };
            if new == tid {
                since = Some(event.time.0);
            } else if old == tid {
                ran += since.take().map_or(0, |since| event.time.0 - since);
            }
        }
        let end = self.events.last().expect("events").time.0;
        ran += since.map_or(0, |since| end - since);
        ran as u64 * 100
    }

    fn process(&self) -> String {
        let mut processes = self.truth.processes.iter();
        let process = processes.find(|process| process.pid == self.cause.pid).expect("a process");
        format!("{} ({})", process.name, process.pid)
    }

    fn thread(&self, tid: Tid) -> String {
        format!("{} thread {tid}", self.process())
    }

    /// The DOS path of the file of the cause.
    fn file(&self) -> String {
        let path = self.cause.file.as_deref().expect("a file");
        path.replace(r"\Device\HarddiskVolume3\", r"C:\").replace(r"\Device\HarddiskVolume4\", r"D:\")
    }
}

#[test]
fn high_cpu_leads_to_the_function() {
    for seed in SEEDS {
        let trace = generated(Problem::HighCpu, seed);
        assert_eq!(trace.top(&["cpu"])[0].name(), trace.process());
        let thread = &trace.top(&["cpu", "--by", "thread"])[0];
        assert_eq!(thread.name(), trace.thread(trace.cause.tid));
        // The trace is a little longer than the known actions: until the end of its rundown.
        let (ran, exact) = (trace.ran(trace.cause.tid), thread.number("exact"));
        assert!((ran..ran + 50_000_000).contains(&exact), "{exact} ns of {ran}");
        let function = &trace.top(&["cpu", "--by", "function", "--process", "writer.exe"])[0];
        assert_eq!(function.name(), trace.cause.function);
        assert!(function.number("self") * 2 > ran, "{} of {ran} ns", function.number("self"));
    }
}

#[test]
fn slow_start_leads_to_the_wait() {
    for seed in SEEDS {
        let trace = generated(Problem::SlowStart, seed);
        let waited = trace.longest_wait(trace.cause.tid);
        assert!(waited > 1_000_000_000);
        let writer = ["wait", "--process", "writer.exe", "--by"];
        let by = |by| [writer.as_slice(), &[by]].concat();
        assert_eq!(trace.row(&by("function"), trace.cause.function).number("max"), waited);
        assert_eq!(trace.row(&by("reason"), "UserRequest").number("max"), waited);
        let sent = trace.row(&["network"], &trace.process());
        assert_eq!((sent.number("sends"), sent.number("receives")), (1, 1));
    }
}

#[test]
fn hang_leads_to_the_owner_of_the_lock() {
    for seed in SEEDS {
        let trace = generated(Problem::Hang, seed);
        let waiter = trace.cause.waiter.expect("a thread that hangs");
        let waited = trace.longest_wait(waiter);
        assert!(waited > 1_000_000_000);
        let writer = ["wait", "--process", "writer.exe", "--by"];
        let by = |by| [writer.as_slice(), &[by]].concat();
        assert_eq!(trace.row(&by("thread"), &trace.thread(waiter)).number("max"), waited);
        let owner = trace.row(&by("readying-thread"), &trace.thread(trace.cause.tid));
        assert_eq!((owner.number("self"), owner.number("count")), (waited, 1));
        let (writes, bytes) = trace.transfers(trace.cause.tid);
        let filter = format!("tid = {}", trace.cause.tid);
        let file = &trace.top(&["disk", "--where", &filter])[0];
        assert_eq!(file.name(), trace.file());
        assert_eq!((file.number("writes"), file.number("written_bytes")), (writes, bytes));
        let function = trace.row(&["disk", "--by", "function"], trace.cause.function);
        assert_eq!(function.number("total_writes"), writes);
    }
}

#[test]
fn disk_bound_leads_to_the_file_and_the_function() {
    for seed in SEEDS {
        let trace = generated(Problem::DiskBound, seed);
        let (reads, bytes) = trace.transfers(trace.cause.tid);
        assert!(reads > 200);
        let file = &trace.top(&["disk"])[0];
        assert_eq!(file.name(), trace.file());
        assert_eq!((file.number("reads"), file.number("read_bytes")), (reads, bytes));
        assert_eq!(trace.top(&["disk", "--by", "process"])[0].name(), trace.process());
        let function = trace.row(&["disk", "--by", "function"], trace.cause.function);
        assert_eq!(function.number("total_reads"), reads);
    }
}

#[test]
fn memory_growth_leads_to_the_stack_that_keeps_memory() {
    for seed in SEEDS {
        let trace = generated(Problem::MemoryGrowth, seed);
        let mut outstanding = 0;
        for event in &trace.events {
            match event.action {
                GroundTruth::Allocate { pid, region } if pid == trace.cause.pid => outstanding += region.size,
                GroundTruth::Free { pid, region } if pid == trace.cause.pid => outstanding -= region.size,
                _ => {}
            }
        }
        let process = &trace.top(&["memory"])[0];
        assert_eq!((process.name(), process.number("outstanding_bytes")), (&*trace.process(), outstanding));
        let stack = &trace.top(&["memory", "--by", "stack"])[0];
        assert!(stack.name().contains(trace.cause.function), "{}", stack.name());
        assert_eq!(stack.number("freed_bytes"), 0);
    }
}

#[test]
fn suspicious_process_leads_to_both_processes_of_the_attack() {
    for seed in SEEDS {
        let folder = tempfile::tempdir().unwrap();
        let seed_text = seed.to_string();
        let made = stackhound(&["demo", "-q", "--seed", &seed_text, "--out", text(folder.path())]);
        assert!(made.status.success());
        let truth = Scenario { seed, ..Scenario::default() }.write(Cursor::new(Vec::new())).unwrap();
        let (path, images) = (folder.path().join("stackhound-demo.etl"), folder.path().join("symbols"));
        let hunt = ["hunt", text(&path), "--images", text(&images), "--min-severity", "high"];
        let output = stackhound(&[hunt.as_slice(), &["--format", "ndjson", "-q"]].concat());
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let findings = lines.filter(|line| line["type"] == "finding");
        let found: BTreeSet<u64> = findings.map(|finding| finding["pid"].as_u64().unwrap()).collect();
        let planted: BTreeSet<u64> = truth.attacks.iter().map(|attack| attack.pid.0.into()).collect();
        assert_eq!((found.len(), found), (2, planted), "seed {seed}");
    }
}

#[test]
fn every_problem_has_a_playbook_that_begins_with_its_trace() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/playbooks");
    for problem in Problem::ALL {
        let name = name(problem);
        let page = std::fs::read_to_string(folder.join(format!("{name}.md"))).unwrap();
        let made = format!("$ stackhound demo --mix {name} --out .");
        let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("$ stackhound ")).collect();
        assert!(commands.contains(&&*made), "{name}: {commands:?}");
    }
}
