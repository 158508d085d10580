"""The examples of the specification run as they are printed, and give the documented results."""

from pathlib import Path
from typing import Any

import pytest
import stackhound
import stackhound as reven2
from stackhound.stack import StackFrame

EXAMPLES = Path(__file__).with_name("examples.py")

CHILDREN = [
    "#199886 - ntoskrnl!KeWaitForSingleObject",
    "#200032 - ntoskrnl!ExFreePoolWithTag",
    "#200239 - ntoskrnl!KiAcquireKobjectLockSafe",
    "#200269 - ntoskrnl!KiExitDispatcher",
]


@pytest.fixture
def names(server: stackhound.TraceFile) -> dict[str, Any]:
    """The names that the examples define after they have run."""
    names: dict[str, Any] = {"server": server, "reven2": reven2}
    exec(compile(EXAMPLES.read_text(encoding="utf-8"), EXAMPLES.name, "exec"), names)
    return names


def test_printed_output(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("names")
    location = (
        "Location(binary='usbhub', symbol='UsbhDecHubBusy', symbol_offset=0x0,"
        " address=0xfffff800fe4ac010, rva=0xc010)"
    )
    assert capsys.readouterr().out.splitlines() == [
        "#199862 - usbhub!UsbhDecHubBusy",
        "#199862 call 0xfffff800fe4ac010",
        "Context before #199863",
        f"{location} True",
        *(f"|- {child}" for child in CHILDREN),
        # Of the calls into ntoskrnl, only the ends.
        *(f"End {child}" for child in CHILDREN),
    ]


def test_all_descendants(names: dict[str, Any]) -> None:
    found = [f"{depth} {thing}" for depth, thing in names["tree"](names["frame"])]
    assert found == [
        f"0 {CHILDREN[0]}",
        f"0 {CHILDREN[1]}",
        "1 #200183 - ntoskrnl!ExpInterlockedPushEntrySList",
        f"0 {CHILDREN[2]}",
        f"0 {CHILDREN[3]}",
    ]
    outer = list(names["frame"].ancestors())[2]
    depths = {str(thing): depth for depth, thing in names["tree"](outer)}
    assert depths["Leave #209497"] == depths["Enter #211888"] == 2
    assert depths["#199862 - usbhub!UsbhDecHubBusy"] == 2
    assert depths["#200183 - ntoskrnl!ExpInterlockedPushEntrySList"] == 4


def test_ranges(names: dict[str, Any]) -> None:
    plain = "[Context before #199863, Context before #200320]"
    outer = list(names["frame"].ancestors())[2]
    both = [
        "[Context before #198206, Context before #209497]",
        "[Context before #211889, Context before #212379]",
    ]
    assert [str(found) for found in names["ranges"](names["frame"])] == [plain]
    assert [str(found) for found in names["ranges"](outer)] == both
    assert list(names["ranges"](outer)) == list(outer.execution_ranges())
    assert repr(next(names["ranges"](outer))) == (
        "ContextRange(begin=Context before #198206, last=Context before #209497)"
    )


def page(frame: StackFrame, active: StackFrame, depth: int = 0, max_depth: int = 2, max_children: int = 5) -> str:
    """The exercise of the third example."""
    line = frame.format_as_html()
    lines = ["&nbsp;" * 2 * depth + "|- " + (f"<strong>{line}</strong>" if frame == active else line)]
    for number, child in enumerate(frame.children()):
        if depth == max_depth:
            break
        if number == max_children:
            lines.append("&nbsp;" * 2 * (depth + 1) + "|- ...")
            break
        lines.append(page(child, active, depth + 1, max_depth, max_children))
    return "<br/>".join(lines)


def test_a_tree_of_ones_own(server: stackhound.TraceFile) -> None:
    stack = server.trace.context_before(200_000).stack
    assert stack is not None
    active = stack.frame()
    assert active is not None
    # One level up and, from the active one, one level down.
    tree = page(next(active.ancestors()), active, max_children=3).split("<br/>")
    assert len(tree) == 6
    assert ["<strong>" in line for line in tree] == [False, True, False, False, False, False]
    assert CHILDREN[0] in tree[2]
    assert tree[-1].endswith("|- ...")
