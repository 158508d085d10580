#!/usr/bin/env python3
"""Adds a reason, a detection, a measurement of `top`, a format of findings and a preset to a copy of this repository, each
with one piece left out, and checks that the compiler or a test finds it.

usage: registries.py [FOLDER]

The copy is made in FOLDER, by default a temporary one. Needs git and cargo; without a target folder in CARGO_TARGET_DIR,
all crates are built there. Fails if an attempt succeeds, or if it fails without the piece being named.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

REASONS = "crates/detect/src/catalogue/reason.rs"
CATALOGUE = "crates/detect/src/catalogue/mod.rs"
METRICS = "crates/analysis/src/costs/mod.rs"
FORMATS = "crates/export/src/findings/mod.rs"
PRESETS = "crates/live/src/settings/preset.rs"
CS30 = 'include_str!("explain/cs30.txt") },'
DETECTION = """    Detection { name: "CS31", title: "a test", needs: needs(&[Stack]), severity: Medium, attack: &["T1106"], \
behaviors: &["native_api"], explanation: include_str!("explain/cs30.txt") },
];"""

# What is added without which piece; the edits; the command that must fail; and a part of its message.
ATTEMPTS = [
    (
        "a reason without its sentence",
        [(REASONS, "    AtLimit ", '    OfTest "of-test",\n    AtLimit ')],
        ["cargo", "check", "-p", "stackhound-detect"],
        "no rules expected",
    ),
    (
        "a detection without its function",
        [
            (CATALOGUE, "[Detection; 30]", "[Detection; 31]"),
            (CATALOGUE, CS30 + "\n];", CS30 + "\n" + DETECTION),
        ],
        ["cargo", "check", "-p", "stackhound-detect"],
        "missing field `check`",
    ),
    (
        "a measurement without its command",
        [(METRICS, "    /// Compiled methods of .NET.", "    /// A test.\n    OF_TEST = jit,\n    /// Compiled methods of .NET.")],
        ["cargo", "test", "-p", "stackhound-cli", "--bin", "stackhound", "each_measurement_is_a_command"],
        "each_measurement_is_a_command ... FAILED",
    ),
    (
        "a format of findings without its output",
        [(FORMATS, "    /// A layer for", '    /// A test\n    OfTest = "of-test" Programs,\n    /// A layer for')],
        ["cargo", "check", "-p", "stackhound-export"],
        "no rules expected",
    ),
    (
        "a preset without its description",
        [
            (
                PRESETS,
                "    /// Processes, threads, images, and context",
                '    /// A test\n    OfTest = "of-test" Row {\n        groups: &[KernelGroups::PROCESS],\n        '
                'stacks: &["Process/Start"],\n        buffers: Buffers::throughput,\n        has_names: false,\n    },\n'
                "    /// Processes, threads, images, and context",
            )
        ],
        ["cargo", "test", "-p", "stackhound-live", "--lib", "presets_have_events_and_are_described"],
        "docs/live.md does not describe of-test",
    ),
]


def run(folder, *arguments):
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve() / "copy"
        run(ROOT, "git", "clone", "--quiet", "--local", str(ROOT), str(folder)).check_returncode()
        os.environ.setdefault("CARGO_TARGET_DIR", str(folder / "target"))
        for what, edits, command, expected in ATTEMPTS:
            for path, before, after in edits:
                text = (folder / path).read_text()
                if text.count(before) != 1:
                    sys.exit(f"registries: {path}: expected one `{before}`, found {text.count(before)}")
                (folder / path).write_text(text.replace(before, after))
            result = run(folder, *command, "--locked")
            output = result.stdout + result.stderr
            if result.returncode == 0:
                sys.exit(f"registries: {what}: nothing finds it")
            if expected not in output:
                sys.exit(f"registries: {what}: expected `{expected}`, found\n{output}")
            print(f"{what}: {' '.join(command[1:])}: {expected}")
            run(folder, "git", "checkout", "--quiet", ".").check_returncode()
        # Without these edits, the same commands succeed.
        for what, _, command, _ in ATTEMPTS:
            result = run(folder, *command, "--locked")
            if result.returncode:
                sys.exit(f"registries: without {what}:\n{result.stdout}{result.stderr}")
        print(f"{len(ATTEMPTS)} attempts fail, and all commands succeed without them")


main()
