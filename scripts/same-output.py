#!/usr/bin/env python3
"""Compares the output of two builds of the program, byte by byte.

usage: scripts/same-output.py [--threads N,N...] [--hashes FILE] BEFORE AFTER TRACE...

Runs each verb with each of its formats on each trace with both programs. The second one also runs
with each number of threads. Prints each command whose output, messages or exit status differ, and
ends with status 1 if there are any. `--hashes` writes the SHA-256 of each output of the second
program. Times and rates that messages state are ignored.
"""

import argparse
import functools
import hashlib
import pathlib
import re
import subprocess
import sys

FORMATS = {
    "events": "table ndjson csv",
    "events --stacks": "table ndjson csv",
    "stacks": "table folded json",
    "profile": "firefox flamegraph folded speedscope perfetto",
    "hunt": "table list summary ndjson ecs ocsf navigator csv timesketch",
    "info": "table json",
    "info --full": "table json",
    "summary": "table json",
    "tree": "text html json",
}
MEASUREMENTS = "cpu wait ready interrupt syscall disk file fault network memory gc jit"
FORMATS |= {f"top {measurement}": "table csv json" for measurement in MEASUREMENTS.split()}
COMMANDS = [f"{verb} --format {form}" for verb, forms in FORMATS.items() for form in forms.split()]

# Messages contain the time that the command took.
VARIABLE = re.compile(rb"\d+(\.\d+)? ?(ns|us|\xc2\xb5s|ms|s|min|M events/s|MB/s)\b")


def run(program, command, trace, threads):
    whole = [program, *command.split()]
    if "--threads" in help_of(program, command.partition(" --")[0]):
        whole += ["--threads", threads]
    done = subprocess.run([*whole, trace], stdin=subprocess.DEVNULL, capture_output=True)
    if done.stderr.startswith((b"error: --", b"error: `")):
        raise SystemExit(f"{' '.join(whole)}: {done.stderr.decode()}")
    return hashlib.sha256(done.stdout).hexdigest(), VARIABLE.sub(b"", done.stderr), done.returncode


@functools.cache
def help_of(program, verb):
    return subprocess.run([program, *verb.split(), "--help"], capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--hashes", metavar="FILE", type=pathlib.Path)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("traces", metavar="TRACE", nargs="+")
    options = parser.parse_args()
    compared, different, lines = 0, 0, []
    for trace in options.traces:
        for command in COMMANDS:
            expected = run(options.before, command, trace, "1")
            for threads in options.threads.split(","):
                found = run(options.after, command, trace, threads)
                compared += 1
                if found != expected:
                    different += 1
                    what = [name for name, one, other in zip(("output", "messages", "status"), expected, found) if one != other]
                    print(f"{trace}: {command} with {threads} threads: {', '.join(what)}", flush=True)
            lines.append(f"{expected[0]}  {pathlib.Path(trace).name}: {command}\n")
    if options.hashes:
        options.hashes.write_text("".join(lines))
    print(f"{compared} outputs compared, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
