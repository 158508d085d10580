#!/usr/bin/env python3
"""Compares the output of `providers` for images with an independent reader, dissect.eventlog.

usage: check-manifests.py PROGRAM IMAGE...

The images contain compiled manifests (resource WEVT_TEMPLATE), such as clretwrc.dll of .NET Core or
node.exe up to version 18. Compares for each provider: ids, versions, channels, levels, opcodes,
tasks and keywords of all events, the names of their fields, and the names of keywords and maps.
IMAGE can also be a Python wheel, whose images are then read.

Needs dissect.eventlog and pefile, which it does not install: pip install dissect.eventlog pefile
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import io
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

try:
    import pefile
    from dissect.eventlog.wevt import CRIM
except ImportError as error:
    print(f"{error.name} is missing; pip install dissect.eventlog pefile", file=sys.stderr)
    sys.exit(2)

RESOURCE = "WEVT_TEMPLATE"


def images(path, folder):
    """Returns the images with manifests: the file itself, or those in a wheel."""
    if not zipfile.is_zipfile(path):
        return [path]
    found = []
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.lower().endswith((".dll", ".exe")):
                data = wheel.read(name)
                if RESOURCE.encode("utf-16le") in data:
                    image = folder / pathlib.PurePath(name).name
                    image.write_bytes(data)
                    found.append(image)
    return found


def manifest(image):
    pe = pefile.PE(str(image), fast_load=True)
    pe.parse_data_directories(pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_RESOURCE"])
    for kind in pe.DIRECTORY_ENTRY_RESOURCE.entries:
        if str(kind.name) == RESOURCE:
            data = kind.directory.entries[0].directory.entries[0].data.struct
            return pe.get_data(data.OffsetToData, data.Size)
    sys.exit(f"{image}: no {RESOURCE}")


def number(value):
    return int.from_bytes(value, "little") if isinstance(value, bytes) else value


def theirs(provider):
    """Returns a provider as dissect.eventlog reads it, in our form."""
    events, templates, keywords, maps = [], {}, [], []
    for section in provider:
        for item in section:
            if section.signature == "EVNT":
                events.append(item)
            elif section.signature == "TTBL":
                templates[item.offset] = sorted(field.name for field in item.names)
            elif section.signature == "KEYW":
                keywords.append((item.bitmask, item.name))
            elif section.signature == "MAPS":
                maps.append(item.name)
    parts = ("id", "version", "channel", "level", "opcode", "task", "keyword")
    rows = [
        (*(number(getattr(event, part)) for part in parts), templates.get(event.template_offset, [])) for event in events
    ]
    return {"events": rows, "keywords": keywords, "maps": sorted(maps)}


def names(fields):
    return [name for field in fields for name in (field["name"], *names(field.get("fields", [])))]


def ours(program, image, guid):
    command = [program, "--quiet", "providers", guid, "--manifest", str(image), "--format", "json"]
    provider = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]
    parts = ("id", "version", "channel", "level", "opcode", "task")
    rows = [
        (*(event[part] for part in parts), int(event["keyword"], 16), sorted(names(event["fields"])))
        for event in provider["events"]
    ]
    keywords = [(int(keyword["mask"], 16), keyword["name"]) for keyword in provider["keywords"]]
    return {"events": rows, "keywords": keywords, "maps": sorted(found["name"] for found in provider["maps"])}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, differences, checked = sys.argv[1], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[2:]:
            for image in images(path, pathlib.Path(folder)):
                for provider in CRIM(io.BytesIO(manifest(image))).wevt_headers():
                    guid = str(provider.provider_id)
                    expected, found = theirs(provider), ours(program, image, guid)
                    checked += len(expected["events"])
                    for part in expected:
                        if expected[part] != found[part]:
                            differences += 1
                            print(f"{image} {guid}: {part} differ\n  {expected[part]}\n  {found[part]}")
    print(f"{checked} events of compiled manifests compared, {differences} differences")
    sys.exit(1 if differences or not checked else 0)


main()
