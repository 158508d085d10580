#!/usr/bin/env python3
"""Adds a fact about processes to a copy of this repository, as CONTRIBUTING says, and checks that all outputs have it.

usage: add-fact.py [FOLDER]

The fact `process.test_fact` is one row of the catalogue, and a getter for traces and one for Sysmon's data. Python reads the
same tables as `convert` writes. The copy is
made in FOLDER, by default a temporary one. Needs git and cargo, and builds the program: about five minutes. Prints what
was changed by hand, what was generated, and each output with the fact. Fails if one lacks it.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = """        /// A fact for a test.
        TestFact = "test_fact" Text .ecs("Ext.test_fact").ocsf("test_fact"),
        /// Start time;"""
# Where each line is inserted, and before what.
EDITS = [
    ("crates/facts/src/catalogue.rs", "        /// Start time;", ROW),
    (
        "crates/pipeline/src/facts/process.rs",
        "            ProcessFact::StartTime =>",
        '            ProcessFact::TestFact => FactValue::from("of a trace"),\n            ProcessFact::StartTime =>',
    ),
    (
        "crates/sysmon/src/event_context.rs",
        "        ProcessFact::StartTime =>",
        '        ProcessFact::TestFact => text("of a row"),\n        ProcessFact::StartTime =>',
    ),
]
SYSMON = {
    "event_id": 10, "utc": "2026-05-01T10:00:00Z", "host": "WS1", "pid": 2936, "tid": 3816,
    "source_image": r"C:\Users\a\updater.exe", "target_image": r"C:\Windows\system32\lsass.exe",
    "granted_access": "0x1fffff", "count": 1,
    "calltrace": r"C:\Windows\SYSTEM32\ntdll.dll+9d8e4|UNKNOWN(0000024F64B7B7A1)",
}


def run(folder, *arguments, **variables):
    """The output of a command. Fails if the command does."""
    command = subprocess.run(arguments, cwd=folder, env=os.environ | variables, capture_output=True, text=True)
    if command.returncode:
        sys.exit(f"add-fact: {' '.join(arguments)}:\n{command.stdout}{command.stderr}")
    return command.stdout


def edit(folder):
    for path, before, after in EDITS:
        file = folder / path
        text = file.read_text()
        if text.count(before) != 1:
            sys.exit(f"add-fact: {path}: expected one line with `{before.strip()}`, found {text.count(before)}")
        file.write_text(text.replace(before, after))


def has(output, is_there):
    print(f"  {output}")
    if not is_there:
        sys.exit(f"add-fact: {output} lacks the fact")


def check(folder, target):
    program = str(target / "debug/stackhound")

    def stackhound(*arguments, **variables):
        return run(folder, program, *arguments, **variables)

    def lines(*arguments):
        return [json.loads(line) for line in stackhound(*arguments, "--format", "ndjson").splitlines()]

    def value(document, *path):
        for key in path:
            document = document.get(key) or {}
        return document

    stackhound("demo", "-q", "--out", ".")
    trace = "stackhound-demo.etl"
    (folder / "rows.jsonl").write_text(json.dumps(SYSMON) + "\n")
    print("outputs with the fact:")
    selected = lines("events", trace, "--where", "process.test_fact = 'of a trace'")
    has("filters of events", len(selected) > 100)
    has("events", all(value(event, "process", "test_fact") == "of a trace" for event in selected))
    rows = list(csv.DictReader(io.StringIO(stackhound("events", trace, "--format", "csv"))))
    has("CSV of events", sum(row["process.test_fact"] == "of a trace" for row in rows) == len(selected))
    words = ["events", trace, "--where", "process.te"]
    index = str(len(words))
    completed = stackhound("--", "stackhound", *words, STACKHOUND_COMPLETE="bash", _CLAP_COMPLETE_INDEX=index, _CLAP_IFS="\n")
    has("completion", "process.test_fact" in completed)
    for name, source, expected in [("a trace", trace, "of a trace"), ("Sysmon", "rows.jsonl", "of a row")]:
        arguments = ["hunt", source, "--exit-zero"]
        documents = lines(*arguments, "--where", f"process.test_fact = '{expected}'")
        for kind in ["finding", "alert"]:
            found = [document for document in documents if document["type"] == kind]
            has(f"{kind} of {name}", found and all(value(one, "process", "test_fact") == expected for one in found))
        for form, path in [
            ("ecs", ["process", "Ext", "test_fact"]),
            ("ocsf", ["evidences", 0, "process", "test_fact"]),
        ]:
            found = [json.loads(line) for line in stackhound(*arguments, "--format", form).splitlines()]

            def get(document, path=path):
                for key in path:
                    document = document[key]
                return document

            # Of a process start, ECS has the new process, and an event without a process has none.
            hits = 0
            for document in found:
                try:
                    hits += get(document) == expected
                except (KeyError, TypeError):
                    pass
            has(f"{form.upper()} of {name}", hits > 0)
        text = stackhound(*arguments, "--format", "csv")
        has(f"CSV of {name}", "process.test_fact" in text.splitlines()[0] and expected in text)
    stackhound("convert", "-q", trace, "-o", "tables")
    has("tables", any(b"of a trace" in file.read_bytes() for file in (folder / "tables/processes").rglob("*.parquet")))


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve() / "copy"
        run(ROOT, "git", "clone", "--quiet", "--local", str(ROOT), str(folder))
        edit(folder)
        print("changed by hand:\n" + run(folder, "git", "diff", "--stat"))
        run(folder, "git", "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "-a", "-m", "a fact")
        # Paths of the target folder are short, so that it can be shared with other builds of the same sources.
        target = Path(os.environ.get("CARGO_TARGET_DIR", folder / "target"))
        write = {"STACKHOUND_WRITE_SCHEMAS": "1", "CARGO_TARGET_DIR": str(target)}
        packages = ["stackhound-facts", "stackhound-export", "stackhound-columns"]
        arguments = [word for package in packages for word in ("-p", package)]
        run(folder, "cargo", "test", "--quiet", "--locked", *arguments, "published", **write)
        generated = run(folder, "git", "diff", "--stat")
        has_docs = "process.test_fact" in (folder / "docs/facts.md").read_text()
        print("generated:\n" + generated)
        run(folder, "cargo", "build", "--quiet", "--locked", "-p", "stackhound-cli", CARGO_TARGET_DIR=str(target))
        check(folder, target)
        has("docs/facts.md", has_docs)


main()
