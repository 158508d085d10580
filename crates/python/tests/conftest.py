"""The traces that the tests look at, written by its own examples and program."""

import subprocess
from pathlib import Path

import pytest
import stackhound

REPOSITORY = Path(__file__).parents[3]


def written(example: str, path: Path) -> Path:
    """The index that an example of `calltree` writes."""
    command = "cargo run --quiet --locked -p stackhound-calltree --example".split()
    subprocess.run([*command, example, "--", path], cwd=REPOSITORY, check=True, stdin=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the trace of the documented examples."""
    return written("fixture", tmp_path_factory.mktemp("documented") / "stacks.idx")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a small trace as a recording gives it: times, two processors, inferred bounds."""
    return written("evidence", tmp_path_factory.mktemp("recorded") / "stacks.idx")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording that the program makes to show what it does."""
    folder = tmp_path_factory.mktemp("demo")
    command = "cargo run --quiet --locked -p stackhound-cli -- demo -q --out".split()
    subprocess.run([*command, folder], cwd=REPOSITORY, check=True, stdin=subprocess.DEVNULL)
    return folder / "stackhound-demo.etl"


@pytest.fixture
def server(documented: Path) -> stackhound.Recording:
    return stackhound.open(documented)


@pytest.fixture
def trace(server: stackhound.Recording) -> stackhound.trace.Trace:
    return server.trace


@pytest.fixture
def sampled(recorded: Path) -> stackhound.trace.Trace:
    return stackhound.open(recorded).trace
