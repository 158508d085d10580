#!/usr/bin/env python3
"""Checks the process of each sample, wait, file operation, disk transfer and page fault with raw records.

usage: check-processes.py [--short] PROGRAM [TRACE...]
       check-processes.py --show TRACE...

Counts these events by process id, with a reader of its own, and compares the counts with `top cpu`, `wait`,
`file`, `disk` and `fault`, each `--by process`, and each event with `events`. It also checks that `top cpu
--pid` selects what it names, that `threads` has the processes of all threads with stacks, `kstack` those of
the threads at the end, `tree` the process with the most stacks, `profile` the samples by process, and that `diff`
finds no change of processes between a trace and the same trace without Thread records.

The process of an event is, in this order,
  1. the one that its stack record states, which has the time and the thread of the event
  2. the one in its own header
  3. the one that its thread has at that time by other records: Start, End, DCStart and DCEnd of threads,
     stack records, and headers with a process and a thread. Each of them holds until another one
     contradicts it, and the first one also holds for the time before it, unless it is a start
The process is not certain
  - if 1 and 2 contradict each other, or two stack records do
  - if 1, 2 or 3 contradicts the events of threads, where they state one process both before (Start, DCStart)
    and after (End, DCEnd)
  - by 3, between two records that contradict each other, of which the second is not a start
`top` must have a row for these, with "certain" in its name and without a process id.

A wait is one from a switch at which a thread left in the state waiting or transition to its next switch, unless
it was made ready before, or the thread of this switch is of another process. A thread leaves a processor as it
came: what is stated of its id later can be about another one. With lost buffers, only the processes of waits are
compared, not their numbers.

Without TRACE, reads the traces of STACKHOUND_CORPUS or ../shared/corpus, those of its field/etl/make_cases.py, and
six that PROGRAM generates. Each is also changed:
  - all Thread records are removed
  - 20 % of the buffers are dropped, at random with six seeds
  - a thread gets the id of another one, of another process, in its middle: with records of the ends and the
    starts, without them, and without any Thread record
  - stack records of some threads state another process
Where the unchanged trace has the true answer, no certain answer may be another one. With --short, only reads a few
of these. --show prints the counts only.

Needs zstandard or the program zstd for .zst files. Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import bisect
import collections
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GENERATED = (("default", 1), ("before", 2), ("profile", 3), ("high-cpu", 4), ("hang", 5), ("disk-bound", 6))
SEEDS = range(1, 7)
DROPPED = 0.2
EXAMPLES = 4
UNKNOWN_ID = 0xFFFFFFFF
UNCERTAIN, NOT_WAITING = "not certain", "not waiting"

SYSTEM, COMPACT, PERFINFO, FULL, INSTANCE, EVENT = range(6)
# The kind of a header, and whether pointers have 64 bits, by the type in the header.
HEADERS = {1: (SYSTEM, False), 2: (SYSTEM, True), 3: (COMPACT, False), 4: (COMPACT, True), 16: (PERFINFO, False)}
HEADERS |= {17: (PERFINFO, True), 10: (FULL, False), 20: (FULL, True), 11: (INSTANCE, False), 21: (INSTANCE, True)}
HEADERS |= {18: (EVENT, False), 19: (EVENT, True)}

SAMPLES, SWITCH, READY = (0x0F2E, 0x0F47), 0x0524, 0x0532
THREAD_START, THREAD_END, THREAD_DC_START, THREAD_DC_END = range(0x0501, 0x0505)
PROCESS_END = 0x0302
THREAD_EVENTS = range(THREAD_START, THREAD_DC_END + 1)
STACKS = (0x1820, 0x1825, 0x1826)
DISK_REQUESTS, DISK_TRANSFERS, DISK_FLUSH = (0x010C, 0x010D, 0x010F), (0x010A, 0x010B), 0x010E
HARD_FAULT, SOFT_FAULTS = 0x0220, (0x020A, 0x020B, 0x020C, 0x020D, 0x020F)
FILE_READ_WRITE, FILE_CREATES, FILE_INFORMATION = (0x0443, 0x0444), (0x0440, 0x044E), (0x0448, 0x044D)
FILE_SIMPLE = (0x0441, 0x0442, 0x0449)
FILE_OTHER = (0x0445, 0x0446, 0x0447, 0x044A, 0x044B, 0x044F, 0x0450, 0x0451, 0x0452)
FILE_OPERATIONS = {*FILE_READ_WRITE, *FILE_CREATES, *FILE_INFORMATION, *FILE_SIMPLE, *FILE_OTHER}
PAGING = 0x42
WAITING, TERMINATED = (5, 6), 4
# Where payloads have the id of a thread: a number of bytes, and a number of pointers.
THREAD_AT = {0x0F2E: (0, 1), 0x0F2F: (0, 1), 0x0F47: (0, 1), HARD_FAULT: (16, 2), SWITCH: (0, 0), READY: (0, 0)}
THREAD_AT |= {0x010A: (32, 2), 0x010B: (32, 2), DISK_FLUSH: (16, 1)} | dict.fromkeys(DISK_REQUESTS, (0, 1))
THREAD_AT |= dict.fromkeys(STACKS, (12, 0)) | dict.fromkeys(THREAD_EVENTS, (4, 0)) | {0x0548: (4, 0)}
THREAD_AT |= dict.fromkeys(FILE_CREATES, (0, 2)) | dict.fromkeys(FILE_READ_WRITE, (8, 3))
THREAD_AT |= dict.fromkeys(FILE_SIMPLE + FILE_INFORMATION, (0, 3)) | dict.fromkeys(FILE_OTHER, (0, 4))
CLASSES = {0x01: "DiskIo", 0x02: "PageFault", 0x04: "FileIo", 0x05: "Thread", 0x0F: "PerfInfo"}
KINDS = ("samples", "waits", "file operations", "disk transfers", "page faults")
WHOLE, WITHOUT_THREADS, REUSED = "whole", "without Thread records", "ids reused"
REUSED_WITHOUT, CONTRADICTIONS = f"{REUSED} without events", "contradictions"
# The traces of each pair have the same samples.
COMPARED = {WITHOUT_THREADS: WHOLE, REUSED_WITHOUT: REUSED}
# What --short reads.
SHORT = {"perfview-net452-x64.etl": (WITHOUT_THREADS,), "fileio-no-rundown.etl": (WHOLE,)}
SHORT |= {"tid-reuse-noend.etl": (WHOLE, WITHOUT_THREADS), "cswitch-no-rundown.etl": (WHOLE, REUSED_WITHOUT)}
SHORT |= {"demo-default.etl": (WHOLE, WITHOUT_THREADS, "20 % dropped, seed 1", REUSED_WITHOUT, CONTRADICTIONS)}
METRICS = dict(zip(KINDS, ("cpu", "wait", "file", "disk", "fault"), strict=True))

Buffer = collections.namedtuple("Buffer", "raw processor sequence records")
# One event that is counted, with its process: None if it is not known, or UNCERTAIN.
Fact = collections.namedtuple("Fact", "kind record thread process")


class Record:
    """A record of the kernel or of a provider. Ids that the header does not state are None."""

    __slots__ = ("raw", "kind", "wide", "processor", "origin")
    __slots__ += ("time", "hook", "version", "thread", "process", "payload")

    def __init__(self, raw, kind, wide, processor):
        self.raw, self.kind, self.wide, self.processor, self.origin = raw, kind, wide, processor, self
        self.hook = self.thread = self.process = None
        self.payload = b""
        if kind == PERFINFO:
            self.version, extras, self.hook, self.time = struct.unpack_from("<BB4xHq", raw)
            self.payload = raw[16 + 8 * (extras >> 7) + 8 * (extras & 7) :]
        else:
            thread, process, self.time = struct.unpack_from("<IIq", raw, 8)
            if UNKNOWN_ID not in (thread, process):
                self.thread, self.process = thread, process
            if kind in (SYSTEM, COMPACT):
                self.version, self.hook = raw[0], struct.unpack_from("<H", raw, 6)[0]
                self.payload = raw[32 if kind == SYSTEM else 24 :]

    @property
    def payload_start(self):
        return len(self.raw) - len(self.payload)

    def field(self, form, at):
        """Returns a field of the payload; None if the payload is too short."""
        form = f"<{form}"
        is_present = len(self.payload) >= at + struct.calcsize(form)
        return struct.unpack_from(form, self.payload, at)[0] if is_present else None

    def thread_at(self):
        """Returns the offset of the thread in the payload."""
        if self.hook not in THREAD_AT:
            return None
        bytes_before, pointers = THREAD_AT[self.hook]
        if self.hook in FILE_OPERATIONS and self.version < 3:
            # The thread is a pointer, the second one.
            pointers = 1
        elif self.hook in (*DISK_TRANSFERS, DISK_FLUSH, *DISK_REQUESTS) and self.version < 3:
            return None
        elif self.hook in THREAD_EVENTS and self.version == 0:
            return 0
        return bytes_before + pointers * (8 if self.wide else 4)

    def payload_thread(self):
        at = self.thread_at()
        thread = None if at is None else self.field("I", at)
        return None if thread == UNKNOWN_ID else thread

    def with_fields(self, fields):
        """Returns a copy with other 32-bit values at offsets in the record."""
        raw = bytearray(self.raw)
        for at, value in fields.items():
            struct.pack_into("<I", raw, at, value)
        copy = Record(bytes(raw), self.kind, self.wide, self.processor)
        copy.origin = self.origin
        return copy


def expanded(source, size):
    """Expands plain XPRESS (docs/format/compression.md)."""
    out = bytearray()
    at = flags = count = 0
    half = None
    while len(out) < size:
        if count == 0:
            flags = int.from_bytes(source[at : at + 4], "little")
            at, count = at + 4, 32
        # Clear flags are literals.
        literals = count - (flags & (1 << count) - 1).bit_length()
        if literals:
            out += source[at : at + literals]
            at, count = at + literals, count - literals
            continue
        count -= 1
        match = source[at] | source[at + 1] << 8
        at += 2
        distance, length = (match >> 3) + 1, match & 7
        if length == 7:
            if half is None:
                half, nibble = at, source[at] & 15
                at += 1
            else:
                half, nibble = None, source[half] >> 4
            length += nibble
            if nibble == 15:
                length += source[at]
                at += 1
                if source[at - 1] == 255:
                    length = int.from_bytes(source[at : at + 2], "little")
                    at += 2
                    if length == 0:
                        length = int.from_bytes(source[at : at + 4], "little")
                        at += 4
        length += 3
        piece = out[len(out) - distance : len(out) - distance + length]
        out += (piece * (length // len(piece) + 1))[:length]
    return bytes(out[:size])


def records_of(body, processor):
    """Yields the records in the expanded content of a buffer, without WPP messages."""
    at = 0
    while at + 8 <= len(body):
        marker = int.from_bytes(body[at : at + 4], "little")
        if marker in (0, UNKNOWN_ID):
            return
        kind, wide = HEADERS.get(marker >> 16 & 0xFF, (None, None)) if marker >> 30 == 3 else (None, None)
        if kind is None and marker >> 28 != 9:
            return
        size = struct.unpack_from("<H", body, at + 4 if kind in (SYSTEM, COMPACT, PERFINFO) else at)[0]
        if size < 8 or at + size > len(body):
            return
        if kind is not None:
            yield Record(body[at : at + size], kind, wide, processor)
        at += size + 7 & ~7


class Trace:
    """The buffers of a file. The first one has the header of the file."""

    def __init__(self, name, buffers):
        self.name = name
        self.buffers = buffers

    @classmethod
    def read(cls, path):
        data = unpacked(path)
        buffers, at = [], 0
        while at + 72 <= len(data):
            size, saved = struct.unpack_from("<2I", data, at)
            if not 72 <= size <= len(data) - at:
                break
            raw = data[at : at + size]
            sequence, processor = struct.unpack_from("<q8xH", raw, 0x18)
            offset, flags = struct.unpack_from("<IH", raw, 0x30)
            processor &= 0xFFFF if flags & 0x20 else 0xFF
            if flags & 0x40:
                body = expanded(raw[72:], saved - 72)
            else:
                body = raw[72 : max((end for end in (saved, offset) if end <= size), default=size)]
            buffers.append(Buffer(raw, processor, sequence, list(records_of(body, processor))))
            at += size
        return cls(path.name.removesuffix(".zst"), buffers)

    def records(self):
        """Returns all records in the order of time."""
        buffers = sorted(self.buffers, key=lambda buffer: (buffer.processor, buffer.sequence))
        records = [record for buffer in buffers for record in buffer.records]
        records.sort(key=lambda record: record.time)
        return records

    def write(self, path):
        path.write_bytes(b"".join(buffer.raw for buffer in self.buffers))
        return path

    def size_of_buffers(self):
        return struct.unpack_from("<I", self.buffers[0].raw, 0x68)[0]

    def is_simple(self):
        """The file has one session, and a stream for each processor."""
        return sum(buffer.sequence == 0 for buffer in self.buffers) == 1

    def is_lossy(self):
        """Buffers are missing, or the header counts losses."""
        lost = [struct.unpack_from("<I", self.buffers[0].raw, 0x68 + at)[0] for at in (0x30, 0x114)]
        numbers = sorted(buffer.sequence for buffer in self.buffers)
        written = struct.unpack_from("<I", self.buffers[0].raw, 0x68 + 0x24)[0]
        return any(lost) or numbers[-1] - numbers[0] >= len(numbers) or len(numbers) < written

    def without_threads(self):
        """Returns the trace without Thread records, in the same buffers."""
        buffers = self.buffers[:1]
        for buffer in self.buffers[1:]:
            kept = [record for record in buffer.records if record.hook not in THREAD_EVENTS]
            raw = buffer_of(self.size_of_buffers(), buffer.raw, kept)
            buffers.append(buffer._replace(raw=raw, records=kept))
        return Trace(self.name, buffers)

    def with_losses(self, seed):
        """Returns the trace without some of its buffers; None if it has too few."""
        numbers = range(1, len(self.buffers))
        if not round(len(numbers) * DROPPED):
            return None
        dropped = set(random.Random(seed).sample(numbers, round(len(numbers) * DROPPED)))
        kept = [buffer for number, buffer in enumerate(self.buffers) if number not in dropped]
        return Trace(self.name, kept)

    def with_records(self, records):
        """Returns a trace with other records, in new buffers."""
        size = self.size_of_buffers()
        first = set(map(id, self.buffers[0].records))
        chunks = []
        streams = collections.defaultdict(list)
        for record in records:
            if id(record.origin) not in first:
                streams[record.processor].append(record)
        for processor, stream in streams.items():
            used = size
            for record in stream:
                if used + aligned(len(record.raw)) > size:
                    chunks.append((processor, []))
                    used = 72
                chunks[-1][1].append(record)
                used += aligned(len(record.raw))
        chunks.sort(key=lambda chunk: chunk[1][0].time)
        head = bytearray(self.buffers[0].raw)
        struct.pack_into("<I", head, 0x68 + 0x24, len(chunks) + 1)
        buffers = [self.buffers[0]._replace(raw=bytes(head))]
        for number, (processor, kept) in enumerate(chunks, 1):
            base = struct.pack("<4I3q2H2I2H16x", size, 0, 0, 0, kept[-1].time, number, 0, processor, 1, 3, 0, 0x20, 0)
            buffers.append(Buffer(buffer_of(size, base, kept), processor, number, kept))
        buffers[1:] = sorted(buffers[1:], key=lambda buffer: buffer.records[-1].time)
        return Trace(self.name, buffers)


def aligned(size):
    return size + 7 & ~7


def buffer_of(size, base, records):
    """Returns an uncompressed buffer with records, and with the header of another one."""
    body = b"".join(record.raw.ljust(aligned(len(record.raw)), b"\0") for record in records)
    used = 72 + len(body)
    size = max(size, aligned(used))
    head = bytearray(base[:72])
    struct.pack_into("<3I", head, 0, size, used, used)
    struct.pack_into("<IH", head, 0x30, used, struct.unpack_from("<H", head, 0x34)[0] & ~0x40)
    return bytes(head) + body + b"\xff" * (size - used)


def unpacked(path):
    if path.suffix != ".zst":
        return path.read_bytes()
    try:
        import zstandard
    except ImportError:
        if not shutil.which("zstd"):
            sys.exit("zstandard is missing; pip install zstandard")
        return subprocess.run(["zstd", "-dqc", "--long=27", path], check=True, capture_output=True).stdout
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


class Threads:
    """The processes of threads by time, from all records that state both."""

    def __init__(self, records):
        # By thread: time, order, whether the record starts or ends the thread, process.
        self.evidence = collections.defaultdict(list)
        self.events = collections.defaultdict(list)
        # By time and thread: the processes that stack records state.
        self.stacks = collections.defaultdict(set)
        # By time and processor: the threads of stack records.
        self.local = collections.defaultdict(set)
        for order, record in enumerate(records):
            if record.hook in STACKS and len(record.payload) >= 16:
                time, process, thread = struct.unpack_from("<qII", record.payload)
                if UNKNOWN_ID not in (process, thread):
                    self.stacks[time, thread].add(process)
                    self.local[time, record.processor].add(thread)
                    self.add(thread, time, order, None, process)
                    self.add(thread, record.time, order, None, process)
            elif record.hook in THREAD_EVENTS and len(record.payload) >= 8:
                thread = record.payload_thread()
                process = record.field("I", 0 if record.version else 4)
                change = {THREAD_START: "start", THREAD_END: "end"}.get(record.hook)
                self.add(thread, record.time, order, change, process)
                is_before = record.hook in (THREAD_START, THREAD_DC_START)
                self.events[thread].append((record.time, order, is_before, process, change == "end"))
            # The header of the start of a thread can state this thread, which did not exist before.
            if record.kind in (SYSTEM, COMPACT, EVENT) and record.thread is not None:
                self.add(record.thread, record.time, order, None, record.process)
        for entries in itertools.chain(self.evidence.values(), self.events.values()):
            entries.sort(key=lambda entry: entry[:2])

    def add(self, thread, time, order, change, process):
        self.evidence[thread].append((time, order, change, process))

    def at(self, thread, time):
        """Returns the process of a thread by all records at other times."""
        if thread is None:
            return None
        if thread == 0:
            return 0
        before, after = around(self.evidence.get(thread, ()), time)
        if before is None:
            return None if after is None or after[2] == "start" else after[3]
        if after is None or after[3] == before[3] or after[2] == "start":
            return before[3] if self.by_events(thread, time) in (None, before[3]) else UNCERTAIN
        return UNCERTAIN

    def by_events(self, thread, time):
        """Returns the process that events of threads state both before and after a time."""
        before, after = around(self.events.get(thread, ()), time)
        is_known = before and after and before[2] and not after[2] and before[3] == after[3]
        return before[3] if is_known else None

    def of(self, thread, time, header):
        """Returns the process of an event of a thread. `header` is the one that its own header states."""
        stated = self.stacks.get((time, thread), set()) | ({header} - {None})
        if not stated or thread == 0:
            return self.at(thread, time)
        if len(stated) > 1 or self.by_events(thread, time) not in (None, *stated):
            return UNCERTAIN
        return next(iter(stated))


def around(entries, time):
    """Returns the last entry up to a time and the first one after it."""
    index = bisect.bisect_right(entries, time, key=lambda entry: entry[0])
    return entries[index - 1] if index else None, entries[index] if index < len(entries) else None


def facts_of(records):
    """Returns the facts of a trace, and the processes of its threads."""
    threads = Threads(records)
    facts, waiting, requests = [], {}, {}
    # By processor: the thread that it was switched to, and its process.
    running = {}
    # Threads that were made ready although they ran. They do not wait after that.
    ready = set()

    def add(kind, record, thread, header=None, at=None):
        facts.append(Fact(kind, record, thread, threads.of(thread, (at or record).time, header)))

    for record in records:
        hook = record.hook
        if hook is None:
            continue
        if hook in SAMPLES:
            thread = record.payload_thread()
            flags = record.field("B", 14 if record.wide else 10) or 0
            if thread and not flags & 3:
                add("samples", record, thread)
        elif hook == SWITCH:
            new, old, state = record.field("I", 0), record.field("I", 4), record.field("B", 14)
            came, process = running.get(record.processor), threads.of(new, record.time, None)
            running[record.processor] = new, process
            if new:
                before = waiting.pop(new, NOT_WAITING)
                # A thread of another process with the same id did not wait.
                is_wait = before != NOT_WAITING and (before == process or UNCERTAIN in (before, process))
                add("waits" if is_wait else "switches", record, new)
                ready.discard(new)
            waiting.pop(old, None)
            if old and state in WAITING and old not in ready:
                waiting[old] = came[1] if came and came[0] == old else threads.at(old, record.time)
            ready.discard(old)
        elif hook == READY and record.payload_thread() not in waiting:
            ready.add(record.payload_thread())
        elif hook in (THREAD_START, THREAD_END):
            waiting.pop(record.payload_thread(), None)
        elif hook in FILE_OPERATIONS:
            is_paging = hook in FILE_READ_WRITE and (record.field("I", record.thread_at() + 8) or 0) & PAGING
            thread = record.payload_thread() if record.thread is None else record.thread
            add("paging" if is_paging else "file operations", record, thread, record.process)
        elif hook in DISK_REQUESTS:
            thread = record.payload_thread() if record.thread is None else record.thread
            requests[record.field("Q" if record.wide else "I", 0)] = record, thread
            add("disk requests", record, thread, record.process)
        elif hook in DISK_TRANSFERS or hook == DISK_FLUSH:
            thread = record.payload_thread()
            at = (16 if hook == DISK_FLUSH else 24) + (0 if hook == DISK_FLUSH else 8 if record.wide else 4)
            request, issuer = requests.pop(record.field("Q" if record.wide else "I", at), (None, None))
            if request and thread in (None, issuer):
                add("disk transfers", record, issuer, request.process, request)
            else:
                add("disk transfers", record, thread)
        elif hook == HARD_FAULT or hook in SOFT_FAULTS:
            thread = record.payload_thread() if record.thread is None else record.thread
            if thread is None:
                local = threads.local.get((record.time, record.processor), ())
                thread = next(iter(local)) if len(local) == 1 else None
            add("page faults", record, thread, record.process)
    return facts, threads


def counts_of(facts):
    counts = {kind: collections.Counter() for kind in KINDS}
    for fact in facts:
        if fact.kind in counts:
            counts[fact.kind][fact.process] += 1
    return counts


def with_reused_ids(trace, with_events):
    """Returns the trace, in which a thread gets the id of a thread of another process in the middle, and that thread
    gets a new id, at a time at which neither of them runs. With events, the ends and the starts of the threads are
    stated. Returns None if there are no such threads."""
    records = trace.records()
    has_model = any(record.hook in THREAD_EVENTS and record.kind == SYSTEM for record in records)
    threads = Threads(records)
    owners = {thread: {entry[3] for entry in entries} for thread, entries in threads.evidence.items()}
    times = collections.defaultdict(list)
    for time, thread in threads.stacks:
        times[thread].append(time)
    # Threads with the most stacks first: they state the processes before and after the change.
    candidates = [thread for thread in times if thread and len(owners[thread]) == 1 and not owners[thread] & {0, 4}]
    candidates.sort(key=lambda thread: -len(times[thread]))
    for first, second in itertools.combinations(candidates[:12], 2):
        if owners[first] == owners[second] or (with_events and not has_model):
            continue
        earliest, latest = max(min(times[first]), min(times[second])), min(max(times[first]), max(times[second]))
        time = idle_time(records, {first, second}, earliest, latest)
        if time is not None:
            return renamed(trace, records, first, second, time, owners if with_events else None)
    return None


def idle_time(records, threads, earliest, latest):
    """Returns a time at which none of the threads runs, in the middle of two times."""
    running, idle = {}, []
    for record in records:
        if record.hook == SWITCH:
            running[record.processor] = record.field("I", 0)
            if earliest < record.time < latest and not threads & set(running.values()):
                idle.append(record.time)
    return idle[len(idle) // 2] + 1 if idle else None


def renamed(trace, records, first, second, time, owners):
    new = max(max(record.thread or 0, record.payload_thread() or 0) for record in records) + 4
    names = {first: new, second: first}
    changed = []
    for record in records:
        of_stack = record.field("q", 0) if record.hook in STACKS else record.time
        if of_stack < time or record.hook == THREAD_DC_START:
            changed.append(record)
            continue
        if owners:
            changed += thread_records(records, owners, names, time)
            owners = None
        fields = {}
        if record.thread in names:
            fields[8] = names[record.thread]
        for at in {record.thread_at(), 4 if record.hook == SWITCH else None} - {None}:
            value = record.field("I", at)
            if value in names:
                fields[record.payload_start + at] = names[value]
        changed.append(record.with_fields(fields) if fields else record)
    return trace.with_records(changed)


def thread_records(records, owners, names, time):
    """Returns records of the ends of threads at a time, and of the starts of those with new ids."""
    model = next(record for record in records if record.hook in THREAD_EVENTS and record.kind == SYSTEM)
    result = []
    for hook in (THREAD_END, THREAD_START):
        for old, new in names.items():
            process = next(iter(owners[old]))
            raw = bytearray(model.raw)
            struct.pack_into("<HIIq", raw, 6, hook, old, process, time)
            start = model.payload_start
            struct.pack_into("<2I", raw, start, process, old if hook == THREAD_END else new)
            result.append(Record(bytes(raw), model.kind, model.wide, model.processor))
    return result


def with_contradictions(trace):
    """Returns the trace, in which every third stack record of some threads states another process, not the one that
    the events of threads state at the beginning and the end. Returns None if there are no such threads."""
    records = trace.records()
    events = Threads(records).events
    busy = collections.Counter(record.field("I", 12) for record in records if record.hook in STACKS)
    chosen = [
        thread
        for thread, _ in busy.most_common()
        if [entry[2] for entry in events.get(thread, ())] == [True, False] and len({e[3] for e in events[thread]}) == 1
    ][:3]
    if not chosen:
        return None
    changed, count = [], itertools.count()
    for record in records:
        if record.hook in STACKS and record.field("I", 12) in chosen and next(count) % 3 == 0:
            changed.append(record.with_fields({record.payload_start + 8: record.field("I", 8) + 1_000_000}))
        else:
            changed.append(record)
    return trace.with_records(changed)


def run(program, *arguments):
    """Returns the documents or lines that the program prints; None if the trace has no such records."""
    command = [program, *map(str, arguments), "-q"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 2 and "the trace has" in result.stderr:
        return None
    if result.returncode != 0:
        raise ChildProcessError(f"{arguments[0]}: exit code {result.returncode}: {result.stderr.strip()}")
    if "json" in arguments:
        return json.loads(result.stdout)
    lines = result.stdout.splitlines()
    return [json.loads(line) for line in lines] if "ndjson" in arguments else lines


def process_of(row):
    """Returns the process of a row; an empty text if it has none because it is an interrupt."""
    if row["pid"] is not None:
        return row["pid"]
    name = row["name"] or ""
    return "" if name in ("DPC", "ISR") else UNCERTAIN if "certain" in name else None


def top(program, kind, path, by="process", *arguments):
    """Returns the counts of `top` by process, or by thread and process."""
    document = run(program, "top", METRICS[kind], path, "--by", by, "--all", "--format", "json", *arguments)
    counts = collections.Counter()
    for row in document["rows"] if document else ():
        process = process_of(row)
        if process == "" or (kind in ("samples", "waits") and row["tid"] == 0):
            continue
        total = row["total"]
        count = {
            "samples": lambda: row["samples"],
            "waits": lambda: row["count"],
            "file operations": lambda: total["operations"],
            "disk transfers": lambda: total["reads"] + total["writes"] + total["flushes"],
            "page faults": lambda: total["hard_faults"] + total["soft_faults"],
        }[kind]()
        counts[process if by == "process" else (row["tid"], process)] += count
    return +counts


def check(program, trace, path, truth):
    """Returns the differences of a trace, and the counts that were compared."""
    records = trace.records()
    facts, threads = facts_of(records)
    counts = {kind: by for kind, by in counts_of(facts).items() if by}
    checks = [check_truth(facts, truth)]
    for kind, expected in counts.items():
        if kind == "waits":
            checks.append(check_waits(program, path, facts, expected, trace.is_lossy()))
        else:
            checks.append(check_top(program, path, kind, expected))
    if "samples" in counts:
        checks.append(check_profile(program, path, counts["samples"]))
    checks.append(check_events(program, path, facts, truth))
    checks.append(check_threads(program, path, threads, records))
    checks.append(check_tree(program, path, threads))
    switched = {fact.thread for fact in facts if fact.record.hook == SWITCH}
    switched -= {r.field("I", 4) for r in records if r.hook == SWITCH and r.field("B", 14) == TERMINATED}
    if switched:
        checks.append(check_kernel_stacks(program, path, threads, records, set() if trace.is_lossy() else switched))
    return [fault for each in checks for fault in faults_of(each)], counts


def faults_of(check):
    """Yields the differences of a check. The program must not fail."""
    try:
        yield from check
    except ChildProcessError as error:
        yield str(error)


def check_truth(facts, truth):
    wrong = sum(is_wrong(fact.process, truth, fact.record) for fact in facts) if truth else 0
    if wrong:
        yield f"this script: {wrong} answers are not the true ones"


def check_top(program, path, kind, expected):
    yield from differences(f"top {METRICS[kind]}", top(program, kind, path), expected)
    numbers = [process for process in expected if isinstance(process, int)]
    if kind == "samples" and numbers:
        largest = max(numbers, key=expected.get)
        found = top(program, kind, path, "process", "--pid", largest)
        yield from differences(f"top cpu --pid {largest}", found, {largest: expected[largest]})


def check_profile(program, path, expected):
    """Yields differences of the samples of a profile, without those in interrupts."""
    counts = collections.Counter()
    for line in run(program, "profile", path, "--format", "folded"):
        stack, count = line.rsplit(" ", 1)
        name = stack.split(";")[0]
        pid = re.search(r"\((\d+)\)$", name)
        counts[process_of({"pid": int(pid[1]) if pid else None, "name": name})] += int(count)
    found = {process: count for process, count in counts.items() if process not in ("", 0)}
    yield from differences("profile", found, expected)


def is_wrong(process, truth, record):
    """A certain answer is not the true one. `truth` is by record of the unchanged trace."""
    if process in (None, UNCERTAIN) or record.origin not in truth:
        return False
    return truth[record.origin] not in (None, UNCERTAIN, process)


def differences(title, found, expected):
    for process in sorted(found.keys() | expected.keys(), key=str):
        if found.get(process, 0) != expected.get(process, 0):
            yield f"{title}: process {process}: {found.get(process, 0)}, expected {expected.get(process, 0)}"


def check_waits(program, path, facts, expected, is_lossy):
    """Yields differences of waits. With losses, it is not known how many there are, but which process has them."""
    if not is_lossy:
        yield from differences("top wait", top(program, "waits", path), expected)
    known = collections.defaultdict(set)
    for fact in facts:
        if fact.kind in ("waits", "switches"):
            known[fact.thread].add(fact.process)
    found = top(program, "waits", path, "thread")
    for (thread, process), count in found.items():
        if thread is not None and process not in known[thread]:
            wanted = sorted(known[thread], key=str)
            yield f"top wait: thread {thread}: {count} waits of process {process}, expected {wanted}"


def check_events(program, path, facts, truth):
    """Yields differences between facts and `events`."""
    expected = collections.defaultdict(list)
    for fact in facts:
        if fact.kind != "disk transfers":
            record = fact.record
            expected[record.time, record.processor, CLASSES[record.hook >> 8], record.hook & 0xFF].append(fact)
    if not expected:
        return
    names = [f"{name}/*" for name in CLASSES.values()]
    arguments = itertools.chain.from_iterable(("--event", name) for name in names)
    found = collections.defaultdict(list)
    # Most samples are those of idle threads.
    filters = ("--where", "not (event = 'PerfInfo/SampledProfile' and tid = 0)", *arguments)
    for event in run(program, "events", path, "--format", "ndjson", *filters) or ():
        found[event["ts"], event["cpu"], event["event"].split("/")[0], event["opcode"]].append(event["pid"])
    faults = collections.Counter()
    examples = {}
    for key, group in expected.items():
        wanted = sorted(str(fact.process if isinstance(fact.process, int) else None) for fact in group)
        given = sorted(map(str, found.get(key, ())))
        if truth and len(group) == len(found.get(key, ())) == 1 and is_wrong(found[key][0], truth, group[0].record):
            faults["certain and not true", group[0].kind] += 1
        if wanted != given:
            fault = (group[0].kind, f"{','.join(given)}", f"{','.join(str(fact.process) for fact in group)}")
            faults[fault] += 1
            examples.setdefault(fault, key[0])
    for fault, count in faults.most_common():
        if len(fault) == 2:
            yield f"events: {count} {fault[1]}: {fault[0]}"
        else:
            yield f"events: {count} {fault[0]} of process {fault[1]}, expected {fault[2]}; first at {examples[fault]}"


def check_threads(program, path, threads, records):
    """Yields differences between the processes of threads with stacks and `threads`. The events of stacks can be lost
    or removed: no thread has these stacks."""
    rows = run(program, "threads", path, "--by", "thread", "--format", "ndjson") or ()
    found = {(row["tid"], row["pid"]) for row in rows if row["tid"]}
    for thread, process in sorted(found, key=str):
        known = {entry[3] for entry in threads.evidence.get(thread, ())}
        if process not in (known or {None}) and not (process is None and len(known) > 1):
            yield f"threads: thread {thread} of process {process}, expected {sorted(known)}"
    events = collections.defaultdict(list)
    for record in records:
        if record.hook not in STACKS:
            events[record.time].append(record)
    expected = set()
    for time, thread in threads.stacks:
        for event in events[time] if thread else ():
            if event.thread == thread:
                expected.add((thread, threads.of(thread, time, event.process)))
            elif event.payload_thread() in (thread, None) and event.thread is None:
                expected.add((thread, threads.of(thread, time, None)))
    for thread, process in sorted(expected - found, key=str):
        if process != UNCERTAIN:
            yield f"threads: thread {thread} of process {process} is missing"


def check_tree(program, path, threads):
    """Yields an error if `tree` does not know the process of the most stacks."""
    processes = collections.Counter(threads.of(thread, time, None) for time, thread in threads.stacks if thread)
    largest = max((process for process in processes if isinstance(process, int)), key=processes.get, default=None)
    if largest is not None:
        document = run(program, "tree", path, "--pid", largest, "--format", "json")
        if document["stack"]["pid"] != largest:
            yield f"tree --pid {largest}: process {document['stack']['pid']}"


def check_kernel_stacks(program, path, threads, records, required):
    """Yields differences of the threads at the end of a trace and `kstack`, which must have the required ones unless
    they have ended."""
    end = records[-1].time
    rows = run(program, "kstack", "--trace", path, "--format", "ndjson") or ()
    found = {row["tid"]: row["pid"] for row in rows if row["tid"]}
    for thread, process in found.items():
        expected = threads.at(thread, end)
        if process != (expected if isinstance(expected, int) else None):
            yield f"kstack: thread {thread} of process {process}, expected {expected}"
    ended = {struct.unpack_from("<I", r.payload, 8 if r.wide else 4)[0] for r in records if r.hook == PROCESS_END}
    for thread in sorted(required - found.keys()):
        process, events = threads.at(thread, end), threads.events.get(thread)
        if isinstance(process, int) and process not in ended and not (events and events[-1][4]):
            yield f"kstack: thread {thread} of process {process} is missing"


def check_diff(program, first, second, counts):
    """Yields changes that `diff` reports of processes with the same samples, and gone or new ones that it leaves out.
    `counts` are those of both traces by process."""
    document = run(program, "diff", first, second, "--by", "process", "--format", "json")
    before, after = counts
    changed = [process for process in before.keys() | after.keys() if before[process] != after[process]]
    expected = collections.Counter((before[process], after[process]) for process in changed)
    rows = [row for section in document["sections"] for row in section["rows"]] if document else []
    rows = [row for row in rows if row["change"] in ("new", "gone", "more", "less")]
    found = collections.Counter((row["a_count"], row["b_count"]) for row in rows)
    for row in rows:
        if (row["a_count"], row["b_count"]) not in expected:
            yield f"diff: {row['name']} is {row['change']}: {row['a_count']} and {row['b_count']} samples"
    threshold = max((section["threshold"] for section in document["sections"]), default=0) if document else 0
    for pair in (expected - found).keys():
        # Changes that can be chance are not reported.
        if 0 in pair and max(pair) > 2 * threshold**2:
            yield f"diff: {pair[0]} and {pair[1]} samples of a process are missing"


def changes():
    """Returns functions that change a trace, by name. They return None for traces that have not what they change."""
    result = {WHOLE: lambda trace: trace, WITHOUT_THREADS: Trace.without_threads}
    result |= {f"20 % dropped, seed {seed}": functools.partial(Trace.with_losses, seed=seed) for seed in SEEDS}
    result[REUSED] = functools.partial(with_reused_ids, with_events=True)
    result[REUSED_WITHOUT] = functools.partial(with_reused_ids, with_events=False)
    result[f"{REUSED}, {WITHOUT_THREADS}"] = lambda trace: with_reused_ids(trace.without_threads(), False)
    result[CONTRADICTIONS] = with_contradictions
    return result


def check_change(job):
    """Returns the lines about a changed trace, the number of differences, and whether it has events that are
    counted."""
    program, path, name = job
    trace = Trace.read(path)
    functions = changes()
    changed = functions[name](trace)
    if changed is None:
        return [], 0, False
    truth = None
    if name not in (WHOLE, CONTRADICTIONS):
        truth = {fact.record.origin: fact.process for fact in facts_of(trace.records())[0]}
    with tempfile.TemporaryDirectory() as folder:
        file = changed.write(pathlib.Path(folder) / "changed.etl")
        faults, figures = check(program, changed, file, truth)
        if name in COMPARED and "samples" in figures:
            other = functions[COMPARED[name]](trace)
            counts = [counts_of(facts_of(each.records())[0])["samples"] for each in (other, changed)]
            path = other.write(pathlib.Path(folder) / "other.etl")
            faults += faults_of(check_diff(program, path, file, counts))
    text = "; ".join(map(text_of, figures.items()))
    lines = [f"{trace.name}, {name}: {text or 'no such events'}: {'DIFFERENT' if faults else 'equal'}"]
    for title, group in itertools.groupby(faults, lambda fault: re.match(r"[\w ]*", fault)[0].strip()):
        group = list(group)
        lines += [f"  {fault}" for fault in group[:EXAMPLES]]
        lines += [f"  {title}: {len(group) - EXAMPLES} more differences"] * (len(group) > EXAMPLES)
    return lines, len(faults), bool(figures) and trace.is_simple()


def text_of(figure):
    kind, by = figure
    text = f"{sum(by.values())} {kind} of {len(by.keys() - {UNCERTAIN, None})} processes"
    return text + "".join(f", {by[key]} {name}" for key, name in ((None, "unknown"), (UNCERTAIN, UNCERTAIN)) if by[key])


def traces(program, folder, is_short):
    """Yields the paths of all traces."""
    corpus = pathlib.Path(os.environ.get("STACKHOUND_CORPUS", ROOT.parent / "shared/corpus"))
    cases = corpus / "field/etl/make_cases.py"
    paths = [path for path in sorted(corpus.glob("etl/*")) if re.search(r"\.etl(\.zst)?$", path.name)]
    if cases.exists():
        command = [sys.executable, "-B", cases, folder / "cases"]
        subprocess.run(command, check=True, capture_output=True)
        paths += sorted((folder / "cases").glob("*.etl"))
    if not paths:
        print(f"no traces in {corpus}: only generated ones are read", file=sys.stderr)
    for path in paths:
        if not is_short or path.name.removesuffix(".zst") in SHORT:
            yield path
    for mix, seed in GENERATED[: 1 if is_short else None]:
        out = folder / mix
        command = [program, "demo", "-q", "--mix", mix, "--seed", str(seed), "--out", out]
        subprocess.run(command, check=True, capture_output=True)
        path = next(out.glob("*.etl"))
        yield path.rename(folder / f"demo-{mix}.etl")


def show(paths):
    for path in map(pathlib.Path, paths):
        counts = counts_of(facts_of(Trace.read(path).records())[0])
        for kind in KINDS:
            if counts[kind]:
                by = ", ".join(f"{process}: {count}" for process, count in counts[kind].most_common())
                print(f"{path.name}: {sum(counts[kind].values())} {kind}: {by}")


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--show"]:
        return show(arguments[1:])
    is_short = "--short" in arguments
    arguments = [argument for argument in arguments if argument != "--short"]
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    program = arguments[0]
    total = different = count = 0
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool() as pool:
        paths = list(map(pathlib.Path, arguments[1:])) or list(traces(program, pathlib.Path(folder), is_short))
        if is_short:
            names = {path: SHORT.get(path.name.removesuffix(".zst"), (WHOLE,)) for path in paths}
        else:
            names = {path: [WHOLE] for path in paths}
        while names:
            jobs = [(program, path, name) for path in names for name in names[path]]
            names = {}
            for job, (lines, faults, has_events) in zip(jobs, pool.imap(check_change, jobs), strict=True):
                for line in lines:
                    print(line, flush=True)
                total += bool(lines)
                different += bool(faults)
                count += faults
                _, path, name = job
                if name == WHOLE and has_events and not is_short:
                    names[path] = list(changes())[1:]
    print(f"{total} traces and changed traces, {different} of them different, {count} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
