#!/usr/bin/env python3
"""Prints the speed and memory of each kind of work, with its goal and the share of the goal.

usage: scripts/speed.py [--runs N] [--long] [--busy] [--built DIR] [--json FILE] [TRACE...]
       scripts/speed.py --short [--built DIR] [--json FILE]
       scripts/speed.py --questions [--runs N] [--built DIR]
       scripts/speed.py --live
       scripts/speed.py --rules DIR [--runs N] [--events N] [--built DIR]

Without TRACE, three traces are generated once, in target/speed/, and measured: perfview-net452-x64 of
the corpus 44 times in a row, the demo trace with the profiling mix, and the demo trace with attacks,
each of the latter two with ten million events. Growth is measured with shorter ones. --long adds a
profiling mix of 5*10^7 events. Given traces are measured without goals; `scan` includes the
decompression, and compressed traces have no bare walk. dissect.etl (PyPI) and this project's Python
package are also measured, if they are installed for the Python that runs this script.

The kinds of work of a trace run alternately; each figure is a median of N runs (5 by default, 3 of
work that takes more than ten seconds). Rates are records per second of elapsed time, with one thread
unless the line says otherwise. --busy takes the rates of one thread from processor time instead, for
a machine with other load. Processor time is that of the whole process. Memory is the maximum of
anonymous memory; files are mapped and do not count. The share of a goal is above 1 if the figure is
better than the goal, and a missed goal is marked.

--built: a folder with built programs, `stackhound` and `examples/stages`, to measure another build.
Without it, the program is built with the profile `dist` and measured.

--json: write all costs and figures to this file.

--short: measure small traces once, without the corpus, to check that every figure is measured.

--questions: only questions about call trees: the first one about a trace, which reads it and keeps
its index, later ones, and those from Python.

--rules: the time to load the rules in a folder, and the cost of evaluating them in addition to the
full pipeline, on the demo trace with attacks.

--live: the cost of single events in a live session, in filters and in parsers, from the benchmarks.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "target" / "dist"
WORK = ROOT / "target" / "speed"
COPIES = 44

RATE, NAMED_RATE = "M records/s", "M frames/s"
STACK_RATE = "M stacks/s of evaluation"
MB, MS, SECONDS = "MB", "ms", "s"
OF_WALK, SPEED_UP, CPU_RATIO = "of the bare walk", "x as fast as one thread", "x the CPU of one thread"
CACHED = "of the evaluations cached"
MICROSECONDS = "us"
TOTAL, PROFILE, LONG_PROFILE, ATTACK, START = "44 copies", "profile mix", "profile mix, 5*10^7", "attack mix", "start"
# Questions about call trees.
DEMO_TREES, TOTAL_TREES = "call trees of 10^6 records", "call trees of 44 copies"

# Goals: trace, work, unit, least or most, value.
GOALS = [
    (TOTAL, "record walk", RATE, "least", 33),
    (TOTAL, "ordered merge", RATE, "least", 22),
    (TOTAL, "ordered merge", MB, "most", 4),
    (TOTAL, "full pipeline", RATE, "least", 12),
    (TOTAL, "full pipeline", MB, "most", 120),
    (TOTAL, "full pipeline", OF_WALK, "least", 0.36),
    (TOTAL, "full pipeline, 2 threads", SPEED_UP, "least", 1.6),
    (TOTAL, "full pipeline, 2 threads", CPU_RATIO, "most", 1.15),
    (TOTAL, "NDJSON", RATE, "least", 2.0),
    (TOTAL, "NDJSON, 2 threads", SPEED_UP, "least", 1.7),
    (TOTAL, "NDJSON with stacks", RATE, "least", 1.0),
    (TOTAL, "NDJSON with stacks, 2 threads", SPEED_UP, "least", 1.7),
    (TOTAL, "stacks, folded", RATE, "least", 8),
    (TOTAL, "stacks, folded", MB, "most", 150),
    (TOTAL, "profile, Firefox", RATE, "least", 5),
    (TOTAL, "profile, Firefox", MB, "most", 150),
    (TOTAL, "evaluation", STACK_RATE, "least", 2.5),
    (TOTAL, "hunt", RATE, "least", 7),
    (TOTAL, "info --full", SECONDS, "most", 0.7),
    (PROFILE, "full pipeline", RATE, "least", 7),
    (PROFILE, "full pipeline", MB, "most", 150),
    (PROFILE, "stacks, folded", MB, "most", 300),
    (PROFILE, "profile, Firefox", MB, "most", 300),
    (LONG_PROFILE, "full pipeline", MB, "most", 300),
    (ATTACK, "evaluation", STACK_RATE, "least", 3),
    (START, "--version", MS, "most", 4),
    (START, "info", MS, "most", 4),
    (DEMO_TREES, "first question", SECONDS, "most", 1.2),
    (DEMO_TREES, "first question", MB, "most", 150),
    (DEMO_TREES, "second question", MS, "most", 50),
    (TOTAL_TREES, "first question", SECONDS, "most", 5),
    (TOTAL_TREES, "first question", MB, "most", 300),
    (TOTAL_TREES, "second question", MS, "most", 100),
    (DEMO_TREES, "Python: open", MS, "most", 50),
    (DEMO_TREES, "Python: frame of a random context", MICROSECONDS, "most", 1.5),
    (TOTAL_TREES, "Python: open", MS, "most", 50),
    (TOTAL_TREES, "Python: frame of a random context", MICROSECONDS, "most", 1.5),
]


@dataclasses.dataclass
class Cost:
    """What one run, or the median of several, needed."""

    seconds: float
    processor_seconds: float
    anonymous_kib: int
    details: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Figure:
    trace: str
    work: str
    unit: str
    value: float
    cost: Cost | None = None

    def goal(self):
        """The bound and value of the goal, or None."""
        goals = [goal[3:] for goal in GOALS if goal[:3] == (self.trace, self.work, self.unit)]
        return goals[0] if goals else None

    def share(self):
        """The share of the goal that is reached: above 1 if the figure is better."""
        bound, value = self.goal()
        return self.value / value if bound == "least" else value / max(self.value, 1e-9)


@dataclasses.dataclass
class Programs:
    """The built programs, and how they are measured."""

    folder: pathlib.Path
    busy: bool

    def stackhound(self):
        return self.folder / "stackhound"

    def example(self, name):
        return self.folder / "examples" / name

    def seconds(self, cost):
        """The time of one thread. The elapsed time of a stage does not include the start of its process."""
        return min(cost.seconds, cost.processor_seconds) if self.busy else cost.seconds


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, cwd=ROOT, **options)


def processor_seconds():
    """Processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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


# Measurements. Each returns a `Cost`.


def stage(programs, name, file, threads=1, rules=""):
    """Runs a stage of the example `stages`, which measures its own seconds and memory."""
    environment = dict(os.environ, STACKHOUND_RULES=str(rules))
    before = processor_seconds()
    command = [programs.example("stages"), name, file, threads]
    result = json.loads(run(*command, capture_output=True, text=True, env=environment).stdout)
    return Cost(result["seconds"], processor_seconds() - before, result["anonymous_kib"], result)


def program(programs, *arguments, **options):
    """Runs the program as a process, with its output to /dev/null."""
    before = processor_seconds()
    started = time.monotonic()
    command = [str(part) for part in (programs.stackhound(), *arguments)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    peak = peak_anonymous(child)
    seconds = time.monotonic() - started
    if child.wait() != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return Cost(seconds, processor_seconds() - before, peak)


def start(programs, *arguments, **options):
    """The time until a process has ended. Does not poll, which takes longer than the process."""
    before = processor_seconds()
    started = time.monotonic()
    run(programs.stackhound(), *arguments, stdout=subprocess.DEVNULL, **options)
    return Cost(time.monotonic() - started, processor_seconds() - before, 0)


def dissect(file):
    """Reads the headers of all events with an independent reader. None if it is not installed."""
    code = "import sys\nfrom dissect.etl import ETL\nprint(sum(1 for _ in ETL(open(sys.argv[1], 'rb'))))\n"
    before = processor_seconds()
    started = time.monotonic()
    try:
        out = run(sys.executable, "-c", code, file, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError:
        return None
    return Cost(time.monotonic() - started, processor_seconds() - before, 0, {"events": int(out)})


def works(programs, file, kind):
    """What is measured on a kind of trace: names and functions."""
    verbs = {
        "NDJSON": ("events", "--format", "ndjson"),
        "NDJSON with stacks": ("events", "--format", "ndjson", "--stacks"),
        "stacks, folded": ("stacks", "--format", "folded"),
        "profile, Firefox": ("profile", "--format", "firefox"),
        "hunt": ("hunt", "--exit-zero"),
        "info --full": ("info", "--full"),
    }

    def verb(name, threads=1):
        return lambda: program(programs, *verbs[name], "-q", "--threads", threads, file)

    def of_stage(name, threads=1):
        return lambda: stage(programs, name, file, threads)

    chosen = {"record walk": of_stage("walk"), "ordered merge": of_stage("merge"), "full pipeline": of_stage("full")}
    if kind in (TOTAL, PROFILE, "given"):
        chosen["scan"] = of_stage("decompress")
        chosen["full pipeline, 2 threads"] = of_stage("full", 2)
        chosen["frames"], chosen["names"] = of_stage("frames"), of_stage("names")
        for name in verbs:
            chosen[name] = verb(name)
    if kind in (TOTAL, "given"):
        for name in ("NDJSON", "NDJSON with stacks"):
            chosen[f"{name}, 2 threads"] = verb(name, 2)
    if kind in (TOTAL, ATTACK, "given"):
        chosen["evaluation"] = of_stage("hunt")
    if kind == "growth":
        for name in ("stacks, folded", "profile, Firefox"):
            chosen[name] = verb(name)
    return chosen


def medians(chosen, runs):
    """Runs all work alternately, so that other load affects all of it. Returns the medians by name."""
    costs = collections.defaultdict(list)
    for number in range(runs):
        for name, measure in chosen.items():
            is_slow = number and costs[name][0].seconds > 10
            if not is_slow or number < max(1, min(runs, 3)):
                costs[name].append(measure())
    return {name: median(runs) for name, runs in costs.items()}


def median(costs):
    """The medians of elapsed time and of processor time, and the maximum of memory."""
    middle = lambda value: statistics.median(value(cost) for cost in costs)
    return Cost(
        middle(lambda cost: cost.seconds),
        middle(lambda cost: cost.processor_seconds),
        max(cost.anonymous_kib for cost in costs),
        costs[-1].details,
    )


# Figures.


def figures_of(programs, trace, costs):
    """The figures of a trace, from the costs of its works: for each work its rate first."""
    records = costs["ordered merge"].details["events"]
    figures = []

    def add(work, unit, value):
        first = all(figure.work != work for figure in figures)
        figures.append(Figure(trace, work, unit, value, costs[work] if first else None))

    def rate(work):
        return records / programs.seconds(costs[work]) / 1e6

    def in_addition(work):
        """Processor time in addition to the full pipeline. On small traces it is not always measurable."""
        return max(costs[work].processor_seconds - costs["full pipeline"].processor_seconds, 1e-3)

    walked = costs["record walk"].details["events"] == records
    for work, cost in costs.items():
        one_thread = work.removesuffix(", 2 threads")
        if one_thread != work:
            add(work, SPEED_UP, costs[one_thread].seconds / cost.seconds)
            add(work, CPU_RATIO, cost.processor_seconds / costs[one_thread].processor_seconds)
        elif work in ("frames", "names"):
            add(work, NAMED_RATE, cost.details["frames"] / in_addition(work) / 1e6)
        elif work == "evaluation":
            stacks = cost.details["with_stack"]
            add(work, STACK_RATE, stacks / in_addition(work) / 1e6)
            add(work, CACHED, cost.details["remembered"] / max(cost.details["evaluated"], 1))
        elif work == "info --full":
            add(work, SECONDS, programs.seconds(cost))
        elif work != "record walk" or walked:
            add(work, RATE, rate(work))
        memory_goal = any(goal[:3] == (trace, work, MB) for goal in GOALS)
        if memory_goal:
            add(work, MB, cost.anonymous_kib / 1024)
        if work == "full pipeline" and walked:
            add(work, OF_WALK, rate(work) / rate("record walk"))
    return figures


def measure_start(programs, file, runs):
    """The time of short commands."""
    chosen = {"--version": lambda: start(programs, "--version"), "info": lambda: start(programs, "info", "-q", file)}
    costs = medians(chosen, runs * 4)
    return [Figure(START, work, MS, cost.seconds * 1e3, cost) for work, cost in costs.items()]


# Opens a trace, and calls `ctx.stack.frame()` at random contexts. Prints both times.
PYTHON_QUESTIONS = """
import random, sys, time
import stackhound
started = time.perf_counter()
trace = stackhound.open(sys.argv[1], symbol_path=sys.argv[2]).trace
opened = time.perf_counter() - started
chosen = random.Random(1)
contexts = []
while len(contexts) < 20_000:
    context = trace.context_before(chosen.randrange(trace.transition_count))
    if context.stack is not None:
        contexts.append(context)
started = time.perf_counter()
for context in contexts:
    context.stack.frame()
print(opened, (time.perf_counter() - started) / len(contexts))
"""


def measure_questions(programs, name, file, runs):
    """The first question about the call trees of a trace, later ones, and those from Python."""
    symbols = file.parent / "symbols"
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, XDG_CACHE_HOME=cache)
        question = ("calls", file, "NtCreateFile", "--limit", 10, "-q", "--symbol-path", symbols)

        def first():
            shutil.rmtree(pathlib.Path(cache) / "stackhound", ignore_errors=True)
            return program(programs, *question, env=environment)

        costs = medians({"first question": first}, min(runs, 3))
        costs |= medians({"second question": lambda: start(programs, *question, env=environment)}, runs * 4)
        cost = costs["first question"]
        figures = [Figure(name, "first question", SECONDS, programs.seconds(cost), cost)]
        figures.append(Figure(name, "first question", MB, cost.anonymous_kib / 1024))
        cost = costs["second question"]
        figures.append(Figure(name, "second question", MS, cost.seconds * 1e3, cost))
        command = [sys.executable, "-c", PYTHON_QUESTIONS, str(file), str(symbols)]
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
        if "No module named 'stackhound'" in asked.stderr:
            print("\nthe Python package is not installed for this Python")
            return figures
        results = [run(*command, env=environment, capture_output=True, text=True).stdout.split() for _ in range(runs)]
        opened, each = (statistics.median(float(result[column]) for result in results) for column in (0, 1))
        figures.append(Figure(name, "Python: open", MS, opened * 1e3))
        figures.append(Figure(name, "Python: frame of a random context", MICROSECONDS, each * 1e6))
        return figures


# Output.


def print_figures(title, figures):
    print(f"\n{title}\n{'work':<30}{'figure':>8} {'unit':<25}{'goal':>8}{'share':>7}        {'seconds':>9}{'CPU s':>8}{'anon. MB':>10}")
    last = None
    for figure in figures:
        goal, marks = "", ""
        if figure.goal():
            bound, value = figure.goal()
            goal = f"{'>=' if bound == 'least' else '<='} {value:g}"
            marks = f"{figure.share():>7.2f} {'' if figure.share() >= 1 else 'missed':<7}"
        costs = ""
        if figure.cost:
            memory = f"{figure.cost.anonymous_kib / 1024:,.1f}" if figure.cost.anonymous_kib else "-"
            costs = f"{figure.cost.seconds:>9.3f}{figure.cost.processor_seconds:>8.2f}{memory:>10}"
        name = figure.work if figure.work != last else ""
        last = figure.work
        print(f"{name:<30}{figure.value:>8.2f} {figure.unit:<25}{goal:>8}{marks:<15}{costs}".rstrip())


def print_growth(title, rows):
    """Prints rates and memory of traces of several lengths: a row is a name and its costs."""
    names = list(rows[0][1])
    print(f"\n{title}: M records/s, MB of anonymous memory\n{'':<20}{'records':>12}" + "".join(f"{name:>22}" for name in names))
    for name, costs, rates in rows:
        records = costs["ordered merge"].details["events"]
        cells = (f"{rates[work]:>12.2f}{cost.anonymous_kib / 1024:>8.1f} MB" if rates[work] else f"{'-':>23}" for work, cost in costs.items())
        print(f"{name:<20}{records:>12,}" + "".join(f"{cell[1:]:>22}" for cell in cells))


def describe(name, file, costs):
    lines = [f"{name}: {costs['ordered merge'].details['events']:,} records, {os.path.getsize(file) / 1e6:,.1f} MB"]
    names = costs["names"].details if "names" in costs else None
    if names:
        lines.append(
            f"{names['frames']:,} frames, {names['distinct']:,} distinct addresses resolved, {names['named']:,} named; "
            f"{names['modules']} modules, {names['loads']} tables loaded, {names['table_memory'] / 1e6:.1f} MB of tables"
        )
    if "evaluation" in costs:
        found = costs["evaluation"].details
        lines.append(f"{found['evaluated']:,} events evaluated, {found['with_stack']:,} with stacks, {found['findings']:,} findings")
    return "\n".join(lines)


def as_json(figure):
    goal = figure.goal()
    row = {"trace": figure.trace, "work": figure.work, "value": round(figure.value, 4), "unit": figure.unit}
    if goal:
        row |= {"bound": goal[0], "goal": goal[1], "share": round(figure.share(), 3), "missed": figure.share() < 1}
    if figure.cost:
        row |= {key: value for key, value in dataclasses.asdict(figure.cost).items() if key != "details"}
    return row


# Traces.


def demo_trace(programs, events, mix="default"):
    folder = WORK / f"demo-{mix}-{events}"
    file = folder / "stackhound-demo.etl"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["demo", "--quiet", "--mix", mix, "--events", events, "--out", folder]
        run(programs.stackhound(), *command, stdout=subprocess.DEVNULL)
    return file


def repeated_trace(programs, file, copies):
    out = WORK / f"{file.stem}-{copies}.etl"
    if not out.exists():
        unfinished = out.with_suffix(".new")
        run(programs.example("repeat_trace"), file, copies, unfinished)
        unfinished.rename(out)
    return out


def corpus_trace():
    """perfview-net452-x64 of the corpus, or None."""
    corpus = pathlib.Path(os.environ.get("STACKHOUND_CORPUS", ROOT.parent / "shared" / "corpus"))
    packed = corpus / "etl" / "perfview-net452-x64.etl.zst"
    if not packed.exists():
        return None
    plain = WORK / "perfview-net452-x64.etl"
    if not plain.exists():
        run("zstd", "-dqf", packed, "-o", plain)
    return plain


# What is measured without an argument.


class Report:
    """Measures traces, and prints and keeps their figures."""

    def __init__(self, programs, runs):
        self.programs = programs
        self.runs = runs
        self.figures = []
        self.growth = []

    def add(self, title, figures):
        self.figures += figures
        print_figures(title, figures)
        sys.stdout.flush()

    def measure(self, name, file, kind):
        costs = medians(works(self.programs, file, kind), self.runs)
        self.add(describe(name, file, costs), figures_of(self.programs, kind, costs))

    def measure_growth(self, title, files):
        """Compares traces of several lengths. Those whose figures have goals also get a table."""
        rows = []
        for name, file in files:
            costs = medians(works(self.programs, file, "growth"), min(self.runs, 3))
            figures = figures_of(self.programs, name, costs)
            rates = {figure.work: figure.value for figure in figures if figure.unit == RATE}
            rows.append((name, costs, {work: rates.get(work) for work in costs}))
            self.growth += figures
        print_growth(title, rows)
        for name, file in files:
            with_goals = [figure for figure in self.growth if figure.trace == name and figure.goal()]
            if with_goals:
                self.add(name, with_goals)

    def measure_dissect(self, name, file):
        cost = dissect(file)
        if cost is None:
            print("\ndissect.etl is not installed for this Python")
        else:
            rate = cost.details["events"] / self.programs.seconds(cost) / 1e6
            self.add("an independent reader", [Figure(name, "dissect.etl, headers", RATE, rate, cost)])

    def check(self, traces):
        """Fails if a goal has no figure, or a figure no value."""
        measured = {(figure.trace, figure.work, figure.unit) for figure in self.figures if figure.value > 0}
        python = any(figure.work.startswith("Python") for figure in self.figures)
        wanted = (goal[:3] for goal in GOALS if goal[0] in traces and (python or not goal[1].startswith("Python")))
        missing = [goal for goal in wanted if goal not in measured]
        if missing:
            raise SystemExit(f"no figure for {missing}")

    def print_missed(self):
        with_goals = [figure for figure in self.figures if figure.goal()]
        missed = [figure for figure in with_goals if figure.share() < 1]
        print(f"\n{len(with_goals)} goals, {len(missed)} missed")

    def write(self, file):
        figures = [as_json(figure) for figure in self.figures]
        growth = [as_json(figure) for figure in self.growth]
        content = {"busy": self.programs.busy, "runs": self.runs, "figures": figures, "growth": growth}
        pathlib.Path(file).write_text(json.dumps(content, indent=1) + "\n")


def measure_trees(report, options):
    """Measures questions about call trees. Returns the traces that were measured."""
    programs, measured = report.programs, set()
    copies = COPIES if not options.short else 2
    demo = demo_trace(programs, 1_000_000 if not options.short else 8000)
    original = corpus_trace() if not options.short else demo_trace(programs, 8000, "profile")
    traces = [(DEMO_TREES, demo)]
    if original:
        traces.append((TOTAL_TREES, repeated_trace(programs, original, copies)))
    for name, file in traces:
        report.add(name, measure_questions(programs, name, file, report.runs))
        measured.add(name)
    return measured


def measure_all(report, options):
    """Measures all traces. With --short, they are small, and the demo replaces the corpus."""
    programs = report.programs
    million = 1_000_000 if not options.short else 1_000
    copies = (1, 4, 16, COPIES) if not options.short else (1, 2)
    profiles = [demo_trace(programs, max(8000, count * million), "profile") for count in (1, 10)]
    original = corpus_trace() if not options.short else profiles[0]
    # Traces that are measured: goals of others are not missing.
    measured = {PROFILE, ATTACK, START}
    if original:
        measured.add(TOTAL)
        repeated = [(f"{count} x", repeated_trace(programs, original, count)) for count in copies]
        report.measure(f"{original.stem}, {copies[-1]} times in a row", repeated[-1][1], TOTAL)
        report.measure_growth(f"growth: {original.stem} several times in a row", repeated)
        report.measure_dissect(original.stem, original)
    else:
        print("perfview-net452-x64 is not measured, because there is no corpus")
    report.measure("demo --mix profile", profiles[1], PROFILE)
    growth = [("profile mix, 10^6", profiles[0]), ("profile mix, 10^7", profiles[1])]
    if options.long or options.short:
        measured.add(LONG_PROFILE)
        growth.append((LONG_PROFILE, demo_trace(programs, 50 * million, "profile")))
    report.measure_growth("growth: demo --mix profile", growth)
    report.measure("demo", demo_trace(programs, 10 * million), ATTACK)
    report.add("start of the program", measure_start(programs, demo_trace(programs, 8000), report.runs))
    measured |= measure_trees(report, options)
    report.check(measured)
    if options.short:
        print("\nevery figure is measured; small traces say nothing about the goals")
    else:
        report.print_missed()


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


def measure_rules(programs, folder, events, runs):
    file = demo_trace(programs, events)
    # Pairs of runs, so that other load affects both. Processor time depends least on other load.
    pairs = [(stage(programs, "full", file), stage(programs, "rules", file, rules=folder)) for _ in range(runs)]
    full, rules = sorted(pairs, key=lambda pair: pair[1].processor_seconds - pair[0].processor_seconds)[runs // 2]
    spent = max(rules.processor_seconds - full.processor_seconds, 0.01)
    result = rules.details
    answers = ", ".join(f"{result[answer]:,} {answer}" for answer in ("yes", "possible", "undetermined"))
    print(f"{result['rules']} rules, loaded in {result['loading_ms']:.1f} ms")
    print(f"{result['events']:,} events, {result['about']:,} that rules are about: {answers}")
    print(f"full pipeline: {full.processor_seconds:.2f} s of processor time, with rules {rules.processor_seconds:.2f} s")
    share = spent / full.processor_seconds
    print(f"rules alone: {result['events'] / spent / 1e6:.1f} M events/s, {share:.2f} of the pipeline's time")
    print(f"pipeline with rules: {result['events'] / rules.processor_seconds / 1e6:.2f} M events/s")


def build():
    run("cargo", "build", "--profile", "dist", "--quiet", "--bin", "stackhound")
    run("cargo", "build", "--profile", "dist", "--quiet", "-p", "stackhound", "--example", "stages")
    run("cargo", "build", "--profile", "dist", "--quiet", "-p", "stackhound-etl", "--example", "repeat_trace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--built", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--questions", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--rules", metavar="DIR", type=pathlib.Path)
    parser.add_argument("traces", nargs="*", metavar="TRACE", type=pathlib.Path)
    options = parser.parse_args()
    if options.live:
        return measure_live()
    if not options.built:
        build()
    programs = Programs((options.built or DIST).resolve(), options.busy)
    if options.rules:
        return measure_rules(programs, options.rules.resolve(), options.events, options.runs)
    WORK.mkdir(parents=True, exist_ok=True)
    report = Report(programs, 1 if options.short else options.runs)
    if options.traces:
        for file in options.traces:
            report.measure(file.name, file.resolve(), "given")
    elif options.questions:
        report.check(measure_trees(report, options))
    else:
        measure_all(report, options)
    if options.json:
        report.write(options.json)


if __name__ == "__main__":
    main()
