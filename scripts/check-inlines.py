#!/usr/bin/env python3
"""Checks inlined functions and source lines of PDBs with the DWARF information of the same code.

usage: check-inlines.py PROGRAM [SEED...]

Generates C programs of functions that are inlined into each other, compiles each with clang to one object
file with both CodeView and DWARF, and links it twice with lld-link: with a PDB and with DWARF. Then compares
the inlined functions, their lines and the function at each address of the code, as `PROGRAM symbols lookup`
reads them from the PDB, with those that llvm-symbolizer reads from DWARF.

Not compared: addresses between functions, lines that DWARF marks as 0 (code of no line), and two lines of
functions that are not inlined. In the prologue, clang writes the line of the name into DWARF, and the first
line of the body into CodeView. Where a function starts with inlined code, CodeView has no line for the call.
(llvm-symbolizer of LLVM 14 also reads PDBs, but with wrong lines in inlined functions.)

Needs clang, lld-link and llvm-symbolizer (Debian: clang lld llvm), which it does not install.
Exit code: 0 equal, 1 a difference, 2 something is missing.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

FUNCTIONS = 24
NAME = re.compile(r"(?:static inline )?(?:int|void) (\w+)\(")
TOOLS = ["clang", "lld-link", "llvm-symbolizer"]


def program(seed):
    """The source of a program: each function calls some of the previous ones."""
    chosen = random.Random(seed)
    lines = ["volatile int sink;", ""]
    for number in range(FUNCTIONS):
        is_inlined = number < FUNCTIONS - 6 or chosen.random() < 0.5
        lines.append(f"__attribute__(({'always_inline' if is_inlined else 'noinline'}))")
        lines.append(f"{'static inline ' if is_inlined else ''}int f{number}(int x) {{")
        for _ in range(chosen.randrange(1, 5)):
            lines += [""] * chosen.choice([0, 0, 0, 1, 70])
            kind = chosen.randrange(4)
            if kind == 0 or number == 0:
                lines.append(f"  sink = x + {chosen.randrange(100)};")
            elif kind == 1:
                lines += [f"  if (sink > {chosen.randrange(100)}) {{", "    x ^= sink;", "  }"]
            else:
                # Few calls of functions with many calls, so that the code stays small.
                lines.append(f"  x += f{chosen.randrange(max(0, number - 5), number)}(x + sink);")
        lines += ["  return x * sink;", "}", ""]
    calls = "".join(f"  sink = f{number}(sink);\n" for number in range(FUNCTIONS - 6, FUNCTIONS))
    return "\n".join(lines) + "\nvoid entry(void) {\n" + calls + "}\n"


def code(image):
    """The addresses of the code of an image."""
    data = open(image, "rb").read()
    number = lambda at, size: int.from_bytes(data[at : at + size], "little")
    header = number(60, 4)
    section = header + 24 + number(header + 20, 2)
    while data[section : section + 8].rstrip(b"\0") != b".text":
        section += 40
    return range(number(section + 12, 4), number(section + 12, 4) + number(section + 8, 4))


def ours(stackhound, image, addresses):
    """Functions and lines at each address, innermost first."""
    found = []
    for first in range(0, len(addresses), 1000):
        part = [str(address) for address in addresses[first : first + 1000]]
        command = [stackhound, "symbols", "lookup", "--image", image, "--format", "json", "-q", *part]
        for row in json.loads(subprocess.run(command, check=True, capture_output=True).stdout):
            line = lambda source: source["line"] if source else None
            frames = [(inline["function"], line(inline["source"])) for inline in row["inlines"]]
            found.append(frames + [(row["pdb"]["name"] if row["pdb"] else None, line(row["source"]))])
    return found


def dwarf(image, addresses):
    text = "".join(f"{address:#x}\n" for address in addresses)
    command = ["llvm-symbolizer", f"--obj={image}", "--relative-address", "--inlines"]
    result = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    found = []
    for block in result.stdout.strip("\n").split("\n\n"):
        lines = block.split("\n")
        frames = zip(lines[::2], lines[1::2])
        found.append([(name, int(place.rsplit(":", 2)[1])) for name, place in frames])
    return found


def is_same(pdb, dwarf, definitions):
    """Whether both agree, except for what is not compared."""
    if [name for name, _ in pdb] != [name for name, _ in dwarf]:
        return False
    outermost = len(pdb) - 1
    for depth, ((_, line), (_, expected)) in enumerate(zip(pdb, dwarf)):
        is_absent = line is None and depth == outermost > 0
        is_prologue = outermost == 0 and definitions[dwarf[0][0]] == expected
        if line != expected and expected != 0 and not is_absent and not is_prologue:
            return False
    return True


def check(stackhound, folder, seed):
    path = lambda name: os.path.join(folder, name)
    text = program(seed)
    with open(path("a.c"), "w") as source:
        source.write(text)
    names = enumerate(map(NAME.match, text.split("\n")), 1)
    definitions = {name[1]: line for line, name in names if name}
    target = ["clang", "--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-gdwarf"]
    subprocess.run([*target, "-c", "a.c", "-o", "a.obj"], cwd=folder, check=True)
    link = ["lld-link", "/entry:entry", "/subsystem:console", "/nodefaultlib", "a.obj"]
    for out, kind in [("pdb.exe", ["/debug:full", "/pdb:pdb.pdb"]), ("dwarf.exe", ["/debug:dwarf"])]:
        subprocess.run([*link, *kind, f"/out:{out}"], cwd=folder, check=True, capture_output=True)
    addresses = list(code(path("pdb.exe")))
    assert addresses == list(code(path("dwarf.exe"))), "different code"
    rows = list(zip(addresses, ours(stackhound, path("pdb.exe"), addresses), dwarf(path("dwarf.exe"), addresses)))
    # DWARF extends the last line of a function to the next one.
    rows = [(address, pdb, dwarf) for address, pdb, dwarf in rows if pdb[-1][0] is not None]
    wrong = [row for row in rows if not is_same(row[1], row[2], definitions)]
    inlined = sum(len(pdb) > 1 for _, pdb, _ in rows)
    deepest = max(len(pdb) for _, pdb, _ in rows) - 1
    lines = sum(line is not None for _, pdb, _ in rows for _, line in pdb)
    print(f"seed {seed}: {len(rows)} addresses, {inlined} in inlined functions (up to {deepest}), {lines} lines, "
          f"{len(wrong)} different")
    for address, pdb, dwarf_frames in wrong[:5]:
        print(f"  {address:#x}: PDB {pdb}, DWARF {dwarf_frames}")
    assert inlined > len(rows) // 4 and deepest >= 2, "too few inlined functions to compare"
    return not wrong


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"missing: {', '.join(missing)}; on Debian: apt-get install clang lld llvm", file=sys.stderr)
        sys.exit(2)
    stackhound = os.path.abspath(sys.argv[1])
    seeds = [int(seed) for seed in sys.argv[2:]] or range(1, 9)
    is_equal = True
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            is_equal &= check(stackhound, folder, seed)
    sys.exit(0 if is_equal else 1)


main()
