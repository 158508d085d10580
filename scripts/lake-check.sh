#!/usr/bin/env bash
# Builds stackhound-lake, runs its tests, answers the twenty questions about traces of 64 generated hosts and about their
# tables with it, about the tables with DuckDB and with ClickHouse, and then with a cluster on this machine: a scheduler
# with one and with two executors, of which one is killed during a query. Counts filtered events of a larger trace, also
# with `stackhound events`. The last lines are a table of times.
#
# usage: lake-check.sh [dev|release]
#
# The default is release. Everything that it starts ends with it, also after an error.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
hosts=64
folder=$(mktemp -d)
declare -A pids=()

cleanup() {
  # The shell reports each process that was killed.
  exec 2>/dev/null
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

times=()
# Runs a command, and keeps the seconds that it takes.
timed() {
  local name=$1 start=$EPOCHREALTIME
  shift
  "$@"
  times+=("$(awk -v name="$name" -v start="$start" -v end="$EPOCHREALTIME" 'BEGIN { printf "%-44s %8.1f s", name, end - start }')")
}

CARGO_TARGET_DIR=$(scripts/target-folder)
target=$CARGO_TARGET_DIR
export CARGO_TARGET_DIR
output=$([ "$profile" = dev ] && echo debug || echo "$profile")
timed "build of stackhound" cargo build --quiet --locked --profile "$profile" -p stackhound-cli
export STACKHOUND_PROGRAM=$target/$output/stackhound

# The versions of its libraries have other features than those of the workspace.
export CARGO_TARGET_DIR=$PWD/crates/lake/target
lake=$CARGO_TARGET_DIR/$output/stackhound-lake
manifest=crates/lake/Cargo.toml
cargo fmt --check --manifest-path "$manifest"
timed "build of stackhound-lake" cargo build --quiet --locked --profile "$profile" --manifest-path "$manifest"
# As `cargo clippy`, but it also compiles, so that the dependencies are built once, and not checked before.
RUSTC_WORKSPACE_WRAPPER=clippy-driver \
  cargo rustc --quiet --locked --profile "$profile" --manifest-path "$manifest" --bin stackhound-lake -- -D warnings
timed "tests of stackhound-lake" cargo test --quiet --locked --profile "$profile" --manifest-path "$manifest"

timed "traces and tables of $hosts hosts" scripts/lake-data.sh "$STACKHOUND_PROGRAM" "$hosts" "$folder"
python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet --disable-pip-version-check "duckdb==2.0.*" "chdb==4.4.*"
answers() { timeout 1200 "$folder/environment/bin/python" scripts/lake-answers.py "$lake" "$folder" "$@"; }
timed "twenty questions: traces, tables, DuckDB, ClickHouse" answers
timed "twenty questions: lake alone" answers --only-lake >"$folder/local.json"

"$STACKHOUND_PROGRAM" demo -q --out "$folder/large" --events 2000000 --mix profile >/dev/null
large=("$folder/large/stackhound-demo.etl" --threads 1)
for round in first second third; do
  timed "filter by name, $round: events --where" \
    "$STACKHOUND_PROGRAM" events -q "${large[@]}" --where "event = 'Process/Start'" --format ndjson \
    >"$folder/filtered.ndjson"
  timed "filter by name, $round: query" \
    "$lake" query "SELECT count(*) FROM events WHERE event = 'Process/Start'" "${large[@]}" --format csv >"$folder/count.csv"
  [ "$(tail -n 1 "$folder/count.csv" | tr -d '\r')" = "$(wc -l <"$folder/filtered.ndjson")" ]
done

port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
scheduler=df://127.0.0.1:$port
"$lake" scheduler --bind "127.0.0.1:$port" 2>"$folder/scheduler.log" &
pids[scheduler]=$!
# Starts an executor with a number, and waits until the scheduler knows it. Each works on one task at a time.
executor() {
  mkdir -p "$folder/$1"
  "$lake" executor --scheduler "$scheduler" --data "$folder/lake" --concurrent-tasks 1 --spill-dir "$folder/$1" \
    2>"$folder/$1.log" &
  pids[$1]=$!
  sleep 3
  ask "SELECT count(*) AS n FROM traces" >/dev/null
}
ask() { timeout 240 "$lake" query "$1" "$folder/lake" --scheduler "$scheduler" --format csv; }

sleep 1
executor one
timed "twenty questions: one executor" answers --only-lake --scheduler "$scheduler" >"$folder/one.json"
cmp "$folder/local.json" "$folder/one.json"
executor two
timed "twenty questions: two executors" answers --only-lake --scheduler "$scheduler" >"$folder/two.json"
cmp "$folder/local.json" "$folder/two.json"

slow="SELECT f.module, s.origin, count(*) AS frames, count(DISTINCT f.stack_id) AS stacks,
  count(DISTINCT frame(f.stack_id, 1)) AS callees
FROM frames AS f
LEFT JOIN symbols AS s
  ON s.trace = f.trace AND s.module_id = f.module_id AND s.rva = f.rva AND s.is_return = f.is_return
GROUP BY f.module, s.origin ORDER BY f.module NULLS LAST, s.origin NULLS LAST"
timed "slow query: lake alone" "$lake" query "$slow" "$folder/lake" --format csv >"$folder/slow.csv"
timed "slow query: two executors" ask "$slow" >"$folder/slow-two.csv"
cmp "$folder/slow.csv" "$folder/slow-two.csv"

# Kills an executor at three times of the query: the right answer or an error that says so must follow, within the
# time-out.
killed() {
  local round code query
  for round in 0.5 1 4; do
    code=0
    ask "$slow" >"$folder/killed.csv" 2>"$folder/killed.log" &
    query=$!
    pids[query]=$query
    sleep "$round"
    kill -9 "${pids[two]}"
    wait "$query" || code=$?
    case $code in
    0)
      cmp "$folder/slow.csv" "$folder/killed.csv" || return 1
      echo "killed after $round s: the right answer"
      ;;
    2) grep '^error: .*an executor was lost' "$folder/killed.log" || return 1 ;;
    *) echo "killed after $round s: exit code $code" >&2 && return 1 ;;
    esac
    executor two
  done
}
timed "slow query, three times with an executor killed" killed

printf '\nprofile %s, %s processors, %s hosts, %s\n' "$profile" "$(nproc)" "$hosts" "$(du -sh "$folder/lake" | cut -f1)"
printf '%-44s %8.1f MB\n' "size of stackhound-lake" "$(awk -v size="$(stat -c %s "$lake")" 'BEGIN { print size / 1e6 }')"
printf '%s\n' "${times[@]}"
