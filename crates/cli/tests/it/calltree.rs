//! The verbs about call trees, on the trace of the documented examples and on one with times and
//! bounds.

use crate::fixtures;
use std::path::PathBuf;

use crate::program::{refused, stackhound, text};
use serde_json::{Value, json};
use stackhound_calltree::{
    Builder, Change, ContextId, Cpu, EndType, Evidence, LocationInfo, StackInfo, StackKind, StartType, Trace,
};

/// A file with the index of a trace.
fn index(trace: &Trace) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.stacks");
    std::fs::write(&path, trace.as_bytes()).unwrap();
    (folder, path)
}

/// The standard output of a verb.
#[track_caller]
fn output(verb: &str, trace: &Trace, arguments: &[&str]) -> String {
    let (_folder, path) = index(trace);
    let output = stackhound(&[&[verb, text(&path)], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn check(verb: &str, trace: &Trace, arguments: &[&str], expected: &[&str]) {
    let output = output(verb, trace, arguments);
    assert_eq!(output.lines().collect::<Vec<_>>(), expected, "{verb} {arguments:?}");
}

#[track_caller]
fn object(verb: &str, trace: &Trace, arguments: &[&str]) -> Value {
    let output = output(verb, trace, &[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&output).unwrap()
}

/// A trace of a thread that is interrupted in a system call, with times, two processors and bounds.
///
/// Transitions are a millisecond apart. Processor 0: the thread's user stack, from #3 on its kernel
/// stack, from #5 to #6 an interrupt. Processor 1: not known before #4, then the thread of another
/// process, which the first one follows at #8.
fn trace() -> Trace {
    let mut builder = Builder::new();
    builder.sampled();
    let stack = |builder: &mut Builder, kind, thread: Option<u32>, cpu: Option<u16>| {
        builder.stack(StackInfo {
            kind,
            process: thread.map(|thread| 32 + thread),
            thread,
            cpu: cpu.map(Cpu),
            name: (thread == Some(12)).then(|| "other.exe".to_owned()),
            region: None,
        })
    };
    let user = stack(&mut builder, StackKind::User, Some(8), None);
    let kernel = stack(&mut builder, StackKind::Kernel, Some(8), None);
    let interrupt = stack(&mut builder, StackKind::Interrupt, None, Some(0));
    let other = stack(&mut builder, StackKind::Kernel, Some(12), None);
    let named = |builder: &mut Builder, name: &str| {
        let symbol = Some(name.to_owned());
        let location = LocationInfo { address: None, module: None, rva: None, symbol, symbol_offset: 0 };
        Some(builder.location(location))
    };
    let [main, write, routine, wait] =
        ["main", "NtWriteFile", "IsrRoutine", "NtWaitForSingleObject"].map(|name| named(&mut builder, name));
    let (c, enter) =
        (ContextId, |cpu, stack, first| Change::Enter { cpu: Cpu(cpu), stack, first: ContextId(first) });
    for change in [
        enter(0, user, 0),
        enter(0, kernel, 4),
        enter(0, interrupt, 6),
        enter(0, kernel, 7),
        Change::Leave { cpu: Cpu(0), last: c(7) },
        enter(1, other, 5),
        enter(1, kernel, 9),
    ] {
        builder.apply(change).unwrap();
    }
    let open =
        |stack, first, start, location| Change::Open { stack, first: ContextId(first), start, location };
    builder.apply(open(user, 0, StartType::Unknown, main)).unwrap();
    // Two frames begin with the system call.
    builder.apply(open(kernel, 4, StartType::Call, write)).unwrap();
    builder.apply(open(kernel, 4, StartType::Call, wait)).unwrap();
    builder.close_between(kernel, (c(7), c(9)), EndType::Gone).unwrap();
    builder.apply(open(interrupt, 6, StartType::Interrupt, routine)).unwrap();
    builder.apply(Change::Close { stack: interrupt, last: c(6), end: EndType::InterruptReturn }).unwrap();
    builder.open_between(other, (c(2), c(5)), StartType::Call, wait, Evidence::Snapshot).unwrap();
    let label = builder.label("Event");
    for number in 0..12 {
        // 2024-01-01 in units of 100 ns since 1601.
        let time = 133_485_408_000_000_000 + number * 10_000;
        builder.transition(time, Cpu(u16::from(matches!(number, 4 | 8..))), label);
    }
    builder.finish(12).unwrap()
}

#[test]
fn the_examples_of_the_stack_model() {
    let trace = fixtures::trace();
    check(
        "tree",
        &trace,
        &["--at", "#200000"],
        &[
            "#198300 - ???",
            "|- #198400 - ???",
            "   |- #199862 - usbhub!UsbhDecHubBusy <== active",
            "      |- #199886 - ntoskrnl!KeWaitForSingleObject",
            "      |- #200032 - ntoskrnl!ExFreePoolWithTag",
            "         |- #200183 - ntoskrnl!ExpInterlockedPushEntrySList",
            "      |- #200239 - ntoskrnl!KiAcquireKobjectLockSafe",
            "      |- #200269 - ntoskrnl!KiExitDispatcher",
            "   |- stack left at #209497, back at #211888",
        ],
    );
    check(
        "ranges",
        &trace,
        &["#199862", "--by-call"],
        &[
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #199863, Context before #199886]",
            "[1]#199886 - ntoskrnl!KeWaitForSingleObject [Context before #199887, Context before #199992]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #199993, Context before #200032]",
            "[1]#200032 - ntoskrnl!ExFreePoolWithTag [Context before #200033, Context before #200183]",
            "[2]#200183 - ntoskrnl!ExpInterlockedPushEntrySList [Context before #200184, Context before #200199]",
            "[1]#200032 - ntoskrnl!ExFreePoolWithTag [Context before #200200, Context before #200209]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #200210, Context before #200239]",
            "[1]#200239 - ntoskrnl!KiAcquireKobjectLockSafe [Context before #200240, Context before #200250]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #200251, Context before #200269]",
            "[1]#200269 - ntoskrnl!KiExitDispatcher [Context before #200270, Context before #200309]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #200310, Context before #200320]",
        ],
    );
    check(
        "ranges",
        &trace,
        &["--at", "200000", "--exclude", "ntoskrnl!*"],
        &[
            "[Context before #199863, Context before #199886]",
            "[Context before #199993, Context before #200032]",
            "[Context before #200210, Context before #200239]",
            "[Context before #200251, Context before #200269]",
            "[Context before #200310, Context before #200320]",
        ],
    );
    // With nothing excluded, the ranges are those without --exclude.
    check(
        "ranges",
        &trace,
        &["#198205", "--exclude", "nothing!*"],
        &[
            "[Context before #198206, Context before #209497]",
            "[Context before #211889, Context before #212379]",
        ],
    );
    check(
        "ranges",
        &trace,
        &["198205"],
        &[
            "[Context before #198206, Context before #209497]",
            "[Context before #211889, Context before #212379]",
        ],
    );
    let skipped = output("events-of", &trace, &["--at", "3000000", "--skip", "xxx*"]);
    let skipped: Vec<&str> = skipped.lines().collect();
    let opening = [
        "Start #2999033 - ntoskrnl!PsGetCurrentProcessWin32Process",
        "End #2999033 - ntoskrnl!PsGetCurrentProcessWin32Process",
        "Start #2999065 - win32kfull!xxxDCEWindowHitTest2Internal",
    ];
    assert_eq!(skipped[..3], opening);
    assert_eq!(skipped[3..5], [opening[2].replace("Start", "End"), opening[2].replace("2999065", "2999151")]);
    // One end for each start, and the calls of the twelve functions are omitted.
    assert_eq!(skipped.len(), 2 * (1 + 12 + 4));
    let events = output("events-of", &trace, &["#2999024"]);
    let events: Vec<&str> = events.lines().collect();
    assert_eq!(events[..3], opening);
    assert_eq!(events[3], "  Start #2999114 - win32kfull!__security_check_cookie");
    assert_eq!(events.last(), Some(&"End #3016796 - win32kbase!ThreadUnlock1"));
    check(
        "calls",
        &trace,
        &["ntoskrnl!Ki*"],
        &[
            "#200239 ntoskrnl!KiAcquireKobjectLockSafe(...) #200250",
            "#200269 ntoskrnl!KiExitDispatcher(...) #200309",
        ],
    );
    check(
        "calls",
        &trace,
        &["ntoskrnl!*", "--from", "#200000", "--to", "#200270", "--limit", "2"],
        &[
            "#200032 ntoskrnl!ExFreePoolWithTag(...) #200209",
            "#200183 ntoskrnl!ExpInterlockedPushEntrySList(...) #200199",
        ],
    );
}

#[test]
fn stacks_and_backtraces() {
    let trace = fixtures::trace();
    let outer = ["  #198400 - ???", "  #198300 - ???", "  #198205 - ???", "  ??? - ???"];
    let of_two = [
        "kernel stack of thread 2, Context before #210000, active since #209498",
        "  ??? - ???",
        "before, of the processor: kernel stack of thread 1, Context before #209497, active since #0",
        "after, of the processor: kernel stack of thread 1, Context before #211889, active since #211889",
    ];
    check("stack", &trace, &["--at", "210000"], &of_two);
    let absent = "kernel stack of thread 1, Context before #210000, not active";
    let of_one = output("stack", &trace, &["--at", "210000", "--tid", "1"]);
    assert_eq!(of_one.lines().take(5).collect::<Vec<_>>(), [&[absent], &outer[..]].concat());
    check("backtrace", &trace, &["--at", "210000"], &of_two[..2]);
    let below = ["kernel stack of thread 1, Context before #209497, active since #0"];
    check(
        "backtrace",
        &trace,
        &["--at", "210000", "--axis", "cpu"],
        &[&of_two[..2], &below[..], &outer[..]].concat(),
    );
}

#[test]
fn a_backtrace_leads_from_an_interrupt_to_user_mode() {
    let trace = trace();
    let lines = [
        "interrupt stack of processor 0, Context before #6, active since #6",
        "  #5 - IsrRoutine [interrupt]",
        "kernel stack of thread 8, Context before #5, active since #4",
        "  #3 - NtWaitForSingleObject",
        "  #3 - NtWriteFile",
        "user stack of thread 8, Context before #3, active since #0",
        "  ??? - main",
    ];
    check("backtrace", &trace, &["--at", "+6ms"], &lines);
    // At #10 the thread runs on the other processor, where another one ran before.
    let expected = [
        "kernel stack of thread 8, Context before #10, active since #9",
        "  #3 - NtWriteFile",
        "user stack of thread 8, Context before #3, active since #0",
        "  ??? - main",
    ];
    check("backtrace", &trace, &["--at", "10"], &expected);
    check("backtrace", &trace, &["--at", "10", "--tid", "8", "--axis", "thread"], &expected);
    let stacks = object("backtrace", &trace, &["--at", "10", "--axis", "cpu"]);
    let threads: Vec<_> = stacks["stacks"].as_array().unwrap().iter().map(|stack| &stack["tid"]).collect();
    assert_eq!(threads, [8, 12]);
}

#[test]
fn times_and_processors() {
    let trace = trace();
    let at = |arguments: &[&str]| object("stack", &trace, arguments)["at"].clone();
    let context = |context: u64, cpu: u64, time: &str| json!({"context": context, "cpu": cpu, "time": time});
    let fourth = context(4, 1, "2024-01-01T00:00:00.0040000Z");
    assert_eq!(at(&["--at", "2024-01-01T00:00:00.004Z", "--cpu", "0"]), fourth);
    assert_eq!(at(&["--at", "+4ms", "--tid", "8"]), fourth);
    assert_eq!(at(&["--at", "+3.1ms", "--tid", "8"]), fourth);
    let thread = |arguments: &[&str]| object("stack", &trace, arguments)["stack"]["tid"].clone();
    assert_eq!(thread(&["--at", "5", "--cpu", "0"]), 8);
    assert_eq!(thread(&["--at", "5", "--cpu", "1"]), 12);
    let before = object("stack", &trace, &["--at", "7", "--cpu", "0"])["before"].clone();
    assert_eq!(
        (&before["on_cpu"]["kind"], &before["of_thread"]["kind"]),
        (&json!("interrupt"), &json!("user"))
    );
    let calls = object("calls", &trace, &["Nt*", "--to", "+5ms"]);
    let times: Vec<_> = calls["calls"].as_array().unwrap().iter().map(|call| &call["time"]).collect();
    assert_eq!(times, ["2024-01-01T00:00:00.0030000Z"; 2]);
}

/// The rows of a table, with one space between columns.
fn rows(trace: &Trace, arguments: &[&str]) -> Vec<String> {
    let table = output("threads", trace, arguments);
    table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn threads_lists_processes_threads_and_stacks() {
    let trace = trace();
    assert_eq!(
        rows(&trace, &[]),
        [
            "process pid threads frames active first last",
            "- 40 1 >=3 9.000 ms +0s +0.011s",
            "- - 0 >=1 1.000 ms +0.006s +0.006s",
            "other.exe 44 1 >=1 4.000 ms +0.005s +0.008s",
        ]
    );
    assert_eq!(
        rows(&trace, &["--tid", "8"]),
        [
            "process pid tid stack frames active first last",
            "- 40 8 kernel >=2 6.000 ms +0.004s +0.011s",
            "- 40 8 user >=1 3.000 ms +0s +0.003s",
        ]
    );
    for selection in [&["--pid", "44"], &["--process", "OTHER*"]] {
        assert_eq!(rows(&trace, selection)[1..], ["other.exe 44 12 >=1 4.000 ms +0.005s +0.008s"]);
    }
    // Active threads come first, and the interrupt has not happened yet.
    assert_eq!(
        rows(&trace, &["--at", "+5ms"]),
        [
            "process pid tid frames active first last processor function",
            "- 40 8 >=3 9.000 ms +0s +0.011s 0 NtWaitForSingleObject",
            "other.exe 44 12 >=1 4.000 ms +0.005s +0.008s 1 NtWaitForSingleObject",
            "processor 0 - - >=1 1.000 ms +0.006s +0.006s - -",
        ]
    );
    // Without times, contexts are shown. At 2,391 contexts, the other thread was active.
    assert_eq!(
        rows(&fixtures::trace(), &["--by", "thread", "--limit", "1"])[1],
        "- 4 1 39 3,097,610 contexts #0 #3100000"
    );
    let object = object("threads", &trace, &["--at", "8", "--by", "stack", "--limit", "2"]);
    assert_eq!((&object["at"]["context"], &object["found"]), (&json!(8), &json!(4)));
    let row = |number: usize| {
        let row = &object["rows"][number];
        json!([row["stack_id"], row["kind"], row["periods"], row["on"], row["frame"]["symbol"]])
    };
    assert_eq!(row(0), json!([3, "kernel", 1, 1, "NtWaitForSingleObject"]));
    assert_eq!(row(1), json!([1, "kernel", 3, null, "NtWriteFile"]));
    assert_eq!(object["rows"][1]["active"], json!({"shortest": 6_000_000, "longest": 6_000_000}));
}

#[test]
fn processes_and_threads_are_selected_everywhere() {
    let trace = trace();
    for selection in [&["--pid", "44"][..], &["--process", "other.exe"], &["--pid", "44", "--tid", "12"]] {
        let with = |arguments: &[&'static str]| [arguments, selection].concat();
        assert_eq!(object("stack", &trace, &with(&["--at", "7"]))["stack"]["tid"], 12);
        assert_eq!(object("backtrace", &trace, &with(&["--at", "7"]))["stacks"][0]["tid"], 12);
        assert_eq!(object("ranges", &trace, &with(&["--at", "7"]))["frame"]["stack_id"], 3);
        assert_eq!(object("events-of", &trace, &with(&["--at", "7"]))["frame"]["stack_id"], 3);
        // Without a position, the largest call of the threads.
        assert_eq!(object("tree", &trace, &with(&[]))["stack"]["tid"], 12);
        assert_eq!(object("calls", &trace, &with(&["*"]))["found"], 1);
    }
    // Two frames begin at this transition, both of thread 8.
    assert_eq!(object("calls", &trace, &["*", "--tid", "8"])["found"], 3);
    let names = |at: &str| {
        let calls = object("calls", &trace, &["*", "--at", at]);
        let calls = calls["calls"].as_array().unwrap().iter().map(|call| call["symbol"].clone());
        calls.collect::<Vec<_>>()
    };
    assert_eq!(names("3"), ["main"]);
    assert_eq!(
        names("+6ms"),
        ["main", "NtWriteFile", "NtWaitForSingleObject", "NtWaitForSingleObject", "IsrRoutine"]
    );
    let (_folder, path) = index(&trace);
    let path = text(&path);
    for (arguments, sentence) in [
        (&["tree", path, "--pid", "41"][..], NONE),
        (&["calls", path, "*", "--process", "tool.exe"], NONE),
        (&["threads", path, "--pid", "40", "--tid", "12"], NONE),
        (&["ranges", path, "@0", "--pid", "41"], NONE),
        (
            &["stack", path, "--at", "3", "--pid", "44"],
            "none of these threads was observed running before context #3",
        ),
    ] {
        refused(arguments, sentence);
    }
}

const NONE: &str = "no thread of this trace is selected by --pid, --process and --tid; `stackhound threads` lists the threads";

#[test]
fn bounds_and_lower_bounds_are_shown_in_every_format() {
    let trace = trace();
    check(
        "calls",
        &trace,
        &["*"],
        &[
            "??? main(...) ???",
            "#3 NtWriteFile(...) ???  +3.000 ms",
            "#3 NtWaitForSingleObject(...) ~#7  +3.000 ms, 4.000 ms to 6.000 ms",
            "~#5 NtWaitForSingleObject(...) ???  +1.000 ms to +5.000 ms",
            "#5 IsrRoutine(...) #6  +5.000 ms, 1.000 ms",
        ],
    );
    let (_folder, path) = index(&trace);
    for (arguments, closing) in [
        (["calls", text(&path), "Nt*"], ">=3 calls"),
        (["events-of", text(&path), "#5"], ">=0 events"),
        (["ranges", text(&path), "#5"], ">=1 ranges, >=1 contexts"),
    ] {
        let errors = stackhound(&arguments).stderr;
        assert_eq!(String::from_utf8_lossy(&errors).trim_end(), closing);
        assert!(stackhound(&[&arguments[..], &["-q"]].concat()).stderr.is_empty());
    }
    for (verb, arguments) in [("calls", ["Nt*"]), ("events-of", ["#5"]), ("ranges", ["#5"])] {
        assert_eq!(object(verb, &trace, &arguments)["at_least"], true, "{verb}");
    }
    let call = &object("calls", &trace, &["*Wait*"])["calls"][1];
    assert_eq!(call["start"], json!({"kind": "inferred", "lo": 2, "hi": 5}));
    assert_eq!(
        (&call["end"]["kind"], &call["tid"], &call["creation"]),
        (&json!("open"), &json!(12), &Value::Null)
    );
    let tree = output("tree", &trace, &["--at", "5", "--cpu", "0"]);
    let expected = "#3 - NtWriteFile  +3.000 ms\n\
                    |- #3 - NtWaitForSingleObject  +3.000 ms, 4.000 ms to 6.000 ms <== active\n";
    assert!(tree.starts_with(expected), "{tree}");
    assert_eq!(
        call["started"],
        json!({"earliest": "2024-01-01T00:00:00.0010000Z", "latest": "2024-01-01T00:00:00.0050000Z"})
    );
    assert_eq!(call["duration"], Value::Null);
    let wait = &object("calls", &trace, &["*Wait*"])["calls"][0];
    assert_eq!(wait["duration"], json!({"shortest": 4_000_000, "longest": 6_000_000}));
    let tree = output("tree", &trace, &["--at", "5", "--cpu", "0", "--ancestors", "1", "--format", "html"]);
    assert!(tree.contains("#4 to #7..#9"), "{tree}");
}

#[test]
fn lists_are_one_object_or_one_object_per_line() {
    let trace = fixtures::trace();
    for (verb, arguments, key) in [
        ("ranges", &["#199862", "--by-call"][..], "ranges"),
        ("ranges", &["#199862"], "ranges"),
        ("events-of", &["#199862"], "events"),
        ("calls", &["ntoskrnl!*", "--limit", "3"], "calls"),
    ] {
        let object = object(verb, &trace, arguments);
        let list = object[key].as_array().unwrap();
        assert_eq!(object["count"], list.len());
        assert_eq!(object["at_least"], false);
        let lines = output(verb, &trace, &[arguments, &["--format", "ndjson"]].concat());
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(&lines, list, "{verb}");
    }
    let calls = object("calls", &trace, &["ntoskrnl!*", "--limit", "3"]);
    assert_eq!((&calls["found"], &calls["count"]), (&json!(6), &json!(3)));
    let leave = &object("events-of", &trace, &["#198400"])["events"][12];
    assert_eq!(leave, &json!({"change": "leave", "depth": 0, "transition": 209_497, "context": 209_497}));
    let range = &object("ranges", &trace, &["#198205"])["ranges"][1];
    assert_eq!(range, &json!({"first": 211_889, "last": 212_379, "contexts": 491}));
}

#[test]
fn frames_are_named_as_they_are_shown() {
    let trace = trace();
    let name = |frame: &str| object("ranges", &trace, &[frame])["frame"]["name"].clone();
    assert_eq!(name("#5"), "IsrRoutine");
    assert_eq!(name("~#5"), "NtWaitForSingleObject");
    assert_eq!(name("~0"), "main");
    assert_eq!(name("@0"), "main");
    let number = object("ranges", &trace, &["#5"])["frame"]["frame_id"].to_string();
    assert_eq!(name(&format!("@{number}")), "IsrRoutine");
}

#[test]
fn the_format_of_a_tree_follows_the_file_name() {
    let trace = fixtures::trace();
    let (folder, path) = index(&trace);
    for (name, begins) in
        [("t.html", "<!doctype html>"), ("t.json", "{\n  \"at\""), ("t.txt", "#198300 - ???\n")]
    {
        let file = folder.path().join(name);
        let output = stackhound(&["tree", text(&path), "--at", "200000", "-o", text(&file)]);
        assert!(output.status.success() && output.stdout.is_empty());
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.starts_with(begins), "{name}: {written}");
    }
    // Without a position, the tree is that of the outermost frame with the most calls below it.
    let whole = object("tree", &trace, &["--depth", "1"]);
    let most = trace.largest_call(|_| true).unwrap();
    assert_eq!(whole["active_frame_id"], most.id().0);
    assert_eq!(whole["at"]["context"], most.first_context().id().0);
    let json =
        object("tree", &trace, &["--at", "200000", "--children", "2", "--depth", "1", "--ancestors", "0"]);
    assert_eq!(json["at"], json!({"context": 200_000, "cpu": 0, "time": null}));
    assert_eq!(json["stack"]["kind"], "kernel");
    let rows: Vec<_> = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["level"].as_u64().unwrap(), row["frame"]["creation"].as_u64(), row["count"].as_u64()))
        .collect();
    let expected = [
        (0, Some(199_862), None),
        (1, Some(199_886), None),
        (1, Some(200_032), None),
        (2, None, Some(1)),
        (1, None, Some(2)),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn missing_positions_are_reported_in_one_sentence() {
    let (_examples, path) = index(&fixtures::trace());
    let (_folder, trace) = index(&trace());
    let (path, trace) = (text(&path), text(&trace));
    for verb in ["tree", "stack", "backtrace", "ranges", "events-of"] {
        for (trace, arguments, sentence) in [
            (
                path,
                &["--at", "#3100001"][..],
                "context #3100001 is outside the trace, whose contexts are #0 to #3100000",
            ),
            (path, &["--at", "+5s"], "the trace has no times; use the number of a context, such as #1000"),
            (
                path,
                &["--at", "5", "--tid", "9"],
                "thread 9 is not in this trace; `stackhound threads` lists the threads",
            ),
            (path, &["--at", "5", "--tid", "2"], "thread 2 was not observed running before context #5"),
            (path, &["--at", "5", "--cpu", "1"], "processor 1 is not in this trace, which has 1 processor"),
            (trace, &["--at", "8", "--cpu", "0"], "the active stack of processor 0 at context #8 is unknown"),
            (
                trace,
                &["--at", "+1s"],
                "2024-01-01T00:00:01.0000000Z is after the trace, which ends at 2024-01-01T00:00:00.0110000Z",
            ),
            (
                trace,
                &["--at", "2023-12-31T00:00:00Z"],
                "2023-12-31T00:00:00.0000000Z is before the trace, which begins at 2024-01-01T00:00:00.0000000Z",
            ),
        ] {
            refused(&[&[verb, trace], arguments].concat(), sentence);
        }
    }
    for verb in ["ranges", "events-of"] {
        for (trace, frame, sentence) in [
            (path, "#3100000", "transition #3100000 is outside the trace, which has 3100000"),
            (path, "#5", "no frame begins at transition #5; write it as shown in output, or use --at"),
            (path, "~#5", "no frame begins at context #5; write it as shown in output, or use --at"),
            (path, "@40", "frame number 40 is outside the trace, which has 40"),
            (
                trace,
                "#3",
                "2 frames begin at transition #3; use one of their numbers: @1 (NtWriteFile on the kernel stack of thread 8), \
                 @2 (NtWaitForSingleObject on the kernel stack of thread 8)",
            ),
        ] {
            refused(&[verb, trace, frame], sentence);
        }
    }
    refused(&["tree", path, "--cpu", "0"], "--cpu chooses a stack at a position; add --at");
    refused(
        &["calls", path, "*", "--from", "#3100001"],
        "context #3100001 is outside the trace, whose contexts are #0 to #3100000",
    );
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut builder = Builder::new();
    let stack = builder.stack(StackInfo {
        kind: StackKind::User,
        process: None,
        thread: Some(1),
        cpu: None,
        name: Some("\u{1b}[2J".to_owned()),
        region: None,
    });
    let symbol = Some("\u{1b}]0;x\u{7}\n<script>".to_owned());
    let location = Some(builder.location(LocationInfo {
        address: None,
        module: None,
        rva: None,
        symbol,
        symbol_offset: 0,
    }));
    builder.apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) }).unwrap();
    for _ in 0..2 {
        builder.apply(Change::Open { stack, first: ContextId(1), start: StartType::Call, location }).unwrap();
    }
    let trace = builder.finish(3).unwrap();
    let (_folder, path) = index(&trace);
    for (arguments, lines) in [
        (&["tree", text(&path), "--at", "1"][..], 2),
        (&["stack", text(&path), "--at", "1"], 3),
        (&["backtrace", text(&path), "--at", "1"], 3),
        (&["ranges", text(&path), "@0", "--by-call"], 1),
        (&["ranges", text(&path), "#0"], 1),
        (&["events-of", text(&path), "@0"], 1),
        (&["calls", text(&path), "*"], 2),
    ] {
        let output = stackhound(&[arguments, &["-q"]].concat());
        let written = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(written.lines().count(), lines, "{arguments:?}: {written:?}");
        assert!(written.chars().all(|c| c == '\n' || !c.is_control()), "{arguments:?}: {written:?}");
    }
    // An ambiguous frame is refused. The message contains names, too.
    let output = stackhound(&["ranges", text(&path), "#0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 frames begin at transition #0"));
}

#[test]
fn damaged_and_foreign_files_get_one_clear_sentence() {
    let trace = fixtures::trace();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.stacks");
    let check = |bytes: &[u8], error: &str| {
        std::fs::write(&path, bytes).unwrap();
        let output = stackhound(&["calls", text(&path), "*"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.starts_with(&format!("error: {}: {error}", path.display())), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    };
    check(b"", "the file is empty");
    check(&[b'a'; 5000], "not an event trace log (the first buffer is not a header buffer)");
    let whole = trace.as_bytes();
    check(&whole[..whole.len() - 1], "the index is damaged at byte");
    check(&whole[..10], "the index is damaged at byte");
    let mut flipped = whole.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    check(&flipped, "the index is damaged at byte");
    let mut older = whole.to_vec();
    older[8] = older[8].wrapping_add(1);
    check(&older, "the index has format version 4; this program reads version 3");
    refused(&["calls", "no/such.stacks", "*"], "no/such.stacks: No such file or directory (os error 2)");
    let empty = tempfile::tempdir().unwrap();
    let empty = text(empty.path());
    refused(
        &["calls", empty, "*"],
        &format!("{empty}: no .etl, .etl.zst or .etl.zip file in this directory"),
    );
}
