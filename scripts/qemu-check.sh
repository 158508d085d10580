#!/usr/bin/env bash
# Boots the Debian cloud kernel with busybox in QEMU, records it, and checks the trace: the number of instructions is that
# of QEMU's own counting plugin, all transitions between user and kernel mode are recognized, 99.99 % of returns are
# matched, functions of the kernel have the names that the kernel itself states, the stacks of a known program are those
# of its trace with ptrace, all system calls, interrupts, page faults, switches and signals have the expected frames, and
# functions that retpolines and tail calls reach are found: as often as the records of the plugin show to a model without
# frames.
# Prints the slow-down over QEMU without plugin, the bytes per record, and the time to build the index.
#
# usage: qemu-check.sh [--short PROGRAM]
#   --short: one boot of each kind with this program, without limits for times, and without QEMU's own plugin, which is
#   built from QEMU's source
#
# The system is that of boot-linux.sh. Ends without a check, and says so, if QEMU cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
short=${2:-}
target=$(scripts/target-folder)
folder=$(realpath -m "$target")/qemu
mkdir -p "$folder"

status=0
scripts/boot-linux.sh --prepare || status=$?
if [ "$status" = 3 ]; then
  echo "skipped: QEMU cannot be installed"
  exit
fi
[ "$status" = 0 ]

if [ -n "$short" ]; then
  program=$short rounds=1
else
  cargo build --quiet --locked --profile dist -p stackhound-cli
  program=$target/dist/stackhound rounds=3
fi
console="console=ttyS0 quiet panic=-1"

now() { date +%s%N; }
seconds() { awk -v start="$1" -v end="$2" 'BEGIN { printf "%.2f", (end - start) / 1e9 }'; }
median() { sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

plain() {
  qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 1 -m 512 -nodefaults -display none -no-reboot -serial stdio \
    -kernel "$folder/vmlinuz" -initrd "$folder/initrd.gz" -append "$console"
}
recorded() {
  "$program" record --exact --system "$folder/vmlinuz" --initrd "$folder/initrd.gz" -o "$folder/boot.calls" -- \
    -append "$console" "$@" 2>"$folder/closing"
}

: >"$folder/plain.times"
: >"$folder/recorded.times"
for ((round = 0; round < rounds; round++)); do
  start=$(now) && plain >"$folder/console" && seconds "$start" "$(now)" >>"$folder/plain.times"
  echo >>"$folder/plain.times"
  # The short form runs what README.md shows, which also opens the call tree.
  start=$(now)
  if [ -n "$short" ]; then scripts/boot-linux.sh "$program"; else recorded >"$folder/console"; fi
  seconds "$start" "$(now)" >>"$folder/recorded.times"
  echo >>"$folder/recorded.times"
done
grep -q '^1000' "$folder/console" || { echo "qemu-check.sh: the system did not count to 1000" >&2; exit 1; }
cat "$folder/closing"

# Every return by what became of it.
python3 - "$folder/closing" <<'PYTHON'
import re, sys

line = open(sys.argv[1]).read().splitlines()[-1]
if "not recognized" in line or "beyond the limit" in line:
    sys.exit(f"qemu-check.sh: {line}")
for mode in ["kernel", "user"]:
    part = re.search(rf"in {mode} mode: ([\d,]+) of ([\d,]+) matched(.*?), (?:in user mode|[\d,]+ interrupts)", line)
    number = lambda text: int(text.replace(",", ""))
    matched, every = number(part[1]), number(part[2])
    others = {kind: number(count) for count, kind in re.findall(r"([\d,]+) ([a-z ]+)", part[3])}
    # Those of forked processes, whose parents made the calls.
    below = others.get("from calls before the recording", 0)
    others = every - others.get("used as jumps", 0)
    share = (matched + below) / others
    print(f"{mode} mode: {100 * share:.4f} % of {others:,} returns have a call, {below:,} of them on an unknown stack")
    if share < 0.9999:
        sys.exit("qemu-check.sh: expected at least 99.99 %")
PYTHON

before=$(median <"$folder/plain.times")
after=$(median <"$folder/recorded.times")
records=$(sed -n 's/.* \([0-9,]*\) calls.*/\1/p' "$folder/closing" | tail -n 1)
bytes=$(stat -c %s "$folder/boot.calls")
rm -f "$folder/boot.calls.index"
start=$(now)
"$program" threads "$folder/boot.calls" --by stack --format json >"$folder/stacks.json"
index=$(seconds "$start" "$(now)")
awk -v before="$before" -v after="$after" -v bytes="$bytes" -v index_time="$index" -v calls="${records//,/}" 'BEGIN {
  printf "plain %s s, recorded %s s: %.2f times as slow; %.2f bytes per call or return; index in %s s\n",
    before, after, after / before, bytes / calls / 2, index_time }'

# A known program, and the symbols that the kernel states.
"$program" record --exact -q -o "$folder/known.calls" -- "$folder/root/bin/known"
scripts/compare-stacks.py "$program" known "$folder/known.calls" "$folder/boot.calls"
functions='vmlinux!{x64_*,native_*,do_user_*,__switch_to*,switch_*,fpu_*,arch_*,ptep_*,load_*}'
"$program" calls -q "$folder/boot.calls" "$functions" --process known --limit 100000 --format json >"$folder/calls.json"
python3 - "$folder/calls.json" "$folder/console" <<'PYTHON'
import json, re, sys

calls, console = (open(path, errors="replace").read() for path in sys.argv[1:])
stated = {}
for address, name in re.findall(r"^([0-9a-f]{16}) [tT] (\S+)\r?$", console, re.MULTILINE):
    stated.setdefault(int(address, 16), set()).add(name)
found = {(call["symbol"], int(call["address"], 16)) for call in json.loads(calls)["calls"] if not call["offset"]}
# The kernel was asked for its first symbols only.
compared = {(name, address) for name, address in found if min(stated) <= address <= max(stated)}
for name, address in compared:
    if name not in stated.get(address, []):
        sys.exit(f"qemu-check.sh: {name} is at {address:#x} in the trace, but not for the kernel")
print(f"{len(compared)} functions that were called are at the addresses that the kernel states")
if len(compared) < 20:
    sys.exit("qemu-check.sh: expected at least 20")
PYTHON
# As the whole workspace, so that the artifacts of its tests are reused.
STACKHOUND_BOOT=$folder/boot.calls cargo test --quiet --locked --workspace --test stacks

# Functions that the kernel calls through retpolines, and one that it reaches by a tail call. `head` writes each of 4000
# lines by itself.
found() {
  "$program" calls -q "$folder/boot.calls" "$1" --limit 1 --format json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["found"])'
}
thunks=$(found 'vmlinux!__x86_indirect_*') writes=$(found 'vmlinux!n_tty_write') tail_calls=$(found 'vmlinux!ksys_write')
echo "$thunks calls of thunks, $writes of n_tty_write, $tail_calls of ksys_write"
if [ "$thunks" != 0 ] || [ "$writes" -lt 4000 ] || [ "$tail_calls" -lt 4000 ]; then
  echo "qemu-check.sh: expected no calls of thunks, and at least 4000 of n_tty_write and of ksys_write" >&2
  exit 1
fi
cargo build --quiet --locked --workspace --example jumps
"$(scripts/target-folder)/debug/examples/jumps" \
  "$folder/vmlinuz" "$folder/initrd.gz" "$folder/jumps.calls" -append "$console" >/dev/null

if [ -n "$short" ]; then exit; fi

# QEMU's own counting plugin runs at the same time as ours.
apt-get install -y -qq --no-install-recommends libglib2.0-dev pkg-config wget xz-utils
source=$folder/source
if ! [ -e "$source/insn.so" ]; then
  mkdir -p "$source"
  # The source of the installed version. The list of sources can be newer than it.
  version=$(dpkg-query -W -f '${source:Upstream-Version}' qemu-system-x86)
  wget -q -O "$source/qemu.tar.xz" "http://deb.debian.org/debian/pool/main/q/qemu/qemu_$version.orig.tar.xz"
  tar -C "$source" --strip-components 1 --wildcards -xf "$source/qemu.tar.xz" \
    '*/tests/tcg/plugins/insn.c' '*/include/qemu/qemu-plugin.h'
  # The version of the interface is part of the header.
  gcc -shared -fPIC -O2 -I "$source/include/qemu" $(pkg-config --cflags glib-2.0) \
    -o "$source/insn.so" "$source/tests/tcg/plugins/insn.c"
fi
recorded -plugin "file=$source/insn.so,inline=on" -d plugin -D "$folder/counted" >"$folder/console"
counted=$(sed -n 's/.*insns: \([0-9]*\).*/\1/p' "$folder/counted" | tail -n 1)
executed=$(sed -n 's/.* \([0-9,]*\) instructions.*/\1/p' "$folder/closing" | tail -n 1)
echo "instructions: $counted counted by QEMU's plugin, ${executed//,/} by ours"
[ "$counted" = "${executed//,/}" ]

awk -v before="$before" -v after="$after" -v index_time="$index" 'BEGIN { exit !(after / before <= 1.6 && index_time <= 10) }' ||
  { echo "qemu-check.sh: expected at most 1.6 times the time of QEMU without plugin, and an index in 10 s" >&2; exit 1; }
