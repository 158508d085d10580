#!/usr/bin/env python3
"""Measures how fast `hunt` evaluates Sysmon's event 10.

usage: scripts/sysmon-speed.py [--rows N] [--runs N] [--short] [--before PROGRAM] [--program PROGRAM] FILE

FILE has one event per line as JSON, such as calltrace/otrf_security_datasets.jsonl of the corpus.
Its rows are repeated with shifted times until there are N of them (a million by default) and written
to target/speed/. The program evaluates them with one thread and with two, and its output must be the
same. --before measures another build in the same run, alternately. --short uses 30,000 rows and one
run. The exit code is 1 if the outputs differ, or if the anonymous memory exceeds 100 MB.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

from speed import peak_anonymous

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMORY_MAX_MB = 100
TIME_KEYS = ("utc", "UtcTime")


def shifted(text, seconds):
    """A time of Sysmon, later by a number of seconds."""
    form = "%Y-%m-%d %H:%M:%S.%f"
    moved = datetime.datetime.strptime(text, form) + datetime.timedelta(seconds=seconds)
    return moved.strftime(form)[:-3]


def generate(source, target, rows):
    """Repeats the rows of a file with times that are later by a day for each repetition."""
    lines = [line for line in source.read_text().splitlines() if line.strip()]
    times = [json.loads(line) for line in lines]
    times = [next((row[key] for key in TIME_KEYS if key in row), None) for row in times]
    with open(target, "w") as out:
        for number in range(rows):
            repetition, index = divmod(number, len(lines))
            line = lines[index]
            if times[index]:
                line = line.replace(times[index], shifted(times[index], 86_400 * repetition), 1)
            out.write(line + "\n")


def measure(program, file, threads):
    """Seconds, anonymous memory in MB, a hash of the output, and seconds of processor time.

    `threads` is None for the default.
    """
    command = [program, "hunt", "-q", "--exit-zero", "--min-severity", "high", "--format", "ndjson"]
    command += ["--threads", str(threads)] if threads else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    output = file.with_suffix(".out")
    with open(output, "wb") as out:
        child = subprocess.Popen([*command, str(file)], stdout=out)
        peak = peak_anonymous(child)
        code = child.wait()
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if code != 0:
        raise SystemExit(f"{command}: exit code {code}")
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    output.unlink()
    return seconds, peak / 1024, digest, processor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--program", default=str(ROOT / "target" / "dist" / "stackhound"))
    parser.add_argument("--before")
    arguments = parser.parse_args()
    rows, runs = (30_000, 1) if arguments.short else (arguments.rows, arguments.runs)
    work = ROOT / "target" / "speed"
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"sysmon-{rows}.ndjson"
    generate(arguments.file, file, rows)
    builds = [("one thread", arguments.program, 1), ("two threads", arguments.program, 2)]
    if arguments.before:
        builds.insert(0, ("before", arguments.before, None))
    results = {name: [] for name, *_ in builds}
    for _ in range(runs):
        for name, program, threads in builds:
            results[name].append(measure(program, file, threads))
    size = os.path.getsize(file)
    print(f"{rows:,} rows, {size / 1e6:,.1f} MB ({size / rows:,.0f} bytes each)")
    print(f"{'':<12} {'seconds':>8} {'CPU s':>7} {'rows/s':>12} {'anon. MB':>9}")
    for name, found in results.items():
        seconds = statistics.median(one[0] for one in found)
        processor = statistics.median(one[3] for one in found)
        memory = max(one[1] for one in found)
        print(f"{name:<12} {seconds:>8.2f} {processor:>7.2f} {rows / seconds:>12,.0f} {memory:>9.1f}")
    file.unlink()
    own = [one for name, found in results.items() if name != "before" for one in found]
    if len({one[2] for one in own}) != 1:
        sys.exit("the output depends on the number of threads")
    if max(one[1] for one in own) > MEMORY_MAX_MB:
        sys.exit(f"expected at most {MEMORY_MAX_MB} MB of anonymous memory")


if __name__ == "__main__":
    main()
