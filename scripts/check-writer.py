#!/usr/bin/env python3
"""Checks traces of the writer of stackhound-etl with an independent reader, dissect.etl.

usage: check-writer.py [FOLDER]

Runs the example `write_sample`, which writes traces and descriptions of their records, and compares
each record that dissect.etl reads with its description: header kind, processor, time stamps, ids,
event identity, counters, extended items and payload. FOLDER keeps the traces; without it they are
removed.

Needs dissect.etl, which it does not install: pip install dissect.etl
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    from dissect.etl import etl as dissect_etl
    from dissect.etl.headers.event import EventHeaderExtendedDataItem
except ImportError:
    print("dissect.etl is missing; pip install dissect.etl", file=sys.stderr)
    sys.exit(2)

NOT_CHECKED = """\
Not checked, because dissect.etl cannot read it:
  WPP messages with a component id (it raises NotImplementedError)
  WPP messages with only the performance timestamp bit (it reads no time stamp, although we write one)
  the link bit of extended items (it reads the payload as further items)
  types of extended items from 0x0e on (it has no names for them; their data is checked)
  the first 0x50 bytes of ERROR records (it names no fields)
  unfinished and circular files (it trusts BuffersWritten)
  deliberately lost records (it ignores sequence numbers and flags)"""

KINDS = {
    1: "SYSTEM32",
    2: "SYSTEM64",
    3: "COMPACT32",
    4: "COMPACT64",
    10: "FULL32",
    11: "INSTANCE32",
    13: "ERROR",
    15: "MESSAGE",
    16: "PERFINFO32",
    17: "PERFINFO64",
    18: "EVENT32",
    19: "EVENT64",
    20: "FULL64",
    21: "INSTANCE64",
}
FIRST_UNNAMED_ITEM = 0x0E
# In units of 100 ns. dissect.etl converts with floating-point numbers, which have a resolution of
# 16 units for current dates.
FILE_TIME_TOLERANCE = 16


def main():
    if len(sys.argv) > 1:
        return check_folder(pathlib.Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        return check_folder(pathlib.Path(folder))


def check_folder(folder):
    root = pathlib.Path(__file__).resolve().parent.parent
    cargo = os.environ.get("CARGO", "cargo")
    # Built like the whole workspace, so that the artifacts of its tests are reused.
    build = [cargo, "build", "--quiet", "--locked", "--workspace", "--example", "write_sample"]
    subprocess.run(build, cwd=root, check=True)
    target = pathlib.Path(subprocess.check_output([root / "scripts" / "target-folder"], text=True).strip())
    subprocess.run([target / "debug" / "examples" / "write_sample", folder.resolve()], check=True)
    traces = sorted(folder.glob("*.etl"))
    if not traces:
        print("write_sample wrote nothing", file=sys.stderr)
        return 2
    faults = sum([check_trace(trace) for trace in traces])
    print(NOT_CHECKED)
    return 1 if faults else 0


def check_trace(path):
    """Prints one line for a trace, and its first differences. Returns the number of differences."""
    with path.with_suffix(".jsonl").open() as lines:
        expected = collections.defaultdict(list)
        for line in lines:
            record = json.loads(line)
            expected[record["processor"]].append(record)
    counts = collections.Counter()
    faults = []
    with path.open("rb") as file:
        trace = dissect_etl.ETL(file)
        # The first buffer contains the logfile header, which is already read.
        for buffer in list(trace.buffers())[1:]:
            processor = processor_of(buffer.header)
            for record in buffer:
                header = record.header
                kind = KINDS[header._marker.header_type]
                counts[kind] += 1
                queue = expected[processor]
                if not queue:
                    faults.append(f"processor {processor}: an additional record, {kind}")
                    continue
                faults.extend(f"{path.name}: {fault}" for fault in compare(trace, header, kind, queue.pop(0)))
    left = sum(len(queue) for queue in expected.values())
    if left:
        faults.append(f"{path.name}: {left} records were not read")
    verdict = f"{len(faults)} differences" if faults else "equal"
    print(f"{path.name}: {sum(counts.values())} records, {verdict}:", *(f"{k} {n}" for k, n in sorted(counts.items())))
    for fault in faults[:10]:
        print(f"  {fault}")
    return len(faults)


def processor_of(header):
    index_has_16_bits = int(header.BufferFlag) & 0x20
    return header.ProcessorIndex if index_has_16_bits else header.ProcessorIndex & 0xFF


def compare(trace, header, kind, expected):
    """Yields the differences of a record from its description."""
    read = {"kind": kind, "payload": None, "extras": "", "items": []}
    data = bytes(header.data[: header.size])
    if kind == "MESSAGE":
        read.update(message_of(header, data))
    elif kind == "ERROR":
        read.update(identity="", payload=data[0x50:].hex(), extras="", timed=False, issued=False)
    else:
        read.update(timed=True, time=header.time_delta)
        read["issued"] = not kind.startswith("PERFINFO")
        payload = bytes(header.payload)
        if kind.startswith("EVENT"):
            # Each item must be at the offset that the previous one states. The payload is last.
            for number, _ in expected["items"]:
                item = EventHeaderExtendedDataItem(payload)
                item_type = int(item.ext_type) if number < FIRST_UNNAMED_ITEM else number
                read["items"].append([item_type, bytes(item.raw_data).hex()])
                payload = payload[item.size :]
        elif kind.startswith("PERFINFO"):
            read["extras"] = data[0x10 : header.minimal_size].hex()
        elif kind.startswith("INSTANCE"):
            fields = header.header
            ids = [fields.InstanceId, fields.ParentInstanceId]
            read["extras"] = b"".join(n.to_bytes(4, "little") for n in ids).hex() + bytes(fields.ParentGuid).hex()
        read["payload"] = payload.hex()
        hook_id = getattr(header, "hook_id", None)
        read["identity"] = f"{hook_id:04x}" if hook_id is not None else bytes(header.header.ProviderId).hex()
    if read["issued"]:
        ids = (header.thread_id, header.process_id)
        if ids != (4321, 1234):
            yield f"{kind}: thread and process {ids}"
    if read["timed"]:
        file_time = trace.get_filetime_for_event(read["time"])
        if abs(file_time - expected["file_time"]) > FILE_TIME_TOLERANCE:
            yield f"{kind}: time {file_time}, expected {expected['file_time']}"
    for key, value in read.items():
        if value != expected[key]:
            yield f"{kind} {expected['identity']}: {key} is {value}, expected {expected[key]}"


def message_of(header, data):
    options = int(header.event_property)
    payload = bytes(header.payload)
    parts = 4 * bool(options & 0x01) + 16 * bool(options & 0x02) + 8 * bool(options & 0x08) + 8 * bool(options & 0x20)
    identity = f"{header.id}/{options:02x}"
    if options & 0x01 and header.sequence_number != 5:
        identity += f" with sequence number {header.sequence_number}"
    if options & 0x02 and str(header.provider_id) != "9e814aad-3204-11d2-9a82-006008a86939":
        identity += f" with GUID {header.provider_id}"
    read = {"identity": identity, "payload": payload[parts:].hex()}
    read["timed"] = header.time_delta is not None
    if read["timed"]:
        read["time"] = header.time_delta
    read["issued"] = header.thread_id is not None
    return read


if __name__ == "__main__":
    sys.exit(main())
