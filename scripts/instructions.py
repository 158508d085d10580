#!/usr/bin/env python3
"""Compares the processor instructions for each record with a stored table.

usage: scripts/instructions.py [--built DIR] [--write] [--repeat N] [WORK...]

Instruction counts hardly depend on the machine and not on its load, so they show a regression that
measured time does not. Each work reads two generated traces of different lengths under callgrind (of
valgrind, without a simulation of caches). The difference, divided by the difference in records, does
not include the start of the program. Works that write events instead read two parts of one trace, and
the difference is divided by the difference in lines.

--built: the folder with `stackhound` and `examples/stages`. Without it, it is built with the profile `dist`
and measured. The table, scripts/instructions.toml, has a section for each name of such a folder:
`debug`, which .ci/run builds anyway, and `dist`. Unoptimized code of generic functions and checks
of overflows are part of the counts of `debug`.

The exit code is 1 if a count exceeds the table by more than 5 %, or if the table has no such count.
A count that is lower by more than that is reported: lower the table with --write. Counts depend on
the compiler. If the table was written with another version of rustc, larger counts are only reported.

--write: write the counts to the table. --repeat: measure N times, and print the spread instead of
comparing: tables of hashes have random seeds.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile
import tomllib

from speed import DIST, ROOT, build

TABLE = ROOT / "scripts" / "instructions.toml"
TOLERANCE = 0.05
# Works: the mix of the traces, a small and a large run, and the command. A run is a number of events in
# the trace and further arguments. `stages` is the example, any other word a verb of the program.
LONG, SHORT = ((20_000,), (60_000,)), ((8_000,), (11_000,))
# Writing all events as JSON would take too long under callgrind.
PART = ((8_000, "--to", "+0.05s"), (8_000, "--to", "+0.2s"))
WORKS = {
    "walk": ("profile", LONG, ("stages", "walk")),
    "scan": ("profile", LONG, ("stages", "decompress")),
    "merge": ("profile", LONG, ("stages", "merge")),
    "full": ("profile", LONG, ("stages", "full")),
    "hunt": ("default", LONG, ("stages", "hunt")),
    "ndjson": ("profile", PART, ("events", "--format", "ndjson")),
    "ndjson-stacks": ("profile", PART, ("events", "--format", "ndjson", "--stacks")),
    "stacks": ("profile", SHORT, ("stacks", "--format", "folded")),
    "profile": ("profile", SHORT, ("profile", "--format", "firefox")),
}


def command_line(built, command, file, arguments):
    if command[0] == "stages":
        return [built / "examples" / "stages", *command[1:], file]
    return [built / "stackhound", *command, "--quiet", "--threads", "1", *arguments, file]


def output(command, **options):
    command = [str(part) for part in command]
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def generate(built, folder, mix, events):
    """Writes a trace, and returns its file."""
    with tempfile.TemporaryDirectory() as out:
        output([built / "stackhound", "demo", "--quiet", "--mix", mix, "--events", events, "--out", out])
        # Without the symbol files, whose number grows with the trace.
        return (pathlib.Path(out) / "stackhound-demo.etl").rename(folder / f"{mix}-{events}.etl")


def instructions(command):
    """Instructions of a process, and the lines of its output."""
    callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    # Samples of memory would add instructions.
    environment = dict(os.environ, STACKHOUND_COUNT="1")
    done = output([*callgrind, *command], env=environment)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1)), done.stdout.count("\n")


def count(built, traces, names):
    """Instructions of each work for each record, or for each line that `events` writes.

    Two processes run at a time, the long ones first.
    """
    with concurrent.futures.ThreadPoolExecutor(2) as pool:

        def start(name, run):
            mix, _, command = WORKS[name]
            events, *arguments = run
            return pool.submit(instructions, command_line(built, command, traces[mix, events], arguments))

        runs = {(name, run): start(name, run) for name in reversed(names) for run in reversed(WORKS[name][1])}
    counts = {}
    for name in names:
        (few, few_lines), (many, many_lines) = (runs[name, run].result() for run in WORKS[name][1])
        small, large = WORKS[name][1]
        records = large[0] - small[0] or many_lines - few_lines
        counts[name] = (many - few) / records
    return counts


def spread(built, traces, names, repeat):
    rounds = [count(built, traces, names) for _ in range(repeat)]
    for name in names:
        values = [counts[name] for counts in rounds]
        print(f"{name:<15}{min(values):>12,.1f} to {max(values):,.1f}: {max(values) / min(values) - 1:.2%}")


def compare(counts, stored, is_same_compiler):
    """Prints counts and the table. Returns whether none is too large."""
    good = True
    print(f"{'work':<15}{'instructions per record':>25}{'table':>12}")
    for name, value in counts.items():
        before = stored.get(name)
        note = ""
        if before is None:
            note, good = "is not in the table", False
        elif value > before * (1 + TOLERANCE):
            note, good = f"{value / before - 1:.1%} more than in the table", good and not is_same_compiler
        elif value < before * (1 - TOLERANCE):
            note = f"{1 - value / before:.1%} less: lower the table with --write"
        print(f"{name:<15}{value:>25,.1f}{before or 0:>12,.1f}  {note}".rstrip())
    return good


def write(tables):
    lines = ["# Instructions per record, written by scripts/instructions.py --write."]
    for name, table in sorted(tables.items()):
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    TABLE.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--repeat", metavar="N", type=int)
    parser.add_argument("works", metavar="WORK", nargs="*", help=", ".join(WORKS))
    options = parser.parse_args()
    if not set(options.works) <= set(WORKS):
        parser.error(f"expected one of {', '.join(WORKS)}")
    if not options.built:
        build()
    built = (options.built or DIST).resolve()
    names = options.works or list(WORKS)
    tables = tomllib.loads(TABLE.read_text()) if TABLE.exists() else {}
    table = tables.setdefault(built.name, {})
    compiler = output(["rustc", "--version"]).stdout.strip()
    is_same_compiler = table.get("rustc", compiler) == compiler
    with tempfile.TemporaryDirectory() as folder:
        wanted = {(WORKS[name][0], run[0]) for name in names for run in WORKS[name][1]}
        traces = {key: generate(built, pathlib.Path(folder), *key) for key in wanted}
        if options.repeat:
            return spread(built, traces, names, options.repeat)
        counts = count(built, traces, names)
    good = compare(counts, table, is_same_compiler)
    if not is_same_compiler:
        print(f"The table was written with {table['rustc']}, this is {compiler}: larger counts are only reported.")
    if options.write:
        table |= {"rustc": compiler} | {name: round(value, 1) for name, value in counts.items()}
        write(tables)
    elif not good:
        raise SystemExit("More instructions per record than in the table: find the reason, or use --write")


if __name__ == "__main__":
    main()
