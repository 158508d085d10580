#!/usr/bin/env python3
"""Loads the output of `events --format ndjson` with DuckDB, Polars and jq, as in docs/events.md.

usage: check-json.py PROGRAM TRACE...

Runs the code blocks of that page. Compares the number of events, and of image loads by process and
file, with counts of json.loads.

Needs duckdb, polars and jq, which it does not install: pip install duckdb polars
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/events.md"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def counted(path):
    """Returns the number of events, and of image loads by process and file."""
    loads = collections.Counter()
    count = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            count += 1
            if event["event"] == "Image/Load":
                loads[(event["process"] or {}).get("name"), event["fields"].get("FileName")] += 1
    return count, loads


def check(program, trace, page, folder):
    """Yields the differences for one trace."""
    path = folder / "events.ndjson"
    subprocess.run([program, "events", "-q", "--stacks", "--format", "ndjson", "-o", path, trace], check=True)
    count, loads = counted(path)
    duckdb, polars = ({"__name__": "page"}, {"__name__": "page"})
    for names, code in zip((duckdb, polars), blocks(page, "python"), strict=True):
        exec(code.replace("events.ndjson", str(path)), names)
    duckdb_loads = {(process, file): number for process, file, number in duckdb["images"].fetchall()}
    polars_loads = collections.Counter(polars["images"].rows())
    commands = [line.removeprefix("$ ") for line in "".join(blocks(page, "console")).splitlines()]
    printed = {
        command: subprocess.run(command, shell=True, check=True, capture_output=True, cwd=folder).stdout
        for command in commands
        if command.startswith("jq ")
    }
    lines = next(lines for command, lines in printed.items() if "@tsv" in command).decode().splitlines()
    bulk = (folder / "bulk.ndjson").read_bytes().splitlines()
    for name, found, expected in (
        ("DuckDB: events", duckdb["events"].count("*").fetchall()[0][0], count),
        ("DuckDB: image loads", duckdb_loads, dict(loads)),
        ("DuckDB: frames", bool(duckdb["frames"].fetchall()), b'"frames":[{' in path.read_bytes()),
        ("Polars: events", polars["events"].height, count),
        ("Polars: times", polars["events"]["time"].null_count(), 0),
        ("Polars: image loads", polars_loads, loads),
        ("jq: image loads", len(lines), loads.total()),
        ("jq: actions and events", (len(bulk), bulk[::2] == [b'{"index":{}}'] * count), (2 * count, True)),
    ):
        if found != expected:
            yield f"{trace}: {name}: {str(found)[:500]}, expected {str(expected)[:500]}"


def main():
    try:
        import duckdb, polars  # noqa: E401, F401
    except ImportError as error:
        print(f"{error.name} is missing; pip install duckdb polars", file=sys.stderr)
        return 2
    if not shutil.which("jq"):
        print("jq is missing", file=sys.stderr)
        return 2
    program, *traces = sys.argv[1:]
    page = PAGE.read_text(encoding="utf-8")
    for block in blocks(page, "json"):
        json.loads(block)
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces:
            differences += check(program, trace, page, pathlib.Path(folder))
    for difference in differences:
        print(difference)
    print(f"{len(traces)} traces, {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
