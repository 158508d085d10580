#!/usr/bin/env bash
# Compares the output of `events` for a trace with the output of `events --live` in Wine, where a
# fake of ETW delivers the same trace like a session: with the processors in any order, which
# depends on the seed. All lines must be equal except for those that differ by nature. Needs
# .ci/setup-windows.
#
# usage: live-check.sh [--short] [TRACE...]
#
# Without TRACE: all traces of the corpus (STACKHOUND_CORPUS, otherwise ../shared/corpus) and
# generated ones, with several seeds, event by event and by whole buffers. With --short, as in CI:
# some of them, one seed, and whole buffers only of the generated trace.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
gnu=x86_64-pc-windows-gnu
export STACKHOUND_WINDOWS_TARGET=${STACKHOUND_WINDOWS_TARGET:-$PWD/target/windows}
folder=$(mktemp -d)
# Processes may still write there, which is not an error.
trap 'rm -rf "$folder" || true' EXIT
short=
[ "${1:-}" != --short ] || { short=yes; shift; }

scripts/with-fake
export STACKHOUND_FAKE_BUILT=$STACKHOUND_WINDOWS_TARGET/fake
scripts/windows-cargo build --quiet --bin stackhound --examples
# With an example, as in the workspace's tests: otherwise features are missing, and most crates are built again.
cargo build --quiet --locked --workspace --bin stackhound --example fixture
live=$STACKHOUND_WINDOWS_TARGET/$gnu/cross/stackhound.exe
here=$(scripts/target-folder)/debug/stackhound

# These differ by nature: UTC times, also those in identities of processes, because a live session
# measures the relation of its clock to UTC again; the first record, which is not delivered to consumers; and events in which a session
# reports losses.
same() {
  tr -d '\r' | grep -v -e '"event":"EventTrace/Header"' -e 6a399ae0-4bc6-4de9-870b-3657f8947e7e -e '"event":"[^"]*RTLost' |
    sed -E 's/"time":"[^"]*",?//; s/("entity":"[0-9]+@)[^"]*"/\1"/g; s/"start_time":"[^"]*"/"start_time":"known"/g'
}

failed=0
total=0
# usage: check TRACE SEED RAW, where RAW is on for whole buffers and off for single events
check() {
  local name
  name=$(basename "$1")
  cat >"$folder/settings" <<SETTINGS
raw = $3
[live check]
trace = $1
seed = $2
SETTINGS
  local lines
  lines=$(wc -l <"$folder/file")
  if ! STACKHOUND_FAKE=$folder/settings scripts/with-fake "$live" events --live --session "live check" --no-progress \
    --stacks --format ndjson >"$folder/out" 2>"$folder/err"; then
    echo "$name, seed $2, raw $3: $(tr -d '\r' <"$folder/err")"
    failed=$((failed + 1))
    return
  fi
  same <"$folder/out" >"$folder/live" || true
  if cmp -s "$folder/file" "$folder/live"; then
    echo "$name, seed $2, raw $3: $lines equal lines"
    total=$((total + lines))
  else
    echo "$name, seed $2, raw $3: $lines lines from the trace, $(wc -l <"$folder/live") live; first differences:"
    diff "$folder/file" "$folder/live" | head -n 6 | cut -c 1-600 || true
    failed=$((failed + 1))
  fi
}

traces=("$@")
if [ ${#traces[@]} = 0 ]; then
  demos=(1 2)
  events=20000
  [ -z "$short" ] || { demos=(1); events=8000; }
  for seed in "${demos[@]}"; do
    "$here" demo -q --seed "$seed" --events "$events" --out "$folder/demo$seed" >/dev/null
    mv "$folder/demo$seed/stackhound-demo.etl" "$folder/demo$seed.etl"
    traces+=("$folder/demo$seed.etl")
  done
  corpus=${STACKHOUND_CORPUS:-../shared/corpus}
  if [ -d "$corpus" ]; then
    corpus=$(cd "$corpus" && pwd)
    if [ -n "$short" ]; then
      for name in tx-Process.etl.zst perfview-primitive-types.etl sonde-test.etl.zst s4-waasmedic.20251005.etl; do
        [ ! -e "$corpus/etl/$name" ] || traces+=("$corpus/etl/$name")
      done
    else
      traces+=("$corpus"/etl/*.etl "$corpus"/etl/*.etl.zst)
    fi
  else
    echo "the corpus is missing: $corpus"
    [ "${CI:-}" != true ] || exit 1
  fi
fi
for trace in "${traces[@]}"; do
  # A session of 64-bit Windows has no events of a 32-bit kernel.
  if "$here" info --format json -q "$trace" 2>/dev/null | grep -q '"pointer_size": 4'; then
    echo "$(basename "$trace"): skipped, because it is a trace of 32-bit Windows"
    continue
  fi
  if ! "$here" events "$trace" -q --one-pass --stacks --format ndjson >"$folder/out" 2>"$folder/err"; then
    echo "$(basename "$trace"): $(cat "$folder/err")"
    failed=$((failed + 1))
    continue
  fi
  same <"$folder/out" >"$folder/file" || true
  check "$trace" 1 off
  [ -n "$short" ] || check "$trace" 2 off
  # Whole buffers take the same time again, and depend on the clock and the sessions of a trace, not
  # on its events.
  [ -n "$short" ] && [[ $trace != "$folder"/* ]] || check "$trace" 3 on
done
echo "$total equal lines, $failed runs with differences"
[ "$failed" = 0 ]
