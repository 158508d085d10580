"""Traces, contexts, transitions and ranges, and errors of files."""

import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import stackhound
from stackhound.trace import Context, ContextRange, Trace

LAST = 3_100_000


def test_its_size(trace: Trace) -> None:
    assert (trace.transition_count, trace.context_count) == (LAST, LAST + 1)
    assert (trace.frame_count, trace.stack_count, trace.cpu_count) == (40, 2, 1)
    assert not trace.is_sampled
    assert trace.first_context == trace.context_before(0)
    assert trace.last_context == trace.context_before(LAST) == trace.context_after(LAST - 1)
    assert (trace.first_transition.id, trace.last_transition.id) == (0, LAST - 1)
    assert repr(trace) == "<Trace of 3100000 transitions and 40 frames>"


def test_contexts_count(trace: Trace) -> None:
    context = trace.first_context + 199_863
    assert (str(context), repr(context)) == ("Context before #199863", "Context(id=199863)")
    assert context == 199_863 + trace.first_context == trace.context_after(199_862)
    assert (context - 63).id == 199_800
    assert (context + -63) - context == -63
    assert context - trace.first_context == context.id == 199_863
    assert trace.first_context < context <= context < trace.last_context
    assert max(trace.first_context, context) is context
    assert len({context, trace.context_before(199_863), trace.first_context}) == 2
    assert context != 199_863
    assert context.trace == trace
    assert context.transition_before() + 1 == context.transition_after() == trace.transition(199_863)


def test_transitions_count(trace: Trace) -> None:
    transition = trace.transition(199_862)
    assert (str(transition), repr(transition)) == ("#199862 call 0xfffff800fe4ac010", "Transition(id=199862)")
    assert transition.context_before() == trace.context_before(199_862)
    assert transition.context_after() == trace.context_before(199_863)
    assert (1 + transition).id == 199_863
    assert transition + 2 - transition == 2
    assert (transition - 2).id == 199_860
    assert transition > transition - 1
    assert transition.trace == trace
    assert transition.label is None
    assert str(trace.transition(200_320)) == "#200320 return"
    assert str(trace.transition(7)) == "#7"


def test_steps(trace: Trace) -> None:
    def transition(number: int) -> stackhound.trace.Transition:
        return trace.transition(number)

    assert transition(199_886).step_over() == transition(199_993)
    assert transition(199_993).step_over(forward=False) == transition(199_886)
    assert transition(199_900).step_over() == transition(199_901)
    assert transition(200_190).step_out() == transition(200_200)
    assert transition(200_190).step_out(False) == transition(200_183)
    assert transition(0).step_over(forward=False) is None
    assert transition(0).step_out() is None
    assert transition(LAST - 1).step_over() is None


def test_iterating_is_as_with_range(trace: Trace) -> None:
    for arguments in [(0, 5), (3, 9, 2), (9, 3, -2), (5, 5), (7, 2), (LAST - 2, LAST)]:
        numbers = list(range(*arguments))
        assert [context.id for context in trace.contexts(*arguments)] == numbers
        assert [transition.id for transition in trace.transitions(*arguments)] == numbers
    assert [context.id for context in trace.contexts(LAST - 1)] == [LAST - 1, LAST]
    assert [context.id for context in trace.contexts(2, None, -1)] == [2, 1, 0]
    assert [transition.id for transition in trace.transitions(LAST - 1)] == [LAST - 1]
    first = trace.first_context
    assert [context.id for context in trace.contexts(first + 2, first + 4)] == [2, 3]
    assert [one.id for one in trace.transitions(first.transition_after(), stop=2)] == [0, 1]
    with pytest.raises(ValueError, match="the step must not be 0"):
        trace.contexts(step=0)


def test_ranges(trace: Trace) -> None:
    begin, last = trace.context_before(10), trace.context_before(12)
    found = ContextRange(begin, last)
    assert str(found) == "[Context before #10, Context before #12]"
    assert repr(found) == "ContextRange(begin=Context before #10, last=Context before #12)"
    assert (found.begin, found.last, len(found)) == (begin, last, 3)
    assert list(found) == [begin, begin + 1, last]
    assert last in found
    assert last + 1 not in found
    assert found == ContextRange(begin=begin, last=last)
    assert found != ContextRange(begin, last + 1)
    assert len({found, ContextRange(begin, last)}) == 1
    match found:
        case ContextRange(first, final):
            assert (first, final) == (begin, last)


def test_empty_ranges(trace: Trace) -> None:
    begin, last = trace.context_before(10), trace.context_before(12)
    for empty in (ContextRange(begin, begin - 1), ContextRange(last, begin)):
        assert not empty
        assert (len(empty), list(empty)) == (0, [])
        assert begin not in empty
    assert str(ContextRange(begin, begin - 1)) == "[Context before #10, Context before #9]"
    # The positions around the trace are the ends of empty ranges only.
    before, after = trace.first_context - 1, trace.last_context + 1
    assert (before.id, after.id, after - before) == (-1, LAST + 1, LAST + 2)
    assert before < trace.first_context < trace.last_context < after
    assert (before + 1, after - 1) == (trace.first_context, trace.last_context)
    for empty in (ContextRange(trace.first_context, before), ContextRange(after, trace.last_context)):
        assert (len(empty), list(empty)) == (0, [])
    for begin, last in ((before, trace.first_context), (trace.last_context, after), (before, before)):
        with pytest.raises(IndexError, match="is outside the trace"):
            ContextRange(begin, last)
    for position in (before, after):
        with pytest.raises(IndexError, match="is outside the trace"):
            position.stack  # noqa: B018
        with pytest.raises(IndexError, match="is outside the trace"):
            position.time()
        with pytest.raises(IndexError, match="is outside the trace"):
            trace.stacks(position)


@pytest.mark.parametrize("number", [-1, LAST + 1, 10**30, -(10**30)])
def test_outside_the_trace(trace: Trace, number: int) -> None:
    context = "is outside the trace, whose contexts are #0 to #3100000"
    transition = "is outside the trace, which has 3100000"
    with pytest.raises(IndexError, match=context):
        trace.context_before(number)
    further = number - 1 if number < 0 else number + 1
    with pytest.raises(IndexError, match=context):
        trace.first_context + further
    with pytest.raises(IndexError, match=context):
        trace.last_context - (LAST - further)
    with pytest.raises(IndexError, match=context):
        trace.contexts(number)
    with pytest.raises(IndexError, match=transition):
        trace.context_after(number)
    with pytest.raises(IndexError, match=transition):
        trace.transition(number)
    with pytest.raises(IndexError, match=transition):
        trace.first_transition + number
    with pytest.raises(IndexError, match=transition):
        trace.transitions(0, number)


def test_the_ends_of_the_trace(trace: Trace) -> None:
    with pytest.raises(IndexError, match="there is no transition before the first context"):
        trace.first_context.transition_before()
    with pytest.raises(IndexError, match="there is no transition after the last context"):
        trace.last_context.transition_after()
    with pytest.raises(IndexError, match="there is no processor 1: the trace has 1"):
        trace.first_context.on(1)


def test_things_of_the_wrong_type(trace: Trace) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        trace.first_context + "1"  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        trace.first_context + trace.first_context  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        5 - trace.first_context  # type: ignore[operator]
    with pytest.raises(TypeError, match="not supported between"):
        assert trace.first_context < trace.first_transition  # type: ignore[operator]
    with pytest.raises(TypeError):
        trace.context_before(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        trace.contexts("a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a datetime or an int expected, not str"):
        trace.context_at("now")  # type: ignore[arg-type]


def test_things_of_another_trace(trace: Trace, sampled: Trace) -> None:
    own, foreign = trace.first_context, sampled.first_context
    assert own != foreign
    with pytest.raises(ValueError, match="objects of different traces cannot be ordered"):
        assert own < foreign
    with pytest.raises(ValueError, match="the context is of another trace"):
        own - foreign
    with pytest.raises(ValueError, match="the transition is of another trace"):
        trace.first_transition - sampled.first_transition
    with pytest.raises(ValueError, match="the last context is of another trace"):
        ContextRange(own, foreign)
    with pytest.raises(ValueError, match="the context is of another trace"):
        trace.contexts(foreign)
    with pytest.raises(ValueError, match="the context is of another trace"):
        trace.stacks(foreign)
    assert foreign not in ContextRange(own, own)


def test_times(trace: Trace, sampled: Trace) -> None:
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    context = sampled.context_before(3)
    assert context.time() == start + timedelta(microseconds=300)
    # Microseconds have no room for the last digit.
    assert context.filetime() == sampled.transition(3).filetime() == 133_485_408_000_003_007
    assert sampled.transition(3).time() == context.time()
    assert sampled.last_context.time() == (sampled.last_context - 1).time()
    assert sampled.context_at(start) == sampled.first_context
    assert sampled.context_at(start + timedelta(microseconds=301)) == sampled.context_before(4)
    assert sampled.context_at(133_485_408_000_003_007) == context
    assert sampled.context_at(133_485_408_000_003_008) == context + 1
    assert sampled.context_at(start + timedelta(days=1)) is None
    assert sampled.context_at(-1) == sampled.first_context
    with pytest.raises(ValueError, match="the time needs a time zone"):
        sampled.context_at(datetime(2024, 1, 1))
    assert (trace.first_context.time(), trace.first_context.filetime()) == (None, None)
    assert trace.context_at(0) is None


def test_processors(sampled: Trace) -> None:
    assert sampled.cpu_count == 2
    assert [sampled.context_before(number).cpu for number in (0, 9, 10, 20)] == [0, 0, 1, 1]
    # The contexts around a transition are seen from its processor.
    after = sampled.transition(9).context_after()
    assert (after.cpu, after == sampled.context_before(10)) == (0, True)
    assert sampled.context_before(5).on(1).cpu == 1
    assert sampled.context_before(5).on(1).stack is None
    assert sampled.transition(2).label == "PerfInfo/SysCallEnter"
    assert str(sampled.transition(2)) == "#2 PerfInfo/SysCallEnter"


def test_files_that_are_no_index(tmp_path: Path, documented: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: '.*missing'") as caught:
        stackhound.open(tmp_path / "missing")
    assert caught.value.filename == str(tmp_path / "missing")
    with pytest.raises(OSError, match="no .etl, .* file in this directory"):
        stackhound.open(tmp_path)
    other = tmp_path / "other"
    other.write_bytes(b"anything else")
    with pytest.raises(OSError, match="other: not an event trace log"):
        stackhound.open(other)
    index = documented.read_bytes()
    for location in range(8, len(index), 97):
        other.write_bytes(index[:location] + bytes([index[location] ^ 0x10]) + index[location + 1 :])
        with pytest.raises(OSError, match="other: (the index |not an event trace log)"):
            stackhound.open(other)
    other.write_bytes(index[:-1])
    with pytest.raises(OSError, match="other: the index is damaged"):
        stackhound.open(other)


def test_a_recording(demo: Path) -> None:
    trace = stackhound.open(demo, symbol_path=str(demo.parent / "symbols")).trace
    assert trace.is_sampled
    # The time of the demo.
    start = trace.first_context.time()
    assert start is not None
    assert start.date() == datetime(2024, 1, 1).date()
    # The content of the demo's first page.
    assert next(trace.calls("ntdll.dll!NtQueryInformationFile"), None) is not None
    unnamed = stackhound.open(demo, str(demo.parent / "nothing")).trace
    assert unnamed.frame_count > 1000
    assert next(unnamed.calls("ntdll.dll!Nt*"), None) is None


def test_opened_files(documented: Path) -> None:
    opened = stackhound.open(str(documented))
    assert opened.path == documented
    assert repr(opened) == f"<TraceFile {documented}>"
    # Two asked of one opening are the same.
    assert opened.trace == opened.trace
    assert hash(opened.trace) == hash(opened.trace)


def test_other_threads_may_look_as_well(trace: Trace) -> None:
    found: list[str] = []

    def look(context: Context) -> None:
        stack = context.stack
        assert stack is not None
        found.extend(str(frame) for frame in stack.frames())

    threads = [threading.Thread(target=look, args=(trace.context_before(200_000),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count("#199862 - usbhub!UsbhDecHubBusy") == 4
