"""The traces that the tests look at, written by its own examples and program."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import stackhound

REPOSITORY = Path(__file__).parents[3]


def built(name: str, *, example: bool = False) -> Path:
    """A program of the workspace. Built like the workspace's tests, so that existing build results are used."""
    # Without an example, the features of development dependencies are missing, and most crates are built again.
    kind = ["--example", name] if example else ["--bin", name, "--example", "fixture"]
    build = ["cargo", "build", "--quiet", "--locked", "--workspace", *kind, "--message-format", "json"]
    output = subprocess.run(build, cwd=REPOSITORY, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    messages = [json.loads(line) for line in output.splitlines()]
    return next(
        Path(message["executable"])
        for message in messages
        if message["reason"] == "compiler-artifact"
        and message["target"]["name"] == name
        and message["executable"]
    )


def written(example: str, path: Path) -> Path:
    """The index that an example of `calltree` writes."""
    subprocess.run([built(example, example=True), path], check=True, stdin=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the exact trace of a booting system; or the whole one that `scripts/boot-linux.sh` wrote."""
    whole = os.environ.get("STACKHOUND_BOOT")
    if whole is not None:
        return Path(whole)
    # The index is written next to the trace.
    extract = REPOSITORY / "crates/record/qemu/tests/data/boot.calls"
    return Path(shutil.copy(extract, tmp_path_factory.mktemp("system")))


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the trace of the documented examples."""
    return written("fixture", tmp_path_factory.mktemp("documented") / "stacks.idx")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a small trace like those of ETW traces: times, two processors, inferred bounds."""
    return written("evidence", tmp_path_factory.mktemp("recorded") / "stacks.idx")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo trace that the program generates."""
    folder = tmp_path_factory.mktemp("demo")
    subprocess.run([built("stackhound"), "demo", "-q", "--out", folder], check=True, stdin=subprocess.DEVNULL)
    return folder / "stackhound-demo.etl"


@pytest.fixture
def server(documented: Path) -> stackhound.TraceFile:
    return stackhound.open(documented)


@pytest.fixture
def trace(server: stackhound.TraceFile) -> stackhound.trace.Trace:
    return server.trace


@pytest.fixture
def sampled(recorded: Path) -> stackhound.trace.Trace:
    return stackhound.open(recorded).trace
