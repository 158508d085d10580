#!/usr/bin/env python3
"""Answers the questions in crates/lake/questions about traces with stackhound-lake, and about their tables with
stackhound-lake, DuckDB and ClickHouse, and compares all rows in their order. The statements that make the tables known to
the other engines are those of docs/query.md. Fails on any difference, and on questions without rows.

usage: lake-answers.py STACKHOUND_LAKE|- DIR [--only-lake] [ARGUMENTS OF `stackhound-lake query`]

DIR is one that scripts/lake-data.sh has written. With `-`, compares DuckDB and ClickHouse only. With --only-lake, writes
the answers of stackhound-lake about the tables as JSON to standard output, for comparisons of several runs.
"""

import datetime
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z?")
# For one question.
TIMEOUT_SECONDS = 120


def normal(value):
    """A value without the type of an engine: times as nanoseconds, texts of digits as integers."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        if re.fullmatch(r"-?\d{1,20}", value):
            return int(value)
        if found := TIME.fullmatch(value):
            *parts, fraction = found.groups()
            seconds = datetime.datetime(*map(int, parts), tzinfo=datetime.timezone.utc).timestamp()
            return int(seconds) * 10**9 + int((fraction or "").ljust(9, "0"))
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def recipes(heading):
    """The SQL of a section of the documentation."""
    page = (ROOT / "docs/query.md").read_text()
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", page, re.M | re.S)
    return re.findall(r"^```sql\n(.*?)^```", section[1], re.M | re.S)[0]


def views(heading, folder):
    """Statements for all tables, from those of the documentation for the table `events` in `lake`."""
    statements = [statement.strip() for statement in recipes(heading).split(";") if statement.strip()]
    for statement in statements:
        if "events" not in statement:
            yield statement
            continue
        for table in sorted(path.name for path in folder.iterdir() if path.is_dir()):
            yield statement.replace("events", table).replace("'lake/", f"'{folder}/")


class Lake:
    def __init__(self, program, sources, arguments):
        self.command = [program, "query", "-f", "-", *map(str, sources), "--format", "ndjson", *arguments]

    def rows(self, sql):
        ran = subprocess.run(self.command, input=sql, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        if ran.returncode != 0:
            raise RuntimeError(ran.stderr.strip())
        return [list(json.loads(line).values()) for line in ran.stdout.splitlines()]


class DuckDb:
    def __init__(self, folder):
        import duckdb

        self.connection = duckdb.connect()
        for statement in views("DuckDB", folder):
            self.connection.execute(statement)

    def rows(self, sql):
        answer = self.connection.sql(sql)
        # Times as integers, because those of Python have microseconds.
        columns = [
            f'epoch_ns("{name}")' if str(kind).startswith("TIMESTAMP") else f'"{name}"'
            for name, kind in zip(answer.columns, answer.types, strict=True)
        ]
        return answer.project(", ".join(columns)).fetchall()


class ClickHouse:
    def __init__(self, folder):
        from chdb import session

        self.session = session.Session()
        self.session.query("SET output_format_json_quote_64bit_integers = 0")
        for statement in views("ClickHouse", folder):
            self.session.query(statement)

    def rows(self, sql):
        return [json.loads(line) for line in str(self.session.query(sql, "JSONCompactEachRow")).splitlines()]


def main():
    program, folder, *arguments = sys.argv[1:]
    data = pathlib.Path(folder).resolve()
    tables = data / "lake"
    is_alone = "--only-lake" in arguments
    engines = {}
    if program != "-":
        engines["lake"] = Lake(program, [tables], [argument for argument in arguments if argument != "--only-lake"])
        if not is_alone:
            traces = sorted(data.glob("traces/*/*.etl"))
            engines["traces"] = Lake(program, traces, ["--symbol-path", str(data / "symbols")])
    if not is_alone:
        engines |= {"duckdb": DuckDb(tables), "clickhouse": ClickHouse(tables)}
    questions = sorted((ROOT / "crates/lake/questions").glob("*.sql"))
    if len(questions) != 20:
        sys.exit(f"expected 20 questions, found {len(questions)}")
    failed, answers = 0, {}
    print(f"{'question':<30} {'rows':>6} " + " ".join(f"{name:>10}" for name in engines), file=sys.stderr)
    totals = dict.fromkeys(engines, 0.0)
    for question in questions:
        sql = question.read_text()
        answer, times, notes = {}, {}, []
        for name, engine in engines.items():
            start = time.monotonic()
            try:
                answer[name] = [[normal(value) for value in row] for row in engine.rows(sql)]
            except Exception as error:  # noqa: BLE001, an error of an engine is a difference
                answer[name] = None
                notes.append(f"{name}: {str(error).splitlines()[0][:300]}")
            times[name] = time.monotonic() - start
            totals[name] += times[name]
        expected = answer[next(iter(engines))]
        if expected is not None and not expected:
            notes.append("no rows")
        for name, rows in answer.items():
            if rows is not None and rows != expected:
                pairs = zip(expected or [], rows)
                first = next((pair for pair in pairs if pair[0] != pair[1]), (len(expected or []), len(rows)))
                notes.append(f"{name} differs: {first[0]} {first[1]}")
        seconds = " ".join(f"{times[name]:>8.3f} s" for name in engines)
        print(f"{question.stem:<30} {len(expected or []):>6} {seconds}", *notes, sep="\n    " if notes else "", file=sys.stderr)
        failed += bool(notes)
        answers[question.stem] = expected
    print(f"{'all':<30} {'':>6} " + " ".join(f"{total:>8.3f} s" for total in totals.values()), file=sys.stderr)
    if is_alone:
        json.dump(answers, sys.stdout)
    if failed:
        sys.exit(f"{failed} of {len(questions)} questions failed")


if __name__ == "__main__":
    main()
