#!/usr/bin/env python3
"""Compares the user stacks of a program in two exact traces: the functions, parents, start and end types of
all frames, in order. Prints the number of equal frames of each stack, and fails at the first difference.

Frames that are open when the program ends are equal, whether the trace goes on (abandoned) or ends there.

usage: compare-stacks.py PROGRAM NAME ONE.calls OTHER.calls
    PROGRAM  the program stackhound
    NAME     the name of the program and of its module in both traces
"""

import collections
import json
import subprocess
import sys

COUNT_MAX = 1_000_000


def stacks(program, name, path):
    """The frames of each stack in the program itself: name, parent's number, start and end type. In the order of the stacks."""
    command = [program, "calls", "-q", path, f"{name}!*", "--process", name, "--limit", str(COUNT_MAX), "--format", "json"]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    if answer["found"] > COUNT_MAX:
        sys.exit(f"{path}: more than {COUNT_MAX} frames")
    by_stack = collections.defaultdict(list)
    for frame in sorted(answer["calls"], key=lambda frame: frame["frame_id"]):
        by_stack[frame["stack_id"]].append(frame)
    result = []
    for _, frames in sorted(by_stack.items()):
        open_frames, rows = [], []
        for number, frame in enumerate(frames):
            del open_frames[frame["depth"] :]
            parent = open_frames[-1] if open_frames else None
            open_frames.append(number)
            # A function that is entered in its middle has an offset.
            offset = frame["offset"] or 0
            end = "open" if frame["end_type"] in ("abandoned", "trace-end") else frame["end_type"]
            rows.append((frame["name"], offset, parent, frame["start_type"], end))
        result.append(rows)
    return result


def main():
    program, name, *paths = sys.argv[1:]
    one, other = (stacks(program, name, path) for path in paths)
    if not one or len(one) != len(other):
        sys.exit(f"{name}: {len(one)} stacks in one trace, {len(other)} in the other")
    for number, (left, right) in enumerate(zip(one, other)):
        for position, (a, b) in enumerate(zip(left, right)):
            if a != b:
                sys.exit(f"{name}, stack {number}, frame {position}: {a} in one trace, {b} in the other")
        if len(left) != len(right):
            sys.exit(f"{name}, stack {number}: {len(left)} and {len(right)} frames")
        print(f"{name}, stack {number}: {len(left)} equal frames")


if __name__ == "__main__":
    main()
