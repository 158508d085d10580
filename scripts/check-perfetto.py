#!/usr/bin/env python3
"""Compares a Perfetto trace, read with Perfetto's own message definitions, with folded stacks.

usage: check-perfetto.py TRACE.pftrace STACKS.folded

Both files are profiles of one trace. Every number in a packet must be defined by an earlier packet,
the process, thread and stack of every sample must exist, and the samples must add up to the folded
stacks, line by line.

Needs perfetto and protobuf, which it does not install: pip install perfetto protobuf
"""

import sys
from collections import Counter

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

OTHER_NUMBERS = 1 << 30
CLEARED, NEEDS = 1, 2


def plain(name):
    return "".join(":" if c == ";" else " " if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in name)


class Sequence:
    """The definitions in the packets of a sequence so far."""

    def __init__(self):
        self.text, self.mappings, self.frames, self.stacks = {}, {}, {}, {}

    def learn(self, data):
        for field in ("event_categories", "event_names", "debug_annotation_names"):
            for entry in getattr(data, field):
                self.define(field, entry.iid, entry.name)
        for field in ("function_names", "mapping_paths", "build_ids", "source_paths"):
            for entry in getattr(data, field):
                self.define(field, entry.iid, entry.str.decode())
        for mapping in data.mappings:
            [self.of("mapping_paths", iid) for iid in mapping.path_string_ids]
            if mapping.HasField("build_id"):
                self.of("build_ids", mapping.build_id)
            self.mappings[mapping.iid] = mapping
        for frame in data.frames:
            assert frame.mapping_id in self.mappings, frame
            self.frames[frame.iid] = self.of("function_names", frame.function_name_id)
        for stack in data.callstacks:
            assert stack.frame_ids, stack
            self.stacks[stack.iid] = [self.frames[iid] for iid in stack.frame_ids]

    def define(self, field, iid, text):
        assert iid != 0 and (field, iid) not in self.text, (field, iid)
        self.text[field, iid] = text

    def of(self, field, iid):
        return self.text[field, iid]


def read(path):
    trace = perfetto.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    sequence, processes, threads, tracks = Sequence(), {}, {}, set()
    folded, events, switches = Counter(), 0, 0
    for number, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        if number == 0:
            assert packet.sequence_flags == CLEARED and packet.first_packet_on_sequence
            assert [clock.clock_id for clock in packet.clock_snapshot.clocks] == [6, 1]
            assert packet.trace_packet_defaults.perf_sample_defaults.timebase.period > 0
        if packet.HasField("interned_data"):
            sequence.learn(packet.interned_data)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            tracks.add(track.uuid)
            if track.HasField("process"):
                assert track.process.pid not in processes
                processes[track.process.pid] = track.process.process_name
            else:
                assert track.parent_uuid in tracks and track.thread.pid in processes
                assert track.thread.tid not in threads
                threads[track.thread.tid] = track.thread.pid
        if packet.HasField("perf_sample"):
            sample = packet.perf_sample
            assert packet.sequence_flags == NEEDS and packet.HasField("timestamp")
            assert threads[sample.tid] == sample.pid, sample
            name = processes[sample.pid]
            process = name if sample.pid > OTHER_NUMBERS else f"{name} ({sample.pid})"
            folded[";".join(map(plain, [process, *sequence.stacks[sample.callstack_iid]]))] += 1
        if packet.HasField("track_event"):
            event = packet.track_event
            assert packet.sequence_flags == NEEDS and packet.HasField("timestamp")
            assert event.track_uuid in tracks and event.type == event.TYPE_INSTANT
            sequence.of("event_names", event.name_iid)
            [sequence.of("event_categories", iid) for iid in event.category_iids]
            [sequence.of("debug_annotation_names", note.name_iid) for note in event.debug_annotations]
            if event.HasField("callstack_iid"):
                assert sequence.stacks[event.callstack_iid]
            events += 1
        for event in packet.ftrace_events.event:
            switch = event.sched_switch
            assert event.pid == switch.prev_pid and switch.prev_pid in threads and switch.next_pid in threads
            switches += 1
    return folded, events, switches


def main():
    trace, stacks = sys.argv[1:]
    folded, events, switches = read(trace)
    with open(stacks, encoding="utf-8") as file:
        lines = (line.rstrip("\n").rpartition(" ") for line in file)
        expected = Counter({path: int(weight) for path, _, weight in lines})
    different = [(path, folded[path], expected[path]) for path in folded.keys() | expected.keys()]
    different = [row for row in different if row[1] != row[2]]
    assert not different, different[:5]
    assert folded, "no samples"
    print(f"{folded.total()} samples, {switches} context switches, {events} events: all references are defined")


if __name__ == "__main__":
    main()
