#!/usr/bin/env python3
"""Checks `top cpu` with an independent computation from the records that dissect.etl reads.

usage: check-top.py PROGRAM [TRACE...]
       check-top.py --show TRACE...
       check-top.py --write SEED TRACE

Computes the CPU time of processes, threads and modules from profile samples and context switches, and
compares it with `PROGRAM top cpu TRACE --all --format json`, by process, thread, module and function,
with and without --nominal. Traces are .etl or .etl.zst files. Also checks random traces that it writes,
with context switches, interrupts, changes of the interval and reused ids, or with lost buffers. --show
prints the computed tables only, and --write writes one of the random traces only.

Times are compared exactly: they are sums of raw ticks, converted to nanoseconds at the end. Functions
have no names here, except compiled methods that the runtime reports. For the others, the script checks
that the rows of the functions of a module add up to the row of the module.

Needs dissect.etl, and zstandard for .zst files, which it does not install:
pip install dissect.etl==3.14 zstandard
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import bisect
import collections
import datetime
import json
import math
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import uuid

try:
    from dissect.etl import etl as dissect_etl
except ImportError:
    print("dissect.etl is missing; pip install dissect.etl==3.14", file=sys.stderr)
    sys.exit(2)

NOT_CHECKED = """\
Not checked:
  names of functions of modules, because there are no symbols; only their sums
  names of threads, and whether a row in brackets, such as [truncated], is justified
  traces that dissect.etl cannot read: unfinished and circular files, WPP messages with a component id
  batched context switches (0x0525) and cached samples (0x0F37)
  stacks in extended items of events (profile samples have none)
  context switches around lost buffers"""

PROFILE, PROFILE_NMI = 0x0F2E, 0x0F47
SET_INTERVAL, INTERVAL_START, INTERVAL_END = 0x0F48, 0x0F49, 0x0F4A
CONTEXT_SWITCH, HARD_FAULT = 0x0524, 0x0220
PROCESS_START, PROCESS_END, PROCESS_DC_START, PROCESS_DC_END = range(0x0301, 0x0305)
THREAD_START, THREAD_END, THREAD_DC_START, THREAD_DC_END = range(0x0501, 0x0505)
IMAGE_LOAD, IMAGE_LOAD_1, IMAGE_UNLOAD, IMAGE_DC_START, IMAGE_DC_END = 0x030A, 0x140A, 0x1402, 0x1403, 0x1404
STACK, STACK_KERNEL, STACK_USER = 0x1820, 0x1825, 0x1826
STACK_KEYS = (0x1822, 0x1823, 0x1824)
# Events that share time stamps with the cause of a stack, but do not cause stacks.
NO_STACK = {0x010A, 0x010B, 0x010E, PROCESS_DC_START, PROCESS_DC_END, THREAD_DC_START, THREAD_DC_END}
NO_STACK |= {IMAGE_DC_START, IMAGE_DC_END}
# Microsoft-Windows-DotNETRuntime and its rundown.
RUNTIME = uuid.UUID("e13c0d23-ccbc-4e12-931b-d9cc2eee27e4").bytes_le
RUNDOWN = uuid.UUID("a669021c-c450-4609-a035-5af59af4df18").bytes_le
METHOD_BEGIN, METHOD_END = (141, 143), (142, 144)
NO_MODULE, COMPILED = "[no module]", "[compiled at run time]"
KINDS = ("process", "thread", "module", "function")
EXAMPLES = 10
SEEDS = range(1, 7)
# In these, buffers with samples and stacks are lost.
LOSSY_SEEDS = (5, 6)

Event = collections.namedtuple("Event", "time processor hook version wide payload thread process provider id")
# The process is that of the first record of its stack.
Sample = collections.namedtuple("Sample", "at processor group thread address count stack process")


class Trace:
    """The events of a trace in the order of time, and the fields of its header."""

    def __init__(self, path):
        with path.open("rb") as file:
            source = dissect_etl.ETL(file)
            header = source.logfile_header
            rows, ranks = [], {}
            for buffer in source.buffers():
                index_has_16_bits = int(buffer.header.BufferFlag) & 0x20
                processor = int(buffer.header.ProcessorIndex) & (0xFFFF if index_has_16_bits else 0xFF)
                rank = ranks.setdefault(processor, len(ranks))
                time = 0
                for record in buffer:
                    event = event_of(record.header, processor, time)
                    time = event.time
                    rows.append((event.time, rank, len(rows), event))
        rows.sort(key=lambda row: row[:3])
        self.events = [row[3] for row in rows]
        self.wide = header.is_64bit
        self.processors = int(header.header.NumberOfProcessors)
        clock = int(header.header.ReservedFlags)
        self.frequency = {1: int(header.perf_freq), 3: int(header.cpu_speed_in_MHz) * 1_000_000}.get(clock, 10_000_000)
        # Records of stacks belong to their events.
        events = [event for event in self.events if event.hook is None or event.hook >> 8 != STACK >> 8]
        self.first, self.last = events[0].time, events[-1].time
        self.header_time = next(event.time for event in self.events if event.hook == 0)
        self.start = int(header.start_time) if clock in (1, 3) else self.header_time

    def nanoseconds(self, ticks):
        return ticks * 1_000_000_000 // self.frequency

    def unix_nanoseconds(self, time):
        """Converts a time like Windows, to a multiple of 100 ns."""
        units = (time - self.header_time) * 10_000_000 // self.frequency
        return (self.start - 116_444_736_000_000_000 + units) * 100

    def is_kernel(self, address):
        return address >= (0xFFFF_8000_0000_0000 if self.wide else 0x8000_0000)


def event_of(header, processor, previous):
    """Returns the event of a record. An event without a time has that of the one before it."""
    time = header.time_delta
    hook = getattr(header, "hook_id", None)
    data = bytes(header.data[: int(header.size)])
    start = int(header.minimal_size)
    number = None
    provider = None
    if type(header).__name__ == "EventHeader":
        provider = data[0x18:0x28]
        number = int.from_bytes(data[0x28:0x2A], "little")
        more = data[4] & 1
        while more:
            size, _, more = struct.unpack_from("<3H", data, start)
            start += size
            more &= 1
    elif type(header).__name__ != "MessageTraceHeader" and hook is None:
        provider = data[0x18:0x28]
    thread = getattr(header, "thread_id", None)
    process = getattr(header, "process_id", None)
    return Event(
        previous if time is None else int(time),
        processor,
        None if hook is None else int(hook),
        int(header.version or 0) & 0xFF,
        bool(header.is_64bit),
        data[start:],
        None if thread is None else int(thread),
        None if process is None else int(process),
        provider,
        number,
    )


class Lifetimes:
    """Intervals of positions in a trace by key, each with a value. Keys may be used several times."""

    def __init__(self):
        self.intervals = collections.defaultdict(list)

    def begin(self, key, at, value):
        self._close(key, at)
        self.intervals[key].append([at, math.inf, value])

    def exists(self, key, at, value):
        """The key has this value at a position, and had it since its previous interval."""
        intervals = self.intervals[key]
        if intervals and intervals[-1][1] == math.inf:
            if intervals[-1][2] == value:
                return
            self.begin(key, at, value)
        else:
            intervals.append([intervals[-1][1] if intervals else -1, math.inf, value])

    def end(self, key, at, value):
        self.exists(key, at, value)
        self._close(key, at)

    def _close(self, key, at):
        intervals = self.intervals[key]
        if intervals and intervals[-1][1] == math.inf:
            intervals[-1][1] = at

    def get(self, key, at):
        """Returns the interval at a position. A thread still runs while its end is logged, so the previous
        interval is returned in a gap. Returns None before the first interval."""
        intervals = self.intervals.get(key, [])
        index = bisect.bisect_right(intervals, at, key=lambda interval: interval[0]) - 1
        return tuple(intervals[index]) if index >= 0 else None


class State:
    """Processes, threads, images and compiled methods of a trace."""

    def __init__(self, trace):
        self.trace = trace
        self.processes = Lifetimes()
        self.threads = Lifetimes()
        self.images = collections.defaultdict(list)
        self.methods = collections.defaultdict(list)
        self.found = {}
        for at, event in enumerate(trace.events):
            if event.hook is None:
                if event.provider in (RUNTIME, RUNDOWN):
                    self.method(at, event)
            elif PROCESS_START <= event.hook <= PROCESS_DC_END:
                self.process(at, event)
            elif THREAD_START <= event.hook <= THREAD_DC_END:
                # Version 0 has the thread first.
                process, thread = struct.unpack_from("<2I", event.payload)
                if event.version == 0:
                    process, thread = thread, process
                change(self.threads, event.hook - THREAD_START, thread, at, process)
            elif event.hook in (IMAGE_LOAD, IMAGE_LOAD_1, IMAGE_UNLOAD, IMAGE_DC_START, IMAGE_DC_END):
                self.image(at, event)

    def process(self, at, event):
        pointer = 8 if event.wide else 4
        data, version = event.payload, event.version
        if version == 0:
            process, sid = struct.unpack_from("<I", data)[0], 2 * pointer
        elif version == 1:
            process, sid = struct.unpack_from("<I", data, pointer)[0], pointer + 16
        else:
            process = struct.unpack_from("<I", data, pointer)[0]
            sid = pointer + 16 + (pointer if version >= 3 else 0) + (4 if version >= 4 else 0)
        if data[sid : sid + 4] == bytes(4):
            name = sid + 4
        else:
            name = sid + 2 * pointer + 8 + 4 * data[sid + 2 * pointer + 1]
        text = data[name:].split(b"\0")[0].decode("utf-8", "replace")
        if event.hook in (PROCESS_START, PROCESS_END):
            for image in self.images[process]:
                image[1] = min(image[1], at)
        change(self.processes, event.hook - PROCESS_START, process, at, text)

    def image(self, at, event):
        form = "<QQI" if event.wide else "<III"
        data = event.payload
        if event.version == 0:
            base, size = struct.unpack_from("<QI" if event.wide else "<II", data)
            process, name = event.process, struct.calcsize("<QI" if event.wide else "<II")
        else:
            base, size, process = struct.unpack_from(form, data)
            name = struct.calcsize(form) if event.version == 1 else (0x38 if event.wide else 0x2C)
        path = data[name:].decode("utf-16-le", "replace").split("\0")[0]
        # Modules of the kernel belong to all processes, whatever the process of their events.
        key = None if self.trace.is_kernel(base) else process
        images = self.images[key]
        current = next((image for image in images if image[2] == base and image[0] <= at < image[1]), None)
        value = [base, base + size, path.rsplit("\\", 1)[-1]]
        if event.hook in (IMAGE_LOAD, IMAGE_LOAD_1):
            if current:
                current[1] = at
            images.append([at, math.inf, *value])
        elif current is None:
            lifetime = self.processes.get(process, at) if key is not None else None
            previous = max((image[1] for image in images if image[2] == base), default=-1)
            start = max(previous, lifetime[0] if lifetime else -1)
            images.append([start, at if event.hook == IMAGE_UNLOAD else math.inf, *value])
        elif event.hook == IMAGE_UNLOAD:
            current[1] = at

    def method(self, at, event):
        if event.id not in METHOD_BEGIN + METHOD_END or len(event.payload) < 36:
            return
        start, size = struct.unpack_from("<QI", event.payload, 16)
        names = event.payload[36:].decode("utf-16-le", "replace").split("\0") if event.id >= 143 else ["", ""]
        name = f"{names[0]}.{names[1]}" if names[0] else names[1]
        known = self.methods[event.process]
        current = next((m for m in known if m[2] == start and m[3] == start + size and m[1] == math.inf), None)
        if current:
            if name:
                current[4] = name
            if event.provider == RUNTIME and event.id in METHOD_END:
                current[1] = at
        else:
            begins = event.provider == RUNTIME and event.id in METHOD_BEGIN
            ends = event.provider == RUNTIME and event.id in METHOD_END
            known.append([at if begins else -1, at if ends else math.inf, start, start + size, name])

    def at(self, kind, process, address, at):
        """Returns the newest image or method of a process that contains an address at a position."""
        table = self.images if kind == "image" else self.methods
        key = (kind, process, address)
        if key not in self.found:
            entries = table.get(process, ())
            self.found[key] = [entry for entry in entries if entry[2] <= address < entry[3]]
        return max((entry for entry in self.found[key] if entry[0] <= at < entry[1]), default=None)

    def module(self, process, address, at):
        """Returns the names of the module and, if it is known, of the compiled method."""
        image = self.at("image", None if self.trace.is_kernel(address) else process, address, at)
        if image:
            return image[4], None
        method = self.at("method", process, address, at)
        return (COMPILED, method[4]) if method else (NO_MODULE, None)

    def owner(self, thread, at, stated=()):
        """Returns the lifetimes of a thread and of its process, which the record of a stack states."""
        lifetime = self.threads.get(thread, at)
        if stated and lifetime and lifetime[2] != stated[0]:
            others = [each for each in self.threads.intervals[thread] if each[2] == stated[0]]
            distance = lambda each: max(each[0] - at, at - each[1], 0)
            lifetime = tuple(min(others, key=distance)) if others else lifetime
        return lifetime, self.processes.get(lifetime[2], at) if lifetime else None


def change(lifetimes, opcode, key, at, value):
    (lifetimes.begin, lifetimes.end, lifetimes.exists, lifetimes.exists)[opcode](key, at, value)


def samples_of(trace):
    samples = []
    for at, event in enumerate(trace.events):
        if event.hook in (PROFILE, PROFILE_NMI):
            address, thread, count = struct.unpack_from("<QIH" if event.wide else "<IIH", event.payload)
            flags = event.payload[14 if event.wide else 10] if event.version >= 2 else 0
            group = "ISR" if flags & 2 else "DPC" if flags & 1 else "idle" if thread == 0 else "thread"
            samples.append(Sample(at, event.processor, group, thread, address, max(count, 1), [], []))
    add_stacks(trace, samples)
    return samples


class Trigger:
    def __init__(self, event, thread, sample):
        self.event, self.thread, self.sample = event, thread, sample
        self.kernel = self.user = None


def add_stacks(trace, samples):
    """Adds to each sample the frames of the stack records with its time and thread."""
    by_position = {sample.at: sample for sample in samples}
    triggers = collections.defaultdict(list)
    pending = collections.defaultdict(list)
    # The frames of a stack by key follow in a later record.
    open_keys = collections.defaultdict(list)
    for at, event in enumerate(trace.events):
        if event.hook in STACK_KEYS:
            pointer = 8 if event.wide else 4
            key, *frames = addresses(event.payload, 0, pointer)
            if frames:
                for part in open_keys.pop((trace.is_kernel(frames[-1]), key), ()):
                    part.extend(frames)
        elif event.hook in (STACK, STACK_KERNEL, STACK_USER):
            pointer = 8 if event.wide else 4
            time, process, thread = struct.unpack_from("<QII", event.payload)
            part = addresses(event.payload, 16, pointer)
            is_kernel = event.hook == STACK_KERNEL
            if event.hook == STACK:
                is_kernel = bool(part) and trace.is_kernel(part[-1])
            else:
                key, part = part[0], []
                open_keys[(is_kernel, key)].append(part)
            trigger = pick(triggers[time], thread, event.processor, is_kernel)
            if trigger and trigger.sample:
                trigger.sample.process.append(process)
            if is_kernel:
                if trigger and trigger.kernel is None:
                    trigger.kernel = part
                    if process not in (0, 4):
                        pending[thread].append(trigger)
                elif trigger:
                    # A callback to user mode splits the kernel part. Its later parts end the stack.
                    trigger.kernel = Chain(trigger.kernel, part)
            else:
                # The thread leaves the kernel: this part completes all of its stacks that wait for it.
                for waiting in pending.pop(thread, []):
                    waiting.user = part
                if trigger and trigger.user is None:
                    trigger.user = part
        elif event.hook is None or (event.hook >> 8 and event.hook not in NO_STACK):
            if event.hook == THREAD_START:
                # The id was used before, by a thread that never left the kernel.
                pending.pop(struct.unpack_from("<2I", event.payload)[event.version > 0], None)
            sample = by_position.get(at)
            thread = sample.thread if sample else event.thread
            if event.hook == HARD_FAULT:
                thread = struct.unpack_from("<I", event.payload, 0x20 if event.wide else 0x18)[0]
            elif event.hook == CONTEXT_SWITCH:
                thread = struct.unpack_from("<I", event.payload)[0]
            # Records that were added when traces were merged have no thread.
            if event.hook is not None or event.id is not None:
                triggers[event.time].append(Trigger(event, thread, sample))
    for group in triggers.values():
        for trigger in group:
            if trigger.sample:
                trigger.sample.stack.extend(list(trigger.kernel or ()) + list(trigger.user or ()))


class Chain(list):
    """Two parts of a stack, whose frames may follow later."""

    def __init__(self, first, second):
        super().__init__()
        self.parts = (first, second)

    def __iter__(self):
        for part in self.parts:
            yield from part


def addresses(payload, start, pointer):
    count = (len(payload) - start) // pointer
    return list(struct.unpack_from(f"<{count}{'Q' if pointer == 8 else 'I'}", payload, start))


def pick(group, thread, processor, is_kernel):
    """Returns the event that caused a stack, of those with its time stamp."""
    same = [trigger for trigger in group if trigger.thread == thread]
    local = [trigger for trigger in same if trigger.event.processor == processor]
    unknown = [trigger for trigger in group if trigger.thread is None]
    choice = (local if is_kernel else None) or same
    if not choice:
        choice = [trigger for trigger in unknown if trigger.event.processor == processor]
        if not choice and not is_kernel:
            choice = unknown
    free = [trigger for trigger in choice if (trigger.kernel if is_kernel else trigger.user) is None]
    best = (free or choice or [None])[-1]
    if best and best.thread is None:
        best.thread = thread
    return best


def intervals_of(trace):
    """Returns the positions and the lengths in ticks of the sampling intervals, and whether they are assumed."""
    known = []
    for at, event in enumerate(trace.events):
        if event.hook in (SET_INTERVAL, INTERVAL_START):
            source, new, old = struct.unpack_from("<3I", event.payload)
            if source == 0:
                known.append((at, new, old if event.hook == SET_INTERVAL else 0))
    if not known:
        return [(-1, trace.frequency // 1000)], True
    first = known[0][2] or known[0][1]
    steps = [(-1, first)] + [(at, new) for at, new, _ in known]
    return [(at, units * trace.frequency // 10_000_000) for at, units in steps], False


def weights_of(trace, samples, is_nominal):
    """Returns the weight of each sample in ticks."""
    steps, _ = intervals_of(trace)
    previous = {}
    weights = []
    for sample in samples:
        step = steps[bisect.bisect_right(steps, sample.at, key=lambda step: step[0]) - 1]
        nominal = step[1] * sample.count
        time = trace.events[sample.at].time
        before = previous.get(sample.processor)
        previous[sample.processor] = time
        weights.append(nominal if is_nominal or before is None else min(time - before, 2 * nominal))
    return weights


def measured(trace, samples, weights):
    """Returns the ticks in which the session measured: from the record of the start of sampling to that of its end, and
    at least from the time for which the first sample of a processor stands to the last sample; with context switches,
    from the first event to the last event of the kernel."""
    times = []
    if samples:
        first = {}
        for sample, weight in zip(samples, weights, strict=True):
            first.setdefault(sample.processor, trace.events[sample.at].time - weight)
        starts = [event.time for event in trace.events if event.hook == INTERVAL_START][:1]
        ends = [event.time for event in trace.events if event.hook == INTERVAL_END]
        last = max(trace.events[sample.at].time for sample in samples)
        times.append((min(starts + list(first.values())), max(ends[-1:] + [last])))
    if any(event.hook == CONTEXT_SWITCH for event in trace.events):
        kernel = [event.time for event in trace.events if event.hook is not None and event.hook >> 8 != STACK >> 8]
        times.append((trace.first, max(kernel)))
    if len(times) == 2 and times[0][0] <= times[1][1] and times[1][0] <= times[0][1]:
        times = [(min(times[0][0], times[1][0]), max(times[0][1], times[1][1]))]
    return sum(until - since for since, until in times)


class Row:
    def __init__(self):
        self.self = self.total = self.samples = self.total_samples = self.exact = self.runs = 0

    def add(self, weight, is_self=True, is_total=True):
        if is_self:
            self.self += weight
            self.samples += 1
        if is_total:
            self.total += weight
            self.total_samples += 1

    def run(self, ticks):
        self.exact += ticks
        self.runs += ticks > 0


class Exact:
    """Times of threads from context switches, in ticks."""

    def __init__(self, trace, state):
        self.busy = self.idle = self.switches = self.contradictions = 0
        # (the lifetimes of a thread and of its process, the thread, ticks)
        self.runs = []
        running = {}
        for at, event in enumerate(trace.events):
            if event.hook != CONTEXT_SWITCH:
                continue
            self.switches += 1
            new, old = struct.unpack_from("<2I", event.payload)
            believed, owner, since = running.get(event.processor, (old, state.owner(old, at), trace.first))
            if believed == old:
                self.run(owner, old, event.time - since)
            else:
                self.contradictions += 1
            running[event.processor] = (new, state.owner(new, at), event.time)
        for thread, owner, since in running.values():
            self.run(owner, thread, trace.last - since)

    def run(self, owner, thread, ticks):
        if thread == 0:
            self.idle += ticks
        else:
            self.busy += ticks
            self.runs.append((owner, thread, ticks))


class Top:
    """All figures of a trace. Times are in ticks."""

    def __init__(self, trace, state, samples, exact, is_nominal):
        self.trace = trace
        self.sums = collections.Counter()
        self.counts = collections.Counter()
        self.without_stack = 0
        self.rows = {kind: collections.defaultdict(Row) for kind in KINDS[:3]}
        self.methods = collections.defaultdict(Row)
        self.unowned = 0
        weights = weights_of(trace, samples, is_nominal)
        for sample, weight in zip(samples, weights, strict=True):
            self.sums[sample.group] += weight
            self.counts[sample.group] += 1
            if sample.group != "idle":
                self.add(state, sample, weight)
        self.busy = sum(self.sums[group] for group in ("thread", "DPC", "ISR"))
        self.idle = self.sums["idle"]
        self.available = measured(trace, samples, weights) * trace.processors
        self.not_sampled = max(self.available - self.busy - self.idle, 0)
        self.exact = exact
        self.unknown = max(self.available - exact.busy - exact.idle, 0)
        for owner, thread, ticks in exact.runs:
            for kind, key in zip(KINDS, keys_of(owner, thread), strict=False):
                self.rows[kind][key].run(ticks)

    def add(self, state, sample, weight):
        owner = state.owner(sample.thread, sample.at, sample.process)
        self.unowned += sample.group == "thread" and owner[1] is None
        self.without_stack += not sample.stack
        keys = ((sample.group,), (sample.group,)) if sample.group != "thread" else keys_of(owner, sample.thread)
        for kind, key in zip(KINDS, keys, strict=False):
            self.rows[kind][key].add(weight)
        process = owner[0][2] if owner[0] else None
        # A return address may be the first one after its function.
        frames = sample.stack
        if sample.group != "thread":
            # The interrupted thread is not the cause, so its user part does not count.
            frames = [frame for frame in frames if self.trace.is_kernel(frame)]
        frames = [frame - (depth > 0) for depth, frame in enumerate(frames or [sample.address])]
        names = [state.module(process, frame, sample.at) for frame in frames]
        for module in {name[0] for name in names}:
            self.rows["module"][module].add(weight, is_self=module == names[0][0])
        for name in {name for name in names if name[1]}:
            self.methods[name[1]].add(weight, is_self=name == names[0])


def keys_of(owner, thread):
    """Returns the keys of the rows of a thread: (name, process, start) and (thread, process, start)."""
    lifetime, process = owner
    number = lifetime[2] if lifetime else None
    return (
        (process[2] if process else None, number, process[0] if process else None),
        (thread, number, lifetime[0] if lifetime else None),
    )


class Difference(Exception):
    """The first class of differences of a trace."""


def check(program, trace_path, tops):
    for is_nominal, top in tops.items():
        modules = None
        for kind in KINDS:
            command = [program, "top", "cpu", trace_path, "--by", kind, "--all", "--format", "json"]
            name = f"{trace_path.name}: by {kind}{', nominal' * is_nominal}"
            result = subprocess.run(command + ["--nominal"] * is_nominal, capture_output=True, text=True)
            if not top.counts and not top.exact.switches:
                report(name, [] if result.returncode == 2 else ["exit code is not 2"], "neither samples nor switches")
                continue
            if result.returncode:
                raise Difference(f"{name}: exit code {result.returncode}: {result.stderr.strip()}")
            document = json.loads(result.stdout)
            check_sums(name, top, document, kind)
            if kind == "function":
                check_functions(name, top, document, modules)
            else:
                check_rows(name, top, document, kind)
            if kind == "module":
                modules = document


def report(name, faults, counts):
    if faults:
        examples = "".join(f"\n  {fault}" for fault in faults[:EXAMPLES])
        raise Difference(f"{name}: {counts}, {len(faults)} differences{examples}")
    print(f"{name}: {counts}, equal")


def check_sums(name, top, document, kind):
    trace = top.trace
    exact = top.exact
    window = document["window"]
    expected = {
        "metric": "cpu",
        "by": kind,
        "from": trace.unix_nanoseconds(trace.first),
        "to": trace.unix_nanoseconds(trace.last),
        "duration": trace.nanoseconds(trace.last - trace.first),
        "processor_count": trace.processors,
        "available": trace.nanoseconds(top.available),
        "samples": sum(top.counts[group] for group in ("thread", "DPC", "ISR")),
        "without_stack": top.without_stack,
        "busy": trace.nanoseconds(top.busy),
        "idle": trace.nanoseconds(top.idle),
        "dpc": trace.nanoseconds(top.sums["DPC"]),
        "isr": trace.nanoseconds(top.sums["ISR"]),
        "not_sampled": trace.nanoseconds(top.not_sampled),
        "exact": {
            "busy": trace.nanoseconds(exact.busy),
            "idle": trace.nanoseconds(exact.idle),
            "unknown": trace.nanoseconds(top.unknown),
            "switches": exact.switches,
            "contradictions": exact.contradictions,
        }
        if exact.switches
        else None,
    }
    found = {**document, "from": unix_time(window["from"]), "to": unix_time(window["to"])}
    found["duration"] = window["duration"]
    faults = [f"{key} is {found[key]}, expected {value}" for key, value in expected.items() if found[key] != value]
    steps, is_assumed = intervals_of(trace)
    interval = document["interval"]
    lengths = {trace.nanoseconds(ticks) for _, ticks in steps}
    if interval and (interval["duration"] not in lengths or interval["is_assumed"] != is_assumed):
        faults.append(f"interval is {interval}, expected one of {lengths}, assumed: {is_assumed}")
    if top.counts and not interval:
        faults.append("interval is missing")
    report(name, faults, f"{len(expected) + 1} sums")


def unix_time(text):
    """Returns nanoseconds since 1970 of an RFC 3339 time."""
    whole, fraction = re.fullmatch(r"(.*T\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)", text).groups()
    seconds = datetime.datetime.fromisoformat(whole + "+00:00").timestamp()
    return int(seconds) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def figures(row):
    return (row["self"], row["total"], row["samples"], row["total_samples"])


def own_figures(trace, row):
    return (trace.nanoseconds(row.self), trace.nanoseconds(row.total), row.samples, row.total_samples)


def is_remark(name):
    return name.startswith("[") and name not in (NO_MODULE, COMPILED)


def check_rows(name, top, document, kind):
    trace = top.trace
    found, expected = collections.defaultdict(list), collections.defaultdict(list)
    remarks = {}
    for row in document["rows"]:
        if is_remark(row["name"]) and row["pid"] is None and row["tid"] is None:
            remarks[row["name"]] = figures(row)
            continue
        times = (row["exact"] or 0, row["runs"] or 0) if kind != "module" else ()
        found[key_of(row, kind)].append(figures(row) + times)
    for key, row in top.rows[kind].items():
        if kind == "process" and len(key) == 3:
            key = ("no process" if key[0] is None else f"{key[0]} ({key[1]})", key[1])
        elif kind == "thread":
            key = (key[0], key[1]) if len(key) == 3 else key
        times = (trace.nanoseconds(row.exact), row.runs) if kind != "module" else ()
        expected[key].append(own_figures(trace, row) + times)
    faults = []
    for key in sorted(found.keys() | expected.keys(), key=str):
        if sorted(found[key], key=str) != sorted(expected[key], key=str):
            faults.append(f"{key}: {found[key]}, expected {expected[key]}")
    faults += check_laws(top, document)
    for remark, values in sorted(remarks.items()):
        print(f"{name}: {remark}: self {values[0]}, total {values[1]}, {values[2]} and {values[3]} samples")
    report(name, faults, f"{len(document['rows'])} rows")


def key_of(row, kind):
    if kind == "module":
        return row["name"]
    if row["name"] in ("DPC", "ISR"):
        return (row["name"],)
    return (row["name"], row["pid"]) if kind == "process" else (row["tid"], row["pid"])


def check_laws(top, document):
    """Yields the violations of rules that all tables obey."""
    rows = document["rows"]
    busy = document["busy"]
    # Each row is rounded down on its own.
    slack = 0 if 1_000_000_000 % top.trace.frequency == 0 else len(rows)
    total = sum(row["self"] for row in rows)
    if not busy - slack <= total <= busy:
        yield f"self adds up to {total}, busy is {busy}"
    if sum(row["samples"] for row in rows) != document["samples"]:
        yield f"samples add up to {sum(row['samples'] for row in rows)}, not {document['samples']}"
    for row in rows:
        if not 0 <= row["self"] <= row["total"] <= busy or row["samples"] > row["total_samples"]:
            yield f"self, total and samples of {row['name']} contradict: {figures(row)}"


def check_functions(name, top, document, modules):
    sums = collections.defaultdict(lambda: [0, 0, 0])
    methods = {}
    for row in document["rows"]:
        module, function = split_function(row["name"])
        for index, value in enumerate((row["self"], row["samples"], 1)):
            sums[module][index] += value
        if module == COMPILED and function:
            methods[without_signature(function)] = figures(row)
    faults = list(check_laws(top, document))
    for row in modules["rows"]:
        if is_remark(row["name"]):
            continue
        total, samples, count = sums[row["name"]]
        slack = 0 if 1_000_000_000 % top.trace.frequency == 0 else count
        if not row["self"] - slack <= total <= row["self"] or samples != row["samples"]:
            values = (row["self"], row["samples"])
            faults.append(f"functions of {row['name']} add up to {(total, samples)}, expected {values}")
    report(name, faults, f"{len(document['rows'])} functions of {len(modules['rows'])} modules")
    expected = {without_signature(method): own_figures(top.trace, row) for method, row in top.methods.items()}
    faults = [
        f"{method}: {methods.get(method)}, expected {expected.get(method)}"
        for method in sorted(methods.keys() | expected.keys())
        if methods.get(method) != expected.get(method)
    ]
    samples = sum(row[2] for row in expected.values())
    report(f"{name}, compiled methods", faults, f"{len(expected)} methods, {samples} samples")


def split_function(name):
    """Splits module!function or module+0x12. The module of compiled methods is jit: and the runtime."""
    match = re.match(r"(\[[^\]]*\]|[^!]*?)(?:!|\+(?=0x))(.*)", name)
    module, function = match.groups() if match else (name, "")
    return (COMPILED if module.startswith("jit:") else module), function


def without_signature(name):
    return name.split("(")[0]


def show(path, tops, samples):
    top = tops[False]
    trace = top.trace
    facts = {
        "window": trace.nanoseconds(trace.last - trace.first),
        "processor_count": trace.processors,
        "available": trace.nanoseconds(top.available),
        "samples by class": dict(top.counts),
        "without stack": top.without_stack,
        "without a process": top.unowned,
        "intervals": [(at, trace.nanoseconds(ticks)) for at, ticks in intervals_of(trace)[0]],
        "stacks that do not start with the address of the sample": sum(
            bool(sample.stack) and sample.stack[0] != sample.address for sample in samples
        ),
    }
    print(f"{path.name}: {len(trace.events)} events")
    for name, value in facts.items():
        print(f"  {name}: {value}")
    for is_nominal, each in tops.items():
        print(f"{', nominal' if is_nominal else ', delta'}:"[2:])
        for name in ("busy", "idle", "not_sampled"):
            print(f"  {name}: {trace.nanoseconds(getattr(each, name))}")
        for group, ticks in each.sums.items():
            print(f"  {group}: {trace.nanoseconds(ticks)}")
    exact = top.exact
    if exact.switches:
        times = [trace.nanoseconds(ticks) for ticks in (exact.busy, exact.idle, top.unknown)]
        print(f"exact: {exact.switches} switches, {exact.contradictions} contradictions, busy, idle, unknown: {times}")
    for title, rows in (*top.rows.items(), ("compiled method", top.methods)):
        print(f"by {title}: self, total, samples, total samples; exact, runs; {len(rows)} rows")
        for key, row in sorted(rows.items(), key=lambda item: (-item[1].total, str(item[0])))[:40]:
            print(f"  {key}: {own_figures(trace, row)}; {row.exact}, {row.runs}")


class Maker:
    """Writes a trace with context switches, interrupts, gaps, changes of the interval and reused ids."""

    FREQUENCY = 3_579_545
    PROCESSORS = 4
    START = 133_000_000_000_000_000
    KERNEL, USER = 0xFFFF_F800_0000_0000, 0x7FF6_0000_0000

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.is_lossy = seed in LOSSY_SEEDS
        self.time = 5_000_000_000
        # Processor 3 has no events. The first processor in the file is not the first one.
        self.records = {processor: [] for processor in (2, 0, 1)}
        self.running = dict.fromkeys(self.records, 0)
        self.processes, self.threads, self.loaded = set(), {}, set()
        self.interval = 10_000

    def record(self, processor, hook, version, payload, ids=None):
        """Adds a record, with the thread and the process of its header if it has them."""
        self.time += self.random.randrange(1, 900)
        kind, more = (2, struct.pack("<2I", *ids)) if ids else (17, b"")
        more += struct.pack("<q", self.time) + (bytes(8) if ids else b"")
        packet = struct.pack("<HBBHBB", version, kind, 0xC0, 8 + len(more) + len(payload), hook & 0xFF, hook >> 8)
        data = packet + more + payload
        self.records[processor].append(data + bytes(-len(data) % 8))

    def process(self, processor, hook, process):
        name = "System" if process == 4 else f"program{process}-{self.random.randrange(2)}.exe"
        fields = struct.pack("<Q4IQI", 0, process, 4, 1, 0x103, 0, 0) + bytes(4) + name.encode() + b"\0" + bytes(6)
        self.record(processor, hook, 4, fields, (4, 4))

    def thread(self, processor, hook, thread, process):
        fields = struct.pack("<2I7QI4B", process, thread, *[0] * 7, 0, 8, 5, 2, 0)
        self.record(processor, hook, 3, fields, (thread, process))

    def image(self, processor, hook, process, base, name):
        fields = struct.pack("<2Q3I4BQ4I", base, 0x10_0000, process, 0, 0, 0, 0, 0, 0, base, 0, 0, 0, 0)
        self.record(processor, hook, 3, fields + f"\\Device\\Disk\\{name}\0".encode("utf-16-le"), (4, process))

    def set_interval(self, processor, hook, source, units):
        name = "Timer\0".encode("utf-16-le")
        self.record(processor, hook, 3, struct.pack("<3I", source, units, self.interval) + name)
        self.interval = self.interval if source else units

    def frame(self, process):
        """Returns an address in a module, between modules, or at the end of one."""
        base = self.USER if process else self.KERNEL
        return base + self.random.randrange(6) * 0x20_0000 + self.random.choice((0, 0x10, 0xF_FFFF, 0x10_0000))

    def switch(self, processor, new):
        old = self.running[processor] if self.random.random() > 0.03 else 99_999
        self.running[processor] = new
        self.record(processor, CONTEXT_SWITCH, 4, struct.pack("<2I2b6BII", new, old, 8, 8, 0, 0, 6, 0, 5, 0, 0, 0))

    def sample(self, processor):
        thread = self.running[processor]
        process = self.threads.get(thread, 0)
        flags = self.random.choice((0, 0, 0, 0, 0, 0, 1, 2, 3))
        count = self.random.choice((1, 1, 1, 1, 0, 3))
        parts = self.random.choice(((), (0,), (0, process)) + ((process,),) * (flags == 0))
        stacks = [[self.frame(part) for _ in range(self.random.randrange(1, 5))] for part in parts]
        address = stacks[0][0] if stacks else self.frame(0)
        hook = self.random.choice((PROFILE,) * 9 + (PROFILE_NMI,))
        self.record(processor, hook, 2, struct.pack("<QIH2B", address, thread, count, flags, 0))
        time = self.time
        for frames in stacks if process else stacks[:1]:
            payload = struct.pack(f"<QII{len(frames)}Q", time, process, thread, *frames)
            self.record(processor, STACK, 2, payload)

    def step(self):
        processor = self.random.choice(list(self.records))
        thread = self.running[processor]
        choice = self.random.random()
        if self.is_lossy and choice < 0.99:
            # No switches and no changes of processes: what they changed would be lost with them.
            self.running[processor] = self.random.choice(sorted({0, *self.threads}))
            self.sample(processor)
        elif choice < 0.5:
            self.sample(processor)
        elif choice < 0.85:
            idle = set(self.threads) - set(self.running.values())
            self.switch(processor, self.random.choice(sorted(idle | {0})))
        elif choice < 0.88:
            number = self.random.choice(range(100, 120, 4))
            if number not in self.processes:
                self.processes.add(number)
                self.process(processor, PROCESS_START, number)
                self.image(processor, IMAGE_LOAD, number, self.USER, "main.exe")
            elif number not in self.threads.values():
                self.processes.remove(number)
                self.process(processor, PROCESS_END, number)
                self.loaded = {key for key in self.loaded if key[0] != number}
        elif choice < 0.92 and self.processes:
            number = self.random.choice(range(1000, 1048, 4))
            if number not in self.threads:
                self.threads[number] = self.random.choice(sorted(self.processes))
                self.thread(processor, THREAD_START, number, self.threads[number])
        elif choice < 0.94 and thread:
            self.thread(processor, THREAD_END, thread, self.threads[thread])
            self.sample(processor)
            del self.threads[thread]
            self.switch(processor, 0)
        elif choice < 0.98 and self.processes:
            process = self.random.choice([0, *sorted(self.processes)])
            base = (self.USER if process else self.KERNEL) + self.random.randrange(1, 6) * 0x20_0000
            is_loaded = (process, base) in self.loaded
            self.loaded ^= {(process, base)}
            name = f"module{self.random.randrange(4)}.{'dll' if process else 'sys'}"
            self.image(processor, IMAGE_UNLOAD if is_loaded else IMAGE_LOAD, process, base, name)
        elif choice < 0.99:
            units = self.random.choice((1221, 10_000, 3333))
            self.set_interval(processor, SET_INTERVAL, self.random.randrange(2), units)
        else:
            self.time += self.FREQUENCY // 20

    def write(self, path):
        first = self.time
        self.image(0, IMAGE_DC_START, 0, self.KERNEL, "kernel.exe")
        self.process(0, PROCESS_DC_START, 4)
        self.thread(0, THREAD_DC_START, 8, 4)
        self.processes.add(4)
        self.threads[8] = 4
        self.running[0] = 8
        if self.is_lossy:
            self.set_interval(0, INTERVAL_START, 0, 10_000)
            for process in range(100, 120, 4):
                self.processes.add(process)
                self.process(0, PROCESS_DC_START, process)
                self.image(0, IMAGE_DC_START, process, self.USER, "main.exe")
                for thread in (process + 1000, process + 2000):
                    self.threads[thread] = process
                    self.thread(0, THREAD_DC_START, thread, process)
        for _ in range(6000):
            self.step()
        for _ in range(9):
            self.sample(self.random.choice(list(self.records)))
        buffers = []
        size = 0x1000 if self.is_lossy else 0x1_0000
        for processor, records in self.records.items():
            data = b""
            for record in records:
                if 0x48 + len(data) + len(record) > size:
                    buffers.append((processor, data))
                    data = b""
                data += record
            buffers.append((processor, data))
        lost = 0
        if self.is_lossy:
            # The first buffers of a processor have the start of the trace.
            later = [at for at in range(3, len(buffers)) if buffers[at][0] == buffers[at - 3][0]]
            dropped = self.random.sample(later, len(later) // 10)
            lost = len(dropped)
            buffers = [buffer for number, buffer in enumerate(buffers) if number not in dropped]
        end = self.START + (self.time - first) * 10_000_000 // self.FREQUENCY
        fixed = struct.pack("<I4B2IQ", size, 10, 0, 1, 5, 19045, self.PROCESSORS, end)
        fixed += struct.pack("<8I2Q", 156_250, 0, 0x0200_0001, len(buffers) + 1, 1, 8, 0, 3000, 0, 0)
        fixed += bytes(176) + struct.pack("<3Q2I", self.START - 1, self.FREQUENCY, self.START, 1, lost)
        payload = fixed + "made\0made.etl\0".encode("utf-16-le")
        header = struct.pack("<HBBHBB2Iq2I", 2, 2, 0xC0, 0x20 + len(payload), 0, 0, 4, 4, first, 0, 0) + payload
        with path.open("wb") as file:
            for number, (processor, data) in enumerate([(0, header), *buffers]):
                used = 0x48 + len(data)
                kind = (0x20, 0) if number else (0x01, 4)
                file.write(struct.pack("<4I3q", size, used, used, 0, 0, number, 0))
                file.write(struct.pack("<2H2I2H16x", processor, 1, 3, used, *kind))
                file.write(data.ljust(size - 0x48, b"\xff"))


def opened(path, folder):
    """Returns the path of the unpacked trace."""
    if path.suffix != ".zst":
        return path
    try:
        import zstandard
    except ImportError:
        print("zstandard is missing; pip install zstandard", file=sys.stderr)
        sys.exit(2)
    unpacked = pathlib.Path(folder) / path.stem
    with path.open("rb") as source, unpacked.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    return unpacked


def main():
    if len(sys.argv) < (3 if sys.argv[1:2] in (["--show"], ["--write"]) else 2):
        print(__doc__, file=sys.stderr)
        return 2
    program, *paths = sys.argv[1:]
    if program == "--write":
        Maker(int(paths[0])).write(pathlib.Path(paths[1]))
        return 0
    differences = 0
    with tempfile.TemporaryDirectory() as folder:
        if program != "--show":
            for seed in SEEDS:
                paths.append(pathlib.Path(folder) / f"seed{seed}.etl")
                Maker(seed).write(paths[-1])
        for path in map(pathlib.Path, paths):
            trace = Trace(opened(path, folder))
            state = State(trace)
            samples = samples_of(trace)
            exact = Exact(trace, state)
            tops = {is_nominal: Top(trace, state, samples, exact, is_nominal) for is_nominal in (False, True)}
            if program == "--show":
                show(path, tops, samples)
                continue
            try:
                check(program, path, tops)
            except Difference as difference:
                print(difference)
                differences += 1
    print(NOT_CHECKED)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
