"""The code of the specification runs on frames of every kind of trace."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reven2
import stackhound
from reven2.stack import FrameEnd, FrameStart, StackEnter, StackLeave
from reven2.trace import ContextRange
from stackhound.stack import FrameEndType, StackFrame
from test_examples import EXAMPLES, page

from conftest import built

FRAMES = 3000


@pytest.fixture(scope="session")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exact trace of `ls`."""
    path = tmp_path_factory.mktemp("listed") / "ls.calls"
    record: list[str | Path] = [built("stackhound"), "record", "--exact", "-q", "-o", path, "--", "ls"]
    done = subprocess.run(record, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        pytest.skip(f"no exact trace can be recorded here: {done.stderr}")
    return path


@pytest.fixture(scope="session")
def perfview(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a Windows machine with JIT-compiled code."""
    corpus = os.environ.get("STACKHOUND_CORPUS")
    if corpus is None:
        pytest.skip("STACKHOUND_CORPUS is not set")
    return Path(corpus) / "etl" / "perfview-net452-x64.etl.zst"


def ranges_by_call(frame: Any) -> Iterator[tuple[tuple[StackFrame, ...], ContextRange]]:
    """The second generator of the specification, with a path of its own for each range."""
    path: tuple[StackFrame, ...] = (frame,)
    begin = frame.first_context
    for event in frame.descendant_events():
        if isinstance(event, FrameStart):
            yield path, ContextRange(begin, event.frame.first_context - 1)
            begin = event.frame.first_context
            path = (*path, event.frame)
        elif isinstance(event, FrameEnd):
            yield path, ContextRange(begin, event.frame.last_context)
            begin = event.frame.last_context + 1
            path = path[:-1]
        elif isinstance(event, StackLeave) and begin is not None:
            yield path, ContextRange(begin, event.transition.context_before())
            begin = None
        elif isinstance(event, StackEnter):
            begin = event.transition.context_after()
    if begin is not None:
        yield path, ContextRange(begin, frame.last_context)


def check(trace: stackhound.trace.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs all examples on frames of a trace, and compares the ranges of the generators with the built-in ones."""
    source = EXAMPLES.read_text(encoding="utf-8")
    # The first statement finds the frame, which is given here.
    start = "frame = server.trace.context_before(200000).stack.frame()\n"
    assert source.count(start) == 1
    code = compile(source.replace(start, ""), EXAMPLES.name, "exec")
    count = trace.frame_count
    assert count > 0
    numbers = random.Random(1).sample(range(count), min(count, FRAMES))
    for number in numbers:
        frame = trace.frame(number)
        names: dict[str, Any] = {"frame": frame, "reven2": reven2}
        exec(code, names)
        assert capsys.readouterr().out.startswith(str(frame))
        depths = [depth for depth, _ in names["tree"](frame)]
        assert min(depths, default=0) >= 0
        assert frame.format_as_html() in page(frame, frame)
        # The built-in ranges are those of the generators that are not empty. A frame of an event trace can be observed
        # while its stack is not active; only then the generators contain such contexts too.
        by_events = [found for found in names["ranges"](frame) if found]
        assert by_events == list(frame.execution_ranges()) or (trace.is_sampled and not frame.stack.is_active)
        by_call = [(path, found) for path, found in ranges_by_call(frame) if found]
        equal = by_call == [(found.path, found.range) for found in frame.execution_ranges(by="call")]
        # In a part of an exact trace, frames can begin while their stack is not active. An abandoned frame ends after its
        # stack was left, up to where the generator extends its last range.
        is_observed = frame.stack.is_active and frame.end_type is not FrameEndType.Abandoned
        assert equal or trace.is_sampled or not is_observed


def test_documented(documented: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(reven2.open(documented).trace, capsys)


def test_small(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(reven2.open(recorded).trace, capsys)


def test_exact(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(reven2.open(listed).trace, capsys)


def test_system(system: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(reven2.open(system).trace, capsys)


def test_demo(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(reven2.open(demo, symbol_path=str(demo.parent / "symbols")).trace, capsys)


def test_perfview(perfview: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(reven2.open(perfview).trace, capsys)


def test_the_alias_has_all_names() -> None:
    assert reven2.trace.__all__ == stackhound.trace.__all__
    assert reven2.stack.__all__ == stackhound.stack.__all__
    assert reven2.stack.StackFrame is stackhound.stack.StackFrame
