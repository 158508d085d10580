#!/usr/bin/env python3
"""Checks measurements of `top` with counts from the raw events that dissect.etl reads.

usage: check-top-costs.py PROGRAM TRACE...

Reads the events of Microsoft-Windows-DotNETRuntime and computes, for each process: collections by
generation, pauses with their total and longest time, and their durations; compiled methods, their IL
and native bytes, and their times. Compares them with `PROGRAM top gc|jit TRACE --by process --all
--format json`, and the number of each method's compilations with `top jit --by method`. From events of
64-bit kernels since Windows 8, also computes the transfers and times of disks, hard faults with their
times, and the bytes of TCP and UDP by process, for `top disk`, `fault` and `network`. Traces are .etl or
.etl.zst files.

Needs what check-top.py needs. Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import collections
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("check_top", HERE / "check-top.py")
check_top = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_top)

GC_START, GC_END, GC_RESTARTED, GC_SUSPEND = 1, 2, 3, 9
METHOD_UNNAMED, METHOD_LOADED, METHOD_STARTED = 141, 143, 145
FOR_COLLECTION = (1, 6)
JITTED = 8


def runtime_events(trace):
    return [event for event in trace.events if event.provider == check_top.RUNTIME and event.hook is None]


def collections_of(trace, events):
    """Returns the expected values of `top gc` by process."""
    sums = collections.defaultdict(collections.Counter)
    suspended, started, numbers = {}, {}, collections.defaultdict(set)
    for event in events:
        thread = (event.process, event.thread)
        values = sums[event.process]
        if event.id == GC_START and event.version:
            number, depth = struct.unpack_from("<2I", event.payload)
            if number not in numbers[event.process]:
                numbers[event.process].add(number)
                started[event.process, number] = event.time
                values["collections"] += 1
                values[f"generation_{min(depth, 2)}"] += 1
        elif event.id == GC_END:
            number = struct.unpack_from("<I", event.payload)[0]
            since = started.pop((event.process, number), None)
            if since is not None:
                values["duration"] += event.time - since
        elif event.id == GC_SUSPEND:
            reason = struct.unpack_from("<I" if event.version else "<H", event.payload)[0]
            suspended[thread] = event.time if reason in FOR_COLLECTION else None
        elif event.id == GC_RESTARTED:
            since = suspended.pop(thread, None)
            if since is not None:
                values["pauses"] += 1
                values["paused"] += event.time - since
                values["max"] = max(values["max"], event.time - since)
    return sums


def text(payload, start):
    """Returns a UTF-16 text that ends with a zero, and the offset after it."""
    end = start
    while payload[end : end + 2] not in (b"\0\0", b""):
        end += 2
    return payload[start:end].decode("utf-16-le"), end + 2


def methods_of(trace, events):
    """Returns the expected values of `top jit` by process, and the numbers of compilations by method."""
    sums, names = collections.defaultdict(collections.Counter), collections.Counter()
    begun = collections.defaultdict(list)
    for event in events:
        compilations = begun[event.process, event.thread]
        if event.id == METHOD_STARTED:
            method, _, _, il_size = struct.unpack_from("<2Q2I", event.payload)
            compilations.append((method, event.time, il_size))
        elif event.id in (METHOD_UNNAMED, METHOD_LOADED):
            method, _, _, size, _, flags = struct.unpack_from("<3Q3I", event.payload)
            if not flags & JITTED:
                continue
            if event.id == METHOD_LOADED:
                namespace, offset = text(event.payload, 36)
                name = text(event.payload, offset)[0]
                names[f"{namespace}.{name}" if namespace else name] += 1
            else:
                names["[no name]"] += 1
            values = sums[event.process]
            values["methods"] += 1
            values["native_bytes"] += size
            known = [index for index, begin in enumerate(compilations) if begin[0] == method]
            if known:
                _, since, il_size = compilations[known[-1]]
                del compilations[known[-1] :]
                values["duration"] += event.time - since
                values["max"] = max(values["max"], event.time - since)
                values["il_bytes"] += il_size
    return sums, names


def disks_of(trace):
    """Returns the expected values of `top disk` by disk, and the number of transfers without a known request."""
    sums, completed = collections.defaultdict(collections.Counter), {}
    requests, unmatched, transfers = {}, 0, collections.defaultdict(list)
    for event in trace.events:
        if event.hook in (0x010C, 0x010D, 0x010F):
            irp, thread = struct.unpack_from("<QI", event.payload)
            requests[irp] = thread
            continue
        if event.hook in (0x010A, 0x010B):
            disk, _, size, _, _, _, irp, response, thread = struct.unpack_from("<4IQ3QI", event.payload)
            names = ("reads", "read_bytes") if event.hook == 0x010A else ("writes", "written_bytes")
            kinds = zip(names, (1, size), strict=True)
        elif event.hook == 0x010E:
            disk, _, response, irp, thread = struct.unpack_from("<2I2QI", event.payload)
            kinds = (("flushes", 1),)
        else:
            continue
        unmatched += requests.pop(irp, None) != thread
        values = sums[str(disk)]
        values.update(dict(kinds))
        values["io_time"] += response
        values["service_time"] += min(response, event.time - completed.get(disk, event.time - response))
        values["max"] = max(values["max"], response)
        completed[disk] = event.time
        transfers[str(disk)].append((event.time - response, event.time))
    for disk, times in transfers.items():
        sums[disk]["busy"] = union(times)
    return sums, unmatched


def union(intervals):
    """Returns the length of the union of intervals."""
    total, end = 0, None
    for start, stop in sorted(intervals):
        if end is None or start > end:
            total += stop - start
        elif stop > end:
            total += stop - end
        end = stop if end is None else max(end, stop)
    return total


def faults_of(trace):
    """Returns the expected values of hard faults."""
    values = collections.Counter()
    for event in trace.events:
        if event.hook == check_top.HARD_FAULT:
            started, _, _, _, _, size = struct.unpack_from("<q3Q2I", event.payload)
            values.update(duration=event.time - started, hard_faults=1, bytes=size)
            values["max"] = max(values["max"], event.time - started)
    return {"hard": values}


def network_of(trace):
    """Returns the expected values of `top network` by process."""
    sums = collections.defaultdict(collections.Counter)
    kinds = {
        10: ("sent_bytes", "sends"),
        11: ("received_bytes", "receives"),
        14: ("retransmitted_bytes", "retransmits"),
    }
    for event in trace.events:
        if event.hook is None or event.hook >> 8 not in (6, 8):
            continue
        kind = event.hook & 0xFF
        kind = kind - 16 if kind >= 26 else kind
        if kind in kinds and not (kind == 14 and event.hook >> 8 == 8):
            process, size = struct.unpack_from("<2I", event.payload)
            amount, count = kinds[kind]
            sums[process].update({amount: size, count: 1, "bytes": 0 if kind == 14 else size})
    return sums


def top(program, metric, path, by):
    command = [program, "top", metric, str(path), "--by", by, "--all", "--format", "json", "-q"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return None if "the trace has no" in run.stderr else sys.exit(f"{' '.join(command)}: {run.stderr}")
    return json.loads(run.stdout)


def compare(name, trace, document, expected, key="pid"):
    """Prints the differences between the rows. Returns whether there are any."""
    rows = {row[key]: row["total"] for row in document["rows"]} if document else {}
    units = {column["name"]: column["unit"] for column in document["columns"]} if document else {}
    expected = {process: values for process, values in expected.items() if any(values.values())}
    faults = [f"row {process}" for process in rows.keys() ^ expected.keys()]
    for process in rows.keys() & expected.keys():
        for column, unit in units.items():
            value = expected[process][column]
            value = trace.nanoseconds(value) if unit == "nanoseconds" else value
            if rows[process][column] != value:
                faults.append(f"row {process}: {column} {rows[process][column]}, expected {value}")
    totals = collections.Counter()
    for values in expected.values():
        totals.update({key: value for key, value in values.items() if key != "max"})
    for fault in faults:
        print(f"{name}: {fault}")
    print(f"{name}: {len(expected)} rows, {dict(totals)}: {'DIFFERENT' if faults else 'equal'}")
    return bool(faults)


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, *paths = sys.argv[1:]
    has_faults = False
    with tempfile.TemporaryDirectory() as folder:
        for path in map(pathlib.Path, paths):
            trace = check_top.Trace(check_top.opened(path, folder))
            events = runtime_events(trace)
            is_known = trace.wide and all(
                event.version >= 3 for event in trace.events if event.hook in (0x010A, 0x010B)
            )
            if is_known:
                (disks, unmatched), faults = disks_of(trace), faults_of(trace)
                document = top(program, "disk", path, "disk")
                has_faults |= compare(f"{path.name}, disk", trace, document, disks, "name")
                remainders = document["remainders"] if document else []
                shown = sum(known["count"] for known in remainders if "without a known request" in known["reason"])
                if shown != unmatched:
                    print(f"{path.name}, disk: {shown} transfers without a known request, expected {unmatched}")
                    has_faults = True
                has_faults |= compare(f"{path.name}, fault", trace, top(program, "fault", path, "kind"), faults, "name")
                network = network_of(trace)
                has_faults |= compare(f"{path.name}, network", trace, top(program, "network", path, "process"), network)
            else:
                print(f"{path.name}: disk, fault and network not checked: an earlier version of their events")
            gc = collections_of(trace, events)
            has_faults |= compare(f"{path.name}, gc", trace, top(program, "gc", path, "process"), gc)
            by_process, names = methods_of(trace, events)
            has_faults |= compare(f"{path.name}, jit", trace, top(program, "jit", path, "process"), by_process)
            document = top(program, "jit", path, "method")
            shown = {row["name"]: row["total"]["methods"] for row in document["rows"]} if document else {}
            if shown != dict(names):
                print(f"{path.name}, jit: the methods differ: {dict(names - collections.Counter(shown))}")
                has_faults = True
            else:
                print(f"{path.name}, jit: {len(names)} methods by name: equal")
    return int(has_faults)


if __name__ == "__main__":
    sys.exit(main())
