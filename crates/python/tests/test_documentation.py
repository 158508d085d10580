"""Tests of the documentation: the examples of its pages run, and all public items have docstrings."""

import doctest
import inspect
import re
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest
import stackhound

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "crates/python/tutorial.ipynb"


@pytest.fixture
def folder(tmp_path: Path, documented: Path, recorded: Path, demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the files that the examples open."""
    shutil.copy(demo, tmp_path)
    shutil.copy(documented, tmp_path / "stacks.idx")
    shutil.copy(recorded, tmp_path / "recording.idx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, text: str, names: dict[str, object]) -> int:
    """Runs the examples of a text, compares their output, and returns their number."""
    test = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    failed, attempted = doctest.DocTestRunner().run(test, clear_globs=False)
    assert failed == 0
    names.update(test.globs)
    return attempted


def test_the_page(folder: Path) -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    blocks = re.findall(r"```pycon\n(.*?)```", page, re.DOTALL)
    assert sum(run(f"block {number}", block, names) for number, block in enumerate(blocks)) >= 30


def test_the_readme(folder: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```pycon\n(.*?)```", readme, re.DOTALL)
    assert run("README.md", block, {}) > 2


def test_the_description_of_the_package(folder: Path) -> None:
    assert run("stackhound", stackhound.__doc__ or "", {}) == 2


def executed(path: Path, folder: Path) -> tuple[str, str]:
    """Runs a notebook, and returns its output as text and as HTML."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "results are made anew by who reads it"
    nbclient.NotebookClient(notebook, timeout=600, startup_timeout=600, resources={"metadata": {"path": folder}}).execute()
    text, html = "", ""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text += output.get("text", "") + data.get("text/plain", "")
            html += data.get("text/html", "") + "".join(f"<{kind}>" for kind in data)
    return text, html


def test_the_tutorial(folder: Path) -> None:
    text, html = executed(TUTORIAL, folder)
    assert "#199862 - usbhub!UsbhDecHubBusy" in text
    assert "[2]#200183 - ntoskrnl!ExpInterlockedPushEntrySList" in text
    assert "<strong" in html


def test_the_notebook_about_tables(folder: Path) -> None:
    text, html = executed(ROOT / "crates/python/tables.ipynb", folder)
    assert "stack_id" in text
    assert "<image/png>" in html


def test_the_notebook_about_a_system(folder: Path, system: Path) -> None:
    shutil.copy(system, folder / "boot.calls")
    text, html = executed(ROOT / "crates/python/system.ipynb", folder)
    # rt_sigaction, getpid, kill, rt_sigreturn, kill, rt_sigreturn, exit_group; and page faults.
    assert re.search(r" 7 vmlinux!entry_SYSCALL_64$", text, re.MULTILINE), text
    assert "vmlinux!asm_exc_page_fault" in text
    assert re.search(r"Kernel \d+ known$", text, re.MULTILINE), text
    # The frames of both modes at a system call.
    assert re.search(r"^   vmlinux!do_syscall_64\n   vmlinux!entry_SYSCALL_64\w*\n", text, re.MULTILINE), text
    assert re.search(r"^User known\n   known!signals\n   known!program\n   known!_start$", text, re.MULTILINE), text
    assert "<strong" in html


def public() -> list[tuple[str, object]]:
    """Everything people can name."""
    found: list[tuple[str, object]] = [("stackhound", stackhound)]
    for module in (stackhound, stackhound.trace, stackhound.stack):
        for name in module.__all__:
            thing = getattr(module, name)
            found.append((f"{module.__name__}.{name}", thing))
            if inspect.isclass(thing):
                members = [one for one in vars(thing) if not one.startswith("_")]
                found.extend((f"{name}.{member}", inspect.getattr_static(thing, member)) for member in members)
    return [(name, thing) for name, thing in found if not isinstance(thing, (str, int))]


def test_everything_is_described() -> None:
    things = public()
    assert len(things) > 120
    assert [name for name, thing in things if not (inspect.getdoc(thing) or "").strip()] == []


def test_classes_name_their_module() -> None:
    for module in (stackhound.trace, stackhound.stack):
        for name in module.__all__:
            thing = getattr(module, name)
            assert thing.__module__ in (module.__name__, "stackhound._kinds")
