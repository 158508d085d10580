"""Stacks, frames and their events, on the documented trace and on an ETW trace."""

import itertools

import pytest
import stackhound
from stackhound.stack import (
    CallRange,
    Continuity,
    Count,
    Evidence,
    FrameEnd,
    FrameEndType,
    FrameStart,
    FrameStartType,
    Inferred,
    Observed,
    Open,
    Stack,
    StackEnter,
    StackFrame,
    StackKind,
    StackLeave,
)
from stackhound.trace import ContextRange, Trace


def at(trace: Trace, context: int) -> StackFrame:
    stack = trace.context_before(context).stack
    assert stack is not None
    frame = stack.frame()
    assert frame is not None
    return frame


def lines(things: object) -> list[str]:
    return [str(thing) for thing in things]  # type: ignore[attr-defined]


# The documented trace.


def test_a_frame_and_its_relatives(trace: Trace) -> None:
    frame = at(trace, 200_000)
    assert str(frame) == "#199862 - usbhub!UsbhDecHubBusy"
    assert repr(frame) == "<StackFrame #199862 - usbhub!UsbhDecHubBusy>"
    assert str(frame.creation_transition) == str(frame.function_start()) == "#199862 call 0xfffff800fe4ac010"
    assert frame.first_context == frame.first_executed_context == trace.context_before(199_863)
    assert frame.last_context == trace.context_before(200_320)
    assert frame.range == ContextRange(frame.first_context, frame.last_context)
    assert len(frame.range) == 458
    children = [
        "#199886 - ntoskrnl!KeWaitForSingleObject",
        "#200032 - ntoskrnl!ExFreePoolWithTag",
        "#200239 - ntoskrnl!KiAcquireKobjectLockSafe",
        "#200269 - ntoskrnl!KiExitDispatcher",
    ]
    assert lines(frame.children()) == children
    assert lines(frame.reversed_children()) == children[::-1]
    assert frame.child_count() == 4
    assert frame.descendant_count() == 5
    assert [child.parent for child in frame.children()] == [frame] * 4
    assert {child.depth for child in frame.children()} == {frame.depth + 1}
    ancestors = list(frame.ancestors())
    assert len(ancestors) == frame.depth == 4
    assert ancestors[0] == frame.parent
    assert ancestors[-1].parent is None
    assert trace.frame(frame.id) == frame


def test_the_location_of_a_function(trace: Trace) -> None:
    frame = at(trace, 200_000)
    location = frame.function_location()
    assert location is not None
    assert (location.binary.name, str(location.binary)) == ("usbhub", "usbhub")
    assert (location.symbol, location.symbol_offset) == ("UsbhDecHubBusy", 0)
    assert (location.rva, location.address) == (0xC010, 0xFFFF_F800_FE4A_C010)
    assert frame.name == location.name == "usbhub!UsbhDecHubBusy"
    assert repr(location) == str(location)
    assert str(location).endswith("rva=0xc010)")
    assert location == frame.function_location()
    # Of the frames that the documentation does not name, nothing is known.
    outermost = list(frame.ancestors())[-1]
    assert (outermost.function_location(), outermost.name) == (None, "???")
    assert str(outermost) == "??? - ???"


def test_how_frames_start_and_end(trace: Trace) -> None:
    frame = at(trace, 200_000)
    assert frame.type is frame.start_type is FrameStartType.Call
    assert frame.end_type is FrameEndType.Return
    assert frame.evidence is Evidence.Exact
    assert frame.continuity is Continuity.Observed
    assert frame.start_bound == Observed_at(trace, 199_863)
    assert str(frame.end_bound) == "#200320"
    assert str(frame.start_event) == "Start #199862 - usbhub!UsbhDecHubBusy"
    assert (frame.start_event.frame, frame.start_event.type) == (frame, FrameStartType.Call)
    assert frame.start_event.transition == trace.transition(199_862)
    assert frame.end_event is not None
    assert str(frame.end_event) == "End #199862 - usbhub!UsbhDecHubBusy"
    assert (frame.end_event.frame, frame.end_event.type) == (frame, FrameEndType.Return)
    assert frame.end_event.transition == trace.transition(200_320)
    base = list(frame.ancestors())[-1]
    assert (base.start_type, base.end_type) == (FrameStartType.Unknown, FrameEndType.TraceEnd)
    assert (base.creation_transition, base.function_start(), base.end_event) == (None, None, None)
    assert isinstance(base.start_bound, Open)
    assert (str(base.start_bound), repr(base.start_bound)) == ("???", "Open()")
    assert base.end_bound == base.start_bound
    assert base.first_executed_context == trace.first_context
    assert base.last_context == trace.last_context


def Observed_at(trace: Trace, context: int) -> Observed:
    # Bounds are made by the library only; a frame that starts there has this one.
    bound = at(trace, context).start_bound
    assert isinstance(bound, Observed)
    assert bound.context == trace.context_before(context)
    return bound


def test_ranges_by_call(trace: Trace) -> None:
    frame = at(trace, 200_000)
    assert lines(frame.execution_ranges()) == ["[Context before #199863, Context before #200320]"]
    found = list(frame.execution_ranges(by="call"))
    assert lines(found) == [
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
    ]
    # Collected ranges keep paths of their own.
    assert [len(one.path) for one in found] == [1, 2, 1, 2, 3, 2, 1, 2, 1, 2, 1]
    assert lines(found[4].path) == [
        "#199862 - usbhub!UsbhDecHubBusy",
        "#200032 - ntoskrnl!ExFreePoolWithTag",
        "#200183 - ntoskrnl!ExpInterlockedPushEntrySList",
    ]
    assert (found[4].frame, found[4].depth) == (found[4].path[-1], 2)
    assert repr(found[0]).startswith("<CallRange [0]#199862")
    assert found == list(frame.execution_ranges(by="call"))
    # They are disjoint, in order, and together the whole.
    assert [context.id for one in found for context in one.range] == list(range(199_863, 200_321))
    own = frame.execution_ranges(by="call", exclude="ntoskrnl!*")
    assert [len(one.range) for one in own] == [24, 40, 30, 19, 11]


def test_a_stack_that_is_left_and_entered(trace: Trace) -> None:
    outer = list(at(trace, 200_000).ancestors())[2]
    assert outer.first_context.id == 198_206
    events = list(outer.descendant_events())
    changes = [event for event in events if isinstance(event, (StackLeave, StackEnter))]
    assert lines(changes) == ["Leave #209497", "Enter #211888"]
    assert [repr(change) for change in changes] == ["<StackLeave #209497>", "<StackEnter #211888>"]
    assert changes[0].transition.context_before() == trace.context_before(209_497)
    assert lines(outer.execution_ranges()) == [
        "[Context before #198206, Context before #209497]",
        "[Context before #211889, Context before #212379]",
    ]
    between = trace.context_before(210_000).stack
    assert between is not None
    before, behind = between.prev_stack(), between.next_stack()
    assert before is not None
    assert behind is not None
    assert (before.context.id, behind.context.id) == (209_497, 211_889)
    assert before.id == behind.id == outer.stack.id != between.id
    assert behind.next_stack() is None
    assert outer.stack.prev_stack("cpu") is None
    with pytest.raises(ValueError, match='the axis is "cpu" or "thread", not "core"'):
        between.prev_stack("core")  # type: ignore[arg-type]


def test_events_below_a_frame(trace: Trace) -> None:
    frame = at(trace, 3_000_000)
    assert str(frame) == "#2999024 - win32kfull!xxxDCEWindowHitTestInternal"
    events = lines(frame.descendant_events())
    assert events[:4] == [
        "Start #2999033 - ntoskrnl!PsGetCurrentProcessWin32Process",
        "End #2999033 - ntoskrnl!PsGetCurrentProcessWin32Process",
        "Start #2999065 - win32kfull!xxxDCEWindowHitTest2Internal",
        "Start #2999114 - win32kfull!__security_check_cookie",
    ]
    assert events[-1] == "End #3016796 - win32kbase!ThreadUnlock1"


def test_skipping_is_filtering(trace: Trace) -> None:
    """Skipping below every second frame is equivalent to filtering the whole sequence."""
    outer = list(at(trace, 200_000).ancestors())[2]
    events = outer.descendant_events()
    skipped = []
    for event in events:
        skipped.append(event)
        if isinstance(event, FrameStart) and event.frame.id % 2 == 0:
            events.skip_children()
    filtered = []
    inside: StackFrame | None = None
    for event in outer.descendant_events():
        if isinstance(event, FrameEnd) and event.frame == inside:
            inside = None
        if inside is None:
            filtered.append(event)
            if isinstance(event, FrameStart) and event.frame.id % 2 == 0:
                inside = event.frame
    assert skipped == filtered
    assert 0 < len(skipped) < len(list(outer.descendant_events()))
    # Without a start directly before, it has no effect.
    events = outer.descendant_events()
    events.skip_children()
    assert list(events) == list(outer.descendant_events())


def test_events_match_by_pattern(trace: Trace) -> None:
    seen = set()
    for event in list(at(trace, 200_000).ancestors())[2].descendant_events():
        match event:
            case FrameStart(frame) | FrameEnd(frame):
                assert isinstance(frame, StackFrame)
                seen.add("frame")
            case StackLeave(transition) | StackEnter(transition):
                seen.add(str(transition.context_before()))
    assert seen == {"frame", "Context before #209497", "Context before #211888"}


def test_calls_by_name(trace: Trace) -> None:
    assert lines(trace.calls("ntoskrnl!Ki*")) == [
        "#200239 - ntoskrnl!KiAcquireKobjectLockSafe",
        "#200269 - ntoskrnl!KiExitDispatcher",
    ]
    assert lines(trace.calls("THREADUNLOCK?")) == [
        f"#{start} - win32kbase!ThreadUnlock1" for start in (3016734, 3016755, 3016796)
    ]
    assert list(trace.calls("usbhub!Ki*")) == []


def test_equal_frames_are_one(trace: Trace, server: stackhound.TraceFile) -> None:
    frame, again = at(trace, 200_000), at(server.trace, 200_100)
    assert frame != at(trace, 199_900)
    assert frame == next(trace.calls("UsbhDecHubBusy"))
    assert len({frame, next(trace.calls("UsbhDecHubBusy")), again}) == 2
    assert again.parent == frame
    assert frame != "#199862 - usbhub!UsbhDecHubBusy"
    # Another opening of the same file is another trace.
    other = stackhound.open(server.path).trace
    assert other != trace
    assert at(other, 200_000) != frame


# Each level and how deep it is, by hand from the documented frames: one up, one down and the active one in <strong>.
def test_html(trace: Trace) -> None:
    frame = at(trace, 200_000)
    assert "#199862 - usbhub!UsbhDecHubBusy" in frame.format_as_html()
    page = frame.tree_html(max_ancestors=2, max_depth=2, max_children=5)
    assert page.count("<strong") == 1
    strong = page[page.index("<strong") : page.index("</strong>")]
    assert "#199862 - usbhub!UsbhDecHubBusy" in strong
    order = ["#198300 - ???", "#198400 - ???", "#199862 -", "#200032 -", "#200183 -", "#200269 -"]
    locations = [page.index(name) for name in order]
    assert locations == sorted(locations)
    assert "#198205 - ???" not in page
    assert "|- ..." not in page
    cut = frame.tree_html(max_ancestors=0, max_depth=1, max_children=3)
    assert "|- ..." in cut
    assert "KiExitDispatcher" not in cut
    assert "#200183" not in cut
    assert "#198400" not in cut
    assert frame._repr_html_() == frame.tree_html()
    with pytest.raises(OverflowError):
        frame.tree_html(max_depth=-1)


# The small ETW trace.


def test_a_sampled_trace_reports_unknown_values(sampled: Trace) -> None:
    assert sampled.is_sampled
    work = next(sampled.calls("app.exe!work"))
    assert str(work) == "~#1 - app!work"
    assert (work.evidence, work.continuity) == (Evidence.Snapshot, Continuity.Assumed)
    match work.start_bound:
        case Inferred(lo, hi):
            assert (lo.id, hi.id) == (0, 1)
        case other:
            pytest.fail(f"{other}")
    assert str(work.end_bound) == "#14..#18"
    assert repr(work.end_bound) == "Inferred(Context before #14, Context before #18)"
    assert work.end_type is FrameEndType.Gone
    assert (work.creation_transition, work.function_start()) == (None, None)
    assert work.end_event is not None
    assert work.end_event.transition is None
    read = next(sampled.calls("ntoskrnl.exe!NtReadFile"))
    assert (read.evidence, read.continuity) == (Evidence.Boundary, Continuity.Observed)
    assert (str(read.start_bound), str(read.end_bound)) == ("#3", "#7")


def test_counts_of_a_sampled_trace_are_lower_bounds(sampled: Trace, trace: Trace) -> None:
    base = next(sampled.calls("app.exe!*"))
    count = base.child_count()
    assert (count.value, int(count), count.is_lower_bound) == (1, 1, True)
    assert (str(count), repr(count)) == (">=1", "Count(>=1)")
    assert count != 1
    exact = at(trace, 200_000).child_count()
    assert (str(exact), exact.is_lower_bound) == ("4", False)
    assert {exact: "four"}[4] == "four"  # type: ignore[index]
    assert exact == at(trace, 200_000).child_count()
    assert exact != count
    assert not at(trace, 199_900).child_count()
    with pytest.raises(TypeError):
        assert exact < count  # type: ignore[operator]
    assert isinstance(exact, Count)


def test_stacks_of_a_thread(sampled: Trace) -> None:
    inside = sampled.context_before(5)
    kernel = inside.stack
    assert kernel is not None
    assert str(kernel) == "kernel stack of thread 7 (app.exe)"
    assert (kernel.kind, kernel.process_id, kernel.thread_id) == (StackKind.Kernel, 4, 7)
    assert (kernel.name, kernel.cpu, kernel.region, kernel.is_active) == ("app.exe", None, None, True)
    assert kernel.context == inside
    user = inside.stack_of(7, StackKind.User)
    assert user is not None
    assert not user.is_active
    assert user.region == (0x1000, 0x5000)
    assert [stack.kind for stack in inside.stacks_of(7)] == [StackKind.User, StackKind.Kernel]
    assert inside.stack_of(8, StackKind.User) is None
    caller = kernel.prev_stack("thread")
    assert caller is not None
    assert (caller.id, caller.context.id) == (user.id, 2)
    assert lines(caller.frames()) == ["~#1 - app!work", "??? - app+0x1230"]
    assert [stack.id for stack in sampled.stacks(5)] == [0, 1, 2]
    # There is no stack where the activity of a processor is not known.
    assert sampled.context_before(10).stack is None
    moved = sampled.context_before(12).stack
    assert moved is not None
    assert moved.id == user.id
    assert str(moved.active_since) == "#10..#12"
    assert isinstance(kernel.active_since, Observed)
    with pytest.raises(TypeError, match="a StackKind expected, not int"):
        inside.stack_of(7, 1)  # type: ignore[arg-type]


def test_an_interrupt(sampled: Trace) -> None:
    context = sampled.context_before(15)
    assert context.cpu == 1
    stack = context.stack
    assert stack is not None
    assert (stack.kind, stack.cpu, stack.thread_id) == (StackKind.Interrupt, 1, None)
    frame = stack.frame()
    assert frame is not None
    assert (frame.start_type, frame.end_type) == (FrameStartType.Interrupt, FrameEndType.InterruptReturn)
    assert frame.function_start() == sampled.transition(14)
    interrupted = stack.prev_stack()
    assert interrupted is not None
    assert interrupted.kind is StackKind.User
    assert "<li>" in stack._repr_html_()
    assert "&lt;ISR&gt;" in stack._repr_html_()


def test_a_location_without_a_symbol(sampled: Trace) -> None:
    location = next(sampled.calls("app.exe!*")).function_location()
    assert location is not None
    assert (location.symbol, location.name) == (None, "app+0x1230")
    assert (location.binary.path, location.binary.base_address) == ("C:\\app.exe", 0x1_4000_0000)
    assert repr(location.binary) == "Binary(name='app')"


# Errors and lifetimes.


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"by": "frame"}, 'ranges are by=None or by="call", not "frame"'),
        ({"exclude": "a!*"}, 'to exclude calls, ask for the ranges by="call"'),
        ({"by": "call", "exclude": "a["}, '"a\\["'),
    ],
)
def test_ranges_that_there_are_not(trace: Trace, asked: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        at(trace, 200_000).execution_ranges(**asked)  # type: ignore[call-overload]


def test_an_invalid_pattern(trace: Trace) -> None:
    with pytest.raises(ValueError, match="is not a valid name pattern"):
        trace.calls("a[")


def test_frames_by_number(trace: Trace) -> None:
    assert [trace.frame(number).id for number in range(40)] == list(range(40))
    for number in (40, -1, 10**30):
        with pytest.raises(IndexError, match="is outside the trace, which has 40"):
            trace.frame(number)


def test_objects_outlive_their_source(documented: object) -> None:
    frame = at(stackhound.open(str(documented)).trace, 200_000)
    events = frame.descendant_events()
    children = frame.children()
    del frame
    assert len(list(events)) == 10
    parent = next(children).parent
    assert parent is not None
    assert str(parent) == "#199862 - usbhub!UsbhDecHubBusy"


def test_iterators_make_one_thing_at_a_time(trace: Trace) -> None:
    # Of three million contexts, three.
    assert [context.id for context in itertools.islice(trace.contexts(), 3)] == [0, 1, 2]
    children = at(trace, 200_000).children()
    assert iter(children) is children
    next(children)
    assert len(list(children)) == 3
    assert next(children, None) is None


def test_only_the_library_makes_them(trace: Trace) -> None:
    for kind in (StackFrame, Stack, CallRange, Observed, Trace):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises(AttributeError):
        trace.first_context.id = 3  # type: ignore[misc]
