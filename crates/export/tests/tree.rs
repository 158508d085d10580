//! Call trees for people and for programs: the documented example, limits, bounds and hostile
//! names.

#[path = "../../calltree/tests/fixtures/mod.rs"]
mod fixtures;

use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stackhound_calltree::{
    Axis, Bound, Builder, Change, ContextId, Cpu, EndType, Evidence, Frame, FrameId, LocationId,
    LocationInfo, ModuleInfo, Pattern, StackEvent, StackId, StackInfo, StackKind, StartType, Trace,
};
use stackhound_export::json::tree::{CallLine, FullStack, TreeDocument, TreeFrame, TreeStack};
use stackhound_export::tree::{Limits, Relation, Row, Shown, Tree, html, text};

fn top(trace: &Trace, context: u64) -> Frame<'_> {
    trace.context(ContextId(context)).unwrap().stack().unwrap().frame().unwrap()
}

fn sorted_keys(row: &serde_json::Map<String, Value>) -> Vec<&str> {
    let mut keys: Vec<&str> = row.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn json_frame(frame: Frame<'_>) -> Value {
    serde_json::to_value(TreeFrame::from(frame)).unwrap()
}

fn json_tree(trace: &Trace, at: u64, tree: &Tree<'_>) -> Value {
    let at = trace.context(ContextId(at)).unwrap();
    serde_json::to_value(TreeDocument::new(at, at.stack().unwrap(), tree)).unwrap()
}

fn limits(ancestors: usize, depth: usize, children: usize) -> Limits {
    Limits { ancestors, depth, children }
}

#[track_caller]
fn check(frame: Frame<'_>, limits: Limits, expected: &str) {
    let mut written = Vec::new();
    text::tree(&Tree::around(frame, limits), &mut written).unwrap();
    let expected: Vec<_> =
        expected.lines().map(|line| line.strip_prefix("            ").unwrap_or(line)).collect();
    let written = String::from_utf8(written).unwrap();
    assert_eq!(written.lines().collect::<Vec<_>>(), expected[1..expected.len() - 1], "{written}");
}

#[test]
fn the_example_as_text() {
    let trace = fixtures::trace();
    let frame = top(&trace, 200_000);
    check(
        frame,
        Limits::default(),
        "
            #198300 - ???
            |- #198400 - ???
               |- #199862 - usbhub!UsbhDecHubBusy <== active
                  |- #199886 - ntoskrnl!KeWaitForSingleObject
                  |- #200032 - ntoskrnl!ExFreePoolWithTag
                     |- #200183 - ntoskrnl!ExpInterlockedPushEntrySList
                  |- #200239 - ntoskrnl!KiAcquireKobjectLockSafe
                  |- #200269 - ntoskrnl!KiExitDispatcher
               |- stack left at #209497, back at #211888
            ",
    );
    check(
        frame,
        limits(0, 1, 2),
        "
            #199862 - usbhub!UsbhDecHubBusy <== active
            |- #199886 - ntoskrnl!KeWaitForSingleObject
            |- #200032 - ntoskrnl!ExFreePoolWithTag
               |- ... 1 frame left out
            |- ... 2 frames left out
            ",
    );
    check(
        frame,
        limits(1, 0, 5),
        "
            #198400 - ???
            |- #199862 - usbhub!UsbhDecHubBusy <== active
               |- ... 5 frames left out
            |- stack left at #209497, back at #211888
            ",
    );
    check(
        frame,
        limits(0, 5, 0),
        "
            #199862 - usbhub!UsbhDecHubBusy <== active
            |- ... 5 frames left out
            ",
    );
}

#[test]
fn trees_end_at_the_outermost_ancestor() {
    let trace = fixtures::trace();
    // There are four ancestors. Two levels below the active frame are shown, whatever the number of
    // ancestors.
    for (ancestors, above, level, root) in [
        (3, 1, 3, "#198205 - ???"),
        (4, 0, 4, "??? - ???"),
        (5, 0, 4, "??? - ???"),
        (usize::MAX, 0, 4, "??? - ???"),
    ] {
        let tree = Tree::around(top(&trace, 200_000), limits(ancestors, 2, 5));
        assert_eq!(tree.above(), above);
        let frames: Vec<_> = frames(&tree);
        assert_eq!(frames[0].1.to_string(), root);
        let active = frames.iter().find(|(_, _, relation)| *relation == Relation::Active).unwrap();
        assert_eq!((active.0, active.1), (level, tree.active()));
        let deepest = frames.iter().map(|(level, ..)| *level).max();
        assert_eq!(deepest, Some(level + 2), "ExpInterlockedPushEntrySList is shown");
    }
}

fn frames<'t>(tree: &Tree<'t>) -> Vec<(usize, Frame<'t>, Relation)> {
    let frame = |row: &Row<'t>| match row.shown {
        Shown::Frame(frame, relation) => Some((row.level, frame, relation)),
        _ => None,
    };
    tree.rows().iter().filter_map(frame).collect()
}

fn stack(builder: &mut Builder) -> StackId {
    let stack = builder.stack(StackInfo {
        kind: StackKind::User,
        process: Some(7),
        thread: Some(8),
        cpu: None,
        name: None,
        region: None,
    });
    builder.apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) }).unwrap();
    stack
}

fn named(builder: &mut Builder, name: &str) -> Option<LocationId> {
    let module = builder.module(ModuleInfo { name: "m".to_owned(), path: None, base: None });
    Some(builder.location(LocationInfo {
        address: None,
        module: Some(module),
        rva: None,
        symbol: Some(name.to_owned()),
        symbol_offset: 0,
    }))
}

/// A frame that calls `count` others, each for one context. Call number n is made by transition 2n
/// + 1.
fn busy(count: u64) -> Trace {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    let location = named(&mut builder, "f");
    let mut apply = |change| builder.apply(change).unwrap();
    apply(Change::Open { stack, first: ContextId(1), start: StartType::Call, location });
    for call in 0..count {
        let at = ContextId(2 * call + 2);
        apply(Change::Open { stack, first: at, start: StartType::Call, location });
        apply(Change::Close { stack, last: at, end: EndType::Return });
    }
    builder.finish(2 * count + 10).unwrap()
}

#[test]
fn late_calls_are_shown_with_their_neighbors() {
    let trace = busy(100);
    check(
        top(&trace, 102),
        limits(1, 0, 5),
        "
            #0 - m!f
            |- ... 48 frames left out
            |- #97 - m!f
            |- #99 - m!f
            |- #101 - m!f <== active
            |- #103 - m!f
            |- #105 - m!f
            |- ... 47 frames left out
            ",
    );
    check(
        top(&trace, 200),
        limits(1, 0, 2),
        "
            #0 - m!f
            |- ... 98 frames left out
            |- #197 - m!f
            |- #199 - m!f <== active
            ",
    );
    check(
        top(&trace, 102),
        limits(1, 0, 0),
        "
            #0 - m!f
            |- ... 50 frames left out
            |- #101 - m!f <== active
            |- ... 49 frames left out
            ",
    );
}

#[test]
fn stack_changes_are_limited() {
    let mut builder = Builder::new();
    let [own, other] = [0, 1].map(|_| stack(&mut builder));
    let mut apply = |change| builder.apply(change).unwrap();
    apply(Change::Open { stack: own, first: ContextId(0), start: StartType::Unknown, location: None });
    // Even contexts belong to one stack, odd ones to the other.
    for context in 0..1000 {
        let stack = if context % 2 == 0 { own } else { other };
        apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(context) });
    }
    let trace = builder.finish(1000).unwrap();
    check(
        top(&trace, 10),
        limits(0, 1, 2),
        "
            ??? - ??? <== active
            |- stack left at #0, back at #1
            |- stack left at #2, back at #3
            |- ... and left more often
            ",
    );
}

#[test]
fn counts_of_sampled_traces_are_lower_bounds() {
    let mut builder = Builder::new();
    builder.sampled();
    let stack = stack(&mut builder);
    let location = named(&mut builder, "f");
    builder
        .open_between(stack, (ContextId(1), ContextId(3)), StartType::Call, location, Evidence::Snapshot)
        .unwrap();
    builder
        .open_between(stack, (ContextId(4), ContextId(5)), StartType::Call, location, Evidence::Snapshot)
        .unwrap();
    builder.close_between(stack, (ContextId(6), ContextId(8)), EndType::Gone).unwrap();
    let trace = builder.finish(10).unwrap();
    let outer = top(&trace, 3);
    check(
        outer,
        limits(0, 0, 5),
        "
            ~#3 - m!f <== active
            |- ... >=1 frames left out
            ",
    );
    let tree = Tree::around(outer, limits(0, 0, 5));
    let document = json_tree(&trace, 3, &tree);
    assert_eq!(
        document["rows"][1],
        json!({"level": 1, "kind": "cut", "count": 1, "least": 1, "at_least": true})
    );
    assert_eq!(document["rows"][0]["frame"]["at_least"], true);
    assert!(html::page(&tree).contains("|- ... &gt;=1 frames left out"));
    let inner = top(&trace, 5);
    assert_eq!(text::call(inner).to_string(), "~#5 m!f(...) ~#6");
    assert_eq!(text::call(outer).to_string(), "~#3 m!f(...) ???");
    assert!(html::page(&Tree::around(inner, Limits::default())).contains("<small>#4..#5 to #6..#8</small>"));
    let frame = json_frame(inner);
    assert_eq!(frame["start"], json!({"kind": "inferred", "lo": 4, "hi": 5}));
    assert_eq!(frame["end"], json!({"kind": "inferred", "lo": 6, "hi": 8}));
    assert_eq!(frame["creation"], Value::Null);
    assert_eq!(frame["continuity"], "assumed");
    assert_eq!(json_frame(outer)["end"], json!({"kind": "open", "lo": null, "hi": null}));
}

#[test]
fn unusual_properties_of_frames_are_shown() {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    let location = named(&mut builder, "f");
    let mut apply = |change| builder.apply(change).unwrap();
    apply(Change::Open { stack, first: ContextId(1), start: StartType::Call, location });
    apply(Change::Open { stack, first: ContextId(2), start: StartType::Interrupt, location });
    apply(Change::Close { stack, last: ContextId(3), end: EndType::InterruptReturn });
    apply(Change::Open { stack, first: ContextId(5), start: StartType::Manual, location });
    apply(Change::Close { stack, last: ContextId(6), end: EndType::Unwound });
    let trace = builder.finish(10).unwrap();
    check(
        top(&trace, 1),
        Limits::default(),
        "
            #0 - m!f <== active
            |- #1 - m!f [interrupt]
            |- #4 - m!f [manual, unwound]
            ",
    );
    let page = html::page(&Tree::around(top(&trace, 1), Limits::default()));
    assert!(page.contains("<small>#5 to #6, manual, unwound</small>"), "{page}");
    assert!(page.contains("started by manual, ended by unwound"), "{page}");
    assert!(page.contains("<small>#1, not ended</small>"), "{page}");
}

#[test]
fn tail_calls_are_shown_with_their_frame() {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    let [outer, inner, first, second] =
        ["outer", "inner", "<first>", "second"].map(|name| named(&mut builder, name).unwrap());
    let open = |first, location| Change::Open {
        stack,
        first: ContextId(first),
        start: StartType::Call,
        location: Some(location),
    };
    let jump = |first, location| Change::TailCall { stack, first: ContextId(first), location };
    for change in [
        open(1, outer),
        open(3, inner),
        jump(5, first),
        jump(7, second),
        Change::Close { stack, last: ContextId(8), end: EndType::Return },
        jump(20, first),
        jump(21, second),
        jump(22, first),
        jump(23, second),
        jump(24, first),
    ] {
        builder.apply(change).unwrap();
    }
    let trace = builder.finish(30).unwrap();
    check(
        top(&trace, 1),
        Limits::default(),
        "
            #0 - m!outer [then m!<first> at #19, then m!second at #20, then m!<first> at #21, 2 more] <== active
            |- #2 - m!inner [then m!<first> at #4, then m!second at #6]
            ",
    );
    let page = html::page(&Tree::around(top(&trace, 1), Limits::default()));
    assert!(
        page.contains("<small>#3 to #8, then m!&lt;first&gt; at #4, then m!second at #6</small>"),
        "{page}"
    );
    let found = trace.tail_calls(&Pattern::new("second").unwrap());
    let lines: Vec<String> = found.iter().map(|found| text::tail_call(*found).to_string()).collect();
    assert_eq!(
        lines,
        [
            "#6 m!second(...) #8  tail call of #2 - m!inner",
            "#20 m!second(...) #21  tail call of #0 - m!outer",
            "#22 m!second(...) #23  tail call of #0 - m!outer",
        ]
    );
    let line = serde_json::to_value(CallLine::from(found[0])).unwrap();
    let reached = |transition, last, name| {
        let name = format!("m!{name}");
        let symbol = name.strip_prefix("m!").unwrap().to_owned();
        json!({
            "transition": transition,
            "first": transition + 1,
            "last": last,
            "name": name,
            "symbol": symbol,
            "address": null,
        })
    };
    assert_eq!(line["tail_call"], reached(6, 8, "second"));
    assert_eq!((&line["name"], &line["first"]), (&json!("m!inner"), &json!(3)));
    assert_eq!(line["tail_calls"], json!([reached(4, 6, "<first>"), reached(6, 8, "second")]));
    let line = serde_json::to_value(CallLine::from(found[0].frame())).unwrap();
    assert_eq!(line["tail_call"], json!(null));
}

/// The text of all elements, in order, and the names of elements. Panics if the fragment is not
/// well-formed.
fn elements(html: &str) -> (String, Vec<String>) {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(html);
    let (mut text, mut names) = (String::new(), Vec::new());
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Start(start) => names.push(start.name().0.to_owned()),
            Event::Text(part) => text += &part,
            Event::GeneralRef(name) => text += &format!("&{};", &*name),
            Event::Eof => return (text, names),
            _ => {}
        }
    }
}

#[test]
fn the_example_as_a_page() {
    let trace = fixtures::trace();
    let tree = Tree::around(top(&trace, 200_000), limits(2, 2, 3));
    let (shown, names) = elements(&html::fragment(&tree));
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    // Frames with calls: two ancestors, the active one, and ExFreePoolWithTag.
    assert_eq!((count("strong"), count("details"), count("summary")), (1, 4, 4));
    assert_eq!(count("ul"), 5);
    assert!(shown.contains("|- ... 1 frame left out"), "{shown}");
    assert!(shown.contains("stack left at #209497, back at #211888"), "{shown}");
    let page = html::page(&tree);
    assert!(page.contains(&html::fragment(&tree)));
    assert!(page.contains("2 outer frames are not shown"), "{page}");
    let active =
        page.split_once(r#"<strong aria-current="true">"#).unwrap().1.split_once("</strong>").unwrap().0;
    assert_eq!(active, html::frame(tree.active()));
    assert!(active.ends_with(">#199862 - usbhub!UsbhDecHubBusy</span>"), "{active}");
    assert!(
        active.contains("kernel stack of thread 1: #199863 to #200320; started by call, ended by return")
    );
    // The page is a single file that loads nothing.
    for loading in ["src=", "href=", "url(", "@import", "<script ", "<link", "<iframe"] {
        assert!(!page.contains(loading), "{loading}");
    }
    // Its policy allows its script, and no other one.
    let (before, script) = page.split_once("<script>").unwrap();
    let script = script.split_once("</script>").unwrap().0;
    assert!(before.contains(&format!("; script-src 'sha256-{}'\">", base64(&Sha256::digest(script)))));
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!html::fragment(&tree).contains("<script"));
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let quads = bytes.chunks(3).map(|chunk| {
        let number =
            chunk.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)) << (8 * (3 - chunk.len()));
        let digit = |index: usize| match index <= chunk.len() {
            true => char::from(DIGITS[number >> (18 - 6 * index) & 63]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    });
    quads.collect()
}

#[test]
fn deep_rows_have_the_number_of_their_level() {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    for at in 0..101 {
        let first = ContextId(at + 1);
        builder.apply(Change::Open { stack, first, start: StartType::Call, location: None }).unwrap();
    }
    let trace = builder.finish(200).unwrap();
    let fragment = html::fragment(&Tree::around(top(&trace, 150), limits(100, 1, 1)));
    let (_, names) = elements(&fragment);
    assert_eq!(names.iter().filter(|name| *name == "li").count(), 101);
    for level in [13, 57, 100] {
        assert_eq!(fragment.matches(&format!("<small>{level}:</small>")).count(), 1, "{level}");
    }
    assert!(!fragment.contains("<small>12:</small>"));
    assert_eq!(fragment.matches("<ul class=\"deep\">").count(), 88);
}

/// Chromium cuts documents of more than 512 nested elements.
#[test]
fn pages_nest_less_than_browsers_allow() {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    for at in 0..600 {
        let first = ContextId(at + 1);
        builder.apply(Change::Open { stack, first, start: StartType::Call, location: None }).unwrap();
    }
    let trace = builder.finish(700).unwrap();
    let page = html::page(&Tree::around(top(&trace, 650), limits(600, 1, 1)));
    let body = &page[page.find("<main>").unwrap()..page.find("<script>").unwrap()];
    let (mut depth, mut deepest) = (2_i32, 0);
    for element in body.split('<').skip(1) {
        depth += if element.starts_with('/') { -1 } else { 1 };
        deepest = deepest.max(depth);
    }
    assert!((450..512).contains(&deepest), "{deepest}");
    // Each row is there, with its level.
    assert_eq!(body.matches("class=\"stackhound-frame\"").count(), 600);
    for level in [150, 151, 599] {
        assert_eq!(body.matches(&format!("<small>{level}:</small>")).count(), 1, "{level}");
    }
    assert!(!body.contains("data-level=\"150\""));
    assert_eq!(body.matches("data-level=\"").count(), 599 - 150);
}

/// One transition each 30 µs.
#[test]
fn rows_have_times_and_durations() {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    let label = builder.label("");
    for at in 0..200_000 {
        builder.transition(1_000_000 + 300 * at, Cpu(0), label);
    }
    let mut open = |first, start| {
        builder.apply(Change::Open { stack, first: ContextId(first), start, location: None }).unwrap();
    };
    open(0, StartType::Unknown);
    open(3, StartType::Call);
    builder.apply(Change::Close { stack, last: ContextId(5), end: EndType::Return }).unwrap();
    let mut open = |first, start| {
        builder.apply(Change::Open { stack, first: ContextId(first), start, location: None }).unwrap();
    };
    open(41, StartType::Call);
    builder.apply(Change::Close { stack, last: ContextId(140_000), end: EndType::Return }).unwrap();
    let trace = builder.finish(200_000).unwrap();
    let (shown, _) = elements(&html::fragment(&Tree::around(top(&trace, 0), Limits::default())));
    // Transition 2 creates the first call, and transition 5 ends it.
    assert!(shown.contains("#3 to #5, +60.0 µs, 90.0 µs"), "{shown}");
    assert!(shown.contains("#41 to #140000, +1.200 ms, 4.199 s"), "{shown}");
    let (shown, _) =
        elements(&html::fragment(&Tree::around(top(&fixtures::trace(), 200_000), Limits::default())));
    assert!(!shown.contains(" µs"), "{shown}");
}

/// Transition n is at 30 n µs. The start of a frame is the transition before its first context; an
/// inferred one was observed only at the transition of that context.
#[test]
fn inferred_times_have_both_limits_and_open_ones_none() {
    use Bound::{Inferred, Observed, Open};
    let inferred = |lo, hi| Inferred { lo: ContextId(lo), hi: ContextId(hi) };
    for (start, end, expected) in [
        (Observed(ContextId(3)), inferred(6, 8), "#3 to #6..#8, +60.0 µs, 120.0 µs to 180.0 µs"),
        (Observed(ContextId(3)), Open, "#3, not ended, +60.0 µs"),
        (inferred(3, 5), inferred(6, 8), "#3..#5 to #6..#8, +60.0 µs to +150.0 µs, 30.0 µs to 180.0 µs"),
        (inferred(3, 5), Open, "#3..#5, not ended, +60.0 µs to +150.0 µs"),
        // No transition precedes context 0.
        (inferred(0, 2), inferred(6, 8), "#0..#2 to #6..#8"),
        (Open, inferred(6, 8), "??? to #6..#8"),
        (Open, Open, "???, not ended"),
    ] {
        let mut builder = Builder::new();
        let stack = stack(&mut builder);
        let label = builder.label("");
        for at in 0..10 {
            builder.transition(1_000_000 + 300 * at, Cpu(0), label);
        }
        let mut open = |first, start| {
            builder.apply(Change::Open { stack, first, start, location: None }).unwrap();
        };
        match start {
            Observed(first) => open(first, StartType::Call),
            Open => open(ContextId(0), StartType::Unknown),
            Inferred { lo, hi } => {
                builder.open_between(stack, (lo, hi), StartType::Call, None, Evidence::Snapshot).unwrap();
            }
        }
        if let Inferred { lo, hi } = end {
            builder.close_between(stack, (lo, hi), EndType::Return).unwrap();
        }
        let trace = builder.finish(10).unwrap();
        let frame = top(&trace, 5);
        assert_eq!((frame.start(), frame.end()), (start, end));
        let fragment = html::fragment(&Tree::around(frame, Limits::default()));
        let times = fragment.split("<small>").nth(1).unwrap().split("</small>").next().unwrap();
        assert!(times == expected || times.starts_with(&format!("{expected}, [")), "{times}, not {expected}");
    }
}

#[test]
fn names_are_never_markup_or_control_characters() {
    let mut builder = Builder::new();
    let stack = stack(&mut builder);
    let hostile = "<script>alert('1')</script>\"&\u{1b}[31m\n";
    let location = named(&mut builder, hostile);
    builder.apply(Change::Open { stack, first: ContextId(1), start: StartType::Call, location }).unwrap();
    let trace = builder.finish(5).unwrap();
    let frame = top(&trace, 1);
    let tree = Tree::around(frame, Limits::default());
    let page = html::page(&tree);
    let escaped = "m!&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\u{fffd}[31m\u{fffd}";
    assert_eq!(page.matches(escaped).count(), 3, "title, heading, tree: {page}");
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
    elements(&html::fragment(&tree));
    let mut lines = Vec::new();
    text::tree(&tree, &mut lines).unwrap();
    text::stack(&frame.stack(), &mut lines).unwrap();
    let mut lines = String::from_utf8(lines).unwrap();
    for range in frame.execution_ranges_by_call() {
        lines += &format!("{}\n", text::call_range(range));
    }
    lines += &text::call(frame).to_string();
    assert_eq!(lines.lines().count(), 5, "{lines:?}");
    assert!(!lines.contains('\u{1b}'));
    // JSON escapes all control characters.
    assert_eq!(json_frame(frame)["symbol"], hostile);
}

#[test]
fn the_example_as_json() {
    let trace = fixtures::trace();
    let frame = top(&trace, 200_000);
    let expected = json!({
        "stack_id": 0, "name": "usbhub!UsbhDecHubBusy", "module": "usbhub", "path": null, "symbol": "UsbhDecHubBusy", "offset": 0,
        "address": "0xfffff800fe4ac010", "rva": "0xc010", "stub": null, "tail_calls": [], "creation": 199_862, "first": 199_863, "last": 200_320,
        "start": {"kind": "observed", "lo": 199_863, "hi": 199_863},
        "end": {"kind": "observed", "lo": 200_320, "hi": 200_320}, "started": null, "duration": null,
        "start_type": "call", "end_type": "return",
        "evidence": "exact", "continuity": "observed", "depth": 4, "descendants": 5, "least": 5, "at_least": false,
    });
    let mut written = json_frame(frame);
    // The frame id only identifies the frame.
    let number = written.as_object_mut().unwrap().remove("frame_id").unwrap().as_u64().unwrap();
    assert_eq!(trace.frame(FrameId(number)).unwrap(), frame);
    assert_eq!(written, expected);

    let tree = json_tree(&trace, 200_000, &Tree::around(frame, limits(1, 1, 1)));
    assert_eq!((&tree["active_frame_id"], &tree["above"]), (&json!(number), &json!(3)));
    let shape: Vec<_> =
        tree["rows"].as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone()).collect();
    // The order of keys depends on features of the library that other crates enable.
    let keys: Vec<Vec<_>> = shape.iter().map(sorted_keys).collect();
    let (frame_row, cut, away) = (
        vec!["frame", "kind", "level", "relation"],
        vec!["at_least", "count", "kind", "least", "level"],
        vec!["back", "kind", "left", "level"],
    );
    assert_eq!(keys, [frame_row.clone(), frame_row.clone(), frame_row, cut, away]);
    assert_eq!(
        tree["rows"][3],
        json!({"level": 2, "kind": "cut", "count": 4, "least": 4, "at_least": false})
    );
    assert_eq!(tree["rows"][4], json!({"level": 1, "kind": "away", "left": 209_497, "back": 211_888}));

    let between = trace.context(ContextId(210_000)).unwrap().stack().unwrap();
    assert_eq!(
        serde_json::to_value(TreeStack::from(between.prev_stack(Axis::Cpu).unwrap())).unwrap(),
        json!({
            "stack_id": 0, "kind": "kernel", "pid": 4, "tid": 1, "cpu": null, "name": null, "context": 209_497,
            "active": true, "active_since": {"kind": "observed", "lo": 0, "hi": 0},
        })
    );
    assert_eq!(
        serde_json::to_value(FullStack::from(between)).unwrap()["frames"].as_array().unwrap().len(),
        1
    );
}

proptest! {
    /// For any limits, each frame below the first row's frame is shown or counted, and the path to
    /// the active frame is always shown.
    #[test]
    fn every_frame_is_shown_or_counted(
        steps in prop::collection::vec(any::<bool>(), 1..200),
        context in 0_usize..200,
        (ancestors, depth, children) in (0_usize..6, 0_usize..6, 0_usize..6),
    ) {
        let mut builder = Builder::new();
        let stack = stack(&mut builder);
        builder.apply(Change::Open { stack, first: ContextId(0), start: StartType::Unknown, location: None }).unwrap();
        let mut open = 0;
        for (at, opens) in steps.iter().enumerate() {
            let at = at as u64;
            if *opens {
                let first = ContextId(at + 1);
                builder.apply(Change::Open { stack, first, start: StartType::Call, location: None }).unwrap();
                open += 1;
            } else if open > 0 {
                builder.apply(Change::Close { stack, last: ContextId(at), end: EndType::Return }).unwrap();
                open -= 1;
            }
        }
        let trace = builder.finish(steps.len() as u64).unwrap();
        let active = top(&trace, (context % (steps.len() + 1)) as u64);
        let tree = Tree::around(active, limits(ancestors, depth, children));
        let shown = frames(&tree);
        let root = shown[0].1;
        let cut: u64 = tree.rows().iter().map(|row| match row.shown {
            Shown::Cut(count) => count.number(),
            _ => 0,
        }).sum();
        let below = root.descendant_events().filter(|event| matches!(event, StackEvent::FrameStart(_))).count();
        prop_assert_eq!(shown.len() as u64 + cut, 1 + below as u64);
        let path: Vec<_> = shown.iter().filter(|(.., relation)| matches!(relation, Relation::Above | Relation::Active))
            .map(|(_, frame, _)| *frame).collect();
        let mut expected: Vec<_> = std::iter::once(active).chain(active.ancestors().take(ancestors)).collect();
        expected.reverse();
        prop_assert_eq!(&path, &expected);
        // Frames are in the order of the trace, and none is repeated.
        prop_assert!(shown.windows(2).all(|pair| pair[0].1.id() < pair[1].1.id()));
        for (level, frame, _) in &shown {
            let below = shown.iter().filter(|(_, other, _)| other.parent() == Some(*frame)).count();
            prop_assert!(below <= children.max(1));
            prop_assert!(*level < path.len() + depth);
            let above_it = frame.ancestors().position(|above| above == root).map_or(0, |above| above + 1);
            prop_assert_eq!(above_it, *level);
        }
    }
}
