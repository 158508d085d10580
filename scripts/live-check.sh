#!/usr/bin/env bash
# One code, two sources: what `events` tells of a recording here, and what `events --live` tells of the same recording in
# Wine, where a fake of ETW hands it out as a session would: processors in any order, each seed another one. Line by
# line the same, but for what the two cannot share. Needs .ci/setup-windows.
#
# usage: live-check.sh [--short] [TRACE...]
#
# Without recordings: all of the corpus (STACKHOUND_CORPUS, else ../shared/corpus) and generated ones, by several seeds,
# event by event and by whole buffers. --short is what CI does each time: some of them, one seed, whole buffers of the generated one.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
gnu=x86_64-pc-windows-gnu
export STACKHOUND_WINDOWS_TARGET=${STACKHOUND_WINDOWS_TARGET:-$PWD/target/windows}
folder=$(mktemp -d)
# What still writes there is no reason to fail.
trap 'rm -rf "$folder" || true' EXIT
short=
[ "${1:-}" != --short ] || { short=yes; shift; }

scripts/with-fake
export STACKHOUND_FAKE_BUILT=$STACKHOUND_WINDOWS_TARGET/fake
scripts/with-windows cargo build --quiet --locked --profile cross -p stackhound-cli --target $gnu
cargo build --quiet --locked --workspace --bin stackhound
live=$STACKHOUND_WINDOWS_TARGET/$gnu/cross/stackhound.exe
here=$(scripts/target-folder)/debug/stackhound

# What differs by nature: UTC times, since a live session measures anew how its clock and UTC belong together; the first
# record, which a consumer is not handed; and events by which a session tells that it lost something.
same() {
  tr -d '\r' | grep -v -e '"event":"EventTrace/Header"' -e 6a399ae0-4bc6-4de9-870b-3657f8947e7e -e '"event":"[^"]*RTLost' |
    sed -E 's/"time":"[^"]*",?//'
}

failed=0
total=0
# usage: check TRACE SEED WAY
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
    echo "$name, seed $2, raw $3: the same $lines lines"
    total=$((total + lines))
  else
    echo "$name, seed $2, raw $3: $lines lines here, $(wc -l <"$folder/live") live; first differences:"
    diff "$folder/file" "$folder/live" | head -n 6 | cut -c 1-600 || true
    failed=$((failed + 1))
  fi
}

recordings=("$@")
if [ ${#recordings[@]} = 0 ]; then
  demos=(1 2)
  events=20000
  [ -z "$short" ] || { demos=(1); events=8000; }
  for seed in "${demos[@]}"; do
    "$here" demo -q --seed "$seed" --events "$events" --out "$folder/demo$seed" >/dev/null
    mv "$folder/demo$seed/stackhound-demo.etl" "$folder/demo$seed.etl"
    recordings+=("$folder/demo$seed.etl")
  done
  corpus=${STACKHOUND_CORPUS:-../shared/corpus}
  if [ -d "$corpus" ]; then
    corpus=$(cd "$corpus" && pwd)
    if [ -n "$short" ]; then
      for name in tx-Process.etl.zst perfview-primitive-types.etl sonde-test.etl.zst s4-waasmedic.20251005.etl; do
        [ ! -e "$corpus/etl/$name" ] || recordings+=("$corpus/etl/$name")
      done
    else
      recordings+=("$corpus"/etl/*.etl "$corpus"/etl/*.etl.zst)
    fi
  else
    echo "the corpus is missing: $corpus"
    [ "${CI:-}" != true ] || exit 1
  fi
fi
for recording in "${recordings[@]}"; do
  # A session of 64-bit Windows has no events of a 32-bit kernel.
  if "$here" info --format json -q "$recording" 2>/dev/null | grep -q '"pointer_size": 4'; then
    echo "$(basename "$recording"): of 32-bit Windows, left out"
    continue
  fi
  if ! "$here" events "$recording" -q --one-pass --stacks --format ndjson >"$folder/out" 2>"$folder/err"; then
    echo "$(basename "$recording"): $(cat "$folder/err")"
    failed=$((failed + 1))
    continue
  fi
  same <"$folder/out" >"$folder/file" || true
  check "$recording" 1 off
  [ -n "$short" ] || check "$recording" 2 off
  # Whole buffers take as long again, and differ by the recording's clock and sessions, not by what it holds.
  [ -n "$short" ] && [[ $recording != "$folder"/* ]] || check "$recording" 3 on
done
echo "$total lines are the same, $failed runs are not"
[ "$failed" = 0 ]
