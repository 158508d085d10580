#!/usr/bin/env python3
"""Prints the speed of each stage, and its share of the speed of a bare record walk in the same run.

usage: scripts/speed.py [--runs N] [--events N] [--no-dissect] [TRACE...]
       scripts/speed.py --live
       scripts/speed.py --hunt [--runs N] [--events N]
       scripts/speed.py --rules DIR [--runs N] [--events N]

Without TRACE: the demo trace with the profiling mix (generated once, in target/speed/), and
perfview-net452-x64 of the corpus if available. Its buffers are compressed, so it has no bare walk.
Compare the shares: absolute figures depend on the machine and its load. dissect.etl (PyPI) is also
measured, if it is installed for the Python that runs this script.

--hunt: the cost of evaluating stacks in addition to the full pipeline (medians of pairs of runs),
on a demo trace in which every third event has a stack; and the cost of evaluating one new stack,
from the benchmark.

--rules: the time to load the rules in a folder, and the cost of evaluating them in addition to the
full pipeline, on the same trace.

--live: the cost of single events in a live session, in filters and in parsers, from the benchmarks.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
WORK = ROOT / "target" / "speed"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, cwd=ROOT, **options)


def stage(name, file, threads=1, rules=""):
    environment = dict(os.environ, STACKHOUND_RULES=str(rules))
    command = [RELEASE / "examples" / "stages", name, file, threads]
    out = run(*command, capture_output=True, text=True, env=environment).stdout
    return json.loads(out)


def peak_anonymous(child):
    """Waits until a process ends. Returns its maximum of anonymous memory in KiB."""
    peak = 0
    while child.poll() is None:
        try:
            for line in open(f"/proc/{child.pid}/status"):
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]))
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.01)
    return peak


def ndjson(file, stacks):
    """Runs the program as a process, with its output to /dev/null."""
    command = [RELEASE / "stackhound", "events", "-q", "--threads", "1", "--format", "ndjson", file]
    if stacks:
        command.append("--stacks")
    started = time.monotonic()
    child = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    peak = peak_anonymous(child)
    seconds = time.monotonic() - started
    if child.wait() != 0:
        raise SystemExit(f"{command} failed")
    return {"seconds": seconds, "anonymous_kib": peak}


def dissect(file):
    """Reads the headers of all events with an independent reader."""
    code = (
        "import sys, time, json\n"
        "from dissect.etl import ETL\n"
        "started = time.monotonic()\n"
        "count = sum(1 for _ in ETL(open(sys.argv[1], 'rb')))\n"
        "print(json.dumps({'events': count, 'seconds': time.monotonic() - started, 'anonymous_kib': 0}))\n"
    )
    try:
        out = run(sys.executable, "-c", code, file, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError:
        return None
    return json.loads(out)


def median(measure, runs):
    results = [measure() for _ in range(runs)]
    middle = statistics.median(result["seconds"] for result in results)
    chosen = min(results, key=lambda result: abs(result["seconds"] - middle))
    chosen["anonymous_kib"] = max(result["anonymous_kib"] for result in results)
    return chosen


def measure_file(name, file, runs, with_dissect):
    size = os.path.getsize(file)
    rows = []
    merge = median(lambda: stage("merge", file), runs)
    events = merge["events"]
    walk = median(lambda: stage("walk", file), runs)
    is_plain = walk["events"] == events
    rows.append(("bare walk", walk, walk["bytes"] if is_plain else None, is_plain))
    blocks = median(lambda: stage("decompress", file), runs)
    rows.append(("scan" if is_plain else "decompress + scan", blocks, blocks["bytes"], True))
    rows.append(("merge + iterate", merge, size, True))
    rows.append(("full pipeline", median(lambda: stage("full", file), runs), size, True))
    rows.append(("full, 2 threads", median(lambda: stage("full", file, 2), runs), size, True))
    frames = median(lambda: stage("frames", file), runs)
    names = median(lambda: stage("names", file), runs)
    rows.append(("full + frames", frames, size, True))
    rows.append(("full + names", names, size, True))
    few = max(1, runs // 2)
    rows.append(("NDJSON", median(lambda: ndjson(file, False), few), size, True))
    rows.append(("NDJSON + stacks", median(lambda: ndjson(file, True), few), size, True))
    if with_dissect:
        result = dissect(file) if events < 2_000_000 else None
        rows.append(("dissect.etl, headers", result, size, result is not None))
    print(f"\n{name}: {events:,} records, {size / 1e6:,.1f} MB")
    print(f"{'stage':<22}{'M events/s':>12}{'MB/s':>10}{'seconds':>10}{'anon. MB':>10}{'of walk':>9}")
    base = events / walk["seconds"] if is_plain else None
    full = next(result for label, result, _, _ in rows if label == "full pipeline")
    for label, result, volume, valid in rows:
        if not valid:
            print(f"{label:<22}{'-':>12}")
            continue
        rate = events / result["seconds"]
        share = f"{rate / base:.3f}" if base else "-"
        megabytes = f"{volume / result['seconds'] / 1e6:,.0f}" if volume else "-"
        print(
            f"{label:<22}{rate / 1e6:>12.2f}{megabytes:>10}{result['seconds']:>10.3f}"
            f"{result['anonymous_kib'] / 1024:>10.1f}{share:>9}"
        )

    for action, result in (("examined", frames), ("named", names)):
        spent = max(result["seconds"] - full["seconds"], 1e-9)
        print(f"{result['frames']:,} frames {action}: {result['frames'] / spent / 1e6:.1f} M/s in addition to the full pipeline")
    print(
        f"{names['distinct']:,} distinct addresses resolved, {names['named']:,} named; {names['modules']} modules, "
        f"{names['loads']} tables loaded, {names['table_memory'] / 1e6:.1f} MB of tables"
    )


LIVE = [("stackhound-live", "capture"), ("stackhound-schema", "parse"), ("stackhound", "predicate")]


def measure_live():
    """Prints the medians of the benchmarks per event, from the files of criterion."""
    results = ROOT / "target" / "criterion"
    print("| benchmark | ns per event |\n|---|---|")
    for package, bench in LIVE:
        started = time.time()
        run("cargo", "bench", "--quiet", "-p", package, "--bench", bench, stdout=subprocess.DEVNULL)
        for file in sorted(results.glob("**/new/estimates.json")):
            if file.stat().st_mtime < started:
                continue
            about = json.loads((file.parent / "benchmark.json").read_text())
            events = (about["throughput"] or {}).get("Elements", 1)
            nanoseconds = json.loads(file.read_text())["median"]["point_estimate"]
            print(f"| {about['full_id']} | {nanoseconds / events:.1f} |")


def hunt_trace(events):
    WORK.mkdir(parents=True, exist_ok=True)
    folder = WORK / f"hunt-{events}"
    file = folder / "stackhound-demo.etl"
    if not file.exists():
        run(RELEASE / "stackhound", "demo", "--quiet", "--events", events, "--out", folder, stdout=subprocess.DEVNULL)
    return file


def measure_rules(folder, events, runs):
    file = hunt_trace(events)
    pairs = [(stage("full", file), stage("rules", file, rules=folder)) for _ in range(runs)]
    full, rules = sorted(pairs, key=lambda pair: pair[1]["processor_seconds"] - pair[0]["processor_seconds"])[runs // 2]
    spent = max(rules["processor_seconds"] - full["processor_seconds"], 0.01)
    answers = ", ".join(f"{rules[answer]:,} {answer}" for answer in ("yes", "possible", "undetermined"))
    print(f"{rules['rules']} rules, loaded in {rules['loading_ms']:.1f} ms")
    print(f"{rules['events']:,} events, {rules['about']:,} that rules are about: {answers}")
    print(f"full pipeline: {full['processor_seconds']:.2f} s of processor time, with rules {rules['processor_seconds']:.2f} s")
    share = spent / full["processor_seconds"]
    print(f"rules alone: {rules['events'] / spent / 1e6:.1f} M events/s, {share:.2f} of the pipeline's time")
    print(f"pipeline with rules: {rules['events'] / rules['processor_seconds'] / 1e6:.2f} M events/s")


def measure_hunt(events, runs):
    file = hunt_trace(events)
    # Alternate runs, so that other load affects both. Processor time depends least on other load.
    pairs = [(stage("full", file), stage("hunt", file)) for _ in range(runs)]
    full, hunt = sorted(pairs, key=lambda pair: pair[1]["processor_seconds"] - pair[0]["processor_seconds"])[runs // 2]
    stacks = hunt["with_stack"]
    spent = max(hunt["processor_seconds"] - full["processor_seconds"], 1e-9)
    print(f"{hunt['events']:,} events, {hunt['evaluated']:,} evaluated, {stacks:,} with stacks, {hunt['findings']:,} findings")
    print(f"{'stage':<22}{'M events/s':>12}{'seconds':>10}{'CPU':>11}{'anon. MB':>10}")
    for label, result in (("full pipeline", full), ("+ evaluating", hunt)):
        rate = result["events"] / result["seconds"] / 1e6
        times = f"{result['seconds']:>10.3f}{result['processor_seconds']:>11.2f}"
        print(f"{label:<22}{rate:>12.2f}{times}{result['anonymous_kib'] / 1024:>10.1f}")
    remembered = hunt["remembered"] / max(hunt["evaluated"], 1)
    rate = f"{stacks / spent / 1e6:.1f} M stacks/s of processor time, {spent / full['processor_seconds']:.2f} of the pipeline's"
    print(f"evaluating in addition to the full pipeline: {rate}, {remembered:.1%} cached")
    run("cargo", "bench", "--quiet", "-p", "stackhound-detect", "--bench", "evaluate")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--no-dissect", action="store_true")
    parser.add_argument("traces", nargs="*", metavar="TRACE")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--hunt", action="store_true")
    parser.add_argument("--rules", metavar="DIR", type=pathlib.Path)
    options = parser.parse_args()
    if options.live:
        return measure_live()
    run("cargo", "build", "--release", "--quiet", "--bin", "stackhound")
    run("cargo", "build", "--release", "--quiet", "-p", "stackhound", "--example", "stages")
    if options.rules:
        return measure_rules(options.rules.resolve(), options.events, options.runs)
    if options.hunt:
        return measure_hunt(options.events, options.runs)
    WORK.mkdir(parents=True, exist_ok=True)
    files = [(pathlib.Path(file).name, pathlib.Path(file).resolve()) for file in options.traces]
    if not files:
        demo = WORK / f"demo-{options.events}"
        if not list(demo.glob("*.etl")):
            command = ["demo", "--quiet", "--mix", "profile", "--events", options.events, "--out", demo]
            run(RELEASE / "stackhound", *command, stdout=subprocess.DEVNULL)
        files.append((f"demo --mix profile --events {options.events}", next(demo.glob("*.etl"))))
        corpus = pathlib.Path(os.environ.get("STACKHOUND_CORPUS", ROOT.parent / "shared" / "corpus"))
        packed = corpus / "etl" / "perfview-net452-x64.etl.zst"
        if packed.exists():
            plain = WORK / "perfview-net452-x64.etl"
            run("zstd", "-dqf", packed, "-o", plain)
            files.append(("perfview-net452-x64", plain))
    for name, file in files:
        measure_file(name, file, options.runs, not options.no_dissect)


if __name__ == "__main__":
    main()
