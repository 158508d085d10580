#!/usr/bin/env python3
"""Runs the program on endless, expanding and changing inputs, and prints the costs.

usage: check-limits.py PROGRAM

Prints for each case: seconds, the peaks of anonymous memory and of disk space in MiB, bytes that
remain in the folder for temporary files, and the exit code.
Exit code: 0 all cases are within the printed bounds, 1 a case is not.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib

SECONDS_MAX = 10
MIB_MAX = 128
# Limit of the disk space for unpacked inputs while they are read.
DISK_MIB_MAX = 1024


def overlapping(path, data):
    """Writes an archive with 25 members that share the same bytes."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packed.compress(data) + packed.flush()
    name, crc = b"a.etl", zlib.crc32(data)
    fields = (20, 0, 8, 0, 0, crc, len(body), len(data), len(name), 0)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", *fields) + name + body
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, *fields, 0, 0, 0, 0, 0)
    entries = [entry + b"%c.etl" % letter for letter in range(97, 122)]
    directory = b"".join(entries)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(entries), len(entries), len(directory), len(local), 0)
    path.write_bytes(local + directory + end)


def zeros_packed(path, gigabytes):
    """Writes an archive with one member that expands to many zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("a.etl", "w", force_zip64=True) as member:
            for _ in range(gigabytes * 16):
                member.write(bytes(1 << 26))


def large_traces(path, demo, gigabytes):
    """Writes an archive with a member that begins like a trace and continues with zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("a.etl", "w", force_zip64=True) as member:
            member.write(demo)
            for _ in range(gigabytes * 16):
                member.write(bytes(1 << 26))


def frames_of_zeros(path, megabytes):
    """Writes a Zstandard file of 13-byte frames, each of which expands to 131,072 equal bytes."""
    block = (1 << 17) << 3 | 1 << 1 | 1
    frame = bytes.fromhex("28b52ffd") + b"\x00\x38" + block.to_bytes(3, "little") + b"\0"
    path.write_bytes(frame * (megabytes * 8))


def watched(pid, folder, stop, free, own):
    """Samples the free bytes of the disk, and the anonymous memory in KiB.

    Unlinked files count as used space.
    """
    while not stop.is_set():
        statistics = os.statvfs(folder)
        free.append(statistics.f_bavail * statistics.f_frsize)
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            own.append(next((int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0))
        except OSError:
            pass
        time.sleep(0.005)


def run(program, arguments, folder, meanwhile):
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    stop, free, own = threading.Event(), [], [0]
    before = time.monotonic()
    process = subprocess.Popen(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if meanwhile else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    watcher = threading.Thread(target=watched, args=(process.pid, folder, stop, free, own))
    watcher.start()
    timer = threading.Timer(2 * SECONDS_MAX, process.kill)
    timer.start()
    if meanwhile:
        process.stdout.read(100)
        meanwhile()
        while process.stdout.read(1 << 16):
            pass
    errors = process.stderr.read().decode()
    process.wait()
    timer.cancel()
    seconds = time.monotonic() - before
    stop.set()
    watcher.join()
    disk = (max(free) - min(free)) >> 20
    left = sum(entry.stat().st_size for entry in temporary.rglob("*") if entry.is_file())
    message = errors.strip().splitlines()[-1] if errors.strip() else ""
    return seconds, max(own) / 1024, disk, left, process.returncode, message


def cases(program, folder):
    """Yields name, arguments, expected exit code, and a function to call during the run."""
    subprocess.run([program, "demo", "-q", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    demo = folder / "stackhound-demo.etl"
    subprocess.run(
        [program, "demo", "-q", "--events", "200000", "--out", folder / "large"], check=True, stdout=subprocess.DEVNULL
    )
    large = folder / "large/stackhound-demo.etl"
    os.mkfifo(folder / "pipe.etl")
    overlapping(folder / "overlapping.etl.zip", demo.read_bytes())
    zeros_packed(folder / "zeros.etl.zip", 4)
    large_traces(folder / "long.etl.zip", demo.read_bytes(), 1)
    frames_of_zeros(folder / "zeros.etl.zst", 4096)
    mixed = folder / "mixed"
    mixed.mkdir()
    (mixed / "a.etl").write_bytes(demo.read_bytes())
    (mixed / "empty.etl").write_bytes(b"")
    (mixed / "random.etl").write_bytes(os.urandom(1 << 20))
    yield "a pipe without a writer as trace", ["info", folder / "pipe.etl"], 2, None
    for device in ("/dev/zero", "/dev/urandom"):
        yield f"{device} as trace", ["info", device], 2, None
        yield f"{device} as trace for hunt", ["hunt", device], 2, None
        yield f"{device} as --config", ["events", "--config", device, demo], 2, None
        yield f"{device} as --lists", ["hunt", "--lists", device, demo], 2, None
        yield f"{device} as --known-images", ["hunt", "--known-images", device, demo], 2, None
        yield f"{device} as --manifest", ["providers", "--manifest", device], 2, None
    yield "an archive of overlapping members", ["info", folder / "overlapping.etl.zip"], 2, None
    yield "an archive of 4 GiB of zeros", ["info", folder / "zeros.etl.zip"], 2, None
    yield "an archive of a trace and 1 GiB of zeros", ["info", folder / "long.etl.zip"], 0, None
    yield "Zstandard frames of 4 GiB of zeros", ["info", folder / "zeros.etl.zst"], 2, None
    yield "a folder with an empty and a random file", ["info", mixed], 2, None
    yield "a trace that shrinks while it is read", ["events", "-q", large], 2, lambda: os.truncate(large, 65536)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    failed = 0
    print(f"bounds: {SECONDS_MAX} s, {MIB_MAX} MiB of memory, {DISK_MIB_MAX} MiB of disk, no temporary files left")
    print("seconds     MiB    disk    left  code  input")
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments, expected, meanwhile in cases(program, pathlib.Path(folder)):
            seconds, memory, disk, left, code, message = run(program, arguments, pathlib.Path(folder), meanwhile)
            within = seconds <= SECONDS_MAX and memory <= MIB_MAX and disk <= DISK_MIB_MAX and left == 0
            is_reported = expected == 0 or "error: " in message or "skipped" in message
            is_right = within and code == expected and is_reported
            failed += not is_right
            mark = "" if is_right else "  FAILED: " + message
            print(f"{seconds:7.2f} {memory:7.0f} {disk:7} {left:7} {code:5}  {name}{mark}", flush=True)
    print(f"{failed} cases out of bounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
