#!/usr/bin/env python3
"""Compares the tables of `convert`, read with pyarrow, with what `events` and `hunt` write.

usage: check-tables.py PROGRAM TRACE...

Compares each event with its facts, each frame of each stack with its names, and each finding and
alert. A trace can be compressed with zstandard (.zst).

Needs pyarrow and zstandard, which it does not install: pip install pyarrow zstandard
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

SAME = "ts cpu pid tid provider event id opcode version".split()
NESTED = {
    "process": "process name",
    "file_path": "file path",
    "registry_path": "registry path",
    "registry_value": "registry value",
    "target_pid": "target pid",
    "target_tid": "target tid",
    "create_requested": "create requested",
    "create_completion": "create completion",
    "create_result": "create result",
    "service": "syscall service",
    "call_completion": "syscall completion",
    "call_duration": "syscall duration",
    "stack_state": "stack state",
    "contains_unbacked": "stack contains_unbacked",
}
HEXADECIMAL = {"create_status": "create status", "call_status": "syscall status", "call_routine": "syscall routine"}
NANOSECONDS_MAX = 2**63


class Difference(Exception):
    pass


def equal(found, expected, *place):
    if found != expected:
        raise Difference(f"{' '.join(map(str, place))}: found {found!r}, expected {expected!r}")


def at(value, path):
    """The value at a path of keys, None if a key is missing."""
    for key in path.split():
        value = value.get(key) if isinstance(value, dict) else None
    return value


def hexadecimal(text):
    return None if text is None else int(text, 16)


def nanoseconds(text):
    """Nanoseconds since 1970 of a time in JSON; None outside of the range of the column."""
    if text is None or not text[0].isdigit() or len(text.split("-")[0]) != 4:
        return None
    seconds, _, digits = text.rstrip("Z").partition(".")
    since = datetime.datetime.fromisoformat(seconds + "+00:00") - datetime.datetime.fromtimestamp(0, datetime.UTC)
    value = (since.days * 86400 + since.seconds) * 10**9 + int(digits.ljust(9, "0") or 0)
    return value if -NANOSECONDS_MAX <= value < NANOSECONDS_MAX else None


def lines(program, *arguments):
    """The NDJSON that the program writes."""
    run = subprocess.Popen([program, *arguments, "-q", "--format", "ndjson"], stdout=subprocess.PIPE)
    yield from map(json.loads, run.stdout)
    if run.wait() != 0:
        raise Difference(f"{arguments}: exit code {run.returncode}")


def batches(folder, table, integers=()):
    """The rows of a table, as dictionaries."""
    import pyarrow
    import pyarrow.parquet

    (path,) = folder.glob(f"{table}/*/*/*.parquet")
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
        for name in integers:
            column = batch.schema.get_field_index(name)
            batch = batch.set_column(column, name, batch.column(column).cast(pyarrow.int64()))
        yield from batch.to_pylist()


def place(row):
    return row["module_id"], row["rva"], row["is_return"]


def frames_equal(stack, row, event, names, where):
    """Compares the frames of an event. Returns their number."""
    listed = at(event, "stack frames") or []
    if not listed:
        equal(row["stack_id"], None, where, "stack_id")
        return 0
    equal(len(stack), len(listed), where, "frames")
    others = iter((row["other_addresses"] or "").split("|"))
    for frame, expected in zip(stack, listed):
        equal(frame["mode"], expected["mode"], where, "mode")
        if frame["module_id"] is None:
            equal(next(others, None), expected["address"], where, "other_addresses")
        if "backing" not in expected:
            continue
        equal(frame["backing"], expected["backing"], where, "backing")
        equal(frame["module"], expected["module"], where, "module")
        equal(frame["rva"], hexadecimal(expected["rva"]), where, "rva")
        if expected.get("symbol") is not None and expected["origin"] != "method":
            symbol = names[place(frame)]
            for column, key in (("name", "symbol"), ("offset", "offset"), ("origin", "origin")):
                equal(symbol[column], expected[key], where, column)
    return len(listed)


def check(program, trace, folder):
    """Compares the tables of a trace. Returns the numbers of events, frames, and findings."""
    run = [program, "convert", "-q", trace, "-o", folder]
    if subprocess.run(run, check=False).returncode not in (0, 3):
        raise Difference("the trace cannot be converted")
    stacks = {}
    for frame in batches(folder, "frames"):
        stacks.setdefault(frame["stack_id"], []).append(frame)
    names = {place(row): row for row in batches(folder, "symbols")}
    counts = [0, 0, 0]
    rows = batches(folder, "events", integers=["time"])
    for event in lines(program, "events", "--stacks", trace):
        row = next(rows, None)
        counts[0] += 1
        where = f"event {counts[0]}"
        if row is None:
            raise Difference(f"{where}: not in the table")
        equal(row["number"], counts[0], where, "number")
        equal(row["time"], nanoseconds(event["time"]), where, "time")
        for name in SAME:
            equal(row[name], event[name], where, name)
        equal(json.loads(row["fields"]), event["fields"], where, "fields")
        for name, path in NESTED.items():
            if name != "contains_unbacked" or at(event, "stack frames"):
                equal(row[name], at(event, path), where, name)
        for name, path in HEXADECIMAL.items():
            equal(row[name], hexadecimal(at(event, path)), where, name)
        counts[1] += frames_equal(stacks.get(row["stack_id"], []), row, event, names, where)
    equal(next(rows, None), None, "an event that is only in the table")
    found = {
        "finding": batches(folder, "findings", integers=["time"]),
        "alert": batches(folder, "alerts", integers=["first_seen", "last_seen"]),
    }
    for line in lines(program, "hunt", "--exit-zero", trace):
        if line["type"] not in found:
            continue
        row = next(found[line["type"]], None)
        document = json.loads(row["document"]) if row else None
        if document and "input" in document:
            # Files have names without folders there.
            document["input"]["file"] = line["input"]["file"]
        equal(document, line, line["type"])
        counts[2] += 1
    for kind, rows in found.items():
        equal(next(rows, None), None, f"a {kind} that is only in the table")
    return counts


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    try:
        import pyarrow.parquet  # noqa: F401
        import zstandard
    except ImportError as error:
        print(f"check-tables.py: {error}")
        return 2
    program, failed, total = sys.argv[1], False, [0, 0, 0]
    for trace in map(pathlib.Path, sys.argv[2:]):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            path = trace.resolve()
            if path.suffix == ".zst":
                path = folder / "trace.etl"
                with open(trace, "rb") as packed, open(path, "wb") as plain:
                    zstandard.ZstdDecompressor().copy_stream(packed, plain)
            try:
                counts = check(program, path, folder / "tables")
            except Difference as difference:
                print(f"{trace.name}: {difference}")
                failed = True
            else:
                total = [sum(pair) for pair in zip(total, counts)]
                print(f"{trace.name}: {counts[0]} events, {counts[1]} frames, {counts[2]} findings and alerts are equal")
    print(f"total: {total[0]} events, {total[1]} frames, {total[2]} findings and alerts")
    return 1 if failed or not all(total) else 0


if __name__ == "__main__":
    sys.exit(main())
