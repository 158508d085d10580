"""Streams of tables have the rows of the files that the program writes, for every reader."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import stackhound

from conftest import built

NAMES = (
    "events stacks frames modules symbols processes threads regions findings alerts losses traces"
).split()


@pytest.fixture(scope="session")
def tables(demo: Path) -> stackhound.Tables:
    return stackhound.read(demo, str(demo.parent / "symbols"))


@pytest.fixture(scope="session")
def converted(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables in files."""
    folder = tmp_path_factory.mktemp("converted")
    symbols = demo.parent / "symbols"
    command: list[str | Path] = [built("stackhound"), "convert", "-q", demo, "-o", folder, "--symbol-path", symbols]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return folder


def lines(demo: Path, *arguments: str) -> list[dict[str, object]]:
    command: list[str | Path] = [built("stackhound"), *arguments, "-q", "--format", "ndjson", demo]
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_streams_have_the_rows_of_files(tables: stackhound.Tables, converted: Path, name: str) -> None:
    (file,) = (converted / name).glob("*/*/*.parquet")
    expected = pyarrow.parquet.ParquetFile(file).read()
    found = pyarrow.table(tables.table(name))
    assert found.schema.names == expected.schema.names
    assert found.cast(expected.schema).equals(expected)
    assert tables.table(name).columns == expected.schema.names
    assert name == "losses" or expected.num_rows > 0


def test_filters_select_events(tables: stackhound.Tables, demo: Path) -> None:
    where = "event = 'PerfInfo/SysCallEnter' and pid = 1860"
    expected = [event["ts"] for event in lines(demo, "events", "--where", where)]
    assert len(expected) > 10
    found = tables.events(where=where, columns=["ts", "stack_id"]).to_polars()
    assert found["ts"].to_list() == expected
    stacks = set(tables.stacks(where=where, columns=["stack_id"]).to_polars()["stack_id"])
    assert stacks == set(found["stack_id"].drop_nulls())
    frames = tables.frames(where=where).to_polars()
    assert set(frames["stack_id"]) == stacks
    assert tables.events(where="pid = 4294967290").to_polars().height == 0


def test_filters_can_name_functions(tables: stackhound.Tables) -> None:
    where = "stack.symbol i~ 'ntdll!*'"
    named = tables.events(where=where, columns=["stack_id"]).to_polars()
    assert named.height > 100
    frames = tables.frames(columns=["stack_id", "module"]).to_polars()
    with_ntdll = frames.filter(polars.col("module") == "ntdll.dll")["stack_id"]
    assert set(named["stack_id"]) <= set(with_ntdll)


def test_findings_are_those_of_the_program(demo: Path) -> None:
    expected = [line for line in lines(demo, "hunt", "--exit-zero") if line["type"] == "finding"]
    found = stackhound.read(demo).findings().to_pandas()
    assert isinstance(found, pandas.DataFrame)
    documents = [json.loads(document) for document in found["document"]]
    for document in [*documents, *expected]:
        # Files have names without folders there.
        document.pop("input")
    assert documents == expected


def test_columns_keep_their_order_and_types(tables: stackhound.Tables) -> None:
    schema = pyarrow.schema(pyarrow.table(tables.events(columns=["event", "time", "number"])).schema)
    assert schema.names == ["event", "time", "number"]
    assert schema.field("time").type == pyarrow.timestamp("ns", "UTC")
    assert schema.field("number").type == pyarrow.uint64()


def test_a_stream_can_be_left_early_and_read_again(tables: stackhound.Tables) -> None:
    events = tables.events(columns=["number"])
    for _ in range(3):
        reader = pyarrow.RecordBatchReader.from_stream(events)
        assert reader.read_next_batch().num_rows > 0
        reader.close()
    assert pyarrow.table(events).num_rows == pyarrow.table(events).num_rows > 10_000


def test_wrong_arguments_are_errors(tables: stackhound.Tables, tmp_path: Path) -> None:
    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: tables.events(where="event ="), "expected"),
        (lambda: tables.events(columns=["nothing"]), "no column"),
        (lambda: tables.events(columns=["ts", "ts"]), "expected each column once"),
        (lambda: tables.table("nothing"), "expected one of the tables events, stacks"),
    )
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(FileNotFoundError):
        stackhound.read(tmp_path / "nothing.etl")
    (tmp_path / "text.etl").write_text("no trace")
    with pytest.raises(OSError, match="text.etl"):
        stackhound.read(tmp_path / "text.etl")
