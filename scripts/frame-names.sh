#!/usr/bin/env bash
# Prints how many frames of exact traces of ls and python3, and of further traces, have a function name and a module.
# docs/calltree.md has such a table.
#
# usage: frame-names.sh [TRACE…]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
traces=()
for trace in "$@"; do
  traces+=("$(realpath "$trace")")
done
cd "$(dirname "$0")/.."
cargo build --locked --quiet -p stackhound-cli -p stackhound --bin stackhound --example frame_names
target=$(scripts/target-folder)/debug
# The interpreter itself, because python3 may be a script that starts it.
python=$(python3 -c 'import sys; print(sys.executable)')
json='import json; d = {str(n): [n, n / 7, None] for n in range(300)}; assert json.loads(json.dumps(d)) == d'
"$target/stackhound" record --exact --limit 1500000 -o "$folder/ls.calls" -- ls -l /usr/bin </dev/null >/dev/null
"$target/stackhound" record --exact --limit 6000000 -o "$folder/python3.calls" -- "$python" -S -c "$json" </dev/null
"$target/examples/frame_names" "$folder/ls.calls" "$folder/python3.calls" "${traces[@]}"
