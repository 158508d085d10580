#!/usr/bin/env bash
# Measures against exact stacks of Windows programs: the checks of return addresses of hunt, and the call trees that are built
# from recorded stacks. The programs run in Wine, and Wine in QEMU, which records every call.
#
# usage: pe-truth.sh [PROGRAM]
#   PROGRAM: stackhound; by default, it is built with optimization
#
# docs/hunt.md and docs/calltree.md contain the figures. Ends without a check, and says so, if there is no qemu-x86_64 with
# plugins in PATH (docs/exact.md says how to build it), or if Wine or a compiler for Windows cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
target=$(scripts/target-folder)
folder=$(realpath -m "$target")/pe-truth
mkdir -p "$folder/images"
if ! { command -v qemu-x86_64 && qemu-x86_64 -plugin help; } >/dev/null 2>&1; then
  echo "skipped: there is no qemu-x86_64 with plugins in PATH"
  exit
fi
packages=(gcc-mingw-w64-x86-64-win32 mingw-w64-x86-64-dev wine wine64)
if ! { dpkg-query -W "${packages[@]}" >/dev/null 2>&1 ||
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; }; }; then
  echo "skipped: Wine and a compiler for Windows cannot be installed"
  exit
fi
program=${1:-$target/release/stackhound}
if [ $# = 0 ]; then cargo build --quiet --locked --release -p stackhound-cli; fi
cargo build --quiet --locked -p stackhound-record-qemu --example pe_truth
cargo build --quiet --locked -p stackhound --example merge_truth
examples=$target/debug/examples

# Sections that are aligned to pages are mapped from the file, so that the recorder sees the file.
x86_64-w64-mingw32-gcc -O2 -Wall -Wextra -o "$folder/images/windows.exe" crates/record/qemu/tests/windows.c \
  -Wl,--file-alignment,4096 -Wl,--section-alignment,4096 -ladvapi32
export WINEPREFIX=$folder/prefix WINEDEBUG=-all
[ -e "$WINEPREFIX" ] || wineboot --init 2>/dev/null
libraries=$(dirname "$(dpkg -L libwine | grep '/x86_64-windows/ntdll.dll$')")
find "$libraries" -name '*.dll' -o -name '*.exe' | xargs ln -sf -t "$folder/images"

check() {
  local name=$1
  shift
  local results=$folder/$name
  mkdir -p "$results"
  echo "== $*"
  # Without the variable, Wine executes itself again, outside of QEMU.
  WINELOADERNOEXEC=1 timeout 300 "$examples/pe_truth" "$results" /usr/lib/wine/wine64 "$@" >"$results/output"
  tail -n 1 "$results/output"
  for trace in exact forged; do
    "$program" hunt "$results/$trace.etl" --images "$folder/images" --only CS11,CS12,CS13,CS16 --min-severity info \
      --format ndjson --all --exit-zero -q >"$results/$trace.findings"
  done
  python3 - "$results" <<'PYTHON'
import collections, json, sys

CHECKS = ["CS11", "CS12", "CS13", "CS16"]
folder = sys.argv[1]


def read(name):
    lines = [json.loads(line) for line in open(f"{folder}/{name}.jsonl")]
    # Times in units of 100 ns, which are also in the file of the truth.
    verdicts = collections.defaultdict(dict)
    for line in open(f"{folder}/{name}.findings"):
        found = json.loads(line)
        if found["type"] == "finding":
            time = int(found["time"].split(".")[1].rstrip("Z"))
            verdicts[time][found["detection"]] = found["verdict"]
    return lines, verdicts


lines, verdicts = read("exact")
undetermined = [time for time, *_ in lines if "undetermined" in verdicts[time].values()]
wrong = {check: sum(verdicts[time].get(check) == "yes" for time, *_ in lines) for check in CHECKS}
print(f"{len(lines)} exact stacks with {sum(len(frames) for _, _, frames in lines)} frames: findings {wrong}, "
      f"{len(undetermined)} stacks undetermined")

lines, verdicts = read("forged")
known = {time for time, _ in lines}
rows = collections.defaultdict(collections.Counter)
for time, kind in lines:
    row = rows[kind]
    row["all"] += 1
    found = [check for check in CHECKS if verdicts[time].get(check) == "yes"]
    for check in found or ["missed"]:
        row[check] += 1
print("".join(f"{name:>14}" for name in ["forgery", "stacks", *CHECKS, "found"]))
for kind, row in sorted(rows.items()):
    share = 100 * (row["all"] - row["missed"]) / row["all"]
    print(f"{kind:>14}{row['all']:>14}" + "".join(f"{row[check]:>14}" for check in CHECKS) + f"{share:>12.1f} %")
if sum(wrong.values()) or rows["Genuine"]["all"] != rows["Genuine"]["missed"]:
    sys.exit("pe-truth.sh: a genuine stack has findings")
if not any(set(found) & set(CHECKS) for time, found in verdicts.items() if time in known):
    sys.exit("pe-truth.sh: no forged stack has findings")
PYTHON
  "$examples/merge_truth" "$results/exact.etl" "$results/exact.jsonl" "$folder/images"
}

check windows "$folder/images/windows.exe"
check cmd 'C:\windows\system32\cmd.exe' /c 'dir /s C:\windows\system32\drivers & set & ver'
check attrib 'C:\windows\system32\attrib.exe' 'C:\windows\system32\k*.dll'
wineserver -k 2>/dev/null || true
