#!/usr/bin/env python3
"""Compares the .etl validator of stackhound-validator with another one.

usage: check-validator.py OTHER TRACE... [--corruptions N] [--seed N]

OTHER is a Python program that takes paths, and prints for each a line `PATH: ...`, followed by an
indented line `RULE ...: COUNT of CHECKS; ...` for each violated rule. With --calibrate it prints
`CHECKS checks ... RULE ...` for each rule. Its rules have the same ids as ours. The traces are .etl
files written by Windows, preferably below 4 MiB.

First the unchanged traces are compared: neither validator may find a violation, and both must check
each rule equally often. Then single fields are corrupted, 1,000 by default: a field of the header
of the header buffer, of the logfile header and its record, of the header of a data buffer, of the
header of a record or of an extended item gets another value. Both validators check each corrupted
file.

Exit code: 0 our validator finds all violations that the other finds, 1 it does not, or the results
for the unchanged traces differ, 2 wrong usage.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
BATCH = 50
# Name, offset and size of each field.
BUFFER_FIELDS = [
    ("BufferSize", 0x00, 4), ("SavedOffset", 0x04, 4), ("CurrentOffset", 0x08, 4), ("ReferenceCount", 0x0C, 4),
    ("TimeStamp", 0x10, 8), ("SequenceNumber", 0x18, 8), ("Clock", 0x20, 8), ("Processor", 0x28, 2),
    ("LoggerId", 0x2A, 2), ("State", 0x2C, 4), ("Offset", 0x30, 4), ("BufferFlag", 0x34, 2), ("BufferType", 0x36, 2),
    ("Flink", 0x38, 8), ("Blink", 0x40, 8),
]
SYSTEM_FIELDS = [
    ("Version", 0, 2), ("HeaderType", 2, 1), ("Flags", 3, 1), ("Size", 4, 2), ("HookId", 6, 2), ("ThreadId", 8, 4),
    ("ProcessId", 12, 4), ("SystemTime", 16, 8), ("KernelTime", 24, 4), ("UserTime", 28, 4),
]
PERFINFO_FIELDS = [*SYSTEM_FIELDS[:5], ("SystemTime", 8, 8)]
FULL_FIELDS = [
    ("Size", 0, 2), ("HeaderType", 2, 1), ("Flags", 3, 1), ("Type", 4, 1), ("Level", 5, 1), ("Version", 6, 2),
    ("ThreadId", 8, 4), ("ProcessId", 12, 4), ("TimeStamp", 16, 8), ("Guid", 24, 16), ("KernelTime", 40, 4),
    ("UserTime", 44, 4),
]
EVENT_FIELDS = [
    *FULL_FIELDS[:3], ("EventFlags", 4, 2), ("EventProperty", 6, 2), *FULL_FIELDS[6:10], ("Id", 40, 2),
    ("EventVersion", 42, 1), ("Channel", 43, 1), ("EventLevel", 44, 1), ("Opcode", 45, 1), ("Task", 46, 2),
    ("Keyword", 48, 8), ("ProcessorTime", 56, 8), ("ActivityId", 64, 16),
]
RECORD_FIELDS = {
    **dict.fromkeys((1, 2), SYSTEM_FIELDS), **dict.fromkeys((16, 17), PERFINFO_FIELDS),
    **dict.fromkeys((10, 20), FULL_FIELDS), **dict.fromkeys((18, 19), EVENT_FIELDS),
}
ITEM_FIELDS = [("ItemStride", 0, 2), ("ItemType", 2, 2), ("ItemLinkage", 4, 2), ("ItemSize", 6, 2)]
EVENT_HEADER_SIZE = 0x50
COMPRESSED = 0x40


def logfile_fields(pointer):
    """Yields the fields of the logfile header, which starts at 0x68."""
    fixed = [
        ("BufferSize", 4), ("MajorVersion", 1), ("MinorVersion", 1), ("SubVersion", 1), ("SubMinorVersion", 1),
        ("ProviderVersion", 4), ("NumberOfProcessors", 4), ("EndTime", 8), ("TimerResolution", 4),
        ("MaximumFileSize", 4), ("LogFileMode", 4), ("BuffersWritten", 4), ("StartBuffers", 4), ("PointerSize", 4),
        ("EventsLost", 4), ("CpuSpeed", 4), ("LoggerName", pointer), ("LogFileName", pointer), ("Bias", 4),
        ("StandardName", 64), ("StandardDate", 16), ("StandardBias", 4), ("DaylightName", 64), ("DaylightDate", 16),
        ("DaylightBias", 4), ("Alignment", 4), ("BootTime", 8), ("PerfFreq", 8), ("StartTime", 8),
        ("ReservedFlags", 4), ("BuffersLost", 4),
    ]
    at = 0x68
    for name, size in fixed:
        if name == "Alignment" and at % 8 == 0:
            continue
        yield name, at, size
        at += size


class Trace:
    """The offsets of fields in a genuine trace, by the structure that contains them."""

    def __init__(self, path):
        self.name, self.data = path.name, path.read_bytes()
        data = self.data
        self.locations = collections.defaultdict(list)
        self.locations["header buffer"] = [(0, BUFFER_FIELDS)]
        pointer = 4 if data[0x4A] == 1 else 8
        self.locations["logfile header"] = [(0x48, SYSTEM_FIELDS), (0, list(logfile_fields(pointer)))]
        buffer = 0
        while buffer < len(data):
            size, saved = struct.unpack_from("<II", data, buffer)
            if buffer:
                self.locations["data buffer"].append((buffer, BUFFER_FIELDS))
            end = saved or struct.unpack_from("<I", data, buffer + 0x30)[0]
            record = buffer + 0x48
            while not data[buffer + 0x34] & COMPRESSED and record + 8 <= buffer + end:
                kind = data[record + 2]
                first, second = struct.unpack_from("<HxxH", data, record)
                length = second if kind in (1, 2, 16, 17) else first
                if record != 0x48:
                    self.locations["record"].append((record, RECORD_FIELDS[kind]))
                linked = kind in (18, 19) and data[record + 4] & 1
                item = record + EVENT_HEADER_SIZE
                while linked:
                    self.locations["item"].append((item, ITEM_FIELDS))
                    stride, _, linked = struct.unpack_from("<HHH", data, item)
                    item += stride
                record += (length + 7) & ~7
            buffer += size

    def corrupt(self, rng, kind):
        """Returns a copy with one changed field, and a description of the change."""
        base, fields = rng.choice(self.locations[kind])
        name, offset, size = rng.choice(fields)
        at = base + offset
        old = int.from_bytes(self.data[at : at + size], "little")
        new = old
        while new == old:
            new = rng.choice([
                rng.getrandbits(size * 8),
                rng.getrandbits(4),
                old ^ 1 << rng.randrange(size * 8),
                old + rng.choice([-8, -1, 1, 8]),
            ]) % (1 << size * 8)
        data = bytearray(self.data)
        data[at : at + size] = new.to_bytes(size, "little")
        return data, f"{self.name}: {kind} at {base:#x}, {name}: {old:#x} becomes {new:#x}"


def build():
    """Builds our validator as a program."""
    command = ["cargo", "build", "--quiet", "-p", "stackhound-validator", "--example", "validate"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = subprocess.run([ROOT / "scripts/target-folder"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return pathlib.Path(target.strip(), "debug/examples/validate")


def ours(program, paths):
    """Returns the reports of our validator."""
    output = subprocess.run([program, *paths], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def others(other, paths):
    """Returns the rules that the other validator finds violated, by path.

    A file at which it fails violates `exception`.
    """
    found = {}
    paths = list(paths)
    while paths:
        run = subprocess.run([sys.executable, other, *paths], capture_output=True, text=True)
        path = None
        for line in run.stdout.splitlines():
            head = next((name for name in paths if line.startswith(f"{name}: ")), None)
            if head:
                path = head
                found[path] = {"exception"} if "cannot be validated" in line else set()
            elif path and (rule := re.match(r"   (\w\d\d) ", line)):
                found[path].add(rule[1])
        done = len([name for name in paths if name in found])
        if not done:
            sys.exit(f"{other} reports nothing about {paths[0]}: {run.stderr[-300:]}")
        paths = paths[done:]
    return found


def compare_traces(program, other, paths):
    """Returns whether both validators find no violation and check each rule equally often."""
    run = subprocess.run([sys.executable, other, "--calibrate", *paths], capture_output=True, text=True, check=True)
    rows = re.findall(r"^ *(\d+) checks +\d+ files +(\d+) failed +(\w\d\d) ", run.stdout, re.MULTILINE)
    theirs = {rule: int(checks) for checks, _, rule in rows}
    checks, violated = collections.Counter(), collections.Counter()
    for report in ours(program, paths):
        checks.update(report["checks"])
        violated.update(report["violated"])
    for rule in sorted(theirs | checks):
        if theirs.get(rule) != checks.get(rule):
            print(f"{rule}: the other checks it {theirs.get(rule)} times, ours {checks.get(rule)} times")
    failed = sum(int(failed) for _, failed, _ in rows)
    print(f"{len(paths)} unchanged traces: {len(theirs)} rules and {sum(theirs.values())} checks of the other,")
    print(f"{len(checks)} rules and {sum(checks.values())} checks of ours; {failed} and {len(violated)} violations")
    return bool(theirs) and theirs == checks and not failed and not violated


def main():
    parser = argparse.ArgumentParser(usage="check-validator.py OTHER TRACE... [--corruptions N] [--seed N]")
    parser.add_argument("other")
    parser.add_argument("traces", nargs="+", type=pathlib.Path)
    parser.add_argument("--corruptions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = build()
    same = compare_traces(program, options.other, [str(path.resolve()) for path in options.traces])

    rng = random.Random(options.seed)
    traces = [Trace(path) for path in options.traces]
    kinds = sorted({kind for trace in traces for kind, locations in trace.locations.items() if locations})
    outcomes, rules, missed = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, options.corruptions, BATCH):
            batch = {}
            for number in range(start, min(start + BATCH, options.corruptions)):
                kind = kinds[number % len(kinds)]
                trace = rng.choice([trace for trace in traces if trace.locations[kind]])
                data, description = trace.corrupt(rng, kind)
                path = pathlib.Path(folder, f"{number}.etl")
                path.write_bytes(data)
                batch[str(path)] = kind, description
            reports = {report["file"]: set(report["violated"]) for report in ours(program, batch)}
            theirs = others(options.other, batch)
            for path, (kind, description) in batch.items():
                mine, other = reports[path], theirs[path]
                outcome = ("neither", "only the other", "only ours", "both")[2 * bool(mine) + bool(other)]
                outcomes[kind, outcome] += 1
                if outcome == "only the other":
                    missed.append(f"{description}: {sorted(other)}")
                elif mine != other:
                    rules["other rules"] += 1
                    print(f"differs: {description}: other {sorted(other - mine)}, ours {sorted(mine - other)}")
                else:
                    rules["the same rules"] += 1
                pathlib.Path(path).unlink()
    columns = ("both", "only the other", "only ours", "neither")
    print(f"{'corrupted in':16}" + "".join(f"{column:>16}" for column in columns))
    for kind in kinds:
        print(f"{kind:16}" + "".join(f"{outcomes[kind, column]:16}" for column in columns))
    totals = [sum(outcomes[kind, column] for kind in kinds) for column in columns]
    print(f"{'total':16}" + "".join(f"{total:16}" for total in totals))
    print(f"{rules['the same rules']} with the same violated rules in both, {rules['other rules']} with different rules")
    for line in missed:
        print(f"missed: {line}")
    sys.exit(0 if same and not missed else 1)


main()
