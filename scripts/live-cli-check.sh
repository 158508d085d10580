#!/usr/bin/env bash
# Tests live sessions on the command line in Wine, with the test fake in place of ETW:
# `events --live`, `hunt --live`, `kstack --live`, `record`, and the two tutorial programs. Needs
# .ci/setup-windows.
#
# usage: live-cli-check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
gnu=x86_64-pc-windows-gnu
target=${STACKHOUND_WINDOWS_TARGET:-$PWD/target/windows}
export STACKHOUND_WINDOWS_TARGET=$target
folder=$(mktemp -d)
finish() {
  rm -rf "$folder" || true
  scripts/with-windows timeout 20 /usr/lib/wine/wineserver64 --wait || scripts/with-windows wineserver --kill || true
}
trap finish EXIT
step() { printf '\n-- %s (%s s)\n' "$*" "$SECONDS"; }
fail() {
  echo "live-cli-check: $*" >&2
  exit 1
}
# Checks that a file has, or does not have, a matching line.
has() { grep -Eq -- "$2" "$1" || { cat "$1" >&2; fail "$1 has no line like: $2"; }; }
has_not() { ! grep -Eq -- "$2" "$1" || { cat "$1" >&2; fail "$1 has a line like: $2"; }; }

step "programs"
scripts/with-fake
export STACKHOUND_FAKE_BUILT=$target/fake
scripts/windows-cargo build --quiet --bin stackhound --examples
built=$target/$gnu/cross
# Runs the program with the fake. The function `fake` writes the settings.
live() {
  local status=0
  scripts/with-fake "$built/stackhound.exe" "$@" >"$folder/out" 2>"$folder/err" || status=$?
  echo "$status" >"$folder/status"
}
# Writes the settings of the fake from standard input.
fake() { cat >"$folder/fake"; : >"$folder/log"; }
export STACKHOUND_FAKE=$folder/fake
# Waits until the fake logs that a session has delivered all events. After 120 s the test continues
# with incomplete output.
wait_for_delivery() {
  for _ in $(seq 1200); do
    ! grep -q '^all events delivered by' "$folder/log" || return 0
    sleep 0.1
  done
}

step "traces, and the output for them on Linux"
# Built like the whole workspace, so that the artifacts of its tests are reused.
STACKHOUND_EXAMPLES_KEEP=$folder cargo test --quiet --locked --workspace --test examples
cargo build --quiet --locked --workspace --bin stackhound --example network_monitor --example syscall_sensor
here=$(scripts/target-folder)/debug

step "the tutorials print the same output live as for a trace"
for row in "network_monitor network.etl network-monitor" "syscall_sensor calls.etl syscall-sensor"; do
  read -r example trace session <<<"$row"
  _NT_SYMBOL_PATH="srv*$folder/symbols" "$here/examples/$example" "$folder/$trace" >"$folder/expected" 2>"$folder/end"
  fake <<EOF
log = $folder/log
[$session]
trace = $folder/$trace
at_end = wait
EOF
  # Simulates the Enter key after all events were delivered.
  { wait_for_delivery; echo; } | _NT_SYMBOL_PATH="srv*Z:${folder//\//\\}\\symbols" \
    scripts/with-fake "$built/examples/$example.exe" >"$folder/out" 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
  tr -d '\r' <"$folder/out" | diff "$folder/expected" - || fail "$example: the live output differs from that for the trace"
  tr -d '\r' <"$folder/err" | diff "$folder/end" - || fail "$example: the live run counts other events"
  has "$folder/log" StartTraceW
  echo "$example: $(wc -l <"$folder/expected") equal lines"
done
has "$folder/log" 'StartTraceW.*name="syscall-sensor".*buffer_kib=64 minimum=20 maximum=128'

# With delays, because the end of a short trace would end a session that is still starting.
step "events --live"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/calls.etl
delay_ms = 20
EOF
live events --live --session mine --stacks --format ndjson --for 600s
[ "$(cat "$folder/status")" = 0 ] || { cat "$folder/err" >&2; fail "events --live"; }
has "$folder/err" '^[0-9,]+ events in [0-9.]+ s \([0-9,]+ events/s\), nothing lost, [0-9,]+ stack parts attributed'
has "$folder/out" '"event":"PerfInfo/SysCallEnter".*"state":"complete"'
has "$folder/log" 'StartTraceW.*name="mine"'
echo "$(wc -l <"$folder/out") lines: $(tr -d '\r' <"$folder/err")"

step "events --live flushes its output when no events arrive, ends after --for, and reports losses"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/calls.etl
lose_every = 5
at_end = wait
EOF
# Removes the output of the previous step.
: >"$folder/out"
live events --live --session mine --preset syscalls --buffers low-latency --for 12s --event Process/Start &
running=$!
while ! grep -q Process/Start "$folder/out" && kill -0 $running 2>/dev/null; do sleep 0.1; done
kill -0 $running || fail "events --live ended before the time of --for"
has "$folder/out" Process/Start
wait $running
[ "$(cat "$folder/status")" = 0 ] || { cat "$folder/err" >&2; fail "--for"; }
has "$folder/err" '^[0-9,]+ events in (1[2-9]|[2-9][0-9])\.[0-9] s .* buffers lost'
has "$folder/err" 'lost so far; '
has_not "$folder/out" PerfInfo/SysCallEnter
has "$folder/log" 'buffer_kib=32 minimum=64 maximum=512 flush=5ms'

step "hunt --live has the same findings as for the trace, and reports losses"
"$here/stackhound" demo --quiet --out "$folder/demo" >"$folder/made"
# Findings without their location, because a session has no file, without numbers of records (a file
# begins with one about the session), and without UTC times, which depend on the start of the
# session. The names of alerts depend on their first time, and those of processes on their start.
findings() {
  tr -d '\r' | sed -E 's/"input":\{[^}]*\}/"input":{}/; s/"rule":\{"file":"[^"]*"/"rule":{"file":""/; s/"record":[0-9]+/"record":0/g; s/"(alert|time|start_time|first_seen|last_seen)":"[^"]*"/"\1":""/g
    s/"entity":"([0-9]+)@[^"]*"/"entity":"\1@"/g'
}
# Rules with answers about the trace: two that apply to it, a sequence, and those of this project.
mkdir "$folder/rules"
cp rules/*.yml "$folder/rules"
for rule in "1 sequence maxspan 1m |evt.name = 'OpenProcess'| by evt.pid |evt.name = 'RegSetValue'| by evt.pid" \
  "2 evt.name = 'OpenProcess' and ps.exe iendswith 'updater.exe'" "3 evt.category = 'registry' and stack.finding = 'CS07'"; do
  printf 'name: rule %s\nid: rule-%s\nversion: 1.0.0\nseverity: low\nmin-engine-version: 3.0.0\ncondition: >\n  %s\n' \
    "${rule%% *}" "${rule%% *}" "${rule#* }" >"$folder/rules/own-${rule%% *}.yml"
done
# A policy, whose paths are relative to its file.
printf '[[exceptions]]\ndetection = "CS07"\nreason = "expected"\n' >"$folder/lists.toml"
printf '[hunt]\nlists = "lists.toml"\nrules = ["rules"]\n' >"$folder/policy.toml"
status=0
_NT_SYMBOL_PATH="srv*$folder/none" "$here/stackhound" hunt --one-pass --format ndjson --config "$folder/policy.toml" \
  "$folder/demo/stackhound-demo.etl" >"$folder/recorded" 2>"$folder/end" || status=$?
[ "$status" = 1 ] || { cat "$folder/end" >&2; fail "hunt --one-pass finds nothing"; }
export _NT_SYMBOL_PATH="srv*Z:${folder//\//\\}\\none"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/demo/stackhound-demo.etl
delay_ms = 20
EOF
live hunt --live --session mine --preset syscalls --format ndjson --config "Z:${folder//\//\\}\\policy.toml" --for 600s
[ "$(cat "$folder/status")" = 1 ] || { cat "$folder/err" >&2; fail "hunt --live"; }
findings <"$folder/recorded" >"$folder/expected"
for rule in 1 2 3; do has "$folder/expected" "\"detection\":\"rule-$rule\""; done
has_not "$folder/expected" '"detection":"CS07"'
findings <"$folder/out" | diff "$folder/expected" - | cut -c1-400 || fail "the findings of hunt --live differ from those of hunt --one-pass"
has "$folder/err" '^[0-9,]+ events in [0-9.]+ s .*, nothing lost, [0-9,]+ evaluated, [0-9,]+ of them with stacks; findings: .* high'
echo "$(wc -l <"$folder/expected") equal findings: $(tr -d '\r' <"$folder/err" | tail -1)"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/demo/stackhound-demo.etl
lose_every = 5
at_end = wait
EOF
live hunt --live --session mine --preset syscalls --format ndjson --exit-zero --for 12s
[ "$(cat "$folder/status")" = 0 ] || { cat "$folder/err" >&2; fail "hunt --live with losses"; }
has "$folder/err" '^[0-9,]+ events in [0-9.]+ s .* buffers lost.*, [0-9,]+ evaluated, '
unset _NT_SYMBOL_PATH

step "kstack --live shows the same stacks as for the trace"
# Only the trace contains losses, and UTC times depend on the start of the session.
stacks() {
  tr -d '\r' | sed -E 's/"(time|since)":"[^"]*"/"\1":""/g; s/,"later_lost":[a-z]*,"lost_between":[a-z]*//; s/"(lost|not-taken)"/"none"/g'
}
"$here/stackhound" kstack --quiet --one-pass --trace "$folder/demo/stackhound-demo.etl" --user --symbols modules \
  --format ndjson >"$folder/recorded"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/demo/stackhound-demo.etl
delay_ms = 20
EOF
live kstack --live --session mine --for 600s --user --symbols modules --format ndjson
[ "$(cat "$folder/status")" = 0 ] || { cat "$folder/err" >&2; fail "kstack --live"; }
stacks <"$folder/recorded" >"$folder/expected"
[ "$(grep -c '"kernel":\[' "$folder/expected")" -gt 20 ] || fail "the trace has too few stacks"
stacks <"$folder/out" | diff "$folder/expected" - | cut -c1-400 || fail "the output of kstack --live differs from that of kstack --one-pass"
has "$folder/log" 'TraceSetInformation stacks \{3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c\}/36'
echo "$(wc -l <"$folder/expected") equal threads: $(tr -d '\r' <"$folder/err" | tail -1)"

step "providers have their own session"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/calls.etl
delay_ms = 20
[mine-providers]
trace = $folder/network.etl
delay_ms = 300
EOF
live events --live --session mine --preset syscalls --stacks --provider Microsoft-Windows-Kernel-Network:0x10:4 --format csv
has "$folder/out" PerfInfo/SysCallEnter
has "$folder/out" TcpIp/SendIPV4
has "$folder/log" 'EnableTraceEx2.*7dd42a49-5329-4832-8dfd-43d979153a88'

step "events of the program itself are omitted"
pid=$("$here/stackhound" events -q --format ndjson "$folder/network.etl" | sed -n 's/.*"pid":\([0-9]*\),.*/\1/p' | sort | uniq -c | sort -rn |
  sed -n '1s/.* //p')
# A session does not deliver the first record of a file.
"$here/stackhound" events -q --format csv "$folder/network.etl" --pid "$pid" | grep -v EventTrace/Header >"$folder/own"
"$here/stackhound" events -q --format csv "$folder/network.etl" | grep -v EventTrace/Header >"$folder/recorded"
fake <<EOF
log = $folder/log
[mine]
trace = $folder/network.etl
delay_ms = 300
own_pid = $pid
EOF
live events --live --session mine --provider Microsoft-Windows-Kernel-Network --format csv
left=$(($(wc -l <"$folder/recorded") - $(wc -l <"$folder/own") + 1))
[ "$(wc -l <"$folder/own")" -gt 1 ] || fail "the trace has no events of process $pid"
[ "$(wc -l <"$folder/out")" = "$left" ] || fail "$(wc -l <"$folder/out") lines, expected $left without the events of the program itself"

step "errors"
fake <<EOF
error StartTraceW = 5
EOF
live events --live --session mine
[ "$(cat "$folder/status")" = 2 ] || fail "access denied does not set the exit code"
has "$folder/err" '^error: access to session "mine" was denied: this needs an administrator'
fake <<EOF
error EnableTraceEx2 {f4e1897c-bb5d-5668-f1d8-040f4d8dd344} = 5
EOF
live events --live --provider '{f4e1897c-bb5d-5668-f1d8-040f4d8dd344}'
has "$folder/err" 'denied: this needs an antimalware-light protected process'
fake <<EOF
exists = mine
EOF
live events --live --session mine
has "$folder/err" 'a session named "mine" is already running'

step "record"
fake <<EOF
log = $folder/log
exists = Other
[mine]
trace = $folder/calls.etl
at_end = wait
EOF
live record --session mine --preset syscalls -o "$folder/x.etl" --for 4s
[ "$(cat "$folder/status")" = 0 ] || { cat "$folder/err" >&2; fail record; }
[ ! -s "$folder/out" ] || fail "record writes to standard output"
has "$folder/err" '^[0-9.]+ [KM]iB in ([4-9]|[1-9][0-9])\.[0-9] s, nothing lost: '
has "$folder/log" 'StartTraceW.*name="mine" file=".*x\.etl"'
# In a session with a real-time consumer, Windows would write all buffers each second, full or not.
cmp "$folder/x.etl" "$folder/calls.etl" || fail "the file of a session differs from the trace"
live record --list
has "$folder/out" '^Other '
live record --stop Other
has "$folder/err" '^stopped session Other, nothing lost'
live record --stop Nobody
[ "$(cat "$folder/status")" = 2 ] || fail "stopping an unknown session does not set the exit code"
has "$folder/err" 'no session named "Nobody" is running'

step "a console that is closed, and a second Ctrl-C, stop the sessions before the program ends"
for row in "close-300 events --live" "close-300 record -o $folder/y.etl" "interrupt-300,interrupt-301 hunt --live"; do
  read -r console verb <<<"$row"
  { echo "log = $folder/log"; sed 's/,/\n/; s/-/ /g' <<<"$console" | sed 's/^/console = /'
    printf '[mine]\ntrace = %s\nrate = 1000\nrounds = forever\n' "$folder/calls.etl"; } >"$folder/fake"
  : >"$folder/log"
  # shellcheck disable=SC2086
  live $verb --session mine --preset syscalls
  has "$folder/log" '^console (Close|Interrupt)$'
  has "$folder/log" '^ControlTraceW stop .*name="mine" -> 0'
  # The program ended before Windows would end it.
  has_not "$folder/log" '^console ends the process'
done

step "sessions of earlier runs are stopped, those of other programs are not"
fake <<EOF
log = $folder/log
exists = Stackhound-4000000001-0badcafe, Stackhound-mine
[*]
trace = $folder/calls.etl
EOF
live events --live --preset syscalls --for 600s
has "$folder/err" '^stopped session Stackhound-4000000001-0badcafe, whose process had ended without stopping it'
has "$folder/log" '^ControlTraceW stop .*name="Stackhound-4000000001-0badcafe" -> 0'
has_not "$folder/log" '^ControlTraceW stop .*name="Stackhound-mine"'
has "$folder/log" 'StartTraceW.*name="Stackhound-[0-9]+-[0-9a-f]{8}"'

step "done"
